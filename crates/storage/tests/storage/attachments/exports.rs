//! Exports and imports.

use super::{GRACE_MS, Trickle, body, open, put, read, sha};
use rota_storage::RealDisk;
use rota_storage::attachments::{
    AttachmentError, Attachments, Digest, ENTRIES_MAX, Export, Exported, Named,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

const VERSION: u64 = 171_128_094_052_123;

struct Store {
    _folder: tempfile::TempDir,
    store: Attachments,
}

fn store_with(numbers: &[u64]) -> Store {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(Arc::new(RealDisk), folder.path()).expect("opens");
    numbers.iter().for_each(|&number| assert!(put(&store, &body(number), 0).is_ok()));
    Store { _folder: folder, store }
}

fn keys(numbers: &[(&str, u64)]) -> Vec<(String, Digest)> {
    numbers.iter().map(|&(key, number)| (key.to_owned(), sha(number))).collect()
}

fn export(
    store: &Attachments,
    attachments: &[(String, Digest)],
    receiver_has: &BTreeSet<Digest>,
) -> Result<(Vec<u8>, Exported), AttachmentError> {
    let mut bytes = Vec::new();
    let export = Export { version: VERSION, attachments, receiver_has };
    let exported = store.export(&export, &mut bytes)?;
    Ok((bytes, exported))
}

#[test]
fn an_export_arrives_as_it_was_and_a_second_one_carries_only_what_is_new() {
    let Store { store: source, _folder: _a } = store_with(&[1, 2, 7, 8]);
    let Store { store: target, _folder: _b } = store_with(&[2]);
    let first = keys(&[("photo/été\n", 7), ("a \"b\"", 1), ("copy", 1), ("c", 2)]);
    let (bytes, exported) = export(&source, &first, &BTreeSet::new()).expect("exports");
    let sent_bytes = [1, 2, 7].map(|number| body(number).len() as u64).iter().sum();
    assert_eq!(exported, Exported { sent: 3, sent_bytes, held: 0 });
    let imported = target.import(Trickle(&bytes), 10).expect("imports");
    assert_eq!((imported.version, imported.stored, imported.known), (VERSION, 2, 1));
    let named = |key: &str, number| Named {
        key: key.to_owned(),
        sha256: sha(number),
        size: body(number).len() as u64,
    };
    let expected = [named("a \"b\"", 1), named("c", 2), named("copy", 1), named("photo/été\n", 7)];
    assert_eq!(imported.attachments, expected);
    for number in [1, 2, 7] {
        assert!(read(&target, &sha(number)).expect("reads") == body(number));
    }

    let has = target.list(None, 100).into_iter().map(|(sha256, _)| sha256).collect();
    let second = keys(&[("photo/été\n", 8), ("c", 2)]);
    let (bytes, exported) = export(&source, &second, &has).expect("exports");
    let sent_bytes = body(8).len() as u64;
    assert_eq!(exported, Exported { sent: 1, sent_bytes, held: 1 });
    let imported = target.import(&*bytes, 20).expect("imports");
    assert_eq!((imported.stored, imported.stored_bytes, imported.known), (1, sent_bytes, 0));
    assert_eq!(imported.attachments, [named("c", 2), named("photo/été\n", 8)]);
    let again = export(&source, &second, &has).expect("exports").0;
    assert!(again == bytes, "the same export is the same bytes");
}

#[test]
fn an_export_without_attachments_is_one() {
    let Store { store, _folder } = store_with(&[]);
    let (bytes, exported) = export(&store, &[], &BTreeSet::new()).expect("exports");
    assert_eq!(exported, Exported { sent: 0, sent_bytes: 0, held: 0 });
    let imported = store.import(&*bytes, 0).expect("imports");
    assert_eq!((imported.version, imported.attachments), (VERSION, Vec::new()));
}

#[test]
fn other_programs_can_look_into_an_export() {
    let Store { store, _folder } = store_with(&[2]);
    let (bytes, _) = export(&store, &keys(&[("k", 2)]), &BTreeSet::new()).expect("exports");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("export.tar");
    std::fs::write(&file, bytes).expect("writes");
    let tar = std::process::Command::new("tar")
        .args(["-xf", "export.tar"])
        .current_dir(folder.path())
        .status();
    assert!(tar.expect("tar is there").success());
    let text = std::fs::read_to_string(folder.path().join("attachments.json")).expect("text");
    let expected = format!(
        "{{\"format\":1,\"version\":171128094052123,\"attachments\":[{{\"key\":\"k\",\
         \"sha256\":\"{}\",\"size\":708,\"body\":\"sent\"}}]}}",
        sha(2)
    );
    assert_eq!(text, expected);
    let found = std::fs::read(folder.path().join(sha(2).to_string())).expect("a body");
    assert!(found == body(2));
}

/// Tries something at its first byte.
struct AtFirstByte<F: FnMut()>(Option<F>);

impl<F: FnMut()> Write for AtFirstByte<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(mut act) = self.0.take() {
            act();
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_exported_is_not_collected_meanwhile_and_is_afterwards() {
    let Store { store, _folder } = store_with(&[1, 2]);
    store.set_references(&BTreeMap::new(), 0);
    let attachments = keys(&[("a", 1)]);
    let nothing = BTreeSet::new();
    let export = Export { version: VERSION, attachments: &attachments, receiver_has: &nothing };
    let into = AtFirstByte(Some(|| {
        let gone = store.collect(10 * GRACE_MS, 10).expect("collects");
        assert_eq!(gone.iter().map(|it| it.sha256).collect::<Vec<_>>(), [sha(2)]);
    }));
    store.export(&export, into).expect("exports");
    assert_eq!(store.collect(10 * GRACE_MS, 10).expect("collects").len(), 1);
}

#[test]
fn what_cannot_be_exported_is_refused_before_a_byte_is_written() {
    let Store { store, _folder } = store_with(&[1]);
    let refused = |attachments: &[(String, Digest)]| {
        let into = AtFirstByte(Some(|| panic!("nothing may be written")));
        let receiver_has = &BTreeSet::new();
        let export = Export { version: VERSION, attachments, receiver_has };
        store.export(&export, into).expect_err("refused").to_string()
    };
    assert_eq!(refused(&keys(&[("a", 3)])), format!("there is no attachment {}", sha(3)));
    let text = refused(&keys(&[("a", 1), ("a", 1)]));
    assert_eq!(text, "key \"a\" of the export: it stands there twice");
    let text = refused(&keys(&[("a\0b", 1)]));
    assert_eq!(text, "key \"a\\0b\" of the export: it holds a NUL");
    let text = refused(&[("k".repeat(256), sha(1))]);
    assert_eq!(text, "the length of a key in bytes is 256; the limit is 255");
    let many: Vec<_> = (0..=ENTRIES_MAX).map(|number| (number.to_string(), sha(1))).collect();
    let text = refused(&many);
    assert_eq!(text, "the number of attachments in an export is 65537; the limit is 65536");
    // Each byte of these keys is six in JSON.
    let key = |number: u32| format!("{number}{}", "\u{1}".repeat(249));
    let many: Vec<_> = (100_000..130_000).map(|number| (key(number), sha(1))).collect();
    let text = refused(&many);
    assert!(text.starts_with("the length of the list of an export in bytes is 4"), "{text}");
}

/// Fails after some bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_receiver_that_goes_away_is_an_error_of_the_stream() {
    let Store { store, _folder } = store_with(&[7]);
    let (attachments, receiver_has) = (keys(&[("a", 7)]), BTreeSet::new());
    let export =
        Export { version: VERSION, attachments: &attachments, receiver_has: &receiver_has };
    for room in [0, 600, 100_000] {
        let error = store.export(&export, Full(room)).expect_err("it goes away");
        assert!(
            matches!(&error, AttachmentError::Stream { source, .. }
                if source.kind() == io::ErrorKind::BrokenPipe),
            "{error:?}"
        );
        assert_eq!(error.to_string(), "cannot write the export");
    }
}

#[test]
fn an_export_that_is_cut_off_or_changed_is_refused_and_leaves_only_whole_bodies() {
    let Store { store: source, _folder: _a } = store_with(&[1, 2, 5]);
    let attachments = keys(&[("a", 1), ("b", 2), ("c", 5)]);
    let (bytes, _) = export(&source, &attachments, &BTreeSet::new()).expect("exports");
    let refused = |bytes: &[u8], where_: &str| {
        let Store { store, _folder } = store_with(&[]);
        let result = store.import(bytes, 0);
        for (sha256, _) in store.list(None, 10) {
            store.verify(&sha256).expect("whole");
        }
        match result {
            Ok(imported) => {
                assert_eq!(imported.attachments.len(), 3, "{where_}");
                for (_, sha256) in &attachments {
                    store.verify(sha256).expect("whole");
                }
                false
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                true
            }
        }
    };
    // The blocks of zeros at the end say nothing that the list does not.
    let end = bytes.len() - 1024;
    let mut counts = (0, 0);
    for at in (0..end).step_by(787) {
        assert!(refused(&bytes[..at], "cut off"), "cut off at {at}");
        let mut changed = bytes.clone();
        changed[at] ^= 0x01;
        // Fillings of blocks may be anything.
        counts.0 += u32::from(refused(&changed, "changed"));
        counts.1 += 1;
    }
    assert!(counts.0 * 100 > counts.1 * 95, "{} of {} were refused", counts.0, counts.1);
}

/// An archive of these entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_path(name).expect("a name");
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, *bytes).expect("memory");
    }
    archive.into_inner().expect("memory")
}

