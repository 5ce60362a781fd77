//! How a number comes into the ring.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its ring has failed")]
#![allow(clippy::cast_possible_truncation, reason = "rings of tests are small")]

use proptest::collection::btree_set;
use proptest::prelude::*;
use rota_model::{
    ClusterName, ClusterTimes, Incarnation, LogPos, ManagerId, ManagerNumber, ManagerStatus,
    MemberId, Nonce, SlotId, Stamp,
};
use rota_ring::{Claim, ClaimRefused, Loss, Recovered, RingTransition, UnderWay, View};
use std::collections::{BTreeMap, BTreeSet};

/// The times of every manager here.
const TIMES: ClusterTimes =
    ClusterTimes { renew_ms: 1, lease_term_ms: 3, lease_kill_ms: 4, node_lost_ms: 5 };

fn claim(n: u32) -> Claim {
    Claim {
        number: ManagerNumber(n),
        id: ManagerId::parse(&format!("m{n}")).unwrap(),
        grpc: format!("127.0.0.1:{n}"),
        http: String::new(),
        taken: None,
        held: Vec::new(),
        nonce: Nonce(u64::from(n) + 1),
        disk: BTreeMap::new(),
        force_lost: false,
        times: TIMES,
        peer_times: rota_model::PeerTimes { heartbeat_ms: 1, suspect_ms: 4 },
    }
}

fn ring(m: u32, r: u32, numbers: &BTreeSet<u32>) -> View {
    let named: Vec<_> = numbers.iter().map(|n| (ManagerNumber(*n), claim(*n).id)).collect();
    let cluster = ClusterName::parse("test").unwrap();
    let view = View::found(cluster, m, r, 100, &named).unwrap();
    numbers.iter().fold(view, |view, n| view.claimed(&claim(*n)).unwrap())
}

/// Managers 10, 20 and 30 of 100 slots, all of them started.
fn three(r: u32) -> View {
    ring(100, r, &BTreeSet::from([10, 20, 30]))
}

fn isr(view: &View, n: u32) -> BTreeSet<u32> {
    view.parts[&ManagerNumber(n)].isr.iter().map(|it| it.number.0).collect()
}

/// What the owners do by and by: each copies to whom it lacks, one partition after the other.
fn filled(mut view: View) -> View {
    for n in view.parts.keys().copied().collect::<Vec<_>>() {
        let part = &view.parts[&n];
        let absent: Vec<MemberId> = (view.wanted(n).into_iter())
            .filter(|it| !part.has(*it))
            .map(|it| view.member(it).unwrap())
            .collect();
        if !absent.is_empty() {
            view = view.with_members(n, &absent).unwrap();
            assert_eq!(view.check(), Ok(()));
        }
    }
    view
}

#[test]
fn a_join_comes_nearer_to_its_end_with_each_step_of_its_own_and_with_none_of_others() {
    let new = ManagerNumber(15);
    let ring = ring(100, 1, &BTreeSet::from([10, 20, 30, 40]));
    let joined = ring.joined(&claim(15)).unwrap();
    let mut under_way = UnderWay::default();
    under_way.on_view(&joined, 100);
    let other = joined.member(ManagerNumber(40)).unwrap();
    let gone = joined.without(&[other]).unwrap();
    let bumped = gone.bumped(ManagerNumber(30)).unwrap();
    for view in [&gone, &bumped, &joined] {
        under_way.on_view(view, 150);
        assert_eq!(under_way.stands_still(200), 100);
    }
    let mut view = joined.split(new).unwrap();
    under_way.on_view(&view, 300);
    assert_eq!(under_way.stands_still(300), 0, "its arc is cut out");
    let member = view.member(new).unwrap();
    for part in view.parts.keys().copied().collect::<Vec<_>>() {
        if view.wanted(part).contains(&new) {
            let since = under_way.stands_still(400);
            view = view.with_members(part, &[member]).unwrap();
            under_way.on_view(&view, 400 - since / 2);
            assert!(under_way.stands_still(400) < since, "it holds a copy more: {view:?}");
        }
    }
    assert_eq!(view.steps_left(), 0);
    assert!(view.has_arrived(new));
}

#[test]
fn a_newcomer_first_owns_and_copies_nothing_and_takes_the_transition() {
    let before = three(1);
    let view = before.joined(&claim(15)).unwrap();
    let number = ManagerNumber(15);
    assert_eq!(view.parts, before.parts);
    assert_eq!(view.managers[&number].status, ManagerStatus::Active);
    assert_eq!(view.member(number).unwrap().incarnation, Incarnation(1));
    let since = before.epoch.next();
    assert_eq!(view.transition, Some(RingTransition::Join { number, since }));
    assert_eq!(view.check(), Ok(()));
    assert_eq!(view.unsplit(ManagerNumber(20)), Some(number));
    assert_eq!(view.unsplit(ManagerNumber(10)), None);
    assert!(!view.has_arrived(number));
}

