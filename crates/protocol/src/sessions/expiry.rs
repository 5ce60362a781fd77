//! Sessions that are closed because nobody uses them, or because they have lived long enough.
//!
//! ```text
//!   READY ── nobody used it for `idle_ms` ──────────────┐
//!     ▲                                                 ├──▶ CLOSING (IDLE_TIMEOUT, MAX_LIFETIME) ──▶ CLOSED
//!   PENDING ── its life began `max_life_ms` ago ────────┘
//! ```
//!
//! Both times stand in the record ([`rota_model::Lifetime`]). An owner arms them by its monotonic clock when the
//! record is committed, or when it begins to serve, so a clock that steps later ends nothing too early. Uses are known
//! to the owner alone: a new owner counts idle from its own serving, and never ends a session too early.

use crate::log::at::At;
use crate::sessions::uses::Uses;
use rota_model::{Lifetime, Reason, SessionKey, SessionRecord, SessionState, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// One life that ends by itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Armed {
    life: Stamp,
    /// When it has lived long enough, by the monotonic clock.
    over_ms: Option<u64>,
    /// Since when it answers, as far as this owner knows, and how long nobody may use it from then on.
    idle: Option<(u64, u64)>,
    /// When it is looked at.
    due_ms: u64,
}

impl Armed {
    /// When it ends, and why, if nobody uses it any more.
    fn ends(&self, key: &SessionKey, uses: &Uses) -> Option<(u64, Reason)> {
        let idle = self.idle.map(|(since_ms, idle_ms)| {
            let used_ms = uses.last(key, self.life).unwrap_or_default();
            (since_ms.max(used_ms).saturating_add(idle_ms), Reason::IdleTimeout)
        });
        let over = self.over_ms.map(|it| (it, Reason::MaxLifetime));
        idle.into_iter().chain(over).min()
    }
}

/// Lives that end by themselves, at their owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Expiry {
    armed: BTreeMap<SessionKey, Armed>,
    /// In the order in which they are looked at.
    due: BTreeSet<(u64, SessionKey)>,
}

impl Expiry {
    /// A life is committed, or found by a new owner.
    pub fn arm(&mut self, led: &At<'_>, uses: &Uses, record: &SessionRecord) {
        let key = &record.key;
        let Some(lifetime) = record.lifetime.as_deref() else { return self.disarm(key) };
        let Lifetime { idle_ms, max_life_ms, .. } = lifetime;
        let now = led.env.now;
        let before = self.armed.get(key).filter(|it| it.life == record.life);
        let over_ms = || {
            // A clock behind the life's stamp has stepped back: it counts from now.
            let lived_ms = now.wall_ms.saturating_sub(record.life.to_epoch_ms());
            max_life_ms.map(|it| now.mono_ms.saturating_add(it.saturating_sub(lived_ms)))
        };
        let over_ms = before.map_or_else(over_ms, |it| it.over_ms);
        let is_ready = record.state == SessionState::Ready;
        let idle = || idle_ms.filter(|_| is_ready).map(|it| (now.mono_ms, it));
        let idle = before.and_then(|it| it.idle).or_else(idle);
        let armed = Armed { life: record.life, over_ms, idle, due_ms: 0 };
        let ends = armed.ends(key, uses);
        self.disarm(key);
        if let Some((due_ms, _)) = ends {
            self.due.insert((due_ms, key.clone()));
            self.armed.insert(key.clone(), Armed { due_ms, ..armed });
        }
    }

    /// A new owner arms what lives.
    pub fn arm_all(&mut self, led: &At<'_>, uses: &Uses) {
        let keys = led.log.replica.counts.session_counts.timed();
        for record in keys.filter_map(|key| led.log.replica.session(key)) {
            self.arm(led, uses, record);
        }
    }

    /// A life has ended, or is being closed.
    pub fn disarm(&mut self, key: &SessionKey) {
        if let Some(armed) = self.armed.remove(key) {
            self.due.remove(&(armed.due_ms, key.clone()));
        }
    }

    /// The next one that ends now, and why. Those that were used meanwhile are put off.
    pub fn next(&mut self, uses: &Uses, now_ms: u64) -> Option<(SessionKey, Stamp, Reason)> {
        while self.due.first().is_some_and(|(at, _)| *at <= now_ms) {
            let (_, key) = self.due.pop_first()?;
            let Some(armed) = self.armed.get_mut(&key) else { continue };
            match armed.ends(&key, uses) {
                Some((due_ms, _)) if due_ms > now_ms => {
                    armed.due_ms = due_ms;
                    self.due.insert((due_ms, key));
                }
                Some((_, reason)) => {
                    let life = armed.life;
                    self.armed.remove(&key);
                    return Some((key, life, reason));
                }
                None => drop(self.armed.remove(&key)),
            }
        }
        None
    }
}

/// Why a session is closed that is over, for people.
pub(crate) fn expired(lifetime: &Lifetime, reason: Reason) -> String {
    let seconds = |ms: Option<u64>| ms.unwrap_or_default() as f64 / 1_000.0;
    if reason == Reason::IdleTimeout {
        return format!("nobody used it for {} s", seconds(lifetime.idle_ms));
    }
    format!("it lived for {} s", seconds(lifetime.max_life_ms))
}
