//! Nodes that a pool ends: those that it needs no more, and those that operators have replaced.

use crate::table::*;
use rota_model::items::Orders;
use rota_model::node_msg::{Register, Renewed};
use rota_model::{ClassFacts, Disturb, NodeId, NodeState, PoolName, Reason, Refusal, SessionState};
use rota_protocol::{Input, NodeOrdered, Transition};
use rota_ring::{DrainTime, NodeOrder, NodeReg, slot_of_node, slot_of_pool};
use serde_json::json;

/// A pool that may grow to nine nodes, of which operators say that, too.
fn shrinking(more: &serde_json::Value) -> Table {
    let mut table = Table::growing();
    table.set_pool(more);
    table
}

/// Ordered nodes come, with a class whose sessions those orders may end. Gives their names.
fn nodes_come(table: &mut Table, disturb: Disturb) -> Vec<String> {
    let ordered: Vec<NodeId> = std::mem::take(&mut table.ordered);
    for node in &ordered {
        boots(table, node.as_str(), disturb);
    }
    table.pass(300);
    ordered.iter().map(ToString::to_string).collect()
}

fn boots(table: &mut Table, node: &str, disturb: Disturb) {
    let facts = ClassFacts { disturb, ..ClassFacts::default() };
    table.register_with_facts(node, 1, table.places, facts);
}

/// Opens a session for which a node comes. Gives the node.
fn open_on_a_new_node(table: &mut Table, id: &str, disturb: Disturb) -> String {
    let waiting = table.ask(300, open(id, id));
    table.pass(400);
    let came = nodes_come(table, disturb);
    opened(table.wait_for(waiting, 2_000));
    came.into_iter().next().expect("one was ordered")
}

fn reg<'a>(table: &'a Table, node: &str) -> &'a NodeReg {
    &table.config.nodes[&NodeId::parse(node).expect("a short name")]
}

/// All nodes that are there renew at all managers, for so long.
fn nodes_renew(table: &mut Table, ms: u64) {
    let end = table.now_ms + ms;
    while table.now_ms < end {
        let there = table.config.nodes.values().filter(|it| !it.state.is_gone());
        let there: Vec<String> = there.map(|it| it.node.to_string()).collect();
        for node in there {
            for n in NUMBERS {
                table.renews(n, &node);
            }
        }
        table.pass(200);
    }
}

/// What the owner of a node tells it: whether it is to end once it is empty.
fn is_told_to_end(table: &mut Table, node: &str) -> bool {
    let owner = table.view().owner_of(slot_of_node(&reg(table, node).node, 1024)).0;
    let told = NUMBERS.map(|n| (n, table.renews(n, node)));
    let ends: Vec<u32> = told
        .iter()
        .filter(|(_, it)| matches!(it, Some(Renewed::Heard { retires: true, .. })))
        .map(|it| it.0)
        .collect();
    assert!(ends.iter().all(|n| *n == owner), "{ends:?} beside {owner}");
    !ends.is_empty()
}

fn order(table: &mut Table, node: &str, order: NodeOrder) -> Result<NodeOrdered, Refusal> {
    table.node_ordered_as = None;
    let node = NodeId::parse(node).expect("a short name");
    table.input(600, Input::NodeOrder { call: 3, node, order });
    table.pass_until("the order is answered", 10_000, |table| table.node_ordered_as.is_some());
    table.node_ordered_as.take().expect("it was waited for")
}

