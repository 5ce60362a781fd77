//! Disks that fail, and power that goes out.

use super::{bodies_on_disk, body, open, put, read, sha};
use crate::failing_disk::{FailingDisk, Fault};
use crate::forgetful_disk::ForgetfulDisk;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::RealDisk;
use rota_storage::attachments::AttachmentError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "/attachments";

#[test]
fn a_write_that_finds_the_disk_full_is_reported_and_nothing_of_the_put_is_seen() {
    // Calls to write: one for `OWNER`, then one per 64 KiB and one for the end.
    for calls in 1..12 {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = FailingDisk::new(Fault::Write, calls);
        let store = open(Arc::new(disk), folder.path()).expect("opens");
        let mut stored = Vec::new();
        let error = (0..8).find_map(|number| match put(&store, &body(number), 0) {
            Ok(_) => {
                stored.push(number);
                None
            }
            Err(error) => Some(error),
        });
        let error = error.expect("the disk becomes full");
        assert!(
            matches!(&error, AttachmentError::Io { doing: "write", source, .. }
                if source.kind() == std::io::ErrorKind::StorageFull),
            "{error:?}"
        );
        assert!(error.to_string().contains(folder.path().to_str().expect("text")), "{error}");
        assert_eq!(bodies_on_disk(folder.path()).len(), stored.len());
        for number in stored {
            assert!(read(&store, &sha(number)).expect("reads") == body(number));
        }
    }
}

#[test]
fn a_sync_that_fails_is_reported_and_the_body_can_be_put_again() {
    // The first is that of `OWNER`.
    let folder = tempfile::tempdir().expect("a folder");
    let disk = FailingDisk::new(Fault::Sync, 2);
    let store = open(Arc::new(disk), folder.path()).expect("opens");
    put(&store, &body(1), 0).expect("stored");
    let error = put(&store, &body(2), 0).expect_err("the sync fails");
    assert!(matches!(error, AttachmentError::Io { doing: "sync", .. }), "{error}");
    assert_eq!(bodies_on_disk(folder.path()), [sha(1).to_string()]);
    put(&store, &body(2), 0).expect("in another file, with another sync");
    assert!(read(&store, &sha(2)).expect("reads") == body(2));
}

#[test]
fn a_folder_whose_sync_failed_takes_nothing_more_until_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    // Those at the start: for `OWNER`, and for what an earlier run renamed.
    let disk = FailingDisk::new(Fault::FolderSync, 3);
    let store = open(Arc::new(disk), folder.path()).expect("opens");
    put(&store, &body(1), 0).expect("stored");
    let error = put(&store, &body(2), 0).expect_err("the sync fails");
    let text = error.to_string();
    assert!(text.starts_with("cannot sync the folder"), "{text}");
    assert!(!store.contains(&sha(2)), "it may not be on the disk");
    let error = put(&store, &body(3), 0).expect_err("it was given up");
    assert!(matches!(error, AttachmentError::GivenUp { .. }), "{error}");
    assert!(matches!(store.collect(0, 1), Err(AttachmentError::GivenUp { .. })));
    assert!(read(&store, &sha(1)).expect("reading goes on") == body(1));
    drop(store);
    let store = open(Arc::new(RealDisk), folder.path()).expect("opens");
    put(&store, &body(3), 0).expect("stored");
    assert!(read(&store, &sha(1)).expect("reads") == body(1));
}

#[test]
fn a_read_that_fails_is_reported_and_is_no_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(open(Arc::new(RealDisk), folder.path()).expect("opens"));
    // The first reads `OWNER`, then come a trailer, a piece and its checksum.
    for calls in 1..4 {
        let disk = FailingDisk::new(Fault::Read, calls);
        let store = open(Arc::new(disk), folder.path());
        let store = match store {
            Ok(store) => store,
            Err(error) => {
                assert!(matches!(error, AttachmentError::Io { doing: "read", .. }), "{error}");
                continue;
            }
        };
        put(&store, &body(1), 0).expect("stored");
        let error = read(&store, &sha(1)).expect_err("the disk fails");
        assert!(matches!(error, AttachmentError::Io { doing: "read", .. }), "{error}");
        assert!(store.contains(&sha(1)), "it may be readable again");
        assert!(read(&store, &sha(1)).expect("reads") == body(1));
    }
}

/// One disk through several power cuts. Returns how many puts were acknowledged.
fn lives(seed: u64) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut disk = ForgetfulDisk::new(seed);
    // Acknowledged, and not known to be collected.
    let mut here = BTreeSet::new();
    let mut maybe_collected = BTreeSet::new();
    let mut acknowledged = 0;
    for cut in 0..6 {
        disk.power_lasts(if cut == 5 { u64::MAX } else { random.random_range(1..150) });
        if let Ok(store) = open(Arc::new(disk.clone()), Path::new(FOLDER)) {
            for number in here.difference(&maybe_collected) {
                match read(&store, &sha(*number)) {
                    Ok(bytes) => assert!(bytes == body(*number), "seed {seed}, cut {cut}"),
                    Err(error) => assert!(disk.power_is_out(), "seed {seed}, cut {cut}: {error}"),
                }
            }
            // Nothing else is there by half.
            assert!(store.damaged().is_empty() || disk.power_is_out(), "seed {seed}, cut {cut}");
            for (sha256, _) in store.list(None, 1000) {
                let read = read(&store, &sha256);
                assert!(read.is_ok() || disk.power_is_out(), "seed {seed}, cut {cut}");
            }
            let named: BTreeMap<_, _> = here.iter().map(|&number| (sha(number), 1)).collect();
            store.set_references(&named, 0);
            for _ in 0..30 {
                let number = random.random_range(0..40);
                if random.random_ratio(1, 5) {
                    if here.contains(&number) && store.release(&[sha(number)], 0).is_ok() {
                        maybe_collected.insert(number);
                        here.remove(&number);
                    }
                    let _ = store.collect(super::GRACE_MS, 3);
                } else if put(&store, &body(number), 0).is_ok()
                    && store.refer(&[sha(number)]).is_ok()
                {
                    acknowledged += 1;
                    maybe_collected.remove(&number);
                    if !here.insert(number) {
                        store.release(&[sha(number)], 0).expect("it was named twice");
                    }
                }
            }
        } else {
            assert!(disk.power_is_out(), "seed {seed}, cut {cut}");
        }
        disk = disk.restart();
    }
    acknowledged
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_there_by_half_when_the_power_goes_out() {
    let acknowledged: u64 = (0..16).map(lives).sum();
    assert!(acknowledged > 160, "hardly anything was put: {acknowledged}");
}
