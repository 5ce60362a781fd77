//! Operations and copies, served by managers.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::*;
use rota_model::{Changed, RefusalKind};
use rota_protocol::api::{Reader, SyncOp};
use rota_protocol::operate::slot_of;
use rota_protocol::operate::{operations, schema};
use rota_protocol::{DocumentAnswer, DocumentOp, Message, Op, Transition};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

#[test]
fn an_operation_through_any_manager_is_answered_when_every_copy_has_it_on_disk() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    let entry = other_than(owner);
    // Copies that hear of nothing acknowledge nothing.
    table.lose = Box::new(|it| matches!(it.message, Message::Prepare { .. }));
    let call = table.ask(entry, op(write("c", 1), "c"));
    table.pass(200);
    assert!(!table.replies.contains_key(&call));
    table.lose = Box::new(|_| false);
    let answer = operated(table.wait_for(call, 2_000)).unwrap();
    let shown = body(&operated(table.call(entry, op(read("c"), "c"))).unwrap());
    assert_eq!(shown["documents"][0]["version"], json!(answer.version.as_u64()));
    assert!(table.count(Transition::Operated) == 1 && table.count(Transition::OperationRead) == 1);
    for n in NUMBERS {
        let has = table.disks[&n].docs.keys().any(|it| it.name == name("Cart", "c"));
        assert!(has, "manager {n} has no copy");
    }
}

#[test]
fn what_an_operation_read_is_confirmed_by_the_copies_after_it_came() {
    let mut table = Table::serving();
    operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    table.lose = Box::new(|it| matches!(it.message, Message::ReadIndexConfirmed { .. }));
    let owner = owner_of(&table, "c");
    let reading = table.ask(owner, op(read("c"), "c"));
    let exists = json!({"changes": [{"class": "Cart", "docid": "c", "life": "create"}]});
    let refused = table.ask(owner, op(request("document.write", &exists), "c"));
    let absent = table.ask(owner, sync(&["c"], None, false));
    table.pass(100);
    assert!([reading, refused, absent].iter().all(|it| !table.replies.contains_key(it)));
    // Nothing is asked of the copies for what may be old, or is wrong in itself.
    assert_eq!(synced(table.call(owner, sync(&["c"], None, true))).len(), 1);
    let unknown = operated(table.call(owner, op(request("no.such", &json!({})), "c")));
    assert_eq!(*unknown.unwrap_err().code(), codes::OPERATION);
    table.lose = Box::new(|_| false);
    assert!(operated(table.wait_for(reading, 2_000)).is_ok());
    let exception = operated(table.wait_for(refused, 2_000)).unwrap_err();
    assert_eq!(*exception.code(), codes::EXISTS);
    assert!(matches!(synced(table.wait_for(absent, 2_000))[0], Update::Full(_)));
}

/// The owner may not write while it adds a copy: the newcomer would lack what was written.
#[test]
fn an_operation_that_comes_to_write_after_its_confirm_round_waits_while_a_copy_is_added() {
    // With one successor a partition has enough copies while it gets another.
    let mut table = Table::laid_with(1);
    table.start_all();
    let (owner, newcomer) = (300, 600);
    let id = id_at(&table, owner, 0);
    operated(table.call(owner, op(write(&id, 1), &id))).unwrap();
    table.kill(newcomer);
    table.pass(2_500);
    // It exists, so there is nothing to write; and what it read waits for the other copy.
    table.lose = Box::new(|it| matches!(it.message, Message::ReadIndexConfirmed { .. }));
    let ask = |life| {
        let parameters = json!({"changes": [{"class": "Cart", "docid": id, "life": life}]});
        op(request("document.write", &parameters), &id)
    };
    let creating = table.ask_within(owner, ask("create"), 60_000);
    operated(table.call(owner, ask("destroy"))).unwrap();
    // The newcomer has everything; whether it was added stays unknown.
    table.start(newcomer);
    table.settle();
    let (wedged, written) = (table.count(Transition::Wedged), table.count(Transition::Operated));
    table.cas_unknown = true;
    table.pass(200);
    assert!(table.count(Transition::Wedged) > wedged);
    table.lose = Box::new(|_| false);
    table.pass(200);
    assert_eq!(table.count(Transition::Operated), written);
    assert!(!table.replies.contains_key(&creating));
    table.cas_unknown = false;
    operated(table.wait_for(creating, 10_000)).unwrap();
    assert_eq!(table.count(Transition::Operated), written + 1);
}

