//! What is written and not committed, and when a partition takes nothing more: an owner that cannot
//! commit must not promise more and more.

use crate::log::env::Env;
use crate::log::lead::Lead;
use crate::log::state::Log;
use rota_messages::Op;
use rota_messages::api::Needs;
use rota_model::{Refusal, RefusalKind, Retry};

/// A silent copy is suspected after `suspect_ms` and taken out at once, unless the config store is
/// away. After this many times that long the partition has lost it and cannot say so.
pub(crate) const LOST_AFTER: u64 = 2;

/// What nodes tell of sessions is refused at this many times the entries of other requests, whatever
/// their bytes: there is not more of it than sessions, an open waits for it, and a node whose news is
/// refused tells it again after a second.
const NEWS_ENTRIES: usize = 2;

impl Lead {
    /// Why a request cannot be taken now, if so: it would wait behind a commit that may not come.
    pub fn refuses_backlog(&self, env: &Env, log: &Log, op: &Op) -> Option<Refusal> {
        let Needs { writes, copies } = op.needs();
        let retry = Retry::AfterMs(env.config.timing.retry_ms);
        if copies && let Some(text) = self.lost_copy(env, log) {
            let kind = if env.store.is_away {
                RefusalKind::ConfigStoreAway
            } else {
                RefusalKind::NotServing
            };
            return Some(Refusal::new(kind, retry, text));
        }
        let full = log.backlog(env).filter(|_| writes && !Self::has_room_for_news(env, log, op));
        full.map(|text| Refusal::new(RefusalKind::Overloaded, retry, text))
    }

    fn has_room_for_news(env: &Env, log: &Log, op: &Op) -> bool {
        let most = env.config.sizes.tail_entries.saturating_mul(NEWS_ENTRIES);
        matches!(op, Op::Report(_)) && log.replica.tail.entries.len() < most
    }

    /// A copy that is silent and still in the ISR.
    fn lost_copy(&self, env: &Env, log: &Log) -> Option<String> {
        let lost_ms = env.config.timing.suspect_ms * LOST_AFTER;
        let copies = &self.copies;
        let silent = |since: u64| env.now.mono_ms >= since + lost_ms;
        let (number, _) = copies.iter().find(|(_, it)| it.behind_ms.is_some_and(silent))?;
        let why = if env.store.is_away {
            "the config store, which alone can take it out, cannot be reached"
        } else {
            "it is not taken out yet"
        };
        Some(format!("copy {number} of partition {} does not answer, and {why}", log.number))
    }
}

impl Log {
    /// Why nothing more is written now, if so: too much is not committed.
    pub fn backlog(&self, env: &Env) -> Option<String> {
        let (entries, bytes) = (self.replica.tail.entries.len(), self.replica.tail.bytes);
        let sizes = &env.config.sizes;
        let full = entries >= sizes.tail_entries || bytes >= sizes.tail_bytes;
        full.then(|| {
            format!(
                "partition {} has {entries} entries ({bytes} bytes) that are not committed; the \
                 limits are {} entries and {} bytes",
                self.number, sizes.tail_entries, sizes.tail_bytes
            )
        })
    }
}
