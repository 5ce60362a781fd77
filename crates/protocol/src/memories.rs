//! What is remembered beside sessions and documents: one small document for each request, in the slot of
//! what it is about and written with it. So a request costs the same however many are remembered.
//!
//! ```text
//!   put:   an operation remembers itself (class H), a session gives up the oldest of its requests
//!   find:  by the document's name, a hash of what names the request
//!   age:   the owner forgets the oldest, in bounded steps, by entries of its log
//! ```
//! Copies, disks, syncs and hand-overs know nothing of it: these are documents like all others.

use crate::env::Env;
use crate::memory::{is_harmless, is_over, kept, spec_ran};
use crate::operate::write_of;
use crate::partition::Partition;
use crate::replica::{Replica, of_application};
use rota_docstore::attempt::{Remembered, floors, remembers};
use rota_docstore::{ByAge, Rules};
use rota_messages::documents::request_name;
use rota_messages::{Doc, DocKey, Write};
use rota_model::{REQUEST_MEMORY_MS, RequestEntry, RequestFate, RequestId, SessionRecord, Stamp};
use std::borrow::Cow;
use std::sync::Arc;

/// What a copy remembers beside sessions and documents, in order of age.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memories {
    /// Operations on documents, by their callers' times.
    pub operations: ByAge<DocKey>,
    /// Requests that only found their session.
    pub found: ByAge<DocKey>,
    /// Other requests about sessions.
    pub requests: ByAge<DocKey>,
    /// Of these, those that managers named, since their callers did not.
    pub nameless: ByAge<DocKey>,
}

impl Memories {
    /// A document was written, or has gone.
    pub fn change(&mut self, key: &DocKey, before: Option<&Doc>, after: Option<&Doc>) {
        if !key.name.is_memory() {
            return;
        }
        let sorted = [before, after].map(|doc| {
            let entry = doc.and_then(Doc::request);
            let operation = doc.and_then(of_application).and_then(remembers);
            let of = |is_meant: fn(&RequestEntry) -> bool| {
                entry.filter(|it| is_meant(it)).map(|it| it.at)
            };
            let nameless: fn(&RequestEntry) -> bool = |it| it.id.is_given_by_manager();
            let found: fn(&RequestEntry) -> bool =
                |it| !it.id.is_given_by_manager() && is_harmless(&it.fate);
            let other: fn(&RequestEntry) -> bool =
                |it| !it.id.is_given_by_manager() && !is_harmless(&it.fate);
            [operation, of(nameless), of(found), of(other)]
        });
        let [[op, nameless, found, other], [op2, nameless2, found2, other2]] = sorted;
        self.operations.change(key, op, op2);
        self.nameless.change(key, nameless, nameless2);
        self.found.change(key, found, found2);
        self.requests.change(key, other, other2);
    }

    /// Names of what is to be forgotten at that time, a bounded number.
    fn old(&self, env: &Env, rules: &Rules, most: usize) -> impl Iterator<Item = &DocKey> {
        let now = Stamp::from_epoch_ms(env.now.wall_ms);
        let requests = now.minus_ms(REQUEST_MEMORY_MS);
        let nameless = now.minus_ms(env.config.timing.answers_ms());
        let operations = self.operations.before(rules.oldest_memory(now));
        let requests = self.found.before(requests).chain(self.requests.before(requests));
        operations.chain(requests).chain(self.nameless.before(nameless)).take(most)
    }
}

impl Replica {
    /// How many operations are remembered, and since when.
    pub fn remembered(&self) -> Remembered {
        let operations = &self.memories.operations;
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

fn find<'a>(
    key: &DocKey,
    id: &RequestId,
    get: impl Fn(&DocKey) -> Option<&'a Arc<Doc>>,
) -> Option<RequestEntry> {
    let record = get(key)?.session()?;
    if let Some(entry) = record.request(id) {
        return Some(entry.clone());
    }
    let beside = get(&DocKey::new(key.slot, request_name(&record.key, id)))?;
    let mut entry = beside.request().filter(|it| it.id == *id)?.clone();
    if entry.fate.life() == Some(record.life) {
        entry.ran = None;
    }
    Some(entry)
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
        let mut found = self.replica.memories.found.len();
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
        let keys = self.replica.memories.found.before(Stamp::MAX).filter(move |it| !is_new(it));
        keys.take(count).map(|key| Write { key: key.clone(), doc: None })
    }

    /// In how many milliseconds one more request about a session can be remembered, if not now.
    pub fn memory_wait(&self, env: &Env, key: &DocKey, request: &RequestId) -> Option<u64> {
        let memories = &self.replica.memories;
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
        let old = replica.memories.old(env, rules, env.config.sizes.purge_docs);
        let old: Vec<&DocKey> = old.filter(|it| !replica.latest.contains_key(*it)).collect();
        let docs = old.iter().filter_map(|key| replica.docs.get(*key));
        let documents = docs.filter_map(|doc| of_application(doc));
        let m = env.view().m;
        let found = |name: &rota_docstore::DocName| {
            let key = DocKey::new(crate::operate::slot_of(name, m), name.clone());
            replica.get(&key).map(|doc| doc.document().clone())
        };
        let floors = floors(documents, found).into_iter().map(|it| write_of(it, m));
        let gone = old.iter().map(|key| Write { key: (*key).clone(), doc: None });
        floors.chain(gone).collect()
    }
}

/// The owner looks every ten seconds for what is to be forgotten.
const FORGETTING_MS: u64 = 10_000;