#[test]
fn a_repeated_operation_time_is_known_to_the_next_owner() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    let mut asked = write("c", 1);
    asked.operation_time = Some(stamp(&table));
    let first = operated(table.call(owner, op(asked.clone(), "c"))).unwrap();
    table.kill(owner);
    let call = table.ask(other_than(owner), op(asked, "c"));
    let again = operated(table.wait_for(call, 3_000)).unwrap();
    assert_eq!((again.version, &again.body), (first.version, &first.body));
    assert_eq!(table.count(Transition::Operated), 1);
}

#[test]
fn that_there_is_none_is_told_only_up_to_what_no_later_owner_lacks() {
    let mut table = Table::serving();
    let [waiting, asked] = [0, 1].map(|nth| id_at(&table, 300, nth));
    // What waits for its commit is only at its owner, whose clock is ahead.
    table.wall_step_ms = 10_000;
    table.lose = Box::new(|it| matches!(it.message, Message::Prepare { .. }));
    table.ask(300, op(write(&waiting, 1), &waiting));
    let mut cache = cache();
    let cart = name("Cart", &asked);
    let as_of = stamp(&table);
    let none = synced(table.call(300, sync(&[&asked], None, true))).remove(0);
    assert!(matches!(none, Update::Absent { .. }), "{none:?}");
    cache.apply(&cart, &none, as_of).unwrap();
    table.kill(300);
    table.lose = Box::new(|_| false);
    table.wall_step_ms = 0;
    table.pass(3_000);
    operated(table.call(600, op(write(&asked, 1), &asked))).unwrap();
    assert!(refreshed(&mut table, &mut cache, &asked).is_some());
}

#[test]
fn what_operations_remember_is_shown_to_no_client_and_kept_by_every_copy() {
    let mut table = Table::serving();
    let memories = |update: &Update| {
        let Update::Full(it) = update else { panic!("not whole: {}", update.name()) };
        it.items().iter().filter(|it| it.name().is_memory()).count()
    };
    let asked = Request { operation_time: Some(stamp(&table)), ..write("c", 1) };
    operated(table.call(300, op(asked, "c"))).unwrap();
    table.pass(100);
    let kept = |table: &Table, n: u32| -> Vec<DocName> {
        let names = table.disks[&n].docs.keys().map(|key| key.name.clone());
        names.filter(DocName::is_memory).collect()
    };
    let name = kept(&table, 300).remove(0);
    for n in NUMBERS {
        assert_eq!(kept(&table, n), std::slice::from_ref(&name), "manager {n}");
    }
    // Even who knows its name.
    let slot = slot_of(&name, M);
    let syncs = vec![SyncRequest { name: name.clone(), held: None }];
    let mut synced = |reader: Option<Reader>, stale_ok| {
        let reader = reader.map(Arc::new);
        let sync = SyncOp { reader, slot, syncs: syncs.clone(), stale_ok };
        synced(table.call(1000, Op::Documents(DocumentOp::Sync(sync))))
    };
    for stale_ok in [false, true] {
        assert_eq!(memories(&synced(Some(Reader::of(space("shop"))), stale_ok)[0]), 0);
    }
    // A manager that asks on its own account, as for an export of the namespace, gets all.
    assert_eq!(memories(&synced(None, false)[0]), 1);
    let which = json!({"documents": [{"class": "H", "docid": name.docid(), "items": ["H"]}]});
    let reading = Request { space: space("shop"), ..request("document.read", &which) };
    let shown = body(&operated(table.call(600, op(reading, name.place()))).unwrap());
    assert_eq!(shown["documents"][0]["items"], json!([]), "{shown}");
}

