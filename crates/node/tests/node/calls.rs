//! Create, Destroy, Scan, fences and tokens.

use crate::world::*;
use rota_model::node_msg::{Blame, DeadToken, NodeAnswer, ReportEvent, ScanFate, ScanItem, ToNode};
use rota_model::{BootId, Epoch, Exit, Reason, SlotId};
use rota_node::{NodeEffect, NodeInput, Phase, StopHow};

#[test]
fn a_create_starts_a_session_once_and_answers_when_it_runs() {
    let mut world = World::registered();
    let effects = world.create("a", token(1, 1));
    assert!(answers(&effects).is_empty());
    let [NodeEffect::Start { not_after_mono_ms, .. }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(*not_after_mono_ms, world.now + 5_000);
    let effects = world.started("a", token(1, 1), false);
    let expected = NodeAnswer::Running {
        address: "127.0.0.1/a".into(),
        ready: false,
        remark: "said of a".into(),
    };
    assert_eq!(answer(&effects), expected);
    assert_eq!(full_answers(&effects)[0].load.used.places, 1);
}

#[test]
fn a_repeated_create_of_the_live_token_is_answered_with_its_present_readiness() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    world.started("a", token(1, 1), false);
    let again = world.create("a", token(1, 1));
    assert!(matches!(answer(&again), NodeAnswer::Running { ready: false, .. }));
    world.give(NodeInput::Ready { key: key("a"), token: token(1, 1), address: "x:1".into() });
    let again = world.create("a", token(1, 1));
    assert_eq!(
        answer(&again),
        NodeAnswer::Running { address: "x:1".into(), ready: true, remark: "said of a".into() }
    );
    assert_eq!(starts(&again), 0);
    assert_eq!(world.node.load().used.places, 1);
}

#[test]
fn creates_repeated_during_the_start_are_all_answered_by_it() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    let again = world.create("a", token(1, 1));
    assert_eq!(again, vec![]);
    let effects = world.started("a", token(1, 1), true);
    let calls: Vec<u64> = full_answers(&effects).iter().map(|it| it.call).collect();
    assert_eq!(calls, [1, 2]);
    assert_eq!(world.started("a", token(1, 1), true), vec![]);
}

#[test]
fn a_waiting_call_is_forgotten_with_its_stream() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    world.give(NodeInput::StreamClosed { stream: 5 });
    assert!(answers(&world.started("a", token(1, 1), true)).is_empty());
}

#[test]
fn of_too_many_waiting_calls_the_oldest_is_dropped() {
    let mut small = config();
    small.bounds.waiters_max = 2;
    let mut world = World::with(small);
    for _ in 0..5 {
        world.create("a", token(1, 1));
    }
    let effects = world.started("a", token(1, 1), true);
    let calls: Vec<u64> = full_answers(&effects).iter().map(|it| it.call).collect();
    assert_eq!(calls, [4, 5]);
}

#[test]
fn before_its_registration_a_node_obeys_nobody() {
    let mut world = World::unregistered(config());
    assert_eq!(world.create("a", token(1, 1)), vec![]);
    assert_eq!(world.destroy("a", token(1, 1)), vec![]);
    assert_eq!(world.node.dead_count(), 0);
    assert_eq!(world.node.wake_at(), None);
}

#[test]
fn a_call_meant_for_another_boot_is_refused_and_changes_nothing() {
    let mut world = World::registered();
    let before = world.node.clone();
    let mut message = world.create_message("a", token(9, 1), 9);
    if let rota_model::node_msg::ToNode::Create { head, .. } = &mut message {
        head.boot = BootId(78);
    }
    assert_eq!(answer(&world.call(message)), NodeAnswer::WrongBoot);
    assert_eq!(world.node, before);
}

#[test]
fn an_epoch_below_the_fence_of_any_slot_of_the_range_is_refused() {
    let mut world = World::registered();
    // Slot 3 alone is raised; a later call for 0..=3 meets it.
    let mut message = world.create_message("c", token(6, 1), 6);
    if let rota_model::node_msg::ToNode::Create { head, .. } = &mut message {
        head.range = range(3, 3);
    }
    world.call(message);
    assert_eq!(world.node.fence(SlotId(3)), Epoch(6));
    assert_eq!(world.node.fence(SlotId(2)), Epoch(1));
    let older = world.create_message("d", token(5, 1), 5);
    assert_eq!(answer(&world.call(older)), NodeAnswer::Fenced { fence: Epoch(6) });
    assert_eq!(world.node.fence(SlotId(2)), Epoch(1));
    assert_eq!(world.live(), ["c"]);
}

