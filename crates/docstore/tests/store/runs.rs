//! Requests on their way: attempts, pauses, fetches, answers.

use crate::bank::*;
use rota_docstore::run::{ATTEMPTS_MAX, FETCHES_MAX, PAUSES_MS};
use rota_docstore::*;
use serde::Deserialize;
use std::sync::Arc;

/// Works, and returns what came of it.
fn work(run: &mut Run, operations: &Operations, store: &Store, now: Stamp) -> Next {
    run.work(operations, &rules(), store, None, now)
}

#[test]
fn contention_is_tried_again_after_growing_pauses_and_at_most_three_times() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let mut run = Run::new(transfer("a", "b", 1));
    let mut pauses = Vec::new();
    let exception = loop {
        assert_eq!(work(&mut run, &operations, &store, at(1)), Next::Validate);
        // Somebody else is always faster.
        set_balance(&mut store, "a", 100 + pauses.len() as i64 + 1, at(1));
        match run.validate(&rules, &mut store, at(1)) {
            Validated::Pause { ms } => pauses.push(ms),
            Validated::Failed(exception) => break exception,
            Validated::Valid(commit) => panic!("{commit:?}"),
        }
    };
    assert_eq!(pauses, PAUSES_MS);
    assert!(pauses.is_sorted_by(|a, b| a < b));
    assert_eq!((exception.code(), exception.phase()), (&codes::CONTENTION, Phase::Validation));
    assert_eq!(exception.details().attempts, ATTEMPTS_MAX);
    assert_eq!(exception.phase().effect(), Effect::Nothing);
    assert_eq!(balance(&store, "b"), Some(0));
}

#[test]
fn a_later_attempt_sees_what_was_in_its_way() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let mut run = Run::new(transfer("a", "b", 1));
    assert_eq!(work(&mut run, &operations, &store, at(1)), Next::Validate);
    set_balance(&mut store, "a", 50, at(2));
    assert_eq!(run.validate(&rules, &mut store, at(3)), Validated::Pause { ms: PAUSES_MS[0] });
    assert_eq!(work(&mut run, &operations, &store, at(23)), Next::Validate);
    let Validated::Valid(commit) = run.validate(&rules, &mut store, at(23)) else {
        panic!("nothing was in the way");
    };
    let answer = run.finish(&store, &commit).unwrap();
    assert_eq!(receipt(&answer).from_cents, 49);
    assert_eq!(answer.version, commit.version);
}

/// Does what it is told: fails in several ways, reads from elsewhere.
#[derive(Deserialize)]
struct Fail {
    how: String,
}

impl Operation for Fail {
    const NAME: &'static str = "fail";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        assert_ne!(parameters.how, "early panic", "on purpose, early");
        Ok(parameters)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        transaction.current(&account("a"))?.put_one(&Balance { cents: 1, note: None })?;
        match self.how.as_str() {
            "panic" => panic!("on purpose"),
            "unexpected" => Err(Exception::unexpected("DISK", "the disk is full")),
            "bug" => Err(Exception::bug("WHAT", "this should not be")),
            "binary" => transaction.answer_binary("image/png", vec![1, 2, 3]),
            _ => Ok(()),
        }
    }

    fn after_work(&mut self, _: &mut Done<'_>) -> Result<(), Exception> {
        match self.how.as_str() {
            "late" => Err(Exception::unexpected("LATE", "it is done all the same")),
            "late panic" => panic!("on purpose, late"),
            _ => Ok(()),
        }
    }
}

fn fail(how: &str) -> Request {
    Request::new(space(), "fail").with(&serde_json::json!({ "how": how })).unwrap()
}

