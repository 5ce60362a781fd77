//! A number leaves a running ring, or is called back.

use crate::table::*;
use rota_model::{ManagerNumber, ManagerStatus, RefusalKind};
use rota_protocol::{Input, Order, Transition};
use rota_ring::{Change, RingTransition, View};
use std::collections::BTreeSet;

const LEAVER: u32 = 600;
const NEW: u32 = 450;
const SESSIONS: usize = 60;

/// Three managers that serve, with sessions all over the ring.
fn filled(r: u32) -> Table {
    let mut table = Table::laid_with(r);
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.pass(500);
    table.places = 2_000;
    table.register("n1", 8);
    for index in 0..SESSIONS {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    table
}

fn leave(n: u32) -> Order {
    Order::Leave(ManagerNumber(n))
}

fn isr(view: &View, n: u32) -> BTreeSet<u32> {
    view.parts[&ManagerNumber(n)].isr.iter().map(|it| it.number.0).collect()
}

fn status(table: &Table, n: u32) -> ManagerStatus {
    table.view().managers[&ManagerNumber(n)].status
}

/// Every session is found through every manager that runs.
fn assert_all_found(table: &mut Table) {
    for n in table.managers.keys().copied().collect::<Vec<_>>() {
        for index in 0..SESSIONS {
            let call = table.ask(n, get(&format!("s{index}")));
            got(table.wait_for(call, 3_000));
        }
    }
}

/// Lets time pass until the transition is given back; ends the process whose number has left.
fn finish(table: &mut Table) {
    for _ in 0..500 {
        let left = table.managers.iter().find(|(_, it)| it.has_left()).map(|it| *it.0);
        if let Some(left) = left {
            table.kill(left);
        }
        if table.view().transition.is_none() {
            return;
        }
        table.pass(20);
    }
    panic!("it never ends: {:?}", table.view());
}

#[test]
fn who_leaves_hands_everything_on_and_its_run_ends() {
    for r in [0, 1, 2] {
        let mut table = filled(r);
        let ordered = table.order(300, leave(LEAVER)).unwrap();
        let copies = (ordered.copies, ordered.copies_wanted);
        assert_eq!(copies, ((r as usize + 1).min(2), r as usize + 1));
        assert!(ordered.under_way.is_some());
        assert_eq!(status(&table, LEAVER), ManagerStatus::Leaving, "r = {r}");
        for _ in 0..200 {
            if table.view().transition.is_none() {
                break;
            }
            table.pass(20);
        }
        assert_eq!(status(&table, LEAVER), ManagerStatus::Left, "r = {r}: {:?}", table.view());
        assert!(table.managers[&LEAVER].has_left());
        for step in [Transition::LeaveStarted, Transition::LeaveFinished, Transition::HasLeft] {
            assert_eq!(table.count(step), 1, "{step:?}, r = {r}");
        }
        assert_eq!(table.view().parts[&ManagerNumber(LEAVER)].owner, ManagerNumber(1000));
        assert_all_found(&mut table);
        table.kill(LEAVER);
        table.pass(12_000);
        assert_all_found(&mut table);
        opened(table.call(300, open("after it", "after it")));
    }
}

#[test]
fn opens_and_closes_go_on_during_a_leave_and_none_is_refused() {
    for r in [0, 1, 2] {
        let mut table = filled(r);
        let mut calls = Vec::new();
        for index in 0..300 {
            if index == 20 {
                table.order(1000, leave(LEAVER)).unwrap();
            }
            // Who has left answers its last callers, and gets no new ones.
            let entry = NUMBERS[index % 3];
            let entry = if table.managers[&entry].has_left() { 300 } else { entry };
            calls.push(table.ask(entry, open(&format!("n{index}"), &format!("n{index}"))));
            if index < SESSIONS / 2 {
                calls.push(table.ask(entry, close(&format!("s{index}"), &format!("c{index}"))));
            }
            table.pass(20);
        }
        for call in calls {
            let result = table.wait_for(call, 5_000);
            assert!(result.is_ok(), "r = {r}: {result:?}");
        }
        assert_eq!(status(&table, LEAVER), ManagerStatus::Left);
    }
}

#[test]
fn a_second_order_is_refused_with_the_name_of_the_first_and_the_same_one_is_not() {
    let mut table = filled(1);
    table.lose = Box::new(|envelope| envelope.message.name() == "snapshot_chunk");
    let first = table.order(300, leave(LEAVER)).unwrap();
    let second = table.order(1000, leave(300)).unwrap_err();
    assert_eq!(second.kind, RefusalKind::NotServing);
    assert!(second.message.contains("the leave of number 600"), "{second}");
    let again = table.order(LEAVER, leave(LEAVER)).unwrap();
    assert_eq!(again.under_way, first.under_way);
    table.start_newcomer(NEW);
    let refused = table.managers[&NEW].refused().expect("one at a time").to_string();
    assert!(refused.contains("the leave of number 600"), "{refused}");
}

#[test]
fn the_last_manager_an_unknown_number_and_one_that_has_left_cannot_leave() {
    let mut table = filled(1);
    let unknown = table.order(300, leave(301)).unwrap_err();
    assert_eq!(unknown.kind, RefusalKind::InvalidArgument);
    assert!(unknown.message.contains("301 is not reserved"), "{unknown}");
    table.order(300, leave(LEAVER)).unwrap();
    finish(&mut table);
    let left = table.order(300, leave(LEAVER)).unwrap_err();
    assert!(left.message.contains("has left this ring already"), "{left}");
    table.order(300, leave(300)).unwrap();
    finish(&mut table);
    let last = table.order(1000, leave(1000)).unwrap_err();
    assert!(last.message.contains("1000 is the last manager"), "{last}");
    table.pass(1_000);
    assert_all_found(&mut table);
}

#[test]
fn who_dies_while_it_leaves_has_left() {
    for step in [Transition::LeaveStarted, Transition::LearnStarted, Transition::MemberAdded] {
        let mut table = filled(1);
        let before = table.count(step);
        if step != Transition::MemberAdded {
            table.lose = Box::new(|envelope| envelope.message.name() == "snapshot_chunk");
        }
        table.order(300, leave(LEAVER)).unwrap();
        for _ in 0..20 {
            if table.count(step) > before {
                break;
            }
            table.pass(20);
        }
        table.kill(LEAVER);
        table.lose = Box::new(|_| false);
        table.pass(3_000);
        assert_eq!(table.view().transition, None, "{step:?}");
        assert_eq!(status(&table, LEAVER), ManagerStatus::Left, "{step:?}");
        table.pass(3_000);
        assert_all_found(&mut table);
        let mut restarted = table;
        restarted.start(LEAVER);
        restarted.settle();
        let refused = restarted.managers[&LEAVER].refused().expect("it has left").to_string();
        assert!(refused.contains("600 has left this ring"), "{refused}");
    }
}

#[test]
fn who_dies_with_a_last_copy_stays_and_comes_back_with_it() {
    let mut table = filled(0);
    table.lose = Box::new(|envelope| envelope.message.name() == "snapshot_chunk");
    table.order(300, leave(LEAVER)).unwrap();
    table.pass(100);
    table.kill(LEAVER);
    // With r = 0 nobody misses it: somebody outside says that it is gone.
    let member = table.view().member(ManagerNumber(LEAVER)).unwrap();
    table.input(300, rota_protocol::Input::Signal { member });
    table.pass(3_000);
    assert_eq!(table.count(Transition::LeaveRolledBack), 1);
    assert_eq!(status(&table, LEAVER), ManagerStatus::Down);
    table.lose = Box::new(|_| false);
    table.start(LEAVER);
    table.pass(1_000);
    assert_all_found(&mut table);
}

#[test]
fn a_new_run_of_who_leaves_ends_as_soon_as_it_may() {
    let mut table = filled(1);
    table.lose = Box::new(|envelope| envelope.message.name() == "snapshot_chunk");
    table.order(300, leave(LEAVER)).unwrap();
    table.pass(40);
    table.kill(LEAVER);
    table.start(LEAVER);
    table.settle();
    table.pass(500);
    assert!(table.managers[&LEAVER].has_left(), "{:?}", table.view());
    assert_eq!(table.view().transition, None);
}

#[test]
fn a_leave_that_is_called_back_ends_as_if_it_had_not_begun() {
    for later_ms in [0, 20, 40, 80] {
        let mut table = filled(1);
        table.order(300, leave(LEAVER)).unwrap();
        table.pass(later_ms);
        let over = table.view().transition.is_none();
        let answer = table.order(300, Order::Cancel(None));
        assert_eq!(answer.is_err(), over);
        if over {
            assert_eq!(answer.unwrap_err().kind, RefusalKind::NotFound);
            continue;
        }
        table.pass(12_000);
        assert_eq!(table.count(Transition::LeaveCancelled), 1);
        for n in NUMBERS {
            let wanted = table.view().wanted(ManagerNumber(n)).into_iter().map(|it| it.0);
            assert_eq!(isr(table.view(), n), wanted.collect(), "partition {n}");
            assert_eq!(table.view().parts[&ManagerNumber(n)].owner, ManagerNumber(n));
        }
        assert_all_found(&mut table);
    }
}

#[test]
fn a_join_that_is_called_back_is_a_leave_and_the_number_may_return() {
    for later_ms in [0, 20, 40, 80] {
        let mut table = filled(1);
        table.start_newcomer(NEW);
        table.pass(later_ms);
        if table.view().transition.is_none() {
            continue;
        }
        let ordered = table.order(300, Order::Cancel(Some(ManagerNumber(NEW)))).unwrap();
        assert!(matches!(ordered.cancelled, Some(RingTransition::Join { .. })));
        finish(&mut table);
        assert_eq!(status(&table, NEW), ManagerStatus::Left);
        assert_eq!(table.count(Transition::JoinCancelled), 1);
        assert_all_found(&mut table);
        table.start_newcomer(NEW);
        table.pass(12_000);
        assert!(table.view().has_arrived(ManagerNumber(NEW)), "{:?}", table.view());
        assert_all_found(&mut table);
    }
}

#[test]
fn a_leave_that_comes_no_further_is_given_up() {
    let mut table = filled(0);
    table.lose = Box::new(|envelope| envelope.message.name() == "snapshot_chunk");
    table.order(300, leave(LEAVER)).unwrap();
    table.pass(590_000);
    assert!(table.view().transition.is_some());
    table.pass(20_000);
    assert_eq!(table.view().transition, None);
    assert_eq!(table.count(Transition::LeaveGivenUp), 1);
    assert_eq!(status(&table, LEAVER), ManagerStatus::Active);
    assert_all_found(&mut table);
}

#[test]
fn an_order_is_answered_while_the_config_store_is_away() {
    let mut table = filled(1);
    table.store_away = true;
    let refused = table.order(300, leave(LEAVER)).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::ConfigStoreAway);
    table.store_away = false;
    table.pass(500);
    assert_eq!(table.view().transition, None);
}

