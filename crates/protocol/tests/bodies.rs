//! Documents whose attachments have bodies.

use crate::table::*;
use rota_docstore::*;
use rota_protocol::api::{ImportOp, OperateOp};
use rota_protocol::operate::slot_of;
use rota_protocol::{DocumentAnswer, DocumentOp, Input, Message, Op, OpResult};
use serde_json::json;
use std::sync::Arc;

fn name() -> DocName {
    DocName::new(&Namespace::parse("shop").unwrap(), "Album", "a").unwrap()
}

fn owner(table: &Table) -> u32 {
    table.view().owner_of(slot_of(&name(), 1024)).0
}

fn others(table: &Table) -> [u32; 2] {
    let owner = owner(table);
    let others: Vec<u32> = NUMBERS.into_iter().filter(|it| *it != owner).collect();
    others.try_into().unwrap()
}

/// Puts an attachment with that body.
fn attach(key: &str, sha256: Digest) -> Op {
    attach_sized(key, sha256, 9)
}

fn attach_sized(key: &str, sha256: Digest, size: u64) -> Op {
    let attachment = json!({"mime": "image/png", "size": size, "sha256": sha256.to_string()});
    let put = json!([{"class": "P", "key": key, "attachment": attachment}]);
    let change = json!({"class": "Album", "docid": "a", "life": "ensure", "put": put});
    let request = Request::new(Namespace::parse("shop").unwrap(), "document.write");
    let request = request.with(&json!({"changes": [change]})).unwrap();
    let (request, docid) = (Arc::new(request), "a".to_owned());
    Op::Documents(DocumentOp::Operate(OperateOp { request, docid }))
}

fn operated(result: OpResult) -> Result<Answer, Exception> {
    match result {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Operated(it))) => it,
        other => panic!("not operated: {other:?}"),
    }
}

const FIRST: Digest = Digest([1; 32]);
const SECOND: Digest = Digest([2; 32]);

/// Whether a manager's disk has the document with that body, and the body.
fn has(table: &Table, n: u32, sha256: Digest) -> (bool, bool) {
    let docs = table.disks[&n].docs.iter();
    let named = docs.filter(|(key, _)| key.name == name()).any(|(_, doc)| {
        doc.document().attachments().any(|(_, attachment)| attachment.sha256() == sha256)
    });
    (named, table.blob_stores[&n].has(sha256))
}

#[test]
fn an_operation_that_names_a_body_which_its_owner_does_not_hold_is_refused_and_changes_nothing() {
    let mut table = Table::serving();
    let [one, other] = others(&table);
    // That copies have it is not enough.
    table.blob_stores[&one].put(FIRST);
    table.blob_stores[&other].put(FIRST);
    let refused = operated(table.call(one, attach("k", FIRST))).unwrap_err();
    assert_eq!(refused.code().as_str(), "N-BODY");
    let text = refused.to_string();
    for part in ["body", "shop/Album/a", &FIRST.to_string(), "put it first"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(refused.details().fields[0].field, "body");
    // One that is there and damaged is another matter: it may come again by itself.
    table.blob_stores[&owner(&table)].damage(FIRST);
    let damaged = operated(table.call(one, attach("k", FIRST))).unwrap_err();
    assert_eq!((damaged.code(), damaged.phase()), (&codes::DAMAGED, Phase::Validation));
    let text = damaged.to_string();
    for part in ["body", "shop/Album/a", &format!("file {FIRST} ends early"), "another copy"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let other_size = attach_sized("k", FIRST, 8);
    table.blob_stores[&owner(&table)].put(FIRST);
    let refused = operated(table.call(one, other_size)).unwrap_err();
    assert_eq!(refused.code().as_str(), "A-INVALID");
    assert_eq!(refused.details().fields[0].field, "size");
    let text = refused.to_string();
    assert!(text.contains("is 8") && text.ends_with("has 9 bytes"), "{text}");
    let document = {
        operated(table.call(one, attach("k", FIRST))).unwrap();
        let (_, doc) = table.disks[&one].docs.iter().find(|(key, _)| key.name == name()).unwrap();
        doc.document().clone()
    };
    // The same holds for imports.
    let mut parts = Document::clone(&document).into_parts();
    let space = Namespace::parse("other").unwrap();
    parts.name = DocName::new(&space, "Album", "a").unwrap();
    let document = Arc::new(Document::from_parts(parts).unwrap());
    let at = table.view().owner_of(slot_of(document.name(), 1024)).0;
    table.blob_stores[&at].clear();
    let import = Op::Documents(DocumentOp::Import(ImportOp { document }));
    match table.call(one, import) {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Imported(Err(it)))) => {
            assert_eq!(it.code().as_str(), "N-BODY");
        }
        other => panic!("imported: {other:?}"),
    }
}

