//! Where slots live, over any ring.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its ring has failed")]
#![allow(clippy::cast_possible_truncation, reason = "rings of tests are small")]

use proptest::collection::btree_set;
use proptest::prelude::*;
use rota_model::{ClusterName, ManagerId, ManagerNumber, Namespace, SessionId, SessionKey, SlotId};
use rota_ring::{View, slot_of_document, slot_of_session};
use std::collections::BTreeSet;

fn ring(m: u32, r: u32, numbers: &BTreeSet<u32>) -> View {
    let cluster = ClusterName::parse("test").unwrap();
    let named = |n: &u32| (ManagerNumber(*n), ManagerId::parse(&format!("m{n}")).unwrap());
    let numbers: Vec<_> = numbers.iter().map(named).collect();
    View::found(cluster, m, r, 100, &numbers).unwrap()
}

/// The definition, written as slowly as possible: try every slot from here on, wrapping.
fn first_at_or_after(numbers: &BTreeSet<u32>, slot: u32, m: u32) -> u32 {
    (0..m).map(|step| (slot + step) % m).find(|it| numbers.contains(it)).unwrap()
}

fn rings() -> impl Strategy<Value = (u32, u32, BTreeSet<u32>)> {
    // The ring of one slot is drawn often enough to be seen in every run.
    prop_oneof![1 => Just(1_u32), 9 => 2_u32..300].prop_flat_map(|m| {
        let count = 1..=(m as usize).min(12);
        (Just(m), 0_u32..15, btree_set(0..m, count))
    })
}

proptest! {
    #[test]
    fn every_slot_has_one_home_the_first_number_at_or_after_it((m, r, numbers) in rings()) {
        let view = ring(m, r, &numbers);
        for slot in 0..m {
            let home = view.home(SlotId(slot));
            prop_assert_eq!(home.0, first_at_or_after(&numbers, slot, m));
            let holding: Vec<_> =
                view.parts.keys().filter(|n| view.range(**n).contains(SlotId(slot))).collect();
            prop_assert_eq!(holding, vec![&home]);
        }
        let total: u32 = view.parts.keys().map(|n| view.range(*n).len(m)).sum();
        prop_assert_eq!(total, m);
    }

    #[test]
    fn a_number_is_its_own_home((m, r, numbers) in rings()) {
        let view = ring(m, r, &numbers);
        for n in &numbers {
            prop_assert_eq!(view.home(SlotId(*n)), ManagerNumber(*n));
        }
    }

    #[test]
    fn a_join_moves_only_the_slots_between_it_and_its_predecessor(
        (m, r, mut numbers) in rings(),
        pick in any::<prop::sample::Index>(),
    ) {
        let newcomer = pick.index(m as usize) as u32;
        prop_assume!(!numbers.contains(&newcomer));
        let before = ring(m, r, &numbers);
        numbers.insert(newcomer);
        let after = ring(m, r, &numbers);
        let taken = after.range(ManagerNumber(newcomer));
        for slot in (0..m).map(SlotId) {
            let moved = before.home(slot) != after.home(slot);
            prop_assert_eq!(moved, taken.contains(slot));
            if moved {
                prop_assert_eq!(after.home(slot), ManagerNumber(newcomer));
            }
        }
    }

    #[test]
    fn a_leave_moves_only_the_slots_of_the_one_that_left(
        (m, r, mut numbers) in rings(),
        pick in any::<prop::sample::Index>(),
    ) {
        prop_assume!(numbers.len() > 1);
        let leaver = *numbers.iter().nth(pick.index(numbers.len())).unwrap();
        let before = ring(m, r, &numbers);
        numbers.remove(&leaver);
        let after = ring(m, r, &numbers);
        for slot in (0..m).map(SlotId) {
            let was_its = before.home(slot) == ManagerNumber(leaver);
            prop_assert_eq!(before.home(slot) != after.home(slot), was_its);
        }
    }

    #[test]
    fn successors_are_distinct_in_ring_order_and_no_more_than_there_are(
        (m, r, numbers) in rings()
    ) {
        let view = ring(m, r, &numbers);
        for n in &numbers {
            let successors = view.successors(ManagerNumber(*n));
            prop_assert_eq!(successors.len(), (r as usize).min(numbers.len() - 1));
            let mut at = *n;
            for successor in successors {
                prop_assert_eq!(successor.0, first_at_or_after(&numbers, (at + 1) % m, m));
                prop_assert_ne!(successor.0, *n);
                at = successor.0;
            }
        }
    }

    #[test]
    fn a_session_keeps_its_slot_and_the_slot_lies_in_the_ring(id in "[a-z0-9]{1,40}", m in 1_u32..70_000) {
        let key = SessionKey::new(Namespace::default_space(), SessionId::parse(&id).unwrap());
        let slot = slot_of_session(&key, m);
        prop_assert!(slot.0 < m);
        prop_assert_eq!(slot, slot_of_session(&key, m));
    }
}

#[test]
fn namespace_and_id_together_place_a_session() {
    let key = |namespace: &str, id: &str| {
        let namespace = Namespace::parse(namespace).unwrap();
        SessionKey::new(namespace, SessionId::parse(id).unwrap())
    };
    let slot = |namespace: &str, id: &str| slot_of_session(&key(namespace, id), 65_536);
    assert_ne!(slot("a", "bc"), slot("ab", "c"));
    assert_ne!(slot("default", "x"), slot("other", "x"));
}

#[test]
fn the_slot_of_a_session_is_xxh3_64_of_namespace_nul_id() {
    let key = SessionKey::new(Namespace::default_space(), SessionId::parse("demo").unwrap());
    let expected = xxhash_rust::xxh3::xxh3_64(b"default\0demo") % 1024;
    assert_eq!(u64::from(slot_of_session(&key, 1024).0), expected);
}

#[test]
fn slots_spread_evenly_over_the_ring() {
    let mut counts = vec![0_u32; 64];
    for index in 0..64_000 {
        let id = SessionId::parse(&format!("session-{index}")).unwrap();
        let key = SessionKey::new(Namespace::default_space(), id);
        counts[slot_of_session(&key, 64).0 as usize] += 1;
    }
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
}

#[test]
fn documents_whose_ids_share_a_part_in_braces_share_a_slot() {
    let slot = |docid: &str| slot_of_document(&Namespace::parse("n").unwrap(), docid, 65_536);
    assert_eq!(slot("{room-1}seat-4"), slot("{room-1}seat-5"));
    assert_eq!(slot("hall{room-1}{other}"), slot("room-1"));
    for alone in ["{}x", "{x", "x}", "}x{", "{}{x}"] {
        assert_ne!(slot(alone), slot("x"), "{alone}");
    }
    let session =
        SessionKey::new(Namespace::parse("n").unwrap(), SessionId::parse("{x}a").unwrap());
    assert_eq!(slot_of_session(&session, 65_536), slot("{x}a"));
}
