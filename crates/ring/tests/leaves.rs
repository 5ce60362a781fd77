//! How a number leaves the ring, and comes back.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its ring has failed")]
#![allow(clippy::cast_possible_truncation, reason = "rings of tests are small")]

use proptest::collection::btree_set;
use proptest::prelude::*;
use rota_model::{
    ClusterName, ClusterTimes, Incarnation, ManagerId, ManagerNumber, ManagerStatus, MemberId,
    Nonce,
};
use rota_ring::{CancelRefused, Claim, ClaimRefused, LeaveRefused, RingTransition, UnderWay, View};
use std::collections::{BTreeMap, BTreeSet};

/// The times of every manager here.
const TIMES: ClusterTimes =
    ClusterTimes { renew_ms: 1, lease_term_ms: 3, lease_kill_ms: 4, node_lost_ms: 5 };

const LEAVER: ManagerNumber = ManagerNumber(20);

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

/// The claim of the run after the first, from its own disk.
fn again(n: u32) -> Claim {
    let held = vec![(Incarnation(1), Nonce(u64::from(n) + 1))];
    Claim { held, taken: Some(Incarnation(1)), ..claim(n) }
}

fn ring(m: u32, r: u32, numbers: &BTreeSet<u32>) -> View {
    let named: Vec<_> = numbers.iter().map(|n| (ManagerNumber(*n), claim(*n).id)).collect();
    let cluster = ClusterName::parse("test").unwrap();
    let view = View::found(cluster, m, r, 100, &named).unwrap();
    numbers.iter().fold(view, |view, n| view.claimed(&claim(*n)).unwrap())
}

/// Managers 10, 20, 30 and 40 of 100 slots, all of them started.
fn four(r: u32) -> View {
    ring(100, r, &BTreeSet::from([10, 20, 30, 40]))
}

fn isr(view: &View, n: u32) -> BTreeSet<u32> {
    view.parts[&ManagerNumber(n)].isr.iter().map(|it| it.number.0).collect()
}

#[test]
fn a_leave_comes_nearer_to_its_end_with_each_partition_that_is_handed_on_whoever_else_comes_and_goes()
 {
    let mut view = four(1).leaving(LEAVER).unwrap();
    let mut under_way = UnderWay::default();
    under_way.on_view(&view, 100);
    assert_eq!(view.steps_left(), 2);
    let other = view.member(ManagerNumber(40)).unwrap();
    under_way.on_view(&view.without(&[other]).unwrap(), 150);
    under_way.on_view(&view, 160);
    assert_eq!(under_way.stands_still(200), 100);
    for (part, at) in [(10, 300), (20, 400)] {
        let part = ManagerNumber(part);
        let absent = view.wanted(part).into_iter().filter(|it| !view.parts[&part].has(*it));
        let absent: Vec<MemberId> = absent.map(|it| view.member(it).unwrap()).collect();
        view = view.with_members(part, &absent).unwrap();
        under_way.on_view(&view, at);
        assert_eq!(under_way.stands_still(at), 0, "{view:?}");
    }
    assert!(view.left().is_some());
}

/// What the owners do by and by: each copies to whom it lacks and lets go, one partition after the
/// other.
fn settled(mut view: View) -> View {
    for n in view.parts.keys().copied().collect::<Vec<_>>() {
        let part = &view.parts[&n];
        let absent: Vec<MemberId> = (view.wanted(n).into_iter())
            .filter(|it| !part.has(*it))
            .map(|it| view.member(it).unwrap())
            .collect();
        if !absent.is_empty() || view.may_release(n) {
            view = view.with_members(n, &absent).unwrap();
            assert_eq!(view.check(), Ok(()));
        }
    }
    view
}

fn member(number: ManagerNumber) -> MemberId {
    MemberId { number, incarnation: Incarnation(1) }
}

#[test]
fn who_begins_to_leave_keeps_what_it_has_and_is_wanted_nowhere() {
    let before = four(1);
    let view = before.leaving(LEAVER).unwrap();
    assert_eq!(view.check(), Ok(()));
    assert_eq!(view.parts, before.parts);
    let since = before.epoch.next();
    assert_eq!(view.transition, Some(RingTransition::Leave { number: LEAVER, since }));
    assert_eq!(view.managers[&LEAVER].status, ManagerStatus::Leaving);
    assert!(view.parts.keys().all(|n| !view.wanted(*n).contains(&LEAVER)));
    assert!(view.managers[&LEAVER].serves() && !view.is_up(LEAVER));
    assert_eq!(view.left(), None);
    assert!(view.neighbours(LEAVER).contains(&ManagerNumber(40)), "40 is to copy in its stead");
}

