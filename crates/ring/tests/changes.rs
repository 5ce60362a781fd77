//! How a View changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its ring has failed")]
#![allow(clippy::cast_possible_truncation, reason = "rings of tests are small")]

use rota_model::{
    ClusterName, ClusterTimes, Epoch, Incarnation, ManagerId, ManagerNumber, ManagerStatus,
    MemberId, Nonce, PeerTimes,
};
use rota_ring::{
    Change, Claim, ClaimRefused, ConfigState, Dropped, Others, PartitionState, RingTransition, View,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The times of every manager here.
const TIMES: ClusterTimes =
    ClusterTimes { renew_ms: 1, lease_term_ms: 3, lease_kill_ms: 4, node_lost_ms: 5 };

fn id(n: u32) -> ManagerId {
    ManagerId::parse(&format!("m{n}")).unwrap()
}

fn claim(n: u32, held: &[(u64, u64)], nonce: u64, disk: &[(u32, u64)]) -> Claim {
    Claim {
        number: ManagerNumber(n),
        id: id(n),
        grpc: format!("127.0.0.1:{n}"),
        http: String::new(),
        taken: None,
        held: held.iter().map(|(i, n)| (Incarnation(*i), Nonce(*n))).collect(),
        nonce: Nonce(nonce),
        disk: disk.iter().map(|(n, pe)| (ManagerNumber(*n), Epoch(*pe))).collect(),
        force_lost: false,
        times: TIMES,
        peer_times: PeerTimes { heartbeat_ms: 1, suspect_ms: 4 },
    }
}

/// Three managers at 10, 20, 30 with r = 2, all of them started.
fn started() -> View {
    let numbers: Vec<_> = [10, 20, 30].map(|n| (ManagerNumber(n), id(n))).to_vec();
    let cluster = ClusterName::parse("test").unwrap();
    let mut view = View::found(cluster, 100, 2, 100, &numbers).unwrap();
    for n in [10, 20, 30] {
        view = view.claimed(&claim(n, &[], u64::from(n), &[])).unwrap();
    }
    view
}

fn isr(view: &View, n: u32) -> Vec<u32> {
    let mut isr: Vec<u32> =
        view.parts[&ManagerNumber(n)].isr.iter().map(|it| it.number.0).collect();
    isr.sort_unstable();
    isr
}

fn member(n: u32, incarnation: u64) -> MemberId {
    MemberId { number: ManagerNumber(n), incarnation: Incarnation(incarnation) }
}

#[test]
fn a_first_start_keeps_its_place_in_every_isr() {
    let view = started();
    assert_eq!(view.epoch, Epoch(4));
    for n in [10, 20, 30] {
        assert_eq!(isr(&view, n), vec![10, 20, 30]);
        assert_eq!(view.parts[&ManagerNumber(n)].pe, Epoch(1));
        assert_eq!(view.managers[&ManagerNumber(n)].incarnation, Incarnation(1));
    }
    assert_eq!(view.check(), Ok(()));
}

#[test]
fn a_restart_leaves_every_isr_that_has_another_member_and_grows_its_epoch() {
    let view = started().claimed(&claim(20, &[(1, 20)], 21, &[])).unwrap();
    for n in [10, 20, 30] {
        assert_eq!(isr(&view, n), vec![10, 30]);
        assert_eq!(view.parts[&ManagerNumber(n)].pe, view.epoch);
    }
    assert_eq!(view.parts[&ManagerNumber(20)].owner, ManagerNumber(30));
}

#[test]
fn the_last_to_restart_takes_over_from_its_disk_when_that_is_new_enough() {
    let mut view = started().claimed(&claim(20, &[(1, 20)], 21, &[])).unwrap();
    view = view.claimed(&claim(30, &[(1, 30)], 31, &[])).unwrap();
    assert_eq!(isr(&view, 20), vec![10]);
    let disk = [(10, 6), (20, 6), (30, 6)];
    let taken = view.claimed(&claim(10, &[(1, 10)], 11, &disk)).unwrap();
    for n in [10, 20, 30] {
        let part = &taken.parts[&ManagerNumber(n)];
        assert_eq!((part.state, part.base_pe), (PartitionState::Active, taken.epoch));
        assert_eq!(part.isr[0].since, taken.epoch);
    }
    // The same disk after that take-over, without having seen it, is too old.
    let again = taken.claimed(&claim(10, &[(2, 11)], 12, &disk)).unwrap();
    assert_eq!(again.parts[&ManagerNumber(10)].state, PartitionState::Recovering);
}

#[test]
fn a_suspect_goes_out_everywhere_except_where_nobody_else_runs() {
    let view = started().without(&[member(10, 1)]).unwrap();
    assert_eq!(isr(&view, 10), vec![20, 30]);
    assert_eq!(view.parts[&ManagerNumber(10)].owner, ManagerNumber(20));
    assert_eq!(view.managers[&ManagerNumber(10)].status, ManagerStatus::Down);
    // Two at once: either disk may hold everything. One after the other: only the last one's does.
    let nobody = view.without(&[member(20, 1), member(30, 1)]).unwrap();
    let last = view.without(&[member(20, 1)]).unwrap().without(&[member(30, 1)]).unwrap();
    for n in [10, 20, 30] {
        assert_eq!((isr(&nobody, n), isr(&last, n)), (vec![20, 30], vec![30]));
    }
    assert_eq!((nobody.check(), last.check()), (Ok(()), Ok(())));
}

#[test]
fn the_last_manager_may_be_given_up_and_an_empty_folder_takes_its_number_to_recover_from_nodes() {
    let lost = member(10, 1);
    let empty = claim(10, &[], 9, &[]);
    assert!(matches!(started().claimed(&empty), Err(ClaimRefused::NotThisDisk { .. })));
    let alone = started().without(&[member(20, 1), member(30, 1)]).unwrap();
    let given_up = alone.without(&[lost]).unwrap();
    assert_eq!(given_up.check(), Ok(()));
    assert_eq!(given_up.managers[&ManagerNumber(10)].status, ManagerStatus::Down);
    let refused = given_up.claimed(&empty).unwrap_err();
    let parts = [10, 20, 30].map(ManagerNumber).to_vec();
    assert_eq!(refused, ClaimRefused::LastCopy { number: ManagerNumber(10), parts });
    let told = Claim { force_lost: true, ..empty };
    let taken = given_up.claimed(&told).unwrap();
    assert_eq!(taken.member(ManagerNumber(10)), Some(member(10, 2)));
    let part = &taken.parts[&ManagerNumber(10)];
    assert_eq!((part.owner, part.state), (ManagerNumber(10), PartitionState::Recovering));
    assert!(alone.without(&[member(10, 2)]).is_none(), "another run is not given up");
}

#[test]
fn an_empty_folder_takes_the_number_of_a_last_copy_only_when_an_operator_says_that_it_is_lost() {
    let down = started().without(&[member(20, 1), member(30, 1)]).unwrap();
    let down = down.without(&[member(10, 1)]).unwrap();
    let refused = down.claimed(&claim(10, &[], 9, &[])).unwrap_err().to_string();
    for part in ["partitions 10, 20, 30:", "start it again", "--force-lost"] {
        assert!(refused.contains(part), "{refused}");
    }
    // A folder that only meant to take it is as empty as that one.
    assert!(matches!(
        down.claimed(&claim(10, &[(2, 9)], 9, &[])),
        Err(ClaimRefused::LastCopy { .. })
    ));
    let disk = [(10, 6), (20, 6), (30, 6)];
    let own = down.claimed(&claim(10, &[(1, 10)], 11, &disk)).unwrap();
    assert!(own.parts.values().all(|it| it.state == PartitionState::Active), "its own disk may");
    assert_eq!(down.last_copies(ManagerNumber(20)), vec![]);
    let learns = down.claimed(&claim(20, &[], 21, &[])).unwrap();
    assert_eq!(learns.parts, down.parts, "one that holds no last copy may be empty");
    // What is being found again anyway needs no word.
    let told = Claim { force_lost: true, ..claim(10, &[], 9, &[]) };
    let recovers = down.claimed(&told).unwrap().without(&[member(10, 2)]).unwrap();
    assert_eq!(recovers.last_copies(ManagerNumber(10)), vec![]);
    assert!(recovers.claimed(&claim(10, &[], 12, &[])).is_ok());
    // The word is about a number that is DOWN, and makes nothing else right.
    assert!(matches!(started().claimed(&told), Err(ClaimRefused::NotThisDisk { .. })));
}

#[test]
fn an_earlier_run_cannot_be_taken_out_any_more() {
    let view = started();
    assert_eq!(view.without(&[member(10, 0)]), None);
    let out = view.without(&[member(10, 1)]).unwrap();
    assert_eq!(out.without(&[member(10, 1)]), None);
}

#[test]
fn a_caught_up_home_becomes_owner_again() {
    let view = started().claimed(&claim(10, &[(1, 10)], 11, &[])).unwrap();
    assert_eq!(view.parts[&ManagerNumber(10)].owner, ManagerNumber(20));
    let back = view.with_members(ManagerNumber(10), &[member(10, 2)]).unwrap();
    assert_eq!(back.parts[&ManagerNumber(10)].owner, ManagerNumber(10));
    assert_eq!(isr(&back, 10), vec![10, 20, 30]);
    assert_eq!(view.with_members(ManagerNumber(10), &[member(10, 1)]), None);
}

#[test]
fn a_surplus_copy_goes_only_while_enough_are_left() {
    let numbers: Vec<_> = [10, 20, 30].map(|n| (ManagerNumber(n), id(n))).to_vec();
    let cluster = ClusterName::parse("test").unwrap();
    let mut view = View::found(cluster, 100, 1, 100, &numbers).unwrap();
    for n in [10, 20, 30] {
        view = view.claimed(&claim(n, &[], u64::from(n), &[])).unwrap();
    }
    // 20 restarts: 30 becomes wanted for partition 10, then 20 comes back.
    view = view.claimed(&claim(20, &[(1, 20)], 21, &[])).unwrap();
    view = view.without(&[member(20, 2)]).unwrap();
    view = view.with_members(ManagerNumber(10), &[member(30, 1)]).unwrap();
    assert_eq!(isr(&view, 10), vec![10, 30]);
    view = view.claimed(&claim(20, &[(2, 21)], 22, &[])).unwrap();
    view = view.with_members(ManagerNumber(10), &[member(20, 3)]).unwrap();
    assert_eq!(isr(&view, 10), vec![10, 20]);
}

#[test]
fn the_first_claim_says_by_what_times_nodes_are_judged_and_others_are_refused() {
    let numbers: Vec<_> = [10, 20].map(|n| (ManagerNumber(n), id(n))).to_vec();
    let old = View::found(ClusterName::parse("test").unwrap(), 100, 1, 100, &numbers).unwrap();
    assert_eq!(old.times, None, "as a build founded it that kept no times");
    let view = old.claimed(&claim(10, &[], 1, &[])).unwrap();
    assert_eq!(view.times, Some(TIMES));
    let times = ClusterTimes { node_lost_ms: 2, ..TIMES };
    let other = Claim { times, ..claim(20, &[], 1, &[]) };
    let refused = view.claimed(&other).unwrap_err().to_string();
    assert!(refused.contains("node_lost_ms is 2, but the View has 5"), "{refused}");
    assert!(!refused.contains("renew_ms"), "{refused}");
    let newcomer = Claim { times, ..claim(15, &[], 1, &[]) };
    assert!(matches!(view.joined(&newcomer), Err(ClaimRefused::OtherTimes(_))));
    assert!(view.claimed(&claim(20, &[], 1, &[])).is_ok());
    assert_eq!(view.joined(&claim(15, &[], 1, &[])).unwrap().times, Some(TIMES));
}

#[test]
fn who_would_not_be_heard_in_time_by_another_manager_or_would_not_hear_it_is_refused() {
    let view = started();
    let claim_with = |heartbeat_ms, suspect_ms| {
        let peer_times = PeerTimes { heartbeat_ms, suspect_ms };
        Claim { peer_times, ..claim(10, &[(1, 10)], 99, &[]) }
    };
    let others = |view: &View, claim: &Claim, runs| view.others(claim, &|_| runs);
    // Each by itself is in order; the others say 1 and 4.
    let refused = |heartbeat_ms, suspect_ms| {
        let claim = claim_with(heartbeat_ms, suspect_ms);
        others(&view, &claim, Some(true)).unwrap_err().to_string()
    };
    let text = "heartbeat_ms is 2 ms; 3 times that must be below manager 20's suspect_ms (4 ms)";
    assert!(refused(2, 9).contains(text), "{}", refused(2, 9));
    let text = "manager 20's heartbeat_ms is 1 ms; 3 times that must be below suspect_ms (3 ms)";
    assert!(refused(1, 3).contains(text), "{}", refused(1, 3));
    let newcomer = Claim { number: ManagerNumber(15), id: id(15), ..claim_with(2, 9) };
    let newcomer = Claim { held: Vec::new(), taken: None, ..newcomer };
    let answer = others(&view, &newcomer, Some(true));
    assert!(matches!(answer, Err(ClaimRefused::OtherTimes(_))), "{answer:?}");
    // One step after the other: first all are more patient, then they are heard less often.
    let patient = [10, 20, 30].iter().fold(view.clone(), |view, n| {
        let peer_times = PeerTimes { heartbeat_ms: 1, suspect_ms: 9 };
        view.claimed(&Claim { peer_times, ..claim(*n, &[(1, u64::from(*n))], 98, &[]) }).unwrap()
    });
    assert!(others(&patient, &claim_with(2, 9), Some(true)).is_ok());
    // Or all at once, when all are stopped: who is gone says nothing, and who may be is asked.
    let asked = [20, 30].map(|n| member(n, 1)).to_vec();
    assert_eq!(others(&view, &claim_with(2, 9), None), Ok(Others::Ask(asked)));
    assert!(others(&view, &claim_with(2, 9), Some(false)).is_ok());
    assert!(view.claimed(&claim_with(2, 9)).is_ok());
}

#[test]
fn a_number_is_refused_to_a_stranger_to_an_old_disk_and_outside_the_ring() {
    let view = started();
    let mut stranger = claim(10, &[], 99, &[]);
    stranger.id = id(77);
    assert!(matches!(view.claimed(&stranger), Err(ClaimRefused::Taken { .. })));
    let old = claim(10, &[(0, 5)], 99, &[]);
    assert!(matches!(view.claimed(&old), Err(ClaimRefused::NotThisDisk { .. })));
    let empty = claim(10, &[], 99, &[]);
    assert!(matches!(view.claimed(&empty), Err(ClaimRefused::NotThisDisk { .. })));
    let refused = view.claimed(&empty).unwrap_err().to_string();
    assert!(refused.contains("An empty folder may take the number while it is DOWN"), "{refused}");
    let later = Claim { taken: Some(Incarnation(7)), ..claim(10, &[(7, 5)], 99, &[]) };
    let refused = view.claimed(&later).unwrap_err();
    assert!(matches!(refused, ClaimRefused::StoreIsOlder { .. }), "{refused}");
    assert!(refused.to_string().contains("the config store is new"), "{refused}");
    let next = view.epoch.next();
    let ahead = claim(10, &[(1, 10)], 99, &[(10, next.0 + 1)]);
    let refused = view.claimed(&ahead).unwrap_err();
    assert!(matches!(refused, ClaimRefused::StoreIsBehind { .. }), "{refused}");
    let text = format!("partition 10 stands at epoch {}", next.next());
    assert!(refused.to_string().contains(&text), "{refused}");
    assert!(view.claimed(&claim(10, &[(1, 10)], 99, &[(10, next.0)])).is_ok(), "it was meant only");
    let outside = claim(11, &[], 99, &[]);
    let refused = view.claimed(&outside).unwrap_err().to_string();
    assert!(refused.contains("11") && refused.contains("10, 20, 30"), "{refused}");
    let down = view.without(&[member(10, 1)]).unwrap();
    assert!(down.claimed(&empty).is_ok(), "an empty machine may take a number that is down");
}

#[test]
fn founding_names_every_mistake() {
    let cluster = ClusterName::parse("test").unwrap();
    let numbers = [(ManagerNumber(5), id(5)), (ManagerNumber(5), id(6)), (ManagerNumber(9), id(5))];
    let mistakes = View::found(cluster.clone(), 8, 2, 2, &numbers).unwrap_err();
    let text: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let text = text.join("; ");
    for part in ["9, outside [0, 8)", "5 twice", "are 3; the limit is 2", "\"m5\" twice"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(View::found(cluster.clone(), 0, 2, 2, &[]).is_err());
    assert!(View::found(cluster, 70_000, 2, 2, &numbers[..1]).is_err());
}

#[test]
fn a_compare_and_set_needs_the_epoch_it_was_made_from() {
    let view = started();
    let state = ConfigState {
        index: 7,
        view: Some(Arc::new(view.clone())),
        nodes: BTreeMap::new(),
        dropped: Dropped::default(),
    };
    let next = view.without(&[member(10, 1)]).unwrap();
    let change = Change::view(next);
    let written = change.apply(&state).unwrap();
    assert_eq!((written.index, written.epoch()), (8, view.epoch.next()));
    assert_eq!(change.apply(&written), None);
}

#[test]
fn a_broken_view_is_refused_with_what_is_wrong() {
    let mut view = started();
    view.parts.get_mut(&ManagerNumber(10)).unwrap().owner = ManagerNumber(77);
    assert!(view.check().unwrap_err().to_string().contains("owner 77"));
    let mut view = started();
    view.format = 9;
    assert!(view.check().unwrap_err().to_string().contains("format 9"));
    // Some of what no function of this crate writes.
    let join = RingTransition::Join { number: ManagerNumber(10), since: Epoch(99) };
    type Breaks = fn(&mut View);
    let cases: [(Breaks, &str); 5] = [
        (|it| it.m = 25, "number 30 lies outside [0, 25)"),
        (|it| drop(it.managers.remove(&ManagerNumber(20))), "copy 20 of partition 10"),
        (
            |it| drop(it.parts.insert(ManagerNumber(15), it.parts[&ManagerNumber(10)].clone())),
            "nobody reserved the number of partition 15",
        ),
        (
            |it| it.parts.get_mut(&ManagerNumber(10)).unwrap().isr[0].since = Epoch(2),
            "copy 10 of partition 10 is of epoch 2",
        ),
        (|it| it.managers_max = 2, "more than 2 managers"),
    ];
    for (breaks, text) in cases {
        let mut view = started();
        breaks(&mut view);
        let told = view.check().unwrap_err().to_string();
        assert!(told.contains(text), "{told}");
    }
    let view = View { format: 2, transition: Some(join), ..started() };
    let told = view.check().unwrap_err().to_string();
    assert!(told.contains("(since epoch 99) is newer than its View"), "{told}");
}

#[test]
fn a_view_of_another_ring_is_told_by_its_shape() {
    let view = started();
    let ring = view.shape();
    assert_eq!(view.bumped(ManagerNumber(10)).unwrap().check_shape(&ring), Ok(()));
    let cluster = ClusterName::parse("another").unwrap();
    for other in [
        View { m: 101, ..view.clone() },
        View { r: 1, ..view.clone() },
        View { cluster, ..view.clone() },
    ] {
        assert_eq!(other.check(), Ok(()));
        let told = other.check_shape(&ring).unwrap_err().to_string();
        assert!(told.contains("it is of another ring"), "{told}");
    }
}

/// Managers 10, 20 and 30 with r = 2; 30 never started.
fn two_of_three_started() -> View {
    let numbers: Vec<_> = [10, 20, 30].map(|n| (ManagerNumber(n), id(n))).to_vec();
    let view = View::found(ClusterName::parse("test").unwrap(), 100, 2, 100, &numbers).unwrap();
    let view = view.claimed(&claim(10, &[], 10, &[])).unwrap();
    view.claimed(&claim(20, &[], 20, &[])).unwrap()
}

#[test]
fn no_isr_is_left_to_a_member_that_never_ran() {
    let disk = [(10, 1), (20, 1), (30, 1)];
    let view = two_of_three_started().claimed(&claim(10, &[(1, 10)], 11, &disk)).unwrap();
    assert_eq!(isr(&view, 20), vec![20, 30]);
    let view = view.claimed(&claim(20, &[(1, 20)], 21, &disk)).unwrap();
    for n in [10, 20, 30] {
        let part = &view.parts[&ManagerNumber(n)];
        assert_eq!((isr(&view, n), part.owner), (vec![20], ManagerNumber(20)));
        assert_eq!((part.state, part.base_pe), (PartitionState::Active, view.epoch));
    }
    assert_eq!(view.check(), Ok(()));
}

#[test]
fn suspects_stay_where_only_members_that_never_ran_are_left() {
    let view = two_of_three_started().without(&[member(10, 1), member(20, 1)]).unwrap();
    assert_eq!(view.managers[&ManagerNumber(20)].status, ManagerStatus::Down);
    for n in [10, 20, 30] {
        assert_eq!(isr(&view, n), vec![10, 20, 30]);
    }
    let disk = [(10, 3), (20, 3), (30, 3)];
    let back = view.claimed(&claim(20, &[(1, 20)], 21, &disk)).unwrap();
    assert_eq!(isr(&back, 10), vec![20]);
    // Or the one that never ran comes first: nothing was committed without it, so it is exact.
    let first = view.claimed(&claim(30, &[], 30, &[])).unwrap();
    for n in [10, 20, 30] {
        let part = &first.parts[&ManagerNumber(n)];
        assert_eq!((isr(&first, n), part.owner), (vec![30], ManagerNumber(30)));
        assert_eq!((part.state, part.pe), (PartitionState::Active, first.epoch));
    }
    assert_eq!(first.check(), Ok(()));
}

/// Every order of three numbers.
const ORDERS: [[u32; 3]; 6] =
    [[10, 30, 40], [10, 40, 30], [30, 10, 40], [30, 40, 10], [40, 10, 30], [40, 30, 10]];

#[test]
fn managers_that_were_given_up_before_they_ever_ran_take_their_numbers_in_any_order() {
    for (r, order) in [0, 1, 2].into_iter().flat_map(|r| ORDERS.map(|order| (r, order))) {
        let numbers: Vec<_> = [10, 20, 30, 40].map(|n| (ManagerNumber(n), id(n))).to_vec();
        let cluster = ClusterName::parse("test").unwrap();
        let mut view = View::found(cluster, 100, r, 100, &numbers).unwrap();
        view = view.claimed(&claim(20, &[], 20, &[])).unwrap();
        view = view.without(&[10, 30, 40].map(|n| member(n, 0))).unwrap();
        for n in order {
            assert_eq!(view.last_copies(ManagerNumber(n)), [], "it never had one");
            view = view.claimed(&claim(n, &[], u64::from(n), &[])).unwrap();
            view.check().unwrap();
        }
        for part in view.parts.values() {
            assert_eq!(part.state, PartitionState::Active);
            assert!(!part.isr.is_empty(), "r {r}, order {order:?}: {view:?}");
        }
    }
}
