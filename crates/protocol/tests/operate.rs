//! Operations, copies and namespaces, served by managers.

#![allow(clippy::unwrap_used, reason = "a test that cannot ask has failed")]

mod table;

use rota_docstore::*;
use rota_model::{Changed, RefusalKind};
use rota_protocol::api::{ClearOp, ImportOp, OperateOp, PageOp, SyncOp};
use rota_protocol::operate::registry::{operations, schema};
use rota_protocol::operate::{AdminKey, SPACES_DOCID, slot_of, slot_of_spaces};
use rota_protocol::{
    DocumentAnswer, DocumentCursor, DocumentOp, Message, Op, OpResult, Transition,
};
use serde_json::{Value, json};
use std::sync::Arc;
use table::*;

/// Slots of the table's ring.
const M: u32 = 1024;

fn space(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

fn name(class: &str, docid: &str) -> DocName {
    DocName::new(&space("shop"), class, docid).unwrap()
}

fn owner_of(table: &Table, docid: &str) -> u32 {
    table.view().owner_of(slot_of(&name("Cart", docid), M)).0
}

/// An id of a document that this manager owns.
fn id_at(table: &Table, owner: u32, nth: usize) -> String {
    let ids = (0..).map(|it| format!("d{it}")).filter(|it| owner_of(table, it) == owner);
    ids.into_iter().nth(nth).unwrap()
}

fn other_than(n: u32) -> u32 {
    NUMBERS.into_iter().find(|it| *it != n).unwrap()
}

fn stamp(table: &Table) -> Stamp {
    Stamp::from_epoch_ms(table.now().wall_ms)
}

fn request(operation: &str, parameters: &Value) -> Request {
    Request::new(space("shop"), operation).with(parameters).unwrap()
}

fn op(request: Request, docid: &str) -> Op {
    let (request, docid) = (Arc::new(request), docid.to_owned());
    Op::Documents(DocumentOp::Operate(OperateOp { request, docid }))
}

fn write(docid: &str, n: u32) -> Request {
    let put = json!([{"class": "Ln", "key": "1", "json": {"n": n}}]);
    let change = json!({"class": "Cart", "docid": docid, "life": "ensure", "put": put});
    request("document.write", &json!({"changes": [change]}))
}

fn read(docid: &str) -> Request {
    request("document.read", &json!({"documents": [{"class": "Cart", "docid": docid}]}))
}

fn configure(operation: &str, parameters: &Value) -> Op {
    op(Request::new(space("z"), operation).with(parameters).unwrap(), SPACES_DOCID)
}

fn operated(result: OpResult) -> Result<Answer, Exception> {
    match result {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Operated(it))) => it,
        other => panic!("not operated: {other:?}"),
    }
}

fn body(answer: &Answer) -> Value {
    match &answer.body {
        Body::Json(text) => text.read().unwrap(),
        Body::Nothing | Body::Binary { .. } => Value::Null,
    }
}

fn sync(docids: &[&str], held: Option<Held>, stale_ok: bool) -> Op {
    let syncs = docids.iter().map(|it| SyncRequest { name: name("Cart", it), held });
    let syncs: Vec<_> = syncs.collect();
    let slot = slot_of(&syncs[0].name, M);
    let reader = Some(space("shop"));
    Op::Documents(DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok }))
}

fn synced(result: OpResult) -> Vec<Update> {
    match result {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Synced(Ok(it)))) => {
            it.into_iter().map(|it| it.1).collect()
        }
        other => panic!("not synced: {other:?}"),
    }
}

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
    table.lose = Box::new(|it| matches!(it.message, Message::Confirmed { .. }));
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

#[test]
fn a_repeated_dhop_is_known_to_the_next_owner() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "c");
    let mut asked = write("c", 1);
    asked.dhop = Some(stamp(&table));
    let first = operated(table.call(owner, op(asked.clone(), "c"))).unwrap();
    table.kill(owner);
    let call = table.ask(other_than(owner), op(asked, "c"));
    let again = operated(table.wait_for(call, 3_000)).unwrap();
    assert_eq!((again.version, &again.body), (first.version, &first.body));
    assert_eq!(table.count(Transition::Operated), 1);
}

