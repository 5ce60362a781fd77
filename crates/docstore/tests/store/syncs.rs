//! The update document, edge case by edge case: which message a source sends, and what a copy makes
//! of it.

use crate::bank::*;
use rota_docstore::*;
use std::sync::Arc;

type Copy = Option<Arc<Document>>;

/// Changes entries of account `a`: `Some` puts, `None` destroys.
fn change(store: &mut Store, entries: &[(&str, Option<i64>)], now: u64) -> Stamp {
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        edited.ensure();
        for (key, cents) in entries {
            match cents {
                Some(cents) => edited.put(key, &Entry { cents: *cents })?,
                None => assert!(edited.remove("Ent", Some(key))?, "{key} exists"),
            }
        }
        Ok(())
    };
    edit(store, at(now), work).unwrap().version
}

fn destroy(store: &mut Store, now: u64) {
    let work = |transaction: &mut Transaction<'_>| {
        assert!(transaction.current(&account("a"))?.destroy());
        Ok(())
    };
    edit(store, at(now), work).unwrap();
}

/// Forgets items of `a` that were destroyed before `dtime`, as a purge does.
fn purge(store: &mut Store, dtime: u64) {
    let less =
        copy_of(store).unwrap().forget_before(at(dtime)).expect("there is something to forget");
    store.set(&account("a"), Some(less.into()));
}

fn copy_of(store: &Store) -> Copy {
    store.peek(&account("a")).cloned()
}

fn update(store: &Store, copy: &Copy) -> Update {
    let held = copy.as_deref().map(Held::of);
    store.sync(&account("a"), held.as_ref(), at(10_000)).unwrap()
}

/// Brings a copy up to date, and expects a message and that both say the same then.
fn follow(store: &Store, copy: &mut Copy, message: &str) {
    let update = update(store, copy);
    assert_eq!(update.name(), message);
    *copy = apply(&account("a"), copy.as_ref(), &update).unwrap();
    match (copy, store.peek(&account("a"))) {
        (Some(copy), Some(document)) => assert!(copy.says_the_same(document), "{copy:?}"),
        (None, None) => {}
        (copy, document) => panic!("{copy:?} is not {document:?}"),
    }
}

fn changes(update: &Update) -> &Changes {
    let Update::Changes(changes) = update else {
        panic!("{}", update.name());
    };
    changes
}

fn keys<'a>(items: impl IntoIterator<Item = &'a ItemName>) -> Vec<&'a str> {
    items.into_iter().map(|it| it.key().unwrap()).collect()
}

/// Entries k, l, m at 10; k destroyed at 20; l changed at 30.
fn three_entries() -> (Store, Copy) {
    let mut store = Store::default();
    change(&mut store, &[("k", Some(1)), ("l", Some(1)), ("m", Some(1))], 10);
    let copy = copy_of(&store);
    change(&mut store, &[("k", None)], 20);
    change(&mut store, &[("l", Some(2))], 30);
    (store, copy)
}

#[test]
fn a_copy_of_the_same_version_is_unchanged() {
    let (store, _) = three_entries();
    follow(&store, &mut copy_of(&store), "unchanged");
}

#[test]
fn a_cache_with_nothing_gets_everything_destroyed_items_included() {
    let (store, _) = three_entries();
    let mut copy = None;
    follow(&store, &mut copy, "full");
    assert!(copy.unwrap().item("Ent", Some("k")).unwrap().is_destroyed());
}

#[test]
fn case_1_tells_what_changed_and_what_was_destroyed() {
    let (store, mut copy) = three_entries();
    let update = update(&store, &copy);
    let sent = changes(&update);
    assert_eq!(keys(sent.items().iter().map(Item::name)), ["k", "l"]);
    assert!(sent.items()[0].is_destroyed());
    assert_eq!((sent.since(), sent.version(), sent.unchanged()), (at(10), at(30), None));
    follow(&store, &mut copy, "case 1");
}

