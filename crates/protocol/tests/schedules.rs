//! Pools that keep more by day than by night: schedules, as the owner of the pool follows them.

use crate::table::asking::{op, space};
use crate::table::*;
use rota_docstore::Request;
use rota_model::node_msg::Register;
use rota_model::{NodeId, NodeState, PoolName};
use rota_protocol::operate::{CONFIGURATION, SPACES_DOCID};
use rota_protocol::{Answer, DocumentAnswer};
use rota_ring::slot_of_pool;
use serde_json::{Value, json};

const HOUR_MS: i64 = 3_600_000;

/// Two nodes at least from 09:00 on, and none from 20:00 on.
fn day_and_night(delay_s: u32) -> Table {
    let mut table = Table::growing();
    let schedules = json!([{"at": "D0900", "min_nodes": 2}, {"at": "D2000", "min_nodes": 0}]);
    table.set_pool(&json!({"scale_in_delay_s": delay_s, "schedules": schedules}));
    table
}

/// So many milliseconds of the day, which is 15 January 2027, have gone by.
fn ms_of_day(table: &Table) -> i64 {
    i64::try_from(table.now().wall_ms % 86_400_000).expect("a day")
}

/// The wall clock shows that moment of the day. Tables begin at eight o'clock.
fn clock_shows(table: &mut Table, hour: i64, seconds: i64) {
    table.wall_step_ms += hour * HOUR_MS + seconds * 1_000 - ms_of_day(table);
}

/// Ordered nodes come. Gives how many.
fn nodes_come(table: &mut Table) -> usize {
    let ordered: Vec<NodeId> = std::mem::take(&mut table.ordered);
    for node in &ordered {
        table.register(node.as_str(), 1);
    }
    ordered.len()
}

/// All nodes that are there renew at all managers that run, for so long.
fn nodes_renew(table: &mut Table, ms: u64) {
    let end = table.now_ms + ms;
    while table.now_ms < end {
        let there = table.config.nodes.values().filter(|it| !it.state.is_gone());
        let there: Vec<String> = there.map(|it| it.node.to_string()).collect();
        let managers: Vec<u32> = table.managers.keys().copied().collect();
        for node in there {
            for n in &managers {
                table.renews(*n, &node);
            }
        }
        table.pass(200);
    }
}

/// All nodes say that they have left.
fn all_leave(table: &mut Table) {
    let nodes: Vec<String> = table.config.nodes.keys().map(ToString::to_string).collect();
    for node in nodes {
        table.register_as(&node, 1, table.places, &["builtin".to_owned()], |register| Register {
            state: NodeState::Removed,
            ..register
        });
    }
}

fn count(table: &Table, state: NodeState) -> usize {
    table.config.nodes.values().filter(|it| it.state == state).count()
}

/// The owner of the pool.
fn owner(table: &Table) -> u32 {
    table.view().owner_of(slot_of_pool(&PoolName::default_pool(), 1024)).0
}

#[test]
fn nodes_are_ordered_at_the_moment_and_end_at_night_after_they_were_spare_for_the_delay() {
    let mut table = day_and_night(15);
    clock_shows(&mut table, 9, -5);
    table.pass(4_900);
    assert_eq!(table.ordered, [], "09:00 has not come");
    table.pass(300);
    assert_eq!(nodes_come(&mut table), 2);
    nodes_renew(&mut table, 3_000);
    assert_eq!(table.ordered, [], "two are there");
    // They were spare for three seconds.
    clock_shows(&mut table, 20, -5);
    nodes_renew(&mut table, 10_000);
    assert!(ms_of_day(&table) > 20 * HOUR_MS);
    assert_eq!(count(&table, NodeState::Ready), 2, "not for long enough");
    nodes_renew(&mut table, 4_000);
    assert_eq!(count(&table, NodeState::Draining), 2);
    nodes_renew(&mut table, 2_000);
    assert_eq!(table.ordered, [], "nothing is needed by night");
}

#[test]
fn who_takes_over_by_day_keeps_what_the_schedule_set_and_lets_it_go_by_night() {
    let mut table = day_and_night(1);
    clock_shows(&mut table, 9, 0);
    table.pass(500);
    assert_eq!(nodes_come(&mut table), 2);
    let first = owner(&table);
    table.kill(first);
    for _ in 0..40 {
        nodes_renew(&mut table, 500);
        if owner(&table) != first {
            break;
        }
    }
    assert_ne!(owner(&table), first, "somebody takes over");
    nodes_renew(&mut table, 5_000);
    assert_eq!((count(&table, NodeState::Ready), &*table.ordered), (2, &[][..]));
    clock_shows(&mut table, 20, 0);
    nodes_renew(&mut table, 4_000);
    assert_eq!(count(&table, NodeState::Draining), 2);
    all_leave(&mut table);
    // The next day comes.
    clock_shows(&mut table, 33, 0);
    table.pass(500);
    assert_eq!(table.ordered.len(), 2);
}

#[test]
fn a_warm_buffer_of_a_schedule_takes_the_place_of_the_pools_own_until_another_one_sets_it() {
    let mut table = Table::growing();
    let schedules = json!([{"at": "H10", "warm_places": 9}, {"at": "H20", "warm_nodes": 1},
        {"at": "H30", "min_nodes": 3}]);
    clock_shows(&mut table, 9, 5 * 60);
    table.set_pool(&json!({"warm_places": 1_000, "schedules": schedules}));
    // Of the hour before.
    assert_eq!(nodes_come(&mut table), 3, "since 08:30 three are kept");
    clock_shows(&mut table, 9, 10 * 60);
    table.pass(1_000);
    assert_eq!(table.ordered, [], "twelve places are free");
    table.set_pool(&json!({"schedules": null}));
    assert_eq!(table.ordered.len(), 6, "the pool's own buffer fills it up to its maximum");
}

#[test]
fn what_is_wrong_with_schedules_is_told_with_its_place_and_changes_nothing() {
    let mut table = Table::growing();
    let mut told = |schedules: Value| {
        let parameters = json!({"name": "default", "settings": {"schedules": schedules}});
        let operation = Request::new(space(CONFIGURATION), "pool.set").with(&parameters).unwrap();
        let call = table.ask(300, op(operation, SPACES_DOCID));
        match table.wait_for(call, 1_000) {
            Ok(Answer::Documents(DocumentAnswer::Operated(Err(it)))) => it.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let hour = json!({"at": "H00", "min_nodes": 1});
    for (schedules, text) in [
        (
            json!([hour, {"at": "D2500", "min_nodes": 1}]),
            "schedules[1].at column 2: the hour is 25",
        ),
        (
            json!([hour, {"at": "H30", "min_nodes": 10}]),
            "schedules[1].min_nodes is 10, and max_nodes",
        ),
        (json!([{"at": "H30"}]), "schedules[0] sets nothing"),
        (json!([{"at": "H30", "max_nodes": 1}]), "unknown field `max_nodes`"),
        (json!(vec![hour; 17]), "schedules are 17; the limit is 16"),
    ] {
        let found = told(schedules);
        assert!(found.contains(text), "{found}");
    }
    table.pass(1_000);
    assert_eq!(table.ordered, [], "no schedule is there");
}
