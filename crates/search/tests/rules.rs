//! Each rule of searches in a few lines.

use rota_docstore::{Content, DocName, Document, DocumentParts, FieldType, Item, ItemName, Schema};
use rota_model::{FieldError, Namespace, SlotId, Stamp};
use rota_search::{
    Comparison, DOCID, Fields, Filter, Index, Kind, Limits, PARAMETERS_BYTES_MAX, PLACES_MAX, Page,
    Place, Query, Search, Shapes, Sort, Special, SpecialSearch, SpecialSearches, Test, Value, View,
    Wanted, merge,
};
use serde::Deserialize;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn now() -> Stamp {
    Stamp::parse(261_127_193_000_000).expect("it is a stamp")
}

fn space() -> Namespace {
    Namespace::parse("shop").expect("it is a name")
}

/// What the source text searches: postcodes and mail addresses of one item.
fn shapes() -> Arc<Shapes> {
    let schema = Schema::new().class("Person", |class| {
        class
            .any()
            .field("Adr", "postcode", FieldType::Int)
            .field("Adr", "email", FieldType::Strings)
            .field("Adr", "weight", FieldType::Double)
    });
    let session = Fields::new()
        .with("state", Kind::Word(&["READY", "CLOSED"]))
        .with("age", Kind::Age)
        .with_family("attr.", Kind::Text);
    let searches = SpecialSearches::new().with::<SameMail>().with::<Odd>();
    let shapes = Shapes::of(&schema).with_docids("Plain").with_specials(searches);
    Arc::new(shapes.with_derived("session", "record", session, |document| {
        let read = |name: &str| match document.content(name, None) {
            Some(Content::Json(text)) => text.read::<serde_json::Value>().ok(),
            Some(Content::Raw(_) | Content::Attachment(_)) | None => None,
        };
        let mut values = vec![(SmolStr::from("age"), Value::Time(document.ctime()))];
        if let Some(standing) = read("state") {
            let state = standing["state"].as_str().unwrap_or_default();
            values.push(("state".into(), Value::text(state)));
        }
        let spec = read("spec").unwrap_or_default();
        for (name, value) in spec.as_object().into_iter().flatten() {
            let value = Value::text(value.as_str().unwrap_or_default());
            values.push((format!("attr.{name}").into(), value));
        }
        values
    }))
}

fn document(
    class: &str,
    docid: &str,
    born: Stamp,
    items: &[(&str, Option<&str>, &str)],
) -> Arc<Document> {
    let items: BTreeMap<ItemName, Item> = items
        .iter()
        .map(|(class, key, json)| {
            let name = ItemName::new(class, *key).expect("it is a name");
            let content = Content::json(json).expect("it is JSON");
            let item = Item::existing(name.clone(), born, born, content).expect("it fits");
            (name, item)
        })
        .collect();
    let name = DocName::new(&space(), class, docid).expect("it is a name");
    let items = items.into_values().collect();
    let parts =
        DocumentParts { name, ctime: born, version: born, dtime: born, is_deleted: false, items };
    Arc::new(Document::from_parts(parts).expect("it fits"))
}

struct Shop {
    index: Index,
    documents: BTreeMap<DocName, Arc<Document>>,
}

impl Shop {
    fn new(documents: Vec<Arc<Document>>) -> Self {
        let mut index = Index::new(shapes());
        documents.iter().for_each(|it| index.change(None, Some(it)));
        let documents = documents.into_iter().map(|it| (it.name().clone(), it)).collect();
        Self { index, documents }
    }

