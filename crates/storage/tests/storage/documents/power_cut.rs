//! The power goes out while operations run, and what was not synced is forgotten in part.

use super::bodies::{describe, name_body};
use super::*;
use crate::attachments::body;
use crate::forgetful_disk::ForgetfulDisk;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

const FOLDER: &str = "/data";
const CALLERS: usize = 4;
const ROUNDS: u64 = 60;

fn store_on(disk: ForgetfulDisk) -> DocumentStore {
    let mut setup = setup();
    // A body must not go between its put and its item.
    setup.attachments.grace_ms = 60_000;
    open_with(Arc::new(disk), Path::new(FOLDER), setup).expect("opens")
}

/// Counts up its own document and one that all share, in one operation; every tenth time it replaces an
/// attachment.
fn counts_up(store: &DocumentStore, caller: usize, acknowledged: &AtomicU64) {
    let own = caller.to_string();
    for _ in 0..ROUNDS {
        let count = number(&store.run(add(&[&own, "all"], 1)).expect("it is valid"));
        acknowledged.store(count, SeqCst);
        if count.is_multiple_of(10) {
            let bytes = body(caller as u64 * 1_000 + count);
            store.put_body(&describe(&bytes), bytes.as_slice()).expect("put");
            change(store, name_body(&own, "page", Some(describe(&bytes))));
        }
    }
}

/// Nothing that was acknowledged is missing, and nothing is there by half.
fn check(store: &DocumentStore, acknowledged: &[u64], seed: u64) {
    let mut sum = 0;
    for (caller, newest) in acknowledged.iter().enumerate() {
        let found = count(store, &caller.to_string());
        assert!(found >= *newest, "seed {seed}: {caller} has {found} of {newest}");
        sum += found;
    }
    assert_eq!(count(store, "all"), sum, "seed {seed}: an operation is there by half");
    assert!(store.missing_bodies().is_empty(), "seed {seed}: an item names what is not here");
    for document in store.stream(SlotId(0)..=SlotId(SLOTS)) {
        for (_, attachment) in document.expect("reads").attachments() {
            store.attachments().verify(&attachment.sha256()).expect("whole");
        }
    }
}

#[test]
fn no_acknowledged_operation_and_no_body_of_one_is_lost_whenever_the_power_goes_out() {
    let mut cuts = 0;
    for seed in 0..6 {
        let disk = ForgetfulDisk::new(seed);
        let store = store_on(disk.clone());
        let acknowledged = [const { AtomicU64::new(0) }; CALLERS];
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let callers = acknowledged.iter().enumerate().map(|(caller, newest)| {
                let store = &store;
                scope.spawn(move || counts_up(store, caller, newest))
            });
            let callers: Vec<_> = callers.collect();
            let (acknowledged, over, disk) = (&acknowledged, &over, &disk);
            let cutting = scope.spawn(move || {
                let mut cuts = 0;
                while !over.load(SeqCst) {
                    let newest = acknowledged.each_ref().map(|it| it.load(SeqCst));
                    check(&store_on(disk.after_a_cut()), &newest, seed);
                    cuts += 1;
                }
                cuts
            });
            callers.into_iter().for_each(|it| it.join().expect("it counts up"));
            over.store(true, SeqCst);
            cuts += cutting.join().expect("it finds what was acknowledged");
        });
        check(&store_on(disk.after_a_cut()), &[ROUNDS; CALLERS], seed);
    }
    assert!(cuts > 20, "only {cuts} cuts");
}
