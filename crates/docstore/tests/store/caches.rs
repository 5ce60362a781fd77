//! The cache: its budget, its order of use, how fresh copies are, and serving others.

use crate::bank::*;
use rota_docstore::*;
use std::sync::Arc;

fn cache(bytes_max: u64) -> Cache {
    Cache::new(Arc::new(schema()), bytes_max)
}

fn refresh(cache: &mut Cache, store: &Store, docid: &str, now: Stamp) -> &'static str {
    let name = account(docid);
    let update = store.sync(&name, cache.held(&name).as_ref(), now).unwrap();
    cache.apply(&name, &update, now).unwrap();
    update.name()
}

fn many(count: u64) -> Store {
    let mut store = Store::default();
    for it in 0..count {
        set_balance(&mut store, &format!("{it:04}"), 1, at(it));
    }
    store
}

#[test]
fn a_cache_far_smaller_than_the_data_keeps_to_its_budget_and_stays_right() {
    let store = many(2_000);
    let mut cache = cache(20_000);
    let mut most = 0;
    for round in 0..3_u64 {
        for it in 0..2_000_u64 {
            // Some documents are wanted more often than others.
            let docid = format!("{:04}", it * it % (500 + 500 * round));
            refresh(&mut cache, &store, &docid, at(10_000 + it));
            assert!(cache.bytes() <= 20_000, "{}", cache.bytes());
            most = most.max(cache.len());
            let name = account(&docid);
            assert_eq!(cache.peek(&name), store.peek(&name));
        }
    }
    assert!((20..200).contains(&most), "{most} of 2000 documents");
}

#[test]
fn the_least_recently_used_goes_first() {
    let store = many(100);
    let mut cache = cache(u64::MAX);
    for docid in ["0001", "0002", "0003"] {
        refresh(&mut cache, &store, docid, at(100));
    }
    let mut cache_of_three = Cache::new(Arc::new(schema()), cache.bytes());
    for docid in ["0001", "0002", "0003"] {
        refresh(&mut cache_of_three, &store, docid, at(100));
    }
    cache_of_three.look_up(&account("0001"), at(100), Tolerance::seconds(1));
    refresh(&mut cache_of_three, &store, "0004", at(100));
    let is_there = |docid: &str| cache_of_three.held(&account(docid)).is_some();
    assert_eq!(["0001", "0002", "0003", "0004"].map(is_there), [true, false, true, true]);
}

#[test]
fn a_document_larger_than_the_budget_does_not_push_the_others_out() {
    let mut store = many(3);
    let mut cache = cache(2_000);
    refresh(&mut cache, &store, "0001", at(10));
    let name = ItemName::keyed("Raw", "x").unwrap();
    let work = |transaction: &mut Transaction<'_>| {
        let large = Content::raw(vec![0; 5_000])?;
        transaction.current(&account("0002"))?.put_content(&name, large)
    };
    edit(&mut store, at(20), work).unwrap();
    let update = store.sync(&account("0002"), None, at(30)).unwrap();
    let bytes = cache.apply(&account("0002"), &update, at(30)).unwrap();
    assert!((5_000..6_000).contains(&bytes), "it would take {bytes}");
    assert!(cache.held(&account("0002")).is_none());
    assert!(cache.held(&account("0001")).is_some());
}

#[test]
fn a_copy_is_fresh_for_as_long_as_the_tolerance_says() {
    let mut store = many(2);
    let mut cache = cache(10_000);
    refresh(&mut cache, &store, "0001", at(1_000));
    set_balance(&mut store, "0001", 7, at(1_500));
    let name = account("0001");
    let second = Tolerance::seconds(1);
    assert!(matches!(cache.look_up(&name, at(2_000), second), Lookup::Fresh(Some(_))));
    assert!(matches!(cache.look_up(&name, at(2_001), second), Lookup::Stale(Some(_))));
    assert!(matches!(cache.look_up(&name, at(2_001), Tolerance::seconds(2)), Lookup::Fresh(_)));
    assert!(matches!(cache.look_up(&name, at(999), second), Lookup::Stale(_)), "a clock step");
    assert_eq!(refresh(&mut cache, &store, "0001", at(2_001)), "case 1");
    assert!(matches!(cache.look_up(&name, at(2_001), second), Lookup::Fresh(_)));
    // An unchanged copy is as fresh as the answer that says so.
    assert_eq!(refresh(&mut cache, &store, "0001", at(5_000)), "unchanged");
    assert!(matches!(cache.look_up(&name, at(5_500), second), Lookup::Fresh(_)));
}

#[test]
fn an_answer_that_arrives_late_does_not_make_a_copy_older() {
    let mut store = many(2);
    let mut cache = cache(10_000);
    let name = account("0001");
    let late = store.sync(&name, None, at(10)).unwrap();
    set_balance(&mut store, "0001", 7, at(500));
    refresh(&mut cache, &store, "0001", at(5_000));
    assert!(cache.apply(&name, &late, at(10)).is_err());
    let unchanged = store.sync(&name, cache.held(&name).as_ref(), at(600)).unwrap();
    cache.apply(&name, &unchanged, at(600)).unwrap();
    let lookup = cache.look_up(&name, at(5_500), Tolerance::seconds(1));
    assert_eq!(lookup, Lookup::Fresh(store.peek(&name).cloned()));
}

#[test]
fn that_a_document_does_not_exist_is_worth_keeping() {
    let mut cache = cache(10_000);
    assert_eq!(refresh(&mut cache, &Store::default(), "none", at(1_000)), "absent");
    let name = account("none");
    let second = Tolerance::seconds(1);
    assert_eq!(cache.look_up(&name, at(1_500), second), Lookup::Fresh(None));
    assert_eq!(cache.look_up(&name, at(2_500), second), Lookup::Stale(None));
}

