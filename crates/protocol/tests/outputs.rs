//! What programs printed last: kept by life beside the session, for as long as its class says.

use crate::table::*;
use rota_docstore::*;
use rota_protocol::api::OperateOp;
use rota_protocol::kept_outputs::{kept_outputs, output_name};
use rota_protocol::operate::slot_of;
use rota_protocol::{DocKey, DocumentAnswer, DocumentOp, Op};
use serde_json::{Value, json};
use std::sync::Arc;

fn digest(number: u8) -> Digest {
    Digest([number; 32])
}

fn end(body: u8) -> Value {
    json!({"from": 10, "bytes": 9, "sha256": digest(body).to_string()})
}

fn keep(table: &mut Table, parameters: &Value) -> Result<Answer, Exception> {
    let request = Request::new(Namespace::default_space(), "session.output");
    let request = Arc::new(request.with(parameters).unwrap());
    let op = OperateOp { request, docid: "a".to_owned() };
    match table.call(NUMBERS[0], Op::Documents(DocumentOp::Operate(op))) {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Operated(it))) => it,
        other => panic!("not operated: {other:?}"),
    }
}

/// Of the life with that number, whose bodies every manager holds.
fn of_life(table: &mut Table, life: u64, bodies: [u8; 2], keep_ms: u64) {
    for number in NUMBERS {
        let blob_store = &table.blob_stores[&number];
        bodies.iter().for_each(|it| blob_store.put(digest(*it)));
    }
    let life = 210_101_000_000_000 + life;
    let [stdout, stderr] = bodies.map(end);
    let parameters = json!({"id": "a", "life": life, "node": "n1", "keep_ms": keep_ms, "stdout": stdout, "stderr": stderr});
    keep(table, &parameters).unwrap();
}

fn document(table: &Table) -> Option<Arc<Document>> {
    let name = output_name(&key("a"));
    let at = DocKey::new(slot_of(&name, table.view().m), name);
    let disk = &table.disks[&table.owner("a")];
    disk.docs.get(&at).map(|it| it.document().clone())
}

fn lives(table: &Table) -> Vec<u64> {
    let document = document(table).expect("it is kept");
    let kept = kept_outputs(&document).unwrap();
    kept.iter().map(|it| it.0.as_u64() - 210_101_000_000_000).collect()
}

#[test]
fn the_newest_lives_are_kept_with_the_bodies_that_they_name() {
    let mut table = Table::serving();
    for life in 1..=6 {
        // All have one body in common.
        of_life(&mut table, life, [1, 10 + u8::try_from(life).unwrap()], 60_000);
    }
    table.pass(100);
    assert_eq!(lives(&table), [3, 4, 5, 6]);
    let bodies: Vec<Digest> = document(&table).unwrap().bodies().collect();
    assert_eq!(bodies, [1, 13, 14, 15, 16].map(digest));
}

#[test]
fn what_is_kept_of_a_life_stays_as_it_is() {
    let mut table = Table::serving();
    of_life(&mut table, 1, [1, 2], 60_000);
    table.pass(100);
    let before = document(&table);
    of_life(&mut table, 1, [3, 4], 90_000);
    table.pass(100);
    assert_eq!(document(&table), before);
}

#[test]
fn few_bytes_stand_in_the_document_and_need_no_body() {
    let mut table = Table::serving();
    let text = |text: &str, bytes: usize| {
        let stdout = json!({"from": 0, "bytes": bytes, "text": text});
        json!({"id": "a", "life": 210_101_000_000_001_u64, "node": "n1", "keep_ms": 60_000, "stdout": stdout})
    };
    let refused = keep(&mut table, &text("hello", 6)).unwrap_err().to_string();
    assert!(refused.contains("stdout.text has 5 bytes, and not 6"), "{refused}");
    let refused = keep(&mut table, &text(&"x".repeat(1_025), 1_025)).unwrap_err().to_string();
    assert!(refused.contains("the limit is 1024"), "{refused}");
    keep(&mut table, &text("hello", 5)).unwrap();
    table.pass(100);
    let document = document(&table).unwrap();
    assert_eq!(document.bodies().count(), 0);
    let kept = kept_outputs(&document).unwrap();
    let stdout = kept[0].1.stdout.as_ref().unwrap();
    assert_eq!((stdout.text.as_deref(), stdout.body()), (Some("hello"), None));
}