    fn people() -> Self {
        let person = |docid: &str, items: &[(&str, Option<&str>, &str)]| {
            document("Person", docid, now(), items)
        };
        Self::new(vec![
            person("ada", &[("Adr", Some("home"), r#"{"postcode":94120,"email":["a@x","t@x"]}"#)]),
            // Each address fulfils one half only.
            person(
                "bob",
                &[
                    ("Adr", Some("home"), r#"{"postcode":94120,"email":["b@x"]}"#),
                    ("Adr", Some("work"), r#"{"postcode":75001,"email":["t@x"]}"#),
                ],
            ),
            person("cid", &[("Adr", None, r#"{"postcode":94999,"email":["t@x"],"weight":2}"#)]),
            person("dan", &[("Adr", Some("home"), r#"{"postcode":"94120","email":[]}"#)]),
        ])
    }

    fn page(&self, search: &Search, limit: usize) -> Page {
        let limits = Limits::new(limit).expect("it is a limit");
        let read = |it: &DocName| self.documents.get(it).cloned();
        self.index.page(search, None, now(), limits, &read).expect("it works")
    }
}

fn query(class: &str, item: Option<&str>, text: &str) -> Result<Query, FieldError> {
    let fields = shapes().fields(class, item)?;
    Ok(Query {
        class: class.into(),
        item: item.map(Into::into),
        space: Some(space()),
        filter: Filter::parse(text, &fields)?,
        sort: None,
        wanted: Wanted::Documents,
        special: None,
    })
}

fn search(class: &str, item: Option<&str>, text: &str) -> Search {
    Search::new(query(class, item, text).expect("it reads"), &shapes()).expect("it fits")
}

fn docids(page: &Page) -> Vec<&str> {
    page.hits.iter().map(|it| it.at.place.name.docid()).collect()
}

#[test]
fn all_conditions_hold_for_one_item_and_of_an_array_one_element_is_enough() {
    let shop = Shop::people();
    let text = "postcode in [94000, 94999] and email = t@x";
    let page = shop.page(&search("Person", Some("Adr"), text), 10);
    assert_eq!(docids(&page), ["ada", "cid"]);
    let mut items = query("Person", Some("Adr"), text).expect("it reads");
    items.wanted = Wanted::Items;
    let page = shop.page(&Search::new(items, &shapes()).expect("it fits"), 10);
    let found: Vec<_> = page.hits.iter().map(|it| it.at.place.key.as_deref()).collect();
    assert_eq!(found, [Some("home"), None]);
    assert_eq!(page.hits[0].content.as_ref().map(Content::kind), Some("JSON"));
}

#[test]
fn a_stored_value_of_another_type_is_not_found_by_its_field_and_the_document_is() {
    let shop = Shop::people();
    let page = shop.page(&search("Person", Some("Adr"), "postcode > 0"), 10);
    assert_eq!(docids(&page), ["bob", "ada", "cid"], "by postcode, each document once");
    let page = shop.page(&search("Person", Some("Adr"), "docid starts d"), 10);
    assert_eq!(docids(&page), ["dan"]);
}

#[test]
fn what_lacks_the_field_that_is_sorted_by_comes_last() {
    let shop = Shop::people();
    let mut by_weight = query("Person", Some("Adr"), "").expect("it reads");
    for (descending, expected) in
        [(false, ["cid", "ada", "bob", "dan"]), (true, ["cid", "dan", "bob", "ada"])]
    {
        by_weight.sort = Some(Sort { field: "weight".into(), descending });
        let search = Search::new(by_weight.clone(), &shapes()).expect("it fits");
        assert_eq!(docids(&shop.page(&search, 10)), expected);
    }
}

#[test]
fn an_age_is_a_field_of_sessions_and_the_youngest_comes_first() {
    let session = |docid: &str, minutes: u64, state: &str| {
        let standing = format!(r#"{{"state":"{state}"}}"#);
        let items = [("state", None, standing.as_str()), ("spec", None, r#"{"user":"x"}"#)];
        document("session", docid, now().minus_ms(minutes * 60_000), &items)
    };
    let shop = Shop::new(vec![
        session("a", 30, "READY"),
        session("b", 5, "READY"),
        session("c", 20, "CLOSED"),
        session("d", 11, "READY"),
    ]);
    let mut query =
        query("session", Some("record"), "attr.user = x and state = ready and age > 10m")
            .expect("it reads");
    query.sort = Some(Sort { field: "age".into(), descending: false });
    let search = Search::new(query, &shapes()).expect("it fits");
    assert_eq!(docids(&shop.page(&search, 10)), ["d", "a"]);
}

#[test]
fn an_index_reads_what_it_gives_and_not_all_documents() {
    let all = (0..3_000).map(|number| {
        let json = format!(r#"{{"postcode":{},"weight":{number}}}"#, number % 100);
        document("Person", &format!("p{number:05}"), now(), &[("Adr", None, &json)])
    });
    let shop = Shop::new(all.collect());
    for (text, most) in [
        ("postcode = 7", 11),
        ("weight > 2000", 11),
        ("docid starts p01", 11),
        ("postcode < 50 and weight in [2905, 2915]", 22),
    ] {
        let page = shop.page(&search("Person", Some("Adr"), text), 10);
        assert!(!page.hits.is_empty() && page.documents_read <= most, "{text}: {page:?}");
    }
    assert_eq!(shop.index.size().entries, 6_000);
    assert!((400_000..2_000_000).contains(&shop.index.size().bytes()));
}

#[test]
fn a_page_that_finds_nothing_ends_after_so_many_documents_and_goes_on() {
    // Both conditions hold in every document, and never for one item.
    let all = (0..300).map(|number| {
        let items =
            [("Adr", Some("a"), r#"{"postcode":1}"#), ("Adr", Some("b"), r#"{"weight":1}"#)];
        document("Person", &format!("p{number:05}"), now(), &items)
    });
    let shop = Shop::new(all.collect());
    let search = search("Person", Some("Adr"), "postcode = 1 and weight = 1");
    let limits = Limits { documents: 70, gathered: 0, ..Limits::new(10).expect("it is one") };
    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let document = |it: &DocName| shop.documents.get(it).cloned();
        let page = shop.index.page(&search, after.as_ref(), now(), limits, &document);
        let page = page.expect("it works");
        assert!(page.hits.is_empty());
        read.push(page.documents_read);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(read, [70, 70, 70, 70, 20]);
}

#[test]
fn a_query_that_does_not_fit_is_refused_by_the_name_of_the_field() {
    let refused = |query: Query| Search::new(query, &shapes()).unwrap_err().to_string();
    let good = query("Person", Some("Adr"), "postcode = 1").expect("it reads");
    let with = |test: Test| {
        let mut query = good.clone();
        query.filter.conditions[0].test = test;
        query
    };
    let text = Value::text("x");
    assert_eq!(refused(with(Test::Eq(text.clone()))), "postcode must be compared with an integer");
    assert_eq!(
        refused(with(Test::Starts("9".into()))),
        "postcode is no text: only texts start with something"
    );
    let mut other = good.clone();
    other.filter.conditions[0].field = "street".into();
    assert_eq!(
        refused(other),
        "street is no known field; there are docid, email, postcode, weight"
    );
    let other = Query { class: "Cart".into(), ..good.clone() };
    assert!(refused(other).starts_with(r#"class "Cart" of documents is not indexed; there are"#));
    let other = Query { item: Some("Tel".into()), ..good.clone() };
    assert_eq!(
        refused(other),
        r#"item "Tel" of "Person" has no declared field; there are ["Adr"]"#
    );
    let other =
        Query { item: None, filter: Filter::default(), wanted: Wanted::Items, ..good.clone() };
    assert_eq!(refused(other), "item must be there: items are of a class");
    let sort = Some(Sort { field: "street".into(), descending: false });
    assert!(refused(Query { sort, ..good }).starts_with(r#"sort "street" is no known field"#));
    let range = Test::new(Comparison::LtGe, Value::Integer(2), Some(Value::Integer(1)));
    assert_eq!(range.unwrap_err().to_string(), "value must be a range from low to high");
    assert!(Test::new(Comparison::Eq, Value::Integer(2), Some(Value::Integer(1))).is_err());
    assert!(Test::new(Comparison::LeGt, Value::Integer(2), None).is_err());
    assert!(Test::new(Comparison::LeGt, Value::Integer(2), Some(text)).is_err());
    assert_eq!(Limits::new(0).unwrap_err().to_string(), "limit is 0, and must be 1 to 1000");
}

#[test]
fn the_nine_conditions_have_the_names_and_bounds_of_the_source_text() {
    let holds = |name: &str, second: Option<i64>| -> Vec<i64> {
        let comparison = Comparison::parse(name).expect("it is one");
        let test = Test::new(comparison, Value::Integer(2), second.map(Value::Integer));
        let test = test.expect("it fits");
        (0..6).filter(|it| test.holds(&Value::Integer(*it), now())).collect()
    };
    assert_eq!(holds("EQ", None), [2]);
    assert_eq!(holds("LT", None), [0, 1]);
    assert_eq!(holds("LE", None), [0, 1, 2]);
    assert_eq!(holds("GE", None), [2, 3, 4, 5]);
    assert_eq!(holds("GT", None), [3, 4, 5]);
    assert_eq!(holds("LTGE", Some(4)), [3, 4]);
    assert_eq!(holds("LTGT", Some(4)), [3]);
    assert_eq!(holds("LEGE", Some(4)), [2, 3, 4]);
    assert_eq!(holds("LEGT", Some(4)), [2, 3]);
    let starts = Test::new(Comparison::Sw, Value::text("ab"), None).expect("it fits");
    assert!(starts.holds(&Value::text("abc"), now()) && !starts.holds(&Value::text("a"), now()));
    assert!(Comparison::parse("NE").unwrap_err().problem.contains("expected one of EQ, SW"));
}

#[test]
fn a_page_token_of_another_search_and_one_that_is_garbled_are_refused() {
    let shop = Shop::people();
    let one = search("Person", Some("Adr"), "email = t@x");
    let next = shop.page(&one, 1).next.expect("there are more");
    let token = one.token(&next);
    assert_eq!(one.position(&token), Ok(next));
    let others = ["email = a@x", "email starts t@x", "email = t@x and docid > a"];
    for other in others.map(|it| search("Person", Some("Adr"), it)) {
        let error = other.position(&token).unwrap_err();
        let expected = "page_token is of another search; begin this one without a token";
        assert_eq!(error.to_string(), expected);
    }
    for garbled in ["", "x", "!!", &token[1..], &token[..token.len() - 4], &"A".repeat(9_000)] {
        assert_eq!(one.position(garbled).unwrap_err().field, "page_token", "{garbled}");
    }
}

#[test]
fn pages_of_the_ring_must_be_about_all_slots_and_what_two_have_is_there_once() {
    let shop = Shop::people();
    let search = search("Person", Some("Adr"), "postcode > 0");
    let slots = |from: u32, to: u32| SlotId(from)..=SlotId(to);
    let limits = Limits::new(10).expect("it is a limit");
    let page = || shop.page(&search, 10);
    let error =
        merge(&search, slots(0, 9), vec![(slots(0, 3), page()), (slots(5, 9), page())], limits);
    assert_eq!(
        error.unwrap_err().to_string(),
        "slots from 4 on are in no page: their owner must be asked, too"
    );
    let both = vec![(slots(4, 9), page()), (slots(0, 5), page())];
    let merged = merge(&search, slots(0, 9), both, limits).expect("all slots are there");
    assert_eq!(docids(&merged), ["bob", "ada", "cid"]);
    assert!(merge(&search, slots(0, 9), Vec::new(), limits).is_err());
}

#[derive(Deserialize)]
struct SameMail {
    email: String,
}

impl SpecialSearch for SameMail {
    const NAME: &'static str = "same-mail";
    const CLASS: &'static str = "Person";
    const ITEM: Option<&'static str> = Some("Adr");
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, FieldError> {
        if parameters.email.contains('@') {
            Ok(parameters)
        } else {
            Err(FieldError::new("email", "has no @"))
        }
    }

    fn places(&self, view: &View<'_>) -> Result<BTreeSet<Place>, FieldError> {
        let test = Test::Eq(Value::text(&self.email));
        let found = view.places("Adr", "email", &test)?.map(|it| it.1.clone());
        // What another namespace or class has is not its own, whatever it says.
        let other = DocName::new(&space(), "Plain", "b").expect("it is a name");
        assert!(view.document(&other).is_none());
        Ok(found.chain([Place { name: other, key: None }]).collect())
    }
}

/// Documents, and everything that may go wrong, as it is told.
#[derive(Deserialize)]
struct Odd {
    does: String,
}

impl SpecialSearch for Odd {
    const NAME: &'static str = "odd";
    const CLASS: &'static str = "Person";
    const ITEM: Option<&'static str> = None;
    type Parameters = Self;

    fn new(it: Self) -> Result<Self, FieldError> {
        Ok(it)
    }

    fn places(&self, view: &View<'_>) -> Result<BTreeSet<Place>, FieldError> {
        let all: Vec<&DocName> = view.names().collect();
        let first = all.first().copied().expect("there is one");
        let place = |key: usize| Place { name: first.clone(), key: Some(key.to_string().into()) };
        match &*self.does {
            "everything" => {
                Ok(all.into_iter().map(|it| Place { name: it.clone(), key: None }).collect())
            }
            "too many" => Ok((0..=PLACES_MAX).map(place).collect()),
            "reads" => {
                let read = (0..=PLACES_MAX).filter_map(|_| view.document(first));
                assert_eq!(read.count(), PLACES_MAX - 1, "the names were paid, too");
                Ok(BTreeSet::new())
            }
            "wrong field" => {
                view.places("Adr", "phone", &Test::Eq(Value::text("1"))).map(|_| BTreeSet::new())
            }
            "wrong type" => {
                view.places("Adr", "email", &Test::Eq(Value::Integer(1))).map(|_| BTreeSet::new())
            }
            other => panic!("what is {other}"),
        }
    }
}

fn special(name: &str, parameters: &str) -> Option<Special> {
    Special::parse(name, parameters).expect("it can be read")
}

/// A search for people that is a special one, too.
fn special_query(name: &str, parameters: &str, text: &str) -> Query {
    let query = query("Person", Some("Adr"), text).expect("it reads");
    Query { special: special(name, parameters), ..query }
}

fn special_page(shop: &Shop, query: Query, after: Option<&str>) -> Result<(Page, Search), String> {
    let search = Search::new(query, &shapes()).map_err(|it| it.to_string())?;
    let after = after.map(|it| search.position(it)).transpose().map_err(|it| it.to_string())?;
    let read = |name: &DocName| shop.documents.get(name).cloned();
    let limits = Limits::new(2).expect("it is a limit");
    let page = shop.index.page(&search, after.as_ref(), now(), limits, &read);
    page.map(|it| (it, search)).map_err(|it| it.to_string())
}

const SAME: &str = r#"{"email":"t@x"}"#;

#[test]
fn a_special_search_has_pages_like_any_other() {
    let shop = Shop::people();
    let query = || special_query("same-mail", SAME, "");
    let (first, search) = special_page(&shop, query(), None).expect("it works");
    assert_eq!(docids(&first), ["ada", "bob"]);
    let token = search.token(first.next.as_ref().expect("there are more"));
    let (rest, _) = special_page(&shop, query(), Some(&token)).expect("it works");
    assert_eq!((docids(&rest), &rest.next), (vec!["cid"], &None));
    let slots = SlotId(0)..=SlotId(9);
    let parts = vec![(slots.clone(), rest), (slots.clone(), first)];
    let limits = Limits::new(2).expect("it is a limit");
    assert_eq!(docids(&merge(&search, slots, parts, limits).expect("it is whole")), ["ada", "bob"]);
    let other = special_query("same-mail", r#"{"email":"a@x"}"#, "");
    let told = special_page(&shop, other, Some(&token)).expect_err("it is of another search");
    assert!(told.contains("page_token is of another search"), "{told}");
}

#[test]
fn conditions_hold_for_the_items_that_a_special_search_finds_or_for_any_item_of_its_documents() {
    let shop = Shop::people();
    let found = |query: Query| docids(&special_page(&shop, query, None).expect("it works").0).len();
    let all = r#"{"does":"everything"}"#;
    // Of bob, t@x is the mail of another item than the one with this postcode.
    let (page, _) = special_page(&shop, special_query("same-mail", SAME, "postcode = 94120"), None)
        .expect("it works");
    assert_eq!(docids(&page), ["ada"]);
    assert_eq!(found(special_query("odd", all, "postcode = 94120")), 2);
    let items = |query: Query| Query { wanted: Wanted::Items, ..query };
    let (page, _) = special_page(&shop, items(special_query("odd", all, "docid = bob")), None)
        .expect("it works");
    let keys: Vec<_> = page.hits.iter().map(|it| it.at.place.key.as_deref()).collect();
    assert_eq!(keys, [Some("home"), Some("work")], "all items of a document that it finds");
    let stranger = Query {
        space: Some(Namespace::parse("other").expect("it is a name")),
        ..special_query("same-mail", SAME, "")
    };
    assert_eq!(found(stranger), 0, "documents of another namespace are not seen");
}

#[test]
fn what_a_special_search_must_not_do_is_told_and_harms_nobody() {
    let shop = Shop::people();
    let told = |query: Query| special_page(&shop, query, None).expect_err("it is wrong");
    let odd = |does: &str| told(special_query("odd", &format!(r#"{{"does":"{does}"}}"#), ""));
    assert!(odd("too many").contains("10001 places; the limit is 10000"), "{}", odd("too many"));
    assert!(odd("reads").contains("special odd looks at too much"), "{}", odd("reads"));
    assert!(odd("wrong field").contains("phone"), "{}", odd("wrong field"));
    assert!(odd("wrong type").contains("email"), "{}", odd("wrong type"));
    let panicked = odd("panics");
    assert!(panicked.contains("X-PANIC") && panicked.contains("what is panics"), "{panicked}");
    let unknown = told(special_query("other", "", ""));
    assert!(unknown.contains("there are odd, same-mail"), "{unknown}");
    let of_none = Query { class: "Plain".into(), item: None, ..special_query("odd", "", "") };
    assert!(told(of_none).contains("has no special search here"));
    let missing = told(special_query("same-mail", "", ""));
    assert!(missing.contains("parameters do not fit search same-mail"), "{missing}");
    let refused = told(special_query("same-mail", r#"{"email":"x"}"#, ""));
    assert!(refused.contains("parameters.email has no @"), "{refused}");
    let by_postcode = Some(Sort { field: "postcode".into(), descending: false });
    let sorted = told(Query { sort: by_postcode, ..special_query("same-mail", SAME, "") });
    assert!(sorted.contains("sort must be docid"), "{sorted}");
}

#[test]
fn what_a_special_search_is_told_has_a_limit_and_belongs_to_a_name() {
    let field = |name: &str, parameters: &str| Special::parse(name, parameters).unwrap_err().field;
    assert_eq!(special("", ""), None);
    assert_eq!(field("", "{}"), "special");
    for text in ["{", "null", "[1]", "7"] {
        assert_eq!(field("near", text), "parameters", "{text}");
    }
    assert_eq!(field("near", &"1".repeat(PARAMETERS_BYTES_MAX + 1)), "parameters");
    assert_eq!(field(&"n".repeat(1_000), ""), "special");
}

#[test]
fn classes_without_fields_are_searched_by_docid_and_ended_lives_are_not_found() {
    let ended = DocumentParts {
        name: DocName::new(&space(), "Plain", "b").expect("it is a name"),
        ctime: now(),
        version: now(),
        dtime: now(),
        is_deleted: true,
        items: Vec::new(),
    };
    let ended = Arc::new(Document::from_parts(ended).expect("it fits"));
    let plain = |docid: &str| document("Plain", docid, now(), &[("It", None, "{}")]);
    let other = document("Other", "a", now(), &[]);
    let shop = Shop::new(vec![plain("a"), ended, plain("c"), plain("d"), other]);
    let page = shop.page(&search("Plain", None, "docid in [a, c]"), 10);
    assert_eq!(docids(&page), ["a", "c"]);
    assert_eq!(page.documents_read, 2);
    assert_eq!(shapes().fields("Plain", None).expect("it is known").kind(DOCID), Some(Kind::Text));
    assert_eq!(shop.index.size().documents, 3);
}
