//! Documents of class `H`, beside those that operations name: each remembers one operation, or says up to which time
//! operations were forgotten.

use crate::content::Content;
use crate::document::{Document, DocumentParts, Item};
use crate::name::{DocName, ItemName, MEMORY_CLASS};
use rota_model::{FieldError, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most operations that one store, or one partition of a ring, remembers: 1,588 in every second of 11
/// minutes. Each takes some 600 bytes of memory.
pub const MEMORIES_MAX: usize = 1 << 20;

/// The key of the item that says how much was forgotten; other keys are the callers' times.
pub(crate) const FORGOTTEN_KEY: &str = "!";

/// Up to which time requests were forgotten, as an item with that key says.
pub(crate) fn forgotten_upto(content: &Content) -> Option<Stamp> {
    let Content::Json(text) = content else { return None };
    Stamp::parse(text.read().ok()?).ok()
}

/// What a document of class `H` is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It remembers a request of that time.
    Memory(Stamp),
    /// It says up to which time requests were forgotten.
    Floor(Stamp),
}

/// What a document is there for, if it is of class `H`.
pub(crate) fn kind_of(document: &Document) -> Option<Kind> {
    if document.name().class() != MEMORY_CLASS {
        return None;
    }
    let (name, content) = document.existing().find(|(name, _)| name.is_memory())?;
    match name.key()? {
        FORGOTTEN_KEY => forgotten_upto(content).map(Kind::Floor),
        key => key.parse().ok().map(Kind::Memory),
    }
}

/// The caller's time of the operation that a document remembers, if that is what it is there for.
pub fn remembers(document: &Document) -> Option<Stamp> {
    match kind_of(document)? {
        Kind::Memory(operation_time) => Some(operation_time),
        Kind::Floor(_) => None,
    }
}

/// The documents that say how much is forgotten when these memories are, as they are to be from then on.
/// They belong into the same entry. `found`: what is there of such a document.
pub fn floors<'a>(
    gone: impl IntoIterator<Item = &'a Document>,
    found: impl Fn(&DocName) -> Option<Arc<Document>>,
) -> Vec<Arc<Document>> {
    let mut upto: BTreeMap<DocName, (Stamp, Stamp)> = BTreeMap::new();
    for memory in gone {
        let Some(operation_time) = remembers(memory) else { continue };
        let it = upto.entry(memory.name().floor()).or_insert((operation_time, memory.version()));
        *it = (it.0.max(operation_time), it.1.max(memory.version()));
    }
    let floors = upto.into_iter().filter_map(|(name, (operation_time, version))| {
        let found = found(&name);
        raised_floor(name, found.as_deref(), operation_time, version).ok().flatten().map(Arc::new)
    });
    floors.collect()
}

/// The floor that both say together; `None` when what is here says it.
pub fn merged_floor(here: &Document, offered: &Document) -> Option<Arc<Document>> {
    let Some(Kind::Floor(upto)) = kind_of(offered) else { return None };
    let name = here.name().clone();
    raised_floor(name, Some(here), upto, offered.version()).ok().flatten().map(Arc::new)
}

fn raised_floor(
    name: DocName,
    found: Option<&Document>,
    upto: Stamp,
    version: Stamp,
) -> Result<Option<Document>, FieldError> {
    let version = found.map_or(version, |it| version.max(it.version().next()));
    if matches!(found.and_then(kind_of), Some(Kind::Floor(already)) if already >= upto) {
        return Ok(None);
    }
    let item = ItemName::keyed(MEMORY_CLASS, FORGOTTEN_KEY)?;
    let item = Item::existing(item, version, version, Content::json_of(&upto.as_u64())?)?;
    let [ctime, dtime] = [version; 2];
    let items = vec![item];
    let parts = DocumentParts { name, ctime, version, dtime, is_deleted: false, items };
    Document::from_parts(parts).map(Some)
}
