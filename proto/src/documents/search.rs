//! Searches on the wire: of clients, and between managers.

use super::document::{content, read_content};
use super::exception::invalid;
use super::peer::{exception, exception_from, reader_of, reader_to_wire};
use super::request::caller;
use crate::mistakes::Mistakes;
use crate::v1;
use crate::v1::exception::Of;
use crate::v1::search_value::Value as Wire;
use crate::wire::{WireError, convert, each, named, optional};
use rota_docstore::{Caller, Content, Credentials, DocName, Exception, Stamp};
use rota_messages::{Found, SearchOp};
use rota_model::{FieldError, Namespace, SlotId};
use rota_search::{
    Comparison, Condition, DOCID, Filter, HITS_MAX, Hit, Number, Page, Place, Position, Query,
    Search, Shapes, Sort, Special, Test, Value, Wanted,
};
use std::ops::Bound;

/// Results of a page, unless the request says how many.
const PAGE_SIZE: u32 = 100;

/// A search of a client, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// What is searched.
    pub search: Search,
    /// Behind this place.
    pub after: Option<Position>,
    /// Most results.
    pub limit: u32,
    /// Who asks.
    pub caller: Caller,
}

/// Checks a search. `shapes`: what of the documents of that class is indexed.
///
/// # Errors
/// A-INVALID with every wrong field.
pub fn search(request: v1::SearchRequest, shapes: &Shapes) -> Result<Asked, Exception> {
    let mut mistakes = Mistakes::default();
    let space = mistakes.namespace(&request.namespace);
    let caller = caller!(request);
    let item = Some(request.item.clone()).filter(|it| !it.is_empty());
    let limit = page_size(&mut mistakes, request.page_size);
    let fields = mistakes.note(shapes.fields(&request.class, item.as_deref()));
    let filter = fields.and_then(|it| mistakes.note(Filter::parse(&request.filter, &it)));
    let conditions = conditions(&mut mistakes, request.conditions);
    let sort = (!request.sort.is_empty())
        .then(|| Sort { field: request.sort.as_str().into(), descending: request.descending });
    if sort.is_none() && request.descending {
        let problem = "goes with sort: without it there is nothing to turn round";
        mistakes.note::<()>(Err(FieldError::new("descending", problem)));
    }
    let special = mistakes.note(Special::parse(&request.special, &request.parameters));
    let query = (|| {
        let mut filter = filter?;
        filter.conditions.extend(conditions?);
        let (class, item) = (request.class.as_str().into(), item.map(Into::into));
        let wanted = if request.items { Wanted::Items } else { Wanted::Documents };
        Some(Query { class, item, space: Some(space?), filter, sort, wanted, special: special? })
    })();
    let search = query.and_then(|it| mistakes.note(Search::new(it, shapes)));
    let after = match (&search, &*request.page_token) {
        (Some(search), token) if !token.is_empty() => {
            mistakes.note(search.position(token)).map(Some)
        }
        (Some(_) | None, _) => Some(None),
    };
    let asked = (|| Some(Asked { search: search?, after: after?, limit: limit?, caller }))();
    mistakes.found(asked).map_err(invalid)
}

fn page_size(mistakes: &mut Mistakes, asked: u32) -> Option<u32> {
    let limit = if asked == 0 { PAGE_SIZE } else { asked };
    if usize::try_from(limit).is_ok_and(|it| it <= HITS_MAX) {
        return Some(limit);
    }
    let problem = format!("is {limit}; the limit is {HITS_MAX}");
    mistakes.note(Err(FieldError::new("page_size", problem)))
}

fn conditions(
    mistakes: &mut Mistakes,
    conditions: Vec<v1::SearchCondition>,
) -> Option<Vec<Condition>> {
    let wanted = conditions.len();
    let mut checked = Vec::with_capacity(wanted);
    for (at, it) in conditions.into_iter().enumerate() {
        let within =
            |it: FieldError| FieldError::new(format!("conditions[{at}].{}", it.field), it.problem);
        checked.extend(mistakes.note(condition_from(it).map_err(within)));
    }
    (checked.len() == wanted).then_some(checked)
}

