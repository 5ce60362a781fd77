//! The index of one class of documents, as far as it is built.

use rota_docstore::{DocName, Document};
use rota_messages::{Doc, DocKey};
use rota_search::{Index, Shapes};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Most documents that one step puts into an index: about five milliseconds.
const CHANGES_MAX: usize = 1_000;

/// Most documents that one step looks at.
const LOOKED_AT_MAX: usize = 20_000;

/// Up to where the documents of a partition were looked at.
#[derive(Clone, Debug)]
enum Reached {
    Through(Option<DocKey>),
    All,
}

/// The index of a class. It knows which documents it was told of, so that the next owner under another epoch may go on
/// with it: what is still there is not read again.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    class: String,
    pub index: Index,
    /// Documents as the index was told of them last.
    told: BTreeMap<DocKey, Arc<Doc>>,
    reached: Reached,
}

impl Built {
    pub fn new(class: &str, shapes: Arc<Shapes>) -> Self {
        let (index, told) = (Index::new(shapes), BTreeMap::new());
        Self { class: class.to_owned(), index, told, reached: Reached::Through(None) }
    }

    /// Whether all documents are in it.
    pub fn is_whole(&self) -> bool {
        matches!(self.reached, Reached::All)
    }

    /// What was told may be old: everything is looked at once more.
    pub fn look_again(&mut self) {
        self.reached = Reached::Through(None);
    }

    /// A document was committed. What was not looked at yet is left to the look.
    pub fn committed(&mut self, key: &DocKey, doc: Option<&Arc<Doc>>) {
        let is_reached = match &self.reached {
            Reached::All => true,
            Reached::Through(Some(through)) => key <= through,
            Reached::Through(None) => false,
        };
        if is_reached && key.name.class() == self.class {
            self.tell(key, doc);
        }
    }

    fn tell(&mut self, key: &DocKey, doc: Option<&Arc<Doc>>) {
        let doc = doc.filter(|it| !key.name.is_memory() && !it.glimpse().is_deleted());
        let before = match doc {
            Some(doc) => self.told.insert(key.clone(), Arc::clone(doc)),
            None => self.told.remove(key),
        };
        let [before, after] = [before.as_ref(), doc].map(|it| it.map(|it| it.glimpse()));
        self.index.change(before.as_deref(), after.as_deref());
    }

    /// Looks at some more documents of a copy.
    pub fn step(&mut self, docs: &BTreeMap<DocKey, Arc<Doc>>) {
        let Reached::Through(from) = &self.reached else { return };
        let lower = from.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let mut changed: Vec<DocKey> = Vec::new();
        let mut reached = Reached::All;
        for (looked_at, (key, doc)) in (1..).zip(docs.range((lower.clone(), Bound::Unbounded))) {
            let is_known = |it: &Arc<Doc>| Arc::ptr_eq(it, doc);
            if key.name.class() == self.class && !self.told.get(key).is_some_and(is_known) {
                changed.push(key.clone());
            }
            if looked_at >= LOOKED_AT_MAX || changed.len() >= CHANGES_MAX {
                reached = Reached::Through(Some(key.clone()));
                break;
            }
        }
        let upper = match &reached {
            Reached::Through(Some(key)) => Bound::Included(key.clone()),
            Reached::Through(None) | Reached::All => Bound::Unbounded,
        };
        let told = self.told.range((lower, upper)).map(|it| it.0);
        changed.extend(told.filter(|it| !docs.contains_key(*it)).cloned());
        for key in changed {
            self.tell(&key, docs.get(&key));
        }
        self.reached = reached;
    }

    /// A document as the index was told of it last.
    pub fn read(
        &self,
        slot_of: impl Fn(&DocName) -> rota_model::SlotId,
        name: &DocName,
    ) -> Option<Arc<Document>> {
        self.told.get(&DocKey::new(slot_of(name), name.clone())).map(|it| it.glimpse())
    }
}
