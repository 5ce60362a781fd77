//! Documents that are brought in from elsewhere, beside what is here of them.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::*;
use rota_protocol::api::ImportOp;
use rota_protocol::{DocumentAnswer, DocumentOp, Op};
use serde_json::{Value, json};
use std::sync::Arc;

/// A cart as another cluster has it: so many lines, all of one moment.
fn cart(docid: &str, ctime: Stamp, version: Stamp, lines: &[(&str, u32)]) -> Arc<Document> {
    let items = lines.iter().map(|(key, n)| {
        let content = Content::json_of(&json!({ "n": n })).unwrap();
        Item::existing(ItemName::keyed("Ln", key).unwrap(), version, version, content).unwrap()
    });
    let (name, items) = (name("Cart", docid), items.collect());
    let parts = DocumentParts { name, ctime, version, dtime: ctime, is_deleted: false, items };
    Arc::new(Document::from_parts(parts).unwrap())
}

fn imported(table: &mut Table, document: &Arc<Document>) -> Result<bool, Exception> {
    let import = DocumentOp::Import(ImportOp { document: document.clone() });
    match table.call(300, Op::Documents(import)) {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Imported(it))) => it,
        other => panic!("not imported: {other:?}"),
    }
}

fn lines(document: &Document) -> Vec<(String, Value)> {
    let text = |content: &Content| match content {
        Content::Json(text) => text.read().unwrap(),
        Content::Raw(_) | Content::Attachment(_) => Value::Null,
    };
    let lines = document.existing().map(|(name, it)| (name.key().unwrap().to_owned(), text(it)));
    lines.collect()
}

/// What is here of a cart, by a copy that knew nothing, and that others agree with it.
fn agreed(table: &mut Table, others: [&mut Cache; 2], docid: &str) -> Arc<Document> {
    let fresh = refreshed(table, &mut cache(), docid).expect("it is there");
    for other in others {
        let copy = refreshed(table, other, docid).expect("it is there");
        assert_eq!((copy.ctime(), copy.version()), (fresh.ctime(), fresh.version()));
        assert_eq!(lines(&copy), lines(&fresh));
    }
    fresh
}

#[test]
fn an_import_reaches_a_cache_that_was_told_that_there_is_no_such_document() {
    let mut table = Table::serving();
    let now = stamp(&table);
    let old = cart("c", now.minus_ms(50_000), now.minus_ms(10_000), &[("1", 7)]);
    // Something of that owner is newer than the export, and a cache hears that there is no cart.
    operated(table.call(300, op(write("{c}1", 1), "c"))).unwrap();
    let mut told = cache();
    assert_eq!(refreshed(&mut table, &mut told, "c"), None);
    assert_eq!(imported(&mut table, &old), Ok(true));
    let here = agreed(&mut table, [&mut told, &mut cache()], "c");
    assert_eq!((here.ctime(), lines(&here)), (old.ctime(), lines(&old)));
    assert!(here.version() > old.version());
    assert_eq!(imported(&mut table, &old), Ok(false), "repeated");
    // It goes on from there.
    operated(table.call(300, op(write("c", 8), "c"))).unwrap();
    let here = agreed(&mut table, [&mut told, &mut cache()], "c");
    assert_eq!(lines(&here), [("1".to_owned(), json!({"n": 8}))]);
    // Nothing of this document's owner was told: it comes as it was.
    let far = id_at(&table, other_than(owner_of(&table, "c")), 0);
    let whole = cart(&far, now.minus_ms(50_000), now.minus_ms(10_000), &[("1", 7)]);
    assert_eq!(imported(&mut table, &whole), Ok(true));
    assert_eq!(refreshed(&mut table, &mut cache(), &far), Some(whole));
}

#[test]
fn an_import_never_takes_a_document_back_to_an_earlier_life_or_version() {
    let mut table = Table::serving();
    let now = stamp(&table);
    operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    let mut copy = cache();
    let before = refreshed(&mut table, &mut copy, "c").unwrap();
    // An earlier life, though it was changed later than the one that is here.
    let earlier = cart("c", now.minus_ms(9_000), now.plus_ms(60_000), &[("1", 7)]);
    assert_eq!(imported(&mut table, &earlier), Ok(false));
    assert_eq!(refreshed(&mut table, &mut copy, "c"), Some(before.clone()));
    // The same life, changed on another way since: a line is other, one is new; then one is gone.
    let at = |ms| before.version().plus_ms(ms);
    let other = cart("c", before.ctime(), at(5_000), &[("1", 2), ("2", 3)]);
    assert_eq!(imported(&mut table, &other), Ok(true));
    let mut late = cache();
    late.apply(before.name(), &Update::Full(before.clone()), now).unwrap();
    let here = agreed(&mut table, [&mut copy, &mut late], "c");
    assert_eq!((here.version(), lines(&here)), (other.version(), lines(&other)));
    assert_eq!(imported(&mut table, &other), Ok(false));
    let fewer = cart("c", before.ctime(), at(6_000), &[("2", 3)]);
    assert_eq!(imported(&mut table, &fewer), Ok(true));
    let here = agreed(&mut table, [&mut copy, &mut late], "c");
    assert_eq!((here.ctime(), lines(&here)), (before.ctime(), lines(&fewer)));
    // A later life whose version is below what is here.
    let later = cart("c", before.ctime().next(), at(10), &[("3", 4)]);
    assert_eq!(imported(&mut table, &later), Ok(true));
    let after = agreed(&mut table, [&mut copy, &mut late], "c");
    assert_eq!((after.ctime(), lines(&after)), (later.ctime(), lines(&later)));
    assert!(after.version() > here.version());
}

