//! Pages against a naive look at all documents: of one index and of several owners, with changes of
//! documents and of owners between pages.

use proptest::prelude::*;
use rota_docstore::{Content, DocName, Document, DocumentParts, FieldType, Item, ItemName, Schema};
use rota_model::{FieldError, Namespace, SlotId, Stamp};
use rota_search::{
    Condition, Filter, Index, Limits, Number, Page, Place, Position, Query, Search, Shapes, Sort,
    Special, SpecialSearch, SpecialSearches, Test, Value, View, Wanted, merge,
};
use serde::Deserialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

const SLOTS: u32 = 8;

/// One item: text, integer, number, texts, integers.
#[derive(Clone, Debug)]
struct Line {
    key: String,
    s: Option<String>,
    n: Option<i64>,
    d: Option<f64>,
    tags: Vec<String>,
    counts: Vec<i64>,
}

/// A document as it is to be; no lines: it is gone.
#[derive(Clone, Debug)]
struct Wish {
    space: usize,
    docid: String,
    lines: Vec<Line>,
}

fn now() -> Stamp {
    Stamp::parse(261_127_193_000_000).expect("it is a stamp")
}

/// Few words, so that they meet; some are longer than what an index keeps of them.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => "[ab]{0,2}",
        1 => "[ab]{1,2}".prop_map(|it| "x".repeat(63) + &it),
        1 => Just("x".repeat(63) + "é"),
        1 => Just("\u{10ffff}".repeat(70)),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    (
        "[kl]{0,2}",
        prop::option::of(word()),
        prop::option::of(-2..3_i64),
        prop::option::of((-2..3_i8).prop_map(|it| f64::from(it) / 2.0)),
        prop::collection::vec(word(), 0..3),
        prop::collection::vec(-2..3_i64, 0..4),
    )
        .prop_map(|(key, s, n, d, tags, counts)| Line { key, s, n, d, tags, counts })
}

fn wish() -> impl Strategy<Value = Wish> {
    (0..2_usize, "[ab]{1,2}", prop::collection::vec(line(), 0..4))
        .prop_map(|(space, docid, lines)| Wish { space, docid, lines })
}

