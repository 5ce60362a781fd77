//! Documents and their items: values that never change. A change makes a new document, which
//! shares the contents of all items that stayed the same.

use crate::content::{Attachment, Content, Digest};
use crate::name::{ATTACHMENT_CLASS, CLASS_BYTES_MAX, DocName, ItemName, KEY_BYTES_MAX};
use rota_model::{FieldError, Stamp};
use std::sync::Arc;

/// Most items of one document, destroyed ones included: those are forgotten early where they are in
/// the way of others, see [`DocumentParts::fitted`].
pub const ITEMS_MAX: usize = 16_384;
/// Most bytes of one document's contents (its item bytes): documents are handed on whole.
pub const DOCUMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Most bytes that are stored around the name and the content of an item: two stamps of at most 10,
/// lengths and marks.
const ITEM_STORED_BYTES: u64 = 48;
/// Most bytes that are stored beside the items: the name of three parts, three stamps.
const DOCUMENT_STORED_BYTES: u64 = 1_024;
/// Longest [`Document::to_bytes`] of a document that fits: an engine must take it.
pub const STORED_BYTES_MAX: u64 = DOCUMENT_BYTES_MAX
    + (ITEMS_MAX as u64) * (ITEM_STORED_BYTES + (CLASS_BYTES_MAX + KEY_BYTES_MAX) as u64)
    + DOCUMENT_STORED_BYTES;

/// An item. It exists, with a content; or it was destroyed, and is still known so that caches can
/// be told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Item {
    pub(crate) name: ItemName,
    pub(crate) version: Stamp,
    pub(crate) existing: Option<Existing>,
}

/// What an existing item has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Existing {
    pub(crate) item_version: Stamp,
    pub(crate) content: Content,
}

impl Item {
    /// An item that exists. `item_version` is the stamp of the operation that made this content: the same
    /// as `version` unless the content was copied here later. Field `item_version`: it is never newer.
    /// Only class `P` has attachments, and it has nothing else: field `content`.
    pub fn existing(
        name: ItemName,
        version: Stamp,
        item_version: Stamp,
        content: Content,
    ) -> Result<Self, FieldError> {
        check_content_of(name.class(), &content)?;
        if item_version > version {
            let problem = format!("of {name} is {item_version}, newer than its version {version}");
            return Err(FieldError::new("item_version", problem));
        }
        Ok(Self { name, version, existing: Some(Existing { item_version, content }) })
    }

    /// An item that was destroyed by the operation of that version.
    pub fn destroyed(name: ItemName, version: Stamp) -> Self {
        Self { name, version, existing: None }
    }

    /// Its name.
    pub fn name(&self) -> &ItemName {
        &self.name
    }

    /// Stamp of the operation that wrote it into this document, or destroyed it.
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// Stamp of the operation that made the content; `None` (the source text says 0) for a
    /// destroyed item.
    pub fn item_version(&self) -> Option<Stamp> {
        self.existing.as_ref().map(|it| it.item_version)
    }

    /// The content; `None` for a destroyed item.
    pub fn content(&self) -> Option<&Content> {
        self.existing.as_ref().map(|it| &it.content)
    }

    /// Whether it was destroyed.
    pub fn is_destroyed(&self) -> bool {
        self.existing.is_none()
    }
}

/// Class `P` holds attachments, and no other class does.
pub(crate) fn check_content_of(class: &str, content: &Content) -> Result<(), FieldError> {
    if (class == ATTACHMENT_CLASS) != content.as_attachment().is_some() {
        let problem = format!("of an item of class {class} must not be {}", content.kind());
        return Err(FieldError::new("content", problem));
    }
    Ok(())
}

/// How much something fills: contents (item bytes) and bodies of attachments (attachment bytes), in bytes. A body counts
/// as often as it is named, though it is stored once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Volumes {
    /// Names and contents of existing items.
    pub item_bytes: u64,
    /// Bodies of the attachments that existing items name.
    pub attachment_bytes: u64,
}

/// What items fill.
fn filled_by(items: &[Item]) -> Volumes {
    let mut volumes = Volumes::default();
    for item in items {
        if let Some(existing) = &item.existing {
            let body = existing.content.as_attachment().map_or(0, Attachment::size);
            let named = existing.content.volume() + item.name.bytes() as u64;
            volumes.item_bytes = volumes.item_bytes.saturating_add(named);
            volumes.attachment_bytes = volumes.attachment_bytes.saturating_add(body);
        }
    }
    volumes
}

/// Everything that makes up a document, unchecked: see [`Document::from_parts`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentParts {
    /// Its name.
    pub name: DocName,
    /// When this life of the document began.
    pub ctime: Stamp,
    /// Stamp of the last operation that changed it.
    pub version: Stamp,
    /// Items that were destroyed at or after this are all known.
    pub dtime: Stamp,
    /// Whether this life has ended; such a document has no items.
    pub is_deleted: bool,
    /// Items, ordered by name, each name once.
    pub items: Vec<Item>,
}

