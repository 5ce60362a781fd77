//! How much documents of applications may fill at a manager.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::*;
use rota_model::{Now, Retry};
use rota_protocol::api::ImportOp;
use rota_protocol::operate::DOCUMENT_BYTES;
use rota_protocol::{Answer, DiskWrite, DocumentAnswer, DocumentOp, Effect, Input, Op};
use serde_json::json;

/// A table of managers that may hold so much.
fn serving(bytes_max: u64) -> Table {
    let mut table = Table::laid();
    table.documents.bytes_max = bytes_max;
    table.start_all();
    table
}

/// A write of one item with so many bytes.
fn fill(docid: &str, bytes: usize) -> Request {
    let put = json!([{"class": "Ln", "key": "1", "json": "x".repeat(bytes)}]);
    let change = json!({"class": "Cart", "docid": docid, "life": "ensure", "put": put});
    request("document.write", &json!({"changes": [change]}))
}

fn refusal(result: Result<rota_docstore::Answer, Exception>) -> String {
    let exception = result.unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::LIMIT, Phase::Validation));
    assert_eq!(exception.details().fields[0].field, "bytes");
    exception.details().message.clone()
}

#[test]
fn what_all_copies_at_a_manager_hold_together_is_limited_whatever_the_namespace() {
    let mut table = serving(4 * DOCUMENT_BYTES + 2_000);
    // One in each partition: every manager holds them all.
    let docids = NUMBERS.map(|n| id_at(&table, n, 0));
    for docid in &docids {
        operated(table.call(300, op(write(docid, 1), docid))).unwrap();
    }
    table.pass(200);
    for (n, docid) in NUMBERS.into_iter().zip(&docids) {
        let text = refusal(operated(table.call(300, op(fill(docid, 3_000), docid))));
        assert!(text.starts_with(&format!("bytes of all documents at manager m{n} would be ")));
        assert!(text.ends_with("; the limit is 4048"), "{text}");
    }
    // Another namespace has no room of its own; what is empty takes some, too.
    let here = &docids[0];
    let other = Request { space: space("other"), ..fill(here, 2_000) };
    refusal(operated(table.call(300, op(other, here))));
    operated(table.call(300, op(fill(here, 2_000), here))).unwrap();
    let next = id_at(&table, NUMBERS[0], 1);
    let touch = json!({"class": "Cart", "docid": next});
    refusal(operated(table.call(300, op(request("document.touch", &touch), &next))));
    // Configuration always has room, and what is there may change and shrink.
    operated(table.call(300, configure("namespace.put", &json!({"name": "shop", "create": true}))))
        .unwrap();
    operated(table.call(300, op(fill(here, 1_999), here))).unwrap();
    let end = json!({"changes": [{"class": "Cart", "docid": here, "life": "destroy"}]});
    let end = Request { operation_time: Some(stamp(&table)), ..request("document.write", &end) };
    operated(table.call(300, op(end, here))).unwrap();
    operated(table.call(300, op(request("document.touch", &touch), &next))).unwrap();
}

#[test]
fn the_ends_of_documents_and_memories_of_operations_fill_room_too_and_always_have_some() {
    let mut table = serving(20 * DOCUMENT_BYTES);
    let touch = |docid: &str| request("document.touch", &json!({"class": "Cart", "docid": docid}));
    let mut ended = 0;
    // Few live at any time, and yet there is no end of them.
    let refused = loop {
        let docid = id_at(&table, NUMBERS[0], ended);
        match operated(table.call(300, op(touch(&docid), &docid))) {
            Ok(_) => ended += 1,
            Err(exception) => break refusal(Err(exception)),
        }
        assert!(ended < 20, "what has ended fills nothing");
        let end = json!({"changes": [{"class": "Cart", "docid": docid, "life": "destroy"}]});
        let end =
            Request { operation_time: Some(stamp(&table)), ..request("document.write", &end) };
        operated(table.call(300, op(end, &docid))).unwrap();
    };
    assert!(refused.ends_with("; the limit is 10240"), "{refused}");
    assert!(ended > 5, "{ended} documents with their memories are {refused}");
}

fn remembered(table: &Table, request: Request) -> Request {
    Request { operation_time: Some(stamp(table)), ..request }
}

fn busy(result: Result<rota_docstore::Answer, Exception>) -> String {
    let exception = result.unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::BUSY, Phase::Validation));
    assert_eq!(exception.details().fields[0].field, "operation_time");
    exception.details().message.clone()
}

#[test]
fn what_remembers_operations_on_documents_that_are_not_there_is_limited() {
    let mut table = serving(16 * DOCUMENT_BYTES);
    let docid = id_at(&table, NUMBERS[0], 0);
    operated(table.call(300, op(fill(&docid, 100), &docid))).unwrap();
    let end = |docid: &str| {
        let change = json!({"class": "Cart", "docid": docid, "life": "destroy"});
        request("document.write", &json!({"changes": [change]}))
    };
    let mut done = 0;
    let refused = loop {
        let absent = id_at(&table, NUMBERS[0], 1 + done);
        let asked = remembered(&table, end(&absent));
        match operated(table.call(300, op(asked, &absent))) {
            Ok(_) => done += 1,
            Err(exception) => break busy(Err(exception)),
        }
        assert!(done < 20, "memories fill nothing");
    };
    assert!(refused.ends_with("; the limit is 9216"), "{refused}");
    assert!(refused.contains("at manager m") && done > 5, "{refused} after {done}");
    // What asks for no memory, and whatever ends a document, has room.
    operated(table.call(300, op(end("absent"), "absent"))).unwrap();
    let asked = remembered(&table, end(&docid));
    operated(table.call(300, op(asked, &docid))).unwrap();
}

