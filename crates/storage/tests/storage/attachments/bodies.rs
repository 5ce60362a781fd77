//! Putting, reading, listing.

use super::{GRACE_MS, Trickle, bodies_on_disk, body, open, put, read, settings, sha};
use crate::label;
use rota_model::ManagerNumber;
use rota_storage::attachments::{
    AttachmentError, AttachmentSettings, Attachments, PIECE_BYTES, Stored, digest_of,
};
use rota_storage::{Disk, EngineError, Label, RealDisk};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

fn real(folder: &Path) -> Attachments {
    open(Arc::new(RealDisk), folder).expect("opens")
}

#[test]
fn a_body_is_read_as_it_was_put_at_once_and_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = real(folder.path());
    for number in 0..16 {
        let bytes = body(number);
        let stored = store.put(sha(number), bytes.len() as u64, Trickle(&bytes), 5);
        assert_eq!(stored.expect("stored"), Stored::New);
    }
    assert_eq!(put(&store, b"", 5).expect("an empty body is one"), Stored::New);
    for _ in 0..2 {
        for number in 0..16 {
            let bytes = body(number);
            assert!(store.contains(&sha(number)));
            assert_eq!(store.size(&sha(number)), Some(bytes.len() as u64));
            assert!(read(&store, &sha(number)).expect("reads") == bytes, "{number}");
            store.verify(&sha(number)).expect("whole");
            let mut all = Vec::new();
            let mut reader = store.read(&sha(number)).expect("opens");
            assert_eq!(reader.left(), bytes.len() as u64);
            reader.read_to_end(&mut all).expect("reads");
            assert_eq!(reader.left(), 0);
            assert!(all == bytes);
        }
        assert_eq!(read(&store, &digest_of(b"")).expect("reads"), b"");
        drop(store);
        store = real(folder.path());
    }
}

#[test]
fn the_same_content_is_stored_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    assert_eq!(put(&store, b"abc", 1).expect("stored"), Stored::New);
    assert_eq!(put(&store, b"abc", 2).expect("stored"), Stored::Known);
    // Two at the same time, too.
    let [mut first, mut second] =
        [(); 2].map(|()| store.begin(digest_of(b"xy"), 2).expect("begins"));
    first.write(b"xy").expect("writes");
    second.write(b"x").expect("writes");
    second.write(b"y").expect("writes");
    assert_eq!(first.finish(3).expect("stored"), Stored::New);
    assert_eq!(second.finish(3).expect("stored"), Stored::Known);
    assert_eq!(store.volumes().bodies, 2);
    assert_eq!(bodies_on_disk(folder.path()).len(), 2);
}

#[test]
fn any_range_of_a_body_can_be_read_and_nothing_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    let bytes = body(7);
    let size = bytes.len() as u64;
    put(&store, &bytes, 0).expect("stored");
    let piece = PIECE_BYTES as u64;
    let borders = [0, 1, 700, piece - 1, piece, piece + 1, 2 * piece, size - 1, size];
    for from in borders {
        for to in borders.into_iter().filter(|&to| to >= from) {
            let mut reader = store.read_range(&sha(7), from..to).expect("opens");
            assert_eq!((reader.size(), reader.left()), (size, to - from));
            let mut found = Vec::new();
            reader.read_to_end(&mut found).expect("reads");
            let index = |at: u64| usize::try_from(at).expect("small");
            assert!(found == bytes[index(from)..index(to)], "{from}..{to}");
        }
    }
    let backwards = std::ops::Range { start: 2, end: 1 };
    for range in [0..size + 1, size + 1..size + 1, backwards] {
        let error = store.read_range(&sha(7), range.clone()).map(drop).expect_err("refused");
        assert!(matches!(error, AttachmentError::OutOfRange { .. }), "{error}");
        let text = format!("bytes {} to {} of attachment {}", range.start, range.end, sha(7));
        assert!(error.to_string().starts_with(&text), "{error}");
    }
    let missing = store.read(&sha(8)).map(drop).expect_err("it is not there");
    assert_eq!(missing.to_string(), format!("there is no attachment {}", sha(8)));
}

