//! Sessions whose class has them opened again: lost ones (`on_node_loss = "reopen"`), and those that ended badly
//! (`restart`), after a pause that grows.
//!
//! ```text
//!  READY ── it ends badly ──▶ FAILED (RESTARTING) ── the pause is over, a node has room ──▶ PENDING, a new life
//!
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
use crate::sessions::in_progress::InProgress;
use crate::sessions::request_ids::life_of;
use rota_messages::DocKey;
use rota_model::{ClassName, Now, PoolName, SessionRecord, SessionSpec, SessionState, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// Most lives that begin in one step.
const STEP_MAX: usize = 64;

/// Between tries, unless more could have begun.
const REOPEN_MS: u64 = 1_000;

/// The same where some wait for the end of a pause.
const PAUSE_MS: u64 = 100;

/// When lost sessions are tried again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Reopening {
    /// Some may wait.
    waits: bool,
    next_ms: u64,
    /// When the pauses are over of those that ended badly, by the monotonic clock.
    pauses: BTreeMap<DocKey, (Stamp, u64)>,
}

impl Reopening {
    /// One may have been committed.
    pub fn look(&mut self) {
        self.waits = true;
    }

    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Begins the next lives, where nodes have room. Gives what waits for that.
    pub fn tick(&mut self, led: &mut At<'_>, work: &mut InProgress) -> Vec<SessionSpec> {
        let now = led.env.now.mono_ms;
        // An owner that has just started does not know the pools yet.
        let may = led.may_begin() && led.backlog().is_none() && led.env.documents_env.knows_spaces;
        if !self.waits || now < self.next_ms || !may {
            return Vec::new();
        }
        let keys: Vec<DocKey> = led.log.replica.sessions_reopening().cloned().collect();
        let (mut waiting, mut begun, mut pausing) = (Vec::new(), 0, false);
        self.pauses.retain(|key, _| keys.binary_search(key).is_ok());
        let mut full: BTreeSet<(PoolName, ClassName)> = BTreeSet::new();
        for key in &keys {
            let Some(old) = led.log.replica.record(key) else { continue };
            if !admits(led.env, &old) {
                continue;
            }
            if !self.may_begin(key, &old, led.env.now) {
                pausing = true;
                continue;
            }
            let kind = (old.spec.pool.clone(), old.spec.class.clone());
            if begun < STEP_MAX && !full.contains(&kind) && reopen(led, work, key, &old) {
                begun += 1;
            } else {
                full.insert(kind);
                waiting.push(old.spec.clone());
            }
        }
        let pause_ms = if pausing { PAUSE_MS } else { REOPEN_MS };
        let next_ms = now + if begun < STEP_MAX { pause_ms } else { ROOM_MS };
        (self.waits, self.next_ms) = (begun < keys.len(), next_ms);
        waiting
    }

    /// The pool of each lost session that waits to be opened again.
    pub fn pools(&self, log: &Log) -> impl Iterator<Item = PoolName> {
        let keys = self.waits.then(|| log.replica.sessions_reopening());
        let records = keys.into_iter().flatten().filter_map(|key| log.replica.record(key));
        records.map(|it| it.spec.pool.clone())
    }

    /// Whether a session may begin its next life now. A pause is counted by the monotonic clock from when this owner
    /// sees it, and a clock that stepped back does not prolong it.
    fn may_begin(&mut self, key: &DocKey, old: &SessionRecord, now: Now) -> bool {
        let Some(at) = old.lifetime.as_ref().and_then(|it| it.restart_at) else { return true };
        let from = old.version.to_epoch_ms().max(now.wall_ms);
        let left_ms = at.to_epoch_ms().saturating_sub(from);
        let begins = (old.life, now.mono_ms + left_ms);
        let pause = self.pauses.entry(key.clone()).or_insert(begins);
        if pause.0 != old.life {
            *pause = begins;
        }
        now.mono_ms >= pause.1
    }
}

/// Whether sessions of this one's namespace are opened in its pool.
fn admits(env: &Env, record: &SessionRecord) -> bool {
    let namespace = &record.key.namespace;
    let pool = env.nodes.settings(&record.spec.pool);
    pool.is_none_or(|it| it.admits(namespace))
        && env.documents_env.spaces.check_open(namespace).is_ok()
}

/// Begins the next life of a session. False where no node has room.
fn reopen(led: &mut At<'_>, work: &mut InProgress, key: &DocKey, old: &SessionRecord) -> bool {
    let Ok(chosen) = led.env.nodes.choose(&old.spec, &[], led.env.now.mono_ms) else {
        return false;
    };
    let lives = (Some(old), Some(old));
    let record = life_of(led.env, lives, (&old.key, &old.spec), &chosen.node, led.stamps_above());
    let is_restart = old.state == SessionState::Failed;
    let step = if is_restart { Transition::SessionRestarted } else { Transition::SessionReopened };
    led.env.note(step, Some(led.log.number));
    work.write_pending(led, key, record, chosen, None);
    true
}
