//! The thread that commits in groups.

use crate::failing_disk::{FailingDisk, Fault};
use crate::workload::{Expected, writes};
use crate::{ENGINES, open};
use rota_storage::{Engine, EngineKind, Failure, NotQueued, RealDisk, StillWriting, Writer};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn bound(submissions: usize) -> NonZeroUsize {
    NonZeroUsize::new(submissions).expect("not zero")
}

/// A call back that passes on what it is told, and what it was told.
fn told() -> (impl FnMut(u64) + Send + 'static, Receiver<u64>) {
    let (sender, receiver): (SyncSender<u64>, _) = sync_channel(10_000);
    (move |lsn| sender.try_send(lsn).expect("there is room"), receiver)
}

fn wait_until(told: &Receiver<u64>, lsn: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.last() != Some(&lsn) {
        seen.push(told.recv_timeout(PATIENCE).expect("it is acknowledged"));
    }
    seen
}

fn open_with(disk: &FailingDisk, folder: &Path, kind: EngineKind) -> Box<dyn Engine> {
    open(Arc::new(disk.clone()), folder, kind).expect("opens")
}

#[test]
fn what_waits_during_a_commit_is_committed_and_acknowledged_together() {
    for kind in ENGINES {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = FailingDisk::sound();
        let (on_committed, told) = told();
        let engine = open_with(&disk, folder.path(), kind);
        let writer = Writer::spawn(engine, bound(100), on_committed).expect("a thread");
        disk.gate().shut();
        writer.try_submit(1, writes(1)).expect("there is room");
        while writer.queued() > 0 {
            std::thread::yield_now();
        }
        for lsn in 2..=50 {
            writer.try_submit(lsn, writes(lsn)).expect("there is room");
        }
        assert_eq!(writer.queued(), 49);
        disk.gate().open();
        assert_eq!(wait_until(&told, 50), [1, 50]);
        let counters = writer.counters();
        assert_eq!((counters.commits(), counters.submissions()), (2, 50));
        assert_eq!(counters.last_batch(), 49);
        assert_eq!(counters.writes(), (1..=50).map(|lsn| writes(lsn).len() as u64).sum::<u64>());
        assert!(counters.total_commit_time() >= counters.last_commit_time());
        assert!(counters.last_commit_time() >= counters.last_sync_time());
        assert_eq!(counters.last_sync_time() > Duration::ZERO, kind == EngineKind::Log);
        assert!(counters.last_commit_time() > Duration::ZERO);
        writer.shutdown(PATIENCE).expect("ends");
        let mut engine = open_with(&disk, folder.path(), kind);
        Expected::default().check(&mut *engine, 50..=50);
    }
}

#[test]
fn a_full_queue_gives_the_writes_back_and_takes_them_after_the_next_acknowledgement() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = FailingDisk::sound();
    let (on_committed, told) = told();
    let engine = open_with(&disk, folder.path(), ENGINES[0]);
    let writer = Writer::spawn(engine, bound(3), on_committed).expect("a thread");
    disk.gate().shut();
    writer.try_submit(1, writes(1)).expect("there is room");
    while writer.queued() > 0 {
        std::thread::yield_now();
    }
    for lsn in 2..=4 {
        writer.try_submit(lsn, writes(lsn)).expect("there is room");
    }
    let refused = writer.try_submit(5, writes(5)).expect_err("the queue is full");
    let NotQueued::Full(back) = refused else { panic!("{refused}") };
    assert_eq!(back, writes(5));
    assert_eq!(writer.counters().refused(), 1);
    disk.gate().open();
    wait_until(&told, 4);
    writer.try_submit(5, back).expect("there is room");
    wait_until(&told, 5);
}

#[test]
fn a_submission_without_writes_is_acknowledged_in_its_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let (on_committed, told) = told();
    let engine = open_with(&FailingDisk::sound(), folder.path(), ENGINES[0]);
    let writer = Writer::spawn(engine, bound(10), on_committed).expect("a thread");
    writer.try_submit(1, Vec::new()).expect("there is room");
    assert_eq!(wait_until(&told, 1), [1]);
}

#[test]
fn shutdown_commits_what_is_queued_and_gives_the_folder_free() {
    for kind in ENGINES {
        let folder = tempfile::tempdir().expect("a folder");
        let (on_committed, told) = told();
        let engine = open_with(&FailingDisk::sound(), folder.path(), kind);
        let writer = Writer::spawn(engine, bound(1000), on_committed).expect("a thread");
        for lsn in 1..=300 {
            writer.try_submit(lsn, writes(lsn)).expect("there is room");
        }
        writer.shutdown(PATIENCE).expect("ends");
        assert_eq!(wait_until(&told, 300).last(), Some(&300));
        let mut engine = open(Arc::new(RealDisk), folder.path(), kind).expect("the lock is free");
        Expected::default().check(&mut *engine, 300..=300);
    }
}

#[test]
fn shutdown_does_not_wait_for_ever_for_a_disk_that_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = FailingDisk::sound();
    let (on_committed, told) = told();
    let engine = open_with(&disk, folder.path(), ENGINES[0]);
    let writer = Writer::spawn(engine, bound(10), on_committed).expect("a thread");
    disk.gate().shut();
    writer.try_submit(1, writes(1)).expect("there is room");
    assert_eq!(writer.shutdown(Duration::from_millis(20)), Err(StillWriting));
    assert!(told.try_recv().is_err(), "nothing is acknowledged before it is synced");
    disk.gate().open();
    wait_until(&told, 1);
}

#[test]
fn a_failed_commit_is_fatal_and_nothing_is_acknowledged_after_it() {
    for kind in ENGINES {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = FailingDisk::new(Fault::Sync, 60);
        let (on_committed, told) = told();
        let (sender, fatal) = sync_channel(1);
        let engine = open_with(&disk, folder.path(), kind);
        let writer = Writer::spawn_with_fatal(engine, bound(1), on_committed, move |failure| {
            assert!(matches!(failure, Failure::Commit(_)));
            sender.send(failure.to_string()).expect("the test listens");
        });
        let writer = writer.expect("a thread");
        let mut lsn = 0;
        let ended = loop {
            let Err(refused) = writer.try_submit(lsn + 1, writes(lsn + 1)) else {
                lsn += 1;
                continue;
            };
            match refused {
                NotQueued::Full(_) => std::thread::yield_now(),
                NotQueued::Ended(back) => break back,
            }
        };
        assert_eq!(ended, writes(lsn + 1));
        fatal.recv_timeout(PATIENCE).expect("the failure is told");
        writer.shutdown(PATIENCE).expect("ends");
        let acknowledged = told.try_iter().last().unwrap_or(0);
        assert!(acknowledged < lsn);
        let mut engine = open(Arc::new(RealDisk), folder.path(), kind).expect("opens");
        Expected::default().check(&mut *engine, acknowledged..=lsn);
    }
}

#[test]
fn a_panic_on_the_thread_is_fatal() {
    let folder = tempfile::tempdir().expect("a folder");
    let (sender, fatal) = sync_channel(1);
    let engine = open_with(&FailingDisk::sound(), folder.path(), ENGINES[0]);
    let on_committed = |_| panic!("a mistake in the call back");
    let writer = Writer::spawn_with_fatal(engine, bound(1), on_committed, move |failure| {
        sender.send(matches!(failure, Failure::Panic)).expect("the test listens");
    });
    let writer = writer.expect("a thread");
    writer.try_submit(1, writes(1)).expect("there is room");
    assert!(fatal.recv_timeout(PATIENCE).expect("the failure is told"));
    writer.shutdown(PATIENCE).expect("ends");
}