#[test]
fn what_a_source_said_before_a_document_was_gone_does_not_bring_it_back() {
    let mut store = many(2);
    let mut cache = cache(10_000);
    let name = account("0001");
    let late = store.sync(&name, None, at(10)).unwrap();
    store.set(&name, None);
    assert_eq!(refresh(&mut cache, &store, "0001", at(20)), "absent");
    let error = cache.apply(&name, &late, at(10)).unwrap_err();
    assert!(matches!(error, ApplyError::SourceBehind { .. }), "{error}");
    let second = Tolerance::seconds(1);
    assert_eq!(cache.look_up(&name, at(30), second), Lookup::Fresh(None));
    // Another cache that knows more is not told that there is nothing.
    set_balance(&mut store, "0001", 1, at(30));
    let mut other = self::cache(10_000);
    refresh(&mut other, &store, "0001", at(40));
    let (update, as_of) = cache.serve(&name, other.held(&name).as_ref()).unwrap();
    assert_eq!(update.name(), "absent");
    assert!(other.apply(&name, &update, as_of).is_err());
    refresh(&mut cache, &store, "0001", at(50));
    assert_eq!(cache.peek(&name), other.peek(&name));
}

#[test]
fn a_cache_serves_another_which_is_as_fresh_as_the_first_one_was() {
    let mut store = many(2);
    let (mut near, mut far) = (cache(10_000), cache(10_000));
    let name = account("0001");
    refresh(&mut near, &store, "0001", at(1_000));
    let mut pass_on = |near: &mut Cache| {
        let held = far.held(&name);
        let (update, as_of) = near.serve(&name, held.as_ref()).unwrap();
        far.apply(&name, &update, as_of).unwrap();
        assert_eq!(far.peek(&name), near.peek(&name));
        (update.name(), far.look_up(&name, at(3_000), Tolerance::seconds(1)))
    };
    let (message, lookup) = pass_on(&mut near);
    assert_eq!(message, "full");
    assert!(matches!(lookup, Lookup::Stale(_)), "asked at 3000, known as of 1000");
    set_balance(&mut store, "0001", 5, at(2_000));
    refresh(&mut near, &store, "0001", at(2_500));
    let (message, lookup) = pass_on(&mut near);
    assert_eq!(message, "case 1");
    assert!(matches!(lookup, Lookup::Fresh(_)));
    assert_eq!(near.serve(&account("other"), None), None);
}

#[test]
fn a_source_that_is_behind_makes_a_copy_no_fresher() {
    let mut store = many(2);
    let behind = store.clone();
    set_balance(&mut store, "0001", 7, at(500));
    let mut cache = cache(10_000);
    let name = account("0001");
    refresh(&mut cache, &store, "0001", at(1_000));
    let update = behind.sync(&name, cache.held(&name).as_ref(), at(9_000)).unwrap();
    assert!(cache.apply(&name, &update, at(9_000)).is_err());
    assert_eq!(cache.peek(&name), store.peek(&name));
    let lookup = cache.look_up(&name, at(9_000), Tolerance::seconds(1));
    assert!(matches!(lookup, Lookup::Stale(Some(_))));
}

#[test]
fn updates_with_unknown_classes_or_from_the_future_are_refused() {
    let store = many(2);
    let name = account("0001");
    let update = store.sync(&name, None, at(10)).unwrap();
    let mut old = Cache::new(Arc::new(Schema::new()), 10_000);
    let error = old.apply(&name, &update, at(10)).unwrap_err();
    assert_eq!(error.to_string(), r#"class "Acc" of documents is unknown"#);
    let mut items = Cache::new(Arc::new(Schema::new().class("Acc", |it| it)), 10_000);
    let error = items.apply(&name, &update, at(10)).unwrap_err();
    assert_eq!(error.to_string(), r#"class "Bal" of items is unknown in "Acc""#);
    let mut late = many(0);
    late.raise(at(100_000_000));
    set_balance(&mut late, "0001", 1, at(0));
    let update = late.sync(&name, None, at(10)).unwrap();
    let mut cache = cache(10_000);
    let error = cache.apply(&name, &update, at(10)).unwrap_err();
    assert!(error.to_string().contains("in the future"), "{error}");
    let ended = Update::Deleted { ctime: at(1), version: at(100_000_000) };
    assert!(cache.apply(&name, &ended, at(10)).is_err());
    assert!(cache.is_empty());
}

#[test]
fn a_cache_forgets_destroyed_items_when_it_likes() {
    let mut store = many(2);
    let mut cache = cache(10_000);
    let name = account("0001");
    let put = |transaction: &mut Transaction<'_>| {
        transaction.current(&name)?.put("x", &Entry { cents: 1 })
    };
    edit(&mut store, at(10), put).unwrap();
    refresh(&mut cache, &store, "0001", at(11));
    let old = cache.held(&name);
    let remove = |transaction: &mut Transaction<'_>| {
        transaction.current(&name)?.remove("Ent", Some("x")).map(|_| ())
    };
    edit(&mut store, at(20), remove).unwrap();
    set_balance(&mut store, "0001", 9, at(30));
    refresh(&mut cache, &store, "0001", at(31));
    let before = cache.bytes();
    cache.forget_before(&name, at(25));
    assert!(cache.bytes() < before);
    assert_eq!(cache.serve(&name, old.as_ref()).unwrap().0.name(), "case 2");
    assert!(cache.peek(&name).unwrap().says_the_same(store.peek(&name).unwrap()));
}