fn bounds(of: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Test> {
    let of = of.boxed();
    let any = of.clone();
    prop_oneof![
        of.clone().prop_map(Test::Eq),
        (of, any, 0..5_u8).prop_map(|(one, two, kind)| {
            let (low, high) = if one <= two { (one, two) } else { (two, one) };
            match kind {
                0 => Test::Within(Bound::Unbounded, Bound::Excluded(high)),
                1 => Test::Within(Bound::Included(low), Bound::Unbounded),
                2 => Test::Within(Bound::Excluded(low), Bound::Included(high)),
                3 => Test::Within(Bound::Excluded(low), Bound::Excluded(high)),
                _ => Test::Within(Bound::Included(low), Bound::Excluded(high)),
            }
        }),
    ]
}

fn text_test() -> impl Strategy<Value = Test> {
    prop_oneof![
        bounds(word().prop_map(|it| Value::text(&it))),
        word().prop_map(|it| Test::Starts(it.into())),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let integer = (-2..3_i64).prop_map(Value::Integer);
    let number = (-2..3_i8)
        .prop_map(|it| Value::Number(Number::new(f64::from(it) / 2.0).expect("it is finite")));
    prop_oneof![
        text_test().prop_map(|test| ("s", test)),
        bounds((-2..3_i64).prop_map(Value::Integer)).prop_map(|test| ("n", test)),
        bounds(number).prop_map(|test| ("d", test)),
        text_test().prop_map(|test| ("tags", test)),
        bounds(integer).prop_map(|test| ("counts", test)),
        text_test().prop_map(|test| ("docid", test)),
    ]
    .prop_map(|(field, test)| Condition { field: field.into(), test })
}

fn query() -> impl Strategy<Value = Query> {
    let field = prop::sample::select(vec!["docid", "s", "n", "d", "tags", "counts"]);
    let sort = prop::option::of((field, any::<bool>()));
    let conditions = prop::collection::vec(condition(), 0..4);
    let special = prop::option::weighted(0.3, -2..3_i64);
    (conditions, sort, prop::option::of(0..2_usize), any::<bool>(), special).prop_map(
        |(conditions, sort, of, items, least)| Query {
            class: "C".into(),
            item: Some("L".into()),
            space: of.map(space),
            filter: Filter { conditions },
            sort: sort
                .map(|(field, descending)| {
                    (if least.is_some() { "docid" } else { field }, descending)
                })
                .map(|(field, descending)| Sort { field: field.into(), descending }),
            wanted: if items { Wanted::Items } else { Wanted::Documents },
            special: least.and_then(|least| {
                let parameters = serde_json::json!({"least": least}).to_string();
                Special::parse(Heavy::NAME, &parameters).expect("it is a search")
            }),
        },
    )
}

/// Items whose counts come to so much together: what no filter says.
#[derive(Deserialize)]
struct Heavy {
    least: i64,
}

impl Heavy {
    fn weighs(&self, content: &Content) -> bool {
        let Content::Json(text) = content else { return false };
        let json: serde_json::Value = text.read().expect("it is JSON");
        let counts = json["counts"].as_array().expect("it is an array");
        counts.iter().filter_map(serde_json::Value::as_i64).sum::<i64>() >= self.least
    }
}

impl SpecialSearch for Heavy {
    const NAME: &'static str = "heavy";
    const CLASS: &'static str = "C";
    const ITEM: Option<&'static str> = Some("L");
    type Parameters = Self;

    fn new(it: Self) -> Result<Self, FieldError> {
        Ok(it)
    }

    fn places(&self, view: &View<'_>) -> Result<BTreeSet<Place>, FieldError> {
        let documents = view.names().filter_map(|it| view.document(it));
        let places = documents.flat_map(|document| {
            let heavy = document.existing().filter(|(_, content)| self.weighs(content));
            let key = |name: &ItemName| name.key().map(Into::into);
            let place = |name: &ItemName| Place { name: document.name().clone(), key: key(name) };
            heavy.map(|(name, _)| place(name)).collect::<Vec<_>>()
        });
        Ok(places.collect())
    }
}

fn space(number: usize) -> Namespace {
    Namespace::parse(["a", "a b"][number]).expect("it is a name")
}

fn shapes() -> Arc<Shapes> {
    let schema = Schema::new().class("C", |class| {
        class
            .any()
            .field("L", "s", FieldType::String)
            .field("L", "n", FieldType::Long)
            .field("L", "d", FieldType::Double)
            .field("L", "tags", FieldType::Strings)
            .field("L", "counts", FieldType::Ints)
    });
    Arc::new(Shapes::of(&schema).with_specials(SpecialSearches::new().with::<Heavy>()))
}

fn document(wish: &Wish, version: Stamp) -> Option<Document> {
    if wish.lines.is_empty() {
        return None;
    }
    let mut items = BTreeMap::new();
    for line in &wish.lines {
        let Line { key, s, n, d, tags, counts } = line;
        let json = serde_json::json!({
            "s": s, "n": n, "d": d, "tags": tags, "counts": counts, "other": {"s": "no"},
        });
        // The first key stands for a singleton.
        let key = (!key.is_empty()).then_some(key.as_str());
        let name = ItemName::new("L", key).expect("it is a name");
        let content = Content::json(&json.to_string()).expect("it is JSON");
        let item = Item::existing(name.clone(), version, version, content).expect("it fits");
        items.insert(name, item);
    }
    let name = DocName::new(&space(wish.space), "C", &wish.docid).expect("it is a name");
    let items = items.into_values().collect();
    let parts =
        DocumentParts { name, ctime: version, version, dtime: version, is_deleted: false, items };
    Some(Document::from_parts(parts).expect("it fits"))
}

type Store = BTreeMap<DocName, Arc<Document>>;

/// Values of a field in an item, without any index.
fn naive_values(json: &serde_json::Value, field: &str) -> Vec<Value> {
    let one = |value: &serde_json::Value| match field {
        "s" | "tags" => value.as_str().map(Value::text),
        "d" => value.as_f64().and_then(Number::new).map(Value::Number),
        _ => value.as_i64().map(Value::Integer),
    };
    match json[field].as_array() {
        Some(all) => all.iter().filter_map(one).collect(),
        None => one(&json[field]).into_iter().collect(),
    }
}

/// The place of every result in order, without any index.
fn naive(store: &Store, query: &Query, search: &Search, by: Option<&str>) -> Vec<Place> {
    let mut found: Vec<Position> = Vec::new();
    for (name, document) in store {
        let mut of_document = Vec::new();
        let docid = Value::text(name.docid());
        let inside = query.space.as_ref().is_none_or(|it| it.as_str() == name.space());
        let of_docid = query.filter.conditions.iter().filter(|it| it.field == "docid");
        if !inside || !of_docid.into_iter().all(|it| it.test.holds(&docid, now())) {
            continue;
        }
        for (item, content) in document.existing() {
            let Content::Json(text) = content else { continue };
            let json: serde_json::Value = text.read().expect("it is JSON");
            let holds = |condition: &Condition| {
                condition.field == "docid"
                    || naive_values(&json, &condition.field)
                        .iter()
                        .any(|value| condition.test.holds(value, now()))
            };
            let special = query.special.as_ref().and_then(|it| it.parameters.as_ref());
            let heavy: Option<Heavy> = special.map(|it| it.read().expect("it is one"));
            if !query.filter.conditions.iter().all(holds)
                || heavy.is_some_and(|it| !it.weighs(content))
            {
                continue;
            }
            let first = query.filter.conditions.iter().find(|it| Some(it.field.as_str()) == by);
            let counted = by.map(|by| naive_values(&json, by)).unwrap_or_default();
            let counted = counted
                .into_iter()
                .filter(|it| first.is_none_or(|first| first.test.holds(it, now())));
            let descending = query.sort.as_ref().is_some_and(|it| it.descending);
            let value = if descending { counted.max() } else { counted.min() };
            let value = value.map(|value| match &value {
                Value::Text(text) => Value::text(&text.chars().take(64).collect::<String>()),
                Value::Integer(_) | Value::Number(_) | Value::Time(_) | Value::Age(_) => value,
            });
            let key = if query.wanted == Wanted::Items { item.key() } else { None };
            let place = Place { name: name.clone(), key: key.map(Into::into) };
            of_document.push(Position { value, place });
        }
        of_document.sort_by(|one, two| search.compare(one, two));
        if query.wanted == Wanted::Documents {
            of_document.truncate(1);
        }
        found.extend(of_document);
    }
    found.sort_by(|one, two| search.compare(one, two));
    found.into_iter().map(|it| it.place).collect()
}

/// The field that a query without a sort is sorted by.
fn sorted_by(query: &Query) -> Option<String> {
    let conditions = &query.filter.conditions;
    let field = match &query.sort {
        Some(sort) => sort.field.to_string(),
        None if query.special.is_some() => "docid".to_owned(),
        None => {
            let by_docid =
                conditions.iter().any(|it| it.field == "docid" || matches!(it.test, Test::Eq(_)));
            let first = conditions.first().filter(|_| !by_docid);
            first.map_or_else(|| "docid".into(), |it| it.field.to_string())
        }
    };
    (field != "docid").then_some(field)
}

fn slot_of(name: &DocName) -> u32 {
    name.docid().bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte)) % SLOTS
}