#[test]
fn a_panic_and_the_unexpected_are_x_and_tried_again_and_a_bug_is_not() {
    let operations = Operations::new().with::<Fail>();
    for (how, code, attempts) in
        [("panic", "X-PANIC", 3), ("unexpected", "X-DISK", 3), ("bug", "B-WHAT", 1)]
    {
        let mut store = two_accounts();
        let exception = store.perform(&operations, &rules(), fail(how), at(1)).unwrap_err();
        assert_eq!(exception.code().as_str(), code);
        assert_eq!(exception.details().attempts, attempts, "{how}");
        assert_eq!(exception.phase(), Phase::Work);
        assert_eq!(balance(&store, "a"), Some(100), "nothing is written");
    }
    let mut store = two_accounts();
    let exception = store.perform(&operations, &rules(), fail("panic"), at(1)).unwrap_err();
    assert_eq!(exception.to_string(), "X-PANIC: code of the application panicked: on purpose");
}

/// Asks a service that is broken.
struct Broken;

impl Checker for Broken {
    fn check(&self, _: &Credentials, _: &str, _: &str) -> Result<(), String> {
        panic!("on purpose, in a check")
    }
}

#[test]
fn a_panic_before_any_work_is_x_too() {
    let operations = Operations::new().with::<Fail>();
    let mut store = two_accounts();
    let broken = Rules { checker: Arc::new(Broken), ..rules() };
    for (rules, how, part) in [(rules(), "early panic", "early"), (broken, "well", "in a check")] {
        let exception = store.perform(&operations, &rules, fail(how), at(1)).unwrap_err();
        assert_eq!((exception.code().as_str(), exception.phase()), ("X-PANIC", Phase::Before));
        assert!(exception.to_string().contains(part), "{exception}");
    }
}

#[test]
fn what_fails_after_the_commit_is_not_tried_again() {
    let operations = Operations::new().with::<Fail>();
    for (how, code) in [("late", "X-LATE"), ("late panic", "X-PANIC")] {
        let mut store = two_accounts();
        let exception = store.perform(&operations, &rules(), fail(how), at(1)).unwrap_err();
        assert_eq!((exception.code().as_str(), exception.phase()), (code, Phase::AfterWork));
        assert_eq!(exception.phase().effect(), Effect::Committed);
        assert_eq!(exception.details().attempts, 1);
        assert_eq!(balance(&store, "a"), Some(1), "it happened");
    }
}

#[test]
fn the_answer_brings_the_documents_that_the_caller_named_up_to_date() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let held = |docid: &str, store: &Store| Some(Held::of(store.peek(&account(docid)).unwrap()));
    let mut request = transfer("a", "b", 1);
    let sync = |docid: &str, held| SyncRequest { name: account(docid), held };
    set_balance(&mut store, "c", 3, at(1));
    request.syncs = vec![
        sync("a", held("a", &store)),
        sync("b", None),
        sync("c", held("c", &store)),
        sync("d", None),
    ];
    let answer = store.perform(&operations, &rules, request.clone(), at(2)).unwrap();
    let names: Vec<_> = answer.updates.iter().map(|(name, it)| (name.docid(), it.name())).collect();
    let expected = [("a", "case 1"), ("b", "full"), ("c", "unchanged"), ("d", "absent")];
    assert_eq!(names, expected);
    // Bytes travel alone.
    let binary = Request { syncs: request.syncs, ..fail("binary") };
    let operations = Operations::new().with::<Fail>();
    let answer = store.perform(&operations, &rules, binary, at(3)).unwrap();
    assert_eq!(answer.body, Body::binary("image/png", vec![1, 2, 3]).unwrap());
    assert_eq!(answer.updates, []);
}

#[test]
fn a_namespace_that_is_switched_off_during_a_pause_ends_the_run() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let mut run = Run::new(transfer("a", "b", 1));
    assert_eq!(work(&mut run, &operations, &store, at(1)), Next::Validate);
    set_balance(&mut store, "a", 50, at(2));
    assert!(matches!(run.validate(&rules, &mut store, at(3)), Validated::Pause { .. }));
    let z = Namespace::parse("z").unwrap();
    let name = DocName::new(&z, "Space", "bank").unwrap();
    let mut attempt = Attempt::new(z, at(4));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    let edited = transaction.current(&name).unwrap();
    edited.ensure();
    let off = Some("closed".to_owned());
    edited.put_one(&Description { off, ..Description::default() }).unwrap();
    store.commit(&rules, attempt, at(4)).unwrap();
    let Next::Failed(exception) = work(&mut run, &operations, &store, at(23)) else {
        panic!("it is off");
    };
    assert_eq!((exception.letter(), exception.phase()), (Letter::O, Phase::Before));
}