#[test]
fn an_operation_without_operation_time_is_not_carried_out_twice_when_its_owner_is_gone() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    // It is carried out, and its answer is lost.
    table.lose = Box::new(|it| matches!(it.message, Message::Answer { .. }));
    let call = table.ask(other_than(owner), op(write("c", 1), "c"));
    assert_eq!(table.count(Transition::Operated), 1);
    table.pass(600);
    assert_eq!(table.count(Transition::Operated), 1, "the owner knew the repetition");
    table.kill(owner);
    table.lose = Box::new(|_| false);
    let refusal = table.wait_for(call, 3_000).unwrap_err();
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::NotServing, Changed::Unknown));
    assert_eq!(table.count(Transition::Operated), 1);
    // With an operation time it would have been found out.
    let shown = table.ask(other_than(owner), op(read("c"), "c"));
    assert_eq!(
        body(&operated(table.wait_for(shown, 2_000)).unwrap())["documents"][0]["exists"],
        true
    );
}

#[test]
fn json_stays_the_text_that_it_was_written_as() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    let odd =
        r#"{"large":18446744073709551616,"exact":12345678901234567890123,"a":1,"a":2,"n":null}"#;
    let text = format!(
        r#"{{"changes":[{{"class":"Cart","docid":"c","life":"ensure",
            "put":[{{"class":"Ln","key":"1","json":{odd}}}]}}]}}"#
    );
    let mut asked = request("document.write", &json!({}));
    asked.parameters = Some(rota_docstore::JsonText::parse(&text).unwrap());
    operated(table.call(owner, op(asked, "c"))).unwrap();
    let shown = operated(table.call(owner, op(read("c"), "c"))).unwrap();
    let rota_docstore::Body::Json(shown) = &shown.body else { panic!("{shown:?}") };
    assert!(shown.as_str().contains(odd), "{}", shown.as_str());
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    table.lose = Box::new(|it| matches!(it.message, Message::Answer { .. }));
    let call = table.ask(other_than(owner), op(write("c", 1), "c"));
    table.pass(100);
    table.lose = Box::new(|_| false);
    assert!(operated(table.wait_for(call, 2_000)).is_ok());
    assert_eq!(table.count(Transition::Operated), 1);
}

#[test]
fn a_result_that_was_lost_and_is_too_long_to_be_kept_is_told_as_carried_out() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    let entry = other_than(owner);
    let put = json!([{"class": "Ln", "key": "1", "json": "x".repeat(2_000)}]);
    let change = json!({"class": "Cart", "docid": "c", "life": "ensure", "put": put});
    let large = request("document.write", &json!({"changes": [change]}));
    operated(table.call(entry, op(large, "c"))).unwrap();
    // Its answer is lost once: the manager that was asked asks again, under the same name.
    let mut lost = |asked: Request| {
        table.lose = Box::new(|it| matches!(it.message, Message::Answer { .. }));
        let call = table.ask(entry, op(asked, "c"));
        table.pass(100);
        table.lose = Box::new(|_| false);
        operated(table.wait_for(call, 2_000))
    };
    let exception = lost(read("c")).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::LOST, Phase::Sending));
    assert_eq!((exception.phase().number(), exception.phase().effect()), (5, Effect::Committed));
    assert_eq!(exception.retry(), rota_model::Retry::Never);
    assert!(exception.to_string().contains("was carried out at version"), "{exception}");
    // Of a short one only the updates are left out: they can be asked for.
    let syncs = vec![SyncRequest { name: name("Cart", "c"), held: None }];
    let answer = lost(Request { syncs, ..write("c", 1) }).unwrap();
    assert_eq!(answer.updates, []);
    assert_eq!(table.count(Transition::Operated), 2);
}

#[test]
fn an_operation_that_comes_again_when_its_answer_is_forgotten_is_not_carried_out() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    let sent = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = sent.clone();
    table.lose = Box::new(move |envelope| {
        if let Message::Request { op, .. } = &envelope.message
            && op.is_once()
        {
            kept.borrow_mut().push(envelope.clone());
        }
        false
    });
    operated(table.call(other_than(owner), op(write("c", 1), "c"))).unwrap();
    table.pass(70_000);
    operated(table.call(other_than(owner), op(write("c", 2), "c"))).unwrap();
    assert_eq!(table.count(Transition::Operated), 2, "a later one is carried out");
    let late = sent.borrow()[0].clone();
    table.input(owner, rota_protocol::Input::Peer(late));
    table.pass(500);
    assert_eq!(table.count(Transition::Operated), 2);
}