/// What happens before a page: changes, where the ring is cut, and what a page may cost.
#[derive(Clone, Debug)]
struct Turn {
    wishes: Vec<Wish>,
    cuts: BTreeSet<u32>,
    hits: usize,
    documents: u64,
    bytes: u64,
    gathered: usize,
}

fn turn() -> impl Strategy<Value = Turn> {
    let cuts = prop::collection::btree_set(1..SLOTS, 0..4);
    let bytes = prop::sample::select(vec![1, 150, 100_000]);
    (prop::collection::vec(wish(), 0..4), cuts, 1..6_usize, 1..6_u64, bytes, 0..9_usize).prop_map(
        |(wishes, cuts, hits, documents, bytes, gathered)| Turn {
            wishes,
            cuts,
            hits,
            documents,
            bytes,
            gathered,
        },
    )
}

struct Ring {
    store: Store,
    index: Index,
    changed: BTreeSet<DocName>,
    version: Stamp,
}

impl Ring {
    fn new(wishes: &[Wish]) -> Self {
        let index = Index::new(shapes());
        let mut ring =
            Self { store: Store::new(), index, changed: BTreeSet::new(), version: now() };
        wishes.iter().for_each(|it| ring.change(it));
        ring.changed.clear();
        ring
    }

    fn change(&mut self, wish: &Wish) {
        self.version = self.version.next();
        let name = DocName::new(&space(wish.space), "C", &wish.docid).expect("it is a name");
        let before = self.store.remove(&name);
        let after = document(wish, self.version).map(Arc::new);
        self.index.change(before.as_deref(), after.as_deref());
        self.store.extend(after.map(|it| (name.clone(), it)));
        self.changed.insert(name);
    }

