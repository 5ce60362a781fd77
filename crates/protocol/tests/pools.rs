//! Nodes that are ordered for opens that find no room.

use crate::table::asking::{op, space};
use crate::table::*;
use rota_docstore::Request;
use rota_model::{ClassName, Namespace, NodeId, PoolName, RefusalKind};
use rota_protocol::operate::{CONFIGURATION, SPACES_DOCID};
use rota_protocol::{Answer, DocumentAnswer, Input, Op, Transition};
use serde_json::json;
use std::collections::VecDeque;

/// Of its four places a node gives all at a load limit of 0.8.
const ROOM: usize = 4;

/// A name of a session that another manager owns than the pool's.
fn of_another_owner(table: &Table) -> String {
    let slot = rota_ring::slot_of_pool(&PoolName::default_pool(), 1024);
    let owner = table.view().owner_of(slot).0;
    let mut ids = (0..100).map(|it| format!("s{it}"));
    ids.find(|id| table.owner(id) != owner).expect("a third is enough")
}

/// The provisioner is done with all that it was told, though no node comes.
fn provisioned(table: &mut Table) {
    for (by, order) in std::mem::take(&mut table.orders) {
        table.input(
            by,
            Input::Provisioned { order, begun: true, failed: Vec::new(), failure: None },
        );
    }
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
    let mut table = Table::growing();
    let id = of_another_owner(&table);
    let asker = table.owner(&id);
    let waiting = table.ask(asker, open(&id, "r1"));
    table.pass(300);
    let waits = |table: &Table| -> u64 {
        let all = table.managers[&asker].stats().parts.into_iter();
        all.filter_map(|it| it.waiting.get(&PoolName::default_pool()).copied()).sum()
    };
    assert_eq!(waits(&table), 1, "an operator sees that it waits");
    table.late.insert(asker);
    assert_eq!(nodes_come(&mut table), 1);
    table.pass(1_500);
    assert_eq!(table.ordered, [], "the node that has come is for this open");
    table.late.clear();
    opened(table.wait_for(waiting, 1_000));
    assert_eq!(waits(&table), 0);
    table.pass(1_500);
    assert_eq!(table.ordered, []);
}

