//! The lease: how long the node may run anything without hearing from the judge of its life.

use crate::config::NodeTiming;

/// Where the lease stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseState {
    /// Not registered yet.
    None,
    /// It runs.
    Valid,
    /// It ran out: everything is being ended politely, nothing is started.
    Term,
    /// Everything is being killed, nothing is started.
    Kill,
    /// The boot was declared lost.
    Lost,
}

/// The lease of one boot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lease {
    /// When the newest granted renewal was SENT: the judge's time began no earlier.
    from_ms: u64,
    state: LeaseState,
    last_renew_ms: u64,
    next_renew_ms: u64,
    /// A renewal was sent after one that nobody had granted.
    missed: bool,
}

impl Lease {
    pub(crate) fn new() -> Self {
        Self {
            from_ms: 0,
            state: LeaseState::None,
            last_renew_ms: 0,
            next_renew_ms: 0,
            missed: false,
        }
    }

    pub(crate) fn state(&self) -> LeaseState {
        self.state
    }

    /// When everything is to be ended, and killed.
    pub(crate) fn deadlines(&self, timing: &NodeTiming) -> Option<(u64, u64)> {
        (self.state != LeaseState::None)
            .then(|| (self.from_ms + timing.lease_term_ms, self.from_ms + timing.lease_kill_ms))
    }

    /// A renewal was granted that was sent at that time. True when the lease moved.
    pub(crate) fn grant(&mut self, now: u64, sent_ms: u64, timing: &NodeTiming) -> bool {
        let sent_ms = sent_ms.min(now);
        match self.state {
            LeaseState::Lost => return false,
            LeaseState::None => {
                self.next_renew_ms = now;
                self.state = LeaseState::Valid;
            }
            LeaseState::Valid | LeaseState::Term | LeaseState::Kill => {
                if sent_ms <= self.from_ms {
                    return false;
                }
                if sent_ms >= self.last_renew_ms {
                    // Undoes the early repetition.
                    self.next_renew_ms = self.last_renew_ms + timing.renew_ms;
                }
            }
        }
        // Whether it is valid again is for `advance` to find, so that no step is skipped.
        self.from_ms = sent_ms;
        true
    }

    /// Whether renewals went ungranted before the newest grant. Asked once for each.
    pub(crate) fn had_missed(&mut self) -> bool {
        std::mem::take(&mut self.missed)
    }

    /// A manager could not judge yet: ask again soon, unless another one has granted since.
    pub(crate) fn retry_soon(&mut self, now: u64, sent_ms: u64, timing: &NodeTiming) {
        if sent_ms >= self.last_renew_ms && self.from_ms < sent_ms {
            self.next_renew_ms = self.next_renew_ms.min(now + timing.renew_retry_ms);
        }
    }

    /// There is a manager. Asks at once if the last renewal was not granted so far.
    pub(crate) fn reached(&mut self, now: u64) {
        if self.last_renew_ms > self.from_ms {
            self.renew_at_once(now);
        }
    }

    /// Others than before can be asked.
    pub(crate) fn renew_at_once(&mut self, now: u64) {
        self.next_renew_ms = self.next_renew_ms.min(now);
    }

    pub(crate) fn lose(&mut self) {
        self.state = LeaseState::Lost;
    }

    /// The state by the clock.
    fn at(&self, now: u64, timing: &NodeTiming) -> LeaseState {
        match self.state {
            LeaseState::None | LeaseState::Lost => self.state,
            LeaseState::Valid | LeaseState::Term | LeaseState::Kill => {
                let age = now.saturating_sub(self.from_ms);
                if age >= timing.lease_kill_ms {
                    LeaseState::Kill
                } else if age >= timing.lease_term_ms {
                    LeaseState::Term
                } else {
                    LeaseState::Valid
                }
            }
        }
    }

    /// Follows the clock. True when the state changed.
    pub(crate) fn advance(&mut self, now: u64, timing: &NodeTiming) -> bool {
        let before = self.state;
        self.state = self.at(now, timing);
        self.state != before
    }

    /// True when a renewal is due; then it counts as sent now. Until somebody grants it, the next one
    /// comes sooner: a judge may hang, and its successor is to be asked many times before the term.
    pub(crate) fn renew(&mut self, now: u64, timing: &NodeTiming) -> bool {
        if !self.renews() || now < self.next_renew_ms {
            return false;
        }
        self.missed |= self.last_renew_ms > self.from_ms;
        self.last_renew_ms = now;
        let is_granted = self.from_ms >= now;
        self.next_renew_ms =
            now + if is_granted { timing.renew_ms } else { timing.unanswered_ms() };
        true
    }

    fn renews(&self) -> bool {
        !matches!(self.state, LeaseState::None | LeaseState::Lost)
    }

    /// When this lease next needs attention.
    pub(crate) fn wake_at(&self, timing: &NodeTiming) -> Option<u64> {
        let next_step = match self.state {
            LeaseState::None | LeaseState::Lost => return None,
            LeaseState::Valid => self.from_ms + timing.lease_term_ms,
            LeaseState::Term => self.from_ms + timing.lease_kill_ms,
            LeaseState::Kill => u64::MAX,
        };
        Some(next_step.min(self.next_renew_ms))
    }
}
