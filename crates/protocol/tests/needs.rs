//! What classes need of their nodes: weight, memory and labels.

use crate::table::asking::{op, space};
use crate::table::*;
use rota_docstore::Request;
use rota_model::node_msg::Register;
use rota_model::{
    ClassDigest, ClassFacts, ClassName, Needs, NodeId, NodeState, Refusal, RefusalKind, Retry,
    parse_label,
};
use rota_protocol::operate::{CONFIGURATION, SPACES_DOCID};
use rota_protocol::{Answer, DocumentAnswer, Op};
use serde_json::json;

fn class() -> ClassName {
    ClassName::parse("big").expect("a short name")
}

/// Three managers, and the only pool may grow to nine nodes of ten places.
fn growing(labels: serde_json::Value) -> Table {
    let mut table = Table::laid();
    table.start_all();
    table.places = 10;
    table.pass(500);
    let settings =
        json!({"provisioner": "process", "max_nodes": 9, "places": 10, "labels": labels});
    let parameters = json!({"name": "default", "allow_missing": true, "settings": settings});
    let set = Request::new(space(CONFIGURATION), "pool.set").with(&parameters).expect("small");
    let call = table.ask(300, op(set, SPACES_DOCID));
    let answer = table.wait_for(call, 1_000);
    assert!(
        matches!(&answer, Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_))))),
        "{answer:?}"
    );
    table.pass(1_000);
    table
}

/// A node of ten places with class `big`, which needs that.
fn comes(table: &mut Table, node: &str, needs: &Needs, labels: &[&str]) {
    let classes = ["big".to_owned(), "builtin".to_owned()];
    let boot = table.config.nodes.len() as u64 + 1;
    table.register_as(node, boot, 10, &classes, |register| {
        let facts = ClassFacts { needs: needs.clone(), ..ClassFacts::default() };
        let labels = labels.iter().map(|it| parse_label(it).expect("a label")).collect();
        let digests = [(class(), ClassDigest(7))].into();
        Register { facts: [(class(), facts)].into(), digests, labels, ..register }
    });
}

fn weighs(weight: u32) -> Needs {
    Needs { weight, ..Needs::default() }
}

fn asks(table: &mut Table, id: &str) -> u64 {
    let mut asked = open(id, id);
    if let Op::Open(open) = &mut asked {
        open.spec.class = class();
    }
    table.ask_within(300, asked, 20_000)
}

fn node_of(table: &mut Table, call: u64) -> String {
    opened(table.wait_for(call, 20_000))
        .1
        .record
        .placement
        .clone()
        .expect("placed")
        .node
        .to_string()
}

fn refusal_of(table: &mut Table, id: &str) -> Refusal {
    let call = asks(table, id);
    table.wait_for(call, 20_000).expect_err("it is refused")
}

/// All names belong to one owner: each manager hears of a load when it asks the node something.
fn names(table: &Table, count: usize) -> Vec<String> {
    let mine = (0..).map(|it| format!("s{it}")).filter(|it| table.owner(it) == 300);
    mine.take(count).collect()
}

#[test]
fn a_heavy_session_takes_its_weight_and_goes_where_that_is_free() {
    let mut table = Table::laid();
    table.start_all();
    table.places = 10;
    table.pass(500);
    comes(&mut table, "n1", &weighs(6), &[]);
    comes(&mut table, "n2", &weighs(6), &[]);
    let ids = names(&table, 3);
    let calls: Vec<u64> = ids.iter().take(2).map(|id| asks(&mut table, id)).collect();
    let nodes: Vec<String> = calls.into_iter().map(|it| node_of(&mut table, it)).collect();
    assert_eq!(nodes, ["n1", "n2"], "six of ten are taken at the first");
    let refusal = refusal_of(&mut table, &ids[2]);
    assert_eq!(refusal.kind, RefusalKind::NoCapacity);
    assert!(
        refusal.message.contains("each of the 2 nodes of pool \"default\" is full"),
        "{refusal}"
    );
}

#[test]
fn opens_that_wait_for_room_order_the_nodes_into_which_they_fit() {
    let mut table = growing(json!({}));
    comes(&mut table, "n1", &weighs(6), &[]);
    // The pool keeps what its nodes say of their classes.
    table.pass(1_500);
    let ids = names(&table, 4);
    let calls: Vec<u64> = ids.iter().map(|id| asks(&mut table, id)).collect();
    table.pass(900);
    // One fits the node that is there, and each other one needs a node of its own.
    assert_eq!(table.ordered.len(), 3);
    for node in std::mem::take(&mut table.ordered) {
        comes(&mut table, node.as_str(), &weighs(6), &[]);
    }
    for call in calls {
        opened(table.wait_for(call, 20_000));
    }
    table.pass(2_000);
    assert_eq!(table.ordered, [] as [NodeId; 0]);
}

