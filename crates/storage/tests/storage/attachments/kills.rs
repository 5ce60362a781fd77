//! A process that puts bodies, killed at any moment, or stopped by its disk.

use super::{bodies_on_disk, body, open, put, read, sha};
use crate::running::{Program, Running, say, variable};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::RealDisk;
use rota_storage::attachments::AttachmentError;
use std::path::Path;
use std::sync::Arc;

/// Not a test: the child's program. It puts one body after the other for ever.
#[test]
#[ignore = "run as a child by the tests of this file"]
fn child() {
    let folder = variable("ROTA_TEST_FOLDER");
    let store = open(Arc::new(RealDisk), Path::new(&folder)).expect("opens");
    let mut number: u64 = variable("ROTA_TEST_NUMBER").parse().expect("a number");
    say("open ");
    loop {
        number += 1;
        if let Err(error) = put(&store, &body(number), 0) {
            let AttachmentError::Io { source, .. } = &error else { panic!("{error}") };
            say(&format!("refused {error}: {source}"));
            std::process::exit(4);
        }
        say(&format!("acknowledged {number}"));
    }
}

fn program(folder: &Path, number: u64) -> Program {
    Program::new("attachments::kills::child")
        .with("ROTA_TEST_FOLDER", folder.to_str().expect("text"))
        .with("ROTA_TEST_NUMBER", &number.to_string())
}

#[test]
fn no_body_is_lost_or_there_by_half_when_its_process_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let mut newest = 0;
    for round in 0..10 {
        let mut running = Running::start(&program(folder.path(), newest));
        running.wait_for_open();
        let before = running.wait_for(random.random_range(1..25));
        running.kill();
        newest = running.rest().or(before).unwrap_or(newest);
        let store = open(Arc::new(RealDisk), folder.path()).expect("opens");
        assert!(store.damaged().is_empty(), "round {round}");
        // Killed after the rename, the last may be there without its acknowledgement.
        let bodies = store.volumes().bodies;
        assert!((newest..=newest + 1).contains(&bodies), "round {round}: {bodies} of {newest}");
        assert_eq!(bodies_on_disk(folder.path()).len() as u64, bodies, "nothing is left over");
        for number in 1..=newest {
            assert!(read(&store, &sha(number)).expect("reads") == body(number), "{number}");
        }
        newest = bodies;
    }
    assert!(newest > 50, "hardly anything was put: {newest}");
}

#[test]
fn a_put_that_the_kernel_refuses_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    // The third body of 200,000 bytes and more is the first that does not fit.
    let program = program(folder.path(), 0).with_file_bytes_max(150 * 1024);
    let mut running = Running::start(&program);
    running.wait_for_open();
    let acknowledged = running.rest().expect("some fit");
    let (status, why) = running.ended();
    assert_eq!(status.code(), Some(4), "{why}");
    let store = open(Arc::new(RealDisk), folder.path()).expect("opens");
    assert_eq!(store.volumes().bodies, acknowledged);
    assert_eq!(acknowledged, 6);
    put(&store, &body(7), 0).expect("the mended disk takes it");
}
