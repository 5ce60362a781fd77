//! A document that changes faster than the clock goes.

use super::*;
use rota_docstore::{AHEAD_MS_MAX, codes};
use rota_model::Retry;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[test]
fn a_hot_document_waits_for_the_clock_as_long_as_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let begun = now().to_epoch_ms();
    let clock = Arc::new(AtomicU64::new(begun + AHEAD_MS_MAX));
    let shown = Arc::clone(&clock);
    let setup = Setup { clock: Arc::new(move || shown.load(SeqCst)), ..setup() };
    let opened = || open_with(Arc::new(RealDisk), folder.path(), setup.clone()).expect("opens");
    let store = opened();
    store.run(add(&["a"], 1)).expect("it is done");
    store.close(PATIENCE).expect("closes");
    // As if that many changes of it had come within one millisecond.
    clock.store(begun, SeqCst);
    let store = opened();
    let unanswered = store.run(add(&["a"], 1)).expect_err("it is too far ahead");
    let refused = unanswered.exception().expect("an exception");
    assert_eq!((refused.code(), refused.retry()), (&codes::AHEAD, Retry::AfterMs(1)));
    store.run(add(&["b"], 1)).expect("others go on");
    clock.store(begun + 1, SeqCst);
    assert_eq!(number(&store.run(add(&["a"], 1)).expect("its turn has come")), 2);
    assert_eq!((count(&store, "a"), count(&store, "b")), (2, 1));
}

#[test]
fn a_store_goes_on_from_what_a_clock_gave_that_was_wrong_and_is_put_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let begun = now().to_epoch_ms();
    let clock = Arc::new(AtomicU64::new(begun + 3 * AHEAD_MS_MAX));
    let shown = Arc::clone(&clock);
    let setup = Setup { clock: Arc::new(move || shown.load(SeqCst)), ..setup() };
    let opened = || open_with(Arc::new(RealDisk), folder.path(), setup.clone()).expect("opens");
    let store = opened();
    store.run(add(&["a"], 1)).expect("it is done");
    // It is put right while the store runs, and is so after a restart.
    clock.store(begun, SeqCst);
    store.run(add(&["a"], 1)).expect("it is done");
    store.close(PATIENCE).expect("closes");
    assert_eq!(number(&opened().run(add(&["a"], 1)).expect("it is done")), 3);
}
