//! What an assigner does with a list of resources, and how a copy follows what it tells.

use proptest::prelude::*;
use rota_ids::{Change, Entry, Key, Kind, Name, Numbers, Policy, Told, Uuid, collapse};
use std::collections::BTreeSet;

const HOUR: u64 = 3_600_000;

fn key(kind: &str, parent: Option<u128>, uuid: u128) -> Key {
    let kind = Kind::parse(kind).expect("a good name");
    Policy::Local.key(kind, parent.map(Uuid::from_u128), Uuid::from_u128(uuid))
}

fn pool(uuid: u128) -> Key {
    key("Pool", None, uuid)
}

fn node(pool: u128, uuid: u128) -> Key {
    key("Node", Some(pool), uuid)
}

/// Settles in as many steps as it takes. Gives all changes.
fn settle(numbers: &mut Numbers, there: &[Key], most: usize, now_ms: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    loop {
        let settled = numbers.settle(there, most, now_ms);
        assert!(settled.more || settled.changes.len() <= most + 2);
        changes.extend(settled.changes);
        if !settled.more {
            return changes;
        }
    }
}

fn tell(told: &mut Told, changes: Vec<Change>) {
    for (name, entry) in collapse(changes) {
        told.learn(name, entry);
    }
}

fn numbers_of(numbers: &Numbers, keys: &[Key]) -> Vec<Option<(u64, bool)>> {
    keys.iter().map(|it| numbers.entry(it).map(|it| (it.number, it.valid))).collect()
}

#[test]
fn those_on_the_list_get_numbers_in_its_order_and_those_that_left_it_are_purged() {
    let mut numbers = Numbers::new(HOUR);
    let all = [pool(7), node(7, 9), node(7, 8), node(7, 1)];
    assert!(!settle(&mut numbers, &all, 100, 0).is_empty());
    let valid = |number| Some((number, true));
    assert_eq!(numbers_of(&numbers, &all), [valid(1), valid(1), valid(2), valid(3)]);
    assert_eq!(settle(&mut numbers, &all, 100, 5), [], "nothing is new");
    assert!(!settle(&mut numbers, &all[..2], 100, 10).is_empty());
    let gone = |number| Some((number, false));
    assert_eq!(numbers_of(&numbers, &all), [valid(1), valid(1), gone(2), gone(3)]);
    assert_eq!(numbers.next_outdated_ms(), Some(10 + HOUR));
    // One comes back in time, and the other one too late.
    settle(&mut numbers, &all[..3], 100, HOUR);
    settle(&mut numbers, &all[..3], 100, 10 + HOUR);
    assert_eq!(numbers_of(&numbers, &all), [valid(1), valid(1), valid(2), None]);
    settle(&mut numbers, &all, 100, 11 + HOUR);
    assert_eq!(numbers_of(&numbers, &all), [valid(1), valid(1), valid(2), valid(4)]);
}

#[test]
fn many_resources_are_settled_in_steps_that_come_to_the_same() {
    let all: Vec<Key> = (0..50).map(|it| node(7, it)).collect();
    let run = |most| {
        let mut numbers = Numbers::new(0);
        let first = numbers.settle(&all, most, 0);
        assert_eq!(first.more, most < 100);
        assert!(first.changes.len() <= most + 1);
        settle(&mut numbers, &all, most, 0);
        settle(&mut numbers, &all[..20], most, 1);
        settle(&mut numbers, &all, most, 2);
        numbers_of(&numbers, &all)
    };
    assert_eq!(run(4), run(1_000));
    assert_eq!(run(4)[20], Some((51, true)), "without an interval a number is given once");
}

#[test]
fn a_copy_has_what_it_is_told_and_keeps_what_went_for_its_own_interval() {
    let (mut owner, mut copy, mut told) = (Numbers::new(0), Numbers::new(HOUR), Told::default());
    let all = [pool(7), node(7, 8), node(7, 9)];
    tell(&mut told, settle(&mut owner, &all, 100, 0));
    let followed = copy.follow(&told, 3);
    assert_eq!((followed.adopted, followed.purged.invalidated), (3, 0));
    assert_eq!(numbers_of(&copy, &all), numbers_of(&owner, &all));
    assert_eq!(told.number(&node(7, 9)), Some(2));
    assert_eq!(copy.follow(&told, 4).changes, []);
    tell(&mut told, settle(&mut owner, &all[..2], 100, 5));
    let followed = copy.follow(&told, 6);
    assert_eq!((followed.adopted, followed.purged.invalidated), (0, 1));
    assert_eq!(numbers_of(&copy, &all[2..]), [Some((2, false))]);
    assert_eq!(told.number(&node(7, 9)), None);
}