/// A page of a search, as a client gets it.
pub fn search_response(search: &Search, page: &Page) -> v1::SearchResponse {
    let hit = |hit: &Hit| v1::SearchHit {
        name: Some((&hit.at.place.name).into()),
        key: hit.at.place.key.as_ref().map(ToString::to_string),
        version: hit.version.as_u64(),
        item: hit.content.as_ref().map(item_of),
    };
    v1::SearchResponse {
        hits: page.hits.iter().map(hit).collect(),
        next_page_token: page.next.as_ref().map_or_else(String::new, |it| search.token(it)),
        documents_read: page.documents_read,
    }
}

/// A result, as a client reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundHit {
    /// The document.
    pub name: DocName,
    /// The key of an item; `None`: a document, or an item without a key.
    pub key: Option<String>,
    /// The document's version.
    pub version: Stamp,
    /// Of an item.
    pub content: Option<Content>,
}

/// Some results, as a client reads them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundPage {
    /// In order. There may be none on a page that is not the last one.
    pub hits: Vec<FoundHit>,
    /// Continues the search; empty: it is complete.
    pub next_page_token: String,
    /// How many documents the owners read for it.
    pub documents_read: u64,
}

/// A page of a search, as a client reads it.
pub fn searched(response: v1::SearchResponse) -> Result<FoundPage, WireError> {
    let hit = |hit: v1::SearchHit| {
        let content = hit.item.and_then(|it| it.content).map(read_content).transpose()?;
        let name = convert("SearchHit.name", hit.name)?;
        let version = named("SearchHit.version", Stamp::parse(hit.version))?;
        Ok::<_, WireError>(FoundHit { name, key: hit.key, version, content })
    };
    Ok(FoundPage {
        hits: response.hits.into_iter().map(hit).collect::<Result<_, _>>()?,
        next_page_token: response.next_page_token,
        documents_read: response.documents_read,
    })
}

fn item_of(it: &Content) -> v1::DocumentItem {
    v1::DocumentItem { content: Some(content(it)), ..v1::DocumentItem::default() }
}

fn value_to_wire(value: &Value) -> v1::SearchValue {
    let value = match value {
        Value::Text(text) => Wire::Text(text.to_string()),
        Value::Integer(number) => Wire::Integer(*number),
        Value::Number(number) => Wire::Number(number.get()),
        Value::Time(stamp) => Wire::Time(stamp.as_u64()),
        Value::Age(ms) => Wire::AgeMs(*ms),
    };
    v1::SearchValue { value: Some(value) }
}

fn value_from(it: v1::SearchValue) -> Result<Value, FieldError> {
    let wrong = |problem: &str| FieldError::new("value", problem);
    Ok(match it.value.ok_or_else(|| wrong("is missing"))? {
        Wire::Text(text) => Value::text(&text),
        Wire::Integer(number) => Value::Integer(number),
        Wire::Number(number) => {
            Value::Number(Number::new(number).ok_or_else(|| wrong("is no finite number"))?)
        }
        Wire::Time(stamp) => Value::Time(Stamp::parse(stamp)?),
        Wire::AgeMs(ms) => Value::Age(ms),
    })
}

