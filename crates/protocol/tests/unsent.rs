//! Creates that wait for a connection that nobody takes; and what is told of such nodes.

use crate::table::*;
use rota_model::node_msg::{NodeAnswer, ReportEvent, ToNode};
use rota_model::{NodeContact, NodeId, NodeState, Outcome, Placement, SessionState, Token};
use rota_protocol::{Input, Timing, Transition};

fn node(id: &str) -> NodeId {
    NodeId::parse(id).unwrap()
}

/// The creates that nodes were asked for since the last look: by whom, the call, and its token.
fn creates(table: &mut Table) -> Vec<(u32, u64, Token)> {
    let calls = std::mem::take(&mut table.node_calls);
    let create = |(n, call): (u32, ToNode)| match call {
        ToNode::Create { head, token, .. } => Some((n, head.call, token)),
        ToNode::Destroy { .. } | ToNode::Act { .. } | ToNode::Scan { .. } | ToNode::Meet { .. } => {
            None
        }
    };
    calls.into_iter().filter_map(create).collect()
}

/// The tokens that nodes were asked to end since the last look.
fn destroys(table: &mut Table) -> Vec<Token> {
    let calls = std::mem::take(&mut table.node_calls);
    let destroy = |(_, call): (u32, ToNode)| match call {
        ToNode::Destroy { token, .. } => Some(token),
        ToNode::Create { .. } | ToNode::Act { .. } | ToNode::Scan { .. } | ToNode::Meet { .. } => {
            None
        }
    };
    calls.into_iter().filter_map(destroy).collect()
}

/// A manager's link to a node finds its port closed, and throws these calls away.
fn refuses(table: &mut Table, n: u32, id: &str, unsent: &[u64]) {
    let (address, unsent) = (format!("{id}:1"), unsent.to_vec());
    table.input(n, Input::NodeUnreached { node: node(id), address, unsent });
}

/// An open whose Create waits for a connection to n1; n2 is there as well. The owner, the open, and the Create.
fn asked_of_n1() -> (Table, u32, u64, (u64, Token)) {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let open = table.ask(owner, open("a", "r1"));
    let asked = creates(&mut table);
    let [(_, call, token)] = asked[..] else { panic!("{asked:?}") };
    table.register("n2", 8);
    (table, owner, open, (call, token))
}

fn placed(table: &mut Table, id: &str) -> (SessionState, Placement) {
    let owner = table.owner(id);
    let record = got(table.call(owner, get(id))).record;
    (record.state, record.placement.clone().unwrap())
}

#[test]
fn an_open_goes_elsewhere_as_soon_as_nothing_of_it_was_sent_to_a_node_that_refuses() {
    let (mut table, owner, open, (call, token)) = asked_of_n1();
    refuses(&mut table, owner, "n1", &[call]);
    assert_eq!(table.count(Transition::Withdrawn), 1);
    let asked = creates(&mut table);
    let [(by, again, later)] = asked[..] else { panic!("{asked:?}") };
    assert!(by == owner && later > token, "{later} after {token}");
    let answer =
        NodeAnswer::Running { address: "n2:5".to_owned(), ready: true, remark: String::new() };
    table.node_says(owner, "n2", again, answer);
    table.settle();
    let (outcome, session) = opened(table.wait_for(open, 1_000));
    let at = session.record.placement.clone().unwrap();
    assert_eq!((outcome, at.node, at.token), (Outcome::Created, node("n2"), later));
}

#[test]
fn the_other_node_is_asked_when_every_disk_has_the_new_intent_and_not_before() {
    let (mut table, owner, _, (call, _)) = asked_of_n1();
    table.disks_stop_after = Some(table.persisted);
    refuses(&mut table, owner, "n1", &[call]);
    assert_eq!(table.count(Transition::Withdrawn), 1);
    assert_eq!(creates(&mut table), []);
}

#[test]
fn what_may_have_been_sent_stays_where_it_is() {
    let (mut table, owner, _, (_, token)) = asked_of_n1();
    // The first was sent, and its answer is lost. It is asked again, and that is thrown away.
    table.pass(2_000);
    let again: Vec<u64> = creates(&mut table).into_iter().map(|it| it.1).collect();
    assert!(!again.is_empty());
    refuses(&mut table, owner, "n1", &again);
    table.pass(4_000);
    assert_eq!(table.count(Transition::Withdrawn), 0);
    assert!(creates(&mut table).iter().all(|it| it.2 == token));
}

#[test]
fn what_a_node_has_answered_was_sent() {
    let (mut table, owner, _, (call, token)) = asked_of_n1();
    table.pass(2_000);
    let again = creates(&mut table);
    let fenced = NodeAnswer::Fenced { fence: rota_model::Epoch(0) };
    table.node_says(owner, "n1", again[0].1, fenced);
    table.settle();
    let mut all: Vec<u64> = again.iter().map(|it| it.1).collect();
    all.push(call);
    refuses(&mut table, owner, "n1", &all);
    table.pass(2_000);
    assert_eq!(table.count(Transition::Withdrawn), 0);
    assert!(creates(&mut table).iter().all(|it| it.2 == token));
}

