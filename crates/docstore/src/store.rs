//! The reference copy of documents, in memory.

use crate::attempt::{Attempt, Transaction};
use crate::by_age::ByAge;
use crate::commit::{AHEAD_MS_MAX, Commit, Write, validate};
use crate::document::Document;
use crate::documents::{Documents, Remembered};
use crate::exception::Exception;
use crate::memory::{floors, remembers};
use crate::name::DocName;
use crate::rules::{Aged, Rules};
use crate::space::{Spaces, Usage, Usages};
use crate::sync::{Held, Update, update_for};
use rota_model::{FieldError, Namespace, Stamp};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Which document, in a store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Key {
    /// Of the name, and before it: names lie elsewhere in memory, and a map of many documents finds
    /// one without a look at those of others.
    hash: u64,
    name: DocName,
}

impl Key {
    fn of(name: &DocName) -> Self {
        Self { hash: xxh3_64(name.as_text().as_bytes()), name: name.clone() }
    }
}

/// The latest time that a clock showed. It is no part of what a store says: two are equal whatever it is.
#[derive(Clone, Copy, Debug, Default)]
struct Seen(Option<Stamp>);

impl PartialEq for Seen {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Seen {}

impl std::hash::Hash for Seen {
    fn hash<H: std::hash::Hasher>(&self, _state: &mut H) {}
}

/// The reference copy of a set of documents: a value in memory. Its driver makes durable what it
/// says, and loads it again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Store {
    documents: BTreeMap<Key, Arc<Document>>,
    high_water: Option<Stamp>,
    seen: Seen,
    spaces: Spaces,
    usages: Usages,
    /// Memories of operations.
    memories: ByAge<Key>,
}

/// What [`Store::purge`] did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Purged {
    /// What changed, for the disk and the copies.
    pub writes: Vec<Write>,
    /// Where to go on; `None`: every document was looked at.
    pub next: Option<DocName>,
}

impl Store {
    /// An empty store, with what is known of namespaces.
    pub fn new(spaces: Spaces) -> Self {
        Self { spaces, ..Self::default() }
    }

