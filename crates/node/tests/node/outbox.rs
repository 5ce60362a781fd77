//! The outbox: at least once, in order per session, coalesced, bounded.

use crate::world::*;
use rota_model::node_msg::ReportEvent;
use rota_node::{NodeEffect, NodeInput, ReportId};

fn machine_state(world: &mut World, id: &str, change: u64) -> Vec<NodeEffect> {
    let state = format!("s{change}");
    world.give(NodeInput::MachineState {
        key: key(id),
        token: token(1, 1),
        state,
        change,
        told: true,
    })
}

fn acked(world: &mut World, id: ReportId) -> Vec<NodeEffect> {
    world.give(NodeInput::ReportsAcked { ids: vec![id] })
}

fn changes(effects: &[NodeEffect]) -> Vec<u64> {
    let changes = reports(effects).into_iter().map(|(_, _, event)| match event {
        ReportEvent::MachineState { change, .. } => change,
        other @ (ReportEvent::Ready { .. } | ReportEvent::Ended { .. }) => panic!("{other:?}"),
    });
    changes.collect()
}

#[test]
fn readiness_and_end_are_reported_in_order_each_after_the_other_is_acknowledged() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    world.started("a", token(1, 1), false);
    let ready = NodeInput::Ready { key: key("a"), token: token(1, 1), address: "x:1".into() };
    let first = reports(&world.give(ready.clone()));
    assert_eq!(
        first[0].2,
        ReportEvent::Ready { address: "x:1".into(), remark: "said of a".into() }
    );
    assert_eq!(world.give(ready), vec![], "it is ready once");
    assert_eq!(reports(&world.ended("a", token(1, 1))), vec![]);
    let second = reports(&acked(&mut world, first[0].0));
    assert!(matches!(second[0].2, ReportEvent::Ended { .. }));
    assert_eq!(acked(&mut world, second[0].0), vec![]);
    assert_eq!(world.node.outbox_sessions(), 0);
}

#[test]
fn a_session_that_was_ready_at_its_start_needs_no_report() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    assert_eq!(world.node.outbox_sessions(), 0);
}

#[test]
fn an_unacknowledged_report_is_sent_again_with_growing_pauses() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let sent = world.ended("a", token(1, 1));
    let id = reports(&sent)[0].0;
    let mut times = Vec::new();
    for _ in 0..60_000 {
        let effects = world.pass(1, true);
        for effect in &effects {
            if let NodeEffect::Report { id: again, attempt, .. } = effect {
                assert_eq!(*again, id);
                times.push((world.now - 1_000, *attempt));
            }
        }
        if times.len() == 6 {
            break;
        }
    }
    let expected = [(1_000, 1), (3_000, 2), (7_000, 3), (15_000, 4), (23_000, 5), (31_000, 6)];
    assert_eq!(times, expected);
}

#[test]
fn states_that_wait_are_coalesced_to_the_newest() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let first = machine_state(&mut world, "a", 0);
    assert_eq!(changes(&first), [0]);
    for change in 1..=5 {
        assert_eq!(machine_state(&mut world, "a", change), vec![]);
    }
    let next = acked(&mut world, reports(&first)[0].0);
    assert_eq!(changes(&next), [5]);
    assert_eq!(acked(&mut world, reports(&next)[0].0), vec![]);
    assert_eq!(world.node.outbox_sessions(), 0);
}

#[test]
fn a_state_that_is_not_acknowledged_in_time_gives_way_to_a_newer_one() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let old = reports(&machine_state(&mut world, "a", 1))[0].0;
    machine_state(&mut world, "a", 2);
    let again = world.pass(1_000, true);
    assert_eq!(changes(&again), [2]);
    assert_eq!(acked(&mut world, old), vec![], "the old one is nobody's business any more");
    assert_eq!(world.node.outbox_sessions(), 1);
    acked(&mut world, reports(&again)[0].0);
    assert_eq!(world.node.outbox_sessions(), 0);
}

#[test]
fn late_or_repeated_machine_states_are_no_news() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let first = reports(&machine_state(&mut world, "a", 4))[0].0;
    machine_state(&mut world, "a", 3);
    machine_state(&mut world, "a", 4);
    assert_eq!(acked(&mut world, first), vec![]);
    assert_eq!(world.node.outbox_sessions(), 0);
}