#[test]
fn wrong_bytes_are_refused_with_what_was_expected_and_what_came() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    let error = store.put(sha(2), body(2).len() as u64, &body(2)[1..], 0).expect_err("too short");
    assert!(error.to_string().ends_with("was announced with 708 bytes, and 707 came"), "{error}");
    let longer = [body(2), vec![0]].concat();
    let error = store.put(sha(2), body(2).len() as u64, &*longer, 0).expect_err("too long");
    let text = error.to_string();
    assert!(text.ends_with("was announced with 708 bytes, and 709 came at least"), "{text}");
    let mut other = body(2);
    other[100] ^= 1;
    let error = store.put(sha(2), 708, &*other, 0).expect_err("other bytes");
    assert!(
        matches!(error, AttachmentError::WrongDigest { expected, found }
            if expected == sha(2) && found == digest_of(&other)),
        "{error}"
    );
    assert!(!store.contains(&sha(2)));
    assert_eq!(bodies_on_disk(folder.path()), [""; 0]);
    assert_eq!(put(&store, &body(2), 0).expect("stored"), Stored::New);
}

#[test]
fn limits_are_refused_before_any_work_with_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    let limit = settings().body_bytes_max;
    let error = store.begin(sha(1), limit + 1).map(drop).expect_err("too large");
    let text = "the size of an attachment in bytes is 1048577; the limit is 1048576";
    assert_eq!(error.to_string(), text);
    let puts: Vec<_> = (0..4).map(|_| store.begin(sha(1), limit).expect("begins")).collect();
    let error = store.begin(sha(1), 1).map(drop).expect_err("too many");
    assert_eq!(
        error.to_string(),
        "4 attachments are being put already, the limit; come again soon"
    );
    drop(puts);
    assert_eq!(bodies_on_disk(folder.path()), [""; 0]);
    put(&store, b"abc", 0).expect("there is room again");
}

#[test]
fn a_list_comes_in_pages_in_order_of_digests() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    let mut all: Vec<_> = (0..10).map(|it| (sha(it), body(it).len() as u64)).collect();
    all.sort();
    (0..10).for_each(|number| assert!(put(&store, &body(number), 0).is_ok()));
    let mut listed = Vec::new();
    loop {
        let after = listed.last().map(|(sha256, _)| *sha256);
        let page = store.list(after.as_ref(), 3);
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert_eq!(listed, all);
}

#[test]
fn left_overs_of_puts_are_removed_at_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    put(&store, b"abc", 0).expect("stored");
    drop(store);
    std::fs::write(folder.path().join("0000000000000003.new"), b"half a bo").expect("writes");
    std::fs::write(folder.path().join("notes.txt"), b"somebody's").expect("writes");
    let store = real(folder.path());
    assert_eq!(bodies_on_disk(folder.path()), [digest_of(b"abc").to_string(), "notes.txt".into()]);
    assert_eq!(store.volumes().bodies, 1);
}

#[test]
fn a_folder_of_another_manager_or_format_or_in_use_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    put(&store, b"abc", 0).expect("stored");
    let disk = || Arc::new(RealDisk);
    let error = open(disk(), folder.path()).map(drop).expect_err("in use");
    assert!(matches!(error, AttachmentError::Folder(EngineError::InUse { .. })), "{error}");
    drop(store);
    let other = Label { number: ManagerNumber(8), ..label() };
    let error = Attachments::open(disk(), folder.path(), &other, settings(), 0);
    let error = error.map(drop).expect_err("another's");
    assert!(error.to_string().contains("belongs to manager m7 with number 7"), "{error}");
    let owner = folder.path().join("OWNER");
    let text = std::fs::read_to_string(&owner).expect("text");
    std::fs::write(&owner, text.replace("format 6", "format 3")).expect("writes");
    let error = open(disk(), folder.path()).map(drop).expect_err("another format");
    assert!(error.to_string().contains("has format 3; this program knows format 6"), "{error}");
    assert!(error.to_string().contains("start the release that wrote it"), "{error}");
    std::fs::remove_file(&owner).expect("removes");
    let error = open(disk(), folder.path()).map(drop).expect_err("not whole");
    assert!(error.to_string().contains("is there without it"), "{error}");
    std::fs::write(&owner, text).expect("writes");
    assert_eq!(read(&real(folder.path()), &digest_of(b"abc")).expect("reads"), b"abc");
}

