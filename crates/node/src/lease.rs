//! The lease: how long the node may run anything without hearing from the owner of its slot. Each owner grants what
//! lies in its partition, so each slot has a time of its own, kept like its fence.

use crate::config::NodeTiming;
use crate::slot_runs::SlotRuns;
use rota_model::node_msg::{Grant, SlotRange};
use rota_model::{Epoch, SlotId};

/// Where the lease stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseState {
    /// Not registered yet, or nobody ever granted it.
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

/// When what runs in a run of slots is to be ended, and killed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotLease {
    /// The slots; never a range that wraps.
    pub slots: SlotRange,
    /// End politely, on the monotonic clock.
    pub term_at_mono_ms: u64,
    /// Kill.
    pub kill_at_mono_ms: u64,
}

/// The lease of one boot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Lease {
    /// Of each slot, when the newest granted renewal was SENT: its owner's time began no earlier. `None` before the
    /// registration.
    from_ms: Option<SlotRuns<Option<u64>>>,
    is_lost: bool,
    /// Everything was done that the clock asked for up to there.
    looked_ms: u64,
    last_renew_ms: u64,
    next_renew_ms: u64,
    /// A renewal was sent after one that nobody had granted.
    missed: bool,
}

impl Lease {
    /// Of the whole node: it is there as long as that of any slot.
    pub(crate) fn state(&self, timing: &NodeTiming) -> LeaseState {
        if self.is_lost {
            return LeaseState::Lost;
        }
        let newest = self.granted().max();
        newest.map_or(LeaseState::None, |from_ms| state_at(from_ms, self.looked_ms, timing))
    }

    /// Of one slot.
    pub(crate) fn state_of(&self, slot: SlotId, timing: &NodeTiming) -> LeaseState {
        if self.is_lost {
            return LeaseState::Lost;
        }
        let from_ms = self.from_ms.as_ref().and_then(|it| it.at(slot));
        from_ms.map_or(LeaseState::None, |from_ms| state_at(from_ms, self.looked_ms, timing))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// When what is in each slot is to be ended, and killed.
    pub(crate) fn deadlines(&self, timing: &NodeTiming) -> Vec<SlotLease> {
        let runs = self.from_ms.iter().flat_map(SlotRuns::runs);
        let lease = |(slots, from_ms): (SlotRange, Option<u64>)| {
            let from_ms = from_ms?;
            let term_at_mono_ms = from_ms + timing.lease_term_ms;
            Some(SlotLease {
                slots,
                term_at_mono_ms,
                kill_at_mono_ms: from_ms + timing.lease_kill_ms,
            })
        };
        runs.filter_map(lease).collect()
    }

    /// When what is in one slot is to be ended, and killed.
    pub(crate) fn deadlines_of(&self, slot: SlotId, timing: &NodeTiming) -> Option<(u64, u64)> {
        let from_ms = self.from_ms.as_ref()?.at(slot)?;
        Some((from_ms + timing.lease_term_ms, from_ms + timing.lease_kill_ms))
    }

    /// The lease that keepers were told last, with nothing done about it yet.
    pub(crate) fn resumed(m: u32, told: &[SlotLease], timing: &NodeTiming) -> Self {
        let mut from_ms = SlotRuns::new(m);
        for it in told.iter().filter(|it| it.slots.first.0.max(it.slots.last.0) < m) {
            let by_term = it.term_at_mono_ms.saturating_sub(timing.lease_term_ms);
            let by_kill = it.kill_at_mono_ms.saturating_sub(timing.lease_kill_ms);
            from_ms.raise(it.slots, Some(by_term.min(by_kill)));
        }
        Self { from_ms: Some(from_ms), ..Self::default() }
    }

    /// The boot was registered, and is known to all owners from then on.
    pub(crate) fn register(&mut self, now: u64, m: u32) {
        if self.from_ms.is_none() {
            self.from_ms = Some(SlotRuns::new(m));
            self.looked_ms = now;
        }
    }

    /// Owners granted what was asked for at that time. A slot whose fence is higher is another owner's. True when
    /// the lease moved.
    pub(crate) fn grant(
        &mut self,
        (now, sent_ms): (u64, u64),
        grants: &[Grant],
        fences: &SlotRuns<Epoch>,
        timing: &NodeTiming,
    ) -> bool {
        let sent_ms = sent_ms.min(now);
        let Some(from_ms) = self.from_ms.as_mut().filter(|_| !self.is_lost) else { return false };
        let mut moved = false;
        // Whoever is wrong about the size of the ring grants nothing.
        let m = from_ms.slots();
        let inside = |it: &&Grant| it.range.first.0.max(it.range.last.0) < m;
        for grant in grants.iter().filter(inside) {
            let theirs = fences.parts(grant.range).filter(|(_, fence)| *fence <= grant.pe);
            for (slots, _) in theirs.collect::<Vec<_>>() {
                moved |= from_ms.parts(slots).any(|(_, known)| known < Some(sent_ms));
                from_ms.raise(slots, Some(sent_ms));
            }
        }
        if moved && sent_ms >= self.last_renew_ms && self.is_granted(now, timing) {
            // Undoes the early repetition.
            self.next_renew_ms = self.next_renew_ms.max(self.last_renew_ms + timing.renew_ms);
        }
        moved
    }

    /// Whether the newest renewal was granted for all that may still be saved.
    fn is_granted(&self, now: u64, timing: &NodeTiming) -> bool {
        let mut there = self.granted().filter(|it| now < it + timing.lease_kill_ms).peekable();
        there.peek().is_some() && there.all(|it| it >= self.last_renew_ms)
    }

    fn granted(&self) -> impl Iterator<Item = u64> + '_ {
        self.from_ms.iter().flat_map(SlotRuns::runs).filter_map(|(_, from_ms)| from_ms)
    }