#[test]
fn every_kind_of_call_raises_the_fence_and_is_refused_below_it() {
    let mut world = World::registered();
    world.scan(4, None, 10);
    assert_eq!(world.node.fence(SlotId(0)), Epoch(4));
    let destroy = world.destroy_message("a", token(1, 1), 3);
    assert_eq!(answer(&world.call(destroy)), NodeAnswer::Fenced { fence: Epoch(4) });
    assert_eq!(world.node.dead_count(), 0);
    let destroy = world.destroy_message("a", token(1, 1), 7);
    world.call(destroy);
    let head = world.head(6);
    let scan = rota_model::node_msg::ToNode::Scan { head, after: None, limit: 1 };
    assert_eq!(answer(&world.call(scan)), NodeAnswer::Fenced { fence: Epoch(7) });
}

#[test]
fn a_slot_outside_the_senders_range_is_fenced_by_its_own_fence() {
    let mut world = World::registered();
    world.scan(4, None, 10);
    let mut message = world.create_message("a", token(2, 1), 2);
    if let rota_model::node_msg::ToNode::Create { head, .. } = &mut message {
        head.range = range(8, 9);
    }
    assert_eq!(answer(&world.call(message)), NodeAnswer::Fenced { fence: Epoch(4) });
}

#[test]
fn the_first_fences_come_from_the_registration_and_never_fall() {
    let mut world = World::unregistered(config());
    let sent_mono_ms = world.now;
    world.give(NodeInput::Registered { sent_mono_ms, registered: registered(8) });
    world.give(NodeInput::Registered { sent_mono_ms, registered: registered(3) });
    let message = world.create_message("a", token(7, 1), 7);
    assert_eq!(answer(&world.call(message)), NodeAnswer::Fenced { fence: Epoch(8) });
}

#[test]
fn another_live_token_is_named_and_the_refused_one_never_runs() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    for wanted in [token(1, 2), token(0, 9), token(1, 2)] {
        let refused = world.create("a", wanted);
        assert_eq!(answer(&refused), NodeAnswer::OtherLive { token: token(1, 1) });
    }
    world.ended("a", token(1, 1));
    assert!(never(&answer(&world.create("a", token(1, 2)))));
    assert_eq!(starts(&world.create("a", token(1, 3))), 1);
}

#[test]
fn a_stopping_session_keeps_its_place_until_it_is_gone() {
    let mut small = config();
    small.offers.places = 1;
    let mut world = World::with(small);
    world.run("a", token(1, 1));
    world.destroy("a", token(1, 1));
    assert_eq!(answer(&world.create("b", token(1, 2))), NodeAnswer::Full);
    world.stopped("a", token(1, 1));
    assert_eq!(starts(&world.create("b", token(1, 3))), 1);
}

#[test]
fn an_unknown_class_is_refused_for_good() {
    let mut world = World::registered();
    let mut message = world.create_message("a", token(1, 1), 1);
    if let rota_model::node_msg::ToNode::Create { spec, .. } = &mut message {
        *spec = crate::world::spec("robot");
    }
    let refused = answer(&world.call(message));
    let detail = "node n0 does not know class robot".to_owned();
    let why = DeadToken::NeverStarted { blame: Blame::Session, detail };
    assert_eq!(refused, NodeAnswer::Dead(why));
    assert!(never(&answer(&world.create("a", token(1, 1)))));
}

#[test]
fn a_failed_start_answers_never_started() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    let detail = "attribute \"x\" is missing".to_owned();
    let failed = NodeInput::StartFailed { key: key("a"), token: token(1, 1), detail };
    let effects = world.give(failed);
    assert!(never(&answer(&effects)));
    assert!(reports(&effects).is_empty());
    assert!(world.live().is_empty());
    assert!(never(&answer(&world.create("a", token(1, 1)))));
}

#[test]
fn a_program_that_ended_before_it_was_known_to_run_answers_ended() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    let effects = world.ended("a", token(1, 1));
    let expected = DeadToken::Ended {
        reason: Reason::Exited,
        exit: Some(Exit::Code(3)),
        detail: String::new(),
    };
    assert_eq!(answer(&effects), NodeAnswer::Dead(expected));
}

