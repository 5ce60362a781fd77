//! Searches of an application's own, each under a name: what no filter can say.

use crate::index::{Index, Place};
use crate::page::{Merged, Range, Read, entries};
use crate::value::{Test, Value};
use rota_docstore::{DocName, Document, JsonText};
use rota_model::{FieldError, Namespace, Stamp};
use serde::de::DeserializeOwned;
use smol_str::SmolStr;
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
    /// Checks its parameters. Fields: `parameters`, or `special` if there are parameters and no name.
    pub fn parse(name: &str, parameters: &str) -> Result<Option<Self>, FieldError> {
        let wrong = |problem: String| FieldError::new("parameters", problem);
        if parameters.len() > PARAMETERS_BYTES_MAX {
            let bytes = parameters.len();
            return Err(wrong(format!("has {bytes} bytes; the limit is {PARAMETERS_BYTES_MAX}")));
        }
        let text = Some(parameters).filter(|it| !it.is_empty());
        let parameters = text.map(JsonText::parse).transpose().map_err(|it| wrong(it.problem))?;
        match (name.is_empty(), parameters) {
            (true, None) => Ok(None),
            (true, Some(_)) => Err(FieldError::new("special", "must be there with parameters")),
            (false, parameters) => Ok(Some(Self { name: name.into(), parameters })),
        }
    }
}

/// What a special search sees: documents of its class, of the namespace that is searched, in one partition.
pub struct View<'a> {
    pub(crate) index: &'a Index,
    pub(crate) class: &'a str,
    pub(crate) space: Option<&'a Namespace>,
    pub(crate) now: Stamp,
    pub(crate) read: Read<'a>,
}

impl<'a> View<'a> {
    /// The time.
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// Where a declared field of a class of items may have a value that a test asks for, in order of values. A text of
    /// more than [`crate::LETTERS_KEPT`] letters must be compared in its document.
    pub fn places(
        &self,
        item: &str,
        field: &str,
        test: &Test,
    ) -> impl Iterator<Item = (&'a Value, &'a Place)> {
        let range =
            Range { values: test.range(self.now), docids: (Bound::Unbounded, Bound::Unbounded) };
        let parts = self.index.parts(self.class, self.space.map(Namespace::as_str));
        let known = parts.into_iter().filter_map(|it| Some((it, it.entries(item, field)?)));
        let all = known.map(|(part, all)| entries(part, all, &range, None, false)).collect();
        Merged::new(all, false).map(|it| (&it.0, &it.1))
    }

    /// The names of all documents, in order.
    pub fn names(&self) -> impl Iterator<Item = &'a DocName> {
        let parts = self.index.parts(self.class, self.space.map(Namespace::as_str));
        parts.into_iter().flat_map(|it| &it.names)
    }

    /// A document that lives. Reading one takes some microseconds.
    pub fn document(&self, name: &DocName) -> Option<Arc<Document>> {
        let is_seen = self.space.is_none_or(|it| it.as_str() == name.space());
        let found = (self.read)(name).filter(|it| is_seen && !it.is_deleted());
        found.filter(|_| name.class() == self.class)
    }
}

/// A search of an application. Each page of it makes a new value of the type, in the stream of the owner's decisions.
pub trait SpecialSearch: Sized + 'static {
    /// The name by which callers ask for it.
    const NAME: &'static str;
    /// The class of documents that it searches.
    const CLASS: &'static str;
    /// What it is told.
    type Parameters: DeserializeOwned;

    /// From its parameters; refuses those that can never work.
    fn new(parameters: Self::Parameters) -> Result<Self, FieldError>;

    /// Its results, at most [`PLACES_MAX`]. They come in order of namespace, docid and key, and whatever else a search
    /// asks for must hold of them, too.
    fn places(&self, view: &View<'_>) -> Result<BTreeSet<Place>, FieldError>;
}

/// Reads parameters, and searches if there is something to search.
type Run = fn(&Special, Option<&View<'_>>) -> Result<BTreeSet<Place>, FieldError>;

/// The special searches of an application, by class of documents and name. Made once at start; clones share them.
#[derive(Clone, Default)]
pub struct SpecialSearches(Arc<BTreeMap<(&'static str, &'static str), Run>>);

impl SpecialSearches {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one. Panics, as this stands in the code, when a class has two of a name.
    #[must_use]
    pub fn with<T: SpecialSearch>(mut self) -> Self {
        let known = Arc::make_mut(&mut self.0).insert((T::CLASS, T::NAME), run::<T>);
        assert!(known.is_none(), "search {} of {} is registered twice", T::NAME, T::CLASS);
        self
    }

    /// Classes of documents that have special searches.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().map(|it| it.0)
    }

    fn find(&self, class: &str, special: &Special) -> Result<Run, FieldError> {
        let of_class = self.0.iter().filter(|it| it.0.0 == class);
        let found = of_class.clone().find(|it| it.0.1 == special.name);
        found.map(|it| *it.1).ok_or_else(|| {
            let names: Vec<&str> = of_class.map(|it| it.0.1).collect();
            let problem = match names.as_slice() {
                [] => format!("{:?} is not there: {class:?} has no special search", special.name),
                names => format!("{:?} is not there; there are {}", special.name, names.join(", ")),
            };
            FieldError::new("special", problem)
        })
    }

    /// Refuses a search that does not exist, or whose parameters do not fit. Fields: `special`, `parameters`, or one of
    /// the search.
    pub(crate) fn check(&self, class: &str, special: &Special) -> Result<(), FieldError> {
        self.find(class, special)?(special, None).map(drop)
    }

    /// What a search comes to.
    pub(crate) fn places(
        &self,
        special: &Special,
        view: &View<'_>,
    ) -> Result<BTreeSet<Place>, FieldError> {
        let places = self.find(view.class, special)?(special, Some(view))?;
        if places.len() > PLACES_MAX {
            let (name, count) = (&special.name, places.len());
            let problem = format!("{name} comes to {count} places; the limit is {PLACES_MAX}");
            return Err(FieldError::new("special", problem));
        }
        Ok(places)
    }
}

impl fmt::Debug for SpecialSearches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn run<T: SpecialSearch>(
    special: &Special,
    view: Option<&View<'_>>,
) -> Result<BTreeSet<Place>, FieldError> {
    let text = special.parameters.as_ref().map_or("{}", JsonText::as_str);
    let parameters = serde_json::from_str(text).map_err(|error| {
        FieldError::new("parameters", format!("do not fit search {}: {error}", T::NAME))
    })?;
    let search = T::new(parameters)?;
    view.map_or(Ok(BTreeSet::new()), |it| search.places(it))
}