#[test]
fn an_operation_without_dhop_is_not_carried_out_twice_when_its_owner_is_gone() {
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
    // With a dhop it would have been found out.
    let shown = table.ask(other_than(owner), op(read("c"), "c"));
    assert_eq!(
        body(&operated(table.wait_for(shown, 2_000)).unwrap())["documents"][0]["exists"],
        true
    );
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
fn documents_of_another_slot_are_refused_by_name_before_any_work() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "a");
    let far = id_at(&table, other_than(owner), 0);
    let both = json!({"changes": [
        {"class": "Cart", "docid": "a", "life": "ensure"},
        {"class": "Cart", "docid": far, "life": "ensure"},
    ]});
    let exception =
        operated(table.call(300, op(request("document.write", &both), "a"))).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::SLOT, Phase::Before));
    assert!(exception.to_string().contains(&format!("shop/Cart/{far}")), "{exception}");
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
    let reader = Some(Namespace::default_space());
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
fn ends_of_lives_and_what_was_remembered_of_them_are_forgotten_in_time() {
    let mut table = Table::serving();
    operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    operated(table.call(300, op(write("{c}2", 1), "c"))).unwrap();
    let change = json!({"changes": [{"class": "Cart", "docid": "c", "life": "destroy"}]});
    let mut end = request("document.write", &change);
    end.dhop = Some(stamp(&table));
    operated(table.call(300, op(end, "c"))).unwrap();
    let kept = |table: &Table| -> Vec<String> {
        let docs = table.disks[&300].docs.keys().filter(|it| it.name.space() == "shop");
        docs.map(|it| it.name.to_string()).collect()
    };
    table.pass(11_000);
    assert_eq!(kept(&table), ["shop/Cart/c", "shop/Cart/{c}2", "shop/H/c"]);
    table.wall_step_ms = 30 * 60_000;
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
    fn work(&mut self, desk: &mut Desk<'_>) -> Result<(), Exception> {
        let name = desk.name("Cart", "c")?;
        // Wait until somebody else has made it.
        let draft = desk.current(&name)?;
        if draft.exists() { Ok(()) } else { Err(Exception::unexpected("SOON", "not there yet")) }
    }
}

#[test]
fn an_unexpected_failure_pauses_and_is_tried_three_times() {
    let mut table = Table::laid();
    table.offer = Some((operations().with::<Flaky>(), schema()));
    NUMBERS.iter().for_each(|n| table.start(*n));
    table.settle();
    table.pass(500);
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
fn a_namespace_that_is_switched_off_refuses_its_clients_everywhere() {
    let mut table = Table::serving();
    opened(table.call(300, open("running", "r1")));
    let off =
        |name: &str| configure("namespace.switch", &json!({"name": name, "off": "Back at noon"}));
    for space in ["shop", "default"] {
        let put = configure("namespace.put", &json!({"name": space, "create": true}));
        operated(table.call(600, put)).unwrap();
        operated(table.call(1000, off(space))).unwrap();
    }
    table.pass(40);
    for n in NUMBERS {
        let refusal = table.call(n, open("s", "r2")).unwrap_err();
        assert_eq!((refusal.kind, refusal.changed), (RefusalKind::NamespaceOff, Changed::No));
        assert_eq!(refusal.message, "namespace default is off: Back at noon");
        assert_eq!(refused(table.call(n, close("running", "r3"))), RefusalKind::NamespaceOff);
        assert_eq!(refused(table.call(n, get("running"))), RefusalKind::NamespaceOff);
        let exception = operated(table.call(n, op(write("c", 1), "c"))).unwrap_err();
        assert_eq!((exception.code(), exception.phase()), (&codes::OFF, Phase::Before));
        let nothing = table.call(n, sync(&["c"], None, true));
        assert!(format!("{nothing:?}").contains("O-OFF"), "{nothing:?}");
    }
    // A manager that restarts learns it again.
    table.kill(600);
    table.pass(1_500);
    table.start(600);
    table.pass(3_000);
    assert_eq!(refused(table.call(600, get("running"))), RefusalKind::NamespaceOff);
    let on = configure("namespace.switch", &json!({"name": "default"}));
    operated(table.call(300, on)).unwrap();
    table.pass(40);
    for n in NUMBERS {
        let session = got(table.call(n, get("running")));
        assert_eq!(session.record.state, rota_model::SessionState::Ready);
    }
}

#[test]
fn a_manager_that_has_just_started_serves_nobody_before_it_knows_what_is_off() {
    let mut table = Table::serving();
    let z = table.view().owner_of(slot_of_spaces(M)).0;
    let fresh = other_than(z);
    opened(table.call(z, open("running", "r1")));
    for name in ["shop", "default"] {
        let put = configure("namespace.put", &json!({"name": name, "create": true}));
        operated(table.call(z, put)).unwrap();
    }
    let off = configure("namespace.switch", &json!({"name": "shop", "off": "Back at noon"}));
    operated(table.call(z, off)).unwrap();
    table.kill(fresh);
    table.pass(1_500);
    let is_followed = |message: &Message| match message {
        Message::Answer { result, .. } => format!("{result:?}").contains("Followed"),
        _ => false,
    };
    table.lose = Box::new(move |it| it.to.number.0 == fresh && is_followed(&it.message));
    table.start(fresh);
    table.pass(1_000);
    let lost = table.ask_within(fresh, get("running"), 500);
    let refusal = table.wait_for(lost, 600).unwrap_err();
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::NotServing, Changed::No));
    assert!(refusal.message.contains("which namespaces are off"), "{}", refusal.message);
    // Configuration needs no such knowledge, nor do operators who look at every namespace.
    let describing = json!({"name": "other", "create": true});
    operated(table.call(fresh, configure("namespace.put", &describing))).unwrap();
    let writing = table.ask(fresh, op(write("c", 1), "c"));
    let getting = table.ask(fresh, get("running"));
    table.pass(500);
    assert!([writing, getting].iter().all(|it| !table.replies.contains_key(it)));
    table.lose = Box::new(|_| false);
    let exception = operated(table.wait_for(writing, 5_000)).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::OFF, Phase::Before));
    assert_eq!(got(table.wait_for(getting, 100)).record.key, key("running"));
    // Who knows it goes on with it while nobody can be asked.
    table.kill(z);
    let exception = operated(table.call(fresh, op(write("c", 1), "c"))).unwrap_err();
    assert_eq!(*exception.code(), codes::OFF);
    let getting = table.ask(fresh, get("running"));
    assert_eq!(got(table.wait_for(getting, 3_000)).record.key, key("running"));
}

