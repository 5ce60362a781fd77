//! A pool that starts and ends nodes for years: the registry does not grow, and no boot that is over comes back.

use crate::table::*;
use rota_model::node_msg::{NodeLoad, Renew, Renewed};
use rota_model::{BootId, NodeId, NodeState, Resources, SessionState};
use rota_protocol::{Input, Timing};
use rota_ring::NodeOrder;

const TRACES_MAX: usize = 3;

fn table() -> Table {
    let mut table = Table::laid();
    (table.sizes.traces_max, table.sizes.traces_ms) = (TRACES_MAX, 0);
    table.start_all();
    table
}

/// Nobody renews: all nodes that are there are LOST after that.
fn all_are_lost(table: &mut Table) {
    let is_lost = |it: &Table| it.config.nodes.values().all(|it| it.state.is_gone());
    table.pass_until("all are lost", Timing::default().node_lost_ms + 5_000, is_lost);
}

fn forget(table: &mut Table, node: &str) {
    let node = NodeId::parse(node).unwrap();
    table.node_ordered_as = None;
    table.input(300, Input::NodeOrder { call: 3, node, order: NodeOrder::Forget });
    table.pass_until("the order is answered", 5_000, |it| it.node_ordered_as.is_some());
    table.node_ordered_as.take().unwrap().unwrap();
}

fn traces(table: &Table) -> Vec<&str> {
    table.config.nodes.values().filter(|it| it.is_forgotten()).map(|it| it.node.as_str()).collect()
}

#[test]
fn the_registry_keeps_few_traces_however_many_nodes_came_and_went() {
    let mut table = table();
    for at in 1..=8u64 {
        table.register(&format!("n{at}"), at);
    }
    all_are_lost(&mut table);
    for at in 1..=8u64 {
        forget(&mut table, &format!("n{at}"));
        assert!(traces(&table).len() <= TRACES_MAX);
    }
    assert_eq!(traces(&table), ["n6", "n7", "n8"]);
    assert_eq!(table.config.dropped.through.0, 5);
}

#[test]
fn what_is_left_of_a_node_that_was_just_heard_stays_known() {
    let mut table = table();
    table.sizes.traces_ms = 3_600_000;
    NUMBERS.iter().for_each(|n| table.kill(*n));
    table.start_all();
    for at in 1..=8u64 {
        table.register(&format!("n{at}"), at);
    }
    all_are_lost(&mut table);
    for at in 1..=8u64 {
        forget(&mut table, &format!("n{at}"));
    }
    assert_eq!((traces(&table).len(), table.config.dropped.is_none()), (8, true));
}

#[test]
fn a_node_that_an_owner_saw_vanish_keeps_no_other_one_from_being_lost() {
    let mut table = table();
    for at in 1..=6u64 {
        table.register(&format!("n{at}"), at);
    }
    table.pass(1_000);
    // What came between is never seen: the entry is there, and then it is not.
    let n1 = NodeId::parse("n1").unwrap();
    table.config.nodes.remove(&n1);
    table.config.dropped.through = BootId(1);
    table.config.index += 1;
    let state = table.config.clone();
    NUMBERS.iter().for_each(|n| table.input(*n, Input::Config(state.clone())));
    all_are_lost(&mut table);
    assert_eq!(table.config.nodes.len(), 5);
}

#[test]
fn a_boot_whose_trace_was_dropped_is_over_and_the_node_comes_back_with_a_later_one() {
    let mut table = table();
    table.register("n1", 1);
    opened(table.call(300, open("a", "r1")));
    all_are_lost(&mut table);
    for at in 2..=5u64 {
        table.register(&format!("n{at}"), at);
    }
    all_are_lost(&mut table);
    for at in 1..=5u64 {
        forget(&mut table, &format!("n{at}"));
    }
    assert!(!table.config.nodes.contains_key(&NodeId::parse("n1").unwrap()));
    // Its agent renews, as if nothing had been: it is told to begin anew.
    for n in NUMBERS {
        let node = NodeId::parse("n1").unwrap();
        let (used, offered) = (Resources::default(), Resources::of_places(8));
        let load = NodeLoad { used, offered, kept: 0 };
        let renew = Renew { node, boot: BootId(1), load };
        table.input(n, Input::NodeRenew { call: 1_000_000, renew });
        assert!(matches!(table.renewed(), Some(Renewed::Lost)), "{n}");
    }
    let registers = |table: &mut Table, boot| {
        table.register("n1", boot);
        let reg = table.config.nodes.get(&NodeId::parse("n1").unwrap());
        reg.map(|it| (it.boot.0, it.state))
    };
    assert_eq!(registers(&mut table, 1), None);
    assert_eq!(registers(&mut table, 2), None, "no later one than a boot that was dropped");
    assert_eq!(registers(&mut table, 6), Some((6, NodeState::Ready)));
    // What ran there is lost, and can be opened again.
    assert_eq!(got(table.call(600, get("a"))).record.state, SessionState::Lost);
    assert_eq!(opened(table.call(600, open("a", "r2"))).1.record.state, SessionState::Ready);
}
