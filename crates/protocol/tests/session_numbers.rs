//! Stable numbers of sessions: each counts within its node, any manager answers, and whoever takes over keeps them.

use crate::table::*;
use rota_model::items::SessionNumber;
use rota_model::{NodeId, NumbersOp, PoolName};
use rota_protocol::stable_numbers::of_session;
use rota_protocol::{Answer, Input, Message, NumbersConfig, Op, Timing};
use rota_ring::NodeOrder;
use std::collections::BTreeMap;

/// Longer than a step, a report and its commit.
const SOON_MS: u64 = 3_000;
/// After so long, all nodes are reported anew.
const ALL_MS: u64 = 310_000;
const HOUR_MS: u64 = 3_600_000;

fn numbering(retention_ms: u64, sessions: bool) -> Table {
    let mut table = Table::laid();
    table.stable_numbers = Some(NumbersConfig { retention_ms, sessions });
    table.start_all();
    table
}

/// One node with so many sessions, each opened at another manager than the one before.
fn with_sessions(retention_ms: u64, count: usize) -> Table {
    let mut table = numbering(retention_ms, true);
    table.register_with("n1", 1, 100);
    for at in 0..count {
        let id = format!("s{at}");
        opened(table.call(NUMBERS[at % 3], open(&id, &id)));
    }
    table
}

fn question(node: &str) -> Op {
    let (pool, node) = (PoolName::default_pool(), NodeId::parse(node).unwrap());
    Op::Numbers(NumbersOp { pool, node, there: None })
}

fn all(table: &mut Table, n: u32, node: &str) -> Vec<SessionNumber> {
    match table.call(n, question(node)) {
        Ok(Answer::Numbers(numbers)) => numbers,
        other => panic!("{other:?}"),
    }
}

/// The numbers of sessions that run on a node, as a manager answers.
fn valid(table: &mut Table, n: u32, node: &str) -> BTreeMap<String, u64> {
    let all = all(table, n, node).into_iter().filter(|it| it.valid);
    all.map(|it| (it.id, it.number)).collect()
}

/// Waits until so many sessions of a node have a number, and gives what all managers say.
fn numbered(table: &mut Table, node: &str, count: usize) -> BTreeMap<String, u64> {
    for _ in 0..SOON_MS / 100 {
        table.pass(100);
        let alive: Vec<u32> = NUMBERS.into_iter().filter(|it| !table.dead.contains(it)).collect();
        let of_each: Vec<_> = alive.into_iter().map(|n| valid(table, n, node)).collect();
        if of_each[0].len() == count && of_each.iter().all(|it| *it == of_each[0]) {
            return of_each[0].clone();
        }
    }
    panic!("{count} expected: {:?}", valid(table, *table.managers.keys().next().unwrap(), node));
}

fn entries_here(table: &Table) -> usize {
    let told = table.managers.values().map(|it| it.session_numbers().iter().count());
    told.sum()
}

/// Who keeps the numbers of a node.
fn keeper(table: &Table) -> u32 {
    let here = |n: &&u32| table.managers[*n].session_numbers().iter().count() > 0;
    *table.managers.keys().find(here).unwrap()
}

#[test]
fn sessions_of_all_partitions_count_within_their_node_and_every_manager_says_the_same() {
    let mut table = with_sessions(HOUR_MS, 12);
    let first = numbered(&mut table, "n1", 12);
    let mut given: Vec<u64> = first.values().copied().collect();
    given.sort_unstable();
    assert!(given.into_iter().eq(1..=12), "{first:?}");
    assert_eq!(all(&mut table, 300, "n2"), []);
    // One manager has them for its folder, with the last.
    assert_eq!(entries_here(&table), 13);
    let told = table.managers[&keeper(&table)].session_numbers().clone();
    let of_key = of_session(&PoolName::default_pool(), &NodeId::parse("n1").unwrap(), &key("s3"));
    assert_eq!(told.number(&of_key), Some(first["s3"]));
}

#[test]
fn an_ended_session_keeps_its_number_for_the_interval_and_gets_it_back() {
    let mut table = with_sessions(HOUR_MS, 3);
    let first = numbered(&mut table, "n1", 3);
    closed(table.call(300, close("s1", "c1")));
    let rest = numbered(&mut table, "n1", 2);
    assert!(!rest.contains_key("s1"));
    let of_s1 = all(&mut table, 600, "n1").into_iter().find(|it| it.id == "s1").unwrap();
    assert_eq!((of_s1.number, of_s1.valid), (first["s1"], false));
    opened(table.call(300, open("s9", "r9")));
    assert_eq!(numbered(&mut table, "n1", 3)["s9"], 4);
    opened(table.call(600, open("s1", "again")));
    assert_eq!(numbered(&mut table, "n1", 4)["s1"], first["s1"]);
}

