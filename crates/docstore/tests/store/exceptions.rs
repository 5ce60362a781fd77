//! Each letter happens, in its phase.

use crate::bank::*;
use rota_docstore::*;
use rota_model::Retry;
use std::sync::Arc;

fn refused(rules: &Rules, request: Request) -> Exception {
    two_accounts().perform(&operations(), rules, request, at(1_000)).unwrap_err()
}

fn seen(exception: &Exception) -> (&str, u8, u8, Status) {
    let major = exception.letter().row().major;
    (exception.code().as_str(), major, exception.phase().number(), exception.status())
}

#[test]
fn a_business_rule_is_a_in_the_work() {
    let exception = refused(&rules(), transfer("a", "b", 101));
    assert_eq!(seen(&exception), ("A-POOR", 1, 1, Status::FailedPrecondition));
    assert_eq!(exception.details().operation, "transfer");
    assert_eq!(exception.details().attempts, 1, "a business rule is not tried again");
    let exception = refused(&rules(), transfer("a", "b", -1));
    assert_eq!(seen(&exception), ("A-INVALID", 1, 0, Status::InvalidArgument));
}

#[test]
fn what_does_not_exist_is_n() {
    let exception = refused(&rules(), transfer("a", "nobody", 1));
    assert_eq!(seen(&exception), ("N-DOCUMENT", 1, 1, Status::NotFound));
    let exception = refused(&rules(), Request::new(space(), "nothing"));
    assert_eq!(seen(&exception), ("N-OPERATION", 1, 0, Status::NotFound));
    assert_eq!(exception.letter().row().http, 404);
}

#[test]
fn stored_content_that_does_not_read_is_b() {
    let mut store = two_accounts();
    let name = account("a");
    let mut parts = Document::clone(store.peek(&name).unwrap()).into_parts();
    let item = ItemName::singleton("Bal").unwrap();
    let broken = Content::json(r#"{"cents":"many"}"#).unwrap();
    parts.items = vec![Item::existing(item, at(0), at(0), broken).unwrap()];
    store.set(&name, Some(Document::from_parts(parts).unwrap().into()));
    let exception =
        store.perform(&operations(), &rules(), transfer("a", "b", 1), at(1)).unwrap_err();
    assert_eq!(seen(&exception), ("B-STORED", 2, 1, Status::Internal));
    assert!(exception.to_string().contains("bank/Acc/a, Bal"), "{exception}");
}

#[test]
fn changing_a_document_that_does_not_exist_is_b() {
    let mut store = Store::default();
    let work = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.put("x", &Entry { cents: 1 })
    };
    assert_eq!(*edit(&mut store, at(1), work).unwrap_err().code(), codes::MISUSE);
}

#[test]
fn an_older_build_is_d_and_no_build_or_a_newer_one_is_not() {
    let rules = Rules { build: 7, ..rules() };
    let with = |build| Request { build, ..transfer("a", "b", 1) };
    let exception = refused(&rules, with(Some(6)));
    assert_eq!(seen(&exception), ("D-BUILD", 4, 0, Status::FailedPrecondition));
    assert_eq!(exception.details().fields[0], FieldError::new("build", "is 6; the server's is 7"));
    for build in [None, Some(7), Some(8)] {
        let mut store = two_accounts();
        assert!(store.perform(&operations(), &rules, with(build), at(1)).is_ok());
    }
}

/// Lets `ann` in with her key, and whoever has the administrator's.
struct Keys;

impl Checker for Keys {
    fn check(&self, who: &Credentials, space: &str, operation: &str) -> Result<(), String> {
        let is_ann = who.account == "ann" && who.key == "secret" && space == "bank";
        if is_ann || who.admin == "root" {
            return Ok(());
        }
        Err(format!("{operation} is not for you"))
    }
}

#[test]
fn a_wrong_key_is_s_and_is_not_printed() {
    let rules = Rules { checker: Arc::new(Keys), ..rules() };
    let with = |account: &str, key: &str, admin: &str| {
        let (account, key, admin) = (account.into(), key.into(), admin.into());
        Request { who: Credentials { account, key, admin }, ..transfer("a", "b", 1) }
    };
    for request in [with("", "", ""), with("ann", "wrong-key", ""), with("bob", "secret", "")] {
        let exception = refused(&rules, request);
        assert_eq!(seen(&exception), ("S-REFUSED", 7, 0, Status::PermissionDenied));
        assert_eq!(exception.to_string(), "S-REFUSED: transfer is not for you");
    }
    let hidden = format!("{:?}", with("ann", "wrong-key", "root"));
    assert!(hidden.contains("ann") && !hidden.contains("wrong-key") && !hidden.contains("root"));
    for request in [with("ann", "secret", ""), with("", "", "root")] {
        let mut store = two_accounts();
        assert!(store.perform(&operations(), &rules, request, at(1)).is_ok());
    }
}

