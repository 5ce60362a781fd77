//! Which bodies stay, and which are collected when.

use super::{GRACE_MS, bodies_on_disk, body, open, put, read, sha};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::RealDisk;
use rota_storage::attachments::{AttachmentError, Attachments, Digest, Volumes, digest_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn real(folder: &std::path::Path) -> Attachments {
    open(Arc::new(RealDisk), folder).expect("opens")
}

fn collected(store: &Attachments, now_ms: u64) -> Vec<Digest> {
    let collected = store.collect(now_ms, 100).expect("collects");
    collected.into_iter().map(|it| it.sha256).collect()
}

#[test]
fn old_content_is_readable_by_its_digest_for_the_time_of_grace_and_then_collected() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    store.set_references(&BTreeMap::new(), 0);
    put(&store, b"abc", 10).expect("stored");
    // Two items name it.
    store.refer(&[digest_of(b"abc"), digest_of(b"abc")]).expect("it is here");
    assert_eq!(store.references(&digest_of(b"abc")), 2);
    store.release(&[digest_of(b"abc")], 20).expect("it is named");
    assert_eq!(collected(&store, 20 + 10 * GRACE_MS), []);
    store.release(&[digest_of(b"abc")], 5000).expect("it is named");
    assert_eq!(collected(&store, 5000 + GRACE_MS - 1), []);
    assert_eq!(read(&store, &digest_of(b"abc")).expect("it is readable"), b"abc");
    let mut reader = store.read(&digest_of(b"abc")).expect("opens");
    assert_eq!(collected(&store, 5000 + GRACE_MS), [digest_of(b"abc")]);
    assert_eq!(reader.next_piece().expect("what was opened stays readable"), b"abc");
    assert!(!store.contains(&digest_of(b"abc")));
    assert_eq!(bodies_on_disk(folder.path()), [""; 0]);
    let error = store.refer(&[digest_of(b"abc")]).expect_err("it is gone");
    assert!(matches!(error, AttachmentError::Missing { .. }), "{error}");
}

#[test]
fn a_body_that_nobody_names_yet_has_the_same_time_of_grace() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    store.set_references(&BTreeMap::new(), 0);
    put(&store, b"abc", 500).expect("stored");
    put(&store, b"abc", 900).expect("to put it again begins the time of grace anew");
    assert_eq!(collected(&store, 500 + GRACE_MS), []);
    store.refer(&[digest_of(b"abc")]).expect("in time");
    assert_eq!(collected(&store, 900 + 2 * GRACE_MS), []);
}

#[test]
fn nothing_is_collected_before_the_references_are_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    put(&store, &body(1), 0).expect("stored");
    put(&store, &body(2), 0).expect("stored");
    drop(store);
    let store = real(folder.path());
    let error = store.collect(u64::MAX, 10).expect_err("too early");
    assert!(matches!(error, AttachmentError::ReferencesUnknown), "{error}");
    // One item names a body that never came here.
    let counts = BTreeMap::from([(sha(1), 1), (sha(3), 2), (sha(4), 0)]);
    assert_eq!(store.set_references(&counts, 100), [sha(3)]);
    assert_eq!(store.volumes().unreadable, 1);
    assert_eq!(collected(&store, u64::MAX), [sha(2)]);
    // When it comes, it is named at once.
    put(&store, &body(3), 200).expect("stored");
    assert_eq!(store.references(&sha(3)), 2);
    assert_eq!(store.volumes().unreadable, 0);
    assert_eq!(collected(&store, u64::MAX), []);
}

#[test]
fn references_change_all_together_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    put(&store, &body(1), 0).expect("stored");
    let error = store.refer(&[sha(1), sha(2)]).expect_err("the second is not here");
    assert_eq!(error.to_string(), format!("there is no attachment {}", sha(2)));
    assert_eq!(store.references(&sha(1)), 0);
    store.refer(&[sha(1)]).expect("it is here");
    let error = store.release(&[sha(1), sha(1)], 5).expect_err("only one");
    assert!(
        matches!(error, AttachmentError::NotReferenced { sha256 } if sha256 == sha(1)),
        "{error}"
    );
    assert_eq!(store.references(&sha(1)), 1);
}

