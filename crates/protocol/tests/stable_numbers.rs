//! Stable numbers: assigned by the owner of all descriptions, the same at every manager, kept by whoever takes over.

use crate::table::asking::{configure, operated};
use crate::table::*;
use rota_model::{NodeId, PoolName};
use rota_protocol::operate::slot_of_spaces;
use rota_protocol::stable_numbers::{Told, of_manager, of_node, of_pool};
use rota_protocol::{Input, NumbersConfig, Timing, Transition};
use rota_ring::NodeOrder;
use serde_json::json;
use std::collections::BTreeMap;

/// Longer than a step, and than a follower needs to hear of it.
const SOON_MS: u64 = 2_000;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

fn numbering(retention_ms: u64) -> Table {
    let mut table = Table::laid();
    table.stable_numbers = Some(NumbersConfig { retention_ms, ..NumbersConfig::default() });
    table.start_all();
    table
}

fn told(table: &Table, n: u32) -> &Told {
    table.managers[&n].stable_numbers()
}

/// The numbers of the nodes that a manager shows.
fn nodes(table: &Table, n: u32) -> BTreeMap<String, u64> {
    let numbers = table.managers[&n].stats().node_numbers;
    numbers.iter().map(|(node, it)| (node.to_string(), it.number)).collect()
}

fn numbered(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(node, number)| ((*node).to_owned(), *number)).collect()
}

/// Waits until all managers show these.
fn shown(table: &mut Table, of: &[(&str, u64)]) {
    let expected = numbered(of);
    let what = format!("all show {expected:?}");
    table.pass_until(&what, SOON_MS, |it| it.managers.keys().all(|n| nodes(it, *n) == expected));
}

/// Who assigns.
fn assigner(table: &Table) -> u32 {
    table.view().owner_of(slot_of_spaces(1024)).0
}

fn forget(table: &mut Table, node: &str) {
    let node = NodeId::parse(node).unwrap();
    let n = *table.managers.keys().next().unwrap();
    table.node_ordered_as = None;
    table.input(n, Input::NodeOrder { call: 3, node, order: NodeOrder::Forget });
    table.pass_until("the order is answered", 5_000, |it| it.node_ordered_as.is_some());
    table.node_ordered_as.take().unwrap().unwrap();
}

/// Nobody renews: all nodes are LOST after that.
fn all_are_lost(table: &mut Table) {
    let nodes = table.config.nodes.len();
    let is_lost = |it: &Table| it.config.nodes.values().filter(|it| it.state.is_gone()).count();
    let patience_ms = Timing::default().node_lost_ms + 5_000;
    table.pass_until("all are lost", patience_ms, |it| is_lost(it) == nodes);
}

#[test]
fn managers_pools_and_nodes_have_the_same_numbers_at_every_manager() {
    let mut table = numbering(HOUR_MS);
    table.register("n2", 1);
    shown(&mut table, &[("n2", 1)]);
    table.register("n1", 1);
    shown(&mut table, &[("n2", 1), ("n1", 2)]);
    let put = configure("pool.create", &json!({"name": "small"}));
    operated(table.call(600, put)).unwrap();
    let small = of_pool(&PoolName::parse("small").unwrap());
    table.pass_until("the pool has one", SOON_MS, |table| {
        NUMBERS.iter().all(|n| told(table, *n).number(&small) == Some(2))
    });
    for n in NUMBERS {
        let number = |id: u32| told(&table, n).number(&of_manager(&manager_id(id)));
        assert_eq!(NUMBERS.map(number), [Some(1), Some(2), Some(3)]);
        assert_eq!(told(&table, n).number(&of_pool(&PoolName::default_pool())), Some(1));
        assert_eq!(told(&table, n), told(&table, NUMBERS[0]));
    }
}

#[test]
fn a_manager_that_assigns_none_writes_none() {
    let mut table = Table::serving();
    table.pass(SOON_MS);
    for n in NUMBERS {
        assert_eq!((told(&table, n), nodes(&table, n).len()), (&Told::default(), 0));
    }
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let mut table = numbering(HOUR_MS);
    table.register("n1", 1);
    shown(&mut table, &[("n1", 1)]);
    table.pass(SOON_MS);
    let last = |table: &Table| -> Vec<_> {
        table.managers[&assigner(table)].stats().parts.iter().map(|it| it.last).collect()
    };
    let before = last(&table);
    for _ in 0..5 {
        for n in NUMBERS {
            table.renews(n, "n1");
        }
        table.pass(SOON_MS);
    }
    assert_eq!(last(&table), before);
}

