//! Namespaces, known to every manager: switched off, limited, listed, cleared, imported.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::*;
use rota_model::{Changed, Filter, ManagerNumber, PullOp, RefusalKind, SlotId};
use rota_protocol::api::{ClearOp, ImportOp, PageOp, Reader, Service, SyncOp};
use rota_protocol::operate::{AdminKey, SPACES_DOCID, slot_of, slot_of_spaces};
use rota_protocol::{DocumentAnswer, DocumentCursor, DocumentOp, Message, Op};
use serde_json::json;
use std::sync::Arc;

#[test]
fn a_long_poll_in_a_namespace_ends_when_it_is_switched_off() {
    let mut table = Table::serving();
    let poll = |namespace: Option<&str>| {
        let filter = Filter { namespace: namespace.map(space), ..Filter::default() };
        let slot = SlotId(NUMBERS[0]);
        let from = None;
        let op = PullOp { slot, from, snapshot_after: None, limit: 9, wait_ms: 15_000, filter };
        Op::Pull(op)
    };
    let put = configure("namespace.put", &json!({"name": "shop", "create": true}));
    operated(table.call(600, put)).unwrap();
    // Each gets its snapshot; what is asked next waits for changes.
    let next = |table: &mut Table, op: Op| {
        let Ok(rota_protocol::Answer::Pulled(pulled)) = table.call(600, op.clone()) else {
            panic!("no snapshot")
        };
        let Op::Pull(op) = op else { unreachable!("it is a poll") };
        table.ask_within(600, Op::Pull(PullOp { from: Some(pulled.upto), ..op }), 20_000)
    };
    let shops = next(&mut table, poll(Some("shop")));
    let others = next(&mut table, poll(Some("default")));
    let everything = next(&mut table, poll(None));
    let off = configure("namespace.switch", &json!({"name": "shop", "off": "Back at noon"}));
    operated(table.call(1000, off)).unwrap();
    let refusal = table.wait_for(shops, 1_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NamespaceOff);
    assert_eq!(refusal.message, "namespace shop is off: Back at noon");
    assert_eq!(refused(table.call(600, poll(Some("shop")))), RefusalKind::NamespaceOff);
    assert!([others, everything].iter().all(|it| !table.replies.contains_key(it)));
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
    table.lose = Box::new(move |it| it.to.number.0 == fresh && is_followed(&it.message));
    table.start(fresh);
    table.pass(1_000);
    let lost = table.ask_within(fresh, get("running"), 500);
    let refusal = table.wait_for(lost, 600).unwrap_err();
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::NotServing, Changed::No));
    assert!(refusal.message.contains("the namespaces and pools yet"), "{}", refusal.message);
    // Configuration needs no such knowledge, nor do operators who look at every namespace.
    let describing = json!({"name": "other", "create": true});
    operated(table.call(fresh, configure("namespace.put", &describing))).unwrap();
    let writing = table.ask(fresh, op(write("c", 1), "c"));
    let getting = table.ask(fresh, get("running"));
    // An open that another manager forwards waits, too: nobody knows here where its class goes.
    let mut ids = (0..).map(|it| format!("s{it}"));
    let id = ids.find(|it| table.owner(it) == fresh).expect("there are many");
    let opening = table.ask(z, open(&id, "r2"));
    table.pass(500);
    assert!([writing, getting, opening].iter().all(|it| !table.replies.contains_key(it)));
    table.lose = Box::new(|_| false);
    let exception = operated(table.wait_for(writing, 5_000)).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::OFF, Phase::Before));
    assert_eq!(got(table.wait_for(getting, 100)).record.key, key("running"));
    opened(table.wait_for(opening, 2_000));
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
    table.start_all();
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
fn a_limit_holds_for_all_partitions_together_also_when_one_gets_another_owner() {
    let mut table = Table::serving();
    let put = json!({"name": "shop", "create": true, "limits": {"documents": 9}});
    operated(table.call(300, configure("namespace.put", &put))).unwrap();
    table.pass(1_000);
    let ids = NUMBERS.map(|n| (0..16).map(|nth| id_at(&table, n, nth)).collect::<Vec<_>>());
    let mut written = 0;
    let mut more = |table: &mut Table, partition: u32| {
        written += 1;
        let at = NUMBERS.iter().position(|it| *it == partition).unwrap();
        let id = ids[at][written - 1].clone();
        let done = operated(table.call(1000, op(write(&id, 1), &id)));
        // As long as it may take until all have heard of it.
        table.pass(1_000);
        done.map(|_| ()).map_err(|it| it.details().message.clone())
    };
    for owner in [300, 300, 300, 300, 300, 300, 600, 1000] {
        assert_eq!(more(&mut table, owner), Ok(()), "at {owner}");
    }
    // What the partition of 300 holds counts once, whoever owns it.
    table.kill(300);
    table.pass(3_000);
    assert_eq!(more(&mut table, 1000), Ok(()));
    let full = "documents of the namespace would be 10; the limit is 9";
    for partition in [300, 600, 1000] {
        assert_eq!(more(&mut table, partition), Err(full.to_owned()), "at {partition}");
    }
    // What is above may shrink, and that makes room elsewhere.
    let end = json!({"changes": [{"class": "Cart", "docid": ids[0][0], "life": "destroy"}]});
    operated(table.call(600, op(request("document.write", &end), &ids[0][0]))).unwrap();
    table.pass(1_000);
    assert_eq!(more(&mut table, 600), Ok(()));
    assert_eq!(more(&mut table, 600), Err(full.to_owned()));
}