#[test]
fn a_operation_time_in_the_future_or_too_old_is_refused() {
    let rules = rules();
    let with =
        |operation_time| Request { operation_time: Some(operation_time), ..transfer("a", "b", 1) };
    let problem = |operation_time| {
        let mut store = two_accounts();
        let now = at(1_000_000);
        match store.perform(&operations(), &rules, with(operation_time), now) {
            Ok(_) => None,
            Err(exception) => {
                assert_eq!((exception.code(), exception.phase()), (&codes::TIME, Phase::Before));
                Some(exception.details().fields[0].problem.clone())
            }
        }
    };
    assert!(problem(at(1_000_001)).unwrap().contains("in the future"));
    // Clocks are a little apart: the same request is right in a moment. Far ahead it is a mistake.
    for (operation_time, retry) in [(1_000_001, Retry::AfterMs(2)), (1_600_001, Retry::Never)] {
        let (mut store, now) = (two_accounts(), at(1_000_000));
        let refused =
            store.perform(&operations(), &rules, with(at(operation_time)), now).unwrap_err();
        assert_eq!((refused.code(), refused.retry()), (&codes::TIME, retry), "{operation_time}");
    }
    assert_eq!(problem(at(1_000_000)), None);
    assert_eq!(problem(at(400_000)), None);
    assert_eq!(problem(at(399_999)).unwrap(), "is 600001 ms ago; the limit is 600000 ms");
}

#[test]
fn a_repeated_operation_time_gives_the_same_answer_and_one_version() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let request = Request { operation_time: Some(at(90)), ..transfer("a", "b", 30) };
    let first = store.perform(&operations, &rules, request.clone(), at(100)).unwrap();
    assert_eq!(receipt(&first), Receipt { from_cents: 70, version: Some(at(100)) });
    set_balance(&mut store, "a", 5, at(200));
    let high_water = store.high_water();
    let again = store.perform(&operations, &rules, request.clone(), at(300)).unwrap();
    assert_eq!(again, first);
    assert_eq!((balance(&store, "a"), balance(&store, "b")), (Some(5), Some(30)));
    assert_eq!(store.high_water(), high_water);
    // Another account, and another operation time, are other requests.
    let mut other = request.clone();
    other.who.account = "bob".into();
    let poor = store.perform(&operations, &rules, other, at(300)).unwrap_err();
    assert_eq!(poor.code().as_str(), "A-POOR");
    let later = Request { operation_time: Some(at(91)), ..request };
    assert!(store.perform(&operations, &rules, later, at(300)).is_err());
}

#[test]
fn a_clock_that_is_behind_does_not_refuse_what_is_done() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let request = Request { operation_time: Some(at(20_000)), ..transfer("a", "b", 30) };
    let first = store.perform(&operations, &rules, request.clone(), at(20_010)).unwrap();
    assert_eq!(store.perform(&operations, &rules, request.clone(), at(100)).unwrap(), first);
    let later = Request { operation_time: Some(at(20_011)), ..request };
    let refused = store.perform(&operations, &rules, later, at(100)).unwrap_err();
    assert_eq!(refused.code(), &codes::TIME, "nothing was done at that time");
}

#[test]
fn a_clock_that_was_put_back_finds_nothing_too_old_that_is_asked_now() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    // An hour ahead, then right again: what is stored is later than the clock, and goes on from there.
    let ahead = Request { operation_time: Some(at(3_600_000)), ..transfer("a", "b", 1) };
    let first = store.perform(&operations, &rules, ahead, at(3_600_000)).unwrap();
    let now = Request { operation_time: Some(at(1_000)), ..transfer("a", "b", 1) };
    let second = store.perform(&operations, &rules, now.clone(), at(1_010)).unwrap();
    assert!(second.version > first.version);
    assert_eq!(store.perform(&operations, &rules, now, at(1_020)).unwrap(), second);
    let old = Request { operation_time: Some(at(0)), ..transfer("a", "b", 1) };
    let refused = store.perform(&operations, &rules, old, at(600_001)).unwrap_err();
    assert!(refused.to_string().contains("600001 ms ago"), "{refused}");
}

#[test]
fn two_callers_without_a_name_are_two_though_they_ask_for_the_same_in_one_millisecond() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let nobody = Credentials::default();
    let asked = Request { operation_time: Some(at(90)), who: nobody, ..transfer("a", "b", 30) };
    let named = |id: &str| Request { request_id: RequestId::parse(id).ok(), ..asked.clone() };
    let mut pay = |request: &Request| {
        store.perform(&operations, &rules, request.clone(), at(100)).unwrap();
        balance(&store, "a").unwrap()
    };
    assert_eq!([&asked, &asked].map(&mut pay), [70, 40], "nothing names a repetition");
    let (one, two) = (named("one"), named("two"));
    assert_eq!([&one, &one].map(&mut pay), [10, 10], "a repetition by its name");
    let poor = store.perform(&operations, &rules, two, at(100)).unwrap_err();
    assert_eq!(poor.code().as_str(), "A-POOR", "another request");
    // An account with a name for each request has two tabs.
    let of_ann = |id: &str| Request { who: transfer("a", "b", 1).who, ..named(id) };
    assert!(store.perform(&operations, &rules, of_ann("one"), at(100)).is_err());
}