#[test]
fn the_last_state_is_reported_before_the_end() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let first = reports(&machine_state(&mut world, "a", 1))[0].0;
    machine_state(&mut world, "a", 2);
    world.ended("a", token(1, 1));
    let second = acked(&mut world, first);
    assert_eq!(changes(&second), [2]);
    let third = acked(&mut world, reports(&second)[0].0);
    assert!(matches!(reports(&third)[0].2, ReportEvent::Ended { .. }));
}

#[test]
fn a_destroy_takes_the_sessions_news_along() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let id = reports(&machine_state(&mut world, "a", 1))[0].0;
    world.destroy("a", token(1, 1));
    assert_eq!(world.node.outbox_sessions(), 0);
    assert_eq!(machine_state(&mut world, "a", 2), vec![]);
    assert_eq!(acked(&mut world, id), vec![]);
    assert_eq!(reports(&world.pass(2_000, true)), vec![]);
}

#[test]
fn reports_beyond_the_window_wait_for_acknowledgements() {
    let mut small = config();
    small.bounds.reports_in_flight_max = 2;
    let mut world = World::with(small);
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        world.run(id, token(1, 1));
    }
    let mut sent = Vec::new();
    for id in ids {
        sent.extend(reports(&world.ended(id, token(1, 1))));
    }
    let names: Vec<&str> = sent.iter().map(|it| it.1.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let next = reports(&acked(&mut world, sent[1].0));
    assert_eq!((next.len(), next[0].1.as_str()), (1, "c"));
}

#[test]
fn a_full_outbox_takes_no_new_sessions_but_loses_no_end() {
    let mut small = config();
    small.bounds.outbox_sessions_max = 1;
    let mut world = World::with(small);
    for id in ["a", "b"] {
        world.run(id, token(1, 1));
    }
    world.ended("a", token(1, 1));
    assert!(never(&answer(&world.create("c", token(1, 2)))));
    world.ended("b", token(1, 1));
    assert_eq!(world.node.outbox_sessions(), 2);
}

#[test]
fn news_of_a_newer_attempt_replace_those_of_an_older_one() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let old = reports(&world.ended("a", token(1, 1)))[0].0;
    world.run("a", token(1, 2));
    let new = reports(&world.ended("a", token(1, 2)))[0].0;
    assert_eq!(acked(&mut world, old), vec![]);
    assert_eq!(world.node.outbox_sessions(), 1);
    acked(&mut world, new);
    assert_eq!(world.node.outbox_sessions(), 0);
}

/// The reports among effects, by session.
fn told(effects: &[NodeEffect]) -> Vec<String> {
    reports(effects).into_iter().map(|it| it.1).collect()
}

#[test]
fn what_waits_goes_at_once_when_a_renewal_is_granted_after_one_that_was_not() {
    let mut world = World::registered();
    for id in ["a", "b"] {
        world.run(id, token(1, 1));
        world.ended(id, token(1, 1));
    }
    // Nobody takes anything, and no renewal is granted.
    world.pass(7_500, false);
    let asked = world.now;
    assert_eq!(told(&world.pass(400, false)), Vec::<String>::new(), "the pause is four seconds");
    assert_eq!(told(&world.grant(asked)), ["a", "b"]);
    // The pauses begin anew.
    assert_eq!(told(&world.pass(1_100, true)), ["a", "b"]);
    // A grant like any other hurries nothing.
    let asked = world.now;
    world.pass(100, false);
    assert_eq!(told(&world.grant(asked)), Vec::<String>::new());
}

#[test]
fn what_waits_goes_at_once_when_one_is_taken_after_a_failure_and_each_of_them_once() {
    let mut world = World::registered();
    let ids = ["a", "b", "c"];
    let mut sent = Vec::new();
    for id in ids {
        world.run(id, token(1, 1));
        sent.extend(reports(&world.ended(id, token(1, 1))));
    }
    world.pass(7_500, true);
    assert_eq!(told(&acked(&mut world, sent[0].0)), ["b", "c"]);
    assert_eq!(told(&acked(&mut world, sent[1].0)), Vec::<String>::new(), "c is on its way");
    assert_eq!(told(&acked(&mut world, sent[2].0)), Vec::<String>::new());
    assert_eq!(world.node.outbox_sessions(), 0);
}

#[test]
fn what_waits_for_an_owner_that_is_away_is_not_hurried_by_what_another_takes() {
    let mut world = World::registered();
    world.run("stuck", token(1, 1));
    world.ended("stuck", token(1, 1));
    world.pass(7_500, true);
    world.run("fine", token(1, 1));
    let sent = reports(&world.ended("fine", token(1, 1)));
    assert_eq!(told(&acked(&mut world, sent[0].0)), Vec::<String>::new());
}
