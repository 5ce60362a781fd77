//! What of which documents is indexed.

use crate::fields::{DOCID, Fields, KEY, Kind};
use crate::special::SpecialSearches;
use crate::value::Value;
use rota_docstore::field::read_fields;
use rota_docstore::{Content, Document, FieldType, Schema};
use rota_model::FieldError;
use smol_str::SmolStr;
use std::collections::BTreeMap;

/// Reads the fields of a document that are not those of one item: name and value of each.
pub type Derive = fn(&Document) -> Vec<(SmolStr, Value)>;

/// What is read of one class of items.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Properties of each item, and perhaps its key.
    Items(OfItems),
    /// A record for each document, which stands for one item without a key and without content.
    Derived(Fields, Derive),
}

/// What is read of each item of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfItems {
    fields: BTreeMap<SmolStr, FieldType>,
    /// Whether the item's key is a field, [`KEY`].
    has_keys: bool,
}

impl OfItems {
    fn record(&self, key: Option<&str>, content: &Content) -> Record {
        let mut record = Record::new();
        if let Content::Json(text) = content {
            read_fields(&self.fields, text, |at, value| {
                let name = self.fields.keys().nth(at);
                if let (Some(name), Ok(value)) = (name, Value::try_from(value)) {
                    record.entry(name.clone()).or_default().push(value);
                }
            });
        }
        if let Some(key) = key.filter(|_| self.has_keys) {
            record.insert(KEY.into(), vec![Value::text(key)]);
        }
        record
    }
}

/// Fields of one item, by name.
pub(crate) type Record = BTreeMap<SmolStr, Vec<Value>>;

impl Shape {
    fn of_items() -> Self {
        Self::Items(OfItems::default())
    }

    /// The key and the fields of every item of a document.
    pub(crate) fn records(
        &self,
        class: &str,
        document: &Document,
        mut each: impl FnMut(Option<&str>, Record),
    ) {
        match self {
            Self::Items(shape) => {
                let of_class = document.existing().filter(|(name, _)| name.class() == class);
                for (name, content) in of_class {
                    each(name.key(), shape.record(name.key(), content));
                }
            }
            Self::Derived(fields, derive) => each(None, derived(fields, *derive, document)),
        }
    }

    /// The fields of one item, if it exists.
    pub(crate) fn record(
        &self,
        class: &str,
        document: &Document,
        key: Option<&str>,
    ) -> Option<Record> {
        match self {
            Self::Items(shape) => Some(shape.record(key, document.content(class, key)?)),
            Self::Derived(fields, derive) => Some(derived(fields, *derive, document)),
        }
    }
}

fn derived(fields: &Fields, derive: Derive, document: &Document) -> Record {
    let mut record = Record::new();
    for (name, value) in derive(document) {
        if fields.kind(&name).is_some() {
            record.entry(name).or_default().push(value);
        }
    }
    record
}

/// What of which documents is indexed: classes of documents, in each classes of items, in each fields.
/// Made once at start.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    classes: BTreeMap<SmolStr, BTreeMap<SmolStr, Shape>>,
    specials: SpecialSearches,
}

impl Shapes {
    /// Every class of a schema that has declared fields.
    pub fn of(schema: &Schema) -> Self {
        let mut shapes = Self::default();
        for class in schema.classes() {
            for (item, field, is) in schema.fields(class) {
                let items = shapes.classes.entry(class.into()).or_default();
                let shape = items.entry(item.into()).or_insert_with(Shape::of_items);
                if let Shape::Items(shape) = shape {
                    shape.fields.insert(field.into(), is);
                }
            }
        }
        shapes
    }

    /// Adds a class of documents that is searched by their ids.
    #[must_use]
    pub fn with_docids(mut self, class: &str) -> Self {
        self.classes.entry(class.into()).or_default();
        self
    }

    /// Adds the keys of the items of a class as their field [`KEY`]. Panics, as this stands in the code, if
    /// their class has a field of that name, or is no class of items.
    #[must_use]
    pub fn with_keys(mut self, class: &str, item: &str) -> Self {
        let items = self.classes.entry(class.into()).or_default();
        match items.entry(item.into()).or_insert_with(Shape::of_items) {
            Shape::Items(shape) if !shape.fields.contains_key(KEY) => shape.has_keys = true,
            Shape::Items(_) | Shape::Derived(..) => panic!("{item} of {class} has a field {KEY:?}"),
        }
        self
    }

    /// Adds fields of whole documents under the name of a class of items, which need not exist: of a
    /// session, for instance, its state, which one item has, and its attributes, which another has.
    /// `fields` are all that `derive` gives; others are left out. Panics, as this stands in the code, if
    /// the class of items has fields already.
    #[must_use]
    pub fn with_derived(mut self, class: &str, item: &str, fields: Fields, derive: Derive) -> Self {
        let items = self.classes.entry(class.into()).or_default();
        let known = items.insert(item.into(), Shape::Derived(fields, derive));
        assert!(known.is_none(), "fields of {item} are declared twice");
        self
    }

    /// Adds the searches of an application's own. Their classes of documents are indexed.
    #[must_use]
    pub fn with_specials(self, specials: SpecialSearches) -> Self {
        let with_classes = specials.classes().fold(self, Self::with_docids);
        Self { specials, ..with_classes }
    }

    pub(crate) fn specials(&self) -> &SpecialSearches {
        &self.specials
    }

    /// Classes of documents, in order.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(SmolStr::as_str)
    }

    /// Whether documents of that class are indexed.
    pub fn has(&self, class: &str) -> bool {
        self.classes.contains_key(class)
    }

    pub(crate) fn items(&self, class: &str) -> Option<&BTreeMap<SmolStr, Shape>> {
        self.classes.get(class)
    }

    /// The shape of a class of items. Fields: `class`, `item`; an error lists what there is.
    pub(crate) fn shape(&self, class: &str, item: &str) -> Result<&Shape, FieldError> {
        let items = self.check_class(class)?;
        items.get(item).ok_or_else(|| {
            let all: Vec<&str> = items.keys().map(SmolStr::as_str).collect();
            let problem = format!("{item:?} of {class:?} has no declared field; there are {all:?}");
            FieldError::new("item", problem)
        })
    }

    pub(crate) fn check_class(&self, class: &str) -> Result<&BTreeMap<SmolStr, Shape>, FieldError> {
        self.classes.get(class).ok_or_else(|| {
            let all: Vec<&str> = self.classes.keys().map(SmolStr::as_str).collect();
            let problem = format!("{class:?} of documents is not indexed; there are {all:?}");
            FieldError::new("class", problem)
        })
    }

    /// The names that a filter of a class may use: `docid` and, with a class of items, its fields.
    pub fn fields(&self, class: &str, item: Option<&str>) -> Result<Fields, FieldError> {
        self.check_class(class)?;
        let fields = match item.map(|it| self.shape(class, it)).transpose()? {
            Some(Shape::Items(OfItems { fields, has_keys })) => {
                let keys = has_keys.then_some((KEY, Kind::Text));
                let fields = fields.iter().map(|(name, is)| (name.as_str(), Kind::from(*is)));
                fields.chain(keys).fold(Fields::new(), |all, (name, is)| all.with(name, is))
            }
            Some(Shape::Derived(fields, _)) => fields.clone(),
            None => Fields::new(),
        };
        Ok(fields.with(DOCID, Kind::Text))
    }
}