#[test]
fn a_copy_exactly_at_dtime_is_case_1_and_one_before_it_case_2() {
    let mut store = Store::default();
    change(&mut store, &[("k", Some(1)), ("l", Some(1))], 10);
    change(&mut store, &[("k", None)], 19);
    let mut before = copy_of(&store);
    change(&mut store, &[("l", Some(2))], 20);
    let mut exactly = copy_of(&store);
    change(&mut store, &[("l", Some(3))], 30);
    purge(&mut store, 20);
    assert_eq!(copy_of(&store).unwrap().dtime(), at(20));
    follow(&store, &mut exactly, "case 1");
    follow(&store, &mut before, "case 2");
    assert_eq!(before.unwrap().dtime(), at(20));
}

#[test]
fn an_item_that_was_destroyed_and_purged_goes_from_the_copy() {
    let (mut store, mut copy) = three_entries();
    purge(&mut store, 21);
    let update = update(&store, &copy);
    let sent = changes(&update);
    assert_eq!(keys(sent.items().iter().map(Item::name)), ["l"]);
    assert_eq!(keys(sent.unchanged().unwrap()), ["m"]);
    follow(&store, &mut copy, "case 2");
    assert!(copy.unwrap().item("Ent", Some("k")).is_none());
}

#[test]
fn an_item_that_changed_in_case_2_is_sent_and_not_named() {
    let (mut store, mut copy) = three_entries();
    change(&mut store, &[("m", Some(5)), ("n", Some(5))], 40);
    purge(&mut store, 35);
    let update = update(&store, &copy);
    let sent = changes(&update);
    assert_eq!(keys(sent.items().iter().map(Item::name)), ["l", "m", "n"]);
    assert_eq!(sent.unchanged(), Some(&[][..]));
    follow(&store, &mut copy, "case 2");
}

#[test]
fn an_empty_list_of_names_is_not_the_same_as_none() {
    let (mut store, copy) = three_entries();
    change(&mut store, &[("m", None), ("l", None)], 40);
    let case_1 = update(&store, &copy);
    assert_eq!(changes(&case_1).unchanged(), None);
    purge(&mut store, 40);
    let case_2 = update(&store, &copy);
    assert_eq!(changes(&case_2).unchanged(), Some(&[][..]));
    let applied = apply(&account("a"), copy.as_ref(), &case_2).unwrap().unwrap();
    assert_eq!(applied.existing().count(), 0);
    // Whoever loses that difference on the wire is refused.
    let mut parts = changes(&case_2).clone().into_parts();
    parts.unchanged = None;
    assert_eq!(Changes::from_parts(parts).unwrap_err().field, "unchanged");
    let mut parts = changes(&case_1).clone().into_parts();
    parts.unchanged = Some(Vec::new());
    assert_eq!(Changes::from_parts(parts).unwrap_err().field, "unchanged");
}

#[test]
fn a_new_life_is_always_sent_whole_also_to_a_copy_newer_than_dtime() {
    let (mut store, mut copy) = three_entries();
    destroy(&mut store, 40);
    follow(&store, &mut copy.clone(), "deleted");
    change(&mut store, &[("z", Some(1))], 50);
    let document = copy_of(&store).unwrap();
    // A copy of the former life whose version is not before the new life's dtime.
    let mut parts = Document::clone(copy.as_ref().unwrap()).into_parts();
    parts.version = at(60);
    let mut odd = Some(Arc::new(Document::from_parts(parts).unwrap()));
    assert!(odd.as_ref().unwrap().version() >= document.dtime());
    follow(&store, &mut odd, "full");
    follow(&store, &mut copy, "full");
    assert_eq!(copy.unwrap().ctime(), at(50));
}

