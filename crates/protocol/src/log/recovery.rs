//! How a partition is found again, at its owner, as far as its log goes. What the nodes run stands in
//! [`crate::sessions::scan_state`].

use crate::log::copies::Report;
use crate::log::desire::Desire;
use crate::log::env::Env;
use crate::log::lead::{Lead, Phase};
use crate::log::state::{Holding, Log};
use crate::log::sync::split;
use rota_messages::{Entry, Message, Write};
use rota_model::{Epoch, LogPos, MemberId, Refusal, RefusalKind, Retry, Stamp};
use rota_ring::{FoundAgain, ManagerEntry};
use std::collections::VecDeque;

/// How far stamps that were given out and lost are taken to be above the clock that finds a partition again.
/// Clocks may be an hour apart ([`rota_docstore::cache::CLOCKS_APART_MS_MAX`]), but caches refuse what is
/// that far ahead: where they are more than this apart, a lost stamp may be given out again.
const LOST_BY_CLOCK_MS: u64 = 600_000;

/// The same above stamps that are known here: versions run ahead of those before them by seconds for each
/// change of the owner ([`crate::sessions::version`]).
const LOST_BY_RECORD_MS: u64 = 120_000;

/// How a partition is found again, at its owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Recovery {
    /// What is known to be lost, for people.
    pub(crate) why: String,
    pub(crate) step: Step,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// The View does not say so yet.
    GivingUp,
    /// Nodes are asked what they run, and managers whether they hold more.
    Looking(Looking),
    /// What was found is being written.
    Writing(Writing),
}

/// What is heard of nodes and managers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Looking {
    /// Until then, at least, somebody with more than this manager has may say so.
    pub(crate) until_ms: u64,
    /// When the managers were asked last.
    pub(crate) asked_ms: Option<u64>,
    /// Who holds the most, and how much.
    pub(crate) better: Option<(Holding, MemberId)>,
    /// The time is over.
    pub(crate) has_waited: bool,
}

/// What was found, and how much of it is written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Writing {
    /// The entries that are not written yet.
    pub(crate) rest: VecDeque<Vec<Write>>,
    /// Where the last one stands that is.
    pub(crate) at: LogPos,
    pub(crate) found: FoundAgain,
}

impl Recovery {
    /// What is wanted of the View.
    pub fn desire(&self, me: MemberId, committed: LogPos) -> Option<Desire> {
        match &self.step {
            Step::GivingUp => Some(Desire::GiveUp(me)),
            Step::Looking(it) => {
                it.better.filter(|_| it.has_waited).map(|(_, member)| Desire::HandRecovery(member))
            }
            Step::Writing(it) if it.rest.is_empty() && committed >= it.at => {
                Some(Desire::Recovered(me, it.found))
            }
            Step::Writing(_) => None,
        }
    }
}

impl Lead {
    pub(crate) fn recovery(&mut self) -> Option<&mut Recovery> {
        match &mut self.phase {
            Phase::Recover(recovery) => Some(recovery),
            Phase::Scan | Phase::Sync(_) | Phase::Serving | Phase::Wedged { .. } => None,
        }
    }

    /// What everybody is told while the partition is being found again.
    pub fn recovering(&self) -> Option<Refusal> {
        let why = match &self.phase {
            Phase::Recover(recovery) => &recovery.why,
            Phase::Scan | Phase::Sync(_) | Phase::Serving | Phase::Wedged { .. } => return None,
        };
        let text = format!("{why}; sessions are being found again from the nodes");
        Some(Refusal::new(RefusalKind::Recovering, Retry::AfterMs(1_000), text))
    }

    /// A manager says what it holds. True when that was asked for a recovery.
    pub fn on_copy_offered(&mut self, log: &Log, from: MemberId, report: &Report) -> bool {
        let (mine, theirs) = (log.holding(), (report.committed, report.last));
        let Some(recovery) = self.recovery() else { return false };
        if let Step::Looking(looking) = &mut recovery.step
            && theirs > looking.better.map_or(mine, |(holding, _)| holding.max(mine))
        {
            looking.better = Some((theirs, from));
        }
        true
    }

    /// Asks the managers whether they hold more. True when everybody had the time to answer, and nobody holds
    /// more: who does is to look instead.
    pub fn may_write_found(&mut self, env: &mut Env, log: &Log) -> bool {
        let (part, pe) = (log.number, self.pe);
        let (now, resend_ms) = (env.now.mono_ms, env.config.timing.resend_ms * 4);
        let Some(view) = env.view.clone() else { return false };
        let Some(Recovery { step: Step::Looking(looking), .. }) = self.recovery() else {
            return false;
        };
        let serves = |member: &MemberId| {
            let entry = view.managers.get(&member.number);
            view.member(member.number) == Some(*member) && entry.is_some_and(ManagerEntry::serves)
        };
        looking.better = looking.better.filter(|(_, member)| serves(member));
        looking.has_waited = now >= looking.until_ms;
        // Nodes may be waited for much longer than that: who comes back meanwhile is still asked.
        if looking.asked_ms.is_none_or(|at| now >= at + resend_ms) {
            looking.asked_ms = Some(now);
            let me = env.me.number;
            for other in view.managers.keys().filter(|number| **number != me) {
                env.send(*other, Message::SyncAsk { part, pe });
            }
        }
        looking.has_waited && looking.better.is_none()
    }

    /// Everything that was found is known: it is written, an entry after the other.
    pub fn write_found(
        &mut self,
        env: &mut Env,
        log: &mut Log,
        writes: Vec<Write>,
        found: FoundAgain,
    ) {
        // One entry at least: this disk is to know the new position.
        let rest = split(writes, &env.config.sizes).into();
        let at = log.replica.last;
        if let Some(recovery) = self.recovery() {
            recovery.step = Step::Writing(Writing { rest, at, found });
        }
        self.write_more(env, log);
    }

    /// Writes the next entry of what was found, when the one before is on the disk: a batch for the disk
    /// has a limit, and partitions share it.
    pub fn write_more(&mut self, env: &mut Env, log: &mut Log) {
        if log.replica.committed < log.replica.last {
            return;
        }
        let at = log.replica.next_pos(self.pe);
        let Some(Recovery { step: Step::Writing(writing), .. }) = self.recovery() else { return };
        if let Some(writes) = writing.rest.pop_front() {
            writing.at = at;
            log.append(env, Entry::new(at, writes, None));
        }
    }
}

impl Log {
    /// Begins anew with what this disk holds, and says how much that is.
    pub fn restart_as_found(&mut self, pe: Epoch) -> LogPos {
        let (held, _) = self.holding();
        self.replica.found_from = Some(held);
        // Positions of before mean nothing in this log: whoever watches begins with a snapshot.
        self.replica.restart_at(LogPos::new(pe, self.replica.last.seq));
        self.replica.whole = true;
        held
    }

    /// What was given out and is lost lies below, and so does what is found.
    pub(crate) fn above_what_was_lost(&self, env: &Env, found: &[Write]) -> Stamp {
        let found = found.iter().filter_map(|it| Some(it.doc.as_ref()?.version())).max();
        // Since the loss before this one, stamps may have begun at the floor of that.
        let known = self.stamps_above(env).max(self.replica.high_water).max(env.stamps.forgotten);
        let known = known.max(found.unwrap_or_default()).plus_ms(LOST_BY_RECORD_MS);
        known.max(Stamp::from_epoch_ms(env.now.wall_ms).plus_ms(LOST_BY_CLOCK_MS))
    }
}