fn list(text: &str) -> Vec<u8> {
    let text = text.replace("SHA", &sha(1).to_string());
    archive(&[("attachments.json", text.as_bytes()), (&sha(1).to_string(), &body(1))])
}

#[test]
fn what_cannot_be_imported_is_refused_with_the_entry_and_what_is_wrong() {
    let Store { store, _folder } = store_with(&[]);
    let refused = |bytes: &[u8]| store.import(bytes, 0).expect_err("refused").to_string();
    let entry = "{\"key\":\"a\",\"sha256\":\"SHA\",\"size\":9,\"body\":\"sent\"}";
    let with = |entries: &str| {
        list(&format!("{{\"format\":1,\"version\":7,\"attachments\":[{entries}]}}"))
    };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "attachments.json of the export: the export ends before it"),
        (archive(&[("x", b"y")]), "x of the export: it stands where attachments.json must be"),
        (list("nonsense"), "attachments.json of the export: expected ident at line 1 column 2"),
        (list("{\"format\":3,\"else\":1}"), "the export has format 3; this program knows format 1"),
        (with(&entry.replace("\"a\"", "\"a\\u0000\"")), "it holds a NUL"),
        (with(&format!("{entry},{entry}")), "key \"a\" of the export: it stands there twice"),
        (with(&entry.replace("SHA", "abc")), "is not 64 lower-case hexadecimal digits"),
        (with(&entry.replace("sent", "held")), "the export leaves it out, and it is not here"),
        (with(&entry.replace('9', "8")), "was announced with 8 bytes, and 9 came at least"),
        (with(&entry.replace('9', "9999999")), "was announced with 9999999 bytes, and 9 came"),
        (with(&entry.replace("\"key\"", "\"more\":1,\"key\"")), "unknown field `more`"),
        (with(""), "it is none of the bodies to come"),
    ];
    for (bytes, expected) in cases {
        let text = refused(&bytes);
        assert!(text.contains(expected), "{text} does not say: {expected}");
    }
    let other = list("{\"format\":3}");
    assert!(refused(&other).contains("import it with the release that wrote it"));
    assert_eq!(store.volumes().bodies, 0);
    store.import(&*with(entry), 0).expect("and this one is right");
}
