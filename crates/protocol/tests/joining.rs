//! A new number comes into a running ring.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::Update;
use rota_model::{ManagerNumber, ManagerStatus};
use rota_protocol::{Disk, Transition};
use rota_ring::View;
use std::collections::BTreeSet;

const NEW: u32 = 450;
const SESSIONS: usize = 60;

/// Three managers that serve, with sessions all over the ring.
fn filled() -> Table {
    let mut table = Table::serving();
    table.places = 2_000;
    table.register("n1", 8);
    for index in 0..SESSIONS {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    table
}

fn isr(view: &View, n: u32) -> BTreeSet<u32> {
    view.parts[&ManagerNumber(n)].isr.iter().map(|it| it.number.0).collect()
}

/// Nothing that is copied arrives there, and yet nobody is silent.
fn nothing_is_copied_to(table: &mut Table, n: u32) {
    table.lose = Box::new(move |envelope| {
        envelope.to.number == ManagerNumber(n) && envelope.message.name() == "snapshot_chunk"
    });
}

/// Every session is found through every manager, and where it was.
fn assert_all_found(table: &mut Table) {
    for n in table.managers.keys().copied().collect::<Vec<_>>() {
        for index in 0..SESSIONS {
            let call = table.ask(n, get(&format!("s{index}")));
            got(table.wait_for(call, 3_000));
        }
    }
}

/// Every partition has the copies that it should, they are equal, and nobody else holds anything.
fn assert_settled(table: &Table) {
    let view = table.view();
    assert_eq!(view.transition, None);
    for (n, part) in &view.parts {
        let wanted: BTreeSet<u32> = view.wanted(*n).into_iter().map(|it| it.0).collect();
        assert_eq!(isr(view, n.0), wanted, "copies of partition {n}");
        let of_part = |manager: u32| {
            let docs = table.disks[&manager].docs.iter();
            docs.filter(|(key, _)| view.home(key.slot) == *n).collect::<Vec<_>>()
        };
        let owners = of_part(part.owner.0);
        for manager in table.managers.keys() {
            let expected = if wanted.contains(manager) { owners.clone() } else { Vec::new() };
            assert_eq!(of_part(*manager), expected, "partition {n} on the disk of M{manager}");
        }
    }
}

/// Lets time pass until the transition is given back.
fn finish(table: &mut Table) {
    table.pass_until("the end of the transition", 10_000, |it| it.view().transition.is_none());
}

#[test]
fn a_newcomer_gets_its_arc_and_the_copies_of_its_predecessors_and_the_others_drop_theirs() {
    let mut table = filled();
    table.start_newcomer(NEW);
    finish(&mut table);
    assert!(table.view().has_arrived(ManagerNumber(NEW)));
    assert_eq!(isr(table.view(), 300), BTreeSet::from([300, 450, 600]));
    assert_eq!(table.view().parts[&ManagerNumber(NEW)].owner, ManagerNumber(NEW));
    assert_eq!(table.count(Transition::JoinStarted), 1);
    assert_eq!(table.count(Transition::ArcSplit), 1);
    assert_eq!(table.count(Transition::ArcCut), 4);
    assert_eq!(table.count(Transition::JoinFinished), 1);
    assert_all_found(&mut table);
    table.pass(12_000);
    assert_eq!(table.count(Transition::CopyDropped), 3, "one copy of each arc that it copies");
    assert_settled(&table);
    assert_all_found(&mut table);
}

#[test]
fn opens_and_closes_go_on_during_a_join_and_none_is_refused() {
    let mut table = filled();
    table.start_newcomer(NEW);
    let mut calls = Vec::new();
    for index in 0..400 {
        let entry = NUMBERS[index % 3];
        calls.push(table.ask(entry, open(&format!("n{index}"), &format!("n{index}"))));
        if index < SESSIONS / 2 {
            calls.push(table.ask(entry, close(&format!("s{index}"), &format!("c{index}"))));
        }
        table.pass(20);
    }
    for call in calls {
        let result = table.wait_for(call, 5_000);
        assert!(result.is_ok(), "{result:?}");
    }
    assert!(table.view().has_arrived(ManagerNumber(NEW)));
    table.pass(12_000);
    assert_settled(&table);
}

#[test]
fn a_second_newcomer_is_refused_with_the_name_of_the_first() {
    let mut table = filled();
    table.lose = Box::new(|envelope| envelope.to.number == ManagerNumber(NEW));
    table.start_newcomer(NEW);
    table.start_newcomer(800);
    let refused = table.managers[&800].refused().expect("one join at a time").to_string();
    assert!(refused.contains("the join of number 450"), "{refused}");
    assert!(table.managers[&NEW].refused().is_none());
}

#[test]
fn a_manager_that_may_not_join_is_refused() {
    let mut table = filled();
    table.blob_stores.entry(NEW).or_default();
    table.start(NEW);
    table.settle();
    let refused = table.managers[&NEW].refused().expect("nobody reserved it").to_string();
    assert!(refused.contains("450 is not reserved"), "{refused}");
}

#[test]
fn a_newcomer_that_dies_is_taken_out_and_comes_back_at_any_step() {
    for step in [Transition::JoinStarted, Transition::ArcSplit, Transition::LearnStarted] {
        for later_ms in [0, 20, 60] {
            let mut table = filled();
            let before = table.count(step);
            // It hears nothing from the others, so that the join stands still at its beginning.
            if step != Transition::LearnStarted {
                table.lose = Box::new(|envelope| envelope.to.number == ManagerNumber(NEW));
            }
            table.start_newcomer(NEW);
            while table.count(step) == before {
                table.pass(20);
            }
            table.pass(later_ms);
            let arrived = table.view().transition.is_none();
            table.kill(NEW);
            table.lose = Box::new(|_| false);
            table.pass(3_000);
            let view = table.view();
            assert_eq!(view.transition, None, "{step:?} and {later_ms} ms");
            assert_eq!(view.managers[&ManagerNumber(NEW)].status, ManagerStatus::Down);
            assert_eq!(table.count(Transition::JoinRolledBack), usize::from(!arrived));
            assert_all_found(&mut table);
            table.start_newcomer(NEW);
            table.pass(15_000);
            assert!(table.view().has_arrived(ManagerNumber(NEW)), "{:?}", table.view());
            assert_settled(&table);
            assert_all_found(&mut table);
        }
    }
}

#[test]
fn each_owner_that_the_newcomer_copies_from_may_die_at_any_step_and_the_join_goes_on() {
    let steps = [
        Transition::JoinStarted,
        Transition::ArcSplit,
        Transition::LearnStarted,
        Transition::Wedged,
        Transition::MemberAdded,
        Transition::JoinFinished,
    ];
    for (owner, step) in NUMBERS.into_iter().flat_map(|owner| steps.map(|step| (owner, step))) {
        let mut table = filled();
        let before = table.count(step);
        table.start_newcomer(NEW);
        while table.count(step) == before {
            table.pass(20);
        }
        table.kill(owner);
        table.pass(6_000);
        let view = table.view();
        assert!(view.has_arrived(ManagerNumber(NEW)), "{owner} at {step:?}: {view:?}");
        assert_eq!(view.transition, None, "{owner} at {step:?}");
        table.start(owner);
        table.pass(15_000);
        assert_settled(&table);
        assert_all_found(&mut table);
    }
}

#[test]
fn a_join_that_comes_no_further_lets_the_next_one_in() {
    let mut table = filled();
    nothing_is_copied_to(&mut table, NEW);
    table.start_newcomer(NEW);
    table.pass(590_000);
    assert!(table.view().transition.is_some());
    table.pass(20_000);
    assert_eq!(table.view().transition, None);
    assert_eq!(table.count(Transition::JoinGivenUp), 1);
    assert_eq!(table.view().managers[&ManagerNumber(NEW)].status, ManagerStatus::Active);
    assert_all_found(&mut table);
}

#[test]
fn who_takes_its_number_again_on_an_empty_machine_needs_no_turn_while_another_one_joins() {
    let mut table = filled();
    nothing_is_copied_to(&mut table, NEW);
    table.start_newcomer(NEW);
    table.pass(2_000);
    table.kill(600);
    table.pass(3_000);
    table.disks.insert(600, Disk::default());
    table.start(600);
    table.pass(5_000);
    let view = table.view();
    assert!(view.transition.is_some(), "{view:?}");
    assert_eq!(view.managers[&ManagerNumber(600)].status, ManagerStatus::Active);
    assert!(isr(view, 600).contains(&600), "{view:?}");
    table.lose = Box::new(|_| false);
    table.pass(15_000);
    assert_settled(&table);
    assert_all_found(&mut table);
}

#[test]
fn a_join_that_comes_no_further_is_given_up_although_others_come_and_go_meanwhile() {
    let mut table = filled();
    nothing_is_copied_to(&mut table, NEW);
    table.start_newcomer(NEW);
    let began = table.view().epoch;
    for _ in 0..11 {
        assert_eq!(table.count(Transition::JoinGivenUp), 0);
        table.kill(1000);
        table.pass(5_000);
        table.start(1000);
        table.pass(50_000);
    }
    table.pass(15_000);
    assert!(table.view().epoch.0 > began.0 + 20, "the View changed all the time");
    assert_eq!(table.view().transition, None);
    assert_eq!(table.count(Transition::JoinGivenUp), 1);
    assert_all_found(&mut table);
}

#[test]
fn a_copy_that_stays_missing_is_made_at_the_next_manager_and_goes_when_it_comes_back() {
    let mut table = filled();
    table.start_newcomer(NEW);
    finish(&mut table);
    table.pass(12_000);
    table.kill(600);
    table.pass(3_000);
    nothing_is_copied_to(&mut table, 600);
    table.start(600);
    table.pass(5_000);
    assert!(isr(table.view(), 300).is_subset(&BTreeSet::from([300, 450, 1000])));
    table.pass(35_000);
    assert_eq!(isr(table.view(), 300), BTreeSet::from([300, 450, 1000]));
    table.lose = Box::new(|_| false);
    table.pass(30_000);
    assert_settled(&table);
    assert_all_found(&mut table);
}

#[test]
fn copies_that_lie_beyond_an_arc_that_was_cut_are_left_for_the_next_question() {
    let mut table = Table::serving();
    let (near, far) = (id_at(&table, 300, 0), id_at(&table, 600, 0));
    for docid in [&near, &far] {
        operated(table.call(300, op(write(docid, 1), docid))).expect("it is written");
    }
    // Put together by a manager that knew of one partition for both.
    for (asked, first) in
        [([near.as_str(), &far, &near], &near), ([far.as_str(), &near, &far], &far)]
    {
        let updates = synced(table.call(1000, sync(&asked, None, false)));
        let [Update::Full(document)] = &updates[..] else { panic!("{updates:?}") };
        assert_eq!(document.name().docid(), first);
    }
}
