//! What an agent writes down, and how the next one goes on from it.

use crate::world::*;
use rota_model::node_msg::{Blame, DeadToken, NodeAnswer, Renewed};
use rota_node::{Entry, EntryKind, LeaseState, Node, NodeEffect, NodeInput, NotResumed, StopHow};

fn adopted(effects: &[NodeEffect]) -> Vec<(String, bool)> {
    let adopts = effects.iter().filter_map(|effect| {
        let NodeEffect::Adopt { key, adopted, .. } = effect else { return None };
        Some((key.id.to_string(), adopted.ready))
    });
    adopts.collect()
}

#[test]
fn what_runs_is_adopted_and_its_token_is_started_by_nobody_again() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.create("b", token(1, 2));
    let effects = world.resume().unwrap();
    assert_eq!(adopted(&effects), [("a".to_owned(), true), ("b".to_owned(), false)]);
    assert_eq!(world.node.config().boot, BOOT, "it is the same boot");
    let again = world.create("a", token(1, 1));
    assert!(matches!(&answers(&again)[..], [NodeAnswer::Running { ready: true, .. }]), "{again:?}");
    assert!(!again.iter().any(|it| matches!(it, NodeEffect::Start { .. })));
}

#[test]
fn a_start_that_came_to_nothing_with_its_agent_is_the_nodes_fault() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    world.resume().unwrap();
    // However late the next agent comes, what started in time is not stopped.
    world.now += 7_000;
    let effects = world.give(NodeInput::Tick);
    assert!(!effects.iter().any(|it| matches!(it, NodeEffect::Stop { .. })), "{effects:?}");
    let (key, detail) = (key("a"), "its agent ended before it began".to_owned());
    world.give(NodeInput::StartFailed { key, token: token(1, 1), detail });
    let again = world.create("a", token(1, 1));
    let blamed = DeadToken::NeverStarted {
        blame: Blame::Node,
        detail: "its agent ended before it began".to_owned(),
    };
    assert_eq!(answers(&again), [NodeAnswer::Dead(blamed)]);
}

#[test]
fn what_was_being_ended_is_stopped_again_as_urgently() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.destroy("a", token(1, 1));
    let effects = world.resume().unwrap();
    let stops = effects.iter().filter_map(|effect| {
        let NodeEffect::Stop { how, .. } = effect else { return None };
        Some(*how)
    });
    assert_eq!(stops.collect::<Vec<_>>(), [StopHow::Class]);
    let effects = world.stopped("a", token(1, 1));
    assert!(answers(&effects).is_empty(), "whoever asked for it asks again");
    let again = world.destroy("a", token(1, 1));
    assert!(matches!(&answers(&again)[..], [NodeAnswer::Destroyed { exit: Some(_), .. }]));
}

#[test]
fn the_next_agent_knows_fences_dead_tokens_and_what_nobody_has_acknowledged() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.ended("a", token(1, 1));
    let raising = world.create_message("b", token(1, 2), 7);
    world.call(raising);
    world.resume().unwrap();
    assert_eq!(world.node.outbox_sessions(), 1);
    let late = world.create("a", token(1, 1));
    assert!(matches!(&answers(&late)[..], [NodeAnswer::Fenced { .. }]), "{late:?}");
    let message = world.create_message("a", token(1, 1), 7);
    let answered = world.call(message);
    let dead = |it: &NodeAnswer| matches!(it, NodeAnswer::Dead(DeadToken::Ended { .. }));
    assert!(answers(&answered).iter().all(dead), "{answered:?}");
}

#[test]
fn a_dead_token_is_remembered_as_long_as_if_no_agent_had_died() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.destroy("a", token(1, 1));
    world.stopped("a", token(1, 1));
    let tombstone_ms = world.node.config().timing.tombstone_ms;
    world.pass(tombstone_ms / 2, true);
    world.resume().unwrap();
    world.give(NodeInput::Registered { sent_mono_ms: world.now, registered: registered(1) });
    world.pass(tombstone_ms / 2 - 1_000, true);
    assert_eq!(world.node.dead_count(), 1);
    world.pass(2_000, true);
    assert_eq!(world.node.dead_count(), 0);
    world.resume().unwrap();
    let late = world.create("a", token(1, 1));
    assert!(never(&answers(&late)[0]), "a forgotten token is started by nobody: {late:?}");
}

#[test]
fn the_next_agent_has_the_lease_that_keepers_have_and_no_other() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let timing = world.node.config().timing;
    world.pass(timing.lease_term_ms - 100, false);
    let mut effects = world.resume().unwrap();
    effects.extend(world.give(NodeInput::Tick));
    assert_eq!(world.node.lease(), LeaseState::Valid);
    assert!(!effects.iter().any(|it| matches!(it, NodeEffect::Stop { .. })));
    let registered = registered(1);
    world.give(NodeInput::Registered { sent_mono_ms: world.now, registered });
    let effects = world.pass(200, false);
    let term = |it: &NodeEffect| matches!(it, NodeEffect::Stop { how: StopHow::Term, .. });
    assert!(effects.iter().any(term), "a registration is no grant: {effects:?}");
}

#[test]
fn what_was_declared_lost_or_never_registered_does_not_go_on() {
    let unregistered = World::unregistered(config());
    assert_eq!(unregistered.next_agent().unwrap_err(), NotResumed::NeverRegistered);
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let (boot, sent_mono_ms) = (BOOT, world.now);
    world.give(NodeInput::Renewed { boot, sent_mono_ms, renewed: Renewed::Lost });
    assert_eq!(world.next_agent().unwrap_err(), NotResumed::Lost);
    let tail = world.journal.split_off(1);
    let headless = Node::resumed(config(), tail, &world.node.lease_deadlines());
    assert_eq!(headless.unwrap_err(), NotResumed::NoBoot);
}

#[test]
fn nothing_goes_on_whose_lease_no_keeper_can_read() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let resumed = Node::resumed(config(), world.journal.clone(), &[]);
    assert_eq!(resumed.unwrap_err(), NotResumed::NoLease);
}

#[test]
fn a_machine_goes_on_in_the_state_that_was_told_last_also_when_no_manager_is_told() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let (key, token, state) = (key("a"), token(1, 1), "open".to_owned());
    world.give(NodeInput::MachineState { key, token, state, change: 3, told: false });
    assert_eq!(world.node.outbox_sessions(), 0);
    let effects = world.resume().unwrap();
    let machine = effects.iter().find_map(|effect| {
        let NodeEffect::Adopt { adopted, .. } = effect else { return None };
        adopted.machine.clone()
    });
    assert_eq!(machine, Some(("open".to_owned(), 3)));
    let (items, _) = world.scan(1, None, 10);
    assert!(format!("{items:?}").contains("machine_state: \"\""), "{items:?}");
}

#[test]
fn entries_are_read_as_they_were_written() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.create("b", token(1, 2));
    world.ended("a", token(1, 1));
    let (boot, sent_mono_ms) = (BOOT, world.now);
    world.give(NodeInput::Renewed { boot, sent_mono_ms, renewed: Renewed::Lost });
    let kinds: Vec<EntryKind> = world.journal.iter().map(Entry::kind).collect();
    for kind in [
        EntryKind::Boot,
        EntryKind::Fences,
        EntryKind::Session,
        EntryKind::Dead,
        EntryKind::News,
        EntryKind::Lost,
    ] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
    for entry in &world.journal {
        let text = serde_json::to_string(entry).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), *entry, "{text}");
    }
}
