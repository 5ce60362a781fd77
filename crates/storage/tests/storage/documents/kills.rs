//! A process that runs operations on several threads, killed at any moment or stopped by its disk.

use super::bodies::{describe, name_body};
use super::*;
use crate::attachments::body;
use crate::failing_disk::{FailingDisk, Fault};
use crate::running::{Program, Running, say, variable};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::EXIT_STATUS;
use std::collections::BTreeMap;
use std::thread;

/// Callers in the child.
const CALLERS: u64 = 8;
/// An acknowledgement is one number: the caller's, times this, and how often it was answered.
const ROUND: u64 = 1_000_000;

/// Not a test: the child's program. Each caller counts up its own document and one that all share,
/// in one operation; every fifth time it also replaces an attachment.
#[test]
#[ignore = "run as a child by the tests of this file"]
fn child() {
    let folder = variable("ROTA_TEST_FOLDER");
    let disk = match variable("ROTA_TEST_FAULT").split_once(' ') {
        Some((fault, calls)) => {
            FailingDisk::new(Fault::parse(fault), calls.parse().expect("a number"))
        }
        None => FailingDisk::sound(),
    };
    let with_bodies = variable("ROTA_TEST_FAULT").is_empty();
    let mut setup = setup();
    // A body must not go between its put and its item.
    setup.attachments.grace_ms = 60_000;
    let opened = open_with(Arc::new(disk), Path::new(&folder), setup);
    let store = opened.unwrap_or_else(|error| {
        eprintln!("{error}: {:?}", std::error::Error::source(&error));
        std::process::exit(3)
    });
    say("open ");
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let store = &store;
            scope.spawn(move || {
                let own = caller.to_string();
                loop {
                    let answer = store.run(add(&[&own, "all"], 1)).expect("it is valid");
                    let count = number(&answer);
                    say(&format!("acknowledged {}", caller * ROUND + count));
                    if with_bodies && count.is_multiple_of(5) {
                        let bytes = body(caller * 1_000 + count / 5);
                        store.put_body(&describe(&bytes), bytes.as_slice()).expect("put");
                        change(store, name_body(&own, "page", Some(describe(&bytes))));
                    }
                    // Also while others work.
                    if count.is_multiple_of(16) {
                        store.purge().expect("purges");
                    }
                }
            });
        }
    });
}

pub fn program(folder: &Path, fault: Option<(Fault, u64)>) -> Program {
    let fault = fault.map(|(fault, calls)| format!("{} {calls}", fault.as_str()));
    Program::new("documents::kills::child")
        .with("ROTA_TEST_FOLDER", folder.to_str().expect("text"))
        .with("ROTA_TEST_FAULT", &fault.unwrap_or_default())
}

/// The newest acknowledgement of each caller.
#[derive(Default)]
pub struct Acknowledged(BTreeMap<u64, u64>);

impl Acknowledged {
    pub fn note(&mut self, numbers: Vec<u64>) {
        for number in numbers {
            let newest = self.0.entry(number / ROUND).or_default();
            *newest = (*newest).max(number % ROUND);
        }
    }

    /// Nothing that was acknowledged is missing, and nothing is there by half.
    pub fn check(&self, store: &DocumentStore) {
        let mut sum = 0;
        for caller in 0..CALLERS {
            let found = count(store, &caller.to_string());
            let newest = self.0.get(&caller).copied().unwrap_or(0);
            // One operation may have become durable without its acknowledgement.
            assert!((newest..=newest + 1).contains(&found), "{caller}: {found} of {newest}");
            sum += found;
        }
        assert_eq!(count(store, "all"), sum, "an operation is there by half");
        assert!(store.missing_bodies().is_empty(), "an item names a body that is not here");
        for document in store.stream(SlotId(0)..=SlotId(SLOTS)) {
            for (_, attachment) in document.expect("reads").attachments() {
                store.attachments().verify(&attachment.sha256()).expect("whole");
            }
        }
    }
}

#[test]
fn every_acknowledged_operation_is_there_whole_when_its_process_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut acknowledged = Acknowledged::default();
    let mut bodies = 0;
    for _ in 0..12 {
        let mut running = Running::start(&program(folder.path(), None));
        running.wait_for_open();
        acknowledged.note(running.gather(random.random_range(1..300)));
        running.kill();
        acknowledged.note(running.gather_rest());
        let store = open(folder.path());
        acknowledged.check(&store);
        // What is found counts from here on.
        let found = |it: u64| it * ROUND + count(&store, &it.to_string());
        acknowledged.note((0..CALLERS).map(found).collect());
        bodies += store.attachments().volumes().references;
        store.close(PATIENCE).expect("closes");
    }
    assert!(acknowledged.0.values().sum::<u64>() > 200, "hardly anything was done");
    assert!(bodies > 10, "hardly anything was attached");
}

#[test]
fn a_disk_that_fails_ends_the_process_and_loses_nothing_acknowledged() {
    for fault in [Fault::Sync, Fault::Write] {
        for calls in [25, 60, 150, 400] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut running = Running::start(&program(folder.path(), Some((fault, calls))));
            let mut acknowledged = Acknowledged::default();
            acknowledged.note(running.gather_rest());
            let (status, why) = running.ended();
            assert_eq!(status.code(), Some(EXIT_STATUS), "{fault:?} {calls}: {why}");
            assert!(why.contains("a commit failed"), "{why}");
            let store = open(folder.path());
            acknowledged.check(&store);
            store.run(add(&["0", "all"], 1)).expect("the mended disk takes operations");
        }
    }
}
