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

use crate::contents::session_counts::is_reopening;
use crate::log::at::At;
use crate::ports::note::Transition;
use crate::sessions::capacity::ROOM_MS;
use crate::sessions::request_ids::life_of;
use crate::sessions::state::Sessions;
use rota_messages::DocKey;
use rota_model::{ClassName, PoolName, Reason, SessionSpec};
use std::collections::BTreeSet;

/// Most lives that begin in one step.
const STEP_MAX: usize = 64;

/// When lost sessions are tried again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Reopening {
    /// Some may wait.
    waits: bool,
    next_ms: u64,
    /// The news of nodes under which they were tried last.
    news: u64,
}

impl Reopening {
    /// One may have been committed.
    pub fn look(&mut self) {
        (self.waits, self.next_ms) = (true, 0);
    }

    pub fn waits(&self) -> bool {
        self.waits
    }
}

impl Sessions {
    /// Begins the next lives, where nodes have room. Gives what waits for that.
    pub fn tick_reopening(&mut self, led: &mut At<'_>) -> Vec<SessionSpec> {
        let (now, news) = (led.env.now.mono_ms, led.env.nodes.news);
        let due = now >= self.reopening.next_ms || news != self.reopening.news;
        // An owner that has just started does not know the pools yet.
        let may = led.lead.is_open() && led.env.documents_env.knows_spaces;
        if !self.reopening.waits || !due || !may || !led.lead.has_copies(led.env) {
            return Vec::new();
        }
        self.reopening = Reopening { waits: false, next_ms: now + ROOM_MS, news };
        let keys: Vec<DocKey> = led.log.replica.sessions_reopening().cloned().collect();
        let (mut waiting, mut begun) = (Vec::new(), 0);
        let mut full: BTreeSet<(PoolName, ClassName)> = BTreeSet::new();
        for key in keys {
            let Some(spec) = led.log.replica.session(&key).map(|it| it.spec.clone()) else {
                continue;
            };
            let kind = (spec.pool.clone(), spec.class.clone());
            if begun < STEP_MAX && !full.contains(&kind) && self.reopen(led, &key) {
                begun += 1;
            } else {
                full.insert(kind);
                waiting.push(spec);
            }
        }
        self.reopening.waits = !waiting.is_empty();
        waiting
    }

    /// Begins the next life of a session. False where no node has room.
    fn reopen(&mut self, led: &mut At<'_>, key: &DocKey) -> bool {
        let Some(old) = led.log.replica.session(key).cloned() else { return true };
        let Ok(chosen) = led.env.nodes.choose(&old.spec, &[], led.env.now.mono_ms) else {
            return false;
        };
        let mut record = life_of(led.env, Some(&old), &old.key, &old.spec, led.stamps_above());
        record.reason = Some(Reason::Reopening);
        led.env.note(Transition::SessionReopened, Some(led.log.number));
        self.write_pending(led, key, record, chosen, None);
        true
    }

    /// A record was committed: a lost session may be one that is opened again.
    pub fn look_for_reopening(&mut self, led: &At<'_>, key: &DocKey) {
        let brief = led.log.replica.docs.get(key).and_then(|it| it.brief());
        if brief.is_some_and(is_reopening) {
            self.reopening.look();
        }
    }
}