#[test]
fn a_class_that_needs_more_than_any_node_has_is_told_so_at_once_and_orders_nothing() {
    let mut table = growing(json!({}));
    comes(&mut table, "n1", &weighs(11), &[]);
    table.pass(1_500);
    let refusal = refusal_of(&mut table, "a");
    assert_eq!((refusal.kind, refusal.retry), (RefusalKind::NoCapacity, Retry::WhenChanged));
    assert!(refusal.message.contains("11 places, and the largest has 10"), "{refusal}");
    // It is so also when no node is left: the pool keeps the text.
    table.register_as("n1", 1, 10, &[], |it| Register { state: NodeState::Removed, ..it });
    table.pass(1_500);
    let refusal = refusal_of(&mut table, "b");
    assert!(refusal.message.contains("11 places, and the largest has 10"), "{refusal}");
    assert_eq!(table.ordered, [] as [NodeId; 0]);
}

#[test]
fn a_class_goes_to_a_node_with_the_labels_that_it_needs() {
    let labels = [parse_label("zone=a").unwrap()].into();
    let needs = Needs { labels, ..Needs::default() };
    let mut table = growing(json!({"zone": "b"}));
    comes(&mut table, "n1", &needs, &["zone=b"]);
    table.pass(1_500);
    let refusal = refusal_of(&mut table, "a");
    assert_eq!((refusal.kind, refusal.retry), (RefusalKind::NoCapacity, Retry::WhenChanged));
    let text = "needs a node with the labels zone=a, and no node of pool \"default\" has them all";
    assert!(refusal.message.contains(text), "{refusal}");
    comes(&mut table, "n2", &needs, &["zone=a", "gpu=yes"]);
    let call = asks(&mut table, "b");
    assert_eq!(node_of(&mut table, call), "n2");
}

#[test]
fn a_new_node_with_the_labels_that_are_needed_is_ordered() {
    let labels = [parse_label("zone=a").unwrap()].into();
    let needs = Needs { labels, ..Needs::default() };
    let mut table = growing(json!({"zone": "a"}));
    comes(&mut table, "n1", &needs, &[]);
    table.pass(1_500);
    let call = asks(&mut table, "a");
    table.pass(900);
    assert_eq!(table.ordered.len(), 1);
    let node = table.ordered.remove(0);
    comes(&mut table, node.as_str(), &needs, &["zone=a"]);
    assert_eq!(node_of(&mut table, call), node.as_str());
}

#[test]
fn a_pool_orders_no_node_that_would_not_take_who_waits() {
    let labels = [parse_label("zone=a").unwrap()].into();
    let needs = Needs { labels, ..Needs::default() };
    // Nodes that it starts have no label.
    let mut table = growing(json!({}));
    comes(&mut table, "n1", &Needs { weight: 10, ..needs.clone() }, &["zone=a"]);
    comes(&mut table, "n2", &Needs { weight: 10, ..needs }, &[]);
    table.pass(1_500);
    let ids = names(&table, 2);
    let first = asks(&mut table, &ids[0]);
    assert_eq!(node_of(&mut table, first), "n1");
    let refusal = refusal_of(&mut table, &ids[1]);
    assert!(matches!(refusal.retry, Retry::AfterMs(_)), "it may end: {refusal}");
    for text in ["1 could not take it if they were empty", "a new node would not take it"] {
        assert!(refusal.message.contains(text), "{refusal}");
    }
    assert!(refusal.message.contains("needs 10 places, labels zone=a"), "{refusal}");
    table.pass(5_000);
    assert_eq!(table.ordered, [] as [NodeId; 0]);
}

#[test]
fn a_class_whose_only_node_is_gone_for_a_moment_is_told_to_try_again() {
    let labels = [parse_label("zone=a").unwrap()].into();
    let needs = Needs { labels, ..Needs::default() };
    let mut table = Table::laid();
    table.start_all();
    table.places = 10;
    table.pass(500);
    comes(&mut table, "n1", &needs, &["zone=a"]);
    comes(&mut table, "n2", &needs, &[]);
    table.pass(1_500);
    table.register_as("n1", 1, 10, &[], |register| {
        let labels = [parse_label("zone=a").expect("a label")].into();
        Register { state: NodeState::Removed, labels, ..register }
    });
    table.pass(500);
    let refusal = refusal_of(&mut table, "a");
    assert!(refusal.message.contains("needs a node with the labels zone=a"), "{refusal}");
    assert!(matches!(refusal.retry, Retry::AfterMs(_)), "n1 may come back: {refusal}");
}