#[test]
fn a_take_over_keeps_every_number_and_makes_none_invalid() {
    let mut table = numbering(HOUR_MS);
    table.register("n1", 1);
    table.register("n2", 1);
    shown(&mut table, &[("n1", 1), ("n2", 2)]);
    let owner = assigner(&table);
    let before = told(&table, owner).clone();
    table.kill(owner);
    table.pass_until("another one owns it", 30_000, |it| assigner(it) != owner);
    table.register("n0", 1);
    shown(&mut table, &[("n0", 3), ("n1", 1), ("n2", 2)]);
    // Also in the entries themselves: nothing was made invalid and valid again.
    let after = told(&table, assigner(&table));
    let now: BTreeMap<_, _> = after.iter().collect();
    let is_last = |name: &str| name.starts_with("Node.") && name.ends_with(".last");
    for (name, entry) in before.iter().filter(|it| !is_last(&it.0.to_string())) {
        assert_eq!(now.get(name), Some(&entry), "{name}");
    }
    // The manager that is back shows the same.
    table.start(owner);
    table.settle();
    shown(&mut table, &[("n0", 3), ("n1", 1), ("n2", 2)]);
}

#[test]
fn a_node_that_is_forgotten_gets_its_number_back_within_the_interval_and_no_other_node_gets_it() {
    let mut table = numbering(MINUTE_MS);
    table.register("n1", 1);
    table.register("n2", 1);
    shown(&mut table, &[("n1", 1), ("n2", 2)]);
    all_are_lost(&mut table);
    shown(&mut table, &[("n1", 1), ("n2", 2)]);
    forget(&mut table, "n1");
    forget(&mut table, "n2");
    table.register("n3", 1);
    shown(&mut table, &[("n3", 3)]);
    table.register("n1", 2);
    shown(&mut table, &[("n1", 1), ("n3", 3)]);
    table.pass(SOON_MS);
    // The other one is away for longer than that.
    table.now_ms += MINUTE_MS;
    table.pass(SOON_MS);
    let n2 = of_node(&PoolName::default_pool(), &NodeId::parse("n2").unwrap());
    for n in NUMBERS {
        assert_eq!(told(&table, n).number(&n2), None);
    }
    table.register("n2", 2);
    table.pass_until("it has a new one", SOON_MS, |table| {
        NUMBERS.iter().all(|n| nodes(table, *n).get("n2") == Some(&4))
    });
}

#[test]
fn without_an_interval_a_number_is_given_once() {
    let mut table = numbering(0);
    table.register("n1", 1);
    shown(&mut table, &[("n1", 1)]);
    all_are_lost(&mut table);
    forget(&mut table, "n1");
    let n1 = of_node(&PoolName::default_pool(), &NodeId::parse("n1").unwrap());
    table.pass_until("its entry is gone", SOON_MS, |table| {
        NUMBERS.iter().all(|n| told(table, *n).number(&n1).is_none())
    });
    // The pool went with its only node, so its nodes count anew.
    table.register("n2", 1);
    shown(&mut table, &[("n2", 1)]);
    table.register("n1", 2);
    shown(&mut table, &[("n1", 2), ("n2", 1)]);
}

#[test]
fn many_nodes_that_come_at_once_are_numbered_in_few_bounded_writes() {
    let mut table = numbering(HOUR_MS);
    table.pass(SOON_MS);
    let owner = assigner(&table);
    let seq = |table: &Table| -> u64 {
        table.managers[&owner].stats().parts.iter().map(|it| it.last.seq.0).sum()
    };
    let before = seq(&table);
    for node in 0..250 {
        table.register(&format!("n{node:03}"), 1);
    }
    table.pass_until("all have a number", 5_000, |it| nodes(it, owner).len() == 250);
    let mut numbers: Vec<u64> = nodes(&table, owner).into_values().collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=250), "{numbers:?}");
    assert!(seq(&table) - before <= 10, "{} entries", seq(&table) - before);
    assert!(table.batch_max < 256 * 1024, "{} bytes at once", table.batch_max);
    assert!(table.count(Transition::NodeLost) == 0);
}

#[test]
fn after_a_restart_of_all_managers_the_numbers_are_those_of_before() {
    let mut table = numbering(HOUR_MS);
    table.register("n1", 1);
    table.register("n2", 1);
    shown(&mut table, &[("n1", 1), ("n2", 2)]);
    NUMBERS.iter().for_each(|n| table.kill(*n));
    // One goes while nobody serves.
    table.config.nodes.remove(&NodeId::parse("n1").unwrap());
    table.config.index += 1;
    table.start_all();
    table.register("n3", 1);
    shown(&mut table, &[("n2", 2), ("n3", 3)]);
    let n1 = of_node(&PoolName::default_pool(), &NodeId::parse("n1").unwrap());
    let entry = |table: &Table| {
        let all = told(table, 300).iter();
        all.filter(|(name, _)| name.to_string() == n1.to_string()).map(|it| it.1.valid).next()
    };
    assert_eq!(entry(&table), Some(false), "it keeps its number, and is not valid");
}