#[test]
fn a_partition_lets_go_when_its_copies_are_complete_and_the_next_one_owns_it() {
    let view = four(1).leaving(LEAVER).unwrap();
    assert!(!view.may_release(LEAVER));
    assert_eq!(view.with_members(LEAVER, &[]), None, "30 alone would be one copy too few");
    let next = view.with_members(LEAVER, &[member(ManagerNumber(40))]).unwrap();
    assert_eq!(isr(&next, 20), BTreeSet::from([30, 40]));
    let part = &next.parts[&LEAVER];
    assert_eq!((part.owner, part.pe), (ManagerNumber(30), next.epoch));
    assert_eq!(isr(&next, 10), BTreeSet::from([10, 20]), "partition 10 waits for its own copy");
}

#[test]
fn fewer_copies_are_left_than_wanted_when_the_ring_has_no_more_managers() {
    let view = ring(100, 2, &BTreeSet::from([10, 20, 30])).leaving(LEAVER).unwrap();
    assert_eq!(view.copies_without(LEAVER), 2);
    assert!(view.parts.keys().all(|n| view.may_release(*n)), "all the others hold everything");
    let view = settled(view);
    assert!(view.parts.keys().all(|n| isr(&view, n.0) == BTreeSet::from([10, 30])));
    let view = view.left().unwrap();
    assert_eq!(view.check(), Ok(()));
    assert_eq!(view.managers[&LEAVER].status, ManagerStatus::Left);
    assert!(view.parts.contains_key(&LEAVER), "its number stays reserved, its partition lives on");
}

#[test]
fn a_copy_that_never_ran_does_not_count_for_who_leaves() {
    let numbers = [10, 20, 30].map(|n| (ManagerNumber(n), claim(n).id));
    let view = View::found(ClusterName::parse("test").unwrap(), 100, 2, 100, &numbers).unwrap();
    let view = view.claimed(&claim(10)).unwrap().claimed(&claim(20)).unwrap();
    let view = settled(view.leaving(LEAVER).unwrap());
    assert!(view.parts.keys().all(|n| isr(&view, n.0) == BTreeSet::from([10, 30])));
    let alone = View::found(ClusterName::parse("test").unwrap(), 100, 2, 100, &numbers).unwrap();
    let alone = alone.claimed(&claim(20)).unwrap().leaving(LEAVER).unwrap_err();
    assert_eq!(alone, LeaveRefused::LastManager(LEAVER));
}

#[test]
fn what_cannot_leave_is_told_why() {
    let view = four(1);
    let unknown = view.leaving(ManagerNumber(21)).unwrap_err().to_string();
    assert!(unknown.contains("21 is not reserved") && unknown.contains("10, 20, 30, 40"));
    let second = view.leaving(ManagerNumber(10)).unwrap();
    let second = second.leaving(LEAVER).unwrap_err().to_string();
    assert!(second.contains("the leave of number 10"), "{second}");
    let joins = view.joined(&claim(15)).unwrap().leaving(LEAVER).unwrap_err().to_string();
    assert!(joins.contains("the join of number 15"), "{joins}");
    let left = settled(view.leaving(LEAVER).unwrap()).left().unwrap();
    assert_eq!(left.leaving(LEAVER), Err(LeaveRefused::AlreadyLeft(LEAVER)));
    let joining = view.leaving(LEAVER).unwrap().joined(&claim(15)).unwrap_err().to_string();
    assert!(joining.contains("the leave of number 20"), "{joining}");
    let founded = View::found(view.cluster.clone(), 100, 1, 100, &[(LEAVER, claim(20).id)]);
    assert_eq!(founded.unwrap().leaving(LEAVER), Err(LeaveRefused::NeverStarted(LEAVER)));
}

#[test]
fn a_number_that_is_down_leaves_at_once_unless_it_holds_a_last_copy() {
    let view = four(1).without(&[member(LEAVER)]).unwrap();
    let left = view.leaving(LEAVER).unwrap();
    assert_eq!((left.check(), left.transition), (Ok(()), None));
    assert_eq!(left.managers[&LEAVER].status, ManagerStatus::Left);
    let lone = four(0).without(&[member(LEAVER)]).unwrap().leaving(LEAVER).unwrap_err();
    assert!(lone.to_string().contains("the last copy of partition 20"), "{lone}");
}