#[test]
fn validating_before_working_is_an_exception() {
    let mut run = Run::new(transfer("a", "b", 1));
    let validated = run.validate(&rules(), &mut two_accounts(), at(1));
    let Validated::Failed(exception) = validated else {
        panic!("there is nothing to validate");
    };
    assert_eq!(*exception.code(), codes::MISUSE);
}

/// Accounts live here, sums elsewhere.
struct AccountsOnly;

impl Territory for AccountsOnly {
    fn slot_of(&self, name: &DocName) -> SlotId {
        SlotId(u32::from(name.class() == "Sum"))
    }
    fn holds(&self, slot: SlotId) -> bool {
        slot == SlotId(0)
    }
}

fn sum(docid: &str) -> DocName {
    DocName::new(&space(), "Sum", docid).unwrap()
}

/// Copies the balances of two sums that live elsewhere.
#[derive(Deserialize)]
struct CopySums {}

impl Operation for CopySums {
    const NAME: &'static str = "copy-sums";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        Ok(parameters)
    }

    fn documents(&self, _: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let wanted = |docid: &str| Wanted::recent(sum(docid), Tolerance::seconds(2));
        Ok(vec![wanted("x"), wanted("y")])
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let mut cents = 0;
        for docid in ["x", "y"] {
            let edited = transaction.recent(&sum(docid), Tolerance::seconds(2))?;
            cents += edited.one::<Balance>()?.map_or(0, |it| it.cents);
        }
        let edited = transaction.current(&account("a"))?;
        edited.ensure();
        edited.put_one(&Balance { cents, note: None })
    }
}

/// A store that has the sums.
fn sums(x: i64, now: Stamp) -> Store {
    let mut store = Store::default();
    for (docid, cents) in [("x", x), ("y", 2)] {
        let put = |transaction: &mut Transaction<'_>| {
            let edited = transaction.current(&sum(docid))?;
            edited.ensure();
            edited.put_one(&Balance { cents, note: None })
        };
        edit(&mut store, now, put).unwrap();
    }
    store
}

#[test]
fn documents_of_elsewhere_are_fetched_together_and_read_while_fresh() {
    let rules = Rules { territory: Arc::new(AccountsOnly), ..rules() };
    let operations = Operations::new().with::<CopySums>();
    let (mut store, source) = (Store::default(), sums(40, at(0)));
    let mut cache = Cache::new(Arc::clone(&rules.schema), 100_000);
    let request = Request::new(space(), "copy-sums");
    let mut run = Run::new(request.clone());
    let Next::Fetch(needs) = run.work(&operations, &rules, &store, Some(&mut cache), at(1_000))
    else {
        panic!("nothing is cached");
    };
    assert_eq!(needs.len(), 2);
    for need in &needs {
        let update = source.sync(&need.name, need.held.as_ref(), at(1_000)).unwrap();
        cache.apply(&need.name, &update, at(1_000)).unwrap();
    }
    let next = run.work(&operations, &rules, &store, Some(&mut cache), at(1_010));
    assert_eq!((next, run.attempts()), (Next::Validate, 1));
    let Validated::Valid(commit) = run.validate(&rules, &mut store, at(1_010)) else {
        panic!("nothing was in the way");
    };
    assert_eq!(commit.writes.len(), 1);
    assert_eq!(balance(&store, "a"), Some(42));
    // As long as the tolerance allows, nobody is asked again; then only for what changed.
    let mut run = Run::new(request.clone());
    let next = run.work(&operations, &rules, &store, Some(&mut cache), at(3_000));
    assert_eq!(next, Next::Validate);
    let mut run = Run::new(request);
    let next = run.work(&operations, &rules, &store, Some(&mut cache), at(3_001));
    let Next::Fetch(needs) = next else {
        panic!("it is stale");
    };
    let update = source.sync(&needs[0].name, needs[0].held.as_ref(), at(3_001)).unwrap();
    assert_eq!(update.name(), "unchanged");
}

