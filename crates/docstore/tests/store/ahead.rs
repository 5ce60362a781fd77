//! Versions that run ahead of the clock: how far, and what is told then.

use crate::bank::*;
use rota_docstore::*;
use rota_model::Retry;
use std::sync::Arc;

fn touch(store: &mut Store, docid: &str, now: Stamp) -> Result<Commit, Exception> {
    edit(store, now, |transaction| {
        let edited = transaction.current(&account(docid))?;
        let mut balance = edited.one::<Balance>()?.unwrap();
        balance.cents += 1;
        edited.put_one(&balance)
    })
}

/// Two accounts, of which one was changed so often that it is that far ahead of the clock.
fn hot(ahead_ms: u64, now: Stamp) -> Store {
    let mut store = two_accounts();
    let commit = touch(&mut store.clone(), "a", now.plus_ms(ahead_ms)).unwrap();
    store.apply(&commit.writes, commit.high_water);
    store
}

#[test]
fn a_hot_document_waits_for_the_clock_when_it_is_far_ahead_and_is_told_how_long() {
    let now = at(10_000);
    let mut store = hot(AHEAD_MS_MAX - 1, now);
    assert_eq!(touch(&mut store, "a", now).unwrap().version, now.plus_ms(AHEAD_MS_MAX));
    let before = store.clone();
    let refused = touch(&mut store, "a", now).unwrap_err();
    assert_eq!((refused.code(), refused.phase()), (&codes::AHEAD, Phase::Validation));
    assert_eq!((refused.letter(), refused.retry()), (Letter::C, Retry::AfterMs(1)));
    assert_eq!(store, before, "nothing was done");
    let later = now.plus_ms(1);
    assert_eq!(touch(&mut store, "a", later).unwrap().version, later.plus_ms(AHEAD_MS_MAX));
    // Others share a version with what is there.
    assert_eq!(touch(&mut store, "b", later).unwrap().version, later.plus_ms(AHEAD_MS_MAX));
    // Who only reads it changes nothing.
    let read = edit(&mut store, later, |transaction| transaction.current(&account("a")).map(drop));
    assert_eq!(read.unwrap().writes, []);
}

#[test]
fn a_clock_that_is_set_back_holds_nothing_up_while_a_store_runs_or_after_it_was_loaded() {
    let (now, back) = (at(10 * AHEAD_MS_MAX), at(1_000));
    let mut store = two_accounts();
    touch(&mut store, "a", now).unwrap();
    assert_eq!(touch(&mut store, "a", back).unwrap().version, now.next());
    let mut loaded = Store::default();
    for document in store.iter() {
        loaded.set(document.name(), Some(document.clone()));
    }
    assert_eq!(touch(&mut loaded.clone(), "a", back).unwrap_err().code(), &codes::AHEAD);
    loaded.loaded(back);
    assert_eq!(touch(&mut loaded, "a", back).unwrap().version, now.plus_ms(2));
    // What a clock may have given is no reason to go further.
    let mut hot = hot(AHEAD_MS_MAX, back);
    hot.loaded(back);
    assert_eq!(touch(&mut hot, "a", back).unwrap_err().code(), &codes::AHEAD);
}

#[test]
fn a_cache_takes_whatever_a_store_lets_a_hot_document_become() {
    let now = at(10_000);
    let mut store = hot(AHEAD_MS_MAX - 1, now);
    touch(&mut store, "a", now).unwrap();
    // Its clock is behind by as much as the store is ahead.
    let behind = now.minus_ms(cache::CLOCKS_APART_MS_MAX - AHEAD_MS_MAX);
    let mut cache = Cache::new(Arc::clone(&rules().schema), 1 << 20);
    let name = account("a");
    let update = store.sync(&name, None, now).unwrap();
    cache.apply(&name, &update, behind).unwrap();
}
