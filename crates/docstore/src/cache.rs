//! A cache of documents in memory: a fixed budget of bytes, least recently used out first. It is
//! brought up to date by updates, says how fresh each copy is, and can itself serve others.

use crate::document::Document;
use crate::name::DocName;
use crate::schema::Schema;
use crate::sync::{ApplyError, Held, Update, apply, update_for};
use crate::tolerance::Tolerance;
use rota_model::{FieldError, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far the clocks of two machines may lie apart, in milliseconds. A version that lies further
/// in the future is refused.
pub const CLOCKS_APART_MS_MAX: u64 = 3_600_000;

/// What an entry takes beside its document: two names, two nodes of maps.
const ENTRY_BYTES: u64 = 160;

/// What the source said.
#[derive(Clone, Debug)]
enum Known {
    Document(Arc<Document>),
    /// There is no such document. `through`: the source's high-water mark at that time.
    Absent {
        through: Stamp,
    },
}

impl Known {
    fn document(&self) -> Option<&Arc<Document>> {
        match self {
            Known::Document(document) => Some(document),
            Known::Absent { .. } => None,
        }
    }

    fn held(&self) -> Option<Held> {
        self.document().map(|it| Held::of(it))
    }
}

#[derive(Clone, Debug)]
struct Entry {
    known: Known,
    /// The source said so then, or later.
    as_of: Stamp,
    bytes: u64,
    /// Position in the order of use.
    used: u64,
}

/// What a cache has of a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// A copy that is fresh enough; `None`: it is known that there is no such document.
    Fresh(Option<Arc<Document>>),
    /// None that is fresh enough. What is held, if anything: ask for an update of it.
    Stale(Option<Held>),
}

/// A cache of documents.
#[derive(Clone, Debug)]
pub struct Cache {
    schema: Arc<Schema>,
    bytes_max: u64,
    bytes: u64,
    entries: BTreeMap<DocName, Entry>,
    /// Names by last use, oldest first.
    by_use: BTreeMap<u64, DocName>,
    uses: u64,
}

impl Cache {
    /// An empty cache that keeps to about `bytes_max` of memory. A document that is larger alone is
    /// not kept: [`crate::Progress::fetched`] refuses an operation that needs it.
    pub fn new(schema: Arc<Schema>, bytes_max: u64) -> Self {
        let (entries, by_use) = (BTreeMap::new(), BTreeMap::new());
        Self { schema, bytes_max, bytes: 0, entries, by_use, uses: 0 }
    }

    /// Memory that it takes, about, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory that it may take, about, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Number of documents that it knows something of.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it knows nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A copy that is at most that stale, or what to ask the source for. Counts as a use.
    pub fn look_up(&mut self, name: &DocName, now: Stamp, tolerance: Tolerance) -> Lookup {
        self.touch(name);
        let Some(entry) = self.entries.get(name) else {
            return Lookup::Stale(None);
        };
        // A clock that stepped back says nothing about age: such a copy is stale.
        if now.ms_since(entry.as_of).is_some_and(|age| age <= tolerance.0) {
            return Lookup::Fresh(entry.known.document().cloned());
        }
        Lookup::Stale(entry.known.held())
    }

