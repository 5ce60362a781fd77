//! Who goes out with a claim, since nobody else is there to write it.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its ring has failed")]

use rota_model::{
    ClusterName, ClusterTimes, Epoch, Incarnation, ManagerId, ManagerNumber, ManagerStatus,
    MemberId, Nonce,
};
use rota_ring::{Claim, Others, PartitionState, View};

const SIX: [u32; 6] = [10, 20, 30, 40, 50, 60];

fn id(n: u32) -> ManagerId {
    ManagerId::parse(&format!("m{n}")).unwrap()
}

/// The claim of a number's run, with a disk that holds these partitions from this epoch on.
fn claim(n: u32, run: u64, disk: &[u32]) -> Claim {
    Claim {
        number: ManagerNumber(n),
        id: id(n),
        grpc: format!("127.0.0.1:{n}"),
        http: String::new(),
        taken: None,
        held: vec![(Incarnation(run), Nonce(u64::from(n) + run))].split_off(usize::from(run == 0)),
        nonce: Nonce(u64::from(n) + run + 1),
        disk: disk.iter().map(|it| (ManagerNumber(*it), Epoch(1))).collect(),
        force_lost: false,
        times: ClusterTimes { renew_ms: 1, lease_term_ms: 3, lease_kill_ms: 4, node_lost_ms: 5 },
        peer_times: rota_model::PeerTimes { heartbeat_ms: 1, suspect_ms: 4 },
    }
}

/// Six managers with r = 2, all of them started: each partition is at its number and the next two.
fn six() -> View {
    let numbers: Vec<_> = SIX.map(|n| (ManagerNumber(n), id(n))).to_vec();
    let mut view = View::found(ClusterName::parse("test").unwrap(), 100, 2, 100, &numbers).unwrap();
    for n in SIX {
        view = view.claimed(&claim(n, 0, &[])).unwrap();
    }
    view
}

fn isr(view: &View, n: u32) -> Vec<u32> {
    view.parts[&ManagerNumber(n)].isr.iter().map(|it| it.number.0).collect()
}

fn run(n: u32) -> MemberId {
    MemberId { number: ManagerNumber(n), incarnation: Incarnation(1) }
}

/// Everybody is known: who runs is one of these.
fn others(view: &View, claim: &Claim, running: &[u32]) -> Vec<u32> {
    let runs = |it: MemberId| Some(running.contains(&it.number.0));
    match view.others(claim, &runs).unwrap() {
        Others::Gone(gone) => gone.into_iter().map(|it| it.number.0).collect(),
        Others::Ask(asked) => panic!("{asked:?} are known"),
    }
}

#[test]
fn everybody_is_asked_at_once_and_one_that_runs_is_enough() {
    let (view, claim) = (six(), claim(30, 1, &[10, 20, 30]));
    let unknown = view.others(&claim, &|_| None).unwrap();
    assert_eq!(unknown, Others::Ask([10, 20, 40, 50, 60].map(run).to_vec()));
    // Partitions 10, 20 and 30 each have another member that runs.
    let runs = |it: MemberId| [20, 40].contains(&it.number.0).then_some(true);
    assert_eq!(view.others(&claim, &runs).unwrap(), Others::Gone(vec![]));
    // Partition 10 has none that is known.
    let runs = |it: MemberId| [40, 50].contains(&it.number.0).then_some(true);
    assert_eq!(view.others(&claim, &runs).unwrap(), Others::Ask([10, 20, 60].map(run).to_vec()));
}

#[test]
fn the_first_that_comes_back_takes_what_it_holds_and_leaves_the_rest_to_the_others() {
    let mut view = six();
    for n in SIX.into_iter().filter(|it| *it != 40) {
        // The first finds nobody; the others find those before them, and 40 never comes.
        let back: Vec<u32> = SIX.into_iter().filter(|it| *it < n && *it != 40).collect();
        let parts: Vec<u32> = SIX.to_vec();
        let claim = claim(n, 1, &parts);
        let gone = others(&view, &claim, &back);
        assert_eq!(gone.len(), if n == 10 { 5 } else { 0 }, "{n} finds {gone:?}");
        let gone: Vec<MemberId> = gone.into_iter().map(run).collect();
        let next = view.claimed_beside(&claim, &gone).unwrap();
        assert_eq!((next.epoch, next.check()), (view.epoch.next(), Ok(())));
        view = next;
    }
    for (n, part) in &view.parts {
        assert_eq!((part.isr.len(), part.state), (1, PartitionState::Active), "{n}: {part:?}");
        assert!(view.is_up(part.owner), "{n}: {part:?}");
    }
    assert_eq!(view.managers[&ManagerNumber(40)].status, ManagerStatus::Down);
}

