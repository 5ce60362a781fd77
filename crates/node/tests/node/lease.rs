//! The lease: what it counts from, and what happens when it runs out or is lost.

use crate::world::*;
use rota_model::node_msg::{Blame, DeadToken, NodeAnswer, ReportEvent};
use rota_model::node_msg::{NodeCall, Renewed, ToNode, ToldLimit};
use rota_model::{BootId, Epoch, ManagerNumber, Reason};
use rota_node::{LeaseState, NodeEffect, NodeInput, SlotLease, StopHow};

fn renews(effects: &[NodeEffect]) -> Vec<u64> {
    let mut sent = Vec::new();
    for effect in effects {
        if let NodeEffect::Renew { sent_mono_ms, .. } = effect {
            sent.push(*sent_mono_ms);
        }
    }
    sent
}

fn answered(world: &mut World, sent_mono_ms: u64, renewed: Renewed) -> Vec<NodeEffect> {
    world.give(NodeInput::Renewed { boot: BOOT, sent_mono_ms, renewed })
}

/// The lease of these slots, if that was sent then.
fn slots(first: u32, last: u32, sent_ms: u64) -> SlotLease {
    let (term_at_mono_ms, kill_at_mono_ms) = (sent_ms + 8_000, sent_ms + 12_000);
    SlotLease { slots: range(first, last), term_at_mono_ms, kill_at_mono_ms }
}

fn lease(sent_ms: u64) -> NodeEffect {
    NodeEffect::Lease { slots: vec![slots(0, M - 1, sent_ms)] }
}

#[test]
fn a_registration_starts_the_lease_and_the_renewals() {
    let mut world = World::unregistered(config());
    let effects =
        world.give(NodeInput::Registered { sent_mono_ms: 900, registered: registered(1) });
    assert_eq!(effects[0], lease(900));
    let NodeEffect::Renew { sent_mono_ms: 1_000, renew, managers } = &effects[1] else {
        panic!("{effects:?}");
    };
    assert_eq!((renew.boot, renew.load.offered.places, managers.len()), (BOOT, 10, 2));
    assert_eq!(world.node.lease(), LeaseState::Valid);
}

#[test]
fn renewals_go_out_at_every_interval_and_sooner_while_nobody_grants_them() {
    let mut world = World::registered();
    assert_eq!(renews(&world.pass(9_000, true)), [4_000, 7_000, 10_000]);
    // The owners hang.
    assert_eq!(renews(&world.pass(5_500, false)), [13_000, 14_000, 15_000]);
    world.grant(15_000);
    assert_eq!(renews(&world.pass(5_500, true)), [18_000, 21_000]);
}

#[test]
fn a_manager_that_reaches_the_node_is_asked_at_once_while_nobody_has_granted() {
    let mut world = World::registered();
    assert_eq!(renews(&world.pass(3_000, false)), [4_000]);
    world.pass(400, false);
    assert_eq!(renews(&world.give(NodeInput::Reached)), [4_400]);
    world.grant(4_400);
    assert_eq!(renews(&world.give(NodeInput::Reached)), [0_u64; 0], "it is granted");
    assert_eq!(renews(&world.pass(3_000, true)), [7_400]);
}

#[test]
fn the_lease_counts_from_when_the_granted_renewal_was_sent() {
    let mut world = World::registered();
    world.pass(3_500, false);
    let effects = world.grant(4_000);
    assert_eq!(effects, [lease(4_000)]);
    assert_eq!(world.grant(3_000), vec![], "an older grant does not move it back");
    assert_eq!(world.node.lease_deadlines(), [slots(0, M - 1, 4_000)]);
}