#[test]
fn whoever_takes_over_takes_nothing_back() {
    let (mut table, owner, _, (_, token)) = asked_of_n1();
    table.kill(owner);
    for n in NUMBERS.into_iter().filter(|n| *n != owner) {
        let (number, address) = (rota_model::ManagerNumber(owner), format!("m{owner}:1"));
        table.input(n, Input::PeerRefused { number, address });
    }
    table.pass_until("somebody takes over", 20_000, |it| it.owner("a") != owner);
    table.pass(2_000);
    let next = table.owner("a");
    let asked = creates(&mut table);
    assert!(asked.iter().any(|it| (it.0, it.2) == (next, token)), "{asked:?}");
    let calls: Vec<u64> = asked.iter().map(|it| it.1).collect();
    refuses(&mut table, next, "n1", &calls);
    table.pass(4_000);
    assert_eq!(table.count(Transition::Withdrawn), 0);
    assert!(creates(&mut table).iter().all(|it| it.2 == token));
}

#[test]
fn without_another_node_it_waits_and_goes_to_the_first_that_comes() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let open = table.ask(owner, open("a", "r1"));
    for _ in 0..20 {
        let calls: Vec<u64> = creates(&mut table).into_iter().map(|it| it.1).collect();
        refuses(&mut table, owner, "n1", &calls);
        table.pass(200);
    }
    assert_eq!(table.count(Transition::Withdrawn), 0);
    table.register("n2", 8);
    table.manual_nodes = false;
    let calls: Vec<u64> = creates(&mut table).into_iter().map(|it| it.1).collect();
    refuses(&mut table, owner, "n1", &calls);
    table.silent.insert("n1".to_owned());
    let (_, session) = opened(table.wait_for(open, 4_000));
    assert_eq!(session.record.placement.as_ref().unwrap().node, node("n2"));
}

#[test]
fn a_node_that_shows_an_attempt_that_has_gone_elsewhere_is_told_to_end_it() {
    let (mut table, owner, open, (call, token)) = asked_of_n1();
    let boot = table.config.nodes[&node("n1")].boot;
    refuses(&mut table, owner, "n1", &[call]);
    let again = creates(&mut table)[0].1;
    let answer =
        NodeAnswer::Running { address: "n2:5".to_owned(), ready: true, remark: String::new() };
    table.node_says(owner, "n2", again, answer);
    table.settle();
    opened(table.wait_for(open, 1_000));
    let at = Placement { node: node("n1"), boot, token, address: String::new() };
    let ready = ReportEvent::Ready { address: "n1:5".to_owned(), remark: String::new() };
    destroys(&mut table);
    table.ask(owner, report("a", &at, ready));
    assert_eq!(destroys(&mut table), [token]);
    assert_eq!(placed(&mut table, "a").1.node, node("n2"));
}

#[test]
fn a_node_that_refuses_or_missed_a_renewal_is_out_of_reach_and_nobodys_first_choice() {
    let mut table = Table::serving();
    table.register("n2", 8);
    let owner = table.owner("a");
    let contact = |table: &mut Table| got(table.call(owner, get("a"))).node;
    // n1 is the fuller one.
    opened(table.call(owner, open("a", "r1")));
    assert_eq!(placed(&mut table, "a").1.node, node("n1"));
    let near = NodeContact { state: NodeState::Ready, unheard_ms: Some(0) };
    assert_eq!(contact(&mut table), Some(near));
    refuses(&mut table, owner, "n1", &[]);
    table.pass(40);
    let out = NodeContact { state: NodeState::Unreachable, unheard_ms: Some(40) };
    assert_eq!(contact(&mut table), Some(out));
    let other = (1..).map(|it| format!("b{it}")).find(|it| table.owner(it) == owner).unwrap();
    opened(table.call(owner, open(&other, "r2")));
    assert_eq!(placed(&mut table, &other).1.node, node("n2"));
    let shown = |table: &Table, id: &str| {
        let stats = table.managers[&owner].stats();
        stats.nodes.iter().find(|it| it.0.node == node(id)).unwrap().0.state
    };
    assert_eq!(
        (shown(&table, "n1"), shown(&table, "n2")),
        (NodeState::Unreachable, NodeState::Ready)
    );
    // A connection is opened; then it misses a renewal.
    table.input(owner, Input::NodeConnected { node: node("n1") });
    assert_eq!(contact(&mut table).unwrap().state, NodeState::Ready);
    table.renews(owner, "n1");
    table.pass(Timing::default().renew_ms);
    assert_eq!(contact(&mut table).unwrap().state, NodeState::Ready);
    table.pass(Timing::default().renew_ms);
    let contact = contact(&mut table).unwrap();
    assert_eq!(contact.state, NodeState::Unreachable);
    assert_eq!(contact.unheard_ms, Some(2 * Timing::default().renew_ms));
    assert_eq!(shown(&table, "n1"), NodeState::Unreachable);
}

#[test]
fn a_new_owner_says_that_it_has_not_heard_the_node() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r1")));
    for n in NUMBERS {
        table.renews(n, "n1");
    }
    table.pass(20);
    table.kill(owner);
    let other = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    let (number, address) = (rota_model::ManagerNumber(owner), format!("m{owner}:1"));
    table.input(other, Input::PeerRefused { number, address });
    table.pass_until("somebody takes over", 20_000, |it| it.owner("a") != owner);
    let next = table.owner("a");
    let ask = table.ask(next, get("a"));
    let contact = got(table.wait_for(ask, 5_000)).node.unwrap();
    assert_eq!((contact.state, contact.unheard_ms), (NodeState::Ready, None));
    table.renews(next, "n1");
    let contact = got(table.call(next, get("a"))).node.unwrap();
    assert_eq!((contact.state, contact.unheard_ms), (NodeState::Ready, Some(0)));
}
