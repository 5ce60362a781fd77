//! Files and records that are not what they should be.

use super::*;
use rota_docstore::{Document, DocumentParts, Item, ItemName};
use rota_storage::documents::document_key;
use rota_storage::{Engine as _, EngineError, KvWrite};
use std::fs;
use std::time::Instant;

fn put(folder: &Path, write: KvWrite) {
    let records = folder.join("records");
    let mut engine = rota_storage::open(&records, &label(), &setup().engine).expect("opens");
    engine.commit(&[write]).expect("commits");
}

fn why(folder: &Path) -> String {
    let opened = open_with(Arc::new(RealDisk), folder, setup());
    opened.map(drop).expect_err("it is refused").to_string()
}

fn document(class: &str, version: Stamp, item: Option<&str>) -> Document {
    let content = rota_docstore::Content::raw(vec![1]).expect("short");
    let item = item.map(|item| {
        let name = ItemName::singleton(item).expect("a good name");
        Item::existing(name, version, version, content).expect("it fits")
    });
    Document::from_parts(DocumentParts {
        name: DocName::new(&space(), class, "1-x").expect("a good name"),
        ctime: version,
        version,
        dtime: version,
        is_deleted: false,
        items: item.into_iter().collect(),
    })
    .expect("it fits")
}

#[test]
fn a_record_that_does_not_belong_here_is_refused_by_its_key() {
    let good = document("Raw", now(), Some("Raw"));
    let key = |slot| document_key(SlotId(slot), good.name());
    let cut = good.to_bytes()[..20].to_vec();
    let foreign = document("Film", now(), None);
    let odd = document("Raw", now(), Some("Zz"));
    let elsewhere = DocName::new(&space(), "Raw", "1-y").expect("a good name");
    let mut long = b"d\0\0\0\x01bank\0Raw\0".to_vec();
    long.extend_from_slice(&[b'x'; 300]);
    let cases = [
        (KvWrite::put(key(1), cut), "cannot be decoded"),
        (KvWrite::put(key(1), [9, 9]), "format is 9; this build reads 1 only"),
        (KvWrite::put(key(2), good.to_bytes()), "lies in slot 1"),
        (KvWrite::put(document_key(SlotId(1), &elsewhere), good.to_bytes()), "not of bank/Raw/1-x"),
        (KvWrite::put(document_key(SlotId(0), foreign.name()), foreign.to_bytes()), "\"Film\""),
        (KvWrite::put(key(1), odd.to_bytes()), "\"Zz\" of items is unknown"),
        (KvWrite::put(long, good.to_bytes()), "the limit is 255"),
        (KvWrite::put(*b"d\0\0\0\x01bank\0Raw\0a\0b", good.to_bytes()), "three parts with a NUL"),
        (KvWrite::put(*b"x", *b"y"), "is not that of a document"),
        (KvWrite::put(*b"h", *b"short"), "is not 8 bytes long"),
        (KvWrite::put(*b"h", 170_431_000_000_000u64.to_be_bytes()), "is no stamp"),
    ];
    for (write, expected) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let key = write.key().escape_ascii().to_string();
        put(folder.path(), write);
        let why = why(folder.path());
        assert!(why.contains(expected), "{why}");
        assert!(why.contains(&key), "it names the record: {why}");
        let records = folder.path().join("records");
        assert!(why.contains(records.to_str().expect("text")), "it names the folder: {why}");
    }
}

#[test]
fn a_description_that_cannot_be_learned_is_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let z = Namespace::parse("z").expect("a good name");
    let name = DocName::new(&z, "Space", "bank").expect("a good name");
    store.close(PATIENCE).expect("closes");
    let item = ItemName::singleton("Desc").expect("a good name");
    let json = rota_docstore::Content::json("{\"off\":7}").expect("JSON");
    let at = now();
    let parts = DocumentParts {
        name: name.clone(),
        ctime: at,
        version: at,
        dtime: at,
        is_deleted: false,
        items: vec![Item::existing(item, at, at, json).expect("it fits")],
    };
    let document = Document::from_parts(parts).expect("it fits");
    put(folder.path(), KvWrite::put(document_key(SlotId(0), &name), document.to_bytes()));
    let why = why(folder.path());
    assert!(why.contains("z/Space/bank") && why.contains("json does not fit its type"), "{why}");
}

/// Where the record of that account begins in the newest checkpoint, and all of that.
fn in_checkpoint(folder: &Path, account_id: &str) -> Option<(usize, Vec<u8>)> {
    let bytes = fs::read(folder.join("records/records.checkpoint")).ok()?;
    let key = document_key(SlotId(0), &account(account_id));
    let at = bytes.windows(key.len()).position(|it| it == key)?;
    Some((at, bytes))
}