#[test]
fn without_a_renewal_everything_is_ended_and_then_killed() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.run("b", token(1, 2));
    assert_eq!(stops(&world.pass(7_999, false)), []);
    let effects = world.pass(1, false);
    let all = |how| [("a".to_owned(), how), ("b".to_owned(), how)];
    assert_eq!(stops(&effects), all(StopHow::Term));
    assert_eq!(world.node.lease(), LeaseState::Term);
    let effects = world.stopped("a", token(1, 1));
    let ReportEvent::Ended { reason, .. } = &reports(&effects)[0].2 else { panic!("{effects:?}") };
    assert_eq!(*reason, Reason::LeaseNotRenewed);
    let effects = world.pass(4_000, false);
    assert_eq!(stops(&effects), [("b".to_owned(), StopHow::Kill)]);
    assert_eq!(world.node.lease(), LeaseState::Kill);
}

#[test]
fn a_grant_that_is_at_hand_counts_before_the_clock_is_looked_at() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.pass(7_000, false);
    world.now = 9_500;
    assert_eq!(stops(&world.grant(7_000)), []);
    assert_eq!(world.node.lease(), LeaseState::Valid);
}

#[test]
fn a_grant_that_was_under_way_too_long_does_not_save_the_sessions() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.now = 15_000;
    let effects = world.grant(4_000);
    assert_eq!(stops(&effects), [("a".to_owned(), StopHow::Term)]);
}

#[test]
fn what_was_ended_politely_is_killed_even_if_the_lease_comes_back() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.pass(8_500, false);
    world.grant(9_000);
    assert_eq!(world.node.lease(), LeaseState::Valid);
    let effects = world.pass(5_000, true);
    assert_eq!(stops(&effects), [("a".to_owned(), StopHow::Kill)]);
}

#[test]
fn the_leases_times_overrule_the_grace_of_a_destroy_under_way() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.destroy("a", token(1, 1));
    let effects = world.pass(12_000, false);
    let stop = |how| ("a".to_owned(), how);
    assert_eq!(stops(&effects), [stop(StopHow::Term), stop(StopHow::Kill)]);
}

#[test]
fn nothing_is_started_without_a_lease_and_the_refusal_is_definite() {
    let mut world = World::registered();
    world.pass(8_000, false);
    let refused = world.create("a", token(1, 1));
    let why = answer(&refused);
    let slot = slot(&key("a"));
    let detail = format!("no owner of slot {slot} has renewed the lease of node n0 there");
    let expected = DeadToken::NeverStarted { blame: Blame::Node, detail };
    assert_eq!(why, NodeAnswer::Dead(expected));
    world.grant(world.now);
    assert_eq!(answer(&world.create("a", token(1, 1))), why, "the same answer, blame and all");
    assert_eq!(starts(&world.create("a", token(1, 2))), 1);
}

#[test]
fn a_manager_that_cannot_grant_yet_is_asked_again_soon() {
    let mut world = World::registered();
    let sent = world.now;
    answered(&mut world, sent, Renewed::NotServing);
    assert_eq!(
        renews(&world.pass(2_000, false)),
        [0; 0],
        "the registration has granted this lease"
    );

    assert_eq!(renews(&world.pass(1_000, false)), [4_000]);
    answered(&mut world, 4_000, Renewed::NotServing);
    assert_eq!(renews(&world.pass(500, false)), [4_300]);

    // When all is granted, early repetitions are needless, whoever else is not ready.
    answered(&mut world, 4_300, Renewed::NotServing);
    world.grant(4_300);
    answered(&mut world, 4_300, Renewed::NotServing);
    assert_eq!(renews(&world.pass(2_799, false)), [0; 0]);
    assert_eq!(renews(&world.pass(1, false)), [7_300]);
}

fn heard(epoch: u64, managers: Vec<(ManagerNumber, String)>, more: bool) -> Renewed {
    let (epoch, load_limit, grants) = (Epoch(epoch), ToldLimit::Nothing, vec![]);
    Renewed::Heard { epoch, managers, load_limit, grants, more, retires: false }
}

#[test]
fn a_manager_that_came_up_since_the_last_round_is_asked_at_once() {
    let mut world = World::registered();
    assert_eq!(renews(&world.pass(3_000, false)), [4_000]);
    let news = heard(9, vec![(ManagerNumber(77), "m77:1".to_owned())], false);
    answered(&mut world, 4_000, news.clone());
    assert_eq!(renews(&world.pass(500, false)), [4_300], "a round without an owner counts little");
    answered(&mut world, 4_300, news);
    assert_eq!(renews(&world.pass(999, false)), [5_300], "it was asked this time");
}