#[test]
fn a_start_that_takes_longer_than_the_creates_deadline_is_stopped() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    let effects = world.pass(5_000, true);
    assert_eq!(stops(&effects), [("a".to_owned(), StopHow::Kill)]);
    let effects = world.stopped("a", token(1, 1));
    let NodeAnswer::Dead(DeadToken::Ended { reason, .. }) = answer(&effects) else {
        panic!("{effects:?}");
    };
    assert_eq!(reason, Reason::StartTimeout);
}

#[test]
fn a_destroy_is_answered_only_when_the_whole_group_is_gone() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let effects = world.destroy("a", token(1, 1));
    assert_eq!(stops(&effects), [("a".to_owned(), StopHow::Class)]);
    assert!(answers(&effects).is_empty());
    let again = world.destroy("a", token(1, 1));
    assert_eq!(again, vec![], "the same end is waited for, and not asked for twice");
    assert_eq!(world.node.live().next().unwrap().phase, Phase::Stopping);
    let effects = world.stopped("a", token(1, 1));
    let gone = NodeAnswer::Destroyed { exit: Some(Exit::Signal(15)), detail: String::new() };
    assert_eq!(answers(&effects), [gone.clone(), gone.clone()]);
    assert!(reports(&effects).is_empty(), "the answer tells it");
    assert_eq!(answer(&world.destroy("a", token(1, 1))), gone);
}

/// A destroy that gives that time.
fn destroy_within(world: &mut World, grace_ms: u64) -> Vec<NodeEffect> {
    let mut message = world.destroy_message("a", token(1, 1), 1);
    if let ToNode::Destroy { grace_ms: given, .. } = &mut message {
        *given = Some(grace_ms);
    }
    world.call(message)
}

#[test]
fn the_time_that_a_destroy_gives_is_passed_on_and_a_later_one_may_only_shorten_it() {
    let stop = |how| vec![("a".to_owned(), how)];
    let mut world = World::registered();
    world.run("a", token(1, 1));
    assert_eq!(stops(&destroy_within(&mut world, 3_000)), stop(StopHow::Within(3_000)));
    assert_eq!(destroy_within(&mut world, 3_000), vec![]);
    assert_eq!(world.destroy("a", token(1, 1)), vec![], "the class's may be longer");
    world.pass(1_000, true);
    assert_eq!(destroy_within(&mut world, 2_500), vec![], "it has 2,000 ms left");
    assert_eq!(stops(&destroy_within(&mut world, 1_500)), stop(StopHow::Within(1_500)));
    assert_eq!(stops(&destroy_within(&mut world, 0)), stop(StopHow::Kill));
    assert_eq!(destroy_within(&mut world, 0), vec![]);
    let effects = world.stopped("a", token(1, 1));
    assert!(answers(&effects).iter().all(|it| matches!(it, NodeAnswer::Destroyed { .. })));
}

#[test]
fn a_destroy_that_gives_a_time_hastens_one_that_left_it_to_the_class() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.destroy("a", token(1, 1));
    let effects = destroy_within(&mut world, 100);
    assert_eq!(stops(&effects), [("a".to_owned(), StopHow::Within(100))]);
}

#[test]
fn a_node_that_takes_no_session_says_why_and_takes_them_again() {
    let mut world = World::registered();
    world.node.take_no_session(Some("its disk is full"));
    let refused = answer(&world.create("a", token(1, 1)));
    let NodeAnswer::Dead(DeadToken::NeverStarted { blame: Blame::Node, detail }) = refused else {
        panic!("{refused:?}");
    };
    assert!(detail.contains("takes no session: its disk is full"), "{detail}");
    world.node.take_no_session(None);
    assert_eq!(starts(&world.create("a", token(1, 2))), 1);
}

#[test]
fn a_token_destroyed_before_it_was_created_never_runs() {
    let mut world = World::registered();
    let effects = world.destroy("a", token(1, 1));
    assert_eq!(answer(&effects), NodeAnswer::Destroyed { exit: None, detail: String::new() });
    let late = world.create("a", token(1, 1));
    assert!(never(&answer(&late)));
    assert_eq!(starts(&late), 0);
}

#[test]
fn a_create_of_a_session_that_stops_is_answered_when_nothing_of_it_runs() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.destroy("a", token(1, 1));
    assert_eq!(world.create("a", token(1, 1)), vec![]);
    let refused = world.create("a", token(1, 2));
    assert_eq!(answer(&refused), NodeAnswer::OtherLive { token: token(1, 1) });
    let effects = world.stopped("a", token(1, 1));
    let all = answers(&effects);
    assert!(matches!(all[0], NodeAnswer::Destroyed { .. }));
    assert!(matches!(all[1], NodeAnswer::Dead(DeadToken::Ended { .. })));
}