/// A folder with a checkpoint, a log, and an attachment.
fn filled(folder: &Path) {
    let store = open(folder);
    let deadline = Instant::now() + PATIENCE;
    // A checkpoint is written beside, and the one under way when the store is closed is given up.
    for round in 0.. {
        store.run(add(&[&format!("{}", round % 90)], 1)).expect("it is valid");
        if round >= 400 && round % 90 == 0 && in_checkpoint(folder, "7").is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "no checkpoint has all accounts after {round} rounds");
    }
    let bytes = crate::attachments::body(5);
    store.put_body(&super::bodies::describe(&bytes), bytes.as_slice()).expect("put");
    let attachment = super::bodies::describe(&bytes);
    change(&store, super::bodies::name_body("a", "page", Some(attachment)));
    store.close(PATIENCE).expect("closes");
}

#[test]
fn every_altered_or_shortened_file_of_records_is_refused_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path());
    // A checkpoint that was given up when the store was closed goes at the next start, whatever it is.
    open(folder.path()).close(PATIENCE).expect("closes");
    let records = folder.path().join("records");
    let names = fs::read_dir(&records).expect("a folder").map(|it| it.expect("a file").path());
    let files: Vec<_> = names.filter(|it| !it.ends_with("LOCK")).collect();
    let mut tried = 0;
    for file in files {
        let bytes = fs::read(&file).expect("reads");
        if bytes.is_empty() || file.ends_with("spare.segment") {
            continue;
        }
        let used = bytes.iter().rposition(|it| *it != 0).map_or(0, |it| it + 1);
        let mut altered = bytes.clone();
        altered[used / 2] ^= 4;
        for wrong in [&altered[..], &bytes[..used / 2]] {
            fs::write(&file, wrong).expect("writes");
            let why = why(folder.path());
            let named = file.file_name().expect("a name").to_string_lossy();
            assert!(why.contains(&*named), "{named}: {why}");
            tried += 1;
        }
        fs::write(&file, &bytes).expect("writes");
    }
    assert!(tried >= 8, "{tried}");
    assert_eq!(open(folder.path()).len(), 91, "nothing was changed by all of this");
}

#[test]
fn an_altered_record_in_the_checkpoint_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path());
    let file = folder.path().join("records/records.checkpoint");
    let key = document_key(SlotId(0), &account("7"));
    let (at, mut bytes) = in_checkpoint(folder.path(), "7").expect("it is in there");
    bytes[at + key.len() + 3] ^= 1;
    fs::write(&file, &bytes).expect("writes");
    let error = open_with(Arc::new(RealDisk), folder.path(), setup()).map(drop);
    let Err(OpenError::Records(EngineError::Damaged { file: named, .. })) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*named, file);
    assert!(why(folder.path()).contains(&key.escape_ascii().to_string()), "{error:?}");
}

#[test]
fn a_body_that_is_altered_or_gone_is_told_by_its_digest_and_mended_by_a_new_put() {
    for is_gone in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        filled(folder.path());
        let bytes = crate::attachments::body(5);
        let attachment = super::bodies::describe(&bytes);
        let file = folder.path().join("attachments").join(attachment.sha256().to_string());
        if is_gone {
            fs::remove_file(&file).expect("removes");
        } else {
            let length = fs::metadata(&file).expect("a file").len();
            fs::File::options()
                .write(true)
                .open(&file)
                .expect("opens")
                .set_len(length - 9)
                .expect("cuts");
        }
        let store = open(folder.path());
        assert_eq!(store.missing_bodies(), [attachment.sha256()]);
        let error = store.read_body(&account("a"), "page").map(drop).expect_err("it is not whole");
        assert!(error.to_string().contains(&attachment.sha256().to_string()), "{error}");
        let naming = Do(super::bodies::name_body("b", "page", Some(attachment.clone())));
        let error = store.run_this(Request::new(space(), "do"), naming).expect_err("not whole");
        let exception = error.exception().expect("an exception");
        let text = exception.to_string();
        let (code, part) = match is_gone {
            true => (rota_docstore::codes::BODY, "put it first".to_owned()),
            false => (rota_docstore::codes::DAMAGED, file.display().to_string()),
        };
        assert!(*exception.code() == code && text.contains(&part), "{text}");
        store.put_body(&attachment, bytes.as_slice()).expect("put");
        store.read_body(&account("a"), "page").expect("it is mended");
    }
}

#[test]
fn a_document_from_the_future_is_kept_and_versions_go_on_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let future = now().plus_ms(24 * 3_600_000);
    let document = document("Raw", future, Some("Raw"));
    let write = KvWrite::put(document_key(SlotId(1), document.name()), document.to_bytes());
    put(folder.path(), write);
    let store = open(folder.path());
    assert_eq!(*store.get(document.name()).expect("reads").expect("it is there"), document);
    assert!(store.run(add(&["a"], 1)).expect("it is valid").version >= future);
}