#[test]
fn a_leave_that_is_taken_back_leaves_no_trace_at_any_step() {
    let begun = four(1).leaving(LEAVER).unwrap();
    let handed = begun.with_members(LEAVER, &[member(ManagerNumber(40))]).unwrap();
    let all = settled(begun.clone());
    for view in [begun, handed, all] {
        let back = view.cancelled(Some(LEAVER)).unwrap();
        assert_eq!((back.check(), back.transition), (Ok(()), None));
        assert_eq!(back.parts, view.parts);
        let back = settled(back);
        let always = four(1);
        for n in always.parts.keys() {
            assert_eq!(isr(&back, n.0), isr(&always, n.0));
            assert_eq!(back.parts[n].owner, *n);
        }
    }
}

#[test]
fn a_join_is_taken_back_by_leaving() {
    let new = ManagerNumber(15);
    let joined = four(1).joined(&claim(15)).unwrap();
    let split = joined.split(new).unwrap();
    let filled = settled(split.clone());
    for view in [joined, split, filled] {
        let back = view.cancelled(None).unwrap();
        assert_eq!(back.check(), Ok(()));
        assert_eq!(back.leaver(), Some(new));
        assert_eq!(back.unsplit(LEAVER), None, "no arc is cut out for who leaves");
        let left = settled(back).left().unwrap();
        assert_eq!((left.check(), left.transition), (Ok(()), None));
        let back = left.claimed_or_joined(&again(15)).unwrap();
        assert_eq!(back.member(new).unwrap().incarnation, Incarnation(2));
    }
}

#[test]
fn a_cancel_is_refused_when_nothing_or_something_else_is_under_way() {
    let view = four(1);
    assert_eq!(view.cancelled(None), Err(CancelRefused::Nothing));
    let other = view.leaving(LEAVER).unwrap().cancelled(Some(ManagerNumber(30))).unwrap_err();
    assert!(other.to_string().contains("the leave of number 20"), "{other}");
}

#[test]
fn who_dies_while_it_leaves_has_left_unless_it_is_the_last_copy() {
    let begun = four(1).leaving(LEAVER).unwrap();
    let gone = begun.without(&[member(LEAVER)]).unwrap();
    assert_eq!((gone.check(), gone.transition), (Ok(()), None));
    assert_eq!(gone.managers[&LEAVER].status, ManagerStatus::Left);
    let lone = four(0).leaving(LEAVER).unwrap().without(&[member(LEAVER)]).unwrap();
    assert_eq!((lone.check(), lone.transition), (Ok(()), None));
    assert_eq!(lone.managers[&LEAVER].status, ManagerStatus::Down);
    assert!(lone.claimed(&again(20)).unwrap().is_up(LEAVER), "it comes back with what it holds");
    let other = begun.without(&[member(ManagerNumber(30))]).unwrap();
    assert_eq!(other.transition, begun.transition);
}

#[test]
fn a_new_run_of_who_leaves_goes_on_leaving() {
    let view = four(1).leaving(LEAVER).unwrap().claimed(&again(20)).unwrap();
    assert_eq!(view.check(), Ok(()));
    assert_eq!(view.managers[&LEAVER].status, ManagerStatus::Leaving);
    assert!(view.left().is_some(), "its disk may lack what the others committed meanwhile");
}

#[test]
fn a_number_that_has_left_comes_back_as_a_newcomer_and_only_when_it_may_join() {
    let left = settled(four(1).leaving(LEAVER).unwrap()).left().unwrap();
    for claim in [claim(20), again(20)] {
        assert_eq!(left.claimed(&claim), Err(ClaimRefused::HasLeft(LEAVER)));
        let back = left.claimed_or_joined(&claim).unwrap();
        assert_eq!(back.check(), Ok(()));
        let since = left.epoch.next();
        assert_eq!(back.transition, Some(RingTransition::Join { number: LEAVER, since }));
        assert!(!back.has_arrived(LEAVER));
        let back = settled(back);
        assert!(back.has_arrived(LEAVER));
    }
    let named = left.claimed_or_joined(&Claim { id: claim(30).id, ..claim(20) });
    assert!(matches!(named, Err(ClaimRefused::NameTaken { .. })));
    let other = left.leaving(ManagerNumber(30)).unwrap().claimed_or_joined(&claim(20));
    assert!(matches!(other, Err(ClaimRefused::InTransition { .. })));
    let stranger = Claim { held: vec![(Incarnation(1), Nonce(9))], ..claim(20) };
    assert!(matches!(left.claimed_or_joined(&stranger), Err(ClaimRefused::NotThisDisk { .. })));
}

