//! Deferred copies: what changed in a document arrives wherever it is held, never older over newer, and makes nothing.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::Schema;
use rota_protocol::Transition;
use rota_protocol::operate::{check_schema, operations, schema};
use serde_json::{Value, json};

fn associations() -> Schema {
    schema()
        .class("Group", |it| it.any())
        .class("Asso", |it| it.any().copied("Adh", &["Group"], '.').copied("Sta", &["Group"], '.'))
}

fn table() -> Table {
    let mut table = Table::laid();
    table.offer = Some((operations(), associations()));
    table.start_all();
    table
}

fn put(table: &mut Table, class: &str, docid: &str, items: &Value) {
    let change = json!({"class": class, "docid": docid, "life": "ensure", "put": items});
    let written = request("document.write", &json!({"changes": [change]}));
    let call = table.ask(300, op(written, docid));
    operated(table.wait_for(call, 20_000)).unwrap();
}

fn remove(table: &mut Table, docid: &str, item: &Value) {
    let change = json!({"class": "Group", "docid": docid, "remove": [item]});
    let written = request("document.write", &json!({"changes": [change]}));
    operated(table.call(300, op(written, docid))).unwrap();
}

/// The items of a group: key and content.
fn held(table: &mut Table, docid: &str) -> Vec<(String, Value)> {
    let reading = json!({"documents": [{"class": "Group", "docid": docid}]});
    let shown = operated(table.call(300, op(request("document.read", &reading), docid))).unwrap();
    let items = body(&shown)["documents"][0]["items"].as_array().cloned().unwrap_or_default();
    let shown = items.iter().map(|item| {
        let key = item["key"].as_str().unwrap_or_default().to_owned();
        (key, item["json"].clone())
    });
    shown.collect()
}

fn ended(table: &Table) -> usize {
    table.count(Transition::TaskEnded)
}

#[test]
fn a_change_arrives_in_every_document_that_holds_the_item_and_nowhere_else() {
    let mut table = table();
    put(&mut table, "Asso", "A1", &json!([{"class": "Sta", "json": "new"}]));
    for (group, keys) in
        [("g1", ["7.A1", "8.A1"]), ("g2", ["7.A1", "7.A2"]), ("g3", ["9.A1", "7.A3"])]
    {
        let items = keys.map(|key| json!({"class": "Adh", "key": key, "json": "old"}));
        put(&mut table, "Group", group, &json!(items));
    }
    put(&mut table, "Group", "g1", &json!([{"class": "Sta", "key": "A1", "json": "old"}]));
    table.pass(2_000);
    let before = ended(&table);
    let both =
        json!([{"class": "Adh", "key": "7", "json": "x"}, {"class": "Sta", "json": "active"}]);
    put(&mut table, "Asso", "A1", &both);
    table.pass_until("it is copied", 10_000, |it| ended(it) > before);
    let text = |key: &str, value: &str| (key.to_owned(), json!(value));
    assert_eq!(
        held(&mut table, "g1"),
        [text("7.A1", "x"), text("8.A1", "old"), text("A1", "active")]
    );
    assert_eq!(held(&mut table, "g2"), [text("7.A1", "x"), text("7.A2", "old")]);
    assert_eq!(held(&mut table, "g3"), [text("7.A3", "old"), text("9.A1", "old")]);
    // Two items for one document came in one write.
    assert_eq!(table.count(Transition::Copied), 2);
}

