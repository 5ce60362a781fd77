//! Searches at the owners of partitions: what was answered is found, on one page, whoever owns the slots.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::{FieldType, Schema, SlotId};
use rota_protocol::api::{Reader, Service};
use rota_protocol::operate::{operations, schema};
use rota_protocol::session_search::SESSION_FIELDS;
use rota_protocol::{Answer, Found, Op, SearchOp, Searchable, Transition};
use rota_search::{Filter, Limits, Page, Position, Query, Search, Sort, Wanted, merge};
use serde_json::json;
use std::collections::BTreeSet;

fn shop() -> Schema {
    schema().class("Cart", |it| it.any().field("Ln", "n", FieldType::Long))
}

fn table() -> Table {
    let mut table = Table::laid();
    table.offer = Some((operations(), shop()));
    table.start_all();
    table.register("n1", 7);
    table
}

/// A search of carts, or of another class.
fn query(class: &str, item: Option<&str>, filter: &str, sort: Option<&str>) -> Search {
    let shapes = Searchable::of(&shop()).shapes(class);
    let filter = Filter::parse(filter, &shapes.fields(class, item).unwrap()).unwrap();
    let sort = sort.map(|it| Sort { field: it.into(), descending: false });
    let (class, item) = (class.into(), item.map(Into::into));
    let query =
        Query { class, item, space: None, filter, sort, wanted: Wanted::Documents, special: None };
    Search::new(query, &shapes).unwrap()
}

fn ask(
    table: &mut Table,
    entry: u32,
    search: &Search,
    after: Option<&Position>,
    limit: u32,
) -> Vec<Found> {
    let op = |slot| {
        let (query, after, now) = (search.query().clone(), after.cloned(), stamp(table));
        Op::Search(SearchOp { reader: None, slot, query, after, now, limit, with_sessions: true })
    };
    let parts: Vec<SlotId> = table.view().parts.keys().map(|it| SlotId(it.0)).collect();
    let ops: Vec<Op> = parts.into_iter().map(op).collect();
    let asked: Vec<u64> = ops.into_iter().map(|op| table.ask(entry, op)).collect();
    let found = asked.into_iter().map(|call| table.wait_for(call, 5_000));
    found
        .map(|answer| match answer {
            Ok(Answer::Found(found)) => found.unwrap(),
            other => panic!("not found: {other:?}"),
        })
        .collect()
}

/// One page of the whole ring: ids, how many documents were read, and where it goes on.
fn page(
    table: &mut Table,
    entry: u32,
    search: &Search,
    after: Option<&Position>,
    limit: u32,
) -> (Vec<String>, u64, Option<Position>) {
    let parts = ask(table, entry, search, after, limit);
    let parts = parts.into_iter().flat_map(|found| {
        let Found { slots, page, .. } = found;
        // A partition that goes around the end of the ring has two pieces, and one page.
        let piece = move |(number, (first, last))| {
            let documents_read = if number == 0 { page.documents_read } else { 0 };
            (first..=last, Page { documents_read, ..page.clone() })
        };
        slots.into_iter().enumerate().map(piece)
    });
    let limits = Limits::new(limit as usize).unwrap();
    let all = SlotId(0)..=SlotId(M - 1);
    let page = merge(search, all, parts.collect(), limits).unwrap();
    let ids = page.hits.iter().map(|it| it.at.place.name.docid().to_owned()).collect();
    (ids, page.documents_read, page.next)
}

fn fill(table: &mut Table, entry: u32, count: u32) {
    for n in 0..count {
        let docid = format!("d{n:03}");
        operated(table.call(entry, op(write(&docid, n % 10), &docid))).unwrap();
    }
}