#[test]
fn a_second_join_is_refused_and_told_of_the_first() {
    let view = three(1).joined(&claim(15)).unwrap();
    let refused = view.joined(&claim(25)).unwrap_err();
    assert!(matches!(refused, ClaimRefused::InTransition { .. }));
    let text = refused.to_string();
    assert!(text.contains("25") && text.contains("the join of number 15"), "{text}");
    let released = view.released().unwrap();
    assert!(released.joined(&claim(25)).is_ok());
    assert_eq!(released.released(), None);
}

#[test]
fn a_join_is_refused_for_a_number_or_a_name_that_is_taken_and_when_nobody_fits_in() {
    let view = three(1);
    assert!(matches!(view.joined(&claim(20)), Err(ClaimRefused::Taken { .. })));
    let outside = view.joined(&claim(100)).unwrap_err().to_string();
    assert!(outside.contains("100") && outside.contains("[0, 100)"), "{outside}");
    let named = Claim { id: claim(20).id, ..claim(15) };
    let named = view.joined(&named).unwrap_err().to_string();
    assert!(named.contains("m20") && named.contains("20"), "{named}");
    let full = View { managers_max: 3, ..view.clone() };
    assert!(matches!(full.joined(&claim(15)), Err(ClaimRefused::RingFull { limit: 3 })));
    let known = Claim { taken: Some(Incarnation(4)), ..claim(15) };
    assert!(matches!(view.joined(&known), Err(ClaimRefused::NotReserved(..))));
}

#[test]
fn a_split_leaves_both_halves_with_owner_and_copies_under_a_new_epoch() {
    let joined = three(1).joined(&claim(15)).unwrap();
    let (arc, rest) = (ManagerNumber(15), ManagerNumber(20));
    let view = joined.split(arc).unwrap();
    assert_eq!(view.check(), Ok(()));
    assert_eq!(view.range(arc).first, SlotId(11));
    assert_eq!(view.range(rest).first, SlotId(16));
    let before = &joined.parts[&rest];
    for number in [arc, rest] {
        let part = &view.parts[&number];
        assert_eq!((part.owner, &part.isr, part.pe), (before.owner, &before.isr, view.epoch));
        assert_eq!((part.base_pe, part.state), (before.base_pe, before.state));
    }
    assert_eq!((view.splits[&arc].from, view.splits[&arc].epoch), (rest, view.epoch));
    assert_eq!(view.split(arc), None);
    assert_eq!(view.split(ManagerNumber(17)), None, "nobody has that number");
}

#[test]
fn what_was_found_again_is_told_of_one_half_only() {
    let mut joined = three(1).joined(&claim(15)).unwrap();
    let (arc, rest) = (ManagerNumber(15), ManagerNumber(20));
    let told =
        Some(Recovered { epoch: joined.epoch, sessions: 7, held: LogPos::ZERO, loss: Loss::Gone });
    let above = Some(Stamp::from_epoch_ms(1));
    let part = joined.parts.get_mut(&rest).unwrap();
    (part.recovered, part.stamps_above) = (told, above);
    let view = joined.split(arc).unwrap();
    assert_eq!((view.parts[&rest].recovered, view.parts[&arc].recovered), (told, None));
    // Either half may have lost lives.
    assert_eq!((view.parts[&rest].stamps_above, view.parts[&arc].stamps_above), (above, above));
}

#[test]
fn a_newcomer_has_arrived_when_it_owns_its_arc_and_nobody_copies_in_its_stead() {
    for r in 0..4 {
        let view = three(r).joined(&claim(15)).unwrap().split(ManagerNumber(15)).unwrap();
        assert!(!view.has_arrived(ManagerNumber(15)));
        let view = filled(view);
        assert!(view.has_arrived(ManagerNumber(15)), "r = {r}");
        assert_eq!(view.parts[&ManagerNumber(15)].owner, ManagerNumber(15));
        for (n, part) in &view.parts {
            let wanted: BTreeSet<_> = view.wanted(*n).into_iter().collect();
            assert_eq!(part.isr.iter().map(|it| it.number).collect::<BTreeSet<_>>(), wanted);
        }
    }
}

#[test]
fn the_copies_of_the_predecessors_ranges_move_too() {
    let view = filled(three(1).joined(&claim(15)).unwrap().split(ManagerNumber(15)).unwrap());
    assert_eq!(isr(&view, 15), BTreeSet::from([15, 20]));
    assert_eq!(isr(&view, 10), BTreeSet::from([10, 15]), "20 copies partition 10 no more");
    assert_eq!(isr(&view, 20), BTreeSet::from([20, 30]));
}

#[test]
fn a_newcomer_that_is_gone_gives_the_transition_back_and_keeps_its_number() {
    let number = ManagerNumber(15);
    let gone = MemberId { number, incarnation: Incarnation(1) };
    let joined = three(1).joined(&claim(15)).unwrap();
    let split = joined.split(number).unwrap();
    let filled = filled(split.clone());
    for (name, view) in [("joined", joined), ("split", split), ("filled", filled)] {
        let back = view.without(&[gone]).unwrap();
        assert_eq!((back.check(), back.transition), (Ok(()), None), "{name}");
        assert_eq!(back.managers[&number].status, ManagerStatus::Down);
        assert!(back.parts.values().all(|part| !part.has(number)), "{name}");
        assert_eq!(back.unsplit(ManagerNumber(20)), None, "no arc is cut out for who is gone");
        // It comes back like any other manager, also from an empty machine.
        let again = back.claimed(&claim(15)).unwrap();
        assert_eq!(again.member(number).unwrap().incarnation, Incarnation(2));
        assert!(back.joined(&claim(25)).is_ok());
    }
}

