//! What is remembered beside sessions and documents: one small document for each request, in the slot of
//! what it is about and written with it. So a request costs the same however many are remembered.
//!
//! ```text
//!   put:   an operation remembers itself (class H), a session gives up the oldest of its requests
//!   find:  by the document's name, a hash of what names the request
//!   age:   the owner forgets the oldest, in bounded steps, by entries of its log
//! ```
//! Copies, disks, syncs and hand-overs know nothing of it: these are documents like all others.

use crate::contents::memories::{find, is_harmless};
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::replica::Replica;
use crate::log::state::Log;
use crate::sessions::request_ids::{is_over, kept, spec_ran};
use rota_docstore::Remembered;
use rota_messages::documents::request_name;
use rota_messages::{Doc, DocKey, Write};
use rota_model::{REQUEST_MEMORY_MS, RequestEntry, RequestFate, RequestId, SessionRecord, Stamp};
use std::borrow::Cow;
use std::sync::Arc;

impl Replica {
    /// How many operations are remembered, and since when.
    pub fn remembered(&self) -> Remembered {
        let operations = &self.counts.memories.operations;
        Remembered { count: operations.len(), oldest: operations.oldest() }
    }

    /// What is remembered of a request about a session, with everything that was appended.
    pub fn request(&self, key: &DocKey, id: &RequestId) -> Option<RequestEntry> {
        find(key, id, |key| self.get(key))
    }

    /// The same of what is committed.
    pub fn committed_request(&self, key: &DocKey, id: &RequestId) -> Option<RequestEntry> {
        find(key, id, |key| self.docs.get(key))
    }
}

/// What stays in a record of its requests: what is under way, and the newest others. And the rest.
fn parted(record: &SessionRecord, kept: usize) -> (Cow<'_, SessionRecord>, Vec<RequestEntry>) {
    let is_settled = |it: &RequestEntry| it.fate != RequestFate::Opening;
    let settled = record.requests.iter().filter(|it| is_settled(it)).count();
    let mut leaving = settled.saturating_sub(kept);
    if leaving == 0 {
        return (Cow::Borrowed(record), Vec::new());
    }
    let mut record = record.clone();
    let is_old = |entry: &mut RequestEntry| {
        let leaves = leaving > 0 && is_settled(entry);
        leaving -= usize::from(leaves);
        leaves
    };
    let old = record.requests.extract_if(.., is_old).collect();
    record.requests.shrink_to_fit();
    (Cow::Owned(record), old)
}

/// The writes of a session's record, over everything that was appended: its requests but the newest
/// lie beside it. They come first, so that entries which part them lose nothing.
pub(crate) fn session_writes(
    env: &Env,
    log: &Log,
    key: &DocKey,
    record: impl Into<Arc<SessionRecord>>,
) -> Vec<Write> {
    let record: Arc<SessionRecord> = kept(record.into());
    let (left, old) = parted(&record, env.config.sizes.requests_kept);
    let mut writes = Vec::with_capacity(1 + old.len());
    let mut found = log.replica.counts.memories.found.len();
    for mut entry in old.into_iter().filter(|it| !is_over(it, env)) {
        entry.ran.get_or_insert_with(|| spec_ran(&record.spec));
        let name = request_name(&record.key, &entry.id);
        let beside = DocKey::new(key.slot, name);
        let before = log.replica.get(&beside).map(|it| &**it);
        found += usize::from(is_harmless(&entry.fate));
        let doc = Doc::request_after(before, &record.key, &entry, record.version);
        writes.push(Write { key: beside, doc: Some(Arc::new(doc)) });
    }
    let too_many = found.saturating_sub(env.config.sizes.requests_max / 4).min(writes.len());
    let oldest: Vec<Write> = oldest_found(log, &writes, too_many).collect();
    writes.extend(oldest);
    let left = match left {
        Cow::Borrowed(_) => record,
        Cow::Owned(left) => Arc::new(left),
    };
    writes.push(session_write(log, key, left));
    writes
}

/// Forgets the oldest requests that only found their session, but for those that are written now.
pub(crate) fn oldest_found(
    log: &Log,
    writes: &[Write],
    count: usize,
) -> impl Iterator<Item = Write> {
    let is_new = |key: &&DocKey| {
        log.replica.latest.contains_key(*key) || writes.iter().any(|write| write.key == **key)
    };
    let keys = log.replica.counts.memories.found.before(Stamp::MAX).filter(move |it| !is_new(it));
    keys.take(count).map(|key| Write { key: key.clone(), doc: None })
}

/// In how many milliseconds one more request about a session can be remembered, if not now.
pub(crate) fn memory_wait(led: &At<'_>, key: &DocKey, request: &RequestId) -> Option<u64> {
    let memories = &led.log.replica.counts.memories;
    let record = led.log.replica.session(key)?;
    let sizes = &led.env.config.sizes;
    let is_full = memories.requests.len() + memories.nameless.len() >= sizes.requests_max
        && record.requests.len() >= sizes.requests_kept;
    if !is_full || led.log.replica.request(key, request).is_some() {
        return None;
    }
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    let goes =
        |it: Option<Stamp>, after: u64| it.map(|it| it.plus_ms(after).ms_since(now).unwrap_or(0));
    let named = goes(memories.requests.oldest(), REQUEST_MEMORY_MS);
    let nameless = goes(memories.nameless.oldest(), led.env.config.timing.answers_ms());
    named.into_iter().chain(nameless).min().map(|ms| ms + FORGETTING_MS)
}

/// The owner looks every ten seconds for what is to be forgotten.
const FORGETTING_MS: u64 = 10_000;

/// Writes a session's record.
pub(crate) fn write_session(
    led: &mut At<'_>,
    key: &DocKey,
    record: impl Into<Arc<SessionRecord>>,
    request: Option<RequestId>,
) -> rota_model::LogPos {
    let writes = session_writes(led.env, led.log, key, record);
    led.write(writes, request)
}

/// The write of a session's record as it is, over everything that was appended.
pub(crate) fn session_write(
    log: &Log,
    key: &DocKey,
    record: impl Into<Arc<SessionRecord>>,
) -> Write {
    let record = record.into();
    let before = log.replica.get(key).map(|it| &**it);
    if cfg!(debug_assertions)
        && let Some(before) = before.and_then(Doc::session).filter(|it| it.life == record.life)
    {
        let (from, to) = (before.state, record.state);
        assert!(from == to || from.may_become(to), "{from:?} may not become {to:?}");
    }
    Write::of(key.slot, Doc::session_after(before, record))
}
