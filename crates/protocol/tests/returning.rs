//! Everything restarts, and not everybody comes back: whoever holds a complete copy goes on with it.

use crate::table::*;
use rota_model::{ManagerNumber, ManagerStatus, SessionState, SessionView};
use rota_protocol::{Input, Timing, Transition};
use rota_ring::PartitionState;

const SESSIONS: usize = 30;

/// Three managers with copies of everything (r = 2), and sessions all over the ring.
fn filled() -> (Table, Vec<SessionView>) {
    let mut table = Table::serving();
    let open = |index| open(&format!("s{index}"), &format!("r{index}"));
    let sessions = (0..SESSIONS).map(|index| opened(table.call(300, open(index))).1).collect();
    (table, sessions)
}

/// The power is cut, and these come back.
fn restart(table: &mut Table, back: &[u32]) {
    for n in NUMBERS {
        table.kill(n);
    }
    for n in back {
        table.start(*n);
    }
    table.settle();
}

fn id(session: &SessionView) -> String {
    session.record.key.id.to_string()
}

/// Every session is there as it was, opens and closes work.
fn assert_serves(table: &mut Table, sessions: &[SessionView], round: &str) {
    let there: Vec<u32> = table.managers.keys().copied().collect();
    for before in sessions {
        for n in &there {
            let call = table.ask(*n, get(&id(before)));
            let now = got(table.wait_for(call, 2_000)).record.clone();
            assert_eq!((now.state, now.life), (SessionState::Ready, before.record.life));
        }
    }
    for index in 0..12 {
        let (id, request) = (format!("new {round} {index}"), format!("{round} {index}"));
        let call = table.ask(there[0], open(&id, &request));
        opened(table.wait_for(call, 2_000));
        let call = table.ask(there[0], close(&id, &format!("{request} end")));
        closed(table.wait_for(call, 2_000));
    }
    assert!(table.view().parts.values().all(|it| it.state == PartitionState::Active));
}

fn status(table: &Table, n: u32) -> ManagerStatus {
    table.view().managers[&ManagerNumber(n)].status
}

#[test]
fn who_never_comes_back_takes_no_partition_along_of_which_others_have_copies() {
    for away in NUMBERS {
        let (mut table, sessions) = filled();
        let back: Vec<u32> = NUMBERS.into_iter().filter(|n| *n != away).collect();
        restart(&mut table, &back);
        table.pass(Timing::default().suspect_ms + 1_000);
        assert_eq!(status(&table, away), ManagerStatus::Down);
        assert_serves(&mut table, &sessions, "without");
        // It comes back after all, and learns what it missed.
        table.start(away);
        table.pass(3_000);
        assert!(table.view().parts.values().all(|it| it.isr.len() == 3), "{:?}", table.view());
        assert_serves(&mut table, &sessions, "with");
    }
}

#[test]
fn one_of_three_that_comes_back_serves_alone() {
    for back in NUMBERS {
        let (mut table, sessions) = filled();
        restart(&mut table, &[back]);
        table.pass(Timing::default().suspect_ms + 1_000);
        assert_serves(&mut table, &sessions, "alone");
    }
}

#[test]
fn who_never_comes_back_may_have_lost_its_disk_too() {
    let (mut table, sessions) = filled();
    restart(&mut table, &[300, 600]);
    table.pass(2_000);
    table.disks.remove(&1000);
    table.start(1000);
    table.pass(3_000);
    assert!(table.view().parts.values().all(|it| it.isr.len() == 3), "{:?}", table.view());
    assert_serves(&mut table, &sessions, "empty");
    assert_eq!(table.count(Transition::LastCopyLost), 0);
}

#[test]
fn managers_that_start_together_wait_for_nobody() {
    let (mut table, sessions) = filled();
    restart(&mut table, &NUMBERS);
    // Each says at once that its last run is over.
    table.pass(200);
    assert!(table.managers.values().all(|it| it.is_claimed()));
    assert_serves(&mut table, &sessions, "together");
    table.pass(3_000);
    assert!(table.view().parts.values().all(|it| it.isr.len() == 3), "{:?}", table.view());
}

#[test]
fn in_a_ring_that_lives_a_restart_takes_no_time_and_nobody_goes_out() {
    let (mut table, sessions) = filled();
    for n in NUMBERS {
        table.kill(n);
        table.start(n);
        table.settle();
        table.pass(40);
        assert!(table.managers[&n].is_claimed(), "{n} waits for something");
        table.pass(2_000);
        assert!(table.view().parts.values().all(|it| it.isr.len() == 3), "{:?}", table.view());
    }
    assert_eq!((table.count(Transition::OthersGone), table.count(Transition::TakenOut)), (0, 0));
    assert_serves(&mut table, &sessions, "after");
}

#[test]
fn who_is_silent_to_a_claimer_and_heard_by_others_stays() {
    let (mut table, sessions) = filled();
    // 300 restarts, and hears nobody; the others hear each other, and miss it.
    table.lose = Box::new(|it| it.from.number.0 == 300 || it.to.number.0 == 300);
    table.kill(300);
    table.start(300);
    table.settle();
    let ids: Vec<String> = sessions.iter().map(id).collect();
    table.pass(Timing::default().suspect_ms + 1_000);
    assert_eq!(table.count(Transition::OthersGone), 0);
    assert_eq!(status(&table, 600), ManagerStatus::Active);
    for id in &ids {
        let call = table.ask(600, get(id));
        got(table.wait_for(call, 3_000));
    }
}

#[test]
fn a_port_that_refuses_is_silent_at_once() {
    let (mut table, sessions) = filled();
    restart(&mut table, &[300]);
    table.pass(20);
    assert!(!table.managers[&300].is_claimed());
    for gone in [600, 1000] {
        let (number, address) = (ManagerNumber(gone), format!("m{gone}:1"));
        table.input(300, Input::PeerRefused { number, address });
    }
    assert!(table.managers[&300].is_claimed());
    table.pass(100);
    assert_serves(&mut table, &sessions, "refused");
}

#[test]
fn a_disk_that_is_no_copy_leaves_a_partition_to_who_is_away() {
    let (mut table, sessions) = filled();
    // 300 missed what 600 and 1000 did: it is DOWN, and comes back first.
    table.kill(300);
    table.pass(2_000);
    restart(&mut table, &[300]);
    table.pass(5_000);
    let members = |table: &Table| -> Vec<usize> {
        table.view().parts.values().map(|it| it.isr.len()).collect()
    };
    assert!(table.view().parts.values().all(|it| !it.has(ManagerNumber(300))));
    assert!(table.view().parts.values().all(|it| it.state == PartitionState::Active));
    assert_eq!(members(&table), vec![2; 3], "and of the two either one will do");
    table.start(600);
    table.pass(3_000);
    assert_serves(&mut table, &sessions, "second");
}
