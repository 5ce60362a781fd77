//! What is remembered beside sessions and documents: one small document for each request, in the slot of
//! what it is about and written with it. So a request costs the same however many are remembered.
//!
//! ```text
//!   put:   an operation remembers itself (class H), a session gives up the oldest of its requests
//!   find:  by the document's name, a hash of what names the request
//!   age:   the owner forgets the oldest, in bounded steps, by entries of its log
//! ```
//! Copies, disks, syncs and hand-overs know nothing of it: these are documents like all others.

use crate::contents::fills::of_application;
use crate::contents::memories::{find, is_harmless};
use crate::documents::copies::write_of;
use crate::log::env::Env;
use crate::log::replica::Replica;
use crate::partition::state::Partition;
use crate::sessions::request_ids::{is_over, kept, spec_ran};
use rota_docstore::Rules;
use rota_docstore::attempt::{Remembered, floors};
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
    let is_old = |it: &mut RequestEntry| {
        let leaves = leaving > 0 && is_settled(it);
        leaving -= usize::from(leaves);
        leaves
    };
    let old = record.requests.extract_if(.., is_old).collect();
    record.requests.shrink_to_fit();
    (Cow::Owned(record), old)
}

impl Partition {
    /// The writes of a session's record, over everything that was appended: its requests but the newest
    /// lie beside it. They come first, so that entries which part them lose nothing.
    pub fn session_writes(
        &self,
        env: &Env,
        key: &DocKey,
        record: impl Into<Arc<SessionRecord>>,
    ) -> Vec<Write> {
        let record: Arc<SessionRecord> = kept(record.into());
        let (left, old) = parted(&record, env.config.sizes.requests_kept);
        let mut writes = Vec::with_capacity(1 + old.len());
        let mut found = self.replica.counts.memories.found.len();
        for mut entry in old.into_iter().filter(|it| !is_over(it, env)) {
            entry.ran.get_or_insert_with(|| spec_ran(&record.spec));
            let name = request_name(&record.key, &entry.id);
            let beside = DocKey::new(key.slot, name);
            let before = self.replica.get(&beside).map(|it| &**it);
            found += usize::from(is_harmless(&entry.fate));
            let doc = Doc::request_after(before, &record.key, &entry, record.version);
            writes.push(Write { key: beside, doc: Some(Arc::new(doc)) });
        }
        let too_many = found.saturating_sub(env.config.sizes.requests_max / 4).min(writes.len());
        let oldest: Vec<Write> = self.oldest_found(&writes, too_many).collect();
        writes.extend(oldest);
        let left = match left {
            Cow::Borrowed(_) => record,
            Cow::Owned(left) => Arc::new(left),
        };
        writes.push(self.session_write(key, left));
        writes
    }

    /// Forgets the oldest requests that only found their session, but for those that are written now.
    fn oldest_found(&self, writes: &[Write], count: usize) -> impl Iterator<Item = Write> {
        let is_new = |it: &&DocKey| {
            self.replica.latest.contains_key(*it) || writes.iter().any(|write| write.key == **it)
        };
        let keys =
            self.replica.counts.memories.found.before(Stamp::MAX).filter(move |it| !is_new(it));
        keys.take(count).map(|key| Write { key: key.clone(), doc: None })
    }

    /// In how many milliseconds one more request about a session can be remembered, if not now.
    pub fn memory_wait(&self, env: &Env, key: &DocKey, request: &RequestId) -> Option<u64> {
        let memories = &self.replica.counts.memories;
        let record = self.replica.session(key)?;
        let sizes = &env.config.sizes;
        let is_full = memories.requests.len() + memories.nameless.len() >= sizes.requests_max
            && record.requests.len() >= sizes.requests_kept;
        if !is_full || self.replica.request(key, request).is_some() {
            return None;
        }
        let now = Stamp::from_epoch_ms(env.now.wall_ms);
        let goes = |it: Option<Stamp>, after: u64| {
            it.map(|it| it.plus_ms(after).ms_since(now).unwrap_or(0))
        };
        let named = goes(memories.requests.oldest(), REQUEST_MEMORY_MS);
        let nameless = goes(memories.nameless.oldest(), env.config.timing.answers_ms());
        named.into_iter().chain(nameless).min().map(|ms| ms + FORGETTING_MS)
    }

    /// What is to be forgotten now, with what says how much that was: at most so many. What was appended
    /// and is not committed yet is new.
    pub fn old_memories(&self, env: &Env, rules: &Rules) -> Vec<Write> {
        let replica = &self.replica;
        let now = Stamp::from_epoch_ms(env.now.wall_ms);
        let answers_ms = env.config.timing.answers_ms();
        let old = replica.counts.memories.old(now, answers_ms, rules, env.config.sizes.purge_docs);
        let old: Vec<&DocKey> = old.filter(|it| !replica.latest.contains_key(*it)).collect();
        let docs = old.iter().filter_map(|key| replica.docs.get(*key));
        let documents = docs.filter_map(|doc| of_application(doc));
        let m = env.view().m;
        let found = |name: &rota_docstore::DocName| {
            let key = DocKey::new(crate::ports::slots::slot_of(name, m), name.clone());
            replica.get(&key).map(|doc| doc.document().clone())
        };
        let floors = floors(documents, found).into_iter().map(|it| write_of(it, m));
        let gone = old.iter().map(|key| Write { key: (*key).clone(), doc: None });
        floors.chain(gone).collect()
    }
}

/// The owner looks every ten seconds for what is to be forgotten.
const FORGETTING_MS: u64 = 10_000;

impl Partition {
    /// Writes a session's record.
    pub fn write_session(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        record: impl Into<Arc<SessionRecord>>,
        request: Option<RequestId>,
    ) -> rota_model::LogPos {
        let writes = self.session_writes(env, key, record);
        self.write(env, writes, request)
    }

    /// The write of a session's record as it is, over everything that was appended.
    pub fn session_write(&self, key: &DocKey, record: impl Into<Arc<SessionRecord>>) -> Write {
        let record = record.into();
        let before = self.replica.get(key).map(|it| &**it);
        if cfg!(debug_assertions)
            && let Some(before) = before.and_then(Doc::session).filter(|it| it.life == record.life)
        {
            let (from, to) = (before.state, record.state);
            assert!(from == to || from.may_become(to), "{from:?} may not become {to:?}");
        }
        Write::of(key.slot, Doc::session_after(before, record))
    }
}