#[test]
fn a_learner_that_was_away_when_a_leave_was_taken_back_drops_what_it_got() {
    let mut table = filled(0);
    // It gets the contents, and cannot say so.
    table.lose = Box::new(|envelope| envelope.message.name() == "snapshot_ack");
    table.order(300, leave(LEAVER)).unwrap();
    table.pass(100);
    let held = |table: &Table| {
        let view = table.view();
        let docs = table.disks[&1000].docs.keys();
        docs.filter(|key| view.home(key.slot) == ManagerNumber(LEAVER)).count()
    };
    assert!(held(&table) > 0);
    table.kill(1000);
    let member = table.view().member(ManagerNumber(1000)).unwrap();
    table.input(300, rota_protocol::Input::Signal { member });
    table.pass(2_000);
    table.order(300, Order::Cancel(None)).unwrap();
    table.lose = Box::new(|_| false);
    table.start(1000);
    table.pass(20_000);
    assert_eq!(held(&table), 0);
    assert_all_found(&mut table);
}

#[test]
fn an_order_to_take_back_what_is_under_way_does_not_take_back_what_began_after_it() {
    let mut table = filled(1);
    table.lose = Box::new(|envelope| envelope.message.name() == "snapshot_chunk");
    table.order(1000, leave(LEAVER)).unwrap();
    // 300 may change nothing for a moment, since it does not know what became of its last wish.
    table.cas_unknown = true;
    let (number, address) = (ManagerNumber(1000), "m1000:1".to_owned());
    table.input(300, Input::PeerRefused { number, address });
    table.input(300, Input::Order { call: 2, order: Order::Cancel(None) });
    assert!(table.ordered().is_none(), "it waits for that moment to pass");
    for next in [View::stayed, |view: &View| view.leaving(ManagerNumber(1000)).ok()] {
        let next = next(table.view()).expect("that may be done");
        table.config = Change::view(next).apply(&table.config).expect("the View is the newest");
    }
    table.cas_unknown = false;
    table.input(300, Input::Config(table.config.clone()));
    table.pass(2_000);
    let refusal = table.ordered().expect("it was answered").expect_err("another one is under way");
    assert_eq!(refusal.kind, RefusalKind::NotFound);
    assert!(refusal.to_string().contains("began after this order"), "{refusal}");
    assert_eq!(table.count(Transition::LeaveCancelled), 0);
}
