//! What holds in every order of reports, removals and sweeps.

use proptest::prelude::*;
use rota_ids::{Change, Entry, Group, Key, Kind, Name, Numbers, Policy, Uuid};
use std::collections::{BTreeMap, BTreeSet};

const INTERVAL: u64 = 100;

#[derive(Clone, Debug)]
enum Step {
    Assign(Key),
    Adopt(Key, u64),
    Purge(Key),
    InvalidateAll,
    RemoveOutdated,
    Start,
    Stop,
}

/// Two parents, which are resources themselves, and a few resources below each and below none.
fn key() -> impl Strategy<Value = Key> {
    (0u128..3, 0u128..6, any::<bool>()).prop_map(|(parent, uuid, is_node)| {
        let kind = Kind::parse(if is_node { "Node" } else { "Pool" }).expect("a good name");
        let parent = (parent > 0).then(|| Uuid::from_u128(parent));
        Policy::Local.key(kind, parent, Uuid::from_u128(uuid))
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => key().prop_map(Step::Assign),
        2 => (key(), 1u64..9).prop_map(|(key, number)| Step::Adopt(key, number)),
        4 => key().prop_map(Step::Purge),
        1 => Just(Step::InvalidateAll),
        2 => Just(Step::RemoveOutdated),
        1 => Just(Step::Start),
        1 => Just(Step::Stop),
    ]
}

/// Steps, each with the time that passes before it.
fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
    proptest::collection::vec((step(), 0..INTERVAL), 0..60)
}

/// Takes a step. Returns the key and number that it gave, and its changes.
fn take(numbers: &mut Numbers, step: &Step, now: u64) -> (Option<(Key, u64)>, Vec<Change>) {
    match step {
        Step::Assign(key) => {
            let given = numbers.assign(key, now).expect("a number is free");
            (Some((key.clone(), given.number)), given.changes)
        }
        Step::Adopt(key, number) => {
            let taken = numbers.adopt(key, *number, now).expect("not 0");
            (Some((key.clone(), *number)), taken.changes)
        }
        Step::Purge(key) => {
            (None, numbers.purge(key, now).map(|it| it.changes).unwrap_or_default())
        }
        Step::InvalidateAll => (None, numbers.invalidate_all(now).changes),
        Step::RemoveOutdated => (None, numbers.remove_outdated(now).changes),
        Step::Start => (None, numbers.start(now).changes),
        Step::Stop => (None, numbers.stop(now).changes),
    }
}

/// All that is kept.
fn content(numbers: &Numbers) -> BTreeMap<Name, Entry> {
    let entries = numbers.entries().map(|(key, entry)| (Name::Entry(key.clone()), entry));
    let lasts = numbers.lasts().map(|(group, entry)| (Name::Last(group.clone()), entry));
    entries.chain(lasts).collect()
}

fn run(steps: &[(Step, u64)], interval: u64) -> (Numbers, u64) {
    let (mut numbers, mut now) = (Numbers::new(interval), 0);
    for (step, passed) in steps {
        now += passed;
        take(&mut numbers, step, now);
    }
    (numbers, now)
}