/// A condition under the names of the wire.
pub fn condition_to_wire(condition: &Condition) -> v1::SearchCondition {
    use Bound::{Excluded, Included, Unbounded};
    let text = |it: &str| Value::text(it);
    let (comparison, value, second) = match &condition.test {
        Test::Eq(value) => ("EQ", value.clone(), None),
        Test::Starts(start) => ("SW", text(start), None),
        Test::Within(Unbounded, Excluded(high)) => ("LT", high.clone(), None),
        Test::Within(Unbounded, Included(high)) => ("LE", high.clone(), None),
        Test::Within(Included(low), Unbounded) => ("GE", low.clone(), None),
        Test::Within(Excluded(low), Unbounded) => ("GT", low.clone(), None),
        Test::Within(Excluded(low), Included(high)) => ("LTGE", low.clone(), Some(high.clone())),
        Test::Within(Excluded(low), Excluded(high)) => ("LTGT", low.clone(), Some(high.clone())),
        Test::Within(Included(low), Included(high)) => ("LEGE", low.clone(), Some(high.clone())),
        Test::Within(Included(low), Excluded(high)) => ("LEGT", low.clone(), Some(high.clone())),
        // No range is without an end: `Test::check` refuses it.
        Test::Within(Unbounded, Unbounded) => ("GE", text(""), None),
    };
    v1::SearchCondition {
        field: condition.field.to_string(),
        comparison: comparison.into(),
        value: Some(value_to_wire(&value)),
        second: second.as_ref().map(value_to_wire),
    }
}

fn condition_from(it: v1::SearchCondition) -> Result<Condition, FieldError> {
    let comparison = Comparison::parse(&it.comparison)?;
    let value = it.value.ok_or_else(|| FieldError::new("value", "is missing"))?;
    let test = Test::new(comparison, value_from(value)?, it.second.map(value_from).transpose()?)?;
    Ok(Condition { field: it.field.into(), test })
}

impl From<&Query> for v1::SearchQuery {
    fn from(it: &Query) -> Self {
        Self {
            class: it.class.to_string(),
            item: it.item.as_ref().map(ToString::to_string),
            namespace: it.space.as_ref().map(|it| it.as_str().into()),
            conditions: it.filter.conditions.iter().map(condition_to_wire).collect(),
            // An earlier version, which does not know special searches, puts results into the same order.
            sort: match (&it.sort, &it.special) {
                (Some(sort), _) => Some(sort.field.to_string()),
                (None, Some(_)) => Some(DOCID.to_owned()),
                (None, None) => None,
            },
            descending: it.sort.as_ref().is_some_and(|it| it.descending),
            items: it.wanted == Wanted::Items,
            special: it.special.as_ref().map(|it| it.name.to_string()),
            parameters: it
                .special
                .as_ref()
                .and_then(|it| it.parameters.as_ref())
                .map(|it| it.as_str().to_owned()),
        }
    }
}

impl TryFrom<v1::SearchQuery> for Query {
    type Error = WireError;
    fn try_from(it: v1::SearchQuery) -> Result<Self, WireError> {
        let space = it.namespace.as_deref().map(Namespace::parse).transpose();
        let conditions = it.conditions.into_iter().map(condition_from);
        let conditions = conditions.collect::<Result<_, _>>();
        let descending = it.descending;
        let special = Special::parse(
            it.special.as_deref().unwrap_or_default(),
            it.parameters.as_deref().unwrap_or_default(),
        );
        Ok(Self {
            class: it.class.into(),
            item: it.item.map(Into::into),
            space: named("SearchQuery.namespace", space)?,
            filter: Filter { conditions: named("SearchQuery.conditions", conditions)? },
            sort: it.sort.map(|it| Sort { field: it.into(), descending }),
            wanted: if it.items { Wanted::Items } else { Wanted::Documents },
            special: named("SearchQuery.special", special)?,
        })
    }
}

impl From<&Position> for v1::SearchPosition {
    fn from(it: &Position) -> Self {
        Self {
            value: it.value.as_ref().map(value_to_wire),
            name: Some((&it.place.name).into()),
            key: it.place.key.as_ref().map(ToString::to_string),
        }
    }
}