#[test]
fn what_living_documents_remember_is_limited_too() {
    let mut table = serving(16 * DOCUMENT_BYTES);
    let docid = id_at(&table, NUMBERS[0], 0);
    let mut done = 0;
    let refused = loop {
        let asked = remembered(&table, write(&docid, 1));
        match operated(table.call(300, op(asked, &docid))) {
            Ok(_) => done += 1,
            Err(exception) => break busy(Err(exception)),
        }
        assert!(done < 50, "memories fill nothing");
        table.pass(1);
    };
    assert!(refused.ends_with("; the limit is 9216"), "{refused}");
    operated(table.call(300, op(write(&docid, 2), &docid))).unwrap();
    // Another document would have had room without the memories.
    refusal(operated(table.call(300, op(fill("other", 1_000), "other"))));
    // The advice is the time until the oldest of them goes.
    let asked = remembered(&table, write(&docid, 3));
    let exception = operated(table.call(300, op(asked.clone(), &docid))).unwrap_err();
    let Retry::AfterMs(wait_ms) = exception.retry() else { panic!("{exception:?}") };
    assert!((600_000..680_000).contains(&wait_ms), "{wait_ms} ms");
    table.pass(wait_ms);
    let asked = remembered(&table, write(&docid, 3));
    operated(table.call(300, op(asked, &docid))).unwrap();
}

#[test]
fn only_descriptions_of_namespaces_always_have_room() {
    let mut table = serving(2 * DOCUMENT_BYTES);
    let in_z = |request: Request| Request { space: space("z"), ..request };
    // A class of an application's own, and what is served over HTTP, fill like everything else.
    refusal(operated(table.call(300, op(in_z(fill("c", 2_000)), "c"))));
    let page = json!({"path": "c", "mime": "text/html", "body": "A".repeat(2_000)});
    let put = Request::new(space("z"), "web.put").with(&page).unwrap();
    refusal(operated(table.call(300, op(put, "c"))));
    let page = json!({"path": "c", "mime": "text/html", "body": "AAAA"});
    let put = Request::new(space("z"), "web.put").with(&page).unwrap();
    operated(table.call(300, op(put, "c"))).unwrap();
    for n in 0..3 {
        let create = json!({"name": format!("shop{n}"), "create": true});
        operated(table.call(300, configure("namespace.put", &create))).unwrap();
    }
    let off = json!({"name": "shop1", "off": "later"});
    operated(table.call(300, configure("namespace.switch", &off))).unwrap();
}

#[test]
fn an_import_is_held_to_what_a_manager_may_hold() {
    let mut table = serving(DOCUMENT_BYTES + 500);
    let imported = |table: &mut Table, bytes: usize| {
        let at = stamp(table).minus_ms(1_000);
        let content = Content::json_of(&"x".repeat(bytes)).unwrap();
        let item = Item::existing(ItemName::keyed("Ln", "1").unwrap(), at, at, content).unwrap();
        let (name, items) = (name("Cart", "c"), vec![item]);
        let parts =
            DocumentParts { name, ctime: at, version: at, dtime: at, is_deleted: false, items };
        let document = Document::from_parts(parts).unwrap().into();
        match table.call(300, Op::Documents(DocumentOp::Import(ImportOp { document }))) {
            Ok(Answer::Documents(DocumentAnswer::Imported(it))) => it,
            other => panic!("not imported: {other:?}"),
        }
    };
    let exception = imported(&mut table, 500).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::LIMIT, Phase::Validation));
    assert_eq!(imported(&mut table, 400), Ok(true));
}

#[test]
fn what_goes_to_the_disk_together_is_bounded_and_the_rest_follows_by_itself() {
    let mut table = Table::laid();
    table.sizes.batch_bytes = 10_000;
    table.start_all();
    let owner = NUMBERS[0];
    let docids: Vec<String> = (0..8).map(|nth| id_at(&table, owner, nth)).collect();
    // By itself, so that several inputs come before it gives what it wrote.
    let (mut manager, mut now) = (table.managers[&owner].clone(), table.now());
    for (docid, call) in docids.iter().zip(1_000..) {
        let (op, deadline_mono_ms) = (op(fill(docid, 4_000), docid), now.mono_ms + 10_000);
        manager.handle(now, Input::Client { call, deadline_mono_ms, op });
    }
    assert!(manager.is_batch_full());
    let (mut batches, mut written) = (Vec::new(), 0);
    while written < docids.len() {
        let mut docs = 0;
        for effect in manager.flush(now) {
            let Effect::Persist { writes, .. } = effect else { continue };
            docs += writes.iter().filter(|it| matches!(it, DiskWrite::Doc { .. })).count();
        }
        assert!(docs <= 3, "{docs} documents of 4,000 bytes at once");
        written += docs;
        batches.push(docs);
        assert!(batches.len() < 40, "{batches:?}: the rest waits for ever");
        now = Now { mono_ms: now.mono_ms + 20, wall_ms: now.wall_ms + 20 };
        manager.handle(now, Input::Tick);
    }
    assert_eq!(batches[0], 3, "{batches:?}");
}
