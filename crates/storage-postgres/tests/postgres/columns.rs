//! Columns, as `psql` shows them.

use crate::opening;
use crate::server::PostgresServer;
use rota_docstore::{
    Attachment, Content, Digest, DocName, Document, DocumentParts, Item, ItemName, Namespace, Stamp,
};
use rota_storage::{Engine, KvWrite};
use rota_storage_postgres::{DocumentRow, Opening, PostgresEngine};

/// Keys are slots, and values are documents, as far as they are.
fn row_of(key: &[u8], value: &[u8]) -> Option<DocumentRow> {
    let slot = u32::from_be_bytes(key.try_into().ok()?);
    Some(DocumentRow::of(slot, &Document::from_bytes(value).ok()?))
}

fn engine_at(server: &PostgresServer, folder: &std::path::Path) -> PostgresEngine {
    let opening = Opening { row_of, ..opening(&server.url()) };
    PostgresEngine::open(folder, opening).expect("opens")
}

/// So long after some moment of this century.
fn at(ms: u64) -> Stamp {
    Stamp::from_epoch_ms(1_700_000_000_000 + ms)
}

fn document(class: &str, docid: &str, version: Stamp, items: Vec<Item>) -> Document {
    let space = Namespace::parse("shop").expect("a good name");
    let name = DocName::new(&space, class, docid).expect("a good name");
    let parts = DocumentParts {
        name,
        ctime: at(1_000),
        version,
        dtime: at(1_000),
        is_deleted: false,
        items,
    };
    Document::from_parts(parts).expect("a good document")
}

fn item(class: &str, key: &str, version: Stamp, content: Content) -> Item {
    let name = ItemName::keyed(class, key).expect("a good name");
    Item::existing(name, version, version, content).expect("a good item")
}

fn json(text: &str) -> Content {
    Content::json(text).expect("JSON")
}

fn put(slot: u32, document: &Document) -> KvWrite {
    KvWrite::put(slot.to_be_bytes(), document.to_bytes())
}

#[test]
fn documents_are_found_by_name_version_and_what_their_items_say() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = engine_at(&server, folder.path());
    let now = at(5_000);
    let address = |code: &str| {
        let text = format!(r#"{{"code":"{code}","mails":["a@x","b@x"]}}"#);
        item("Adr", "home", now, json(&text))
    };
    let description = Attachment::new("text/plain", 3, Digest([1; 32])).expect("good");
    let body = item("P", "letter", now, Content::Attachment(description.into()));
    let raw = item("Raw", "r", now, Content::raw(vec![1, 2, 3]).expect("short"));
    let ann = document("Person", "ann", now, vec![address("94000"), body, raw]);
    let bob = document("Person", "bob", at(9_000), vec![address("75001")]);
    let batch = [put(3, &ann), put(4, &bob), KvWrite::put("no document", "x")];
    engine.commit(&batch).expect("commits");
    let ask = |what: &str| server.psql(&format!(r#"SET search_path TO "rota/test/m7"; {what}"#));
    assert_eq!(
        ask("SELECT namespace, class, docid, slot, deleted FROM documents ORDER BY docid"),
        "shop|Person|ann|3|f\nshop|Person|bob|4|f"
    );
    let (version, ctime) = (at(9_000).as_u64(), at(1_000).as_u64());
    assert_eq!(
        ask("SELECT version, ctime FROM documents WHERE docid = 'bob'"),
        format!("{version}|{ctime}")
    );
    let found = r#"SELECT docid FROM documents WHERE items @> '[{"class":"Adr","content":{"code":"94000"}}]'"#;
    assert_eq!(ask(found), "ann");
    let between = "SELECT docid FROM documents, jsonb_array_elements(items) AS item \
                   WHERE class = 'Person' AND item->>'class' = 'Adr' \
                   AND item->'content'->>'code' BETWEEN '75000' AND '75999'";
    assert_eq!(ask(between), "bob");
    let others = "SELECT item->>'key', coalesce(item->'attachment'->>'size', item->>'raw_bytes') \
                  FROM documents, jsonb_array_elements(items) AS item \
                  WHERE docid = 'ann' AND item->>'class' <> 'Adr' ORDER BY 1";
    assert_eq!(ask(others), "letter|3\nr|3");
    // Each query that the page shows has an index.
    let more = |it: u32| document("Other", &it.to_string(), now, vec![address(&it.to_string())]);
    let more: Vec<_> = (100..3_100).map(|it| put(it, &more(it))).collect();
    engine.commit(&more).expect("commits");
    server.psql("VACUUM ANALYZE");
    let plan = |what: &str| ask(&format!("EXPLAIN {what}"));
    assert!(plan(found).contains("documents_items"), "{}", plan(found));
    let named = "SELECT * FROM documents WHERE namespace = 'shop' AND class = 'Person'";
    assert!(plan(named).contains("documents_name"), "{}", plan(named));
    let newest = format!("SELECT docid FROM documents WHERE version > {}", at(8_000).as_u64());
    assert_eq!(ask(&newest), "bob");
    assert!(plan(&newest).contains("documents_version"), "{}", plan(&newest));
    // A change and a removal are seen, too.
    let changed = document("Person", "ann", at(10_000), vec![]);
    engine.commit(&[put(3, &changed), KvWrite::delete(4u32.to_be_bytes())]).expect("commits");
    assert_eq!(ask("SELECT docid, items FROM documents WHERE class = 'Person'"), "ann|[]");
}

#[test]
fn what_no_column_of_the_server_holds_never_fails_a_commit() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = engine_at(&server, folder.path());
    let now = at(5_000);
    let deep = format!("{}1{}", "[".repeat(99), "]".repeat(99));
    let contents = [
        ("deep", deep.as_str()),
        ("huge", "1e999"),
        ("large", "1.7976931348623157e308"),
        ("long", "123456789012345678901234567890.12345678901234567890"),
        ("nul", r#"{"a\u0000b":"c\u0000d"}"#),
        ("small", "1e-300"),
        ("twice", r#"{"a":1,"a":2}"#),
    ];
    let items: Vec<Item> =
        contents.iter().map(|(key, text)| item("J", key, now, json(text))).collect();
    let odd = document("Odd", "one", now, items);
    let fat: Vec<Item> = (0..3)
        .map(|it| item("J", &it.to_string(), now, json(&format!("\"{}\"", "x".repeat(500_000)))))
        .collect();
    let fat = document("Odd", "two", now, fat);
    engine.commit(&[put(1, &odd), put(2, &fat)]).expect("commits");
    let ask = |what: &str| server.psql(&format!(r#"SET search_path TO "rota/test/m7"; {what}"#));
    let of = |key: &str| {
        ask(&format!(
            "SELECT item->'content' FROM documents, jsonb_array_elements(items) AS item \
             WHERE docid = 'one' AND item->>'key' = '{key}'"
        ))
    };
    assert_eq!(of("nul"), "{\"a\u{fffd}b\": \"c\u{fffd}d\"}");
    assert_eq!(of("huge"), "\"1e999\"");
    assert_eq!(of("twice"), "{\"a\": 2}");
    assert!(of("large").starts_with("17976931348623157"), "{}", of("large"));
    assert_eq!(ask("SELECT docid, items IS NULL FROM documents ORDER BY 1"), "one|f\ntwo|t");
    let bytes = engine.get(&1u32.to_be_bytes()).expect("reads").expect("is there");
    assert_eq!(Document::from_bytes(&bytes).expect("whole"), odd, "the record itself is untouched");
}
