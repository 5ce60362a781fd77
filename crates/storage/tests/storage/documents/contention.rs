//! Many callers at once.

use super::*;
use rota_docstore::{Letter, codes};
use rota_storage::Unanswered;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

const CALLERS: usize = 256;

#[test]
fn callers_that_all_want_one_document_take_turns_and_none_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let rounds = 8;
    let seen = thread::scope(|scope| {
        let caller = || {
            let one = |_| number(&store.run(add(&["one"], 1)).expect("no contention"));
            (0..rounds).map(one).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
        threads.into_iter().flat_map(|it| it.join().expect("no panic")).collect::<BTreeSet<_>>()
    });
    let all = (CALLERS * rounds) as u64;
    assert_eq!(seen, (1..=all).collect(), "each saw another value");
    assert_eq!(count(&store, "one"), all);
    assert!(store.counters().commits() < all, "they are committed in groups");
    store.close(PATIENCE).expect("closes");
    assert_eq!(count(&open(folder.path()), "one"), all);
}

#[test]
fn callers_on_many_documents_move_between_them_and_the_sum_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let store = &store;
            scope.spawn(move || {
                for round in 0..4 {
                    let (one, two) = (caller % 40, (caller * 7 + round) % 40 + 40);
                    let ids = [format!("{one}"), format!("{two}")];
                    let ids = [ids[0].as_str(), ids[1].as_str()];
                    store.run(add(&ids, 1)).expect("no contention");
                }
            });
        }
    });
    let sum = |ids: std::ops::Range<u32>, store: &DocumentStore| -> u64 {
        ids.map(|it| count(store, &it.to_string())).sum()
    };
    let all = (CALLERS * 4) as u64;
    assert_eq!((sum(0..40, &store), sum(40..80, &store)), (all, all));
    store.close(PATIENCE).expect("closes");
    let store = open(folder.path());
    assert_eq!((sum(0..40, &store), sum(40..80, &store)), (all, all));
}

#[test]
fn one_loop_serves_many_callers_with_one_hand_over_to_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let runs = (0..200).map(|it| rota_docstore::Run::new(add(&[&format!("{}", it % 50)], 1)));
    let pending = store.begin_all(runs, Instant::now() + PATIENCE);
    for it in pending {
        it.wait().expect("it is valid");
    }
    assert!((0..50).all(|it| count(&store, &it.to_string()) == 4));
    assert!(store.counters().commits() <= 200);
}

#[test]
fn an_unexpected_failure_is_tried_again_and_a_bug_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let tries = Arc::new(AtomicU64::new(0));
    let count_tries = Arc::clone(&tries);
    let answer = change(&store, move |transaction| match count_tries.fetch_add(1, SeqCst) {
        0 => Err(Exception::unexpected("FIRST", "the first attempt fails")),
        1 => panic!("the second attempt panics"),
        _ => transaction.answer_json(&7),
    });
    assert_eq!((number(&answer), tries.load(SeqCst)), (7, 3));
    let fail = |_: &mut Transaction<'_>| Err(Exception::bug("BAD", "it should not be"));
    let error = store.run_this(Request::new(space(), "do"), Do(fail)).expect_err("a bug");
    let exception = error.exception().expect("an exception");
    assert_eq!((exception.letter(), exception.details().attempts), (Letter::B, 1));
    // A panic leaves nothing locked.
    assert_eq!(number(&store.run(add(&["a"], 2)).expect("works")), 2);
}

#[test]
fn what_has_no_place_in_the_registry_and_what_is_too_long_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let refused = |request| match store.run(request) {
        Err(Unanswered::Exception(exception)) => exception,
        other => panic!("{other:?}"),
    };
    assert_eq!(*refused(Request::new(space(), "unknown")).code(), codes::OPERATION);
    assert_eq!(refused(add(&[&"x".repeat(256)], 1)).details().fields[0].field, "docid");
    let ids: Vec<_> = (0..33).map(|it| it.to_string()).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    assert_eq!(*refused(add(&ids, 1)).code(), codes::LIMIT);
    assert!(store.is_empty(), "nothing was done");
}

#[test]
fn an_operation_that_writes_more_than_the_disk_takes_at_once_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let write = |transaction: &mut Transaction<'_>| {
        for id in 0..5 {
            fill(transaction, &id.to_string())?;
        }
        Ok(())
    };
    let error = store.run_this(Request::new(space(), "do"), Do(write)).expect_err("too much");
    let exception = error.exception().expect("an exception");
    assert_eq!(*exception.code(), codes::LIMIT);
    assert_eq!(exception.details().fields[0].field, "operation");
    assert!(exception.to_string().ends_with("the limit is 33554432"), "{exception}");
    assert!(store.is_empty());
}

/// Makes a document of about 8 MB.
pub fn fill(transaction: &mut Transaction<'_>, id: &str) -> Result<(), Exception> {
    let name = transaction.name("Acc", id)?;
    let edited = transaction.current(&name)?;
    edited.ensure();
    for key in 0..8 {
        let item = rota_docstore::ItemName::keyed("Big", &key.to_string())?;
        edited.put_content(&item, rota_docstore::Content::raw(vec![key; 1_000_000])?)?;
    }
    Ok(())
}