#[test]
fn documents_of_another_slot_are_refused_by_name_before_any_work_whatever_the_layout() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "a");
    let change = |docid: &str| json!({"class": "Cart", "docid": docid, "life": "ensure"});
    // One of the same partition, and one of another.
    for far in [owner, other_than(owner)].map(|at| id_at(&table, at, 0)) {
        assert_ne!(far, "a");
        for changes in [vec![change("a"), change(&far)], vec![change(&far)]] {
            let asked = request("document.write", &json!({"changes": changes}));
            let exception = operated(table.call(300, op(asked, "a"))).unwrap_err();
            assert_eq!((exception.code(), exception.phase()), (&codes::SLOT, Phase::Before));
            assert!(exception.to_string().contains(&format!("shop/Cart/{far}")), "{exception}");
        }
        // What is only read, with a tolerance, may lie anywhere.
        let reading = json!({"documents": [{"class": "Cart", "docid": far, "tolerance_s": 1}]});
        let shown = table.ask(300, op(request("document.read", &reading), "a"));
        let shown = table.wait_for(shown, 2_000);
        assert_eq!(body(&operated(shown).unwrap())["documents"][0]["exists"], false);
    }
    let together = json!({"changes": [
        {"class": "Cart", "docid": "{a}1", "life": "ensure"},
        {"class": "Line", "docid": "{a}2", "life": "ensure"},
        {"class": "Cart", "docid": "a", "life": "ensure"},
    ]});
    assert!(operated(table.call(300, op(request("document.write", &together), "a"))).is_ok());
}

#[test]
fn a_session_is_read_and_synchronised_like_a_document_and_not_written() {
    let mut table = Table::serving();
    opened(table.call(300, open("s", "r1")));
    let docs = json!({"documents": [{"class": "session", "docid": "s"}]});
    let reading = Request::new(Namespace::default_space(), "document.read").with(&docs).unwrap();
    let shown = body(&operated(table.call(600, op(reading, "s"))).unwrap());
    assert_eq!(shown["documents"][0]["exists"], true);
    let change = json!({"changes": [{"class": "session", "docid": "s", "life": "destroy"}]});
    let writing = Request::new(Namespace::default_space(), "document.write").with(&change).unwrap();
    assert_eq!(*operated(table.call(600, op(writing, "s"))).unwrap_err().code(), codes::CLASS);
    let name = DocName::new(&Namespace::default_space(), "session", "s").unwrap();
    let slot = slot_of(&name, M);
    let syncs = vec![SyncRequest { name, held: None }];
    let reader = Some(Arc::new(Reader::of(Namespace::default_space())));
    let asked = SyncOp { reader, slot, syncs, stale_ok: false };
    let updates = synced(table.call(300, Op::Documents(DocumentOp::Sync(asked))));
    assert!(matches!(&updates[0], Update::Full(it) if it.ctime() <= it.version()));
}

#[test]
fn versions_grow_though_the_clock_steps_back_and_the_owner_changes() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    let first = operated(table.call(300, op(write("c", 1), "c"))).unwrap().version;
    // Somebody is told that there is no other one.
    let none = synced(table.call(300, sync(&["c2"], None, false)));
    assert!(matches!(none[0], Update::Absent { .. }));
    table.wall_step_ms = -60_000;
    let second = operated(table.call(300, op(write("c", 2), "c"))).unwrap().version;
    assert!(second > first, "{second} after {first}");
    table.kill(owner);
    table.pass(2_000);
    let call = table.ask(other_than(owner), op(write("c", 3), "c"));
    let third = operated(table.wait_for(call, 3_000)).unwrap().version;
    assert!(third > second, "{third} after {second}");
}