#[test]
fn an_import_of_a_life_that_ended_here_begins_a_new_one() {
    let mut table = Table::serving();
    operated(table.call(300, op(write("c", 1), "c"))).unwrap();
    let (mut copy, mut ended) = (cache(), cache());
    let before = refreshed(&mut table, &mut copy, "c").unwrap();
    let end = json!({"changes": [{"class": "Cart", "docid": "c", "life": "destroy"}]});
    operated(table.call(300, op(request("document.write", &end), "c"))).unwrap();
    assert!(refreshed(&mut table, &mut ended, "c").unwrap().is_deleted());
    // As it was before it ended.
    assert_eq!(imported(&mut table, &before), Ok(true));
    let back = agreed(&mut table, [&mut copy, &mut ended], "c");
    assert!(back.ctime() > before.version() && lines(&back) == lines(&before));
    assert_eq!(imported(&mut table, &before), Ok(false), "repeated");
    // As it was in a life before that one.
    operated(table.call(300, op(request("document.write", &end), "c"))).unwrap();
    assert!(refreshed(&mut table, &mut ended, "c").unwrap().is_deleted());
    assert_eq!(imported(&mut table, &before), Ok(true));
    let again = agreed(&mut table, [&mut copy, &mut ended], "c");
    assert!(again.ctime() > back.version() && lines(&again) == lines(&before));
    // Elsewhere it went on.
    operated(table.call(300, op(request("document.write", &end), "c"))).unwrap();
    let on = cart("c", before.ctime(), before.version().plus_ms(5_000), &[("1", 2)]);
    assert_eq!(imported(&mut table, &on), Ok(true));
    let here = agreed(&mut table, [&mut copy, &mut ended], "c");
    assert!(here.ctime() > on.version() && lines(&here) == lines(&on));
    // The end of a life takes nothing back.
    let over =
        DocumentParts { is_deleted: true, items: vec![], ..before.as_ref().clone().into_parts() };
    let over = DocumentParts { dtime: over.version, ..over };
    assert_eq!(imported(&mut table, &Document::from_parts(over).unwrap().into()), Ok(false));
    // The trace of it is forgotten: somebody may hold that life all the same.
    operated(table.call(300, op(request("document.write", &end), "c"))).unwrap();
    table.wall_step_ms = 8 * 24 * 3_600_000;
    table.pass(11_000);
    let now = stamp(&table);
    let old = cart("c", before.ctime(), before.version(), &[("1", 1)]);
    assert_eq!(imported(&mut table, &old), Ok(true));
    let here = agreed(&mut table, [&mut copy, &mut cache()], "c");
    assert!(here.ctime() >= now && lines(&here) == lines(&old));
}

#[test]
fn an_import_goes_beyond_limits_and_what_is_above_them_may_only_shrink() {
    let mut table = Table::serving();
    let limits = json!({"documents": 2, "item_bytes": 100});
    let put = json!({"name": "shop", "create": true, "limits": limits});
    operated(table.call(300, configure("namespace.put", &put))).unwrap();
    table.pass(40);
    let at = stamp(&table).minus_ms(1_000);
    for docid in ["{c}1", "{c}2", "{c}3"] {
        assert_eq!(imported(&mut table, &cart(docid, at, at, &[("1", 1)])), Ok(true));
    }
    let fourth = operated(table.call(300, op(write("{c}4", 1), "{c}4"))).unwrap_err();
    assert_eq!((fourth.code(), fourth.phase()), (&codes::LIMIT, Phase::Validation));
    assert_eq!(fourth.details().message, "documents of the namespace would be 4; the limit is 2");
    let end = json!({"changes": [{"class": "Cart", "docid": "{c}1", "life": "destroy"}]});
    operated(table.call(300, op(request("document.write", &end), "{c}1"))).unwrap();
}

#[test]
fn an_import_leaves_what_operations_remember_and_they_are_not_done_again() {
    // Of a later version, and of a later life.
    for life_ms in [0, 3_000] {
        let mut table = Table::serving();
        let asked = Request { operation_time: Some(stamp(&table)), ..write("c", 1) };
        let answer = operated(table.call(300, op(asked.clone(), "c"))).unwrap();
        let before = refreshed(&mut table, &mut cache(), "c").unwrap();
        let [ctime, version] = [before.ctime().plus_ms(life_ms), before.version().plus_ms(5_000)];
        let later = cart("c", ctime, version, &[("1", 2)]);
        assert_eq!(imported(&mut table, &later), Ok(true));
        assert_eq!(imported(&mut table, &later), Ok(false), "repeated");
        let again = operated(table.call(600, op(asked, "c"))).unwrap();
        assert_eq!((again.version, again.body), (answer.version, answer.body));
        let here = refreshed(&mut table, &mut cache(), "c").unwrap();
        assert_eq!((here.ctime(), lines(&here)), (ctime, lines(&later)));
    }
}