#[test]
fn it_goes_when_its_time_is_over_and_a_later_life_is_kept_again() {
    let mut table = Table::serving();
    of_life(&mut table, 1, [1, 2], 30_000);
    of_life(&mut table, 2, [1, 3], 60_000);
    table.pass(45_000);
    assert_eq!(lives(&table), [1, 2], "one of them is wanted");
    table.pass(45_000);
    assert_eq!(document(&table), None);
    of_life(&mut table, 3, [4, 5], 30_000);
    table.pass(100);
    assert_eq!(lives(&table), [3]);
}

#[test]
fn what_is_too_large_or_kept_for_too_long_is_refused_by_its_field() {
    let mut table = Table::serving();
    let whole = json!({"id": "a", "life": 210_101_000_000_001_u64, "node": "n1", "keep_ms": 1});
    let with = |field: &str, value: Value| {
        let mut parameters = whole.clone();
        parameters[field] = value;
        parameters
    };
    let long = with("keep_ms", json!(31_u64 * 86_400_000));
    assert!(keep(&mut table, &long).unwrap_err().to_string().contains("keep_ms"));
    let large = json!({"from": 0, "bytes": 1_048_577, "sha256": digest(1).to_string()});
    let refused = keep(&mut table, &with("stderr", large)).unwrap_err();
    assert!(refused.to_string().contains("stderr.bytes"), "{refused}");
    let written = json!({"changes": [{"class": "session-output", "docid": "a", "life": "ensure"}]});
    let request = Request::new(Namespace::default_space(), "document.write");
    let request = Arc::new(request.with(&written).unwrap());
    let op = OperateOp { request, docid: "a".to_owned() };
    let answer = table.call(NUMBERS[0], Op::Documents(DocumentOp::Operate(op)));
    assert!(format!("{answer:?}").contains("has a meaning of its own"), "{answer:?}");
}

fn operate(table: &mut Table, operation: &str, parameters: &Value) -> Result<Answer, Exception> {
    let request = Request::new(Namespace::default_space(), operation);
    let request = Arc::new(request.with(parameters).unwrap());
    let op = OperateOp { request, docid: "a".to_owned() };
    match table.call(NUMBERS[0], Op::Documents(DocumentOp::Operate(op))) {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Operated(it))) => it,
        other => panic!("not operated: {other:?}"),
    }
}

#[test]
fn only_a_life_that_there_was_and_its_node_are_believed() {
    let mut table = Table::serving();
    let (_, session) = opened(table.call(NUMBERS[0], open("a", "r1")));
    table.pass(100);
    let life = session.record.life.as_u64();
    let of = |life: u64, node: &str| {
        let stdout = json!({"from": 0, "bytes": 2, "text": "hi"});
        json!({"id": "a", "life": life, "node": node, "keep_ms": 60_000, "stdout": stdout})
    };
    let refused = keep(&mut table, &of(life + 1, "n1")).unwrap_err().to_string();
    assert!(refused.contains("no life of the session"), "{refused}");
    let refused = keep(&mut table, &of(life, "n2")).unwrap_err().to_string();
    assert!(refused.contains("does not run there"), "{refused}");
    keep(&mut table, &of(life, "n1")).unwrap();
    // Of an earlier life the record tells nothing.
    keep(&mut table, &of(210_101_000_000_001, "n9")).unwrap();
    table.pass(100);
    assert_eq!(kept_outputs(&document(&table).unwrap()).unwrap().len(), 2);
}

#[test]
fn what_is_kept_can_be_removed_before_its_time() {
    let mut table = Table::serving();
    of_life(&mut table, 1, [1, 2], 60_000);
    of_life(&mut table, 2, [1, 3], 60_000);
    let one = json!({"id": "a", "life": 210_101_000_000_001_u64});
    operate(&mut table, "session.forget_output", &one).unwrap();
    table.pass(100);
    assert_eq!(lives(&table), [2]);
    assert_eq!(document(&table).unwrap().bodies().collect::<Vec<_>>(), [1, 3].map(digest));
    let all = json!({"id": "a"});
    for _ in 0..2 {
        operate(&mut table, "session.forget_output", &all).unwrap();
    }
    table.pass(100);
    assert!(document(&table).is_none_or(|it| it.is_deleted()));
}
