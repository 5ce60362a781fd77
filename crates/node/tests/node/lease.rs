//! The lease: what it counts from, and what happens when it runs out or is lost.

use crate::world::*;
use rota_model::node_msg::{Blame, DeadToken, NodeAnswer, ReportEvent};
use rota_model::node_msg::{Renewed, ToNode, ToldLimit};
use rota_model::{BootId, Epoch, ManagerNumber, Reason};
use rota_node::{LeaseState, NodeEffect, NodeInput, StopHow};

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

#[test]
fn a_registration_starts_the_lease_and_the_renewals() {
    let mut world = World::unregistered(config());
    let effects =
        world.give(NodeInput::Registered { sent_mono_ms: 900, registered: registered(1) });
    let lease = NodeEffect::Lease { term_at_mono_ms: 8_900, kill_at_mono_ms: 12_900 };
    assert_eq!(effects[0], lease);
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
    // The judge hangs.
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
    let lease = NodeEffect::Lease { term_at_mono_ms: 12_000, kill_at_mono_ms: 16_000 };
    assert_eq!(effects, [lease]);
    assert_eq!(world.grant(3_000), vec![], "an older grant does not move it back");
    assert_eq!(world.node.lease_deadlines(), Some((12_000, 16_000)));
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
    let detail = "the lease of node n0 has run out".to_owned();
    let expected = DeadToken::NeverStarted { blame: Blame::Node, detail };
    assert_eq!(why, NodeAnswer::Dead(expected));
    world.grant(world.now);
    assert_eq!(answer(&world.create("a", token(1, 1))), why, "the same answer, blame and all");
    assert_eq!(starts(&world.create("a", token(1, 2))), 1);
}

#[test]
fn a_manager_that_cannot_judge_yet_is_asked_again_soon() {
    let mut world = World::registered();
    let sent = world.now;
    answered(&mut world, sent, Renewed::NotServing);
    assert_eq!(renews(&world.pass(2_000, false)), [], "the registration has granted this lease");

    assert_eq!(renews(&world.pass(1_000, false)), [4_000]);
    answered(&mut world, 4_000, Renewed::NotServing);
    assert_eq!(renews(&world.pass(500, false)), [4_300]);

    // The judge's grant makes early repetitions needless, whoever else is not ready.
    answered(&mut world, 4_300, Renewed::NotServing);
    world.grant(4_300);
    answered(&mut world, 4_300, Renewed::NotServing);
    assert_eq!(renews(&world.pass(2_799, false)), []);
    assert_eq!(renews(&world.pass(1, false)), [7_300]);
}

#[test]
fn a_judge_that_came_up_since_the_last_round_is_asked_at_once() {
    let mut world = World::registered();
    assert_eq!(renews(&world.pass(3_000, false)), [4_000]);
    let judge = ManagerNumber(77);
    let managers = vec![(judge, "m77:1".to_owned())];
    let elsewhere = Renewed::NotJudge { judge, epoch: Epoch(9), managers };
    answered(&mut world, 4_000, elsewhere.clone());
    assert_eq!(renews(&world.pass(500, false)), [4_300], "a round without the judge counts little");
    answered(&mut world, 4_300, elsewhere);
    assert_eq!(renews(&world.pass(999, false)), [5_300], "the judge was asked this time");
}

#[test]
fn managers_are_learned_from_the_newest_view_only() {
    let mut world = World::registered();
    let list = |number: u32| vec![(ManagerNumber(number), format!("m{number}:1"))];
    let judge = ManagerNumber(3);
    let news =
        |epoch, number| Renewed::NotJudge { judge, epoch: Epoch(epoch), managers: list(number) };
    answered(&mut world, 1_000, news(5, 5));
    answered(&mut world, 1_000, news(4, 4));
    assert_eq!(world.node.managers(), list(5));
    let nobody =
        Renewed::Granted { epoch: Epoch(6), managers: vec![], load_limit: ToldLimit::Nothing };
    answered(&mut world, 1_000, nobody);
    assert_eq!(world.node.managers(), list(5), "an empty list would leave nobody to ask");
}

#[test]
fn not_being_the_judge_renews_nothing() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.pass(7_000, false);
    let judge = ManagerNumber(9);
    let elsewhere = Renewed::NotJudge { judge, epoch: Epoch(1), managers: vec![] };
    answered(&mut world, 7_000, elsewhere);
    assert_eq!(stops(&world.pass(1_000, false)).len(), 1);
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
    assert_eq!(renews(&to_another), [], "another boot is meant");
    let effects = meet(&mut world, 2, 2, BOOT);
    let [NodeEffect::Renew { managers, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*managers, [(ManagerNumber(5), "c:1".to_owned())]);
    assert_eq!(meet(&mut world, 1, 4, BOOT).len(), 1, "an earlier owner is told of its fence");
    assert_eq!(world.node.managers(), [(ManagerNumber(5), "c:1".to_owned())]);
}
