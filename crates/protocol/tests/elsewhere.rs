//! Sessions that a node does not take.

use crate::table::*;
use rota_model::node_msg::{Blame, DeadToken, NodeAnswer, ToNode};
use rota_model::{Changed, Outcome, Reason, RefusalKind, SessionState};
use rota_protocol::Transition;

/// The creates that nodes were asked for since the last look.
fn creates(table: &mut Table) -> Vec<(u32, ToNode)> {
    let calls = std::mem::take(&mut table.node_calls);
    calls.into_iter().filter(|(_, it)| matches!(it, ToNode::Create { .. })).collect()
}

/// Answers a create: it never started there.
fn never_started(table: &mut Table, node: &str, create: &(u32, ToNode), blame: Blame) {
    let detail = format!("the lease of node {node} has run out");
    let answer = NodeAnswer::Dead(DeadToken::NeverStarted { blame, detail });
    table.node_says(create.0, node, create.1.head().call, answer);
    table.settle();
}

#[test]
fn an_open_goes_elsewhere_when_the_lease_of_its_node_has_run_out() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let call = table.ask(owner, open("a", "r1"));
    let create = creates(&mut table).remove(0);
    table.register("n2", 8);
    never_started(&mut table, "n1", &create, Blame::Node);
    table.manual_nodes = false;
    let (outcome, session) = opened(table.wait_for(call, 1_000));
    let node = session.record.placement.as_ref().map(|it| it.node.as_str().to_owned());
    assert_eq!((outcome, node.as_deref()), (Outcome::Created, Some("n2")));
    assert_eq!(table.count(Transition::NodeUnable), 1);
    // For a while nothing else is asked of it either, though it is as empty as the other.
    let other = ["b", "c", "d", "e", "f"].into_iter().find(|id| table.owner(id) == owner);
    let (_, session) = opened(table.call(owner, open(other.expect("one of five"), "r2")));
    let node = session.record.placement.as_ref().map(|it| it.node.as_str());
    assert_eq!(node, Some("n2"));
}

#[test]
fn an_open_waits_for_the_lease_of_the_only_node_and_asks_it_now_and_then() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let call = table.ask(owner, open("a", "r1"));
    let mut asked = 0;
    for _ in 0..50 {
        for create in creates(&mut table) {
            asked += 1;
            never_started(&mut table, "n1", &create, Blame::Node);
        }
        assert!(!table.replies.contains_key(&call), "{:?}", table.replies);
        table.pass(100);
    }
    assert!((4..=6).contains(&asked), "about once in a second, not {asked} times in 5 s");
    // The lease is renewed.
    for create in creates(&mut table) {
        never_started(&mut table, "n1", &create, Blame::Node);
    }
    table.manual_nodes = false;
    let (outcome, _) = opened(table.wait_for(call, 2_000));
    assert_eq!(outcome, Outcome::Created);
}

#[test]
fn an_open_that_no_node_took_changed_nothing_once_the_end_is_committed_and_leaves_no_record_for_long()
 {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let call = table.ask_within(owner, open("a", "r1"), 1_500);
    for _ in 0..20 {
        for create in creates(&mut table) {
            never_started(&mut table, "n1", &create, Blame::Node);
        }
        table.pass(100);
    }
    let refusal = table.wait_for(call, 1_000).expect_err("nothing runs");
    assert_eq!(refusal.kind, RefusalKind::NoCapacity, "{refusal:?}");
    // Gets and watches have seen a life of it begin and end; nothing is left that could run.
    assert_eq!(refusal.changed, Changed::No, "{refusal:?}");
    let left = got(table.call(owner, get("a"))).record;
    assert_eq!((left.state, left.reason), (SessionState::Failed, Some(Reason::NoCapacity)));
    table.pass(9_000);
    got(table.call(owner, get("a")));
    table.pass(15_000);
    assert_eq!(refused(table.call(owner, get("a"))), RefusalKind::NotFound);
    // The repetition begins anew. The node that took nothing was lost meanwhile, and is back.
    table.register("n1", 8);
    table.manual_nodes = false;
    let (outcome, session) = opened(table.call(owner, open("a", "r1")));
    assert_eq!(outcome, Outcome::Created);
    assert!(session.record.life > left.life, "lives go up, also of what is forgotten");
}

#[test]
fn a_life_that_no_node_took_stays_known_where_an_earlier_request_is_remembered_in_its_record() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r0")));
    closed(table.call(owner, close("a", "c0")));
    table.manual_nodes = true;
    let call = table.ask_within(owner, open("a", "r1"), 1_500);
    for _ in 0..20 {
        for create in creates(&mut table) {
            never_started(&mut table, "n1", &create, Blame::Node);
        }
        table.pass(100);
    }
    assert_eq!(refused(table.wait_for(call, 1_000)), RefusalKind::NoCapacity);
    table.pass(60_000);
    let left = got(table.call(owner, get("a"))).record;
    assert_eq!(left.reason, Some(Reason::NoCapacity));
    let (outcome, _) = opened(table.call(owner, open("a", "r0")));
    assert_eq!(outcome, Outcome::Created, "the old answer");
    assert!(table.node_calls.is_empty(), "nothing is started: {:?}", table.node_calls);
}

#[test]
fn an_open_whose_life_ends_is_not_said_to_have_changed_nothing_before_that_is_committed() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let call = table.ask_within(owner, open("a", "r1"), 1_500);
    let create = creates(&mut table).remove(0);
    // The end is written, and its copies never say so.
    for number in NUMBERS.into_iter().filter(|it| *it != owner) {
        table.kill(number);
    }
    let detail = "it is full".to_owned();
    let answer = NodeAnswer::Dead(DeadToken::NeverStarted { blame: Blame::Node, detail });
    table.node_says(create.0, "n1", create.1.head().call, answer);
    table.settle();
    let refusal = table.wait_for(call, 2_000).expect_err("nothing runs");
    assert_eq!(refusal.changed, Changed::Unknown, "{refusal:?}");
}

#[test]
fn an_open_that_found_no_room_changed_nothing_and_leaves_no_record() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    table.register_with("n1", 8, 0);
    let call = table.ask_within(owner, open("a", "r1"), 1_500);
    let refusal = table.wait_for(call, 2_000).expect_err("nothing runs");
    assert_eq!(refusal.kind, RefusalKind::NoCapacity, "{refusal:?}");
    assert_eq!(refusal.changed, Changed::No, "{refusal:?}");
    assert_eq!(refused(table.call(owner, get("a"))), RefusalKind::NotFound);
}

#[test]
fn an_open_that_waits_beside_one_whose_life_ended_changed_nothing_itself() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let first = table.ask_within(owner, open("a", "r1"), 3_000);
    let second = table.ask_within(owner, open("a", "r2"), 500);
    let create = creates(&mut table).remove(0);
    never_started(&mut table, "n1", &create, Blame::Node);
    let refusal = table.wait_for(second, 600).expect_err("nothing runs");
    assert_eq!(refusal.changed, Changed::No, "{refusal:?}");
    table.manual_nodes = false;
    assert_eq!(opened(table.wait_for(first, 3_000)).0, Outcome::Created);
}

#[test]
fn a_session_that_starts_nowhere_is_given_up_and_says_so() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let call = table.ask(owner, open("a", "r1"));
    let create = creates(&mut table).remove(0);
    never_started(&mut table, "n1", &create, Blame::Session);
    assert_eq!(refused(table.wait_for(call, 1_000)), RefusalKind::StartFailed);
}
