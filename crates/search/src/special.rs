//! Searches of an application's own, each under a name: what no filter can say.

use crate::index::{Index, Place};
use crate::page::{Merged, Range, Read, entries};
use crate::value::{Test, Value};
use rota_docstore::{DocName, Document, Exception, JsonText, guarded};
use rota_model::{FieldError, NAME_BYTES_MAX, Namespace, Stamp};
use serde::de::DeserializeOwned;
use smol_str::SmolStr;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Most places that a special search may come to.
pub const PLACES_MAX: usize = 10_000;

/// Most bytes of the parameters of a special search.
pub const PARAMETERS_BYTES_MAX: usize = 4_096;

/// A special search, as it is asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Special {
    /// Its name.
    pub name: SmolStr,
    /// What it is told. `None`: an empty JSON object.
    pub parameters: Option<JsonText>,
}

impl Special {
    /// Quoted, so that no two have one text.
    pub(crate) fn text(&self) -> String {
        format!(" {:?} {:?}", self.name, self.parameters.as_ref().map(JsonText::as_str))
    }

    /// Checks its parameters. Fields: `parameters`, or `special` if there are parameters and no name.
    pub fn parse(name: &str, parameters: &str) -> Result<Option<Self>, FieldError> {
        if name.len() > NAME_BYTES_MAX {
            let problem = format!("has {} bytes; the limit is {NAME_BYTES_MAX}", name.len());
            return Err(FieldError::new("special", problem));
        }
        let wrong = |problem: String| FieldError::new("parameters", problem);
        if parameters.len() > PARAMETERS_BYTES_MAX {
            let bytes = parameters.len();
            return Err(wrong(format!("has {bytes} bytes; the limit is {PARAMETERS_BYTES_MAX}")));
        }
        let text = Some(parameters).filter(|it| !it.is_empty());
        if text.is_some_and(|it| !it.trim_start().starts_with('{')) {
            return Err(wrong("must be a JSON object".to_owned()));
        }
        let parameters = text.map(JsonText::parse).transpose().map_err(|it| wrong(it.problem))?;
        match (name.is_empty(), parameters) {
            (true, None) => Ok(None),
            (true, Some(_)) => {
                Err(FieldError::new("special", "must name the search that parameters are for"))
            }
            (false, parameters) => Ok(Some(Self { name: name.into(), parameters })),
        }
    }
}

/// What a special search may spend: an entry or a name costs one, and a document that is read costs
/// [`DOCUMENT_COST`]. Higher, and a search holds up the decisions of its owner for longer than some 50 ms.
const BUDGET: u64 = 160_000;

/// What reading a document costs, in entries.
const DOCUMENT_COST: u64 = 16;

/// What a special search sees: documents of its class, of the namespace that is searched, in one partition.
pub struct View<'a> {
    pub(crate) index: &'a Index,
    pub(crate) class: &'a str,
    pub(crate) space: Option<&'a Namespace>,
    pub(crate) now: Stamp,
    pub(crate) read: Read<'a>,
    pub(crate) spent: Spent,
}

/// What was spent so far.
#[derive(Default)]
pub(crate) struct Spent {
    cost: Cell<u64>,
    documents: Cell<u64>,
}

impl Spent {
    fn pay(&self, cost: u64) -> bool {
        self.cost.set(self.cost.get() + cost);
        self.cost.get() <= BUDGET
    }
}

impl<'a> View<'a> {
    /// The time.
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// Where a declared field of a class of items may have a value that a test asks for, in order of values. A text of
    /// more than [`crate::LETTERS_KEPT`] letters must be compared in its document. Fields: `item`, `filter`, or that
    /// field, where nothing of the kind is declared.
    pub fn places(
        &self,
        item: &str,
        field: &str,
        test: &Test,
    ) -> Result<impl Iterator<Item = (&'a Value, &'a Place)>, FieldError> {
        let fields = self.index.shapes().fields(self.class, Some(item))?;
        fields.check(field)?.check(field, test)?;
        let range =
            Range { values: test.range(self.now), docids: (Bound::Unbounded, Bound::Unbounded) };
        let parts = self.index.parts(self.class, self.space.map(Namespace::as_str));
        let known = parts.into_iter().filter_map(|it| Some((it, it.entries(item, field)?)));
        let all = known.map(|(part, all)| entries(part, all, &range, None, false)).collect();
        Ok(Merged::new(all, false).map(|it| (&it.0, &it.1)).take_while(|_| self.spent.pay(1)))
    }

    /// The names of all documents, in order.
    pub fn names(&self) -> impl Iterator<Item = &'a DocName> {
        let parts = self.index.parts(self.class, self.space.map(Namespace::as_str));
        parts.into_iter().flat_map(|it| &it.names).take_while(|_| self.spent.pay(1))
    }

    /// A document that lives. Reading one takes some microseconds: a search that reads more than 10,000 in a partition is
    /// refused.
    pub fn document(&self, name: &DocName) -> Option<Arc<Document>> {
        let is_seen = self.space.is_none_or(|it| it.as_str() == name.space());
        if !is_seen || name.class() != self.class || !self.spent.pay(DOCUMENT_COST) {
            return None;
        }
        self.spent.documents.set(self.spent.documents.get() + 1);
        (self.read)(name).filter(|it| !it.is_deleted())
    }

    /// How many documents were read.
    pub(crate) fn documents_read(&self) -> u64 {
        self.spent.documents.get()
    }
}

