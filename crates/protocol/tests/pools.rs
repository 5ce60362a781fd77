//! Nodes that are ordered for opens that find no room.

mod table;

use rota_model::{ClassName, NodeId, PoolName, RefusalKind};
use rota_protocol::{Input, Op, PoolConfig, Transition};
use std::collections::VecDeque;
use table::*;

/// Of its four places a node gives all at a load limit of 0.8.
const ROOM: usize = 4;

/// Three managers of a pool without nodes, which may get nine.
fn growing() -> Table {
    let mut table = Table::laid();
    table.places = 4;
    table.pools = vec![PoolConfig { name: PoolName::default_pool(), nodes_max: 9, places: 4 }];
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.pass(500);
    table
}

/// A name of a session that another manager owns than the pool's.
fn of_another_owner(table: &Table) -> String {
    let slot = rota_ring::slot_of_pool(&PoolName::default_pool(), 1024);
    let owner = table.view().owner_of(slot).0;
    let mut ids = (0..100).map(|it| format!("s{it}"));
    ids.find(|id| table.owner(id) != owner).expect("a third is enough")
}

/// Ordered nodes come. Gives how many.
fn nodes_come(table: &mut Table) -> usize {
    let ordered: Vec<NodeId> = std::mem::take(&mut table.ordered);
    for node in &ordered {
        table.register(node.as_str(), 1);
    }
    ordered.len()
}

#[test]
fn an_owner_that_has_not_seen_the_new_node_yet_orders_no_second_one() {
    let mut table = growing();
    let id = of_another_owner(&table);
    let asker = table.owner(&id);
    let waiting = table.ask(asker, open(&id, "r1"));
    table.pass(300);
    table.late.insert(asker);
    assert_eq!(nodes_come(&mut table), 1);
    table.pass(1_500);
    assert_eq!(table.ordered, [], "the node that has come is for this open");
    table.late.clear();
    opened(table.wait_for(waiting, 1_000));
    table.pass(1_500);
    assert_eq!(table.ordered, []);
}

#[test]
fn opens_that_wait_at_many_owners_order_no_more_nodes_than_have_room_for_them() {
    let mut table = growing();
    let opens: usize = 10;
    let asked = (0..opens).map(|it| open(&format!("s{it}"), &format!("r{it}")));
    let asked: Vec<u64> = asked.map(|op| table.ask(300, op)).collect();
    let mut came = 0;
    for _ in 0..40 {
        table.pass(100);
        came += nodes_come(&mut table);
    }
    for call in asked {
        opened(table.wait_for(call, 20));
    }
    assert!((1..=opens.div_ceil(ROOM)).contains(&came), "{came} nodes for {opens} opens");
}

#[test]
fn an_open_that_waits_for_something_else_than_room_orders_no_node() {
    let mut table = growing();
    table.register("n1", 1);
    let mut other = open("a", "r1");
    if let Op::Open(open) = &mut other {
        open.spec.class = ClassName::parse("nonesuch").expect("a short name");
    }
    let waiting = table.ask(300, other);
    assert_eq!(refused(table.wait_for(waiting, 1_000)), RefusalKind::UnknownClass);
    assert_eq!(table.ordered, []);
}

#[test]
fn an_order_that_fails_is_not_counted_among_those_that_were_given() {
    let mut table = growing();
    let waiting = table.ask(300, open("a", "r1"));
    table.pass(300);
    assert_eq!((table.ordered.len(), table.count(Transition::NodesOrdered)), (1, 1));
    let failure = Some("no such program".to_owned());
    table.input(300, Input::Provisioned { order: 1, failure });
    assert_eq!(table.count(Transition::NodesOrdered), 1);
    assert_eq!(table.count(Transition::OrderFailed), 1);
    nodes_come(&mut table);
    opened(table.wait_for(waiting, 1_000));
}

