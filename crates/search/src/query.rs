//! What is searched, checked against what is indexed; the order of its results, and its page tokens.

use crate::fields::{DOCID, Kind};
use crate::filter::{CONDITIONS_MAX, Filter};
use crate::index::Place;
use crate::shapes::Shapes;
use crate::special::Special;
use crate::value::{Condition, Test, Value};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rota_docstore::DocName;
use rota_model::{FieldError, Namespace};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::cmp::Ordering;
use xxhash_rust::xxh3::xxh3_64;

/// Longest page token, in bytes.
const TOKEN_BYTES_MAX: usize = 4_096;

/// What a search gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wanted {
    /// Each document once that has such an item.
    Documents,
    /// Every such item: key, id of its document, content.
    Items,
}

/// The order of results.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sort {
    /// A field, or [`DOCID`].
    pub field: SmolStr,
    /// From the end to the beginning.
    pub descending: bool,
}

/// A search as it is asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Query {
    /// The class of the documents.
    pub class: SmolStr,
    /// The class of the items that all conditions on fields are about. `None`: there are none.
    pub item: Option<SmolStr>,
    /// Of this namespace; `None`: of all.
    pub space: Option<Namespace>,
    /// Conditions on fields and on `docid`. All of those on fields hold for one item.
    pub filter: Filter,
    /// The order. `None`: by docid for a special search, and if the filter is empty or has a condition on docid or one that a field
    /// equals something, else by the field of its first condition.
    pub sort: Option<Sort>,
    /// Documents or items.
    pub wanted: Wanted,
    /// Only results of this search of an application. Then the order is by docid.
    pub special: Option<Special>,
}

/// Where a result stands in the order of all results of a search.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Position {
    /// The value by which results are sorted, as indexes keep it. `None`: by docid, or the item has none.
    pub value: Option<Value>,
    /// Document and item. Of documents the key is `None`.
    #[serde(serialize_with = "write_place")]
    pub place: Place,
}

fn write_place<S: serde::Serializer>(place: &Place, to: S) -> Result<S::Ok, S::Error> {
    (place.name.as_text(), place.key.as_ref()).serialize(to)
}

/// A page token, taken apart.
#[derive(Deserialize)]
struct Token {
    digest: u64,
    value: Option<Value>,
    name: String,
    key: Option<SmolStr>,
}

/// A search that was checked: its fields exist, and its values have their types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Search {
    pub(crate) query: Query,
    pub(crate) docid: Vec<Test>,
    pub(crate) conditions: Vec<Condition>,
    /// The field that results are sorted by; `None`: by docid.
    pub(crate) by: Option<SmolStr>,
    /// Whether values come from high to low, and places as well.
    pub(crate) is_reversed: bool,
    digest: u64,
}

impl Search {
    /// Checks a query. Fields: `class`, `item`, `filter`, `sort`, `special`, or the name of a field in the filter.
    pub fn new(query: Query, shapes: &Shapes) -> Result<Self, FieldError> {
        let item = query.item.as_deref();
        let fields = shapes.fields(&query.class, item)?;
        if item.is_none() && query.wanted == Wanted::Items {
            return Err(FieldError::new("item", "must be there: items are of a class"));
        }
        let all = &query.filter.conditions;
        if all.len() > CONDITIONS_MAX {
            let problem = format!("has {} conditions; the limit is {CONDITIONS_MAX}", all.len());
            return Err(FieldError::new("filter", problem));
        }
        for condition in all {
            fields.check(&condition.field)?.check(&condition.field, &condition.test)?;
        }
        let (docid, conditions): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|it| it.field == DOCID);
        let docid: Vec<Test> = docid.into_iter().map(|it| it.test).collect();
        let by_docid = || Sort { field: DOCID.into(), descending: false };
        let sort = query.sort.clone().unwrap_or_else(|| match &query.special {
            Some(_) => by_docid(),
            None => natural_order(&docid, &conditions),
        });
        let kind = fields.kind(&sort.field).ok_or_else(|| {
            FieldError::new("sort", format!("{:?} {}", sort.field, fields.unknown()))
        })?;
        if let Some(special) = &query.special {
            shapes.specials().check(&query.class, item, special)?;
            if sort.field != DOCID {
                let problem = "must be docid, or left out: a special search has no other order";
                return Err(FieldError::new("sort", problem));
            }
        }
        let is_reversed = sort.descending != (kind == Kind::Age);
        let by = (sort.field != DOCID).then_some(sort.field);
        let mut search = Self { query, docid, conditions, by, is_reversed, digest: 0 };
        search.digest = search.make_digest();
        Ok(search)
    }

    fn make_digest(&self) -> u64 {
        let Query { class, item, space, filter, sort: _, wanted, special } = &self.query;
        let space = space.as_ref().map(Namespace::as_str);
        // Quoted, so that no two searches have one text.
        let text = format!(
            "{class:?} {item:?} {space:?} {:?} {:?} {} {wanted:?}{}",
            filter.to_string(),
            self.by,
            self.is_reversed,
            special.as_ref().map(Special::text).unwrap_or_default(),
        );
        xxh3_64(text.as_bytes())
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// How two results stand to each other. The order is total, and depends on nothing but the two:
    /// values, and those without one last; then namespace, docid, key.
    pub fn compare(&self, one: &Position, two: &Position) -> Ordering {
        let turned = |it: Ordering| if self.is_reversed { it.reverse() } else { it };
        let values = match (&one.value, &two.value) {
            (Some(one), Some(two)) => turned(one.cmp(two)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        values.then_with(|| turned(one.place.cmp(&two.place)))
    }

    /// The token that goes on behind a position. It holds for this search alone, at whoever owns what.
    pub fn token(&self, after: &Position) -> String {
        token(self.digest, after)
    }

    /// The position in a token. Field `page_token`.
    pub fn position(&self, text: &str) -> Result<Position, FieldError> {
        position(self.digest, text)
    }
}

pub(crate) fn token(digest: u64, after: &Position) -> String {
    let bytes = postcard::to_allocvec(&(digest, after)).expect("a position can be written");
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn position(digest: u64, text: &str) -> Result<Position, FieldError> {
    let wrong = |problem: &str| FieldError::new("page_token", problem);
    if text.len() > TOKEN_BYTES_MAX {
        return Err(wrong("is longer than any that is given"));
    }
    let garbled = || wrong("is garbled; expected one of an earlier page");
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| garbled())?;
    let token: Token = postcard::from_bytes(&bytes).map_err(|_| garbled())?;
    if token.digest != digest {
        return Err(wrong("is of another search; begin this one without a token"));
    }
    let name = DocName::from_text(&token.name).map_err(|_| garbled())?;
    Ok(Position { value: token.value, place: Place { name, key: token.key } })
}

fn natural_order(docid: &[Test], conditions: &[Condition]) -> Sort {
    let is_by_docid =
        !docid.is_empty() || conditions.iter().any(|it| matches!(it.test, Test::Eq(_)));
    let first = conditions.first().filter(|_| !is_by_docid);
    let field = first.map_or_else(|| DOCID.into(), |it| it.field.clone());
    Sort { field, descending: false }
}
