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
use crate::sessions::request_ids::life_of;
use crate::sessions::state::Sessions;
use rota_messages::DocKey;
use rota_model::{
    ClassName, Exit, Lifetime, Now, PoolName, Reason, SessionRecord, SessionSpec, SessionState,
    Stamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most lives that begin in one step.
const STEP_MAX: usize = 64;

/// Between tries, unless more could have begun.
const REOPEN_MS: u64 = 1_000;

/// The same where some wait for the end of a pause.
const PAUSE_MS: u64 = 100;

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

/// Whether another life follows this one, if it ends with its node.
pub(crate) fn reopens(env: &Env, record: &SessionRecord) -> bool {
    // Who waits for a life that never answered begins the next one, or is told.
    let goes_on = goes_on(record);
    let at = record.placement.as_ref().map(|it| &it.node);
    let SessionSpec { pool, class, .. } = &record.spec;
    let facts = at.and_then(|it| env.nodes.facts_there(it, pool, class));
    goes_on && facts.is_some_and(|it| it.reopens)
}

/// Whether somebody besides the one who opened it counts on this life.
fn goes_on(record: &SessionRecord) -> bool {
    record.state == SessionState::Ready || record.reason.is_some_and(|it| it.waits_as().is_some())
}

/// What becomes of a life whose node says that it ended, though no manager closed it. A node that no manager could
/// reach, and that stopped it for that, is lost to its clients like any other. A bad end may be followed by another
/// life.
pub(crate) fn end_unasked(
    env: &Env,
    record: &mut SessionRecord,
    reason: Reason,
    exit: Option<Exit>,
    detail: &str,
) {
    let state = record.state.ended_unasked(reason, exit.as_ref());
    let restart = (state == SessionState::Failed).then(|| restart(env, record, reason)).flatten();
    let restarts = record.lifetime.as_ref().map_or(0, |it| it.restarts);
    record.detail = match (&restart, restarts) {
        (None, 1) if state == SessionState::Failed => format!("{detail}; it was restarted once"),
        (None, 2..) if state == SessionState::Failed => {
            format!("{detail}; it was restarted {restarts} times in a row")
        }
        _ => detail.to_owned(),
    };
    (record.state, record.reason) = match &restart {
        _ if reason == Reason::LeaseNotRenewed && reopens(env, record) => {
            (SessionState::Lost, Some(Reason::Reopening))
        }
        Some(_) => (SessionState::Failed, Some(Reason::Restarting)),
        None => (state, Some(reason)),
    };
    if let Some(lifetime) = restart {
        record.lifetime = Some(Arc::new(lifetime));
    }
    record.exit = exit;
}

/// What holds for a life that ended badly, if another one follows.
fn restart(env: &Env, record: &SessionRecord, reason: Reason) -> Option<Lifetime> {
    let is_own = matches!(
        reason,
        Reason::Exited | Reason::Internal | Reason::StartTimeout | Reason::Unhealthy
    );
    let ran = record.placement.is_some() && goes_on(record);
    let lifetime = record.lifetime.as_deref().filter(|_| is_own && ran)?.clone();
    let rule = lifetime.restart?;
    let now = Stamp::from_epoch_ms(env.now.wall_ms).max(record.version);
    let lived_ms = now.to_epoch_ms().saturating_sub(record.life.to_epoch_ms());
    let is_steady = record.state == SessionState::Ready && lived_ms >= rule.steady_ms;
    let restarts = if is_steady { 0 } else { lifetime.restarts };
    let restart_at = Some(now.plus_ms(rule.delay_after(restarts)));
    let ended_as = Some(reason);
    (restarts < rule.times).then_some(Lifetime { restarts, restart_at, ended_as, ..lifetime })
}

/// Whether sessions of this one's namespace are opened in its pool.
fn admits(env: &Env, record: &SessionRecord) -> bool {
    let namespace = &record.key.namespace;
    let pool = env.nodes.settings(&record.spec.pool);
    pool.is_none_or(|it| it.admits(namespace))
        && env.documents_env.spaces.check_open(namespace).is_ok()
}

/// Whether a session that waits to be opened again would be so as that. Who asks for no life takes the one it had.
pub(crate) fn waits_for(lost: &SessionRecord, spec: &SessionSpec) -> bool {
    let SessionSpec { class, pool, attributes, life } = &lost.spec;
    let is_same = (class, pool, attributes) == (&spec.class, &spec.pool, &spec.attributes);
    lost.is_reopened() && is_same && (spec.life.is_none() || spec.life == *life)
}

/// If it waits to be opened again, it does no more.
pub(crate) fn stays_lost(record: &mut SessionRecord) {
    if record.is_reopened() {
        let is_lost = record.state == SessionState::Lost;
        let ended_as = record.lifetime.as_ref().and_then(|it| it.ended_as);
        let ended_as = ended_as.unwrap_or(Reason::Exited);
        record.reason = Some(if is_lost { Reason::NodeLost } else { ended_as });
        if let Some(lifetime) = record.lifetime.take() {
            record.lifetime = Some(Arc::new(Lifetime { restart_at: None, ..(*lifetime).clone() }));
        }
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
        let (mut waiting, mut begun, mut pausing) = (Vec::new(), 0, false);
        self.reopening.pauses.retain(|key, _| keys.binary_search(key).is_ok());
        let mut full: BTreeSet<(PoolName, ClassName)> = BTreeSet::new();
        for key in &keys {
            let Some(old) = led.log.replica.record(key) else { continue };
            if !admits(led.env, &old) {
                continue;
            }
            if !self.reopening.may_begin(key, &old, led.env.now) {
                pausing = true;
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
        let pause_ms = if pausing { PAUSE_MS } else { REOPEN_MS };
        let next_ms = now + if begun < STEP_MAX { pause_ms } else { ROOM_MS };
        (self.reopening.waits, self.reopening.next_ms) = (begun < keys.len(), next_ms);
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
        let lives = (Some(old), Some(old));
        let record =
            life_of(led.env, lives, (&old.key, &old.spec), &chosen.node, led.stamps_above());
        let is_restart = old.state == SessionState::Failed;
        let step =
            if is_restart { Transition::SessionRestarted } else { Transition::SessionReopened };
        led.env.note(step, Some(led.log.number));
        self.write_pending(led, key, record, chosen, None);
        true
    }
}
