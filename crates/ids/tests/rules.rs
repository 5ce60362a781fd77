//! Each rule of the numbers, in a few lines.

use rota_ids::{Change, Entry, Group, Key, Kind, Name, NumberError, Numbers, Policy, Uuid};

const HOUR: u64 = 3_600_000;

fn kind(text: &str) -> Kind {
    Kind::parse(text).expect("a good name")
}

fn uuid(it: u128) -> Uuid {
    Uuid::from_u128(it)
}

/// A node of a pool.
fn node(pool: u128, it: u128) -> Key {
    Policy::Local.key(kind("Node"), Some(uuid(pool)), uuid(it))
}

/// A pool, which has no parent.
fn pool(it: u128) -> Key {
    Policy::Local.key(kind("Pool"), None, uuid(it))
}

fn assign(numbers: &mut Numbers, key: &Key, now_ms: u64) -> u64 {
    numbers.assign(key, now_ms).expect("a number is free").number
}

fn entry(number: u64, valid: bool, changed_ms: u64) -> Entry {
    Entry { number, valid, changed_ms }
}

/// The last of a key's group.
fn last_of(key: &Key) -> Name {
    Name::Last(key.group())
}

#[test]
fn numbers_count_from_one_within_each_type_and_parent() {
    let mut numbers = Numbers::new(HOUR);
    assert_eq!([1, 2, 3].map(|it| assign(&mut numbers, &node(7, it), 0)), [1, 2, 3]);
    assert_eq!([4, 5].map(|it| assign(&mut numbers, &node(8, it), 0)), [1, 2]);
    assert_eq!(assign(&mut numbers, &pool(7), 0), 1);
    assert_eq!(numbers.holder(&node(8, 0).group(), 2), Some(node(8, 5)));
    assert_eq!(numbers.highest(&node(7, 0).group()), Some(3));
}

#[test]
fn a_global_policy_counts_over_all_parents() {
    let mut numbers = Numbers::new(HOUR);
    let mut of = |pool, node| {
        let key = Policy::Global.key(kind("Node"), Some(uuid(pool)), uuid(node));
        assign(&mut numbers, &key, 0)
    };
    assert_eq!([of(7, 1), of(8, 2), of(7, 3)], [1, 2, 3]);
}

#[test]
fn a_new_resource_changes_its_last_and_then_its_entry() {
    let mut numbers = Numbers::new(HOUR);
    let (key, now) = (node(7, 1), 5);
    let given = numbers.assign(&key, now).unwrap();
    assert!(given.is_new);
    let put = |name| Change::Put(name, entry(1, true, now));
    assert_eq!(given.changes, [put(last_of(&key)), put(Name::Entry(key))]);
}

#[test]
fn an_update_acts_like_a_new_resource_and_changes_nothing_when_all_is_valid() {
    let mut numbers = Numbers::new(HOUR);
    assert_eq!(assign(&mut numbers, &node(7, 1), 5), 1);
    let again = numbers.assign(&node(7, 1), 99).unwrap();
    assert_eq!((again.number, again.is_new, again.changes), (1, false, vec![]));
    assert_eq!(numbers.entry(&node(7, 1)), Some(entry(1, true, 5)));
}

#[test]
fn a_removed_resource_gets_its_number_back_and_others_do_not_get_it() {
    let mut numbers = Numbers::new(HOUR);
    assert_eq!([1, 2].map(|it| assign(&mut numbers, &pool(it), 0)), [1, 2]);
    let purged = numbers.purge(&pool(2), 10).unwrap();
    assert_eq!((purged.removed, purged.invalidated), (0, 1));
    let invalid = entry(2, false, 10);
    assert_eq!(purged.changes, [Change::Put(Name::Entry(pool(2)), invalid)]);
    assert_eq!(assign(&mut numbers, &pool(3), 20), 3);
    assert_eq!(numbers.remove_outdated(9 + HOUR).removed, 0);
    assert_eq!(assign(&mut numbers, &pool(2), 9 + HOUR), 2);
    assert_eq!(numbers.entry(&pool(2)), Some(entry(2, true, 9 + HOUR)));
}

#[test]
fn the_last_only_grows_also_when_the_highest_resource_is_gone() {
    let mut numbers = Numbers::new(HOUR);
    assert_eq!([1, 2].map(|it| assign(&mut numbers, &pool(it), 0)), [1, 2]);
    assert_eq!(numbers.purge(&pool(2), 10).unwrap().invalidated, 1);
    let gone = numbers.remove_outdated(10 + HOUR);
    assert_eq!(gone.changes, [Change::Remove(Name::Entry(pool(2)))]);
    assert_eq!((gone.removed, gone.invalidated), (1, 0));
    assert_eq!(assign(&mut numbers, &pool(2), 10 + HOUR), 3);
}

