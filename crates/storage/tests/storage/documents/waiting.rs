//! What is told when: nothing before the disk has it.

use super::contention::fill;
use super::*;
use crate::failing_disk::FailingDisk;
use rota_docstore::{Held, Run, SyncRequest, Update, codes};
use rota_storage::Unanswered;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

fn gated(folder: &Path, setup: Setup) -> (FailingDisk, DocumentStore) {
    let disk = FailingDisk::sound();
    let store = open_with(Arc::new(disk.clone()), folder, setup).expect("opens");
    (disk, store)
}

#[test]
fn the_next_operation_sees_what_is_not_on_the_disk_and_nobody_else_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, store) = gated(folder.path(), setup());
    let deadline = Instant::now() + PATIENCE;
    disk.gate().shut();
    let first = store.begin(Run::new(create("a")), deadline);
    let more = store.begin(Run::new(add(&["a"], 5)), deadline);
    // Refused because of something that a crash could still undo.
    let refused = store.begin(Run::new(create("a")), deadline);
    // It reads, and changes nothing.
    let name = account("a");
    let read = Do(move |transaction: &mut Transaction<'_>| {
        let count = transaction.current(&name)?.one::<Count>()?.map_or(0, |it| it.count);
        transaction.answer_json(&count)
    });
    let read = store.begin(Run::of(Request::new(space(), "do"), read), deadline);
    let all = [&first, &more, &refused, &read];
    assert!(all.iter().all(|it| !it.is_ready()), "the disk has nothing yet");
    let (sender, told) = sync_channel(3);
    thread::scope(|scope| {
        let (store, get) = (&store, sender.clone());
        scope.spawn(move || get.send(count(store, "a") == 5));
        let sync = sender.clone();
        scope.spawn(move || {
            let update = store.update_for(&account("a"), None).expect("answers");
            sync.send(matches!(update, Update::Full(it) if count_in(&it) == 5))
        });
        scope.spawn(move || {
            let all: Result<Vec<_>, _> = store.stream(SlotId(0)..=SlotId(15)).collect();
            sender.send(all.expect("reads").len() == 1)
        });
        // A document that is on the disk does not wait for others.
        assert_eq!(count(store, "b"), 0);
        assert!(told.try_recv().is_err(), "nothing is shown before it is durable");
        disk.gate().open();
        for _ in 0..3 {
            assert!(told.recv_timeout(PATIENCE).expect("it is told"));
        }
    });
    first.wait().expect("it was created");
    assert_eq!(number(&more.wait().expect("it was added")), 5);
    assert_eq!(number(&read.wait().expect("it was read")), 5);
    let error = refused.wait().expect_err("it exists");
    assert_eq!(*error.exception().expect("an exception").code(), codes::EXISTS);
}

#[test]
fn a_caller_does_not_wait_for_ever_for_a_disk_that_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let patience = Duration::from_millis(30);
    let queue_max = std::num::NonZeroUsize::MIN;
    let (disk, store) = gated(folder.path(), Setup { patience, queue_max, ..setup() });
    disk.gate().shut();
    let undecided = store.run(add(&["a"], 1)).expect_err("the disk hangs");
    assert!(matches!(undecided, Unanswered::Undecided { .. }), "{undecided}");
    let busy = store.run(add(&["a"], 1)).expect_err("the queue is full");
    assert_eq!(*busy.exception().expect("an exception").code(), codes::BUSY);
    assert!(matches!(store.get(&account("a")), Err(Unanswered::Undecided { .. })));
    disk.gate().open();
    store.close(PATIENCE).expect("closes");
    assert_eq!(count(&open(folder.path()), "a"), 1, "what was undecided is there");
}

#[test]
fn that_there_is_no_document_is_told_when_every_version_that_it_speaks_of_is_on_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let patience = Duration::from_millis(30);
    let (disk, store) = gated(folder.path(), Setup { patience, ..setup() });
    disk.gate().shut();
    let first = store.begin(Run::new(create("a")), Instant::now() + PATIENCE);
    // If power fails now, and the clock is put back, other documents get the versions that it speaks of.
    let told = store.update_for(&account("b"), None);
    assert!(matches!(told, Err(Unanswered::Undecided { .. })), "{told:?}");
    disk.gate().open();
    let version = first.wait().expect("it was created").version;
    let told = store.update_for(&account("b"), None).expect("it is on the disk");
    let Update::Absent { as_of } = told else { panic!("{told:?}") };
    assert!(as_of < version, "what has that version is newer");
}

#[test]
fn closing_gives_up_on_a_disk_that_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, store) = gated(folder.path(), setup());
    disk.gate().shut();
    drop(store.begin(Run::new(add(&["a"], 1)), Instant::now() + PATIENCE));
    store.close(Duration::from_millis(20)).expect_err("it hangs");
    disk.gate().open();
}

#[test]
fn a_large_operation_waits_until_the_way_to_the_disk_has_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, store) = gated(folder.path(), setup());
    disk.gate().shut();
    let large = |first: u32| {
        Do(move |transaction: &mut Transaction<'_>| {
            (first..first + 3).try_for_each(|id| fill(transaction, &id.to_string()))
        })
    };
    let request = || Request::new(space(), "do");
    let deadline = Instant::now() + PATIENCE;
    let first = store.begin(Run::of(request(), large(0)), deadline);
    thread::scope(|scope| {
        let second = scope.spawn(|| store.run_this(request(), large(3)));
        disk.gate().open();
        let answer = second.join().expect("no panic").expect("it finds room");
        assert!(answer.version > first.wait().expect("it is valid").version);
    });
    assert_eq!(store.len(), 6);
}

#[test]
fn an_answer_brings_the_documents_that_the_caller_named_up_to_date() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    store.run(add(&["a"], 1)).expect("it is valid");
    let before = store.get(&account("a")).expect("reads").expect("it is there");
    let mut request = add(&["a"], 1);
    request.syncs = vec![SyncRequest { name: account("a"), held: Some(Held::of(&before)) }];
    let answer = store.run(request.clone()).expect("it is valid");
    let (name, update) = &answer.updates[0];
    assert_eq!((name, update.name()), (&account("a"), "case 1"));
    let after = rota_docstore::apply(name, Some(&before), update).expect("it applies");
    assert_eq!(count_in(&after.expect("it is there")), 2);
    // A version from the future is refused before any work, by its number.
    let future = now().plus_ms(3_600_000);
    let held = Held::new(before.ctime(), future, before.dtime()).expect("it fits");
    request.syncs[0].held = Some(held);
    let error = store.run(request).expect_err("it is from the future");
    assert_eq!(
        error.exception().expect("an exception").details().fields[0].field,
        "syncs[0].version"
    );
    let error = store.update_for(&account("a"), Some(&held)).expect_err("it is from the future");
    assert_eq!(error.exception().expect("an exception").details().fields[0].field, "version");
    let unknown = DocName::new(&space(), "What", "a").expect("a good name");
    let error = store.update_for(&unknown, None).expect_err("an unknown class");
    assert_eq!(error.exception().expect("an exception").details().fields[0].field, "class");
}