    /// Number of documents, traces of ended lives included.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// All documents, traces of ended lives included, in an order that means nothing and is always
    /// the same.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Document>> {
        self.documents.values()
    }

    /// All documents of a namespace in order of their names, traces of ended lives included. Looks
    /// at the documents of all namespaces.
    pub fn in_space(&self, space: &Namespace) -> impl Iterator<Item = &Arc<Document>> {
        let is_inside = |it: &&Arc<Document>| it.name().space() == space.as_str();
        let mut inside: Vec<_> = self.iter().filter(is_inside).collect();
        inside.sort_unstable_by_key(|it| it.name());
        inside.into_iter()
    }

    /// All documents from one on (`None`: from the first), in the order of [`Store::iter`], traces of
    /// ended lives included. It need not be there any more.
    pub fn starting_at(&self, from: Option<&DocName>) -> impl Iterator<Item = &Arc<Document>> {
        let from = from.map(Key::of).map_or(Bound::Unbounded, Bound::Included);
        self.documents.range((from, Bound::Unbounded)).map(|(_, document)| document)
    }

    /// A document without its count of owners going up.
    pub fn peek(&self, name: &DocName) -> Option<&Arc<Document>> {
        self.documents.get(&Key::of(name))
    }

    /// Namespaces, to tell it of descriptions that are kept elsewhere.
    pub fn spaces_mut(&mut self) -> &mut Spaces {
        &mut self.spaces
    }

    /// Validates an attempt and takes over its changes at once, so that the next operation sees
    /// them. The driver makes the commit durable before it lets its answer go, in order of
    /// commits; if that fails, this store is to be thrown away.
    pub fn commit(
        &mut self,
        rules: &Rules,
        attempt: Attempt,
        now: Stamp,
    ) -> Result<Commit, Exception> {
        self.saw(now);
        let commit = validate(rules, self, attempt, now)?;
        self.apply(&commit.writes, commit.high_water);
        Ok(commit)
    }

    /// The clock shows this. Whoever validates beside this store says so before; [`Store::commit`] does.
    pub fn saw(&mut self, now: Stamp) {
        self.seen.0 = self.seen.0.max(Some(now));
    }

    /// Everything was loaded. Versions that no clock of today can have given are gone on from: it was ahead, and
    /// has been put right since.
    pub fn loaded(&mut self, now: Stamp) {
        let is_beyond = self.high_water() > now.plus_ms(AHEAD_MS_MAX);
        self.saw(if is_beyond { self.high_water() } else { now });
    }

    /// Lets `work` work and commits at once: the short way for a program's own changes, which need
    /// no name, no caller and no second attempt.
    pub fn change(
        &mut self,
        rules: &Rules,
        space: &Namespace,
        now: Stamp,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<(), Exception>,
    ) -> Result<Commit, Exception> {
        let mut attempt = Attempt::new(space.clone(), now);
        work(&mut Transaction::new(rules, self, None, &mut attempt))?;
        self.commit(rules, attempt, now)
    }

    /// Takes over writes that were validated elsewhere: at a copy, or when a log is read again.
    /// Applying the same writes again changes nothing.
    pub fn apply(&mut self, writes: &[Write], high_water: Stamp) {
        for write in writes {
            self.set(&write.name, write.after.clone());
        }
        self.raise(high_water);
    }

    /// Puts a document as it is, or takes it away: loading, handing over. It may be older than the
    /// one that is here. Raises the high-water mark to its version, so check a document of unknown
    /// origin first: [`Document::check_not_after`], [`crate::Schema::check_document`].
    pub fn set(&mut self, name: &DocName, document: Option<Arc<Document>>) {
        if let Some(document) = &document {
            self.raise(document.version());
        }
        match &document {
            // A description that was damaged on the way leaves what was known.
            Some(it) => drop(self.spaces.learn(it)),
            None => self.spaces.forget(name),
        }
        let before = match &document {
            Some(it) => self.documents.insert(Key::of(name), Arc::clone(it)),
            None => self.documents.remove(&Key::of(name)),
        };
        if let (Some(gone), None) = (&before, &document) {
            // Whoever is told that there is no such document is told so for after its last version.
            self.raise(gone.version().next());
        }
        let [was, is] = [&before, &document].map(|it| it.as_deref().and_then(remembers));
        self.memories.change(&Key::of(name), was, is);
        self.usages.count(name.space(), before.as_deref(), document.as_deref());
    }

    /// Raises the high-water mark: no version before it will be given out.
    pub fn raise(&mut self, high_water: Stamp) {
        self.high_water = self.high_water.max(Some(high_water));
    }

    /// What to tell a cache that has `held` of a document, without memories of operations. Refuses a
    /// version that cannot exist yet.
    pub fn sync(
        &self,
        name: &DocName,
        held: Option<&Held>,
        now: Stamp,
    ) -> Result<Update, FieldError> {
        if let Some(held) = held {
            held.check_not_after(now.max(self.high_water()))?;
        }
        let update = update_for(self.peek(name), held, self.known_through());
        Ok(update.without_memories())
    }

    /// Looks at up to `limit` documents from `from` on, as [`Store::starting_at`] does: forgets items that were destroyed, and
    /// lives that ended, longer ago than the rules keep them, and memories of operations that nobody may
    /// repeat any more. Versions do not change.
    pub fn purge(
        &mut self,
        rules: &Rules,
        now: Stamp,
        from: Option<&DocName>,
        limit: usize,
    ) -> Purged {
        let mut rest = self.starting_at(from);
        let mut writes = Vec::new();
        for document in rest.by_ref().take(limit) {
            let after = match rules.aged(document, now) {
                Aged::Same => continue,
                Aged::Shortened(after) => Some(Arc::new(after)),
                Aged::Gone => None,
            };
            let before = Some(Arc::clone(document));
            writes.push(Write { name: document.name().clone(), before, after });
        }
        let next = rest.next().map(|it| it.name().clone());
        drop(rest);
        let gone = writes.iter().filter(|it: &&Write| it.after.is_none());
        let gone = gone.filter_map(|it| it.before.as_deref());
        for floor in floors(gone, |name| self.get(name)) {
            let name = floor.name().clone();
            let before = self.get(&name);
            writes.retain(|it| it.name != name);
            writes.push(Write { name, before, after: Some(floor) });
        }
        let high_water = self.high_water();
        self.apply(&writes, high_water);
        Purged { writes, next }
    }
}

impl Documents for Store {
    fn get(&self, name: &DocName) -> Option<Arc<Document>> {
        self.peek(name).cloned()
    }

    fn high_water(&self) -> Stamp {
        self.high_water.unwrap_or(Stamp::MIN)
    }

    fn clock(&self) -> Stamp {
        self.seen.0.unwrap_or(Stamp::MIN)
    }

    fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    fn usage(&self, space: &str) -> Usage {
        self.usages.get(space)
    }

    fn remembered(&self) -> Remembered {
        Remembered { count: self.memories.len(), oldest: self.memories.oldest() }
    }
}