#[test]
fn what_was_removed_stays_away_and_what_is_destroyed_at_its_source_stays() {
    let mut table = table();
    put(&mut table, "Asso", "A1", &json!([{"class": "Adh", "key": "7", "json": 1}]));
    put(&mut table, "Group", "g1", &json!([{"class": "Adh", "key": "7.A1", "json": 0}]));
    table.pass(2_000);
    remove(&mut table, "g1", &json!({"class": "Adh", "key": "7.A1"}));
    let before = ended(&table);
    put(&mut table, "Asso", "A1", &json!([{"class": "Adh", "key": "7", "json": 2}]));
    table.pass_until("it is copied", 10_000, |it| ended(it) > before);
    assert_eq!(held(&mut table, "g1"), []);
    put(&mut table, "Group", "g1", &json!([{"class": "Adh", "key": "7.A1", "json": 3}]));
    let change = json!({"class": "Asso", "docid": "A1", "remove": [{"class": "Adh", "key": "7"}]});
    let written = request("document.write", &json!({"changes": [change]}));
    operated(table.call(300, op(written, "A1"))).unwrap();
    table.pass(3_000);
    assert_eq!(held(&mut table, "g1"), [("7.A1".to_owned(), json!(3))]);
}

#[test]
fn changes_during_a_copying_and_a_change_of_owners_lose_nothing() {
    let mut table = table();
    let entry = 300;
    let asso = id_at(&table, 600, 0);
    let owner = owner_of(&table, &asso);
    for n in 0..30 {
        let item = json!([{"class": "Adh", "key": format!("7.{asso}"), "json": 0}]);
        put(&mut table, "Group", &format!("g{n}"), &item);
    }
    for n in 1..=6 {
        put(&mut table, "Asso", &asso, &json!([{"class": "Adh", "key": "7", "json": n}]));
        if n == 4 {
            // Half-way: the copying has begun, and some have the state before.
            table.kill(owner);
            table.pass_until("its slots are served", 20_000, |table| {
                table.view().parts.values().all(|part| part.owner.0 != owner)
            });
        }
    }
    let done = |table: &mut Table| {
        (0..30).all(|n| {
            let docid = format!("g{n}");
            let reading = json!({"documents": [{"class": "Group", "docid": docid}]});
            let read = request("document.read", &reading);
            let shown = body(&operated(table.call(entry, op(read, &docid))).unwrap());
            shown["documents"][0]["items"][0]["json"] == json!(6)
        })
    };
    for _ in 0..20 {
        table.pass(1_000);
        if done(&mut table) {
            return;
        }
    }
    panic!("a group has an old state: {:?}", held(&mut table, "g0"));
}

#[test]
fn a_source_lies_where_the_braces_in_its_id_say_and_an_id_that_no_task_can_have_is_refused() {
    let mut table = table();
    put(&mut table, "Group", "g1", &json!([{"class": "Adh", "key": "7.{r}A1", "json": 0}]));
    // What the group wrote itself in that very millisecond would be as new.
    table.pass(10);
    put(&mut table, "Asso", "{r}A1", &json!([{"class": "Adh", "key": "7", "json": 5}]));
    table.pass_until("it is copied", 10_000, |it| it.count(Transition::Copied) == 1);
    assert_eq!(held(&mut table, "g1"), [("7.{r}A1".to_owned(), json!(5))]);
    for docid in ["a}b".to_owned(), "x".repeat(240)] {
        let items = json!([{"class": "Sta", "json": 1}]);
        let change = json!({"class": "Asso", "docid": docid, "life": "ensure", "put": items});
        let written = request("document.write", &json!({"changes": [change]}));
        let call = table.ask(300, op(written, &docid));
        let wrong = operated(table.wait_for(call, 5_000)).unwrap_err().to_string();
        assert!(wrong.contains("must have no lone brace, and at most"), "{wrong}");
    }
}

#[test]
fn copies_of_copies_are_refused_with_the_schema() {
    let chained = associations().class("Far", |it| it.any());
    assert_eq!(check_schema(&chained), Ok(()));
    let round = schema()
        .class("One", |it| it.any().copied("I", &["Two"], '.'))
        .class("Two", |it| it.any().copied("I", &["One"], '.'));
    assert!(check_schema(&round).unwrap_err().to_string().contains("must be written"));
    let twice = associations().class("Club", |it| it.any().copied("Sta", &["Group"], '.'));
    assert!(check_schema(&twice).unwrap_err().to_string().contains("from two classes"));
}