#[test]
fn a_destroy_during_the_start_wins() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    let effects = world.destroy("a", token(1, 1));
    assert_eq!(stops(&effects), [("a".to_owned(), StopHow::Class)]);
    assert_eq!(world.started("a", token(1, 1), true), vec![]);
    let effects = world.stopped("a", token(1, 1));
    assert!(matches!(answers(&effects)[0], NodeAnswer::Dead(DeadToken::Ended { .. })));
    assert!(matches!(answers(&effects)[1], NodeAnswer::Destroyed { .. }));
}

#[test]
fn a_destroy_that_caught_the_start_in_time_leaves_never_started() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    world.destroy("a", token(1, 1));
    let detail = "stopped first".to_owned();
    let effects = world.give(NodeInput::StartFailed { key: key("a"), token: token(1, 1), detail });
    assert!(never(&answers(&effects)[0]));
    assert_eq!(answers(&effects)[1], NodeAnswer::Destroyed { exit: None, detail: String::new() });
}

#[test]
fn destroying_one_token_leaves_another_alone() {
    let mut world = World::registered();
    world.run("a", token(1, 2));
    let gone = NodeAnswer::Destroyed { exit: None, detail: String::new() };
    assert_eq!(answer(&world.destroy("a", token(1, 1))), gone);
    assert_eq!(answer(&world.destroy("a", token(1, 3))), gone);
    assert_eq!(world.live(), ["a"]);
}

#[test]
fn a_token_below_one_that_was_seen_is_dead() {
    let mut world = World::registered();
    world.run("a", token(1, 5));
    world.ended("a", token(1, 5));
    let stale = world.create("a", token(1, 4));
    assert!(never(&answer(&stale)));
    assert_eq!(starts(&stale), 0);
    assert_eq!(starts(&world.create("a", token(1, 6))), 1);
}

#[test]
fn news_of_a_token_that_does_not_live_is_ignored() {
    let mut world = World::registered();
    world.run("a", token(1, 2));
    let before = world.node.clone();
    assert_eq!(world.started("a", token(1, 1), true), vec![]);
    assert_eq!(world.ended("a", token(1, 1)), vec![]);
    assert_eq!(world.stopped("b", token(1, 1)), vec![]);
    assert_eq!(world.node, before);
}

#[test]
fn a_scan_shows_live_and_dead_tokens_in_pages_by_key() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.run("b", token(1, 2));
    world.ended("b", token(1, 2));
    world.create("b", token(1, 3));
    world.destroy("c", token(1, 4));
    world.run("d", token(1, 5));

    let (first, more) = world.scan(2, None, 2);
    let seen = |items: &[rota_model::node_msg::ScanItem]| -> Vec<(String, u64, bool)> {
        let lives = |fate: &ScanFate| matches!(fate, ScanFate::Live { .. });
        items.iter().map(|it| (it.key.id.to_string(), it.token.0.seq.0, lives(&it.fate))).collect()
    };
    // The tokens of b stay together, so that the page can be continued after b.
    let expected =
        [("a".to_owned(), 1, true), ("b".to_owned(), 2, false), ("b".to_owned(), 3, true)];
    assert_eq!(seen(&first), expected);
    assert!(more);
    let (second, more) = world.scan(2, Some("b"), 2);
    assert_eq!(seen(&second), [("c".to_owned(), 4, false), ("d".to_owned(), 5, true)]);
    assert!(!more);
    let (none, more) = world.scan(2, Some("d"), 2);
    assert!(none.is_empty() && !more);
}

#[test]
fn a_scan_shows_only_the_slots_of_its_sender() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.destroy("b", token(1, 2));
    let mut head = world.head(1);
    head.range = rota_model::node_msg::SlotRange { first: slot(&key("b")), last: slot(&key("b")) };
    let effects = world.call(rota_model::node_msg::ToNode::Scan { head, after: None, limit: 100 });
    let NodeAnswer::Scanned { items, more: false, .. } = answer(&effects) else {
        panic!("{effects:?}");
    };
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].key, key("b"));
}