/// Each account's key is its name backwards, and nobody writes in the namespace `closed`.
struct Accounts;

impl Checker for Accounts {
    fn check(&self, who: &Credentials, space: &str, operation: &str) -> Result<(), String> {
        if !who.account.chars().rev().eq(who.key.chars()) {
            return Err(format!("the key of account {:?} is wrong", who.account));
        }
        let closed = space == "closed" && operation == "document.write";
        if closed { Err("nobody writes here".to_owned()) } else { Ok(()) }
    }
}

#[test]
fn an_applications_checker_sees_the_account_its_key_and_what_it_asks_for() {
    let mut table = Table::laid();
    table.documents.admin_key = AdminKey::new("secret");
    table.checker = Some(Arc::new(Accounts));
    table.start_all();
    let refused = |table: &mut Table, asked: Request| {
        let exception = operated(table.call(300, op(asked, "c"))).unwrap_err();
        assert_eq!((exception.letter(), exception.phase()), (Letter::S, Phase::Before));
        exception.details().message.clone()
    };
    let asked = |account: &str, key: &str| {
        let who = Credentials { account: account.into(), key: key.into(), ..Default::default() };
        Request { who, ..write("c", 1) }
    };
    let wrong = refused(&mut table, asked("ann", "ann"));
    assert_eq!(wrong, "the key of account \"ann\" is wrong");
    let mut elsewhere = asked("ann", "nna");
    elsewhere.space = space("closed");
    assert_eq!(refused(&mut table, elsewhere), "nobody writes here");
    // The administrator's key is still asked for, and asked for first.
    let mut both_wrong = asked("ann", "x");
    both_wrong.who.admin = "wrong".to_owned();
    assert_eq!(refused(&mut table, both_wrong), "the administrator's key is wrong");
    operated(table.call(300, op(asked("ann", "nna"), "c"))).unwrap();
}

#[test]
fn whoever_asks_for_copies_or_bodies_is_checked_like_whoever_runs_operations() {
    let mut table = Table::laid();
    table.documents.client_build_min = 5;
    table.checker = Some(Arc::new(Accounts));
    table.start_all();
    let asked = |service, build, key: &str, stale_ok| {
        let who = Credentials { account: "ann".into(), key: key.into(), ..Default::default() };
        let caller = Caller { build, who };
        let reader = Some(Arc::new(Reader { space: space("shop"), service, caller }));
        let slot = slot_of(&name("Cart", "c"), M);
        let syncs = vec![SyncRequest { name: name("Cart", "c"), held: None }];
        Op::Documents(DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok }))
    };
    for service in Service::ALL {
        for stale_ok in [false, true] {
            let mut refused =
                |build, key: &str| match table.call(600, asked(service, build, key, stale_ok)) {
                    Ok(rota_protocol::Answer::Documents(DocumentAnswer::Synced(Err(it)))) => {
                        assert_eq!(it.phase(), Phase::Before);
                        it.to_string()
                    }
                    other => panic!("not refused: {other:?}"),
                };
            assert_eq!(refused(Some(4), "nna"), "D-BUILD: build is 4; the server's is 5");
            let wrong = "S-REFUSED: the key of account \"ann\" is wrong";
            assert_eq!(refused(Some(5), "bob"), wrong);
            let long = refused(None, &"x".repeat(2_000));
            assert_eq!(long, "A-INVALID: key is 2000 bytes long; the limit is 1024");
            let updates = synced(table.call(600, asked(service, None, "nna", stale_ok)));
            assert!(matches!(updates[0], Update::Absent { .. }));
        }
    }
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
    assert!(names.is_sorted_by_key(|it| slot_of(it, M)));
    assert_eq!(all(&mut table, Some("Line")), []);
    let mut exported = Vec::new();
    for name in &names {
        let slot = slot_of(name, M);
        let syncs = vec![SyncRequest { name: name.clone(), held: None }];
        let asked = SyncOp { reader: None, slot, syncs, stale_ok: false };
        let update = synced(table.call(1000, Op::Documents(DocumentOp::Sync(asked)))).remove(0);
        exported.push(apply(name, None, &update).unwrap().unwrap());
    }
    switch_off(&mut table);
    let (mut deleted, mut from) = (0, Some(DocumentCursor::default()));
    while let Some(next) = from {
        let (some, next) = cleared(table.call(600, clear(next)));
        (deleted, from) = (deleted + some, next);
    }
    switch_on(&mut table);
    assert_eq!((deleted, all(&mut table, None)), (60, Vec::new()));
    assert_eq!(got(table.call(300, get("s"))).record.state, rota_model::SessionState::Ready);
    let import = |document: &Arc<Document>| {
        Op::Documents(DocumentOp::Import(ImportOp { document: document.clone() }))
    };
    let answered = |it| Ok(rota_protocol::Answer::Documents(DocumentAnswer::Imported(Ok(it))));
    let (taken, kept) = (answered(true), answered(false));
    // What was deleted here comes back, and so does what never was there.
    for place in [&mut table, &mut Table::serving()] {
        for document in &exported {
            assert_eq!(place.call(600, import(document)), taken);
            assert_eq!(place.call(300, import(document)), kept, "safe to repeat");
        }
        assert_eq!(all(place, None), names);
    }
}