    /// A page of the ring, cut into owners.
    fn page(&self, search: &Search, after: Option<&Position>, turn: &Turn) -> Page {
        let Turn { hits, bytes, documents, gathered, .. } = *turn;
        let limits = Limits { hits, bytes, documents, gathered };
        let read = |name: &DocName| self.store.get(name).cloned();
        if turn.cuts.is_empty() {
            return self.index.page(search, after, now(), limits, &read).expect("it works");
        }
        let mut begins: Vec<u32> = turn.cuts.iter().copied().collect();
        begins.insert(0, 0);
        let ends = turn.cuts.iter().copied().chain([SLOTS]);
        let mut parts = Vec::new();
        for (begin, end) in begins.iter().copied().zip(ends) {
            let mut index = Index::new(shapes());
            let inside = |it: &&Arc<Document>| (begin..end).contains(&slot_of(it.name()));
            self.store.values().filter(inside).for_each(|it| index.change(None, Some(it)));
            let page = index.page(search, after, now(), limits, &read).expect("it works");
            parts.push((SlotId(begin)..=SlotId(end - 1), page));
        }
        merge(search, SlotId(0)..=SlotId(SLOTS - 1), parts, limits).expect("all slots are there")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn what_does_not_change_is_on_exactly_one_page_whoever_owns_it(
        first in prop::collection::vec(wish(), 0..25),
        query in query(),
        turns in prop::collection::vec(turn(), 1..5),
        still in any::<bool>(),
    ) {
        let mut ring = Ring::new(&first);
        let search = Search::new(query.clone(), &shapes()).expect("the query is right");
        let by = sorted_by(&query);
        let (mut seen, mut after): (Vec<Place>, Option<Position>) = (Vec::new(), None);
        let before = naive(&ring.store, &query, &search, by.as_deref());
        let mut pages = 0;
        loop {
            let turn = &turns[pages % turns.len()];
            if pages > 0 && pages <= turns.len() && !still {
                turn.wishes.iter().for_each(|it| ring.change(it));
            }
            let page = ring.page(&search, after.as_ref(), turn);
            prop_assert!(page.hits.len() <= turn.hits);
            for hit in &page.hits {
                let document = &ring.store[&hit.at.place.name];
                prop_assert_eq!(hit.version, document.version());
                if query.wanted == Wanted::Items {
                    prop_assert_eq!(hit.content.as_ref(), document.content("L", hit.at.place.key.as_deref()));
                }
            }
            seen.extend(page.hits.into_iter().map(|it| it.at.place));
            let Some(next) = page.next else { break };
            let is_on = after.as_ref().is_none_or(|it| search.compare(it, &next) == Ordering::Less);
            prop_assert!(is_on, "each page goes on");
            let token = search.token(&next);
            after = Some(search.position(&token).expect("the token is of this search"));
            pages += 1;
            prop_assert!(pages < 2_000, "pages come to an end");
        }
        let same = |all: &[Place]| -> Vec<Place> {
            all.iter().filter(|it| !ring.changed.contains(&it.name)).cloned().collect()
        };
        prop_assert_eq!(same(&seen), same(&before));
        if still {
            prop_assert_eq!(seen, before);
        }
    }

    #[test]
    fn an_index_that_followed_all_changes_is_as_large_as_one_that_is_made_anew(
        wishes in prop::collection::vec(wish(), 0..60),
    ) {
        let ring = Ring::new(&wishes);
        let mut fresh = Index::new(shapes());
        ring.store.values().for_each(|it| fresh.change(None, Some(it)));
        prop_assert_eq!(ring.index.size(), fresh.size());
        let mut empty = ring.index.clone();
        ring.store.values().for_each(|it| empty.change(Some(it), None));
        prop_assert_eq!(empty.size(), Index::new(shapes()).size());
    }
}