#[test]
fn a_number_that_has_left_may_be_taken_by_another_manager_as_a_new_run_on_an_empty_folder() {
    let left = settled(four(1).leaving(LEAVER).unwrap()).left().unwrap();
    let other = Claim { id: ManagerId::parse("another").unwrap(), ..claim(20) };
    let taken = left.claimed_or_joined(&other).unwrap();
    let entry = &taken.managers[&LEAVER];
    assert_eq!((&entry.id, entry.incarnation), (&other.id, Incarnation(2)));
    assert!(settled(taken.clone()).has_arrived(LEAVER));
    // It is that one's now.
    let old = taken.claimed_or_joined(&claim(20));
    assert!(matches!(old, Err(ClaimRefused::Taken { .. })));
    let old = Claim { id: other.id, ..again(20) };
    assert!(left.claimed_or_joined(&old).is_ok(), "the very disk that it had");
    let used = Claim { held: vec![(Incarnation(1), Nonce(9))], ..old };
    assert!(matches!(left.claimed_or_joined(&used), Err(ClaimRefused::NotThisDisk { .. })));
}

#[test]
fn managers_that_come_and_go_never_use_the_numbers_up() {
    let mut view = View { managers_max: 5, ..four(1) };
    for index in 0..10 {
        let id = ManagerId::parse(&format!("fresh-{index}")).unwrap();
        let number = view.arcs().free_number().unwrap();
        let fresh = Claim { id, ..claim(number.0) };
        view = settled(view.claimed_or_joined(&fresh).unwrap());
        assert_eq!(view.check(), Ok(()));
        let next = Claim { id: ManagerId::parse("too-many").unwrap(), ..claim(99) };
        let full = view.claimed_or_joined(&next);
        assert!(
            matches!(
                full,
                Err(ClaimRefused::InTransition { .. } | ClaimRefused::RingFull { limit: 5 })
            ),
            "{full:?}"
        );
        view = view.released().unwrap_or(view);
        view = settled(view.leaving(number).unwrap()).left().unwrap();
        // No sixth number: one that has left is there.
        let full = view.claimed_or_joined(&next);
        assert_eq!(full, Err(ClaimRefused::NumbersFull { limit: 5, left: number }));
    }
    assert_eq!(view.managers.len(), 5);
}

#[test]
fn a_view_that_says_two_things_of_who_leaves_is_refused() {
    let view = four(1);
    let mut silent = view.leaving(LEAVER).unwrap();
    silent.transition = None;
    assert!(silent.check().unwrap_err().to_string().contains("number 20 is LEAVING"));
    let mut held = view;
    held.managers.get_mut(&LEAVER).unwrap().status = ManagerStatus::Left;
    assert!(held.check().unwrap_err().to_string().contains("has left, and is a copy"));
}

fn rings() -> impl Strategy<Value = (u32, u32, BTreeSet<u32>)> {
    (8_u32..300).prop_flat_map(|m| (Just(m), 0_u32..5, btree_set(0..m, 2..8)))
}

proptest! {
    #[test]
    fn any_leave_ends_with_the_copies_that_the_ring_can_have_and_every_partition_owned(
        (m, r, numbers) in rings(),
        pick in any::<prop::sample::Index>(),
    ) {
        let list: Vec<u32> = numbers.iter().copied().collect();
        let leaver = ManagerNumber(list[pick.index(list.len())]);
        let before = ring(m, r, &numbers);
        let copies = before.copies_without(leaver);
        let view = settled(before.leaving(leaver).unwrap()).left().unwrap();
        prop_assert_eq!(view.check(), Ok(()));
        prop_assert_eq!(view.parts.len(), before.parts.len());
        for (n, part) in &view.parts {
            prop_assert_eq!(part.isr.len(), copies);
            prop_assert_eq!(Some(part.owner), view.ring_from(*n).find(|it| part.has(*it)));
            prop_assert!(!part.has(leaver));
        }
    }
}