#[test]
fn a_large_body_passes_through_in_pieces() {
    // A file as the source, so that the test itself holds no large body either.
    let mut source = tempfile::tempfile().expect("a file");
    let chunk = body(7);
    let mut whole = Vec::new();
    for _ in 0..4 {
        source.write_all(&chunk).expect("writes");
        whole.extend_from_slice(&chunk);
    }
    source.seek(SeekFrom::Start(0)).expect("seeks");
    let folder = tempfile::tempdir().expect("a folder");
    let store = real(folder.path());
    store.put(digest_of(&whole), whole.len() as u64, source, 0).expect("stored");
    let mut reader = store.read(&digest_of(&whole)).expect("opens");
    let mut longest = 0;
    loop {
        let piece = reader.next_piece().expect("reads");
        if piece.is_empty() {
            break;
        }
        longest = longest.max(piece.len());
    }
    assert_eq!(longest, PIECE_BYTES);
}

fn with(folder: &Path, settings: AttachmentSettings) -> Attachments {
    Attachments::open(Arc::new(RealDisk), folder, &label(), settings, 0).expect("opens")
}

#[test]
fn bodies_that_no_item_names_fill_no_more_than_their_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = with(folder.path(), AttachmentSettings { free_bytes_max: 10, ..settings() });
    store.set_references(&BTreeMap::new(), 0);
    put(&store, b"four", 0).expect("stored");
    let under_way = store.begin(digest_of(b"five5"), 5).expect("begins");
    let crowded = put(&store, b"ab", 0).expect_err("there may be no room");
    assert!(matches!(crowded, AttachmentError::Crowded { found: 11, limit: 10 }), "{crowded}");
    let text = put(&store, b"seven_7", 0).expect_err("there is no room").to_string();
    let what = "the size of all attachments that no item names, with this one, in bytes";
    assert_eq!(text, format!("{what} is 11; the limit is 10"));
    assert_eq!(put(&store, b"four", 0).expect("it is here"), Stored::Known);
    drop(under_way);
    put(&store, b"ab", 0).expect("stored");
    // What an item names needs no room, neither before nor after.
    let mut wanted = store.begin_wanted(digest_of(b"wanted"), 6).expect("begins");
    wanted.write(b"wanted").expect("writes");
    wanted.finish(0).expect("stored");
    store.refer(&[digest_of(b"wanted"), digest_of(b"four")]).expect("they are here");
    put(&store, b"eight8_8", 0).expect("stored");
    store.release(&[digest_of(b"four")], 0).expect("it was named");
    put(&store, b"c", 0).expect_err("there is no room");
    assert_eq!(store.volumes().free_bytes, 14);
    // What goes makes room.
    store.collect(GRACE_MS, 100).expect("collects");
    put(&store, b"ten_ten_10", GRACE_MS).expect("stored");
    assert_eq!(store.volumes().free_bytes, 10);
}

#[test]
fn a_body_leaves_the_reserve_of_the_disk_to_other_things() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = RealDisk.free_bytes(folder.path()).expect("reads");
    assert!(all > 0);
    let store = with(folder.path(), AttachmentSettings { reserve_bytes: all * 2, ..settings() });
    for begun in [store.begin(sha(1), 9), store.begin_wanted(sha(1), 9)] {
        let text = begun.expect_err("there is no room").to_string();
        assert!(text.starts_with("an attachment of 9 bytes would leave too little"), "{text}");
        assert!(text.contains(&format!("{} must be left", all * 2)), "{text}");
    }
    drop(store);
    let store = with(folder.path(), AttachmentSettings { reserve_bytes: 1, ..settings() });
    put(&store, &body(1), 0).expect("stored");
}
