//! Refusals that an owner gave to peers, for a while.
//!
//! An entry manager repeats a request when its owner is silent, so a repetition may arrive after the
//! answer. What was carried out is remembered in the record, and repeating it changes nothing; what
//! was refused is remembered here, or the repetition would be carried out when nobody waits for it
//! any more: a close that found nothing would close the next life.

use crate::entry::Origin;
use crate::env::Env;
use rota_model::{Op, Refusal, RefusalKind};
use std::collections::{BTreeMap, VecDeque};

/// How long a repetition may be under way: a link that holds a message back for longer breaks, and
/// what waits is dropped. In suspicion times.
const KEPT: u64 = 10;

/// Most refusals that are kept, each a few hundred bytes. As many as requests may wait.
const SETTLED_MAX: usize = crate::leading::REQUESTS_MAX;

/// Refusals that were given, oldest first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Settled {
    refusals: BTreeMap<Origin, Refusal>,
    until: VecDeque<(u64, Origin)>,
}

impl Settled {
    /// Remembers a refusal, if the entry manager leaves it at that.
    pub fn insert(&mut self, env: &Env, origin: Origin, op: &Op, refusal: &Refusal) {
        let from_peer = matches!(origin, Origin::Peer { .. });
        if !op.changes() || !from_peer || is_asked_again(refusal.kind) {
            return;
        }
        if self.until.len() >= SETTLED_MAX
            && let Some((_, oldest)) = self.until.pop_front()
        {
            self.refusals.remove(&oldest);
        }
        let until_ms = env.now.mono_ms + env.config.timing.suspect_ms * KEPT;
        if self.refusals.insert(origin, refusal.clone()).is_none() {
            self.until.push_back((until_ms, origin));
        }
    }

    /// The refusal that a request was given.
    pub fn get(&self, origin: Origin) -> Option<&Refusal> {
        self.refusals.get(&origin)
    }

    /// When each is forgotten.
    pub fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.until.iter().map(|it| it.0)
    }

    /// Forgets what no repetition asks for any more.
    pub fn forget(&mut self, now_ms: u64) {
        while self.until.front().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            if let Some((_, origin)) = self.until.pop_front() {
                self.refusals.remove(&origin);
            }
        }
    }
}

/// Whether the entry manager asks again by itself after that, under the same name.
pub(crate) fn is_asked_again(kind: RefusalKind) -> bool {
    match kind {
        RefusalKind::NotOwner
        | RefusalKind::NotServing
        | RefusalKind::Closing
        | RefusalKind::Recovering => true,
        RefusalKind::InvalidArgument
        | RefusalKind::UnknownClass
        | RefusalKind::NotFound
        | RefusalKind::LifeMismatch
        | RefusalKind::RequestIdReused
        | RefusalKind::InProgress
        | RefusalKind::Provisioning
        | RefusalKind::NoCapacity
        | RefusalKind::StartFailed
        | RefusalKind::Overloaded
        | RefusalKind::DeadlineExceeded
        | RefusalKind::ConfigStoreAway
        | RefusalKind::UnknownNode
        | RefusalKind::Internal => false,
    }
}
