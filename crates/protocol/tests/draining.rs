//! Nodes that operators cordon, drain, and let serve again.

use crate::table::*;
use rota_model::node_msg::ToNode;
use rota_model::{
    ClassFacts, Disturb, NodeId, NodeState, Outcome, Reason, Refusal, RefusalKind, SessionState,
};
use rota_protocol::{Input, NodeOrdered, Transition};
use rota_ring::{DrainTime, NodeOrder};

const AT_ONCE: NodeOrder = NodeOrder::Drain(DrainTime::AsBefore);
const SESSIONS: usize = 40;

fn id(node: &str) -> NodeId {
    NodeId::parse(node).expect("a short name")
}

fn within(ms: u64) -> NodeOrder {
    NodeOrder::Drain(DrainTime::Ms(ms))
}

/// Gives an order about a node through a manager, and its answer.
fn order(table: &mut Table, n: u32, node: &str, order: NodeOrder) -> Result<NodeOrdered, Refusal> {
    table.node_ordered_as = None;
    let node = id(node);
    table.input(n, Input::NodeOrder { call: 3, node, order });
    let end = table.now_ms + 10_000;
    while table.node_ordered_as.is_none() {
        assert!(table.now_ms < end, "the order is not answered");
        table.pass(20);
    }
    table.node_ordered_as.take().expect("the loop has waited for it")
}