/// A search of an application. Each page of it makes a new value of the type, in the stream of the owner's decisions. A
/// panic is told to the caller.
pub trait SpecialSearch: Sized + 'static {
    /// The name by which callers ask for it.
    const NAME: &'static str;
    /// The class of documents that it searches.
    const CLASS: &'static str;
    /// The class of the items that its places name by their keys. `None`: its places are documents, without keys.
    const ITEM: Option<&'static str>;
    /// What it is told.
    type Parameters: DeserializeOwned;

    /// From its parameters; refuses those that can never work. The caller's errors get `parameters.` ahead of the field.
    fn new(parameters: Self::Parameters) -> Result<Self, FieldError>;

    /// Its results, at most [`PLACES_MAX`]. They come in order of namespace, docid and key, and whatever else a search
    /// asks for must hold of them, too.
    fn places(&self, view: &View<'_>) -> Result<BTreeSet<Place>, FieldError>;
}

type Run = fn(&Special, &View<'_>) -> Result<BTreeSet<Place>, FieldError>;

/// A special search of an application.
#[derive(Clone, Copy)]
struct Known {
    item: Option<&'static str>,
    run: Run,
}

/// The special searches of an application, by class of documents and name. Made once at start; clones share them.
#[derive(Clone, Default)]
pub struct SpecialSearches(Arc<BTreeMap<(&'static str, &'static str), Known>>);

impl SpecialSearches {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one. Panics, as this stands in the code, when a class has two of a name.
    #[must_use]
    pub fn with<T: SpecialSearch>(mut self) -> Self {
        let it = Known { item: T::ITEM, run: run::<T> };
        let known = Arc::make_mut(&mut self.0).insert((T::CLASS, T::NAME), it);
        assert!(known.is_none(), "search {} of {} is registered twice", T::NAME, T::CLASS);
        self
    }

    /// Classes of documents that have special searches.
    pub fn classes(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().map(|it| it.0)
    }

    fn find(&self, class: &str, special: &Special) -> Result<Known, FieldError> {
        let of_class = self.0.iter().filter(|it| it.0.0 == class);
        let found = of_class.clone().find(|it| it.0.1 == special.name);
        found.map(|it| *it.1).ok_or_else(|| {
            let names: Vec<&str> = of_class.map(|it| it.0.1).collect();
            let problem = match names.as_slice() {
                [] => {
                    format!("{:?} is unknown: {class:?} has no special search here", special.name)
                }
                names => {
                    format!("{:?} is unknown here; there are {}", special.name, names.join(", "))
                }
            };
            FieldError::new("special", problem)
        })
    }

    /// Refuses a search that does not exist, or that finds other items. Fields: `special`, `item`. The application's own
    /// code is asked by owners alone, once they know that the caller may search.
    pub(crate) fn check(
        &self,
        class: &str,
        item: Option<&str>,
        special: &Special,
    ) -> Result<(), FieldError> {
        match (self.find(class, special)?.item, item) {
            (Some(own), Some(asked)) if own != asked => {
                let problem = format!("must be {own:?}: search {} finds these", special.name);
                Err(FieldError::new("item", problem))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// What a search comes to, and whether these are items.
    pub(crate) fn places(
        &self,
        special: &Special,
        view: &View<'_>,
    ) -> Result<(BTreeSet<Place>, bool), Exception> {
        let known = self.find(view.class, special)?;
        let places = guarded(|| Ok((known.run)(special, view)?))?;
        let refused = |problem: String| Err(FieldError::new("special", problem).into());
        if view.spent.cost.get() > BUDGET {
            let name = &special.name;
            return refused(format!(
                "{name} looks at too much: a partition gives it 160,000 entries, or 10,000 documents; narrow it"
            ));
        }
        if places.len() > PLACES_MAX {
            let (name, count) = (&special.name, places.len());
            return refused(format!(
                "{name} comes to {count} places; the limit is {PLACES_MAX}: narrow its parameters"
            ));
        }
        Ok((places, known.item.is_some()))
    }
}

impl fmt::Debug for SpecialSearches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn run<T: SpecialSearch>(
    special: &Special,
    view: &View<'_>,
) -> Result<BTreeSet<Place>, FieldError> {
    let text = special.parameters.as_ref().map_or("{}", JsonText::as_str);
    let parameters = serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        // Its place in a text of one line says little, and nothing where there was no text.
        let why = text.split(" at line ").next().unwrap_or_default();
        FieldError::new("parameters", format!("do not fit search {}: {why}", T::NAME))
    })?;
    let within = |it: FieldError| FieldError::new(format!("parameters.{}", it.field), it.problem);
    T::new(parameters).map_err(within)?.places(view)
}
