//! A child process commits and prints what is acknowledged, until it is killed or its disk fails.

use crate::failing_disk::{FailingDisk, Fault};
use crate::running::{PATIENCE, Program, Running, say, variable};
use crate::workload::{Expected, newest, writes};
use crate::{ENGINES, open};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::{EXIT_STATUS, Engine, EngineError, EngineKind, NotQueued, RealDisk, Writer};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::mpsc::sync_channel;

/// How many submissions wait in the child.
const QUEUE: NonZeroUsize = NonZeroUsize::new(32).expect("not zero");

/// Not a test: the child's program. It commits for ever.
#[test]
#[ignore = "run as a child by the tests of this file"]
fn child() {
    let folder = variable("ROTA_TEST_FOLDER");
    let kind = EngineKind::parse(&variable("ROTA_TEST_ENGINE")).expect("an engine");
    let disk = match variable("ROTA_TEST_FAULT").split_once(' ') {
        Some((fault, calls)) => {
            FailingDisk::new(Fault::parse(fault), calls.parse().expect("a number"))
        }
        None => FailingDisk::sound(),
    };
    let mut engine = match open(std::sync::Arc::new(disk), Path::new(&folder), kind) {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("{error}: {:?}", std::error::Error::source(&error));
            std::process::exit(3);
        }
    };
    let mut lsn = newest(&mut engine);
    say(&format!("open {lsn}"));
    // One wake-up is enough: it says that there is room again.
    let (sender, room) = sync_channel(1);
    let writer = Writer::spawn(engine, QUEUE, move |lsn| {
        say(&format!("acknowledged {lsn}"));
        let _ = sender.try_send(());
    });
    let writer = writer.expect("a thread");
    loop {
        lsn += 1;
        let mut waiting = writes(lsn);
        while let Err(refused) = writer.try_submit(lsn, waiting) {
            let NotQueued::Full(back) = refused else { return };
            waiting = back;
            let _ = room.recv_timeout(PATIENCE);
        }
    }
}

fn start(folder: &Path, kind: EngineKind, fault: Option<(Fault, u64)>) -> Running {
    Running::start(&program(folder, kind, fault))
}

fn program(folder: &Path, kind: EngineKind, fault: Option<(Fault, u64)>) -> Program {
    let fault = fault.map(|(fault, calls)| format!("{} {calls}", fault.as_str()));
    Program::new("processes::child")
        .with("ROTA_TEST_FOLDER", folder.to_str().expect("text"))
        .with("ROTA_TEST_ENGINE", kind.as_str())
        .with("ROTA_TEST_FAULT", &fault.unwrap_or_default())
}

fn open_real(folder: &Path, kind: EngineKind) -> Box<dyn Engine> {
    open(std::sync::Arc::new(RealDisk), folder, kind).expect("opens")
}

fn survives_kills(kind: EngineKind, rounds: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut expected = Expected::default();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let mut running = start(folder.path(), kind, None);
        let began: u64 = running.wait_for_open().parse().expect("a number");
        assert!(began >= acknowledged, "round {round}: {began} of {acknowledged}");
        let before = running.wait_for(random.random_range(1..60));
        running.kill();
        acknowledged = running.rest().or(before).unwrap_or(acknowledged);
        // The child may have submitted a full queue and a batch beyond the last acknowledgement.
        let most = acknowledged + 2 * QUEUE.get() as u64;
        // Every other round the child itself is the next to open the folder.
        if round % 2 == 0 {
            expected.check(&mut *open_real(folder.path(), kind), acknowledged..=most);
        }
    }
    expected.check(&mut *open_real(folder.path(), kind), acknowledged..=u64::MAX);
    assert!(acknowledged > u64::from(rounds), "hardly anything was written");
}

#[test]
fn the_log_loses_nothing_acknowledged_when_its_process_is_killed() {
    survives_kills(ENGINES[0], 16);
}

#[test]
fn redb_loses_nothing_acknowledged_when_its_process_is_killed() {
    survives_kills(ENGINES[1], 12);
}

fn ends_when_the_disk_fails(kind: EngineKind) {
    for fault in [Fault::Sync, Fault::Write] {
        for calls in [20, 45, 90, 200, 333] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut running = start(folder.path(), kind, Some((fault, calls)));
            let acknowledged = running.rest().unwrap_or(0);
            let (status, why) = running.ended();
            assert_eq!(status.code(), Some(EXIT_STATUS), "{kind} {fault:?} {calls}: {why}");
            assert!(why.contains("a commit failed"), "{why}");
            let folder_text = folder.path().to_str().expect("text");
            assert!(why.contains(folder_text), "it names the file: {why}");
            let most = acknowledged + 2 * QUEUE.get() as u64;
            let mut engine = open_real(folder.path(), kind);
            Expected::default().check(&mut *engine, acknowledged..=most);
            engine.commit(&writes(1)).expect("the mended disk takes commits");
        }
    }
}

#[test]
fn a_process_over_the_log_ends_when_its_disk_fails_and_nothing_acknowledged_is_lost() {
    ends_when_the_disk_fails(ENGINES[0]);
}

#[test]
fn a_process_over_redb_ends_when_its_disk_fails_and_nothing_acknowledged_is_lost() {
    ends_when_the_disk_fails(ENGINES[1]);
}

#[test]
fn a_folder_that_another_process_has_open_is_refused_until_that_one_ends() {
    for kind in ENGINES {
        let folder = tempfile::tempdir().expect("a folder");
        let mut running = start(folder.path(), kind, None);
        running.wait_for_open();
        let error = open(std::sync::Arc::new(RealDisk), folder.path(), kind).map(drop);
        assert!(matches!(error, Err(EngineError::InUse { .. })), "{error:?}");
        running.kill();
        drop(open_real(folder.path(), kind));
    }
}

/// The kernel itself refuses to let a file grow, segment or checkpoint. Not for redb: its file has
/// room for the whole workload when it is made, and meets a full disk on the small tmpfs.
#[test]
fn a_process_over_the_log_ends_when_the_kernel_lets_no_file_grow_and_nothing_is_lost() {
    let kind = EngineKind::Log;
    for file_bytes_max in [40 * 1024, 96 * 1024] {
        let folder = tempfile::tempdir().expect("a folder");
        let program = program(folder.path(), kind, None).with_file_bytes_max(file_bytes_max);
        let mut running = Running::start(&program);
        running.wait_for_open();
        let acknowledged = running.rest().expect("it commits before its disk ends");
        let (status, why) = running.ended();
        assert_eq!(status.code(), Some(EXIT_STATUS), "{why}");
        assert!(why.contains("a commit failed") && why.contains("File too large"), "{why}");
        assert!(why.contains(folder.path().to_str().expect("text")), "it names the file: {why}");
        let most = acknowledged + 2 * QUEUE.get() as u64;
        let mut engine = open_real(folder.path(), kind);
        Expected::default().check(&mut *engine, acknowledged..=most);
        engine.commit(&writes(1)).expect("the mended disk takes commits");
    }
}