impl DocumentParts {
    /// Makes room when there are more than [`ITEMS_MAX`] items: moves dtime on over the oldest
    /// destroyed ones. At most half of the room beside the existing items stays with destroyed ones,
    /// so that the next changes need not do this again. What was destroyed at the version itself
    /// stays: caches that have the version before must hear of it.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        if self.items.len() <= ITEMS_MAX {
            return self;
        }
        let destroyed = self.items.iter().filter(|it| it.is_destroyed());
        let mut versions: Vec<Stamp> = destroyed.map(|it| it.version).collect();
        versions.sort_unstable();
        let existing = self.items.len() - versions.len();
        let kept = ITEMS_MAX.saturating_sub(existing) / 2;
        let newest = versions.len().checked_sub(kept + 1).and_then(|at| versions.get(at));
        if let Some(newest) = newest {
            let dtime = self.dtime.max(newest.next().min(self.version));
            self.dtime = dtime;
            self.items.retain(|it| !it.is_destroyed() || it.version >= dtime);
        }
        self
    }
}

/// A document at one version: an immutable value, shared as `Arc<Document>`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Document {
    name: DocName,
    ctime: Stamp,
    version: Stamp,
    dtime: Stamp,
    is_deleted: bool,
    items: Box<[Item]>,
    volumes: Volumes,
}

fn wrong<T>(field: &str, problem: String) -> Result<T, FieldError> {
    Err(FieldError::new(field, problem))
}

impl Document {
    /// A document from its parts. Checks what always holds: ctime <= dtime <= version; items in
    /// order of their names and at most [`ITEMS_MAX`]; no item newer than the document or older
    /// than its life; no destroyed item older than dtime; a deleted document has no items; at most
    /// [`DOCUMENT_BYTES_MAX`] of contents.
    pub fn from_parts(parts: DocumentParts) -> Result<Self, FieldError> {
        let DocumentParts { name, ctime, version, dtime, is_deleted, items } = parts;
        if !(ctime <= dtime && dtime <= version) {
            let problem = format!("of {name} is {dtime}, not between {ctime} and {version}");
            return wrong("dtime", problem);
        }
        if is_deleted && !items.is_empty() {
            return wrong("items", format!("of {name}, which is deleted, are not none"));
        }
        check_order(items.iter().map(Item::name))?;
        for item in &items {
            let oldest = if item.is_destroyed() { dtime } else { ctime };
            if !(oldest..=version).contains(&item.version) {
                let Item { name, version: at, .. } = item;
                let problem = format!("of {name} is {at}, not between {oldest} and {version}");
                return wrong("version", problem);
            }
        }
        let document = Self::assemble(name, [ctime, version, dtime], is_deleted, items);
        document.check_size()?;
        Ok(document)
    }

    /// Puts together what is known to fit: ctime, version and dtime in this order.
    pub(crate) fn assemble(
        name: DocName,
        [ctime, version, dtime]: [Stamp; 3],
        is_deleted: bool,
        items: Vec<Item>,
    ) -> Self {
        let volumes = filled_by(&items);
        Self { name, ctime, version, dtime, is_deleted, items: items.into(), volumes }
    }

    /// Puts together what is known to fit, but for its size.
    pub(crate) fn assemble_parts(parts: DocumentParts) -> Self {
        let DocumentParts { name, ctime, version, dtime, is_deleted, items } = parts;
        Self::assemble(name, [ctime, version, dtime], is_deleted, items)
    }

    /// What remains of a document whose life ended at that version.
    pub(crate) fn ended(name: DocName, ctime: Stamp, version: Stamp) -> Self {
        Self::assemble(name, [ctime, version, version], true, Vec::new())
    }

    /// Refuses more than [`ITEMS_MAX`] items or [`DOCUMENT_BYTES_MAX`] bytes.
    pub(crate) fn check_size(&self) -> Result<(), FieldError> {
        let (items, item_bytes) = (self.items.len(), self.volumes.item_bytes);
        if items > ITEMS_MAX {
            let problem = format!("of {} are {items}; the limit is {ITEMS_MAX}", self.name);
            return wrong("items", problem);
        }
        if item_bytes > DOCUMENT_BYTES_MAX {
            let name = &self.name;
            let problem =
                format!("of {name} is {item_bytes} bytes; the limit is {DOCUMENT_BYTES_MAX}");
            return wrong("item_bytes", problem);
        }
        Ok(())
    }