#[test]
fn versions_on_disks_that_are_ahead_of_every_clock_are_kept_and_gone_on_from() {
    let mut table = Table::serving();
    let first = operated(table.call(300, op(write("c", 1), "c"))).unwrap().version;
    let full = synced(table.call(300, sync(&["c"], None, false)));
    let Update::Full(document) = &full[0] else { panic!("not whole: {full:?}") };
    let held = Held::of(document);
    NUMBERS.iter().for_each(|n| table.kill(*n));
    table.wall_step_ms = -30 * 24 * 3_600_000;
    NUMBERS.iter().for_each(|n| table.start(*n));
    table.settle();
    let call = table.ask(300, sync(&["c"], Some(held), false));
    let updates = synced(table.wait_for(call, 10_000));
    assert!(matches!(updates[0], Update::Unchanged { .. }), "{updates:?}");
    // Each partition goes back to its home meanwhile.
    table.pass(2_000);
    let call = table.ask(600, op(write("c", 2), "c"));
    let second = operated(table.wait_for(call, 10_000)).unwrap().version;
    assert!(second > first && second < first.plus_ms(60_000), "{second} after {first}");
    let call = table.ask(300, sync(&["c"], Some(held), false));
    assert_eq!(synced(table.wait_for(call, 10_000))[0].name(), "case 1");
}

#[test]
fn ends_of_lives_and_what_was_remembered_of_them_are_forgotten_in_time() {
    let mut table = Table::serving();
    operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    operated(table.call(300, op(write("{c}2", 1), "c"))).unwrap();
    let change = json!({"changes": [{"class": "Cart", "docid": "c", "life": "destroy"}]});
    let mut end = request("document.write", &change);
    end.operation_time = Some(stamp(&table));
    operated(table.call(300, op(end, "c"))).unwrap();
    let kept = |table: &Table| -> Vec<String> {
        let docs = table.disks[&300].docs.keys().filter(|it| it.name.space() == "shop");
        let name = |it: &DocName| format!("shop/{}/{}", it.class(), it.place());
        docs.map(|it| name(&it.name)).collect::<BTreeSet<_>>().into_iter().collect()
    };
    table.pass(11_000);
    assert_eq!(kept(&table), ["shop/Cart/c", "shop/Cart/{c}2", "shop/H/c"]);
    table.wall_step_ms = 60 * 60_000;
    table.pass(11_000);
    assert_eq!(kept(&table).len(), 3, "that clock may be put back");
    table.wall_step_ms = 90 * 60_000;
    table.pass(11_000);
    assert_eq!(kept(&table), ["shop/Cart/c", "shop/Cart/{c}2"]);
    table.wall_step_ms = 8 * 24 * 3_600_000;
    table.pass(11_000);
    assert_eq!(kept(&table), ["shop/Cart/{c}2"]);
    table.wall_step_ms = 0;
    let none = synced(table.call(300, sync(&["c"], None, false)));
    assert!(matches!(none[0], Update::Absent { .. }));
}

/// Fails the first time, as if by a defect.
struct Flaky;

impl Operation for Flaky {
    const NAME: &'static str = "flaky";
    type Parameters = Value;
    fn new(_: Value) -> Result<Self, Exception> {
        Ok(Self)
    }
    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = transaction.name("Cart", "c")?;
        // Wait until somebody else has made it.
        let edited = transaction.current(&name)?;
        if edited.exists() { Ok(()) } else { Err(Exception::unexpected("SOON", "not there yet")) }
    }
}

#[test]
fn an_unexpected_failure_pauses_and_is_tried_three_times() {
    let mut table = Table::laid();
    table.offer = Some((operations().with::<Flaky>(), schema()));
    table.start_all();
    let call = table.ask(300, op(request("flaky", &json!({})), "c"));
    assert!(!table.replies.contains_key(&call));
    table.pass(60);
    operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    assert!(operated(table.wait_for(call, 400)).is_ok());
    assert_eq!(table.count(Transition::OperationPaused), 2);
    let change = json!({"changes": [{"class": "Cart", "docid": "c", "life": "destroy"}]});
    operated(table.call(300, op(request("document.write", &change), "c"))).unwrap();
    let call = table.ask(300, op(request("flaky", &json!({})), "c"));
    let exception = operated(table.wait_for(call, 1_000)).unwrap_err();
    assert_eq!((exception.code().as_str(), exception.details().attempts), ("X-SOON", 3));
}