impl TryFrom<v1::SearchPosition> for Position {
    type Error = WireError;
    fn try_from(it: v1::SearchPosition) -> Result<Self, WireError> {
        let value = it.value.map(value_from).transpose();
        let name = convert("SearchPosition.name", it.name)?;
        Ok(Self {
            value: named("SearchPosition.value", value)?,
            place: Place { name, key: it.key.map(Into::into) },
        })
    }
}

impl From<&SearchOp> for v1::SearchOp {
    fn from(op: &SearchOp) -> Self {
        Self {
            reader: op.reader.as_deref().map(reader_to_wire),
            slot: op.slot.0,
            query: Some((&op.query).into()),
            after: op.after.as_ref().map(Into::into),
            now: op.now.as_u64(),
            limit: op.limit,
            with_sessions: op.with_sessions,
        }
    }
}

impl TryFrom<v1::SearchOp> for SearchOp {
    type Error = WireError;
    fn try_from(op: v1::SearchOp) -> Result<Self, WireError> {
        Ok(Self {
            reader: op.reader.as_ref().map(reader_of).transpose()?.flatten(),
            slot: SlotId(op.slot),
            query: convert("SearchOp.query", op.query)?,
            after: optional(op.after)?,
            now: named("SearchOp.now", Stamp::parse(op.now))?,
            limit: op.limit,
            with_sessions: op.with_sessions,
        })
    }
}

/// What an owner found.
pub(crate) fn found_to_wire(found: &Result<Found, Exception>) -> v1::peer_answer::Found {
    use v1::peer_answer::found;
    let found = match found {
        Ok(found) => found,
        Err(it) => {
            let exception = Some(exception(Of::Search, it));
            return v1::peer_answer::Found { exception, ..Default::default() };
        }
    };
    let hit = |hit: &Hit| found::Hit {
        at: Some((&hit.at).into()),
        version: hit.version.as_u64(),
        item: hit.content.as_ref().map(item_of),
    };
    let slots = |it: &(SlotId, SlotId)| found::Slots { first: it.0.0, last: it.1.0 };
    v1::peer_answer::Found {
        slots: found.slots.iter().map(slots).collect(),
        hits: found.page.hits.iter().map(hit).collect(),
        next: found.page.next.as_ref().map(Into::into),
        documents_read: found.page.documents_read,
        sessions: found.sessions.iter().map(Into::into).collect(),
        special: found.is_special,
        exception: None,
    }
}