#[test]
fn a_copy_that_was_started_anew_is_valid_again_with_what_it_is_told() {
    let (mut owner, mut copy, mut told) = (Numbers::new(HOUR), Numbers::new(HOUR), Told::default());
    let all = [node(7, 8), node(7, 9)];
    tell(&mut told, settle(&mut owner, &all, 100, 0));
    let _ = copy.follow(&told, 0);
    // Meanwhile one was forgotten, and its number is not given to the next.
    let later = [node(7, 8), node(7, 10)];
    tell(&mut told, settle(&mut owner, &later, 100, 5));
    assert_eq!(copy.start(6).invalidated, 3);
    let followed = copy.follow(&told, 7);
    assert_eq!((followed.adopted, followed.purged.invalidated), (2, 0));
    assert_eq!(numbers_of(&copy, &later), [Some((1, true)), Some((3, true))]);
    assert_eq!(numbers_of(&copy, &all[1..]), [Some((2, false))]);
}

#[test]
fn a_copy_gives_no_number_again_that_was_given_before_it_was_there() {
    let (mut owner, mut told) = (Numbers::new(0), Told::default());
    tell(&mut told, settle(&mut owner, &[node(7, 1), node(7, 2)], 100, 0));
    tell(&mut told, settle(&mut owner, &[node(7, 1)], 100, 0));
    let mut late = Numbers::new(HOUR);
    let _ = late.follow(&told, 1);
    assert_eq!(late.last(&node(7, 1).group()).map(|it| it.number), Some(2));
}

/// A few resources that are there.
fn there() -> impl Strategy<Value = Vec<Key>> {
    let each = (0u128..3, 0u128..5);
    proptest::collection::btree_set(each, 0..8).prop_map(|all: BTreeSet<(u128, u128)>| {
        let key = |(parent, uuid)| if parent == 0 { pool(uuid) } else { node(parent, uuid) };
        all.into_iter().map(key).collect()
    })
}

proptest! {
    #[test]
    fn whatever_comes_and_goes_each_has_one_number_and_every_copy_the_same(
        steps in proptest::collection::vec((there(), 0..100u64), 1..20),
        most in 1..9usize,
        interval in prop_oneof![Just(0u64), Just(100u64)],
    ) {
        let (mut owner, mut told, mut now) = (Numbers::new(interval), Told::default(), 0);
        let mut copies = [Numbers::new(interval), Numbers::new(7)];
        for (at, (there, passed)) in steps.iter().enumerate() {
            now += passed;
            tell(&mut told, settle(&mut owner, there, most, now));
            let valid: BTreeSet<Key> =
                owner.entries().filter(|(_, it)| it.valid).map(|it| it.0.clone()).collect();
            prop_assert_eq!(&valid, &there.iter().cloned().collect());
            let mut kept: Vec<(Name, Entry)> =
                owner.entries().map(|(key, it)| (Name::Entry(key.clone()), it)).collect();
            kept.extend(owner.lasts().map(|(group, it)| (Name::Last(group.clone()), it)));
            kept.sort();
            let mut told_all: Vec<(Name, Entry)> =
                told.iter().map(|(it, e)| (it.clone(), e)).collect();
            told_all.sort();
            prop_assert_eq!(kept, told_all);
            if at % 3 == 1 {
                let _ = copies[1].start(now);
            }
            for copy in &mut copies {
                let followed = copy.follow(&told, now);
                prop_assert!(followed.changes.len() >= followed.adopted);
                prop_assert_eq!(numbers_of(copy, there), numbers_of(&owner, there));
                let also = copy.entries().filter(|(_, it)| it.valid).count();
                prop_assert_eq!(also, there.len());
            }
        }
    }
}

#[test]
fn what_two_assigners_tell_of_different_groups_is_followed_as_one() {
    let mut ring = Numbers::new(HOUR);
    let mut told = Told::default();
    tell(&mut told, settle(&mut ring, &[pool(7), node(7, 9)], 100, 0));
    let mut sessions = Told::default();
    let session = |it: u128| key("Session", Some(9), it);
    let valid = |number| Entry { number, valid: true, changed_ms: 0 };
    let group = session(1).group();
    let named = |it: &Key, number| (Name::Entry(it.clone()), valid(number));
    let foreign = named(&node(7, 1), 4);
    let of_group = [named(&session(1), 1), named(&session(2), 2), foreign];
    sessions.learn_group(&group, of_group);
    let mut copy = Numbers::new(HOUR);
    let all = told.with(&sessions);
    assert_eq!(copy.follow(&all, 5).adopted, 4, "what is of another group is left out");
    assert_eq!(copy.entry(&session(2)), Some(Entry { changed_ms: 5, ..valid(2) }));
    // The group is told anew, with less in it, and then not at all.
    sessions.learn_group(&group, [named(&session(2), 2)]);
    assert_eq!(copy.follow(&told.with(&sessions), 6).purged.invalidated, 1);
    sessions.learn_group(&group, []);
    assert_eq!((&sessions, told.with(&sessions)), (&Told::default(), told.clone()));
    assert_eq!(copy.follow(&told, 7).purged.invalidated, 1);
    assert!(copy.entry(&node(7, 9)).is_some_and(|it| it.valid));
}