#[test]
fn opens_that_wait_at_many_owners_order_no_more_nodes_than_have_room_for_them() {
    let mut table = Table::growing();
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
fn an_owner_whose_opens_have_found_room_says_so_and_no_node_is_ordered_for_them() {
    let mut table = Table::growing();
    table.register("n1", 1);
    let slot = rota_ring::slot_of_pool(&PoolName::default_pool(), 1024);
    let pools_owner = table.view().owner_of(slot).0;
    let at = |owner: u32, table: &Table| -> Vec<String> {
        (0..200).map(|it| format!("s{it}")).filter(|id| table.owner(id) == owner).collect()
    };
    let other = NUMBERS.into_iter().find(|n| *n != pools_owner).expect("there are three");
    let (own, others) = (at(pools_owner, &table), at(other, &table));
    for id in &others[..ROOM] {
        opened(table.call(300, open(id, id)));
    }
    // Three opens more than there is room for, until as many sessions end.
    let ask = |table: &mut Table, ids: &[String]| -> Vec<u64> {
        ids.iter().map(|id| table.ask(300, open(id, "w"))).collect()
    };
    let waiting = ask(&mut table, &others[ROOM..ROOM + 3]);
    table.pass(300);
    assert_eq!(table.ordered.len(), 1);
    for id in &others[..3] {
        closed(table.call(300, close(id, "c")));
    }
    for call in waiting {
        opened(table.wait_for(call, 300));
    }
    // Three that wait at the pool's owner right after that find room in the node that was ordered.
    let next = ask(&mut table, &own[..3]);
    table.pass(300);
    assert_eq!(table.ordered.len(), 1, "one node has room for those that wait now");
    nodes_come(&mut table);
    for call in next {
        opened(table.wait_for(call, 2_000));
    }
}

#[test]
fn an_open_that_waits_for_something_else_than_room_orders_no_node() {
    let mut table = Table::growing();
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
    let mut table = Table::growing();
    let waiting = table.ask(300, open("a", "r1"));
    table.pass(300);
    assert_eq!((table.ordered.len(), table.count(Transition::NodesOrdered)), (1, 1));
    let failure = Some("no such program".to_owned());
    table.input(300, Input::Provisioned { order: 1, begun: true, failed: Vec::new(), failure });
    assert_eq!(table.count(Transition::NodesOrdered), 1);
    assert_eq!(table.count(Transition::OrderFailed), 1);
    nodes_come(&mut table);
    opened(table.wait_for(waiting, 1_000));
}

#[test]
fn opens_that_wait_are_told_why_the_nodes_that_were_ordered_did_not_start() {
    let mut table = Table::growing();
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
    table.input(by, Input::Provisioned { order, begun: true, failed: Vec::new(), failure });
    for (id, request) in [(&far, "r2"), (&near, "r3")] {
        let text = refused_of(&mut table, id, request);
        assert!(text.ends_with("an order of new nodes failed: no such program"), "{text}");
    }
    // An order that succeeds ends that.
    table.pass(10_000);
    let waiting = table.ask_within(300, open(&far, "r4"), 20_000);
    table.pass(1_000);
    let (by, order) = *table.orders.last().expect("one more was ordered");
    table.input(by, Input::Provisioned { order, begun: true, failed: Vec::new(), failure: None });
    nodes_come(&mut table);
    opened(table.wait_for(waiting, 1_000));
}

/// What the record of the default pool's orders says failed.
fn failure(table: &Table) -> String {
    let key = rota_messages::documents::orders_name(&PoolName::default_pool());
    let docs = table.disks[&300].docs.iter();
    let orders = docs.filter(|(it, _)| it.name == key).filter_map(|(_, doc)| doc.orders());
    orders.map(|it| it.failure.clone()).next().unwrap_or_default()
}

/// What an open is told that finds no room within a second.
fn told(table: &mut Table, request: &str) -> String {
    let call = table.ask_within(300, open(&of_another_owner(table), request), 1_000);
    let refusal = table.wait_for(call, 2_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Provisioning, "{refusal:?}");
    refusal.message
}

const LATE: &str = "did not register within 10 s, such as node default-1-0";

#[test]
fn opens_that_wait_and_operators_are_told_of_nodes_that_do_not_come_until_they_do() {
    let mut table = Table::growing();
    let waiting = table.ask_within(300, open("a", "r1"), 40_000);
    table.pass(1_000);
    provisioned(&mut table);
    table.pass(9_000);
    assert_eq!(failure(&table), "", "it may come yet");
    table.pass(1_500);
    assert!(failure(&table).contains(LATE), "{}", failure(&table));
    let message = told(&mut table, "r2");
    assert!(message.contains("provisioner process was asked for nodes that"), "{message}");
    assert!(message.contains(LATE), "{message}");
    // The next order says nothing of those that did not come.
    assert!(table.ordered.len() > 1);
    provisioned(&mut table);
    table.pass(1_000);
    assert!(failure(&table).contains(LATE), "{}", failure(&table));
    assert_eq!(table.count(Transition::OrderFailed), 1, "it is noted once");
    nodes_come(&mut table);
    opened(table.wait_for(waiting, 2_000));
    table.pass(500);
    assert_eq!(failure(&table), "", "what came late is there");
}

#[test]
fn opens_are_told_of_late_nodes_as_long_as_the_pool_can_have_no_others() {
    let mut table = Table::growing();
    table.set_pool(&json!({"min_nodes": 1, "max_nodes": 1}));
    provisioned(&mut table);
    for step in 0..5 {
        table.pass(10_500);
        let message = told(&mut table, &format!("r{step}"));
        assert!(message.contains(LATE), "{step}: {message}");
    }
    assert_eq!(table.ordered.len(), 1);
}

#[test]
fn a_node_that_came_says_nothing_of_one_that_did_not() {
    let mut table = Table::growing();
    table.set_pool(&json!({"min_nodes": 2, "max_nodes": 2}));
    provisioned(&mut table);
    assert_eq!(table.ordered.len(), 2);
    table.register("default-1-1", 1);
    table.pass(12_000);
    assert!(failure(&table).contains(LATE), "{}", failure(&table));
    // Other settings bring it no sooner.
    table.set_pool(&json!({"min_nodes": 1, "max_nodes": 2}));
    table.pass(1_000);
    assert!(failure(&table).contains(LATE), "{}", failure(&table));
    table.register("default-1-0", 1);
    table.pass(1_000);
    assert_eq!(failure(&table), "");
}

#[test]
fn the_last_nodes_that_were_given_up_are_told_to_operators_and_to_no_open() {
    let mut table = Table::growing();
    let waiting = table.ask_within(300, open("a", "r1"), 5_000);
    table.pass(1_000);
    provisioned(&mut table);
    table.wait_for(waiting, 6_000).unwrap_err();
    for _ in 0..10 {
        table.pass(10_000);
    }
    assert!(failure(&table).contains(LATE), "{}", failure(&table));
    let message = told(&mut table, "r2");
    assert!(message.ends_with("a new one may be on its way"), "{message}");
    assert_eq!(failure(&table), "", "that of another order");
}

#[test]
fn a_provisioner_that_says_what_failed_is_told_instead_of_that_nodes_are_late() {
    let mut table = Table::growing();
    table.ask_within(300, open("a", "r0"), 40_000);
    table.pass(1_000);
    provisioned(&mut table);
    table.pass(12_000);
    assert!(failure(&table).contains(LATE), "{}", failure(&table));
    let (by, order) = *table.orders.last().expect("one more was ordered");
    let failure_of = Some("no quota".to_owned());
    table.input(
        by,
        Input::Provisioned { order, begun: true, failed: Vec::new(), failure: failure_of },
    );
    table.pass(1_000);
    assert_eq!(failure(&table), "no quota");
    assert!(told(&mut table, "r1").ends_with("no quota"));
}

/// Opens that want every node that the pool may get, and wait for long.
fn wants_all(table: &mut Table, name: &str) {
    for index in 0..9 * ROOM {
        table.ask_within(300, open(&format!("{name}{index}"), &format!("{name}{index}")), 59_000);
    }
}

#[test]
fn nodes_that_come_late_have_their_places_in_the_maximum_of_the_pool() {
    let mut table = Table::growing();
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
    let mut table = Table::growing();
    wants_all(&mut table, "a");
    for _ in 0..50 {
        table.pass(1_000);
        provisioned(&mut table);
    }
    assert_eq!(table.ordered.len(), 9);
    wants_all(&mut table, "b");
    for _ in 0..55 {
        table.pass(1_000);
        provisioned(&mut table);
    }
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

#[test]
fn a_burst_at_many_owners_orders_the_nodes_that_it_needs_and_no_more() {
    let mut table = Table::growing();
    table.set_pool(&json!({"max_nodes": 100, "places": 10}));
    table.places = 10;
    let calls: Vec<u64> = (0..200)
        .map(|index| {
            let id = format!("s{index}");
            table.ask_within(NUMBERS[index % 3], open(&id, &id), 59_000)
        })
        .collect();
    table.pass(900);
    // Three owners found no room. At T = 0.8 a node takes eight, and those on their way count.
    assert_eq!(table.ordered.len(), 25);
    nodes_come(&mut table);
    for call in calls {
        opened(table.wait_for(call, 1_000));
    }
    table.pass(2_000);
    assert_eq!(table.ordered, [], "who has a place waits no more");
}

#[test]
fn a_pool_keeps_its_minimum_and_its_free_places_without_any_open() {
    let mut table = Table::growing();
    table.pass(1_000);
    assert_eq!(table.ordered, []);
    table.set_pool(&json!({"min_nodes": 2}));
    assert_eq!(nodes_come(&mut table), 2);
    table.pass(2_000);
    assert_eq!(table.ordered, [], "two are there");
    // Two of four places each are free at T = 0.8, all eight.
    table.set_pool(&json!({"warm_places": 9}));
    assert_eq!(nodes_come(&mut table), 1);
    table.pass(2_000);
    assert_eq!(table.ordered, []);
    // Orders that start nothing are not repeated at once, and never above the maximum.
    table.set_pool(&json!({"warm_places": 1_000}));
    assert_eq!(table.ordered.len(), 6);
}

#[test]
fn an_order_that_fails_is_told_in_the_record_of_orders() {
    let mut table = Table::growing();
    table.set_pool(&json!({"min_nodes": 1}));
    let (by, order) = *table.orders.last().expect("one was ordered");
    table.input(
        by,
        Input::Provisioned {
            order,
            begun: true,
            failed: Vec::new(),
            failure: Some("no such program".into()),
        },
    );
    table.pass(500);
    let key = rota_messages::documents::orders_name(&PoolName::default_pool());
    let told = |disk: &rota_protocol::Disk| {
        let doc = disk.docs.iter().find(|(it, _)| it.name == key);
        doc.and_then(|(_, doc)| doc.orders()).map(|it| it.failure.clone())
    };
    for n in NUMBERS {
        assert_eq!(told(&table.disks[&n]).as_deref(), Some("no such program"), "{n}");
    }
}

#[test]
fn a_pool_spreads_and_packs_as_it_is_said_to_and_goes_by_its_own_limit() {
    let mut table = Table::laid();
    table.start_all();
    table.pass(500);
    table.places = 10;
    table.register("n1", 1);
    table.register("n2", 2);
    let ids = (0..).map(|it| format!("s{it}")).filter(|it| table.owner(it) == 300);
    let mut ids: VecDeque<String> = ids.take(12).collect();
    let mut place = |table: &mut Table| {
        let id = ids.pop_front().unwrap();
        let call = table.ask_within(300, open(&id, &id), 1_000);
        let record = opened(table.wait_for(call, 3_000)).1.record;
        record.placement.clone().unwrap().node.to_string()
    };
    table.set_pool(&json!({"policy": "spread"}));
    let mut taken: Vec<String> = (0..4).map(|_| place(&mut table)).collect();
    taken.sort();
    assert_eq!(taken, ["n1", "n1", "n2", "n2"]);
    table.set_pool(&json!({"policy": "pack", "load_limit": 0.3}));
    // Two of ten are used at each: the third is the last.
    let taken: Vec<String> = (0..2).map(|_| place(&mut table)).collect();
    assert_eq!(taken, ["n1", "n2"]);
    table.set_pool(&json!({"load_limit": null}));
    assert_eq!(place(&mut table), "n1");
}

#[test]
fn a_pool_for_some_namespaces_takes_no_session_of_others() {
    let mut table = Table::laid();
    table.start_all();
    table.pass(500);
    table.register("n1", 1);
    table.set_pool(&json!({"namespaces": ["shop"]}));
    let call = table.ask(300, open("a", "r1"));
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::InvalidArgument);
    assert_eq!(
        refusal.message,
        "pool is default, which is for sessions of namespace shop only (ringctl pool set changes that)"
    );
    let mut of_shop = open("a", "r1");
    if let Op::Open(open) = &mut of_shop {
        open.key.namespace = Namespace::parse("shop").unwrap();
    }
    let call = table.ask(300, of_shop);
    opened(table.wait_for(call, 1_000));
}

#[test]
fn whatever_is_wrong_with_the_settings_of_a_pool_is_told_and_changes_nothing() {
    let mut table = Table::growing();
    let mut told = |operation: &str, parameters: serde_json::Value| {
        let operation = Request::new(space(CONFIGURATION), operation).with(&parameters).unwrap();
        let call = table.ask(300, op(operation, SPACES_DOCID));
        match table.wait_for(call, 1_000) {
            Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_)))) => "ok".to_owned(),
            Ok(Answer::Documents(DocumentAnswer::Operated(Err(it)))) => it.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let process = json!({"provisioner": "process", "max_nodes": 9, "places": 4});
    assert_eq!(told("pool.create", json!({"name": "default", "settings": process})), "ok");
    for (operation, parameters, text) in [
        ("pool.create", json!({"name": "default"}), "A-EXISTS: name default is described already"),
        ("pool.create", json!({"name": "b", "settings": {"load_limit": 2}}), "0.001 to 1"),
        ("pool.set", json!({"name": "b", "settings": {}}), "N-DOCUMENT: name b is not described"),
        ("pool.set", json!({"name": "default", "settings": {"size": 1}}), "size is not a field"),
        ("pool.set", json!({"name": "default", "settings": {"min_nodes": 10}}), "min_nodes is 10"),
        (
            "pool.set",
            json!({"name": "default", "settings": {"provisioner": null}}),
            "places starts",
        ),
        ("pool.set", json!({"name": "default", "settings": {"policy": "fast"}}), "unknown variant"),
    ] {
        let found = told(operation, parameters.clone());
        assert!(found.contains(text), "{operation} {parameters}: {found}");
    }
    assert_eq!(told("pool.remove", json!({"name": "default"})), "ok");
    assert_eq!(told("pool.create", json!({"name": "default"})), "ok");
}