#[test]
fn documents_of_other_owners_are_read_within_their_tolerance() {
    let mut table = Table::serving();
    let here = id_at(&table, 300, 0);
    let far: Vec<String> = (0..3).map(|nth| id_at(&table, 600, nth)).collect();
    operated(table.call(300, op(write(&far[0], 7), &far[0]))).unwrap();
    let which =
        |it: &String, seconds: u32| json!({"class": "Cart", "docid": it, "tolerance_s": seconds});
    let parameters = |seconds: u32| {
        let mut documents = vec![json!({"class": "Cart", "docid": here})];
        documents.extend(far.iter().map(|it| which(it, seconds)));
        request("document.read", &json!({"documents": documents}))
    };
    let shown = body(&operated(table.call(1000, op(parameters(5), &here))).unwrap());
    assert_eq!(shown["documents"][1]["items"][0]["json"]["n"], 7);
    assert_eq!(shown["documents"][2]["exists"], false);
    assert_eq!(table.count(Transition::DocumentsFetched), 1);
    operated(table.call(300, op(write(&far[0], 8), &far[0]))).unwrap();
    let shown = body(&operated(table.call(1000, op(parameters(5), &here))).unwrap());
    assert_eq!(shown["documents"][1]["items"][0]["json"]["n"], 7, "fresh enough");
    table.pass(1_500);
    let shown = body(&operated(table.call(1000, op(parameters(1), &here))).unwrap());
    assert_eq!(shown["documents"][1]["items"][0]["json"]["n"], 8);
    // An owner that is gone holds it up no longer than its deadline.
    table.lose = Box::new(|it| it.to.number.0 == 600);
    table.pass(1_500);
    let call = table.ask_within(300, op(parameters(1), &here), 700);
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::DeadlineExceeded);
}

#[test]
fn a_document_of_another_owner_that_is_larger_than_the_cache_is_fetched_once_and_refused() {
    let mut table = Table::laid();
    table.documents.cache_bytes = 2_000;
    table.start_all();
    let (here, far) = (id_at(&table, 300, 0), id_at(&table, 600, 0));
    let put = json!([{"class": "Ln", "key": "1", "json": "x".repeat(5_000)}]);
    let change = json!({"class": "Cart", "docid": far, "life": "ensure", "put": put});
    let large = request("document.write", &json!({"changes": [change]}));
    operated(table.call(300, op(large, &far))).unwrap();
    let which = json!([{"class": "Cart", "docid": far, "tolerance_s": 5}]);
    let reading = request("document.read", &json!({"documents": which}));
    let exception = operated(table.call(1000, op(reading.clone(), &here))).unwrap_err();
    assert_eq!(*exception.code(), codes::LIMIT);
    let text = exception.to_string();
    assert!(text.contains(&format!("shop/Cart/{far} takes 5")), "{text}");
    assert!(text.contains("the limit is 2000"), "{text}");
    assert_eq!(table.count(Transition::DocumentsFetched), 1);
    // Which document it asks for leans on what is here, so the answer waits for what is not committed.
    table.lose = Box::new(|it| matches!(it.message, Message::Prepare { .. }));
    let uncommitted = id_at(&table, 300, 1);
    table.ask(300, op(write(&uncommitted, 1), &uncommitted));
    let call = table.ask(1000, op(reading, &here));
    table.pass(100);
    assert_eq!(table.count(Transition::DocumentsFetched), 2);
    assert!(!table.replies.contains_key(&call));
    table.lose = Box::new(|_| false);
    assert_eq!(*operated(table.wait_for(call, 2_000)).unwrap_err().code(), codes::LIMIT);
}