    /// A cache that has of these documents what this one has. Counts as a use of each.
    #[must_use]
    pub fn excerpt<'a>(&mut self, names: impl IntoIterator<Item = &'a DocName>) -> Self {
        let mut excerpt = Self::new(Arc::clone(&self.schema), self.bytes_max);
        for name in names {
            self.touch(name);
            if let Some(entry) = self.entries.get(name) {
                excerpt.put(name, entry.known.clone(), entry.as_of);
            }
        }
        excerpt
    }

    /// What it holds of a document, to ask a source for an update.
    pub fn held(&self, name: &DocName) -> Option<Held> {
        self.entries.get(name)?.known.held()
    }

    /// The copy, however stale, without counting as a use.
    pub fn peek(&self, name: &DocName) -> Option<&Arc<Document>> {
        self.entries.get(name)?.known.document()
    }

    /// Applies an update that a source sent. `as_of`: when the source was asked, by the clock of
    /// this cache, or what another cache said with its update ([`Cache::serve`]). Says how many bytes
    /// the copy takes, also when they are more than there may be. After an error it is as it was, and
    /// not fresher.
    pub fn apply(
        &mut self,
        name: &DocName,
        update: &Update,
        as_of: Stamp,
    ) -> Result<u64, ApplyError> {
        self.check(name, update, as_of.plus_ms(CLOCKS_APART_MS_MAX))?;
        let known = match apply(name, self.peek(name), update)? {
            Some(document) => Known::Document(document),
            None => Known::Absent { through: self.absent_through(name, update) },
        };
        Ok(self.put(name, known, as_of))
    }

    /// Up to which version the source knows that there is no such document.
    fn absent_through(&self, name: &DocName, update: &Update) -> Stamp {
        let before = match self.entries.get(name).map(|it| &it.known) {
            Some(Known::Absent { through }) => *through,
            Some(Known::Document(_)) | None => Stamp::MIN,
        };
        match update {
            Update::Absent { as_of } => before.max(*as_of),
            Update::Unchanged { .. }
            | Update::Full(_)
            | Update::Changes(_)
            | Update::Deleted { .. }
            | Update::SourceBehind { .. } => before,
        }
    }

    /// Refuses what a source said before it said that there is no such document.
    fn check_not_absent(
        &self,
        name: &DocName,
        life: Stamp,
        offered: Stamp,
    ) -> Result<(), ApplyError> {
        match self.entries.get(name).map(|it| &it.known) {
            Some(Known::Absent { through }) if offered <= *through => {
                Err(ApplyError::SourceBehind { life, offered, held: *through })
            }
            Some(Known::Absent { .. } | Known::Document(_)) | None => Ok(()),
        }
    }

    fn check(&self, name: &DocName, update: &Update, latest: Stamp) -> Result<(), ApplyError> {
        self.schema.check_class(name.class())?;
        let (items, life, version) = match update {
            Update::Full(it) => (it.items(), it.ctime(), it.version()),
            Update::Changes(it) => (it.items(), it.ctime(), it.version()),
            Update::Deleted { ctime, version } => (&[][..], *ctime, *version),
            // These bring nothing new.
            Update::Unchanged { .. } | Update::Absent { .. } | Update::SourceBehind { .. } => {
                return Ok(());
            }
        };
        if version > latest {
            let problem = format!("of {name} is {version}, in the future; the limit is {latest}");
            return Err(FieldError::new("version", problem).into());
        }
        for item in items {
            if let Some(content) = item.content() {
                self.schema.check_item(name.class(), item.name(), content)?;
            }
        }
        self.check_not_absent(name, life, version)
    }

    /// Says how many bytes it takes.
    fn put(&mut self, name: &DocName, known: Known, as_of: Stamp) -> u64 {
        let as_of = self.entries.get(name).map_or(as_of, |it| it.as_of.max(as_of));
        self.forget(name);
        let content = known.document().map_or(0, |it| it.memory_bytes());
        let bytes = ENTRY_BYTES + name.as_text().len() as u64 + content;
        if bytes > self.bytes_max {
            return bytes;
        }
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, name.clone());
        self.entries.insert(name.clone(), Entry { known, as_of, bytes, used: self.uses });
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.by_use.first_key_value() else {
                break;
            };
            self.forget(&oldest.clone());
        }
        bytes
    }

    fn touch(&mut self, name: &DocName) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        self.uses += 1;
        let name = self.by_use.remove(&entry.used).expect("every entry is in the order of use");
        entry.used = self.uses;
        self.by_use.insert(self.uses, name);
    }

    /// Drops a copy.
    pub fn forget(&mut self, name: &DocName) {
        if let Some(entry) = self.entries.remove(name) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    /// Serves another cache: an update from the copy that is here, and as of when that copy is
    /// known to be right, which is also how fresh it makes the other one. `None`: nothing is known
    /// here.
    pub fn serve(&mut self, name: &DocName, held: Option<&Held>) -> Option<(Update, Stamp)> {
        self.touch(name);
        let entry = self.entries.get(name)?;
        let through = match &entry.known {
            Known::Document(document) => document.version(),
            Known::Absent { through } => *through,
        };
        Some((update_for(entry.known.document(), held, through), entry.as_of))
    }

    /// Lets a copy forget items that were destroyed before `dtime`, to save memory. A cache may do
    /// this at any time; others that it serves may then get longer updates.
    pub fn forget_before(&mut self, name: &DocName, dtime: Stamp) {
        let Some(entry) = self.entries.get(name) else {
            return;
        };
        let as_of = entry.as_of;
        if let Some(less) = entry.known.document().and_then(|it| it.forget_before(dtime)) {
            self.put(name, Known::Document(Arc::new(less)), as_of);
        }
    }
}