#[test]
fn nobody_goes_out_for_a_disk_that_is_no_complete_copy() {
    let view = six();
    assert_eq!(others(&view, &claim(30, 1, &[]), &[]), vec![0; 0]);
    // One that holds partition 30 alone: those beside it go, and whoever only they share one with.
    let lone = claim(30, 1, &[30]);
    assert_eq!(others(&view, &lone, &[]), vec![10, 20, 40, 50, 60]);
    assert_eq!(others(&view, &lone, &[20, 60]), vec![40, 50]);
    // Where its own disk is no copy, those that are gone stay: one of their disks may be good.
    let next = view.claimed_beside(&lone, &[10, 20, 40, 50, 60].map(run)).unwrap();
    assert_eq!(
        (isr(&next, 30), isr(&next, 20), isr(&next, 10)),
        (vec![30], vec![20, 40], vec![10, 20])
    );
    assert!(next.parts.values().all(|it| it.state == PartitionState::Active), "{next:?}");
    let next = view.claimed_beside(&lone, &[run(40), run(50)]).unwrap();
    assert_eq!((isr(&next, 30), isr(&next, 20)), (vec![30], vec![20]));
    assert_eq!((isr(&next, 40), isr(&next, 50)), (vec![60], vec![60, 10]));
}

#[test]
fn who_is_down_and_who_never_ran_asks_nobody() {
    let view = six();
    let down = view.without(&[run(30)]).unwrap();
    assert_eq!(down.others(&claim(30, 1, &[10, 20, 30]), &|_| None).unwrap(), Others::Gone(vec![]));
    let numbers: Vec<_> = SIX.map(|n| (ManagerNumber(n), id(n))).to_vec();
    let founded = View::found(ClusterName::parse("test").unwrap(), 100, 2, 100, &numbers).unwrap();
    assert_eq!(founded.others(&claim(30, 0, &SIX), &|_| None).unwrap(), Others::Gone(vec![]));
    // One that would be refused anyway.
    assert_eq!(view.others(&claim(30, 7, &SIX), &|_| None).unwrap(), Others::Gone(vec![]));
}

#[test]
fn an_isr_of_which_all_are_down_is_taken_over_by_whoever_holds_it() {
    let all: Vec<MemberId> = SIX.map(run).to_vec();
    let down = six().without(&all).unwrap();
    assert_eq!(down.check(), Ok(()));
    assert_eq!(isr(&down, 40), vec![40, 50, 60]);
    // An empty disk leaves it to those whose disks may be good.
    let empty = down.claimed(&claim(50, 1, &[])).unwrap();
    assert_eq!((isr(&empty, 40), isr(&empty, 50)), (vec![40, 60], vec![60, 10]));
    let back = empty.claimed(&claim(60, 1, &[40, 50, 60])).unwrap();
    for n in [40, 50, 60] {
        let part = &back.parts[&ManagerNumber(n)];
        assert_eq!((isr(&back, n), part.base_pe), (vec![60], back.epoch));
    }
    // Each of them may be the last: none is replaced by an empty disk unless an operator says so.
    for n in [40, 50, 60] {
        assert_eq!(down.last_copies(ManagerNumber(n)).len(), 3, "{n}");
    }
    // The last one's disk is not what it was: then it is found again from the nodes.
    let last = empty.claimed(&claim(60, 1, &[])).unwrap();
    let last = last.claimed(&claim(40, 1, &[])).unwrap();
    assert_eq!(last.parts[&ManagerNumber(40)].state, PartitionState::Recovering);
}

#[test]
fn who_dies_while_it_leaves_has_left_when_the_claimer_holds_all_of_it() {
    let leaves = six().leaving(ManagerNumber(40)).unwrap();
    let all: Vec<MemberId> = SIX.into_iter().filter(|it| *it != 30).map(run).collect();
    let status = |view: &View| view.managers[&ManagerNumber(40)].status;
    let held = claim(30, 1, &SIX);
    let next = leaves.claimed_beside(&held, &all).unwrap();
    // Partitions 40 and 50 are no copies of the claimer's: its disk may be needed.
    assert_eq!((status(&next), next.transition), (ManagerStatus::Down, None));
    // Only number 60 runs, and holds the others: partition 30 is the claimer's alone.
    let beside: Vec<MemberId> = [10, 20, 40, 50].map(run).to_vec();
    let next = leaves.claimed_beside(&held, &beside).unwrap();
    assert_eq!((status(&next), next.transition), (ManagerStatus::Left, None));
    assert_eq!((isr(&next, 40), isr(&next, 30)), (vec![60], vec![30]));
}
