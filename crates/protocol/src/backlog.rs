//! What is written and not committed, and when a partition takes nothing more: an owner that cannot
//! commit must not promise more and more.

use crate::env::Env;
use crate::message::{Doc, Entry};
use crate::partition::Partition;
use rota_model::{Op, Refusal, RefusalKind, Retry};

/// Most entries that wait for their commit before new work is refused: as many as requests may wait
/// here, each of which writes one before it waits.
const TAIL_ENTRIES_MAX: usize = crate::leading::REQUESTS_MAX;

/// Most bytes of such entries: what a link of 1 Gbit/s carries in half a second.
const TAIL_BYTES_MAX: usize = 64 * 1024 * 1024;

/// About what a record and a remembered request hold beside attributes, in bytes.
const RECORD_BYTES: usize = 512;
const REQUEST_BYTES: usize = 128;

/// A silent copy is suspected after `suspect_ms` and taken out at once, unless the config store is
/// away. After this many times that long the partition has lost it and cannot say so.
const LOST_AFTER: u64 = 2;

/// About how many bytes an entry holds.
pub(crate) fn entry_bytes(entry: &Entry) -> usize {
    entry.writes.iter().filter_map(|it| it.doc.as_deref()).map(doc_bytes).sum()
}

fn doc_bytes(doc: &Doc) -> usize {
    match doc {
        Doc::Session(record) => {
            let attributes = record.spec.attributes.iter();
            let attributes: usize = attributes.map(|(name, value)| name.len() + value.len()).sum();
            RECORD_BYTES + attributes + record.requests.len() * REQUEST_BYTES
        }
        Doc::Pool(_) => RECORD_BYTES,
    }
}

impl Partition {
    /// Why a request cannot be taken now, if so: it would wait behind a commit that may not come.
    pub fn refuses_backlog(&self, env: &Env, op: &Op) -> Option<Refusal> {
        let (writes, confirmed) = match op {
            Op::Open(_) | Op::Close(_) | Op::Report(_) => (true, true),
            Op::Get(get) => (false, !get.stale_ok),
            Op::List(list) => (false, !list.stale_ok),
            Op::Pull(_) => (false, false),
        };
        let retry = Retry::AfterMs(env.config.timing.retry_ms);
        if confirmed && let Some(text) = self.lost_copy(env) {
            let kind =
                if env.store_away { RefusalKind::ConfigStoreAway } else { RefusalKind::NotServing };
            return Some(Refusal::new(kind, retry, text));
        }
        let (entries, bytes) = (self.replica.tail.len(), self.replica.tail_bytes);
        let full = entries >= TAIL_ENTRIES_MAX || bytes >= TAIL_BYTES_MAX;
        (writes && full).then(|| {
            let text = format!(
                "partition {} has {entries} entries ({bytes} bytes) that are not committed; the \
                 limits are {TAIL_ENTRIES_MAX} entries and {TAIL_BYTES_MAX} bytes",
                self.number
            );
            Refusal::new(RefusalKind::Overloaded, retry, text)
        })
    }

    /// A copy that is silent and still in the ISR.
    fn lost_copy(&self, env: &Env) -> Option<String> {
        let lost_ms = env.config.timing.suspect_ms * LOST_AFTER;
        let copies = &self.leading.as_ref()?.copies;
        let silent = |since: u64| env.now.mono_ms >= since + lost_ms;
        let (number, _) = copies.iter().find(|(_, it)| it.behind_ms.is_some_and(silent))?;
        let why = if env.store_away {
            "the config store, which alone can take it out, cannot be reached"
        } else {
            "it is not taken out yet"
        };
        Some(format!("copy {number} of partition {} does not answer, and {why}", self.number))
    }
}