#[test]
fn descriptions_of_one_millisecond_become_known_everywhere() {
    let mut table = Table::serving();
    for name in ["a", "b", "c"] {
        let put = configure("namespace.put", &json!({"name": name, "create": true}));
        operated(table.call(600, put)).unwrap();
    }
    table.pass(40);
    for n in NUMBERS {
        let known: Vec<&str> = table.managers[&n].spaces().iter().map(|it| it.0).collect();
        assert_eq!(known, ["a", "b", "c"], "manager {n}");
    }
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
        cache.apply(&name("Cart", "c"), &update, as_of).map(|()| update)
    };
    assert!(matches!(ask(&mut table), Ok(Update::Absent { .. })));
    operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    assert!(matches!(ask(&mut table), Ok(Update::Full(_))));
}

#[test]
fn descriptions_that_fill_several_messages_count_when_all_are_known() {
    let mut table = Table::serving();
    let z = table.view().owner_of(slot_of_spaces(M)).0;
    // Descriptions of 1 KB: a message takes some of them.
    let text = "x".repeat(1_000);
    for n in 0..700 {
        let put = json!({"name": format!("n{n}"), "create": true, "description": text});
        operated(table.call(z, configure("namespace.put", &put))).unwrap();
    }
    let off = configure("namespace.switch", &json!({"name": "n0", "off": "Back at noon"}));
    operated(table.call(z, off)).unwrap();
    let fresh = other_than(z);
    table.kill(fresh);
    table.pass(1_500);
    table.start(fresh);
    let mut asked = write("c", 1);
    asked.space = space("n0");
    let call = table.ask(fresh, op(asked, "c"));
    let exception = operated(table.wait_for(call, 5_000)).unwrap_err();
    assert_eq!(*exception.code(), codes::OFF);
    assert_eq!(table.managers[&fresh].spaces().iter().count(), 700);
}