    /// Whether renewals went ungranted before the newest grant. Asked once for each.
    pub(crate) fn had_missed(&mut self) -> bool {
        std::mem::take(&mut self.missed)
    }

    /// A manager could not grant yet: ask again soon, unless all was granted since.
    pub(crate) fn retry_soon(&mut self, now: u64, sent_ms: u64, timing: &NodeTiming) {
        if sent_ms >= self.last_renew_ms && !self.is_granted(now, timing) {
            self.next_renew_ms = self.next_renew_ms.min(now + timing.renew_retry_ms);
        }
    }

    /// There is a manager. Asks at once if the last renewal was not granted so far.
    pub(crate) fn reached(&mut self, now: u64, timing: &NodeTiming) {
        if !self.is_granted(now, timing) {
            self.renew_at_once(now);
        }
    }

    /// Something is refused for want of a lease: its owner is asked, unless it just was.
    pub(crate) fn renew_for_start(&mut self, now: u64, timing: &NodeTiming) {
        self.renew_at_once(now.max(self.last_renew_ms + timing.renew_retry_ms));
    }

    /// Others than before can be asked.
    pub(crate) fn renew_at_once(&mut self, now: u64) {
        self.next_renew_ms = self.next_renew_ms.min(now);
    }

    pub(crate) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Follows the clock. True when the lease of some slot ran out, or came to its end.
    pub(crate) fn advance(&mut self, now: u64, timing: &NodeTiming) -> bool {
        let before = self.looked_ms;
        self.looked_ms = before.max(now);
        if self.is_lost {
            return false;
        }
        let steps = |from_ms| [from_ms + timing.lease_term_ms, from_ms + timing.lease_kill_ms];
        self.granted().flat_map(steps).any(|at| before < at && at <= now)
    }

    /// True when a renewal is due; then it counts as sent now. Until all is granted, the next one
    /// comes sooner: an owner may hang, and its successor is to be asked many times before the term.
    pub(crate) fn renew(&mut self, now: u64, timing: &NodeTiming) -> bool {
        if self.from_ms.is_none() || self.is_lost || now < self.next_renew_ms {
            return false;
        }
        let missed = self.granted().all(|it| it < self.last_renew_ms);
        self.missed |= missed;
        self.last_renew_ms = now;
        let pause_ms =
            if self.is_granted(now, timing) { timing.renew_ms } else { timing.unanswered_ms() };
        self.next_renew_ms = now + pause_ms;
        true
    }

    /// When this lease next needs attention.
    pub(crate) fn wake_at(&self, timing: &NodeTiming) -> Option<u64> {
        if self.from_ms.is_none() || self.is_lost {
            return None;
        }
        let steps = |from_ms| [from_ms + timing.lease_term_ms, from_ms + timing.lease_kill_ms];
        let due = self.granted().flat_map(steps).filter(|at| *at > self.looked_ms).min();
        Some(due.unwrap_or(u64::MAX).min(self.next_renew_ms))
    }
}

fn state_at(from_ms: u64, now: u64, timing: &NodeTiming) -> LeaseState {
    let age = now.saturating_sub(from_ms);
    if age >= timing.lease_kill_ms {
        LeaseState::Kill
    } else if age >= timing.lease_term_ms {
        LeaseState::Term
    } else {
        LeaseState::Valid
    }
}