#[test]
fn the_removal_of_a_parent_makes_the_lasts_below_it_invalid_and_then_its_entry() {
    let mut numbers = Numbers::new(HOUR);
    for key in [pool(7), pool(8), node(7, 1), node(8, 2)] {
        assign(&mut numbers, &key, 0);
    }
    let class = Policy::Local.key(kind("Class"), Some(uuid(7)), uuid(3));
    assign(&mut numbers, &class, 0);
    let purged = numbers.purge(&pool(7), 10).unwrap();
    let names: Vec<_> = purged.changes.iter().map(Change::name).cloned().collect();
    let expected = [last_of(&class), last_of(&node(7, 0)), Name::Entry(pool(7))];
    assert_eq!((names, purged.invalidated), (expected.to_vec(), 3));
    assert_eq!(numbers.last(&node(8, 0).group()), Some(entry(1, true, 0)));
    assert_eq!(numbers.entry(&node(7, 1)), Some(entry(1, true, 0)));
}

#[test]
fn numbers_below_a_removed_parent_begin_anew_and_pass_over_those_that_are_taken() {
    let mut numbers = Numbers::new(HOUR);
    for key in [pool(7), node(7, 1), node(7, 2), node(7, 3)] {
        assign(&mut numbers, &key, 0);
    }
    assert_eq!(numbers.purge(&node(7, 1), 0).unwrap().invalidated, 1);
    assert_eq!(numbers.purge(&pool(7), 0).unwrap().invalidated, 2);
    assert_eq!(numbers.remove_outdated(HOUR).removed, 3);
    assert_eq!([4, 5].map(|it| assign(&mut numbers, &node(7, it), HOUR)), [1, 4]);
}

#[test]
fn an_assignment_makes_the_last_valid_again() {
    let mut numbers = Numbers::new(HOUR);
    for key in [pool(7), node(7, 1)] {
        assign(&mut numbers, &key, 0);
    }
    assert_eq!(numbers.purge(&pool(7), 10).unwrap().invalidated, 2);
    let again = numbers.assign(&node(7, 1), 20).unwrap();
    assert_eq!(again.changes, [Change::Put(last_of(&node(7, 1)), entry(1, true, 20))]);
}

#[test]
fn the_removal_of_a_resource_that_is_not_allocated_fails_and_says_why() {
    let mut numbers = Numbers::new(HOUR);
    let refused = numbers.purge(&pool(7), 0).unwrap_err();
    assert_eq!(refused, NumberError::NotAllocated { key: pool(7) });
    let text = "Pool.00000000-0000-0000-0000-000000000007 has no number; \
                only a resource that was reported can be removed";
    assert_eq!(refused.to_string(), text);
    assign(&mut numbers, &pool(7), 0);
    assert_eq!(numbers.purge(&pool(7), 10).unwrap().invalidated, 1);
    let before = numbers.clone();
    let refused = numbers.purge(&pool(7), 20).unwrap_err();
    assert_eq!(refused, NumberError::NotValid { key: pool(7), number: 1 });
    assert_eq!(numbers, before);
}

#[test]
fn without_an_interval_what_is_removed_is_gone_at_once() {
    let mut numbers = Numbers::new(0);
    for key in [pool(7), node(7, 1)] {
        assign(&mut numbers, &key, 0);
    }
    let purged = numbers.purge(&pool(7), 0).unwrap();
    assert_eq!((purged.removed, purged.invalidated), (2, 0));
    let gone = [last_of(&node(7, 1)), Name::Entry(pool(7))].map(Change::Remove);
    assert_eq!(purged.changes, gone);
    assert_eq!(assign(&mut numbers, &pool(7), 0), 2);
    assert_eq!(numbers.stop(0).removed, 3);
    assert!(numbers.is_empty());
}

#[test]
fn a_start_removes_what_is_outdated_and_makes_the_rest_invalid() {
    let mut numbers = Numbers::new(HOUR);
    for key in [pool(1), pool(2), pool(3)] {
        assign(&mut numbers, &key, 0);
    }
    assert_eq!(numbers.purge(&pool(1), 0).unwrap().invalidated, 1);
    assert_eq!(numbers.purge(&pool(2), 1).unwrap().invalidated, 1);
    let started = numbers.start(HOUR);
    assert_eq!((started.removed, started.invalidated), (1, 2));
    let invalid = |name, number| Change::Put(name, entry(number, false, HOUR));
    let expected = [
        Change::Remove(Name::Entry(pool(1))),
        invalid(last_of(&pool(0)), 3),
        invalid(Name::Entry(pool(3)), 3),
    ];
    assert_eq!(started.changes, expected);
    // What was invalid keeps its time.
    assert_eq!(numbers.entry(&pool(2)), Some(entry(2, false, 1)));
}

#[test]
fn a_stop_makes_everything_invalid_and_a_start_long_after_it_leaves_nothing() {
    let mut numbers = Numbers::new(HOUR);
    for key in [pool(1), node(1, 2)] {
        assign(&mut numbers, &key, 0);
    }
    let stopped = numbers.stop(5);
    assert_eq!((stopped.removed, stopped.invalidated, stopped.changes.len()), (0, 4, 4));
    let mut soon = numbers.clone();
    assert_eq!(soon.start(4 + HOUR).removed, 0);
    assert_eq!(assign(&mut soon, &node(1, 2), 4 + HOUR), 1);
    assert_eq!(numbers.start(5 + HOUR).removed, 4);
    assert!(numbers.is_empty());
}

