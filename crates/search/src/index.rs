//! The index: which values lie in which documents, in order.

use crate::shapes::{Record, Shapes};
use crate::value::Value;
use rota_docstore::{DocName, Document};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a value lies: a document, and the key of an item in it. Orders by namespace, docid, key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The document.
    pub name: DocName,
    /// The item's key; `None` for a singleton, and where documents are meant.
    pub key: Option<SmolStr>,
}

/// A value and where it lies.
pub(crate) type Entry = (Value, Place);

/// The entries of one field.
pub(crate) type Entries = BTreeSet<Entry>;

/// The documents of one class in one namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) names: BTreeSet<DocName>,
    /// By class of items, then by field.
    items: BTreeMap<SmolStr, BTreeMap<SmolStr, Entries>>,
}

impl Part {
    pub(crate) fn entries(&self, item: &str, field: &str) -> Option<&Entries> {
        self.items.get(item)?.get(field)
    }
}

/// How much an index holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Size {
    /// Documents.
    pub documents: u64,
    /// Values, each at its place.
    pub entries: u64,
    /// Bytes of texts that lie beside the entries.
    texts: u64,
}

/// What an entry takes in a map, in percent of its size: nodes are partly empty. Measured by the example
/// `search_pace`.
const FILL_PERCENT: u64 = 170;

impl Size {
    /// About how many bytes it takes in memory.
    pub fn bytes(&self) -> u64 {
        let names = self.documents * (size_of::<DocName>() as u64);
        let entries = self.entries * (size_of::<Entry>() as u64);
        (names + entries) * FILL_PERCENT / 100 + self.texts
    }
}

/// The values of declared fields of a set of documents. It is told of every change of a document, and
/// holds what lives: no document whose life ended, no item that was destroyed.
#[derive(Clone, Debug, Default)]
pub struct Index {
    shapes: Arc<Shapes>,
    /// By class of documents, then by namespace.
    parts: BTreeMap<SmolStr, BTreeMap<SmolStr, Part>>,
    size: Size,
}

/// What a document has, by class of items and field.
type Found = BTreeMap<(SmolStr, SmolStr), Entries>;

impl Index {
    /// An empty index.
    pub fn new(shapes: Arc<Shapes>) -> Self {
        Self { shapes, ..Self::default() }
    }

    /// What it holds of which documents.
    pub fn shapes(&self) -> &Arc<Shapes> {
        &self.shapes
    }

    /// How much it holds.
    pub fn size(&self) -> Size {
        self.size
    }

    /// A document was written, or is gone. `before` is what was told as `after` the last time. Documents of
    /// classes without an index are passed over.
    pub fn change(&mut self, before: Option<&Document>, after: Option<&Document>) {
        let [before, after] = [before, after].map(|it| it.filter(|it| !it.is_deleted()));
        let Some(name) = before.or(after).map(Document::name) else { return };
        let Some(items) = self.shapes.items(name.class()) else { return };
        let is_same = |item: &str| match (before, after) {
            (Some(before), Some(after)) => {
                let [was, is] = [before, after]
                    .map(|it| it.existing().filter(|(name, _)| name.class() == item));
                was.eq(is)
            }
            (Some(_) | None, _) => false,
        };
        let [mut old, mut new] = [Found::new(), Found::new()];
        for (item, shape) in items {
            if matches!(shape, crate::shapes::Shape::Items(_)) && is_same(item) {
                continue;
            }
            for (document, found) in [(before, &mut old), (after, &mut new)] {
                let Some(document) = document else { continue };
                shape.records(item, document, |key, record| {
                    note(
                        found,
                        item,
                        &Place { name: document.name().clone(), key: key.map(Into::into) },
                        record,
                    );
                });
            }
        }
        self.put(name.clone(), [before.is_some(), after.is_some()], &old, new);
    }

    fn put(&mut self, name: DocName, [was, is]: [bool; 2], old: &Found, new: Found) {
        let (class, space) = (SmolStr::from(name.class()), SmolStr::from(name.space()));
        let part = self.parts.entry(class.clone()).or_default().entry(space.clone()).or_default();
        for ((item, field), entries) in old {
            let still = new.get(&(item.clone(), field.clone()));
            let Some(fields) = part.items.get_mut(item) else { continue };
            let Some(known) = fields.get_mut(field) else { continue };
            for entry in entries.iter().filter(|it| still.is_none_or(|all| !all.contains(it))) {
                if known.remove(entry) {
                    self.size.entries -= 1;
                    self.size.texts -= texts(entry);
                }
            }
            if known.is_empty() {
                fields.remove(field);
            }
        }
        for ((item, field), entries) in new {
            let known = part.items.entry(item).or_default().entry(field).or_default();
            for entry in entries {
                let bytes = texts(&entry);
                if known.insert(entry) {
                    self.size.entries += 1;
                    self.size.texts += bytes;
                }
            }
        }
        if is {
            self.size.documents += u64::from(part.names.insert(name));
        } else if was {
            self.size.documents -= u64::from(part.names.remove(&name));
        }
        if part.names.is_empty()
            && let Some(spaces) = self.parts.get_mut(&class)
        {
            spaces.remove(&space);
        }
    }

    /// The parts of a class, in order of namespaces: of one of them, or of all.
    pub(crate) fn parts(&self, class: &str, space: Option<&str>) -> Vec<&Part> {
        let Some(spaces) = self.parts.get(class) else { return Vec::new() };
        match space {
            Some(space) => spaces.get(space).into_iter().collect(),
            None => spaces.values().collect(),
        }
    }
}

fn note(found: &mut Found, item: &SmolStr, place: &Place, record: Record) {
    for (field, values) in record {
        let entries = found.entry((item.clone(), field)).or_default();
        entries.extend(values.into_iter().map(|it| (it.kept(), place.clone())));
    }
}

fn texts((value, place): &Entry) -> u64 {
    let key = place.key.as_ref().filter(|it| it.is_heap_allocated()).map_or(0, |it| it.len() + 16);
    (value.heap_bytes() + key) as u64
}
