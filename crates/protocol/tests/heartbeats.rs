//! Who says that it is there, and to whom.

use crate::table::*;
use rota_model::ManagerNumber;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Whom each manager of a ring tells in ten seconds at rest that it is there, and how often.
fn told_at_rest(managers: u32, r: u32) -> (Table, BTreeMap<u32, BTreeMap<u32, u32>>) {
    let numbers: Vec<u32> = (1..=managers).map(|it| it * 1024 / managers - 1).collect();
    let mut table = Table::laid_among(&numbers, r);
    numbers.iter().for_each(|n| table.start(*n));
    table.settle();
    table.pass(5_000);
    let told: Rc<RefCell<BTreeMap<u32, BTreeMap<u32, u32>>>> = Rc::default();
    let heard = told.clone();
    table.lose = Box::new(move |envelope| {
        if envelope.message.name() == "heartbeat" {
            let mut told = heard.borrow_mut();
            let (from, to) = (envelope.from.number.0, envelope.to.number.0);
            *told.entry(from).or_default().entry(to).or_default() += 1;
        }
        false
    });
    table.pass(10_000);
    let told = told.borrow().clone();
    (table, told)
}

#[test]
fn managers_tell_only_those_who_share_a_partition_with_them_that_they_are_there() {
    for (managers, r) in [(4, 1), (12, 1), (12, 2), (24, 2)] {
        let (table, told) = told_at_rest(managers, r);
        for (from, to) in &told {
            let near: BTreeSet<u32> =
                table.view().neighbours(ManagerNumber(*from)).iter().map(|it| it.0).collect();
            assert_eq!(to.keys().copied().collect::<BTreeSet<u32>>(), near, "{from} of {managers}");
            assert!(near.len() <= 2 * r as usize, "{near:?}");
        }
        assert_eq!(told.len(), managers as usize);
    }
}

#[test]
fn what_that_costs_a_manager_grows_with_the_copies_and_not_with_the_ring() {
    let each = |managers, r| {
        let told = told_at_rest(managers, r).1;
        let all: u32 = told.values().flat_map(BTreeMap::values).sum();
        all / managers
    };
    let (small, large, two) = (each(6, 1), each(24, 1), each(24, 2));
    assert!(small > 0 && large <= small, "{small} in a ring of 6, {large} in one of 24");
    assert!(two <= large * 2 + 1, "{large} for one copy, {two} for two");
}