#[test]
fn a_copy_that_missed_the_end_hears_of_it() {
    let (mut store, mut copy) = three_entries();
    destroy(&mut store, 40);
    follow(&store, &mut copy, "deleted");
    let trace = copy.clone().unwrap();
    assert!(trace.is_deleted());
    assert_eq!((trace.ctime(), trace.version()), (at(10), at(40)));
    follow(&store, &mut copy, "unchanged");
    follow(&store, &mut None, "deleted");
    change(&mut store, &[("z", Some(1))], 50);
    follow(&store, &mut copy, "full");
}

#[test]
fn a_document_that_is_gone_without_trace_is_absent() {
    let (mut store, mut copy) = three_entries();
    store.set(&account("a"), None);
    follow(&store, &mut copy, "absent");
    assert_eq!(copy, None);
}

#[test]
fn a_copy_that_is_newer_than_its_source_stays_as_it_is() {
    let (mut store, old) = three_entries();
    let behind = store.clone();
    change(&mut store, &[("m", Some(9))], 40);
    let mut copy = copy_of(&store);
    let update = update(&behind, &copy);
    assert_eq!(update.name(), "source behind");
    let error = apply(&account("a"), copy.as_ref(), &update).unwrap_err();
    assert_eq!(error, ApplyError::SourceBehind { life: at(10), offered: at(30), held: at(40) });
    // Nor does an update that was made for another copy lower the version.
    for late in [Update::Full(old.unwrap()), update_for_held(&behind, 10)] {
        let error = apply(&account("a"), copy.as_ref(), &late).unwrap_err();
        assert!(matches!(error, ApplyError::SourceBehind { .. }), "{error}");
    }
    // A newer life is newer, whatever the versions.
    destroy(&mut store, 50);
    change(&mut store, &[("z", Some(1))], 60);
    follow(&store, &mut copy, "full");
    let held = Held::of(copy.as_ref().unwrap());
    let answer = behind.sync(&account("a"), Some(&held), at(10_000)).unwrap();
    assert_eq!(answer, Update::SourceBehind { ctime: at(10), version: at(30) });
    let ended = Update::Deleted { ctime: at(10), version: at(9_000) };
    assert!(apply(&account("a"), copy.as_ref(), &ended).is_err());
    let absent = Update::Absent { as_of: at(59) };
    assert!(apply(&account("a"), copy.as_ref(), &absent).is_err());
}

fn update_for_held(store: &Store, version: u64) -> Update {
    let held = Held::new(at(10), at(version), at(10)).unwrap();
    store.sync(&account("a"), Some(&held), at(10_000)).unwrap()
}

#[test]
fn an_item_destroyed_and_created_again_in_between_is_simply_changed() {
    let (mut store, mut copy) = three_entries();
    change(&mut store, &[("k", Some(7))], 40);
    let update = update(&store, &copy);
    let sent = changes(&update);
    assert!(!sent.items()[0].is_destroyed());
    follow(&store, &mut copy, "case 1");
    let mut long_ago = Store::default();
    change(&mut long_ago, &[("k", Some(1))], 5);
    follow(&store, &mut copy_of(&long_ago), "full");
}

#[test]
fn an_item_created_and_destroyed_in_between_does_no_harm() {
    let (mut store, mut copy) = three_entries();
    change(&mut store, &[("n", Some(7))], 40);
    change(&mut store, &[("n", None)], 50);
    follow(&store, &mut copy.clone(), "case 1");
    purge(&mut store, 21);
    follow(&store, &mut copy, "case 2");
    assert!(copy.unwrap().item("Ent", Some("n")).unwrap().is_destroyed());
}