#[test]
fn a_search_finds_what_was_answered_and_reads_no_more_than_it_gives() {
    let mut table = table();
    fill(&mut table, 300, 60);
    let search = query("Cart", Some("Ln"), "n = 7", None);
    let (ids, read, next) = page(&mut table, 600, &search, None, 50);
    assert_eq!(ids, ["d007", "d017", "d027", "d037", "d047", "d057"]);
    assert_eq!((read, next), (6, None));
    operated(table.call(300, op(write("d007", 8), "d007"))).unwrap();
    assert_eq!(page(&mut table, 600, &search, None, 50).0.len(), 5);
    // Without declared fields a class is searched by ids.
    let put = json!([{"class": "X", "json": 1}]);
    let change = json!({"class": "Plain", "docid": "p1", "life": "ensure", "put": put});
    let written = request("document.write", &json!({"changes": [change]}));
    operated(table.call(300, op(written, "p1"))).unwrap();
    let plain = query("Plain", None, "docid starts p", None);
    assert_eq!(page(&mut table, 600, &plain, None, 50).0, ["p1"]);
}

#[test]
fn pages_miss_and_double_nothing_while_slots_change_owners() {
    let mut table = table();
    fill(&mut table, 300, 80);
    let search = query("Cart", Some("Ln"), "n >= 3", Some("n"));
    let (mut ids, mut after) = (Vec::new(), None);
    for round in 0.. {
        let (more, _, next) = page(&mut table, 300, &search, after.as_ref(), 7);
        ids.extend(more);
        if next.is_none() {
            break;
        }
        after = next;
        if round == 2 {
            table.kill(600);
            table.pass_until("its slots are served", 20_000, |table| {
                table.view().parts.values().all(|part| part.owner.0 != 600)
            });
        }
    }
    let expected: BTreeSet<String> =
        (0..80).filter(|n| n % 10 >= 3).map(|n| format!("d{n:03}")).collect();
    assert_eq!(ids.len(), expected.len());
    assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn sessions_are_found_by_state_and_attribute_as_soon_as_their_clients_know() {
    let mut table = table();
    for n in 0..12 {
        let Op::Open(mut opened) = open(&format!("s{n}"), &format!("r{n}")) else { unreachable!() };
        let user = if n % 2 == 0 { "x" } else { "y" };
        opened.spec.attributes = std::sync::Arc::new([("user".to_owned(), user.to_owned())].into());
        table.call(300, Op::Open(opened)).unwrap();
    }
    table.call(300, close("s4", "c4")).unwrap();
    let text = "attr.user = x and state = READY";
    let search = query("session", Some(SESSION_FIELDS), text, Some("docid"));
    let (ids, _, _) = page(&mut table, 1000, &search, None, 50);
    assert_eq!(ids, ["s0", "s10", "s2", "s6", "s8"]);
    let found = ask(&mut table, 1000, &search, None, 50);
    let shown = found.iter().flat_map(|it| &it.sessions).count();
    assert_eq!(shown, 5);
    assert!(table.count(Transition::Searched) >= 6);
}

#[test]
fn who_reads_finds_documents_of_its_own_namespace_only() {
    let mut table = table();
    let search = query("Cart", Some("Ln"), "n = 1", None);
    let reader = |space_name: &str| {
        let of = Reader::of(space(space_name));
        Some(std::sync::Arc::new(Reader { service: Service::Search, ..of }))
    };
    let now = stamp(&table);
    let mut ask = |asks: &str, of: Option<&str>| {
        let query = Query { space: of.map(space), ..search.query().clone() };
        let reader = reader(asks);
        let (slot, with_sessions) = (SlotId(0), false);
        let op = SearchOp { reader, slot, query, after: None, now, limit: 5, with_sessions };
        table.call(300, Op::Search(op))
    };
    assert!(matches!(ask("shop", Some("shop")), Ok(Answer::Found(Ok(_)))));
    for of in [Some("bank"), None] {
        let Ok(Answer::Found(Err(refused))) = ask("shop", of) else { panic!("it was found") };
        assert_eq!(refused.code().to_string(), "S-REFUSED");
    }
}