/// Two nodes, and sessions all over the ring on the first.
fn filled() -> Table {
    let mut table = Table::serving();
    for index in 0..SESSIONS {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    table.register("n2", 9);
    table
}

/// A node boots with a class whose sessions those orders may end.
fn boots(table: &mut Table, node: &str, boot: u64, disturb: Disturb) {
    let facts = ClassFacts { disturb, ..ClassFacts::default() };
    table.register_with_facts(node, boot, 100, facts);
}

/// Sessions that have not ended on a node, by what the owners say.
fn left(table: &Table, node: &str) -> u64 {
    let node = id(node);
    let view = table.view();
    let owned = |n: u32, part| view.parts.get(&part).is_some_and(|it| it.owner.0 == n);
    let all = table.managers.iter().flat_map(|(n, manager)| {
        let parts = manager.stats().parts.into_iter().filter(|it| owned(*n, it.part));
        parts.map(|it| it.on_nodes.get(&node).copied().unwrap_or(0)).collect::<Vec<_>>()
    });
    all.sum()
}

fn state(table: &Table, node: &str) -> NodeState {
    table.config.nodes[&id(node)].state
}

fn empties(table: &mut Table, node: &str) {
    for _ in 0..500 {
        if left(table, node) == 0 {
            return;
        }
        table.pass(20);
    }
    panic!("{} sessions are left on {node}", left(table, node));
}

#[test]
fn nothing_is_placed_on_a_cordoned_node_and_what_runs_there_runs_on() {
    let mut table = filled();
    let cordoned = order(&mut table, 600, "n1", NodeOrder::Cordon).unwrap();
    assert!(cordoned.changed && cordoned.reg.state == NodeState::Cordoned, "{cordoned:?}");
    for index in 0..SESSIONS {
        let (outcome, session) = opened(table.call(300, open(&format!("new{index}"), "n")));
        assert_eq!(outcome, Outcome::Created);
        assert_eq!(session.record.placement.as_ref().unwrap().node.as_str(), "n2");
    }
    table.pass(2_000);
    assert_eq!(left(&table, "n1"), SESSIONS as u64);
    assert!(order(&mut table, 300, "n2", NodeOrder::Cordon).unwrap().changed);
    let refused = table.ask_within(300, open("no room", "x"), 2_000);
    let refusal = table.wait_for(refused, 3_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NoCapacity);
    assert!(refusal.message.contains("each of the 2 nodes"), "{}", refusal.message);
    assert!(refusal.message.contains("cordoned"), "{}", refusal.message);
    let waiting = table.ask(300, open("waits", "w"));
    order(&mut table, 600, "n1", NodeOrder::Uncordon).unwrap();
    let (_, session) = opened(table.wait_for(waiting, 500));
    assert_eq!(session.record.placement.as_ref().unwrap().node.as_str(), "n1");
}

#[test]
fn a_drained_node_becomes_empty_and_takes_nothing_until_it_is_uncordoned() {
    let mut table = filled();
    opened(table.call(300, open("elsewhere", "e")));
    order(&mut table, 300, "n2", NodeOrder::Cordon).unwrap();
    let elsewhere = got(table.call(300, get("elsewhere")));
    let before = left(&table, "n2");
    assert!(order(&mut table, 1000, "n1", AT_ONCE).unwrap().changed);
    empties(&mut table, "n1");
    for index in 0..SESSIONS {
        let record = got(table.call(600, get(&format!("s{index}")))).record;
        assert_eq!((record.state, record.reason), (SessionState::Closed, Some(Reason::Drained)));
        assert!(record.detail.contains("node n1 is drained"), "{}", record.detail);
    }
    assert_eq!(left(&table, "n2"), before, "{elsewhere:?}");
    assert_eq!(state(&table, "n1"), NodeState::Draining);
    order(&mut table, 300, "n2", NodeOrder::Uncordon).unwrap();
    let (outcome, again) = opened(table.call(300, open("s0", "again")));
    assert_eq!(outcome, Outcome::Created);
    assert_eq!(again.record.placement.as_ref().unwrap().node.as_str(), "n2");
    // Twice is as good as once.
    assert!(!order(&mut table, 600, "n1", AT_ONCE).unwrap().changed);
    let back = order(&mut table, 600, "n1", NodeOrder::Uncordon).unwrap();
    assert_eq!(back.reg.state, NodeState::Ready);
    order(&mut table, 300, "n2", NodeOrder::Cordon).unwrap();
    let (_, session) = opened(table.call(300, open("back", "b")));
    assert_eq!(session.record.placement.as_ref().unwrap().node.as_str(), "n1");
}

#[test]
fn sessions_may_end_by_themselves_until_their_time_is_over() {
    let mut table = filled();
    order(&mut table, 300, "n1", within(3_000)).unwrap();
    table.pass(2_000);
    closed(table.call(300, close("s0", "c")));
    assert_eq!(left(&table, "n1"), SESSIONS as u64 - 1);
    table.pass(1_500);
    empties(&mut table, "n1");
    let by_client = got(table.call(300, get("s0"))).record;
    assert_eq!(by_client.reason, Some(Reason::ClosedByClient));
    assert_eq!(got(table.call(300, get("s1"))).record.reason, Some(Reason::Drained));
}

#[test]
fn a_drain_waits_for_sessions_that_are_never_disturbed_until_it_is_forced() {
    let mut table = Table::laid();
    table.start_all();
    boots(&mut table, "n1", 1, Disturb::Never);
    table.pass(1_500);
    for id in ["a", "b"] {
        opened(table.call(300, open(id, id)));
    }
    order(&mut table, 300, "n1", AT_ONCE).unwrap();
    table.pass(3_000);
    assert_eq!(left(&table, "n1"), 2);
    let force = NodeOrder::Drain(DrainTime::Force);
    assert!(order(&mut table, 600, "n1", force).unwrap().changed);
    empties(&mut table, "n1");
    assert_eq!(got(table.call(300, get("a"))).record.reason, Some(Reason::Drained));
}

#[test]
fn a_deadline_of_a_drain_holds_for_sessions_that_are_never_disturbed_too() {
    let mut table = Table::laid();
    table.start_all();
    boots(&mut table, "n1", 1, Disturb::Never);
    table.pass(1_500);
    opened(table.call(300, open("a", "a")));
    order(&mut table, 300, "n1", within(2_000)).unwrap();
    table.pass(1_500);
    assert_eq!(left(&table, "n1"), 1);
    table.pass(1_000);
    empties(&mut table, "n1");
}

#[test]
fn a_drain_that_only_waits_closes_nothing_and_a_cordon_stops_a_drain() {
    let mut table = filled();
    let waits = NodeOrder::Drain(DrainTime::Unlimited);
    order(&mut table, 300, "n1", waits).unwrap();
    table.pass(5_000);
    assert_eq!(left(&table, "n1"), SESSIONS as u64);
    order(&mut table, 300, "n1", within(1_000)).unwrap();
    let stopped = order(&mut table, 300, "n1", NodeOrder::Cordon).unwrap();
    assert_eq!(stopped.reg.state, NodeState::Cordoned);
    table.pass(3_000);
    assert_eq!(left(&table, "n1"), SESSIONS as u64);
}

#[test]
fn a_new_owner_goes_on_with_a_drain() {
    let mut table = filled();
    table.silent.insert("n1".to_owned());
    order(&mut table, 300, "n1", AT_ONCE).unwrap();
    table.pass(400);
    let closing = table.count(Transition::SessionDrained);
    assert!(closing > 0 && left(&table, "n1") == SESSIONS as u64);
    table.kill(600);
    table.silent.clear();
    table.pass(4_000);
    empties(&mut table, "n1");
    for index in 0..SESSIONS {
        let reason = got(table.call(300, get(&format!("s{index}")))).record.reason;
        assert_eq!(reason, Some(Reason::Drained));
    }
}

#[test]
fn what_is_being_opened_on_a_drained_node_is_answered_and_then_closed() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let call = table.ask(300, open("slow", "r"));
    let (asker, create) = table.node_calls.pop().unwrap();
    assert!(matches!(create, ToNode::Create { .. }));
    order(&mut table, 300, "n1", AT_ONCE).unwrap();
    table.pass(200);
    assert_eq!(table.count(Transition::SessionDrained), 0);
    table.manual_nodes = false;
    let running = rota_model::node_msg::NodeAnswer::Running {
        address: "n1:5".to_owned(),
        ready: true,
        remark: String::new(),
    };
    table.node_says(asker, "n1", create.head().call, running);
    table.settle();
    assert_eq!(opened(table.wait_for(call, 500)).0, Outcome::Created);
    empties(&mut table, "n1");
    assert_eq!(got(table.call(300, get("slow"))).record.reason, Some(Reason::Drained));
}