#[test]
fn somebody_else_who_is_gone_does_not_end_a_join() {
    let view = three(1).joined(&claim(15)).unwrap();
    let gone = MemberId { number: ManagerNumber(30), incarnation: Incarnation(1) };
    assert_eq!(view.without(&[gone]).unwrap().transition, view.transition);
}

#[test]
fn a_newcomer_and_whoever_will_copy_with_it_hear_of_each_other() {
    let number = ManagerNumber(15);
    for r in 0..3 {
        let joined = three(r).joined(&claim(15)).unwrap();
        let split = joined.split(number).unwrap();
        for view in [joined, split] {
            for other in view.neighbours(number) {
                assert!(view.neighbours(other).contains(&number));
            }
            let owner = view.owner_of(SlotId(15));
            assert!(view.neighbours(owner).contains(&number), "r = {r}");
        }
    }
}

#[test]
fn a_manager_hears_of_as_many_others_in_a_large_ring_as_in_a_small_one() {
    for (managers, r) in [(10, 1), (10, 3), (30, 3), (100, 2), (100, 3)] {
        let numbers = (1..=managers).map(|it| it * 1_024 / managers - 1).collect();
        let view = ring(1_024, r, &numbers);
        for n in &numbers {
            // Those whose copies it has, and those who have copies of its own.
            assert_eq!(view.neighbours(ManagerNumber(*n)).len(), 2 * r as usize, "{managers}, {r}");
        }
    }
}

#[test]
fn a_number_that_is_drawn_halves_the_widest_arc() {
    let view = three(1);
    // The arc of 10 goes from 31 to 10 and has 80 slots.
    assert_eq!(view.arcs().halving_number(), Some(ManagerNumber(70)));
    let full = ring(4, 1, &BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(full.arcs().halving_number(), None);
}

#[test]
fn a_number_that_is_drawn_is_free_although_a_newcomer_or_one_that_was_taken_out_has_no_arc() {
    let joined = three(1).joined(&claim(70)).unwrap();
    let out = joined.without(&[joined.member(ManagerNumber(70)).unwrap()]).unwrap();
    for view in [joined, out] {
        assert!(!view.parts.contains_key(&ManagerNumber(70)));
        assert_eq!(view.arcs().halving_number(), Some(ManagerNumber(90)));
    }
}

fn rings() -> impl Strategy<Value = (u32, u32, BTreeSet<u32>)> {
    (2_u32..300).prop_flat_map(|m| {
        let count = 1..=(m as usize - 1).min(8);
        (Just(m), 0_u32..5, btree_set(0..m, count))
    })
}

proptest! {
    #[test]
    fn any_join_moves_its_arc_and_nothing_else_and_ends_as_if_it_had_always_been_there(
        (m, r, numbers) in rings(),
        pick in any::<prop::sample::Index>(),
    ) {
        let newcomer = pick.index(m as usize) as u32;
        prop_assume!(!numbers.contains(&newcomer));
        let number = ManagerNumber(newcomer);
        let before = ring(m, r, &numbers);
        let joined = before.joined(&claim(newcomer)).unwrap();
        let from = joined.home(SlotId(newcomer));
        for n in joined.parts.keys() {
            prop_assert_eq!(joined.unsplit(*n), (*n == from).then_some(number));
        }
        let split = joined.split(number).unwrap();
        prop_assert_eq!(split.check(), Ok(()));
        let arc = split.range(number);
        prop_assert_eq!(arc.len(m) + split.range(from).len(m), before.range(from).len(m));
        for slot in (0..m).map(SlotId) {
            prop_assert_eq!(split.home(slot) != before.home(slot), arc.contains(slot));
            prop_assert_eq!(split.owner_of(slot), before.owner_of(slot), "nothing moves yet");
        }
        let done = filled(split);
        prop_assert!(done.has_arrived(number));
        let mut all = numbers;
        all.insert(newcomer);
        let always = ring(m, r, &all);
        for (n, part) in &done.parts {
            let copies: BTreeSet<_> = part.isr.iter().map(|it| it.number).collect();
            let other = &always.parts[n];
            prop_assert_eq!(part.owner, other.owner);
            prop_assert_eq!(copies, other.isr.iter().map(|it| it.number).collect());
        }
    }

    #[test]
    fn the_drawn_number_is_free_and_halves_an_arc_of_the_greatest_width((m, r, numbers) in rings()) {
        let view = ring(m, r, &numbers);
        let widest = view.parts.keys().map(|n| view.range(*n).len(m)).max().unwrap();
        match view.arcs().halving_number() {
            None => prop_assert_eq!(widest, 1),
            Some(number) => {
                let split = view.joined(&claim(number.0)).unwrap().split(number).unwrap();
                prop_assert_eq!(split.range(number).len(m), widest / 2);
            }
        }
    }
}