#[test]
fn a_node_that_was_empty_for_the_delay_is_drained_and_told_to_end() {
    let mut table = shrinking(&json!({"scale_in_delay_s": 2}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    nodes_renew(&mut table, 5_000);
    assert_eq!(reg(&table, &node).state, NodeState::Ready, "something runs there");
    assert!(!is_told_to_end(&mut table, &node));
    closed(table.call(300, close("a", "c")));
    nodes_renew(&mut table, 1_500);
    assert_eq!(reg(&table, &node).state, NodeState::Ready, "not for long enough");
    nodes_renew(&mut table, 1_500);
    assert_eq!(reg(&table, &node).state, NodeState::Draining);
    assert!(is_told_to_end(&mut table, &node));
    assert_eq!(table.count(Transition::NodeEnds), 1);
}

#[test]
fn what_is_opened_after_the_last_node_ended_waits_for_a_new_one() {
    let mut table = shrinking(&json!({"scale_in_delay_s": 1}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    closed(table.call(300, close("a", "c")));
    nodes_renew(&mut table, 2_500);
    assert!(is_told_to_end(&mut table, &node));
    let next = open_on_a_new_node(&mut table, "b", Disturb::OnUpgrade);
    assert_ne!(next, node);
}

/// Two nodes with a session each, of which a node has four places.
fn two_lightly_loaded(table: &mut Table, disturb: Disturb) -> [String; 2] {
    let one = open_on_a_new_node(table, "a", disturb);
    order(table, &one, NodeOrder::Cordon).expect("it is there");
    let two = open_on_a_new_node(table, "b", disturb);
    order(table, &one, NodeOrder::Uncordon).expect("it is there");
    [one, two]
}

#[test]
fn a_lightly_loaded_node_is_ended_if_the_others_have_room_for_what_runs_there() {
    let mut table = shrinking(&json!({"scale_in_delay_s": 1, "scale_in_below": 0.5}));
    let nodes = two_lightly_loaded(&mut table, Disturb::Always);
    nodes_renew(&mut table, 4_000);
    // One of them goes, and the other one has no other left for what it runs.
    let states = nodes.each_ref().map(|it| reg(&table, it).state);
    assert_eq!(states, [NodeState::Ready, NodeState::Draining]);
    assert_eq!(got(table.call(300, get("b"))).record.reason, Some(Reason::Drained));
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Ready);
}

#[test]
fn a_lightly_loaded_node_stays_if_something_there_is_not_to_be_disturbed() {
    for disturb in [Disturb::OnUpgrade, Disturb::Never] {
        let mut table = shrinking(&json!({"scale_in_delay_s": 1, "scale_in_below": 0.5}));
        let nodes = two_lightly_loaded(&mut table, disturb);
        nodes_renew(&mut table, 4_000);
        let states = nodes.each_ref().map(|it| reg(&table, it).state);
        assert_eq!(states, [NodeState::Ready; 2]);
        assert_eq!(table.count(Transition::SessionDrained), 0);
    }
}

#[test]
fn nodes_that_came_by_themselves_and_the_last_of_the_minimum_are_never_ended() {
    let mut table = shrinking(&json!({"scale_in_delay_s": 1, "min_nodes": 1}));
    table.pass(1_000);
    let kept = nodes_come(&mut table, Disturb::OnUpgrade);
    assert_eq!(kept.len(), 1);
    nodes_renew(&mut table, 3_000);
    assert_eq!(reg(&table, &kept[0]).state, NodeState::Ready);
    boots(&mut table, "by-hand", Disturb::OnUpgrade);
    nodes_renew(&mut table, 3_000);
    assert_eq!(reg(&table, "by-hand").state, NodeState::Ready);
    // Now there is one more than the minimum, and the pool's own one goes.
    assert_eq!(reg(&table, &kept[0]).state, NodeState::Draining);
}

#[test]
fn the_next_owner_of_the_pool_ends_nodes_too() {
    let mut table = shrinking(&json!({"scale_in_delay_s": 2}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    closed(table.call(300, close("a", "c")));
    let owner = table.view().owner_of(slot_of_pool(&PoolName::default_pool(), 1024)).0;
    table.kill(owner);
    let end = table.now_ms + 20_000;
    while reg(&table, &node).state != NodeState::Draining {
        assert!(table.now_ms < end, "{:?}", reg(&table, &node));
        for n in NUMBERS.into_iter().filter(|n| *n != owner) {
            table.renews(n, &node);
        }
        table.pass(200);
    }
}

#[test]
fn a_replaced_node_is_drained_when_its_successor_takes_sessions() {
    let mut table = shrinking(&json!({}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    let replaced = order(&mut table, &node, NodeOrder::Replace(DrainTime::AsBefore)).unwrap();
    assert!(replaced.changed && replaced.reg.state == NodeState::Cordoned, "{replaced:?}");
    table.pass(3_000);
    assert_eq!(table.ordered.len(), 1, "one comes for it");
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Ready);
    let again = order(&mut table, &node, NodeOrder::Replace(DrainTime::AsBefore)).unwrap();
    assert!(!again.changed);
    let next = nodes_come(&mut table, Disturb::OnUpgrade);
    nodes_renew(&mut table, 2_000);
    assert!(is_told_to_end(&mut table, &node));
    let record = got(table.call(300, get("a"))).record;
    assert_eq!((record.state, record.reason), (SessionState::Closed, Some(Reason::Drained)));
    let (_, session) = opened(table.call(300, open("a", "again")));
    assert_eq!(session.record.placement.as_ref().unwrap().node.as_str(), next[0]);
    table.pass(2_000);
    assert_eq!(table.ordered, []);
}

#[test]
fn the_next_owner_of_the_pool_goes_on_with_a_replacement_and_orders_no_second_node() {
    let mut table = shrinking(&json!({}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    order(&mut table, &node, NodeOrder::Replace(DrainTime::AsBefore)).unwrap();
    table.pass(1_000);
    assert_eq!(table.ordered.len(), 1);
    let owner = table.view().owner_of(slot_of_pool(&PoolName::default_pool(), 1024)).0;
    table.kill(owner);
    for _ in 0..50 {
        for n in NUMBERS.into_iter().filter(|n| *n != owner) {
            table.renews(n, &node);
        }
        table.pass(200);
    }
    assert_eq!(table.ordered.len(), 1, "the successor is known to the next owner");
    nodes_come(&mut table, Disturb::OnUpgrade);
    table.pass(2_000);
    assert_eq!(reg(&table, &node).state, NodeState::Draining);
}

#[test]
fn a_node_that_is_let_serve_again_keeps_what_it_has_although_its_successor_comes() {
    let mut table = shrinking(&json!({}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    order(&mut table, &node, NodeOrder::Replace(DrainTime::AsBefore)).unwrap();
    table.pass(500);
    order(&mut table, &node, NodeOrder::Uncordon).unwrap();
    nodes_come(&mut table, Disturb::OnUpgrade);
    nodes_renew(&mut table, 2_000);
    assert_eq!(reg(&table, &node).state, NodeState::Ready);
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Ready);
}

#[test]
fn a_node_of_a_pool_that_starts_none_is_not_replaced() {
    let mut table = Table::serving();
    let refusal = order(&mut table, "n1", NodeOrder::Replace(DrainTime::AsBefore)).unwrap_err();
    assert!(refusal.message.contains("pool default, which has no provisioner"), "{refusal:?}");
    assert_eq!(reg(&table, "n1").state, NodeState::Ready);
}

/// The provisioner answers what it was asked about. Gives the nodes.
fn answers(table: &mut Table, failure: Option<&str>) -> Vec<String> {
    let asked = std::mem::take(&mut table.to_clear);
    for (n, pool, node) in &asked {
        let (pool, node, failure) = (pool.clone(), node.clone(), failure.map(str::to_owned));
        table.input(*n, Input::NodeCleared { pool, node, failure });
    }
    asked.into_iter().map(|it| it.2.to_string()).collect()
}

/// A node says that it has left.
fn leaves(table: &mut Table, node: &str) {
    table.register_as(node, 1, table.places, &["builtin".to_owned()], |register| Register {
        state: NodeState::Removed,
        ..register
    });
}

/// What is written down of what the pool ordered.
fn orders(table: &Table) -> Orders {
    let key = rota_messages::documents::orders_name(&PoolName::default_pool());
    let owner = table.view().owner_of(slot_of_pool(&PoolName::default_pool(), 1024)).0;
    let doc = table.disks[&owner].docs.iter().find(|(it, _)| it.name == key);
    doc.and_then(|(_, doc)| doc.orders()).cloned().unwrap_or_default()
}

/// What operators are told of nodes of the pool of which something is left.
fn end_failure(table: &Table) -> String {
    orders(table).end_failure
}

#[test]
fn what_is_left_of_a_node_that_has_left_is_cleared_away_once() {
    let mut table = shrinking(&json!({}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    table.pass(3_000);
    assert_eq!(table.to_clear, [], "it is there");
    leaves(&mut table, &node);
    table.pass(2_000);
    assert_eq!(answers(&mut table, Some("no answer")), std::slice::from_ref(&node));
    assert_eq!(table.count(Transition::NodeNotCleared), 1);
    table.pass(20_000);
    assert_eq!(table.to_clear, [], "not at once");
    let told = end_failure(&table);
    assert_eq!(told, format!("what is left of node {node} was not ended: no answer"));
    table.pass(15_000);
    assert_eq!(end_failure(&table), told, "until an end succeeds");
    assert_eq!(answers(&mut table, None), [node]);
    table.pass(2_000);
    assert_eq!(end_failure(&table), "");
    table.pass(60_000);
    assert_eq!(table.to_clear, []);
}

#[test]
fn a_node_that_never_came_is_cleared_away_when_it_is_given_up_and_one_that_is_lost_is_not() {
    let mut table = shrinking(&json!({}));
    let lost = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    order(&mut table, &lost, NodeOrder::Cordon).unwrap();
    let waiting = table.ask(300, open("b", "b"));
    table.pass(2_000);
    let never: Vec<NodeId> = std::mem::take(&mut table.ordered);
    assert_eq!(never.len(), 1);
    table.pass(60_000);
    assert_eq!(table.to_clear, [], "the provisioner is at it still");
    for (by, order) in std::mem::take(&mut table.orders) {
        table.input(
            by,
            Input::Provisioned { order, begun: true, failed: Vec::new(), failure: None },
        );
    }
    let _ = table.wait_for(waiting, 30_000);
    // By now nobody has heard of the first one for long.
    table.pass(30_000);
    assert_eq!(reg(&table, &lost).state, NodeState::Lost);
    assert_eq!(table.to_clear, [], "both may come");
    table.pass(50_000);
    assert_eq!(answers(&mut table, Some("no answer")), [never[0].to_string()]);
    table.pass(35_000);
    let left = |table: &Table| {
        let it = orders(table);
        [it.ordered, it.overdue, it.to_clear].concat()
    };
    assert_eq!(left(&table), never, "until an end succeeds");
    assert_eq!(answers(&mut table, None), [never[0].to_string()]);
    table.pass(2_000);
    assert_eq!((left(&table), end_failure(&table)), (Vec::new(), String::new()));
}

#[test]
fn a_pool_that_was_deleted_has_its_lost_nodes_ended_when_they_are_forgotten() {
    let mut table = shrinking(&json!({}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    table.pass(90_000);
    assert_eq!(reg(&table, &node).state, NodeState::Lost);
    table.operate("pool.remove", &json!({"name": "default"}));
    table.pass(2_000);
    assert_eq!(table.to_clear, [], "it may come back");
    order(&mut table, &node, NodeOrder::Forget).expect("it is lost");
    table.pass(2_000);
    assert_eq!(answers(&mut table, None), [node]);
}

/// An order of the pool fails.
fn order_fails(table: &mut Table, id: &str) {
    let waiting = table.ask(300, open(id, id));
    table.pass(400);
    for (by, order) in std::mem::take(&mut table.orders) {
        let failed = std::mem::take(&mut table.ordered);
        table.input(
            by,
            Input::Provisioned { order, begun: true, failed, failure: Some("no quota".to_owned()) },
        );
    }
    let _ = table.wait_for(waiting, 30_000);
    assert_eq!(orders(table).failure, "no quota");
}

#[test]
fn nothing_is_cleared_away_of_nodes_whose_provisioner_nobody_knew() {
    let mut table = shrinking(&json!({}));
    let waiting = table.ask(300, open("a", "a"));
    table.pass(400);
    for (by, order) in std::mem::take(&mut table.orders) {
        let failed = std::mem::take(&mut table.ordered);
        let failure = Some("no such provisioner".to_owned());
        table.input(by, Input::Provisioned { order, begun: false, failed, failure });
    }
    let _ = table.wait_for(waiting, 30_000);
    assert_eq!(orders(&table).failure, "no such provisioner");
    table.pass(90_000);
    assert_eq!(table.to_clear, [], "nothing was begun");
    assert_eq!(end_failure(&table), "");
}

#[test]
fn a_pool_that_is_described_otherwise_has_no_failure_of_the_orders_before() {
    let mut table = shrinking(&json!({}));
    order_fails(&mut table, "a");
    table.set_pool(&json!({"provisioner": "process"}));
    assert_eq!(orders(&table).failure, "no quota", "nothing changed");
    table.set_pool(&json!({"provisioner": "docker"}));
    assert_eq!(orders(&table).failure, "");
}

#[test]
fn a_pool_that_gets_the_name_of_a_deleted_one_gets_none_of_its_failures() {
    let mut table = shrinking(&json!({}));
    order_fails(&mut table, "a");
    table.operate("pool.remove", &json!({"name": "default"}));
    table.pass(1_000);
    table.set_pool(&json!({"provisioner": "process", "max_nodes": 9, "places": 4}));
    let now = orders(&table);
    assert_eq!((now.failure.as_str(), now.end_failure.as_str()), ("", ""));
    assert!(now.decisions > 0, "names of nodes are given once");
}

#[test]
fn a_node_of_somebody_else_is_never_cleared_away() {
    let mut table = shrinking(&json!({}));
    boots(&mut table, "by-hand", Disturb::OnUpgrade);
    table.pass(1_000);
    leaves(&mut table, "by-hand");
    table.pass(5_000);
    assert_eq!(table.to_clear, []);
}

#[test]
fn what_did_not_start_is_cleared_away_although_other_nodes_were_ordered_since() {
    let mut table = shrinking(&json!({}));
    let waiting = table.ask(300, open("a", "a"));
    table.pass(400);
    let never: Vec<NodeId> = std::mem::take(&mut table.ordered);
    for (by, order) in std::mem::take(&mut table.orders) {
        let (failed, failure) = (never.clone(), Some("no quota".to_owned()));
        table.input(by, Input::Provisioned { order, begun: true, failed, failure });
    }
    // It asks again as long as it waits, and another one is ordered when the order has lapsed.
    let _ = table.wait_for(waiting, 30_000);
    let again = table.ask(300, open("b", "b"));
    table.pass(4_000);
    assert_eq!(table.ordered.len(), 1, "{:?}", table.ordered);
    table.pass(2_000);
    assert_eq!(answers(&mut table, None), [never[0].to_string()]);
    nodes_come(&mut table, Disturb::OnUpgrade);
    opened(table.wait_for(again, 2_000));
    table.pass(5_000);
    assert_eq!(table.to_clear, []);
}

#[test]
fn a_node_out_of_reach_is_not_ended_by_what_was_known_of_it_before() {
    let mut table = shrinking(&json!({"scale_in_delay_s": 8}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    closed(table.call(300, close("a", "c")));
    nodes_renew(&mut table, 500);
    // Nothing is heard of it, and it is not lost yet.
    table.pass(15_000);
    assert_eq!(reg(&table, &node).state, NodeState::Ready);
    nodes_renew(&mut table, 10_000);
    assert_eq!(reg(&table, &node).state, NodeState::Draining);
}

#[test]
fn a_session_whose_class_nobody_knows_any_more_is_only_waited_for() {
    let mut table = shrinking(&json!({}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    table.pass(500);
    // Its agent reads its class files again, and this one is gone.
    let live = table.live.clone();
    let places = table.places;
    table.register_as(&node, 1, places, &["other".to_owned()], |register| register);
    table.live = live;
    table.pass(2_000);
    order(&mut table, &node, NodeOrder::Drain(DrainTime::AsBefore)).unwrap();
    table.pass(2_000);
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Ready);
    order(&mut table, &node, NodeOrder::Drain(DrainTime::Force)).unwrap();
    table.pass(2_000);
    assert_eq!(got(table.call(300, get("a"))).record.reason, Some(Reason::Drained));
}

/// A node comes for an open that waits, and leaves by itself. Gives how long the open waited for the order, in ms; at
/// most a minute.
fn waits_for_a_node_that_leaves(table: &mut Table, id: &str) -> u64 {
    let before = table.now_ms;
    table.ask_within(300, open(id, id), 60_000);
    while table.ordered.is_empty() && table.now_ms < before + 59_000 {
        table.pass(100);
    }
    let waited = table.now_ms - before;
    for (by, order) in std::mem::take(&mut table.orders) {
        table.input(
            by,
            Input::Provisioned { order, begun: true, failed: Vec::new(), failure: None },
        );
    }
    for node in nodes_come(table, Disturb::OnUpgrade) {
        leaves(table, &node);
    }
    table.pass(500);
    waited
}

#[test]
fn nodes_that_end_soon_after_they_came_are_ordered_ever_later_and_people_are_told() {
    let mut table = shrinking(&json!({}));
    let waited: Vec<u64> =
        (0..4).map(|it| waits_for_a_node_that_leaves(&mut table, &format!("s{it}"))).collect();
    // Twice at once, and then after 10 and 20 s.
    assert!(waited[..2].iter().all(|it| *it < 1_000), "{waited:?}");
    assert!((8_000..12_000).contains(&waited[2]), "{waited:?}");
    assert!((18_000..22_000).contains(&waited[3]), "{waited:?}");
    let call = table.ask_within(300, open("t", "t"), 2_000);
    let refusal = table.wait_for(call, 3_000).unwrap_err();
    let told = "nodes of the last 4 orders ended within a minute of their coming, node default-4-0 as the last one";
    assert!(refusal.message.contains(told), "{refusal:?}");
    assert!(refusal.message.contains("40 s after that"), "{refusal:?}");
    let key = rota_messages::documents::orders_name(&PoolName::default_pool());
    let written = table.disks[&300].docs.iter().find(|(it, _)| it.name == key);
    let failure = written.and_then(|(_, doc)| doc.orders()).map(|it| it.failure.clone());
    assert!(failure.as_ref().is_some_and(|it| it.contains(told)), "{failure:?}");
    // Other settings end the wait.
    table.set_pool(&json!({"places": 5}));
    assert!(waits_for_a_node_that_leaves(&mut table, "u") < 1_500);
    assert!(waits_for_a_node_that_leaves(&mut table, "v") < 1_500);
}

#[test]
fn a_node_that_lasts_ends_the_count_of_those_that_did_not() {
    let mut table = shrinking(&json!({}));
    assert!(waits_for_a_node_that_leaves(&mut table, "s0") < 1_000);
    let lasts = open_on_a_new_node(&mut table, "s1", Disturb::OnUpgrade);
    nodes_renew(&mut table, 61_000);
    order(&mut table, &lasts, NodeOrder::Cordon).unwrap();
    assert!(waits_for_a_node_that_leaves(&mut table, "s2") < 1_000);
    assert!(waits_for_a_node_that_leaves(&mut table, "s3") < 1_000, "two in a row are no loop");
}

#[test]
fn nodes_that_operators_drain_are_no_crash() {
    let mut table = shrinking(&json!({}));
    for id in ["s0", "s1", "s2"] {
        let before = table.now_ms;
        let node = open_on_a_new_node(&mut table, id, Disturb::OnUpgrade);
        assert!(table.now_ms < before + 2_000, "{id}");
        order(&mut table, &node, NodeOrder::Cordon).unwrap();
        leaves(&mut table, &node);
        table.pass(500);
    }
}

#[test]
fn what_is_left_of_a_node_is_ended_by_whoever_started_it() {
    let mut table = shrinking(&json!({}));
    let node = open_on_a_new_node(&mut table, "a", Disturb::OnUpgrade);
    table.set_pool(&json!({"provisioner": "another"}));
    leaves(&mut table, &node);
    table.pass(2_000);
    assert_eq!(table.cleared_by, table.started_by);
    assert_eq!(answers(&mut table, None), [node]);
    // Also when the pool starts none any more.
    let node = open_on_a_new_node(&mut table, "b", Disturb::OnUpgrade);
    table.set_pool(&json!({"provisioner": null, "places": 0, "max_nodes": 0}));
    leaves(&mut table, &node);
    table.pass(2_000);
    assert_eq!(answers(&mut table, None), [node]);
    let names = table.cleared_by.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names, ["process", "another"]);
}