#[test]
fn only_a_bounded_number_of_sessions_is_closed_at_once() {
    let mut table = Table::serving();
    table.places = 2_000;
    table.register("n1", 8);
    for index in 0..1_200 {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    table.silent.insert("n1".to_owned());
    order(&mut table, 300, "n1", AT_ONCE).unwrap();
    while table.count(Transition::SessionDrained) == 0 {
        table.pass(20);
    }
    assert!(table.count(Transition::SessionDrained) <= 3 * 64);
    table.pass(3_000);
    let closing = table.count(Transition::SessionDrained);
    assert!(closing > 3 * 64 && closing <= 3 * 256, "{closing}");
    table.silent.clear();
    table.pass(3_000);
    empties(&mut table, "n1");
}

#[test]
fn a_cordon_outlives_a_restart_of_the_agent_and_a_verdict() {
    let mut table = Table::serving();
    order(&mut table, 300, "n1", NodeOrder::Cordon).unwrap();
    table.register("n1", 8);
    assert_eq!(state(&table, "n1"), NodeState::Cordoned);
    table.pass(21_000);
    assert_eq!(state(&table, "n1"), NodeState::Lost);
    let refusal = order(&mut table, 300, "n1", AT_ONCE).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::InvalidArgument);
    assert!(refusal.fields[0].to_string().contains("node n1 is LOST"), "{refusal:?}");
    table.register("n1", 9);
    assert_eq!(state(&table, "n1"), NodeState::Cordoned);
    table.pass(21_000);
    order(&mut table, 300, "n1", NodeOrder::Uncordon).unwrap();
    table.register("n1", 10);
    assert_eq!(state(&table, "n1"), NodeState::Ready);
}

#[test]
fn an_unknown_node_is_refused_with_the_names_of_those_there_are() {
    let mut table = filled();
    let refusal = order(&mut table, 300, "n7", AT_ONCE).unwrap_err();
    assert_eq!((refusal.kind, &*refusal.fields[0].field), (RefusalKind::UnknownNode, "node"));
    assert!(refusal.message.contains("n7") && refusal.message.contains("n1, n2"), "{refusal:?}");
    table.store_away = true;
    let refusal = order(&mut table, 300, "n1", AT_ONCE).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::ConfigStoreAway);
}
