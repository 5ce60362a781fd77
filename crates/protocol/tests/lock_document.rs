//! A document that stands for a group: operations that contend over it, through several managers.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::*;
use serde_json::{Value, json};

/// Sells at a till, and touches the document that stands for all of them.
fn sale(till: u32, cents: u32) -> Request {
    let lock = json!({"class": "Shop", "docid": "shop", "life": "ensure", "touch": true});
    let put = json!([{"class": "Tk", "key": "1", "json": {"cents": cents}}]);
    let docid = format!("{{shop}}{till}");
    let till = json!({"class": "Till", "docid": docid, "life": "ensure", "put": put});
    request("document.write", &json!({"changes": [lock, till]}))
}

/// Writes down the sum of a day, if nothing was sold since.
fn closing(seen: &Value, cents: u32) -> Request {
    let put = json!([{"class": "Day", "key": "today", "json": {"cents": cents}}]);
    let expect = json!({"version": seen});
    let change = json!({"class": "Shop", "docid": "shop", "expect": expect, "put": put});
    request("document.write", &json!({"changes": [change]}))
}

/// The version of the document that stands for the group.
fn seen(table: &mut Table, entry: u32) -> Value {
    let asked = json!({"documents": [{"class": "Shop", "docid": "shop"}]});
    let answer = operated(table.call(entry, op(request("document.read", &asked), "shop")));
    body(&answer.unwrap())["documents"][0]["version"].clone()
}

#[test]
fn what_was_added_up_is_not_written_down_when_one_of_the_group_changed_meanwhile() {
    let mut table = Table::serving();
    let [one, two, three] = NUMBERS;
    operated(table.call(one, op(sale(1, 100), "shop"))).unwrap();
    let early = seen(&mut table, two);
    operated(table.call(three, op(sale(2, 5), "shop"))).unwrap();
    let late = operated(table.call(two, op(closing(&early, 100), "shop"))).unwrap_err();
    assert_eq!(late.code().as_str(), "A-EXPECTED");
    assert!(late.to_string().contains("version of shop/Shop/shop is"), "{late}");
    let again = seen(&mut table, two);
    operated(table.call(two, op(closing(&again, 105), "shop"))).unwrap();
}

#[test]
fn of_those_that_contend_for_the_group_at_once_one_is_done_and_every_copy_says_which() {
    let mut table = Table::serving();
    operated(table.call(300, op(sale(1, 100), "shop"))).unwrap();
    let seen = seen(&mut table, 300);
    // Asked before any of them is answered, through all managers.
    let closings = NUMBERS.map(|n| (n, table.ask(n, op(closing(&seen, n), "shop"))));
    let mut done = Vec::new();
    for (n, call) in closings {
        match operated(table.wait_for(call, 2_000)) {
            Ok(answer) => done.push((n, answer.version)),
            Err(exception) => assert_eq!(exception.code().as_str(), "A-EXPECTED"),
        }
    }
    let [(winner, version)] = done[..] else { panic!("{done:?} were done") };
    table.pass(200);
    for n in NUMBERS {
        let mut docs = table.disks[&n].docs.iter();
        let (_, doc) = docs.find(|(key, _)| key.name.class() == "Shop").unwrap();
        let Some(Content::Json(day)) = doc.document().content("Day", Some("today")) else {
            panic!("manager {n} has no day")
        };
        assert_eq!(day.as_str(), format!("{{\"cents\":{winner}}}"), "at {n}");
        assert_eq!(doc.version(), version, "at {n}");
    }
}
