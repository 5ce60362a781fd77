//! Documents that are full: what was destroyed, and what is remembered, is in nobody's way.

use crate::bank::*;
use rota_docstore::*;
use rota_model::Retry;
use std::sync::Arc;

/// The limit of items of a document.
const MOST: usize = 16_384;

/// Puts and removes entries, as many as there are numbers, in one operation.
fn change(store: &mut Store, now: u64, put: std::ops::Range<u32>, removed: std::ops::Range<u32>) {
    changed(store, now, put, removed).unwrap();
}

fn changed(
    store: &mut Store,
    now: u64,
    put: std::ops::Range<u32>,
    removed: std::ops::Range<u32>,
) -> Result<Commit, Exception> {
    edit(store, at(now), |transaction| {
        let edited = transaction.current(&account("c"))?;
        edited.ensure();
        for key in removed {
            edited.remove("Ent", Some(&key.to_string()))?;
        }
        for key in put {
            edited.put(&key.to_string(), &Entry { cents: key.into() })?;
        }
        Ok(())
    })
}

fn source(store: &Store, docid: &str) -> Arc<Document> {
    Arc::clone(store.peek(&account(docid)).unwrap())
}

/// Brings a copy up to date from another one, over a wire; says which update it took.
fn followed(copy: &mut Arc<Document>, from: &Arc<Document>) -> &'static str {
    let update = update_for(Some(from), Some(&Held::of(copy)), from.version());
    let kind = update.name();
    let update = match update {
        Update::Changes(it) => Update::Changes(Changes::from_parts(it.into_parts()).unwrap()),
        other @ (Update::Full(_)
        | Update::Unchanged { .. }
        | Update::Deleted { .. }
        | Update::Absent { .. }
        | Update::SourceBehind { .. }) => other,
    };
    *copy = apply(from.name(), Some(copy), &update).unwrap().unwrap();
    let parts = Document::clone(copy).into_parts();
    assert_eq!(Document::from_parts(parts).as_ref(), Ok(&**copy), "a valid document");
    assert!(copy.says_the_same(from));
    kind
}

#[test]
fn what_was_destroyed_gives_way_when_a_document_is_full_and_its_caches_follow() {
    let mut store = Store::default();
    let mut copies = Vec::new();
    change(&mut store, 1, 0..16_380, 0..0);
    for (now, removed) in
        [(2, 0..4_000), (3, 4_000..8_000), (4, 8_000..12_000), (5, 12_000..16_380)]
    {
        copies.push(source(&store, "c"));
        change(&mut store, now, 0..0, removed);
    }
    copies.push(source(&store, "c"));
    assert_eq!(source(&store, "c").dtime(), at(1), "there is room for all of it");
    change(&mut store, 6, 20_000..20_010, 0..0);
    let full = source(&store, "c");
    // Half of the room is left to what was destroyed last, and none of one version is lost alone.
    assert_eq!(full.dtime(), at(4).next());
    let destroyed = full.items().iter().filter(|it| it.is_destroyed());
    assert_eq!((destroyed.count(), full.existing().count()), (4_380, 10));
    for _ in 0..2 {
        let kinds: Vec<_> = copies.iter_mut().map(|copy| followed(copy, &full)).collect();
        let kinds: Vec<_> = kinds.into_iter().filter(|it| *it != "unchanged").collect();
        assert!(kinds.is_empty() || kinds == ["case 2", "case 2", "case 2", "case 2", "case 1"]);
    }
    // The caches serve others that knew everything, or nothing of what was destroyed.
    let mut chain = copies.pop().unwrap();
    change(&mut store, 7, 20_000..20_020, 0..0);
    let last = source(&store, "c");
    assert_eq!(followed(&mut chain, &last), "case 1");
    for copy in &mut copies {
        assert_eq!(followed(copy, &chain), "case 1");
    }
}

#[test]
fn what_exists_and_what_the_operation_itself_destroys_still_count() {
    let mut store = Store::default();
    change(&mut store, 1, 0..16_384, 0..0);
    let too_many = |exception: Exception| {
        assert_eq!(exception.code(), &codes::LIMIT);
        exception.details().fields[0].problem.clone()
    };
    let one_more = changed(&mut store, 2, 20_000..20_001, 0..0).unwrap_err();
    assert_eq!(too_many(one_more), "of bank/Acc/c are 16385; the limit is 16384");
    let exchanged = changed(&mut store, 2, 20_000..20_010, 0..10).unwrap_err();
    assert_eq!(too_many(exchanged), "of bank/Acc/c are 16394; the limit is 16384");
    change(&mut store, 3, 0..0, 0..10);
    change(&mut store, 4, 20_000..20_010, 0..0);
    let document = source(&store, "c");
    assert_eq!((document.items().len(), document.dtime()), (MOST, at(3).next()));
}

