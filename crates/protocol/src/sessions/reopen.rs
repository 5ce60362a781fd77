//! Lost sessions whose class has them opened again (`on_node_loss = "reopen"`).
//!
//! ```text
//!  READY ── its boot is over ──▶ LOST (REOPENING) ── a node has room ──▶ PENDING, a new life ──▶ READY
//!                                  │          ▲                             │
//!                                  │          └── no node takes it, or ─────┘
//!                                  │              its node is lost, too
//!                                  └── a client closes it ──▶ LOST (NODE_LOST): nothing follows
//! ```
//!
//! Whether another life follows stands in the commit that ends one. So whoever takes the partition over goes on with
//! that, and a close that was committed before wins.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::state::Log;
use crate::ports::note::Transition;
use crate::sessions::capacity::ROOM_MS;
use crate::sessions::request_ids::life_of;
use crate::sessions::state::Sessions;
use rota_messages::DocKey;
use rota_model::{ClassName, Exit, PoolName, Reason, SessionRecord, SessionSpec, SessionState};
use std::collections::BTreeSet;

/// Most lives that begin in one step.
const STEP_MAX: usize = 64;

/// Between tries, unless more could have begun.
const REOPEN_MS: u64 = 1_000;

/// What comes after a life that is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    /// Another life, if its class says so.
    AsItsClassSays,
    /// Nothing: whether a client closed the session is not known.
    Nothing,
}

/// When lost sessions are tried again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Reopening {
    /// Some may wait.
    waits: bool,
    next_ms: u64,
}

impl Reopening {
    /// One may have been committed.
    pub fn look(&mut self) {
        self.waits = true;
    }

    pub fn waits(&self) -> bool {
        self.waits
    }
}

/// Whether another life follows this one, if it ends with its node.
pub(crate) fn reopens(env: &Env, record: &SessionRecord) -> bool {
    // Who waits for a life that never answered begins the next one, or is told.
    let goes_on = record.state == SessionState::Ready || record.reason == Some(Reason::Reopening);
    let at = record.placement.as_ref().map(|it| &it.node);
    let SessionSpec { pool, class, .. } = &record.spec;
    let facts = at.and_then(|it| env.nodes.facts_there(it, pool, class));
    goes_on && facts.is_some_and(|it| it.reopens)
}

/// What a life becomes whose node says that it ended, though no manager closed it. A node that no manager could
/// reach, and that stopped it for that, is lost to its clients like any other.
pub(crate) fn ended_unasked(
    env: &Env,
    record: &SessionRecord,
    reason: Reason,
    exit: Option<&Exit>,
) -> (SessionState, Option<Reason>) {
    if reason == Reason::LeaseNotRenewed && reopens(env, record) {
        return (SessionState::Lost, Some(Reason::Reopening));
    }
    (record.state.ended_unasked(reason, exit), Some(reason))
}

/// Whether sessions of this one's namespace are opened in its pool.
fn admits(env: &Env, record: &SessionRecord) -> bool {
    let namespace = &record.key.namespace;
    let pool = env.nodes.settings(&record.spec.pool);
    pool.is_none_or(|it| it.admits(namespace))
        && env.documents_env.spaces.check_open(namespace).is_ok()
}

/// Whether a lost session waits to be opened again as that.
pub(crate) fn waits_for(lost: &SessionRecord, spec: &SessionSpec) -> bool {
    lost.is_reopened() && lost.spec == *spec
}

/// If it waits to be opened again, it does no more.
pub(crate) fn stays_lost(record: &mut SessionRecord) {
    if record.is_reopened() {
        record.reason = Some(Reason::NodeLost);
    }
}

impl Sessions {
    /// Begins the next lives, where nodes have room. Gives what waits for that.
    pub fn tick_reopening(&mut self, led: &mut At<'_>) -> Vec<SessionSpec> {
        let now = led.env.now.mono_ms;
        // An owner that has just started does not know the pools yet.
        let may = led.may_begin() && led.backlog().is_none() && led.env.documents_env.knows_spaces;
        if !self.reopening.waits || now < self.reopening.next_ms || !may {
            return Vec::new();
        }
        let keys: Vec<DocKey> = led.log.replica.sessions_reopening().cloned().collect();
        let (mut waiting, mut begun) = (Vec::new(), 0);
        let mut full: BTreeSet<(PoolName, ClassName)> = BTreeSet::new();
        for key in &keys {
            let Some(old) = led.log.replica.record(key) else { continue };
            if !admits(led.env, &old) {
                continue;
            }
            let kind = (old.spec.pool.clone(), old.spec.class.clone());
            if begun < STEP_MAX && !full.contains(&kind) && self.reopen(led, key, &old) {
                begun += 1;
            } else {
                full.insert(kind);
                waiting.push(old.spec.clone());
            }
        }
        let next_ms = now + if begun < STEP_MAX { REOPEN_MS } else { ROOM_MS };
        self.reopening = Reopening { waits: begun < keys.len(), next_ms };
        waiting
    }

    /// The pool of each lost session that waits to be opened again.
    pub fn reopening_in(&self, log: &Log) -> impl Iterator<Item = PoolName> {
        let keys = self.reopening.waits.then(|| log.replica.sessions_reopening());
        let records = keys.into_iter().flatten().filter_map(|key| log.replica.record(key));
        records.map(|it| it.spec.pool.clone())
    }

    /// Begins the next life of a session. False where no node has room.
    fn reopen(&mut self, led: &mut At<'_>, key: &DocKey, old: &SessionRecord) -> bool {
        let Ok(chosen) = led.env.nodes.choose(&old.spec, &[], led.env.now.mono_ms) else {
            return false;
        };
        let mut record = life_of(led.env, Some(old), &old.key, &old.spec, led.stamps_above());
        record.reason = Some(Reason::Reopening);
        led.env.note(Transition::SessionReopened, Some(led.log.number));
        self.write_pending(led, key, record, chosen, None);
        true
    }
}