/// Describes the namespace of carts, and switches it off.
fn switch_off(table: &mut Table) {
    let put = configure("namespace.put", &json!({"name": "shop", "create": true}));
    operated(table.call(600, put)).unwrap();
    let off = configure("namespace.switch", &json!({"name": "shop", "off": "Back at noon"}));
    operated(table.call(600, off)).unwrap();
}

fn switch_on(table: &mut Table) {
    operated(table.call(600, configure("namespace.switch", &json!({"name": "shop"})))).unwrap();
    table.pass(500);
}

#[test]
fn an_owner_that_has_not_heard_that_a_namespace_is_off_deletes_nothing_of_it() {
    let mut table = Table::serving();
    let z = table.view().owner_of(slot_of_spaces(M)).0;
    let deaf = other_than(z);
    let docid = (0..).map(|n| format!("{{d{n}}}")).find(|it| owner_of(&table, it) == deaf).unwrap();
    operated(table.call(z, op(write(&docid, 1), &docid))).unwrap();
    table.lose = Box::new(move |it| it.to.number.0 == deaf && is_followed(&it.message));
    switch_off(&mut table);
    let from = DocumentCursor { slot: slot_of(&name("Cart", &docid), M), after: None };
    let clearing = table.ask(z, clear(from));
    // What comes through this manager is taken still, and so must not be missed.
    operated(table.call(deaf, op(write(&docid, 2), &docid))).unwrap();
    assert!(!table.replies.contains_key(&clearing));
    table.lose = Box::new(|_| false);
    assert_eq!(cleared(table.wait_for(clearing, 5_000)).0, 1);
    let exception = operated(table.call(deaf, op(write(&docid, 3), &docid))).unwrap_err();
    assert_eq!(*exception.code(), codes::OFF);
}

fn is_followed(message: &Message) -> bool {
    let Message::Answer { result, .. } = message else { return false };
    format!("{result:?}").contains("Followed")
}

fn clear(from: DocumentCursor) -> Op {
    Op::Documents(DocumentOp::Clear(ClearOp { from, space: space("shop") }))
}

/// How many documents were deleted, and where to go on.
fn cleared(result: rota_protocol::OpResult) -> (u64, Option<DocumentCursor>) {
    match result {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Cleared { deleted, next })) => {
            (deleted, next)
        }
        other => panic!("not cleared: {other:?}"),
    }
}

#[test]
fn a_document_that_is_not_committed_yet_is_deleted_with_its_namespace() {
    let mut table = Table::serving();
    let owner = owner_of(&table, "{c}");
    operated(table.call(owner, op(write("{c}2", 1), "{c}2"))).unwrap();
    // No copy hears of these for a while: one is new, and one ends.
    let is_its = move |part: ManagerNumber| part.0 == owner;
    table.lose =
        Box::new(move |it| matches!(it.message, Message::Prepare { part, .. } if is_its(part)));
    let end = json!({"changes": [{"class": "Cart", "docid": "{c}2", "life": "destroy"}]});
    let first = table.ask(owner, op(write("{c}1", 1), "{c}1"));
    let ending = table.ask(owner, op(request("document.write", &end), "{c}2"));
    let last = table.ask(owner, op(write("{c}3", 1), "{c}3"));
    switch_off(&mut table);
    let from = DocumentCursor { slot: slot_of(&name("Cart", "{c}"), M), after: None };
    let clearing = table.ask(owner, clear(from));
    let waiting = [first, ending, last, clearing];
    assert!(waiting.iter().all(|it| !table.replies.contains_key(it)));
    table.lose = Box::new(|_| false);
    for writing in [first, ending, last] {
        operated(table.wait_for(writing, 5_000)).unwrap();
    }
    assert_eq!(cleared(table.wait_for(clearing, 5_000)).0, 2);
    switch_on(&mut table);
    for docid in ["{c}1", "{c}2", "{c}3"] {
        let found = refreshed(&mut table, &mut cache(), docid);
        assert!(found.is_none_or(|it| it.is_deleted()), "{docid} was left behind");
    }
}