#[test]
fn a_clock_that_is_set_back_removes_nothing_early() {
    let mut numbers = Numbers::new(HOUR);
    assign(&mut numbers, &pool(1), 10 * HOUR);
    assert_eq!(numbers.stop(10 * HOUR).invalidated, 2);
    assert_eq!(numbers.start(0).removed, 0);
    assert_eq!(assign(&mut numbers, &pool(1), 0), 1);
}

#[test]
fn a_number_of_the_owner_is_taken_over_and_raises_the_last() {
    let mut numbers = Numbers::new(HOUR);
    let taken = numbers.adopt(&pool(1), 5, 0).unwrap();
    assert_eq!((taken.was, taken.displaced, taken.changes.len()), (None, None, 2));
    assert_eq!(numbers.last(&pool(0).group()), Some(entry(5, true, 0)));
    assert_eq!(assign(&mut numbers, &pool(2), 1), 6);
    let lower = numbers.adopt(&pool(3), 2, 2).unwrap();
    assert_eq!(lower.changes, [Change::Put(Name::Entry(pool(3)), entry(2, true, 2))]);
    assert_eq!(numbers.adopt(&pool(3), 2, 9).unwrap().changes, []);
    let zero = numbers.adopt(&pool(3), 0, 9).unwrap_err();
    assert_eq!(zero, NumberError::Zero { name: Name::Entry(pool(3)) });
}

#[test]
fn of_two_entries_with_one_number_the_one_that_the_owner_did_not_give_goes_and_is_told() {
    let mut numbers = Numbers::new(HOUR);
    assert_eq!([1, 2].map(|it| assign(&mut numbers, &pool(it), 0)), [1, 2]);
    let taken = numbers.adopt(&pool(2), 1, 5).unwrap();
    assert_eq!((taken.was, taken.displaced), (Some(2), Some(pool(1))));
    let expected = [
        Change::Remove(Name::Entry(pool(1))),
        Change::Put(Name::Entry(pool(2)), entry(1, true, 5)),
    ];
    assert_eq!(taken.changes, expected);
    // The last never falls.
    assert_eq!(assign(&mut numbers, &pool(1), 6), 3);
    assert_eq!(numbers.holder(&pool(0).group(), 2), None);
}

#[test]
fn a_group_without_a_free_number_is_told() {
    let mut numbers = Numbers::new(HOUR);
    assert_eq!(numbers.adopt(&pool(1), u64::MAX, 0).unwrap().changes.len(), 2);
    let full = NumberError::Full { group: pool(0).group(), last: u64::MAX };
    assert_eq!(numbers.assign(&pool(2), 0), Err(full));
    assert_eq!(assign(&mut numbers, &pool(1), 0), u64::MAX);
}

#[test]
fn what_was_persisted_is_put_back_unless_two_have_one_number() {
    let mut numbers = Numbers::new(HOUR);
    let group = Group { parent: None, kind: kind("Pool") };
    let valid = entry(4, true, 0);
    assert_eq!(numbers.restore(Name::Entry(pool(1)), valid), Ok(()));
    assert_eq!(numbers.restore(Name::Last(group), entry(9, true, 0)), Ok(()));
    let taken = NumberError::Taken { key: pool(2), number: 4, by: uuid(1) };
    assert_eq!(numbers.restore(Name::Entry(pool(2)), valid), Err(taken));
    let zero = numbers.restore(Name::Entry(pool(2)), entry(0, true, 0));
    assert_eq!(zero, Err(NumberError::Zero { name: Name::Entry(pool(2)) }));
    assert_eq!((numbers.len(), assign(&mut numbers, &pool(2), 0)), (2, 10));
}

#[test]
fn room_is_made_by_those_that_are_gone_for_longest_and_never_by_those_that_are_there() {
    let mut numbers = Numbers::new(HOUR);
    let keys: Vec<Key> = (1..=5).map(|it| node(7, it)).collect();
    for key in &keys {
        assign(&mut numbers, key, 0);
    }
    for (at, key) in [(30, &keys[0]), (10, &keys[1]), (20, &keys[2])] {
        assert_eq!(numbers.purge(key, at).expect("it is valid").invalidated, 1);
    }
    assert_eq!(numbers.make_room(5).changes, []);
    let removed = |key: &Key| Change::Remove(Name::Entry(key.clone()));
    assert_eq!(numbers.make_room(3).changes, [removed(&keys[1]), removed(&keys[2])]);
    let swept = numbers.make_room(0);
    assert_eq!((swept.removed, swept.changes), (1, vec![removed(&keys[0])]));
    assert_eq!(numbers.entries().count(), 2);
    assert_eq!(numbers.last(&keys[0].group()), Some(entry(5, true, 0)), "the last stays");
}