#[test]
fn managers_are_learned_from_the_newest_view_only() {
    let mut world = World::registered();
    let list = |number: u32| vec![(ManagerNumber(number), format!("m{number}:1"))];
    answered(&mut world, 1_000, heard(5, list(5), false));
    answered(&mut world, 1_000, heard(4, list(4), false));
    assert_eq!(world.node.managers(), list(5));
    answered(&mut world, 1_000, heard(6, vec![], false));
    assert_eq!(world.node.managers(), list(5), "an empty list would leave nobody to ask");
}

#[test]
fn a_manager_that_owns_nothing_renews_nothing() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.pass(7_000, false);
    answered(&mut world, 7_000, heard(1, vec![], false));
    assert_eq!(stops(&world.pass(1_000, false)).len(), 1);
}

#[test]
fn each_owner_grants_its_own_slots_and_what_nobody_grants_ends_alone() {
    let mut world = World::registered();
    let (a, b) = (slot(&key("a")), slot(&key("b")));
    assert_ne!(a, b);
    world.run("a", token(1, 1));
    world.run("b", token(1, 2));
    world.pass(6_000, false);
    let effects = world.grant_to(7_000, &[(range(a.0, a.0), 1)]);
    let [NodeEffect::Lease { slots: told }] = &effects[..] else { panic!("{effects:?}") };
    assert!(told.contains(&slots(a.0, a.0, 7_000)), "{told:?}");
    assert!(told.iter().any(|it| it.slots.contains(b) && it.term_at_mono_ms == 9_000), "{told:?}");
    assert_eq!(stops(&world.pass(2_000, false)), [("b".to_owned(), StopHow::Term)]);
    let leases = |world: &World| [world.node.lease_of(a), world.node.lease_of(b)];
    assert_eq!(leases(&world), [LeaseState::Valid, LeaseState::Term]);
    assert_eq!(world.node.lease(), LeaseState::Valid, "of any slot");
    assert!(never(&answer(&world.create("f", token(1, 3)))), "f lies where b does");
    assert_eq!(starts(&world.create("e", token(1, 4))), 1, "e lies where a does");
    assert_eq!(stops(&world.pass(4_000, false)), [("b".to_owned(), StopHow::Kill)]);
}

#[test]
fn a_slot_that_has_another_owner_now_is_not_granted_by_the_one_before() {
    let mut world = World::registered();
    let (a, b) = (slot(&key("a")), slot(&key("b")));
    world.run("a", token(1, 1));
    world.run("b", token(1, 2));
    world.pass(6_000, false);
    let split = ToNode::Scan {
        head: NodeCall { range: range(b.0, b.0), ..world.head(5) },
        after: None,
        limit: 1,
    };
    world.call(split);
    world.grant_to(7_000, &[(range(4, 3), 4)]);
    let term = |world: &World, slot| {
        let of = world.node.lease_deadlines();
        of.into_iter().find(|it| it.slots.contains(slot)).map(|it| it.term_at_mono_ms)
    };
    assert_eq!([term(&world, a), term(&world, b)], [Some(15_000), Some(9_000)]);
    world.grant_to(7_000, &[(range(b.0, M + 7), 9)]);
    assert_eq!(term(&world, b), Some(9_000), "no such slots are there");
    world.grant_to(7_000, &[(range(b.0, b.0), 5)]);
    assert_eq!(term(&world, b), Some(15_000));
}

#[test]
fn a_start_that_wants_a_lease_makes_the_node_ask_its_owner_at_once() {
    let mut world = World::registered();
    world.pass(8_000, false);
    world.grant_to(9_000, &[(range(8, 8), 1)]);
    world.pass(500, false);
    let asked = renews(&world.create("a", token(1, 1)));
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(renews(&world.create("b", token(1, 2))).len(), 0, "it was just asked");
}