    /// Refuses a document of a version after `latest`: field `version`.
    pub fn check_not_after(&self, latest: Stamp) -> Result<(), FieldError> {
        if self.version > latest {
            let (name, version) = (&self.name, self.version);
            let problem = format!("of {name} is {version}, in the future; the limit is {latest}");
            return wrong("version", problem);
        }
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &DocName {
        &self.name
    }

    /// When this life began.
    pub fn ctime(&self) -> Stamp {
        self.ctime
    }

    /// Stamp of the last operation that changed it.
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// Every item that was destroyed at or after this is still known as destroyed.
    pub fn dtime(&self) -> Stamp {
        self.dtime
    }

    /// Whether this life has ended: only name, ctime and version of its end are left.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// All items in order of their names, destroyed ones included.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Items that exist, in order of their names.
    pub fn existing(&self) -> impl DoubleEndedIterator<Item = (&ItemName, &Content)> {
        self.items.iter().filter_map(|it| Some((&it.name, it.content()?)))
    }

    /// An item by class and key (`None` for a singleton), destroyed or not.
    pub fn item(&self, class: &str, key: Option<&str>) -> Option<&Item> {
        let at = self.items.binary_search_by(|it| it.name.cmp_parts(class, key)).ok()?;
        self.items.get(at)
    }

    /// The content of an existing item.
    pub fn content(&self, class: &str, key: Option<&str>) -> Option<&Content> {
        self.item(class, key)?.content()
    }

    /// Attachments: key and description.
    pub fn attachments(&self) -> impl Iterator<Item = (&str, &Attachment)> {
        let in_class = self.existing().filter(|(name, _)| name.class() == ATTACHMENT_CLASS);
        in_class.filter_map(|(name, content)| Some((name.key()?, content.as_attachment()?)))
    }

    /// Digests of the bodies of its attachments, each as often as an item names it.
    pub fn bodies(&self) -> impl Iterator<Item = Digest> {
        self.attachments().map(|(_, it)| it.sha256())
    }

    /// How much it fills.
    pub fn volumes(&self) -> Volumes {
        self.volumes
    }

    /// The same document with dtime moved on: items destroyed before it are forgotten. `None` when
    /// nothing would be forgotten. A dtime after the version counts as the version.
    pub fn forget_before(&self, dtime: Stamp) -> Option<Document> {
        let dtime = dtime.min(self.version);
        let is_kept = |it: &&Item| !it.is_destroyed() || it.version >= dtime;
        if self.items.iter().all(|it| is_kept(&it)) {
            return None;
        }
        let items = self.items.iter().filter(is_kept).cloned().collect();
        let stamps = [self.ctime, self.version, dtime];
        Some(Self::assemble(self.name.clone(), stamps, self.is_deleted, items))
    }

    /// The same document without what an operation remembers in it: its caller's answer, which is
    /// nobody else's business. `None` when it remembers nothing.
    pub fn without_memories(&self) -> Option<Document> {
        if !self.items.iter().any(|it| it.name.is_memory()) {
            return None;
        }
        let items = self.items.iter().filter(|it| !it.name.is_memory()).cloned().collect();
        let stamps = [self.ctime, self.version, self.dtime];
        Some(Self::assemble(self.name.clone(), stamps, self.is_deleted, items))
    }

    /// Whether two copies say the same: same life and version, same existing items. They may know
    /// different destroyed items, if their dtimes differ.
    pub fn says_the_same(&self, other: &Document) -> bool {
        let head = |it: &Document| (it.ctime, it.version, it.is_deleted);
        let mut here = self.items.iter().filter(|it| !it.is_destroyed());
        let mut there = other.items.iter().filter(|it| !it.is_destroyed());
        self.name == other.name && head(self) == head(other) && here.by_ref().eq(there.by_ref())
    }

    /// Bytes of names and contents of all existing items.
    pub fn content_bytes(&self) -> u64 {
        self.volumes.item_bytes
    }

    /// No fewer bytes than [`Document::to_bytes`] gives.
    pub(crate) fn stored_bytes_at_most(&self) -> u64 {
        let destroyed = self.items.iter().filter(|it| it.is_destroyed());
        let names: u64 = destroyed.map(|it| it.name.bytes() as u64).sum();
        let around = ITEM_STORED_BYTES * self.items.len() as u64 + DOCUMENT_STORED_BYTES;
        self.content_bytes() + names + around
    }

    /// About how many bytes it takes in memory, names and contents included.
    pub fn memory_bytes(&self) -> u64 {
        // Each shared text or byte string has two counters before it.
        let shared = |bytes: u64| bytes + 16;
        let mut bytes = (size_of::<Self>() as u64) + shared(self.name.as_text().len() as u64);
        for item in &self.items {
            bytes += (size_of::<Item>() as u64) + shared(item.name.bytes() as u64);
            bytes += item.content().map_or(0, |it| shared(it.volume()));
        }
        bytes
    }

    /// The parts again.
    pub fn into_parts(self) -> DocumentParts {
        let Self { name, ctime, version, dtime, is_deleted, items, volumes: _ } = self;
        DocumentParts { name, ctime, version, dtime, is_deleted, items: items.into_vec() }
    }
}

/// Refuses names that are not in order or not unique: field `items`.
pub(crate) fn check_order<'a>(names: impl Iterator<Item = &'a ItemName>) -> Result<(), FieldError> {
    let mut last: Option<&ItemName> = None;
    for name in names {
        if last.is_some_and(|it| it >= name) {
            return wrong("items", format!("are not in order at {name}"));
        }
        last = Some(name);
    }
    Ok(())
}

/// A document that exists: not one whose life ended.
pub(crate) fn alive(document: Option<&Arc<Document>>) -> Option<&Arc<Document>> {
    document.filter(|it| !it.is_deleted())
}
