//! What is there after a good end and a new start.

use super::*;
use rota_docstore::{Cache, Description, Held, Letter, Spaces, Tolerance, Update, apply, codes};
use rota_storage::documents::Source;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[test]
fn a_repeated_operation_gets_the_same_answer_and_one_version_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let mut request = once(add(&["a", "b"], 3));
    let first = store.run(request.clone()).expect("it is valid");
    assert_eq!(store.run(request.clone()).expect("it is repeated"), first);
    store.close(PATIENCE).expect("closes");
    let store = open(folder.path());
    let again = store.run(request.clone()).expect("it is repeated");
    assert_eq!((number(&again), again.version), (3, first.version));
    for id in ["a", "b"] {
        let document = store.get(&account(id)).expect("reads").expect("it is there");
        assert_eq!((count_in(&document), document.version()), (3, first.version));
    }
    request.operation_time = Some(now().plus_ms(60_000));
    let error = store.run(request).expect_err("it is in the future");
    assert_eq!(*error.exception().expect("an exception").code(), codes::TIME);
}

#[test]
fn versions_grow_over_a_restart_with_a_clock_that_steps_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(AtomicU64::new(1_800_000_000_000));
    let with_clock = |clock: &Arc<AtomicU64>| {
        let clock = Arc::clone(clock);
        Setup { clock: Arc::new(move || clock.load(SeqCst)), ..setup() }
    };
    let start = || open_with(Arc::new(RealDisk), folder.path(), with_clock(&clock));
    let store = start().expect("opens");
    let first = store.run(add(&["a"], 1)).expect("it is valid").version;
    change(&store, |transaction| {
        let name = transaction.name("Acc", "a")?;
        transaction.current(&name)?.destroy();
        Ok(())
    });
    let end = store.high_water();
    assert!(end > first, "the document changed");
    // The trace goes, and with it the only document that says the latest version.
    clock.fetch_add(8 * 24 * 3_600_000, SeqCst);
    let step = store.purge().expect("purges");
    assert_eq!((step.removed, step.is_round, store.len()), (1, true, 0));
    let mark = store.high_water();
    assert!(mark > end, "who asks for the document now is told of a time after its end");
    store.close(PATIENCE).expect("closes");
    clock.store(1_700_000_000_000, SeqCst);
    let store = start().expect("opens");
    assert_eq!((store.high_water(), store.len()), (mark, 0));
    let version = store.run(add(&["a"], 1)).expect("it is valid").version;
    assert!(version > end, "{version} {end}");
}

#[test]
fn a_cache_goes_on_after_its_source_started_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    store.run(add(&["a"], 1)).expect("it is valid");
    let name = account("a");
    let full = store.update_for(&name, None).expect("answers");
    let copy = apply(&name, None, &full).expect("it applies").expect("it is there");
    store.close(PATIENCE).expect("closes");
    let store = open(folder.path());
    let held = Held::of(&copy);
    assert_eq!(store.update_for(&name, Some(&held)).expect("answers").name(), "unchanged");
    store.run(add(&["a"], 1)).expect("it is valid");
    store.close(PATIENCE).expect("closes");
    let store = open(folder.path());
    let update = store.update_for(&name, Some(&held)).expect("answers");
    assert_eq!(update.name(), "case 1");
    let copy = apply(&name, Some(&copy), &update).expect("it applies").expect("it is there");
    assert_eq!(*copy, *store.get(&name).expect("reads").expect("it is there"));
}

#[test]
fn documents_stream_in_order_of_slots_and_the_lists_are_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    for first in (0..600).step_by(30) {
        let ids: Vec<String> =
            (first..first + 30).map(|it| format!("{}-{it}", first / 30 % SLOTS)).collect();
        change(&store, move |transaction| {
            for id in &ids {
                let name = transaction.name("Raw", id)?;
                transaction.current(&name)?.ensure();
            }
            Ok(())
        });
    }
    let stream = |store: &DocumentStore, from, to| {
        let names = store.stream(SlotId(from)..=SlotId(to)).map(|read| {
            let document = read.expect("reads");
            (Slots.slot_of(document.name()), document.name().clone())
        });
        names.collect::<Vec<_>>()
    };
    let all = stream(&store, 0, u32::MAX);
    assert_eq!(all.len(), 600);
    assert!(all.is_sorted() && all.windows(2).all(|it| it[0] != it[1]));
    let part = stream(&store, 3, 7);
    let expected: Vec<_> = all.iter().filter(|it| (3..=7).contains(&it.0.0)).cloned().collect();
    assert_eq!(part, expected);
    assert!(stream(&store, 7, 3).is_empty());
    store.close(PATIENCE).expect("closes");
    assert_eq!(stream(&open(folder.path()), 0, u32::MAX), all);
}