#[test]
fn nodes_that_never_start_are_ordered_again_when_the_failure_is_some_time_ago() {
    let mut table = Table::growing();
    table.set_pool(&json!({"min_nodes": 1, "max_nodes": 1}));
    let mut times = 0;
    for _ in 0..60 {
        table.pass(1_000);
        for (by, order) in std::mem::take(&mut table.orders) {
            times += 1;
            table.input(
                by,
                Input::Provisioned {
                    order,
                    begun: true,
                    failed: Vec::new(),
                    failure: Some("no such program".into()),
                },
            );
        }
    }
    // A failure is told for twenty seconds. What started nothing has no place in the maximum.
    assert_eq!(times, 3, "{:?}", table.ordered);
}

#[test]
fn a_node_that_takes_long_to_start_is_ordered_once() {
    let mut table = Table::growing();
    table.set_pool(&json!({"min_nodes": 1, "warm_places": 4}));
    table.pass(40_000);
    assert_eq!(table.ordered.len(), 1);
    let (by, order) = table.orders[0];
    table.input(by, Input::Provisioned { order, begun: true, failed: Vec::new(), failure: None });
    assert_eq!(nodes_come(&mut table), 1);
    table.pass(3_000);
    assert_eq!(table.ordered, []);
}

#[test]
fn a_clock_that_is_put_back_keeps_nobody_waiting_for_nodes_that_never_came() {
    let mut table = Table::growing();
    let waiting = table.ask_within(300, open("a", "r1"), 59_000);
    table.pass(2_000);
    provisioned(&mut table);
    assert_eq!(table.ordered.len(), 1);
    table.wall_step_ms = -3_600_000;
    for _ in 0..30 {
        table.pass(1_000);
        provisioned(&mut table);
    }
    assert!(table.ordered.len() > 1, "the first one never came");
    nodes_come(&mut table);
    opened(table.wait_for(waiting, 2_000));
}

