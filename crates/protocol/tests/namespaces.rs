//! Namespaces, known to every manager: switched off, limited, listed, cleared, imported.

#![allow(clippy::unwrap_used, reason = "a test that cannot ask has failed")]

mod table;

use rota_docstore::*;
use rota_model::{Changed, Filter, PullOp, RefusalKind, SlotId};
use rota_protocol::api::{ClearOp, ImportOp, PageOp, SyncOp};
use rota_protocol::operate::{AdminKey, SPACES_DOCID, slot_of, slot_of_spaces};
use rota_protocol::{DocumentAnswer, DocumentCursor, DocumentOp, Message, Op};
use serde_json::json;
use std::sync::Arc;
use table::asking::*;
use table::*;

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