pub(crate) fn found_from(
    it: v1::peer_answer::Found,
) -> Result<Result<Found, Exception>, WireError> {
    if let Some(exception) = it.exception {
        return Ok(Err(exception_from(exception)?));
    }
    let hit = |hit: v1::peer_answer::found::Hit| {
        let content = hit.item.and_then(|it| it.content).map(read_content).transpose()?;
        let version = named("Hit.version", Stamp::parse(hit.version))?;
        Ok::<_, WireError>(Hit { at: convert("Hit.at", hit.at)?, version, content })
    };
    let hits = it.hits.into_iter().map(hit).collect::<Result<_, _>>()?;
    let next = optional(it.next)?;
    Ok(Ok(Found {
        slots: it.slots.iter().map(|it| (SlotId(it.first), SlotId(it.last))).collect(),
        page: Page { hits, next, documents_read: it.documents_read },
        sessions: each(it.sessions)?,
        is_special: it.special,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_docstore::Schema;

    fn shapes() -> Shapes {
        let schema = Schema::new()
            .class("Cart", |it| it.any().field("Line", "price", rota_docstore::FieldType::Double));
        Shapes::of(&schema)
    }

    fn request() -> v1::SearchRequest {
        v1::SearchRequest {
            class: "Cart".into(),
            item: "Line".into(),
            filter: "price in [3, 10) and docid starts a".into(),
            ..v1::SearchRequest::default()
        }
    }

    #[test]
    fn every_condition_comes_back_from_the_wire() {
        let fields = shapes().fields("Cart", Some("Line")).expect("it is declared");
        for text in [
            "price = 3",
            "docid starts a",
            "price < 1",
            "price <= 1",
            "price > 1",
            "price >= 1",
            "price in [1, 2]",
            "price in (1, 2]",
            "price in [1, 2)",
            "price in (1, 2)",
        ] {
            let filter = Filter::parse(text, &fields).expect(text);
            let back = condition_from(condition_to_wire(&filter.conditions[0])).expect(text);
            assert_eq!(back, filter.conditions[0], "{text}");
        }
    }

    #[test]
    fn a_search_comes_back_from_a_peer() {
        let asked = search(request(), &shapes()).expect("it is a search");
        let name = DocName::new(&Namespace::default_space(), "Cart", "a1").expect("it is a name");
        let at = Position {
            value: Some(Value::Number(Number::new(3.5).expect("it is finite"))),
            place: Place { name, key: Some("k".into()) },
        };
        let sort = Some(Sort { field: DOCID.into(), descending: false });
        let special = Special::parse("near", r#"{"km": 3}"#).expect("it can be read");
        let op = SearchOp {
            reader: None,
            slot: SlotId(7),
            query: Query { special, sort, ..asked.search.query().clone() },
            after: Some(at.clone()),
            now: Stamp::MIN,
            limit: 5,
            with_sessions: true,
        };
        assert_eq!(SearchOp::try_from(v1::SearchOp::from(&op)), Ok(op));
        let hit = Hit { at: at.clone(), version: Stamp::MIN, content: None };
        let page = Page { hits: vec![hit], next: Some(at), documents_read: 1 };
        let found = Found {
            slots: vec![(SlotId(0), SlotId(9))],
            page,
            sessions: Vec::new(),
            is_special: true,
        };
        assert_eq!(found_from(found_to_wire(&Ok(found.clone()))), Ok(Ok(found)));
    }

    #[test]
    fn a_client_reads_what_was_found() {
        let asked = search(request(), &shapes()).expect("it is a search");
        let name = DocName::new(&Namespace::default_space(), "Cart", "a1").expect("it is a name");
        let at =
            Position { value: None, place: Place { name: name.clone(), key: Some("k".into()) } };
        let content = Some(Content::json("{}").expect("it is JSON"));
        let hit = Hit { at: at.clone(), version: Stamp::MIN, content: content.clone() };
        let page = Page { hits: vec![hit], next: Some(at), documents_read: 3 };
        let read = searched(search_response(&asked.search, &page)).expect("it is readable");
        let key = Some("k".to_owned());
        assert_eq!(read.hits, [FoundHit { name, key, version: Stamp::MIN, content }]);
        assert_eq!((read.next_page_token.is_empty(), read.documents_read), (false, 3));
    }

    #[test]
    fn mistakes_of_a_search_are_told_with_their_fields() {
        let wrong = |request: v1::SearchRequest| {
            let exception = search(request, &shapes()).expect_err("it is wrong");
            exception.to_string()
        };
        let unknown = wrong(v1::SearchRequest { filter: "prise = 3".into(), ..request() });
        assert!(unknown.contains("filter column 1"), "{unknown}");
        let large = wrong(v1::SearchRequest { page_size: 1_001, ..request() });
        assert!(large.contains("page_size is 1001; the limit is 1000"), "{large}");
        let condition = v1::SearchCondition {
            field: "price".into(),
            comparison: "NE".into(),
            ..v1::SearchCondition::default()
        };
        let unknown = wrong(v1::SearchRequest { conditions: vec![condition], ..request() });
        assert!(unknown.contains("conditions[0].comparison"), "{unknown}");
        let token = wrong(v1::SearchRequest { page_token: "x".into(), ..request() });
        assert!(token.contains("page_token is garbled"), "{token}");
        let turned = wrong(v1::SearchRequest { descending: true, ..request() });
        assert!(turned.contains("descending goes with sort"), "{turned}");
    }
}