#[test]
fn a_namespace_that_is_switched_off_stays_off_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    store.run(add(&["a"], 1)).expect("it is open");
    let configuration = Spaces::default().configuration().clone();
    let describe = |off: Option<&str>| {
        let description = Description { off: off.map(str::to_owned), ..Description::default() };
        Do(move |transaction: &mut Transaction<'_>| {
            let name = transaction.name("Space", "bank")?;
            let edited = transaction.current(&name)?;
            edited.ensure();
            edited.put_one(&description)
        })
    };
    let request = || Request::new(configuration.clone(), "do");
    store.run_this(request(), describe(Some("we move house"))).expect("z is always open");
    store.close(PATIENCE).expect("closes");
    let store = open(folder.path());
    let refusals = [
        store.run(add(&["a"], 1)).map(drop).expect_err("it is off"),
        store.update_for(&account("a"), None).map(drop).expect_err("it is off"),
    ];
    for error in refusals {
        let exception = error.exception().expect("an exception").clone();
        assert_eq!(exception.letter(), Letter::O);
        assert!(exception.to_string().ends_with("we move house"), "{exception}");
    }
    store.run_this(request(), describe(None)).expect("z is always open");
    store.run(add(&["a"], 1)).expect("it is on again");
}

/// Accounts live in another store.
struct Here;

impl Territory for Here {
    fn slot_of(&self, name: &DocName) -> SlotId {
        SlotId(u32::from(name.class() == "Acc"))
    }
    fn holds(&self, slot: SlotId) -> bool {
        slot == SlotId(0)
    }
}

#[test]
fn documents_of_another_store_are_read_through_a_cache_far_smaller_than_they_are() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let far = Arc::new(open(folders[0].path()));
    for id in 0..400 {
        far.run(add(&[&id.to_string()], id)).expect("it is valid");
    }
    let source: Arc<dyn Source> = Arc::clone(&far) as _;
    let own = Rules { territory: Arc::new(Here), ..rules() };
    let near = Setup { rules: own, source: Some(source), cache_bytes: 16 * 1024, ..setup() };
    let near = open_with(Arc::new(RealDisk), folders[1].path(), near).expect("opens");
    let read = |ids: Vec<u64>| {
        let answer = change(&near, move |transaction| {
            let mut sum = 0;
            for id in &ids {
                let name = transaction.name("Acc", &id.to_string())?;
                let found = transaction.recent(&name, Tolerance::seconds(600))?.one::<Count>()?;
                sum += found.map_or(0, |it| it.count);
            }
            transaction.answer_json(&sum)
        });
        number(&answer)
    };
    for first in (0..400).step_by(4) {
        assert_eq!(read((first..first + 4).collect()), 4 * first + 6);
    }
    // A copy that is fresh enough is not fetched again.
    assert_eq!(read(vec![399]), 399);
    far.run(add(&["399"], 1)).expect("it is valid");
    assert_eq!(read(vec![399]), 399);
    // Tolerance 0 is for documents of this store only.
    let current = Do(|transaction: &mut Transaction<'_>| {
        let name = transaction.name("Acc", "1")?;
        transaction.current(&name).map(drop)
    });
    let error = near.run_this(Request::new(space(), "do"), current).expect_err("it is elsewhere");
    assert_eq!(*error.exception().expect("an exception").code(), codes::SLOT);
}

#[test]
fn a_small_cache_follows_a_store_that_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let mut cache = Cache::new(rules().schema, 8 * 1024);
    for round in 0..600u64 {
        let id = (round * 7 % 97).to_string();
        let name = account(&id);
        store.run(add(&[&id], 1)).expect("it is valid");
        let update = store.update(&name, cache.held(&name).as_ref()).expect("answers");
        cache.apply(&name, &update, now()).expect("it applies");
        let copy = cache.peek(&name).expect("it is kept");
        assert_eq!(**copy, *store.get(&name).expect("reads").expect("it is there"));
        assert!(cache.bytes() <= 8 * 1024);
        assert!(!matches!(update, Update::SourceBehind { .. }));
    }
    assert!(cache.len() < 97, "it is far smaller than the data");
}