#[test]
fn a_clock_that_is_put_back_frees_the_maximum_of_a_pool_when_its_nodes_are_given_up() {
    let mut table = Table::growing();
    table.set_pool(&json!({"max_nodes": 1}));
    let _ = table.ask_within(300, open("a", "r1"), 59_000);
    table.pass(2_000);
    provisioned(&mut table);
    let never = std::mem::take(&mut table.ordered);
    assert_eq!(never.len(), 1);
    table.wall_step_ms = -3_600_000;
    table.pass(50_000);
    assert_eq!(table.ordered, [], "the first one may come");
    let waiting = table.ask_within(300, open("b", "r2"), 59_000);
    table.pass(30_000);
    provisioned(&mut table);
    assert_eq!(nodes_come(&mut table), 1, "the first one was given up");
    opened(table.wait_for(waiting, 2_000));
}

#[test]
fn a_clock_that_is_put_forward_leaks_no_node_that_comes() {
    let mut table = Table::growing();
    let waiting = table.ask_within(300, open("a", "r1"), 59_000);
    table.pass(2_000);
    table.wall_step_ms = 3_600_000;
    table.pass(2_000);
    assert!(nodes_come(&mut table) > 0);
    opened(table.wait_for(waiting, 2_000));
    table.pass(20_000);
    assert_eq!(table.ordered, [], "those that are there are enough");
}