#[test]
fn volumes_count_stored_content_once_and_named_content_as_often_as_it_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    put(&store, &[1; 100], 0).expect("stored");
    put(&store, &[2; 30], 0).expect("stored");
    put(&store, &[3; 7], 0).expect("stored");
    let (a, b) = (digest_of(&[1; 100]), digest_of(&[2; 30]));
    store.refer(&[a, a, a, b]).expect("they are here");
    let expected = Volumes {
        bodies: 3,
        stored_bytes: 137,
        references: 4,
        referenced_bytes: 330,
        free_bodies: 1,
        free_bytes: 7,
        unreadable: 0,
    };
    assert_eq!(store.volumes(), expected);
}

#[test]
fn a_call_collects_no_more_than_it_was_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    store.set_references(&BTreeMap::new(), 0);
    (0..5).for_each(|number| assert!(put(&store, &body(number), 0).is_ok()));
    let mut counts = Vec::new();
    loop {
        let collected = store.collect(GRACE_MS, 2).expect("collects");
        if collected.is_empty() {
            break;
        }
        assert!(collected.iter().all(|it| it.size > 0));
        counts.push(collected.len());
    }
    assert_eq!(counts, [2, 2, 1]);
}

/// What the store must know of one body.
#[derive(Clone, Default)]
struct Known {
    here: bool,
    references: u64,
    free_since: u64,
}

#[test]
fn any_history_of_puts_references_and_collections_ends_as_in_a_simple_model() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = real(folder.path());
    store.set_references(&BTreeMap::new(), 0);
    let bodies: BTreeMap<Digest, u64> = (0..8).map(|number| (sha(number), number)).collect();
    let mut model: BTreeMap<Digest, Known> = BTreeMap::new();
    let mut now = 0;
    for _ in 0..700 {
        now += random.random_range(0..GRACE_MS / 4);
        let number = random.random_range(0..8);
        let name = sha(number);
        let known = model.entry(name).or_default();
        match random.random_range(0..10) {
            0..3 => {
                put(&store, &body(number), now).expect("stored");
                *known = Known { here: true, free_since: now, ..known.clone() };
            }
            3..5 => {
                assert_eq!(store.refer(&[name]).is_ok(), known.here);
                known.references += u64::from(known.here);
            }
            5..7 => {
                assert_eq!(store.release(&[name], now).is_ok(), known.references > 0);
                if known.references > 0 {
                    *known = Known { references: known.references - 1, free_since: now, ..*known };
                }
            }
            7..9 => {
                let due = |known: &Known| {
                    known.here && known.references == 0 && now - known.free_since >= GRACE_MS
                };
                let due: BTreeSet<_> =
                    model.iter().filter(|(_, it)| due(it)).map(|(name, _)| *name).collect();
                let gone: BTreeSet<_> = collected(&store, now).into_iter().collect();
                assert_eq!(gone, due);
                gone.iter().for_each(|name| model.get_mut(name).expect("known").here = false);
            }
            _ => {
                drop(store);
                let disk = Arc::new(RealDisk);
                let (settings, label) = (super::settings(), crate::label());
                store =
                    Attachments::open(disk, folder.path(), &label, settings, now).expect("opens");
                let counts = model.iter().map(|(name, it)| (*name, it.references)).collect();
                assert_eq!(store.set_references(&counts, now), []);
                // The time of grace begins anew.
                model.values_mut().for_each(|it| it.free_since = now);
            }
        }
        let here: Vec<_> = model.iter().filter(|(_, it)| it.here).map(|(name, _)| *name).collect();
        let listed: Vec<_> = store.list(None, 100).into_iter().map(|(name, _)| name).collect();
        assert_eq!(listed, here);
    }
    for (name, _) in store.list(None, 100) {
        assert!(read(&store, &name).expect("reads") == body(bodies[&name]));
    }
}
