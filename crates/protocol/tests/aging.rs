//! What time makes of documents, at managers.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::{Document, Held, Letter, Request, Update};
use rota_protocol::Transition;
use serde_json::{Value, json};
use std::sync::Arc;

const DAY_MS: i64 = 24 * 3_600_000;

fn change(docid: &str, parts: &Value) -> rota_docstore::Request {
    let mut change = json!({"class": "Cart", "docid": docid, "life": "ensure"});
    for (key, value) in parts.as_object().unwrap() {
        change[key] = value.clone();
    }
    request("document.write", &json!({"changes": [change]}))
}

fn run(table: &mut Table, docid: &str, parts: &Value) {
    operated(table.call(300, op(change(docid, parts), docid))).unwrap();
}

/// A document whose item `x` was destroyed, and which changed after that.
fn document_with_a_destroyed_item(table: &mut Table, docid: &str) {
    let put = |key: &str| json!({"put": [{"class": "Ln", "key": key, "json": {"n": 1}}]});
    run(table, docid, &put("x"));
    run(table, docid, &put("y"));
    run(table, docid, &json!({"remove": [{"class": "Ln", "key": "x"}]}));
    run(table, docid, &put("z"));
}

/// The document on a manager's disk.
fn on_disk(table: &Table, n: u32, docid: &str) -> Arc<Document> {
    let mut docs = table.disks[&n].docs.iter().filter(|(key, _)| key.name.docid() == docid);
    docs.next().unwrap().1.document().clone()
}

fn is_known(document: &Document, key: &str) -> bool {
    document.item("Ln", Some(key)).is_some()
}

#[test]
fn items_destroyed_long_ago_are_forgotten_at_every_copy_though_nobody_writes() {
    let mut table = Table::serving();
    document_with_a_destroyed_item(&mut table, "c");
    let before = on_disk(&table, 300, "c");
    let held = Held::of(&before);
    table.wall_step_ms = 6 * DAY_MS;
    table.pass(21_000);
    assert_eq!(on_disk(&table, 300, "c"), before, "a cache may still be as old");
    table.wall_step_ms = 8 * DAY_MS;
    table.pass(21_000);
    for n in NUMBERS {
        let after = on_disk(&table, n, "c");
        assert!(is_known(&before, "x") && !is_known(&after, "x"), "at {n}");
        assert!(after.says_the_same(&before), "at {n}: same life, version and contents");
        assert!(after.dtime() > before.dtime() && after.dtime() <= after.version());
    }
    // A cache at the newest version hears of nothing; an older one is told what there is.
    let updates = synced(table.call(600, sync(&["c"], Some(held), false)));
    assert!(matches!(updates[0], Update::Unchanged { .. }), "{updates:?}");
    let older = Held::new(before.ctime(), before.ctime(), before.ctime()).unwrap();
    let updates = synced(table.call(600, sync(&["c"], Some(older), false)));
    assert_eq!(updates[0].name(), "case 2");
    table.pass(30_000);
    assert_eq!(table.count(Transition::ItemsForgotten), 1, "there is nothing left to forget");
}

#[test]
fn what_nobody_may_repeat_any_more_is_forgotten_though_nobody_writes() {
    let mut table = Table::serving();
    let add = json!({"put": [{"class": "Ln", "key": "x", "json": {"n": 1}}]});
    let asked = Request { operation_time: Some(stamp(&table)), ..change("c", &add) };
    let answer = operated(table.call(300, op(asked.clone(), "c"))).unwrap();
    table.pass(500);
    let before = on_disk(&table, 300, "c");
    let memories = |table: &Table, n: u32| -> Vec<usize> {
        let names = table.disks[&n].docs.iter().filter(|(key, _)| key.name.is_memory());
        names.map(|(_, doc)| doc.document().items().len()).collect()
    };
    assert_eq!(memories(&table, 300), [1]);
    table.wall_step_ms = 9 * 60_000;
    table.pass(21_000);
    assert_eq!(on_disk(&table, 300, "c"), before, "it may still be asked again");
    assert_eq!(operated(table.call(300, op(asked.clone(), "c"))).unwrap(), answer);
    table.wall_step_ms = 12 * 60_000;
    table.pass(21_000);
    for n in NUMBERS {
        assert_eq!(memories(&table, n), [1], "up to when it was forgotten, at {n}");
        assert_eq!(on_disk(&table, n, "c"), before, "at {n}");
    }
    // Also when that clock was wrong: it was done.
    for wall_step_ms in [12 * 60_000, 0] {
        table.wall_step_ms = wall_step_ms;
        let late = operated(table.call(300, op(asked.clone(), "c"))).unwrap_err();
        assert_eq!(
            (late.letter(), late.details().fields[0].field.as_str()),
            (Letter::A, "operation_time")
        );
    }
    // A copy of before hears of nothing.
    let updates = synced(table.call(600, sync(&["c"], Some(Held::of(&before)), false)));
    assert!(matches!(updates[0], Update::Unchanged { .. }), "{updates:?}");
    // No clock is so wrong.
    table.wall_step_ms = 72 * 60_000;
    table.pass(21_000);
    assert!(NUMBERS.iter().all(|n| memories(&table, *n).is_empty()));
}

#[test]
fn a_new_owner_has_forgotten_what_the_old_one_had() {
    let mut table = Table::serving();
    document_with_a_destroyed_item(&mut table, "c");
    table.wall_step_ms = 8 * DAY_MS;
    table.pass(11_000);
    table.wall_step_ms = 0;
    let owner = owner_of(&table, "c");
    let dtime = on_disk(&table, owner, "c").dtime();
    table.kill(owner);
    table.pass(2_000);
    let call = table.ask(other_than(owner), sync(&["c"], None, false));
    let updates = synced(table.wait_for(call, 3_000));
    let Update::Full(document) = &updates[0] else { panic!("not whole: {updates:?}") };
    assert!(!is_known(document, "x") && document.dtime() == dtime);
}

#[test]
fn one_step_of_forgetting_looks_at_a_bounded_part_of_the_documents() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    let ids: Vec<String> = (0..6).map(|nth| id_at(&table, owner, nth)).collect();
    for id in &ids {
        let items = (0..4_000).map(|it| json!({"class": "Big", "key": it.to_string(), "raw": ""}));
        run(&mut table, id, &json!({"put": items.collect::<Vec<_>>()}));
        document_with_a_destroyed_item(&mut table, id);
    }
    table.wall_step_ms = 8 * DAY_MS;
    let mut most = 0;
    let mut before = 0;
    while before < ids.len() {
        table.pass(20);
        let forgotten = table.count(Transition::ItemsForgotten);
        most = most.max(forgotten - before);
        before = forgotten;
        assert!(table.now_ms < 40_000, "only {before} were found");
    }
    assert!((1..=3).contains(&most), "{most} at once");
}