#[test]
fn without_an_interval_an_ended_session_has_no_number_at_once() {
    let mut table = with_sessions(0, 2);
    let first = numbered(&mut table, "n1", 2);
    closed(table.call(300, close("s1", "c1")));
    numbered(&mut table, "n1", 1);
    assert_eq!(all(&mut table, 600, "n1").len(), 1);
    opened(table.call(600, open("s1", "again")));
    let again = numbered(&mut table, "n1", 2);
    assert_eq!((again["s0"], again["s1"]), (first["s0"], 3));
}

#[test]
fn a_take_over_of_whoever_keeps_them_changes_no_number() {
    let mut table = with_sessions(HOUR_MS, 12);
    let before = numbered(&mut table, "n1", 12);
    let keeper_before = keeper(&table);
    table.kill(keeper_before);
    let is_served =
        |it: &Table| it.managers.values().any(|it| it.session_numbers().iter().count() > 0);
    table.pass_until("another one keeps them", 60_000, is_served);
    assert_eq!(numbered(&mut table, "n1", 12), before);
    // Those that came back have them as well, and one that is new gets the next.
    table.start(keeper_before);
    table.pass(SOON_MS);
    opened(table.call(keeper_before, open("late", "late")));
    let after = numbered(&mut table, "n1", 13);
    assert_eq!(after["late"], 13);
    assert!(before.iter().all(|(id, number)| after[id] == *number), "{before:?} {after:?}");
    assert_eq!(entries_here(&table), 14, "one manager keeps them, not two");
}

#[test]
fn what_lost_reports_left_is_put_right_when_all_nodes_are_reported() {
    let mut table = with_sessions(HOUR_MS, 6);
    numbered(&mut table, "n1", 6);
    let is_report = |message: &Message| matches!(message, Message::Request { op, .. } if matches!(**op, Op::Numbers(_)));
    table.lose = Box::new(move |it| is_report(&it.message));
    for at in 0..6 {
        closed(table.call(300, close(&format!("s{at}"), &format!("c{at}"))));
    }
    table.pass(20_000);
    let keeper = keeper(&table);
    assert!(!valid(&mut table, keeper, "n1").is_empty());
    table.lose = Box::new(|_| false);
    numbered(&mut table, "n1", 0);
}

#[test]
fn a_node_that_is_gone_leaves_no_valid_number_and_then_none() {
    let mut table = with_sessions(1_000_000, 3);
    numbered(&mut table, "n1", 3);
    let is_lost = |it: &Table| it.config.nodes.values().all(|it| it.state.is_gone());
    table.pass_until("the node is lost", Timing::default().node_lost_ms + 5_000, is_lost);
    numbered(&mut table, "n1", 0);
    table.node_ordered_as = None;
    let node = NodeId::parse("n1").unwrap();
    table.input(300, Input::NodeOrder { call: 3, node, order: NodeOrder::Forget });
    table.pass_until("the order is answered", 5_000, |it| it.node_ordered_as.is_some());
    table.pass_until("nothing is valid", 90_000, |table| {
        table.managers.values().all(|it| it.session_numbers().iter().all(|(_, it)| !it.valid))
    });
    assert_eq!(entries_here(&table), 4);
    table.now_ms += 1_000_000;
    table.pass_until("nothing is left", 90_000, |it| entries_here(it) == 0);
    assert_eq!(all(&mut table, 300, "n1"), []);
}

#[test]
fn nothing_is_written_while_no_session_changes() {
    let mut table = with_sessions(HOUR_MS, 6);
    numbered(&mut table, "n1", 6);
    let last = |table: &Table| -> Vec<_> {
        let parts = table.managers.values().flat_map(|it| it.stats().parts);
        parts.map(|it| (it.part, it.last)).collect()
    };
    table.pass(SOON_MS);
    let before = last(&table);
    for _ in 0..ALL_MS / 2_000 {
        for n in NUMBERS {
            table.renews(n, "n1");
        }
        table.pass(2_000);
    }
    assert_eq!(last(&table), before);
}

#[test]
fn sessions_have_no_numbers_where_that_is_switched_off() {
    let mut table = numbering(HOUR_MS, false);
    table.register_with("n1", 1, 100);
    opened(table.call(300, open("a", "a")));
    table.pass(SOON_MS);
    assert_eq!(all(&mut table, 300, "n1"), []);
}