#[test]
fn copies_are_brought_up_to_date_by_what_changed() {
    let mut table = Table::serving();
    let made = operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    let mut copy = match &synced(table.call(600, sync(&["c"], None, false)))[0] {
        Update::Full(document) => Arc::clone(document),
        other @ (Update::Unchanged { .. }
        | Update::Changes(_)
        | Update::Deleted { .. }
        | Update::Absent { .. }
        | Update::SourceBehind { .. }) => panic!("not full: {other:?}"),
    };
    assert_eq!(copy.version(), made.version);
    let held = Some(Held::of(&copy));
    let same = synced(table.call(600, sync(&["c"], held, false)));
    assert!(matches!(same[0], Update::Unchanged { .. }));
    let mut asked = write("c", 2);
    asked.syncs = vec![SyncRequest { name: name("Cart", "c"), held }];
    let answer = operated(table.call(600, op(asked, "c"))).unwrap();
    let (_, update) = &answer.updates[0];
    assert!(matches!(update, Update::Changes(_)));
    copy = apply(copy.name(), Some(&copy), update).unwrap().unwrap();
    assert_eq!(copy.version(), answer.version);
    let future = Some(Held::new(copy.ctime(), Stamp::MAX, copy.ctime()).unwrap());
    let refused = table.call(600, sync(&["c"], future, false));
    let Ok(rota_protocol::Answer::Documents(DocumentAnswer::Synced(Err(exception)))) = refused
    else {
        panic!("a version from the future: {refused:?}");
    };
    assert_eq!(exception.details().fields[0].field, "documents[0].held.version");
}

#[test]
fn a_document_is_above_the_absence_that_a_cache_was_told() {
    let mut table = Table::serving();
    let mut cache = Cache::new(Arc::new(schema()), 1 << 20);
    // A document of the same slot was written in this millisecond.
    operated(table.call(300, op(write("{c}1", 1), "c"))).unwrap();
    let mut ask = |table: &mut Table| {
        let as_of = stamp(table);
        let update = synced(table.call(600, sync(&["c"], None, false))).remove(0);
        cache.apply(&name("Cart", "c"), &update, as_of).map(|_bytes| update)
    };
    assert!(matches!(ask(&mut table), Ok(Update::Absent { .. })));
    operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    assert!(matches!(ask(&mut table), Ok(Update::Full(_))));
}

#[test]
fn what_is_brought_up_to_date_after_an_operation_shares_its_slot_whatever_the_layout() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "{c}1");
    let with = |docid: &str| {
        let mut asked = request("document.touch", &json!({"class": "Cart", "docid": "{c}1"}));
        asked.syncs = vec![SyncRequest { name: name("Cart", docid), held: None }];
        op(asked, "{c}1")
    };
    let answer = operated(table.call(300, with("{c}2"))).unwrap();
    assert!(matches!(answer.updates[0], (_, Update::Absent { .. })));
    // One of the same partition, and one of another.
    for at in [owner, other_than(owner)] {
        let exception = operated(table.call(300, with(&id_at(&table, at, 0)))).unwrap_err();
        assert_eq!((exception.code(), exception.phase()), (&codes::SLOT, Phase::Before));
        assert_eq!(exception.details().fields[0].field, "syncs[0].name");
    }
    let touched = operated(table.call(300, op(read("{c}1"), "{c}1"))).unwrap();
    assert_eq!(body(&touched)["documents"][0]["version"], json!(answer.version.as_u64()));
}

#[test]
fn limits_of_the_built_in_operations_are_told_by_code_and_field_and_what_just_fits_is_done() {
    let mut table = Table::serving();
    let changes = |count: usize| {
        let change = |n| json!({"class": "Cart", "docid": format!("{{c}}{n}"), "life": "ensure"});
        json!({"changes": (0..count).map(change).collect::<Vec<_>>()})
    };
    let readers = |count: usize| {
        let readers: Vec<_> = (0..count).map(|n| format!("reader{n}")).collect();
        json!({"name": "stall", "create": true, "readers": readers})
    };
    let write = |count| op(request("document.write", &changes(count)), "c");
    let put = |count| configure("namespace.put", &readers(count));
    for (fits, one_more, field, problem) in [
        (write(16), write(17), "changes", "are 17; there must be 1 to 16"),
        (put(64), put(65), "readers", "are 65; the limit is 64"),
    ] {
        operated(table.call(300, fits)).unwrap();
        let refused = operated(table.call(300, one_more)).unwrap_err();
        let told = &refused.details().fields[0];
        assert_eq!((refused.code(), told.field.as_str()), (&codes::LIMIT, field), "{refused}");
        assert_eq!((told.problem.as_str(), refused.phase()), (problem, Phase::Before));
    }
}