#[test]
fn a_chain_of_caches_equals_a_direct_sync() {
    let (mut store, old) = three_entries();
    let (mut near, mut far) = (old.clone(), old.clone());
    follow(&store, &mut near, "case 1");
    change(&mut store, &[("m", None)], 40);
    follow(&store, &mut near, "case 1");
    let through_near = |far: &Copy| {
        let held = far.as_deref().map(Held::of);
        let update = update_for(near.as_ref(), held.as_ref(), at(40));
        (apply(&account("a"), far.as_ref(), &update).unwrap(), update.name())
    };
    let (chained, message) = through_near(&far);
    assert_eq!(message, "case 1");
    follow(&store, &mut far, "case 1");
    assert_eq!(chained, far);
    // Also when the cache in between has forgotten what was destroyed.
    let less = near.as_ref().unwrap().forget_before(at(40)).unwrap().into();
    let held = Held::of(old.as_ref().unwrap());
    let update = update_for(Some(&less), Some(&held), at(40));
    assert_eq!(update.name(), "case 2");
    let mut chained = apply(&account("a"), old.as_ref(), &update).unwrap();
    assert!(chained.as_ref().unwrap().says_the_same(far.as_ref().unwrap()));
    let mut nothing = apply(&account("a"), None, &update_for(Some(&less), None, at(40))).unwrap();
    assert!(nothing.as_ref().unwrap().says_the_same(far.as_ref().unwrap()));
    // What came through it goes on from the source itself.
    change(&mut store, &[("l", None), ("o", Some(1))], 50);
    follow(&store, &mut chained, "case 1");
    follow(&store, &mut nothing, "case 1");
}

#[test]
fn a_purge_while_a_sync_reads_does_not_disturb_it() {
    let (mut store, copy) = three_entries();
    // The sync has read the document; it is still being written to the wire.
    let reading = copy_of(&store).unwrap();
    purge(&mut store, 21);
    let held = Held::of(copy.as_ref().unwrap());
    let update = update_for(Some(&reading), Some(&held), at(30));
    assert_eq!(update.name(), "case 1");
    let applied = apply(&account("a"), copy.as_ref(), &update).unwrap().unwrap();
    assert!(applied.says_the_same(store.peek(&account("a")).unwrap()));
    follow(&store, &mut Some(applied), "unchanged");
}

#[test]
fn an_update_that_does_not_begin_where_the_copy_is_leaves_a_gap() {
    let (mut store, old) = three_entries();
    let middle = copy_of(&store);
    change(&mut store, &[("m", Some(9))], 40);
    let update = update(&store, &middle);
    let error = apply(&account("a"), old.as_ref(), &update).unwrap_err();
    assert_eq!(error, ApplyError::Gap { life: at(10), since: at(30) });
    assert!(apply(&account("a"), None, &update).is_err());
    assert!(
        apply(&account("a"), None, &Update::Unchanged { ctime: at(10), version: at(40) }).is_err()
    );
    // The other way round is fine: what changed since an older version covers it.
    let covers = store.sync(&account("a"), old.as_deref().map(Held::of).as_ref(), at(99)).unwrap();
    let applied = apply(&account("a"), middle.as_ref(), &covers).unwrap().unwrap();
    assert!(applied.says_the_same(store.peek(&account("a")).unwrap()));
}

#[test]
fn a_copy_that_lacks_what_the_source_calls_unchanged_is_told_so() {
    let (mut store, copy) = three_entries();
    purge(&mut store, 21);
    let update = update(&store, &copy);
    let mut parts = Document::clone(copy.as_ref().unwrap()).into_parts();
    parts.items.pop();
    let damaged = Arc::new(Document::from_parts(parts).unwrap());
    let error = apply(&account("a"), Some(&damaged), &update).unwrap_err();
    assert_eq!(error.to_string(), "the copy lacks Ent[m], which the source calls unchanged");
}