/// A small transfer, with the caller's time of the operation.
fn small(operation_time: u64) -> Request {
    Request { operation_time: Some(at(operation_time)), ..transfer("a", "b", 1) }
}

#[test]
fn what_operations_remember_weighs_nothing_on_their_document() {
    let mut store = two_accounts();
    set_balance(&mut store, "a", 1_000_000, at(1));
    let mut bytes = Vec::new();
    let mut early = source(&store, "a");
    for n in 1..=3_000_u64 {
        store.perform(&operations(), &rules(), small(n * 2_000), at(n * 2_000)).unwrap();
        store.purge(&rules(), at(n * 2_000), None, 10_000);
        bytes.push(source(&store, "a").memory_bytes());
    }
    assert_eq!(bytes.first(), bytes.last());
    // One in 2 s is remembered for 11 minutes; and how much is forgotten.
    assert!((330..=332).contains(&store.remembered().count), "{}", store.remembered().count);
    assert_eq!(
        store.iter().filter(|it| it.name().is_memory()).count(),
        store.remembered().count + 1
    );
    let document = source(&store, "a");
    assert_eq!(followed(&mut early, &document), "case 1");
}

/// Removes entries of a document; remembers that it did.
#[derive(serde::Serialize, serde::Deserialize)]
struct Remove {
    keys: Vec<u32>,
}

impl Operation for Remove {
    const NAME: &'static str = "remove";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        Ok(parameters)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = account("c");
        for key in &self.keys {
            transaction.current(&name)?.remove("Ent", Some(&key.to_string()))?;
        }
        transaction.remember(&name, &"removed".repeat(100))
    }
}

fn remove(now: u64, keys: std::ops::Range<u32>) -> Request {
    let remove = Remove { keys: keys.collect() };
    let request = Request::new(space(), "remove").with(&remove).unwrap();
    let request_id = RequestId::parse(&format!("r{now}")).ok();
    Request { operation_time: Some(at(now)), request_id, ..request }
}

#[test]
fn a_full_document_of_a_full_namespace_gets_smaller_by_operations_that_are_remembered() {
    let mut store = Store::default();
    change(&mut store, 1, 0..16_384, 0..0);
    let full = source(&store, "c").volumes().item_bytes;
    let limits = Limits { documents: Some(1), item_bytes: Some(full), attachment_bytes: None };
    let description = Description { limits, ..Description::default() };
    describe(&mut store, space().as_str(), &description, at(2));
    let operations = Operations::new().with::<Remove>();
    for (now, keys) in [(10, 0..1), (20, 1..2), (30, 2..10)] {
        store.perform(&operations, &rules(), remove(now, keys), at(now)).unwrap();
    }
    let document = source(&store, "c");
    let left = document.existing().filter(|(name, _)| name.class() == "Ent").count();
    assert_eq!((left, document.volumes().item_bytes < full), (16_374, true));
    assert_eq!(store.usage(space().as_str()).item_bytes, document.volumes().item_bytes);
    assert_eq!(store.remembered().count, 3);
    let bytes = Document::clone(&document).into_parts();
    assert_eq!(Document::from_parts(bytes).as_ref(), Ok(&*document), "a valid document");
}

#[test]
fn a_store_remembers_a_bounded_number_of_operations_and_then_says_when_to_come_back() {
    let mut store = two_accounts();
    set_balance(&mut store, "a", 1_000_000, at(1));
    let rules = Rules { memories_max: 100, ..rules() };
    let perform = |store: &mut Store, now: u64, operation_time: u64| {
        store.perform(&operations(), &rules, small(operation_time), at(now))
    };
    let first = perform(&mut store, 10_000, 2).unwrap();
    for n in 1..100 {
        perform(&mut store, 10_000 + n, 2 + n).unwrap();
    }
    let refused = perform(&mut store, 20_000, 9_000).unwrap_err();
    assert_eq!((refused.code(), refused.details().attempts), (&codes::BUSY, 1), "others are vain");
    let field = &refused.details().fields[0];
    let problem =
        "cannot be remembered: as many operations are remembered as may be; the limit is 100";
    assert_eq!((&*field.field, &*field.problem), ("operation_time", problem));
    let Retry::AfterMs(wait_ms) = refused.retry() else { panic!("{:?}", refused.retry()) };
    let gone = 2 + 11 * 60_000;
    assert!((gone..gone + 20_000).contains(&(20_000 + wait_ms)), "{wait_ms} ms");
    assert_eq!(perform(&mut store, 20_000, 2).unwrap(), first, "what it remembers is known");
    // As long as it said, and not sooner.
    store.purge(&rules, at(gone), None, 1_000);
    assert!(perform(&mut store, gone, gone - 1).is_err());
    store.purge(&rules, at(20_000 + wait_ms), None, 1_000);
    assert!(perform(&mut store, 20_000 + wait_ms, gone).is_ok(), "the oldest are forgotten");
}