#[test]
fn a_lost_boot_kills_everything_says_nothing_more_and_boots_anew() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.run("b", token(1, 2));
    world.destroy("b", token(1, 2));
    let effects = answered(&mut world, 1_000, Renewed::Lost);
    let all = [("a".to_owned(), StopHow::Kill), ("b".to_owned(), StopHow::Kill)];
    assert_eq!(stops(&effects), all);
    assert_eq!(world.create("c", token(1, 3)), vec![]);
    assert_eq!(world.stopped("a", token(1, 1)), vec![]);
    assert_eq!(world.stopped("b", token(1, 2)), [NodeEffect::BootAnew]);
    assert_eq!(world.node.wake_at(), None);
    assert_eq!(world.grant(world.now), vec![]);
    assert_eq!(world.pass(60_000, false), vec![]);
    assert_eq!(world.node.lease(), LeaseState::Lost);
}

#[test]
fn an_answer_to_an_earlier_boots_renewal_is_ignored() {
    let mut world = World::registered();
    let late = NodeInput::Renewed { boot: BootId(1), sent_mono_ms: 0, renewed: Renewed::Lost };
    assert_eq!(world.give(late), vec![]);
    assert_eq!(world.node.lease(), LeaseState::Valid);
}

#[test]
fn a_node_that_its_pool_needs_no_more_leaves_as_soon_as_nothing_runs_there() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.retires = true;
    let effects = world.grant(1_000);
    assert!(!effects.contains(&NodeEffect::Retire), "something runs");
    world.run("b", token(1, 2));
    world.destroy("a", token(1, 1));
    world.stopped("a", token(1, 1));
    world.destroy("b", token(1, 2));
    let effects = world.stopped("b", token(1, 2));
    assert!(!effects.contains(&NodeEffect::Retire), "nobody has told it since");
    let effects = world.grant(1_000);
    assert!(effects.contains(&NodeEffect::Retire), "{effects:?}");
    assert!(never(&answer(&world.create("c", token(1, 3)))), "it takes nothing any more");
    assert!(!world.grant(1_000).contains(&NodeEffect::Retire), "once is enough");
}

#[test]
fn a_node_that_leaves_ends_everything_reports_it_and_says_so() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let effects = world.give(NodeInput::Leave);
    assert_eq!(stops(&effects), [("a".to_owned(), StopHow::Class)]);
    assert!(never(&answer(&world.create("b", token(1, 2)))));
    let effects = world.stopped("a", token(1, 1));
    let told = reports(&effects);
    assert!(matches!(told[0].2, ReportEvent::Ended { reason: Reason::Drained, .. }));
    assert!(!effects.contains(&NodeEffect::Left));
    let effects = world.give(NodeInput::ReportsAcked { ids: vec![told[0].0] });
    assert_eq!(effects, [NodeEffect::Left]);
    assert_eq!(world.give(NodeInput::Leave), vec![]);
}

#[test]
fn a_node_that_is_told_who_runs_the_ring_now_renews_with_them_at_once_and_answers_nothing() {
    let mut world = World::registered();
    world.pass(500, true);
    let meet = |world: &mut World, pe, epoch, boot| {
        let head = rota_model::node_msg::NodeCall { boot, ..world.head(pe) };
        let managers = vec![(ManagerNumber(5), "c:1".to_owned())];
        world.call(ToNode::Meet { head, epoch: Epoch(epoch), managers })
    };
    assert_eq!(meet(&mut world, 2, 1, BOOT), [], "it knows those of that epoch");
    let to_another = meet(&mut world, 2, 3, BootId(BOOT.0 + 1));
    assert_eq!(renews(&to_another), [0; 0], "another boot is meant");
    let effects = meet(&mut world, 2, 2, BOOT);
    let [NodeEffect::Renew { managers, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*managers, [(ManagerNumber(5), "c:1".to_owned())]);
    assert_eq!(meet(&mut world, 1, 4, BOOT).len(), 1, "an earlier owner is told of its fence");
    assert_eq!(world.node.managers(), [(ManagerNumber(5), "c:1".to_owned())]);
}