#[test]
fn a_write_that_names_a_body_is_answered_when_every_copy_has_both() {
    let mut table = Table::serving();
    let (owner, copies) = (owner(&table), others(&table));
    table.blob_stores[&owner].put(FIRST);
    table.bodies_come = false;
    let call = table.ask(owner, attach("k", FIRST));
    table.pass(60);
    assert!(!table.replies.contains_key(&call), "it was answered, and copies lack the body");
    for n in copies {
        assert_eq!(has(&table, n, FIRST), (false, false));
        assert!(table.fetches.contains(&(n, FIRST)));
    }
    let part = table.view().home(slot_of(&name(), 1024));
    for n in copies {
        table.blob_stores[&n].put(FIRST);
        table.input(n, Input::BodiesFetched { part });
    }
    // Nothing waited for a resending.
    operated(table.replies.remove(&call).expect("it is answered")).unwrap();
    for n in NUMBERS {
        assert_eq!(has(&table, n, FIRST), (true, true), "manager {n}");
    }
}

#[test]
fn entries_before_the_one_that_waits_for_a_body_are_taken_and_later_ones_keep_their_order() {
    let mut table = Table::serving();
    let owner = owner(&table);
    for n in NUMBERS {
        table.blob_stores[&n].put(FIRST);
    }
    table.blob_stores[&owner].put(SECOND);
    table.bodies_come = false;
    // All three come to the copies at once.
    table.lose = Box::new(|it| matches!(it.message, Message::Prepare { .. }));
    let calls = [("a", FIRST), ("b", SECOND), ("c", FIRST)];
    let calls = calls.map(|(key, body)| table.ask(owner, attach(key, body)));
    table.lose = Box::new(|_| false);
    operated(table.wait_for(calls[0], 2_000)).unwrap();
    assert!(!table.replies.contains_key(&calls[1]) && !table.replies.contains_key(&calls[2]));
    table.bodies_come = true;
    operated(table.wait_for(calls[1], 2_000)).unwrap();
    operated(table.wait_for(calls[2], 2_000)).unwrap();
}

#[test]
fn a_copy_that_cannot_get_a_body_is_dropped_and_comes_back_with_it() {
    let mut table = Table::serving();
    let (owner, [one, other]) = (owner(&table), others(&table));
    table.blob_stores[&owner].put(FIRST);
    table.blob_stores[&one].put(FIRST);
    table.bodies_come = false;
    let call = table.ask(owner, attach("k", FIRST));
    operated(table.wait_for(call, 10_000)).unwrap();
    let slot = slot_of(&name(), 1024);
    let in_sync = |table: &Table| {
        let part = table.view().part_of(slot).1;
        part.has(rota_model::ManagerNumber(other))
    };
    assert!(!in_sync(&table), "it was answered without a copy that is in sync");
    table.pass(3_000);
    assert!(!in_sync(&table) && has(&table, other, FIRST) == (false, false));
    table.bodies_come = true;
    for _ in 0..500 {
        if in_sync(&table) {
            break;
        }
        table.pass(20);
        assert!(!in_sync(&table) || has(&table, other, FIRST) == (true, true));
    }
    assert_eq!(has(&table, other, FIRST), (true, true));
    assert!(in_sync(&table));
}

#[test]
fn a_body_that_died_with_its_owner_is_in_no_log_of_the_next_one() {
    let mut table = Table::serving();
    let (first, [one, _]) = (owner(&table), others(&table));
    table.blob_stores[&first].put(FIRST);
    table.bodies_come = false;
    let call = table.ask(first, attach("k", FIRST));
    table.pass(100);
    assert!(!table.replies.contains_key(&call));
    table.kill(first);
    table.pass(5_000);
    let again = table.ask(one, attach("k", FIRST));
    let refused = operated(table.wait_for(again, 10_000)).unwrap_err();
    assert_eq!(refused.code().as_str(), "N-BODY");
    for n in others(&table) {
        table.blob_stores[&n].put(SECOND);
    }
    table.blob_stores[&owner(&table)].put(SECOND);
    let other = table.ask(one, attach("k", SECOND));
    operated(table.wait_for(other, 10_000)).unwrap();
}

#[test]
fn a_body_that_a_document_named_before_is_not_asked_for_again() {
    let mut table = Table::serving();
    let (owner, [one, _]) = (owner(&table), others(&table));
    table.blob_stores[&owner].put(FIRST);
    operated(table.call(one, attach("k", FIRST))).unwrap();
    table.fetches.clear();
    // Its file was damaged everywhere: that keeps nobody from working with the document.
    for n in NUMBERS {
        table.blob_stores[&n].clear();
        table.blob_stores[&n].put(SECOND);
    }
    operated(table.call(one, attach("other", SECOND))).unwrap();
    assert_eq!(table.fetches, []);
}