#[test]
fn a_scan_tells_what_a_record_needs_of_what_lives_and_the_highest_token_even_if_forgotten() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let (items, _) = world.scan(1, None, 10);
    let [ScanItem { fate: ScanFate::Live(alive), .. }] = &items[..] else { panic!("{items:?}") };
    assert_eq!((alive.ready, alive.ends, alive.spec.class.as_str()), (true, None, "builtin"));
    assert!(!alive.address.is_empty(), "{alive:?}");
    world.destroy("b", token(1, 9));
    world.destroy("a", token(1, 1));
    let (items, _) = world.scan(1, None, 10);
    let ScanFate::Live(alive) = &items[0].fate else { panic!("{items:?}") };
    assert_eq!(alive.ends, Some(Reason::ClosedByClient), "something of it may run");
    world.pass(world.node.config().timing.tombstone_ms, true);
    assert_eq!(world.highest(), token(1, 9), "b is forgotten, and its token is not");
}

#[test]
fn a_dead_token_is_forgotten_after_its_time_and_not_before() {
    let mut world = World::registered();
    world.destroy("a", token(1, 1));
    let tombstone_ms = world.node.config().timing.tombstone_ms;
    world.pass(tombstone_ms - 1, true);
    assert!(world.node.dead(&key("a"), token(1, 1)).is_some());
    world.pass(1, true);
    assert_eq!(world.node.dead_count(), 0);
}

#[test]
fn a_forgotten_token_never_runs_and_newer_ones_of_its_slot_do() {
    let mut world = World::registered();
    world.destroy("a", token(1, 2));
    world.pass(world.node.config().timing.tombstone_ms, true);
    assert_eq!(world.node.dead_count(), 0);
    for late in [token(1, 1), token(1, 2)] {
        let effects = world.create("a", late);
        let NodeAnswer::Dead(DeadToken::NeverStarted { blame, detail }) = answer(&effects) else {
            panic!("{effects:?}");
        };
        assert_eq!(blame, Blame::Session);
        assert!(detail.contains("so late"), "{detail}");
    }
    world.pass(world.node.config().timing.tombstone_ms, true);
    assert_eq!(starts(&world.create("a", token(1, 3))), 1);
}

#[test]
fn a_dead_token_is_kept_as_long_as_no_manager_took_note_of_its_end() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let id = reports(&world.ended("a", token(1, 1)))[0].0;
    let tombstone_ms = world.node.config().timing.tombstone_ms;
    world.pass(tombstone_ms + 5, true);
    assert!(world.node.dead(&key("a"), token(1, 1)).is_some());
    world.give(NodeInput::ReportsAcked { ids: vec![id] });
    world.pass(tombstone_ms + 5, true);
    assert_eq!(world.node.dead_count(), 0);
}

#[test]
fn an_end_after_a_destroy_is_reported_when_a_newer_owner_has_asked_since() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.destroy("a", token(1, 1));
    let (items, _) = world.scan(2, None, 10);
    assert!(matches!(items[0].fate, ScanFate::Live { .. }));
    let effects = world.stopped("a", token(1, 1));
    let told = reports(&effects);
    assert!(matches!(told[0].2, ReportEvent::Ended { reason: Reason::ClosedByClient, .. }));
}

#[test]
fn operators_see_what_lives_in_pages_and_by_name_and_change_nothing() {
    let mut world = World::registered();
    for (index, id) in ["a", "b", "c", "e"].iter().enumerate() {
        world.run(id, token(1, index as u64 + 1));
    }
    world.destroy("b", token(1, 2));
    world.ended("c", token(1, 3));
    let before = world.node.clone();
    let all = range(0, M - 1);
    let (first, more) = world.node.live_page(all, None, 2);
    let ids: Vec<&str> = first.iter().map(|it| it.key.id.as_str()).collect();
    assert_eq!((ids, more), (vec!["a", "b"], true));
    assert_eq!(first[1].phase, rota_node::Phase::Stopping);
    let (rest, more) = world.node.live_page(all, Some(&key("b")), 2);
    assert_eq!((rest.len(), more), (1, false), "what has ended does not live");
    // a and e share a slot.
    let one = range(slot(&key("e")).0, slot(&key("e")).0);
    assert_eq!(world.node.live_page(one, None, 9).0.len(), 2);
    let named = world.node.live_of(&[key("e"), key("c"), key("x")]);
    assert_eq!(named.iter().map(|it| it.token).collect::<Vec<_>>(), [token(1, 4)]);
    assert_eq!(world.node, before);
}
