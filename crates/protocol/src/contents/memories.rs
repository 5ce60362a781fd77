//! What a copy remembers beside sessions and documents, by age.

use crate::contents::fills::of_application;
use rota_docstore::memory::remembers;
use rota_docstore::{ByAge, Rules};
use rota_messages::documents::request_name;
use rota_messages::{Doc, DocKey};
use rota_model::{Outcome, REQUEST_MEMORY_MS, RequestEntry, RequestFate, RequestId, Stamp};
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
    pub(crate) fn old(
        &self,
        now: Stamp,
        answers_ms: u64,
        rules: &Rules,
        most: usize,
    ) -> impl Iterator<Item = &DocKey> {
        let requests = now.minus_ms(REQUEST_MEMORY_MS);
        let nameless = now.minus_ms(answers_ms);
        let operations = self.operations.before(rules.oldest_memory(now));
        let requests = self.found.before(requests).chain(self.requests.before(requests));
        operations.chain(requests).chain(self.nameless.before(nameless)).take(most)
    }
}

pub(crate) fn find<'a>(
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

/// Whether a request may be forgotten early: it only found the session. Forgotten, it is a new open
/// when it is repeated, and starts a new life if the session was closed meanwhile. To refuse instead
/// would shut out many clients that look a live session up.
pub(crate) fn is_harmless(fate: &RequestFate) -> bool {
    matches!(fate, RequestFate::Opened { outcome: Outcome::Existed, .. })
}