#[test]
fn documents_that_do_not_fit_into_the_cache_are_fetched_once_and_refused_with_size_and_limit() {
    let rules = Rules { territory: Arc::new(AccountsOnly), ..rules() };
    let operations = Operations::new().with::<CopySums>();
    let (store, source) = (Store::default(), sums(4, at(0)));
    let one = Cache::new(Arc::clone(&rules.schema), 100_000)
        .apply(&sum("x"), &source.sync(&sum("x"), None, at(0)).unwrap(), at(0))
        .unwrap();
    let told = |bytes_max: u64| {
        let mut cache = Cache::new(Arc::clone(&rules.schema), bytes_max);
        let mut run = Run::new(Request::new(space(), "copy-sums"));
        let next = run.work(&operations, &rules, &store, Some(&mut cache), at(1));
        let Next::Fetch(needs) = next else { panic!("nothing is cached") };
        let fetched = needs.iter().try_for_each(|Need { name, .. }| {
            let update = source.sync(name, None, at(1)).unwrap();
            let bytes = cache.apply(name, &update, at(1)).unwrap();
            run.fetched(name, bytes, cache.bytes_max())
        });
        let next = run.fetch_failed(fetched.expect_err("they do not fit")).unwrap_err();
        assert_eq!((next.code(), next.phase()), (&codes::LIMIT, Phase::Before));
        assert_eq!(next.details().fields[0].field, "documents");
        next.details().message.clone()
    };
    let alone = format!("bank/Sum/x takes {one} bytes of memory; the limit is {}", one - 1);
    assert!(told(one - 1).contains(&alone), "{}", told(one - 1));
    let both = format!("2 documents, bank/Sum/y with {one} among them, take {} bytes", 2 * one);
    assert!(told(2 * one - 1).contains(&both), "{}", told(2 * one - 1));
}

#[test]
fn a_document_that_may_be_less_stale_than_before_is_looked_up_again() {
    let rules = Rules { territory: Arc::new(AccountsOnly), ..rules() };
    let (store, source) = (Store::default(), sums(40, at(0)));
    let mut cache = Cache::new(Arc::clone(&rules.schema), 100_000);
    let name = sum("x");
    cache.apply(&name, &source.sync(&name, None, at(0)).unwrap(), at(0)).unwrap();
    let mut attempt = Attempt::new(space(), at(5_000));
    let mut transaction = Transaction::new(&rules, &store, Some(&mut cache), &mut attempt);
    assert!(transaction.recent(&name, Tolerance::seconds(5)).unwrap().exists());
    assert!(transaction.recent(&name, Tolerance::seconds(9)).unwrap().exists());
    let exception = transaction.recent(&name, Tolerance::seconds(4)).unwrap_err();
    assert_eq!(*exception.code(), codes::NOT_AT_HAND);
    let needs = attempt.take_needs();
    assert_eq!(needs[0].held, Some(Held::of(source.peek(&name).unwrap())));
}

#[test]
fn a_document_that_is_never_fresh_enough_ends_the_run() {
    let rules = Rules { territory: Arc::new(AccountsOnly), ..rules() };
    let operations = Operations::new().with::<CopySums>();
    let store = Store::default();
    let mut run = Run::new(Request::new(space(), "copy-sums"));
    for _ in 0..FETCHES_MAX {
        let next = run.work(&operations, &rules, &store, None, at(1));
        assert!(matches!(next, Next::Fetch(_)), "{next:?}");
    }
    let Next::Failed(exception) = run.work(&operations, &rules, &store, None, at(1)) else {
        panic!("it must end");
    };
    assert_eq!(*exception.code(), codes::NOT_AT_HAND);
    assert!(exception.to_string().contains("bank/Sum/x, bank/Sum/y"), "{exception}");
}