#[test]
fn opens_that_wait_are_told_why_the_nodes_that_were_ordered_did_not_start() {
    let mut table = growing();
    let far = of_another_owner(&table);
    let slot = rota_ring::slot_of_pool(&PoolName::default_pool(), 1024);
    let owner = table.view().owner_of(slot).0;
    let mut ids = (0..).map(|it| format!("s{it}"));
    let near = ids.find(|id| table.owner(id) == owner).expect("there are many");
    let refused_of = |table: &mut Table, id: &str, request: &str| {
        let call = table.ask_within(300, open(id, request), 2_000);
        let refusal = table.wait_for(call, 3_000).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Provisioning, "{refusal:?}");
        refusal.message
    };
    assert!(refused_of(&mut table, &far, "r1").ends_with("a new one may be on its way"));
    let (by, order) = *table.orders.last().expect("one was ordered");
    assert_eq!(by, owner);
    let failure = Some("no such program".to_owned());
    table.input(by, Input::Provisioned { order, failure });
    for (id, request) in [(&far, "r2"), (&near, "r3")] {
        let text = refused_of(&mut table, id, request);
        assert!(text.ends_with("an order of new nodes failed: no such program"), "{text}");
    }
    // An order that succeeds ends that.
    table.pass(10_000);
    let waiting = table.ask_within(300, open(&far, "r4"), 20_000);
    table.pass(1_000);
    let (by, order) = *table.orders.last().expect("one more was ordered");
    table.input(by, Input::Provisioned { order, failure: None });
    nodes_come(&mut table);
    opened(table.wait_for(waiting, 1_000));
}

/// Opens that want every node that the pool may get, and wait for long.
fn wants_all(table: &mut Table, name: &str) {
    for index in 0..9 * ROOM {
        table.ask_within(300, open(&format!("{name}{index}"), &format!("{name}{index}")), 59_000);
    }
}

#[test]
fn nodes_that_come_late_have_their_places_in_the_maximum_of_the_pool() {
    let mut table = growing();
    wants_all(&mut table, "a");
    // Each owner asks for its own opens, and an order lapses every ten seconds.
    table.pass(50_000);
    assert_eq!(table.ordered.len(), 9, "no more, although every order has lapsed");
    assert_eq!(nodes_come(&mut table), 9);
    table.pass(2_000);
    assert_eq!(table.ordered, []);
}

#[test]
fn nodes_that_never_come_are_given_up_and_others_ordered() {
    let mut table = growing();
    wants_all(&mut table, "a");
    table.pass(50_000);
    assert_eq!(table.ordered.len(), 9);
    wants_all(&mut table, "b");
    table.pass(55_000);
    assert!(table.ordered.len() > 9, "{:?}", table.ordered);
}

#[test]
fn an_open_goes_to_the_most_loaded_node_below_the_limit_and_to_none_at_it() {
    let mut table = Table::laid();
    table.start_all();
    table.places = 10;
    table.register("n1", 1);
    // All at one owner: each manager hears of a node's load when it asks the node something.
    let ids = (0..).map(|it| format!("s{it}")).filter(|it| table.owner(it) == 300);
    let mut ids: VecDeque<String> = ids.take(17).collect();
    let mut place = |table: &mut Table| {
        let id = ids.pop_front().unwrap();
        let call = table.ask_within(300, open(&id, &id), 1_000);
        table.wait_for(call, 3_000)
    };
    let node_of = |result| opened(result).1.record.placement.clone().unwrap().node.to_string();
    for _ in 0..7 {
        assert_eq!(node_of(place(&mut table)), "n1");
    }
    table.register("n2", 2);
    // T = 0.8: of ten places the eighth is the last.
    assert_eq!(node_of(place(&mut table)), "n1", "seven are used there, and none at n2");
    for _ in 0..8 {
        assert_eq!(node_of(place(&mut table)), "n2");
    }
    assert_eq!(refused(place(&mut table)), RefusalKind::NoCapacity);
}