proptest! {
    #[test]
    fn no_two_entries_of_a_group_share_a_number(steps in steps(), interval in 0..3 * INTERVAL) {
        let (numbers, _) = run(&steps, interval);
        let mut seen = BTreeSet::new();
        for (key, entry) in numbers.entries() {
            prop_assert!(entry.number > 0);
            prop_assert!(seen.insert((key.group(), entry.number)), "{key} has one of another");
            prop_assert_eq!(numbers.holder(&key.group(), entry.number), Some(key.clone()));
        }
    }

    #[test]
    fn a_last_is_at_least_every_number_that_was_given_while_it_exists(steps in steps()) {
        let (mut numbers, mut now) = (Numbers::new(INTERVAL), 0);
        let mut highest: BTreeMap<Group, u64> = BTreeMap::new();
        for (step, passed) in &steps {
            now += passed;
            let (given, _) = take(&mut numbers, step, now);
            highest.retain(|group, _| numbers.last(group).is_some());
            if let Some((key, number)) = given {
                let most = highest.entry(key.group()).or_default();
                *most = number.max(*most);
                prop_assert!(numbers.last(&key.group()).unwrap().valid);
                prop_assert!(numbers.entry(&key).unwrap().valid);
            }
            for (group, number) in &highest {
                prop_assert_eq!(numbers.last(group).unwrap().number, *number);
            }
        }
    }

    #[test]
    fn a_resource_gets_its_number_back_within_the_interval(
        before in steps(), key in key(), others in proptest::collection::vec(key(), 0..9),
        away in 0..INTERVAL,
    ) {
        let (mut numbers, now) = run(&before, INTERVAL);
        let number = numbers.assign(&key, now).unwrap().number;
        prop_assert!(numbers.purge(&key, now).is_ok());
        for other in others.iter().filter(|it| **it != key) {
            prop_assert!(numbers.assign(other, now).is_ok());
        }
        let _ = numbers.remove_outdated(now + away);
        let _ = numbers.stop(now + away);
        let _ = numbers.start(now + away);
        prop_assert_eq!(numbers.assign(&key, now + away).unwrap().number, number);
    }

    #[test]
    fn a_purge_succeeds_where_the_entry_is_valid_and_else_changes_nothing(
        before in steps(), key in key(), interval in 0..3 * INTERVAL,
    ) {
        let (mut numbers, now) = run(&before, interval);
        let was = numbers.clone();
        let is_valid = numbers.entry(&key).is_some_and(|it| it.valid);
        prop_assert_eq!(numbers.purge(&key, now).is_ok(), is_valid);
        if !is_valid {
            prop_assert_eq!(numbers, was);
        }
    }

    #[test]
    fn a_start_longer_than_the_interval_after_the_stop_leaves_nothing(
        before in steps(), interval in 0..3 * INTERVAL, more in 0..INTERVAL,
    ) {
        let (mut numbers, now) = run(&before, interval);
        let _ = numbers.stop(now);
        let there = numbers.len();
        let started = numbers.start(now + interval + more);
        prop_assert_eq!((started.removed, started.invalidated), (there, 0));
        prop_assert!(numbers.is_empty());
    }

    #[test]
    fn the_changes_are_exactly_what_changed_and_times_are_those_of_changes(
        steps in steps(), interval in 0..3 * INTERVAL,
    ) {
        let (mut numbers, mut now) = (Numbers::new(interval), 0);
        for (step, passed) in &steps {
            now += passed;
            let before = content(&numbers);
            let (_, changes) = take(&mut numbers, step, now);
            let mut copy = before.clone();
            for change in &changes {
                match change {
                    Change::Put(name, entry) => {
                        let state = |it: &Entry| (it.number, it.valid);
                        prop_assert_ne!(copy.get(name).map(state), Some(state(entry)));
                        prop_assert_eq!(entry.changed_ms, now);
                        copy.insert(name.clone(), *entry);
                    }
                    Change::Remove(name) => prop_assert!(copy.remove(name).is_some()),
                }
            }
            prop_assert_eq!(&copy, &content(&numbers));
            let names: BTreeSet<_> = changes.iter().map(Change::name).collect();
            prop_assert_eq!(names.len(), changes.len());
            let mut read = Numbers::new(interval);
            for (name, entry) in copy {
                prop_assert_eq!(read.restore(name, entry), Ok(()));
            }
            prop_assert_eq!(&read, &numbers);
        }
    }

    #[test]
    fn without_an_interval_nothing_stays_that_is_not_valid(steps in steps()) {
        let (numbers, _) = run(&steps, 0);
        prop_assert!(content(&numbers).values().all(|it| it.valid));
    }
}
