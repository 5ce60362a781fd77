//! Searches of an application's own, each under a name: what no filter can say.

use crate::index::{Index, Place};
use crate::page::{Filling, Hit, Limits, Merged, Page, Range, Read, entries};
use crate::query::{Position, position, token};
use crate::value::{Test, Value};
use rota_docstore::JsonText;
use rota_model::{FieldError, Namespace, Stamp};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Most places that a special search may come to.
pub const PLACES_MAX: usize = 10_000;

/// What a special search sees.
pub struct View<'a> {
    /// The index of one partition.
    pub index: &'a Index,
    /// The time.
    pub now: Stamp,
    /// Documents by name.
    pub read: Read<'a>,
}

impl View<'_> {
    /// Where a field may have a value that a test asks for, in order of values. A text of more than
    /// [`crate::LETTERS_KEPT`] letters must be compared in its document.
    pub fn places(
        &self,
        (class, item, field): (&str, &str, &str),
        space: Option<&Namespace>,
        test: &Test,
    ) -> impl Iterator<Item = (&Value, &Place)> {
        let range =
            Range { values: test.range(self.now), docids: (Bound::Unbounded, Bound::Unbounded) };
        let parts = self.index.parts(class, space.map(Namespace::as_str));
        let known = parts.into_iter().filter_map(|it| Some((it, it.entries(item, field)?)));
        let all = known.map(|(part, all)| entries(part, all, &range, None, false)).collect();
        Merged::new(all, false).map(|it| (&it.0, &it.1))
    }
}

/// A search of an application. Each page of it makes a new value of the type.
pub trait SpecialSearch: Sized + 'static {
    /// The name by which callers ask for it.
    const NAME: &'static str;
    /// What it is told. Without parameters it is read from an empty JSON object.
    type Parameters: DeserializeOwned;

    /// From its parameters; refuses those that can never work.
    fn new(parameters: Self::Parameters) -> Result<Self, FieldError>;

    /// Its results, in any order, at most [`PLACES_MAX`].
    fn places(&self, view: &View<'_>) -> Result<BTreeSet<Place>, FieldError>;
}

type Run = fn(Option<&JsonText>, &View<'_>) -> Result<BTreeSet<Place>, FieldError>;

/// The special searches of an application, by name. Made once at start; clones share them.
#[derive(Clone, Default)]
pub struct SpecialSearches(Arc<BTreeMap<&'static str, Run>>);

impl SpecialSearches {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one. Panics, as this stands in the code, when a name is used twice.
    #[must_use]
    pub fn with<T: SpecialSearch>(mut self) -> Self {
        let known = Arc::make_mut(&mut self.0).insert(T::NAME, run::<T>);
        assert!(known.is_none(), "search {} is registered twice", T::NAME);
        self
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// A page of the search of that name, in order of namespace, docid and key. Fields: `search`,
    /// `parameters`, `page_token`, or those of its own errors. The results have no contents.
    pub fn page(
        &self,
        (name, parameters): (&str, Option<&JsonText>),
        view: &View<'_>,
        page_token: Option<&str>,
        limits: Limits,
    ) -> Result<(Page, Option<String>), FieldError> {
        let run = self.0.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            let problem = format!("{name:?} does not exist; there are {}", names.join(", "));
            FieldError::new("search", problem)
        })?;
        let text = format!("special {name:?} {:?}", parameters.map(JsonText::as_str));
        let digest = xxh3_64(text.as_bytes());
        let after = page_token.map(|it| position(digest, it)).transpose()?;
        let places = run(parameters, view)?;
        if places.len() > PLACES_MAX {
            let problem =
                format!("{name} comes to {} places; the limit is {PLACES_MAX}", places.len());
            return Err(FieldError::new("search", problem));
        }
        let from = after.map_or(Bound::Unbounded, |it| Bound::Excluded(it.place));
        let mut filling = Filling::new(limits);
        let (mut documents_read, mut next) = (0, None);
        for place in places.range((from, Bound::Unbounded)) {
            documents_read += 1;
            let Some(document) = (view.read)(&place.name).filter(|it| !it.is_deleted()) else {
                continue;
            };
            let at = Position { value: None, place: place.clone() };
            if !filling.add(Hit { at, version: document.version(), content: None }) {
                next = filling.last();
                break;
            }
        }
        let token = next.as_ref().map(|it| token(digest, it));
        Ok((Page { hits: filling.hits, next, documents_read }, token))
    }
}

impl fmt::Debug for SpecialSearches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

fn run<T: SpecialSearch>(
    parameters: Option<&JsonText>,
    view: &View<'_>,
) -> Result<BTreeSet<Place>, FieldError> {
    let text = parameters.map_or("{}", JsonText::as_str);
    let parameters = serde_json::from_str(text).map_err(|error| {
        FieldError::new("parameters", format!("do not fit search {}: {error}", T::NAME))
    })?;
    T::new(parameters)?.places(view)
}