#[test]
fn a_request_id_without_the_callers_time_is_refused() {
    let request = Request { request_id: RequestId::parse("r").ok(), ..transfer("a", "b", 1) };
    let refused = two_accounts().perform(&operations(), &rules(), request, at(100)).unwrap_err();
    assert_eq!((refused.code(), refused.phase()), (&codes::INVALID, Phase::Before));
    assert_eq!(refused.details().fields[0].field, "operation_time");
}

/// Documents that remember operations.
fn memories(store: &Store) -> usize {
    store.iter().filter(|it| it.name().class() == "H").count()
}

/// Looks through a store as its driver does.
fn purge(store: &mut Store, now: Stamp) {
    assert_eq!(store.purge(&rules(), now, None, 1_000).next, None);
}

#[test]
fn memories_of_requests_that_are_too_old_are_forgotten() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let mut pay = |operation_time, now| {
        let request = Request { operation_time: Some(operation_time), ..transfer("a", "b", 1) };
        store.perform(&operations, &rules, request, now).unwrap();
        purge(&mut store, now);
        memories(&store)
    };
    assert_eq!(pay(at(0), at(10)), 1);
    assert_eq!(pay(at(100), at(110)), 2);
    // Both would now be refused. The second one may just have passed its check, and be waiting. How much
    // was forgotten is known.
    assert_eq!(pay(at(660_100), at(660_100)), 2 + 1);
    purge(&mut store, at(2 * 660_101));
    assert_eq!(memories(&store), 1, "how much was forgotten");
    purge(&mut store, at(6_000_000));
    assert_eq!(memories(&store), 0, "no clock is so wrong");
    assert_eq!(store.remembered(), Remembered::default());
}

#[test]
fn what_was_forgotten_by_a_clock_that_was_wrong_is_refused_and_not_done_again() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let request =
        |operation_time| Request { operation_time: Some(operation_time), ..transfer("a", "b", 1) };
    let mut pay = |operation_time, now| {
        let answer = store.perform(&operations, &rules, request(operation_time), now);
        purge(&mut store, now);
        answer
    };
    pay(at(1_000), at(1_010)).unwrap();
    pay(at(2_000), at(2_010)).unwrap();
    // The clock is half an hour ahead, and is put back.
    pay(at(1_800_000), at(1_800_000)).unwrap();
    for operation_time in [1_000, 1_500, 2_000] {
        let refused = pay(at(operation_time), at(3_000)).unwrap_err();
        assert_eq!(*refused.code(), codes::TIME, "{refused}");
        assert!(refused.to_string().contains("it may be done"), "{refused}");
    }
    pay(at(2_500), at(3_000)).unwrap();
    assert_eq!(balance(&store, "a"), Some(100 - 4));
}

/// A container that fails when it is asked for a document.
struct Failing<'a>(&'a Store);

impl Documents for Failing<'_> {
    fn get(&self, name: &DocName) -> Option<Arc<Document>> {
        panic!("{name} cannot be read")
    }
    fn high_water(&self) -> Stamp {
        self.0.high_water()
    }
    fn spaces(&self) -> &Spaces {
        self.0.spaces()
    }
    fn usage(&self, space: &str) -> Usage {
        self.0.usage(space)
    }
}

#[test]
fn what_is_wrong_with_the_request_itself_is_refused_for_ever_and_all_else_as_things_stand() {
    let retry = |code: Code| Exception::new(code, "no").retry();
    for code in [codes::INVALID, codes::SLOT, codes::TIME] {
        assert_eq!(retry(code.clone()), Retry::Never, "{code}");
    }
    for code in [codes::LIMIT, codes::EXISTS, codes::DOCUMENT, codes::NAMESPACE] {
        assert_eq!(retry(code.clone()), Retry::WhenChanged, "{code}");
    }
    assert_eq!(Exception::business("ON", "no").retry(), Retry::WhenChanged);
}

#[test]
fn a_failure_in_the_synchronisation_is_of_phase_4_and_says_that_the_operation_is_done() {
    let (rules, operations, mut store) = (rules(), operations(), two_accounts());
    let syncs = vec![SyncRequest { name: account("a"), held: None }];
    let mut run = Run::new(Request { syncs, ..transfer("a", "b", 30) });
    assert_eq!(run.work(&operations, &rules, &store, None, at(100)), Next::Validate);
    let Validated::Valid(commit) = run.validate(&rules, &mut store, at(100)) else {
        panic!("nothing was in the way")
    };
    let exception = run.finish(&Failing(&store), &commit).unwrap_err();
    assert_eq!(seen(&exception), ("X-PANIC", 3, 4, Status::Internal));
    assert!(exception.to_string().contains("bank/Acc/a cannot be read"), "{exception}");
    assert_eq!(exception.details().operation, "transfer");
    assert_eq!((exception.phase().effect(), exception.retry()), (Effect::Committed, Retry::Never));
    assert_eq!(balance(&store, "b"), Some(30));
}