#[test]
fn limits_builds_and_keys_are_refused_by_the_owner() {
    let mut table = Table::laid();
    table.documents.admin_key = AdminKey::new("secret");
    table.documents.client_build_min = 5;
    NUMBERS.iter().for_each(|n| table.start(*n));
    table.settle();
    table.pass(500);
    let limits = json!({"documents": 1});
    let put = json!({"name": "shop", "create": true, "limits": limits});
    let exception = operated(table.call(300, configure("namespace.put", &put))).unwrap_err();
    assert_eq!(exception.letter(), Letter::S);
    let mut asked = Request::new(space("z"), "namespace.put").with(&put).unwrap();
    asked.who.admin = "secret".to_owned();
    operated(table.call(300, op(asked, SPACES_DOCID))).unwrap();
    table.pass(40);
    operated(table.call(300, op(write("{c}1", 1), "c"))).unwrap();
    let exception = operated(table.call(300, op(write("{c}2", 1), "c"))).unwrap_err();
    assert_eq!(*exception.code(), codes::LIMIT);
    let text = "documents of the namespace would be 2; the limit is 1";
    assert_eq!(exception.details().message, text);
    let mut old = write("{c}1", 2);
    old.build = Some(4);
    assert_eq!(operated(table.call(300, op(old, "c"))).unwrap_err().letter(), Letter::D);
}

#[test]
fn a_namespace_is_listed_exported_cleared_and_imported() {
    let mut table = Table::serving();
    opened(table.call(300, open("s", "r1")));
    for n in 0..60 {
        let docid = format!("c{n}");
        operated(table.call(300, op(write(&docid, n), &docid))).unwrap();
    }
    let page = |from, class: Option<&str>| {
        let (limit, class) = (7, class.map(str::to_owned));
        Op::Documents(DocumentOp::Page(PageOp {
            from,
            limit,
            space: space("shop"),
            class,
            by_operator: false,
        }))
    };
    let all = |table: &mut Table, class: Option<&str>| {
        let (mut names, mut from) = (Vec::new(), Some(DocumentCursor::default()));
        while let Some(next) = from {
            match table.call(600, page(next, class)) {
                Ok(rota_protocol::Answer::Documents(DocumentAnswer::Page(it))) => {
                    names.extend(it.documents.into_iter().map(|it| it.name));
                    from = it.next;
                }
                other => panic!("no page: {other:?}"),
            }
        }
        names
    };
    let names = all(&mut table, None);
    assert_eq!(names.len(), 60);
    assert!(names.is_sorted_by_key(|it| (slot_of(it, M), it.clone())));
    assert_eq!(all(&mut table, Some("Line")), []);
    let mut exported = Vec::new();
    for name in &names {
        let slot = slot_of(name, M);
        let syncs = vec![SyncRequest { name: name.clone(), held: None }];
        let asked = SyncOp { reader: None, slot, syncs, stale_ok: false };
        let update = synced(table.call(1000, Op::Documents(DocumentOp::Sync(asked)))).remove(0);
        exported.push(apply(name, None, &update).unwrap().unwrap());
    }
    let (mut deleted, mut from) = (0, Some(DocumentCursor::default()));
    while let Some(next) = from {
        let clear = ClearOp { from: next, space: space("shop") };
        match table.call(600, Op::Documents(DocumentOp::Clear(clear))) {
            Ok(rota_protocol::Answer::Documents(DocumentAnswer::Cleared { deleted: n, next })) => {
                (deleted, from) = (deleted + n, next);
            }
            other => panic!("not cleared: {other:?}"),
        }
    }
    assert_eq!((deleted, all(&mut table, None)), (60, Vec::new()));
    assert_eq!(got(table.call(300, get("s"))).record.state, rota_model::SessionState::Ready);
    let import = |document: &Arc<Document>| {
        Op::Documents(DocumentOp::Import(ImportOp { document: document.clone() }))
    };
    // What was deleted is newer than the export.
    let kept = Ok(rota_protocol::Answer::Documents(DocumentAnswer::Imported(Ok(false))));
    assert_eq!(table.call(300, import(&exported[0])), kept);
    let mut fresh = Table::serving();
    for document in &exported {
        let taken = Ok(rota_protocol::Answer::Documents(DocumentAnswer::Imported(Ok(true))));
        assert_eq!(fresh.call(600, import(document)), taken);
        assert_eq!(fresh.call(300, import(document)), taken, "safe to repeat");
    }
    assert_eq!(all(&mut fresh, None), names);
}