#[test]
fn a_cache_is_told_nothing_of_what_operations_remember_but_its_version_moves() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let pay = |store: &mut Store, copy: &Copy, now: u64| {
        let held = copy.as_deref().map(Held::of);
        let syncs = vec![SyncRequest { name: account("a"), held }];
        let request = Request { operation_time: Some(at(now)), syncs, ..transfer("a", "b", 1) };
        store.perform(&operations, &rules, request, at(now)).unwrap().updates.remove(0).1
    };
    // Each as if its balance were all that there is: whole, what changed, and what is left.
    let mut copy = None;
    for (now, message) in
        [(100, "full"), (200, "case 1"), (700_000, "case 1"), (1_400_000, "case 1")]
    {
        let update = pay(&mut store, &copy, now);
        let held = copy.as_deref().map(Held::of);
        assert_eq!(store.sync(&account("a"), held.as_ref(), at(now)), Ok(update.clone()));
        assert_eq!(update.name(), message);
        copy = apply(&account("a"), copy.as_ref(), &update).unwrap();
        let (here, there) = (copy.as_deref().unwrap(), store.peek(&account("a")).unwrap());
        assert_eq!((here.version(), here.volumes()), (there.version(), there.volumes()));
        assert_eq!((here.items().len(), there.items().len()), (1, 1));
    }
    // Who knows the name of what remembers one is told nothing of what it holds.
    let memory = store.iter().find(|it| it.name().is_memory()).unwrap();
    let told = store.sync(memory.name(), None, at(1_400_000)).unwrap();
    let told = apply(memory.name(), None, &told).unwrap().unwrap();
    assert!(told.items().is_empty() && !memory.items().is_empty());
    let before = copy;
    pay(&mut store, &before, 1_400_001);
    let update = update(&store, &before);
    assert_eq!(update.name(), "case 1");
    let after = apply(&account("a"), before.as_ref(), &update).unwrap().unwrap();
    assert_eq!(after.existing().count(), 1);
    // Who keeps a copy that may be written to asks for all.
    let whole = update_for(copy_of(&store).as_ref(), None, at(0));
    assert_eq!(whole, Update::Full(copy_of(&store).unwrap()));
}

#[test]
fn an_update_for_another_document_is_refused() {
    let (store, _) = three_entries();
    let update = Update::Full(copy_of(&store).unwrap());
    let error = apply(&account("b"), None, &update).unwrap_err();
    assert_eq!(error, ApplyError::OtherDocument { offered: account("a") });
}

#[test]
fn a_version_from_the_future_is_refused() {
    let (store, _) = three_entries();
    let held = Held::new(at(10), at(10_001), at(10)).unwrap();
    let error = store.sync(&account("a"), Some(&held), at(10_000)).unwrap_err();
    assert_eq!(error.field, "version");
    assert!(error.problem.contains("in the future"));
    assert_eq!(Held::new(at(10), at(9), at(10)).unwrap_err().field, "dtime");
}

#[test]
fn changes_whose_parts_do_not_fit_are_refused() {
    let (mut store, copy) = three_entries();
    purge(&mut store, 21);
    let good = changes(&update(&store, &copy)).clone().into_parts();
    assert!(Changes::from_parts(good.clone()).is_ok());
    let refused = |change: &dyn Fn(&mut ChangesParts)| {
        let mut parts = good.clone();
        change(&mut parts);
        Changes::from_parts(parts).unwrap_err().field
    };
    let name = |key: &str| ItemName::keyed("Ent", key).unwrap();
    assert_eq!(refused(&|it| it.since = at(30)), "since");
    assert_eq!(refused(&|it| it.since = at(9)), "since");
    assert_eq!(refused(&|it| it.dtime = at(31)), "dtime");
    assert_eq!(refused(&|it| it.dtime = at(9)), "dtime");
    assert_eq!(refused(&|it| it.unchanged = Some(vec![name("m"), name("m")])), "items");
    assert_eq!(refused(&|it| it.unchanged = Some(vec![name("l")])), "unchanged");
    assert_eq!(refused(&|it| it.items.push(Item::destroyed(name("a"), at(30)))), "items");
    assert_eq!(refused(&|it| it.items.push(Item::destroyed(name("z"), at(31)))), "version");
    assert_eq!(refused(&|it| it.items.push(Item::destroyed(name("z"), at(10)))), "version");
}
