//! Attachments of documents.

use super::*;
use crate::attachments::{self, body};
use rota_docstore::{Attachment, Digest, codes};
use rota_storage::Unanswered;
use rota_storage::attachments::{AttachmentError, Stored, digest_of};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

pub fn describe(bytes: &[u8]) -> Attachment {
    Attachment::new("text/plain", bytes.len() as u64, digest_of(bytes)).expect("it is short")
}

/// An operation that lets a key of a document name a body, or none.
pub fn name_body(
    id: &str,
    key: &str,
    attachment: Option<Attachment>,
) -> impl FnMut(&mut Transaction<'_>) -> Result<(), Exception> + Clone + Send + 'static {
    let (name, key) = (account(id), key.to_owned());
    move |transaction| {
        let edited = transaction.current(&name)?;
        edited.ensure();
        match &attachment {
            Some(it) => edited.attach(&key, it.clone()),
            None => edited.remove("P", Some(&key)).map(drop),
        }
    }
}

fn read(store: &DocumentStore, id: &str, key: &str) -> Result<Vec<u8>, Unanswered> {
    let mut bytes = Vec::new();
    store.read_body(&account(id), key)?.read_to_end(&mut bytes).expect("reads");
    Ok(bytes)
}

#[test]
fn an_attachment_is_put_named_and_read_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let bytes = body(5);
    let attachment = describe(&bytes);
    assert_eq!(store.put_body(&attachment, bytes.as_slice()).expect("put"), Stored::New);
    change(&store, name_body("a", "page", Some(attachment.clone())));
    change(&store, name_body("a", "copy", Some(attachment.clone())));
    assert_eq!(read(&store, "a", "page").expect("reads"), bytes);
    let volumes = |store: &DocumentStore| {
        let it = store.attachments().volumes();
        (it.bodies, it.references, it.referenced_bytes)
    };
    let expected = (1, 2, 2 * bytes.len() as u64);
    assert_eq!(volumes(&store), expected);
    store.close(PATIENCE).expect("closes");
    let store = open(folder.path());
    assert_eq!(volumes(&store), expected);
    assert_eq!(read(&store, "a", "copy").expect("reads"), bytes);
    assert!(store.missing_bodies().is_empty());
    let missing = read(&store, "a", "other").expect_err("there is none");
    assert_eq!(*missing.exception().expect("an exception").code(), codes::BODY);
    let missing = read(&store, "b", "page").expect_err("there is none");
    assert_eq!(*missing.exception().expect("an exception").code(), codes::DOCUMENT);
}

#[test]
fn an_item_commits_only_when_its_body_is_here_whole_and_of_its_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let bytes = body(4);
    let refused = |attachment: Attachment| {
        let work = Do(name_body("a", "page", Some(attachment)));
        let error = store.run_this(Request::new(space(), "do"), work).expect_err("refused");
        error.exception().expect("an exception").clone()
    };
    let exception = refused(describe(&bytes));
    assert_eq!((exception.code(), exception.phase().number()), (&codes::BODY, 2));
    let error = store.put_body(&describe(&bytes), &bytes[1..]).expect_err("too short");
    assert!(matches!(error, AttachmentError::WrongSize { .. }), "{error}");
    let other = vec![1; bytes.len()];
    let error = store.put_body(&describe(&bytes), other.as_slice()).expect_err("other bytes");
    assert!(matches!(error, AttachmentError::WrongDigest { .. }), "{error}");
    refused(describe(&bytes));
    store.put_body(&describe(&bytes), bytes.as_slice()).expect("put");
    let wrong = Attachment::new("", 7, digest_of(&bytes)).expect("it is short");
    let exception = refused(wrong);
    assert_eq!(exception.details().fields[0].field, "size");
    assert!(store.is_empty(), "nothing was committed");
    change(&store, name_body("a", "page", Some(describe(&bytes))));
}

#[test]
fn a_body_goes_after_its_time_of_grace_and_not_before_its_last_item_is_gone_from_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let bytes = body(3);
    let attachment = describe(&bytes);
    store.put_body(&attachment, bytes.as_slice()).expect("put");
    for id in ["a", "b"] {
        change(&store, name_body(id, "page", Some(attachment.clone())));
    }
    change(&store, name_body("a", "page", None));
    assert_eq!(store.purge().expect("purges").bodies, 0, "b names it");
    change(&store, |transaction| {
        let name = transaction.name("Acc", "b")?;
        transaction.current(&name)?.destroy();
        Ok(())
    });
    assert_eq!(store.purge().expect("purges").bodies, 1);
    let error = store.read_body_of(&attachment.sha256()).map(drop).expect_err("it is gone");
    assert!(matches!(error, AttachmentError::Missing { .. }), "{error}");
}

#[test]
fn old_content_is_readable_by_its_digest_for_the_time_of_grace() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = setup();
    setup.attachments.grace_ms = 3_600_000;
    let store = open_with(Arc::new(RealDisk), folder.path(), setup).expect("opens");
    let (old, new) = (describe(&body(1)), describe(&body(2)));
    store.put_body(&old, body(1).as_slice()).expect("put");
    store.put_body(&new, body(2).as_slice()).expect("put");
    change(&store, name_body("a", "page", Some(old.clone())));
    change(&store, name_body("a", "page", Some(new)));
    assert_eq!(store.purge().expect("purges").bodies, 0);
    let mut bytes = Vec::new();
    let mut reader = store.read_body_of(&old.sha256()).expect("it is there");
    reader.read_to_end(&mut bytes).expect("reads");
    assert_eq!(bytes, body(1));
}

#[test]
fn an_export_is_of_one_version_while_the_document_changes_and_leaves_out_what_is_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let bodies: Vec<_> = (0..8).map(|it| body(8 + it)).collect();
    for bytes in &bodies {
        store.put_body(&describe(bytes), bytes.as_slice()).expect("put");
        // Named by something else as well, so that none is ever gone.
        let attachment = Some(describe(bytes));
        change(&store, name_body("keep", &digest_of(bytes).to_string(), attachment));
    }
    let both = |store: &DocumentStore, one: &[u8], two: &[u8]| {
        let (one, two) = (describe(one), describe(two));
        change(store, move |transaction| {
            let name = transaction.name("Acc", "a")?;
            let edited = transaction.current(&name)?;
            edited.ensure();
            edited.attach("one", one.clone())?;
            edited.attach("two", two.clone())
        });
    };
    both(&store, &bodies[0], &bodies[1]);
    let over = AtomicBool::new(false);
    let receiver = tempfile::tempdir().expect("a folder");
    let receiver = attachments::open(Arc::new(RealDisk), receiver.path()).expect("opens");
    thread::scope(|scope| {
        scope.spawn(|| {
            // Always two neighbours, at one version.
            for at in (0..bodies.len()).cycle().take_while(|_| !over.load(SeqCst)) {
                both(&store, &bodies[at], &bodies[(at + 1) % bodies.len()]);
            }
        });
        for _ in 0..40 {
            let held: BTreeSet<Digest> =
                receiver.list(None, 100).into_iter().map(|(sha256, _)| sha256).collect();
            let mut bytes = Vec::new();
            let (document, exported) =
                store.export(&account("a"), &held, &mut bytes).expect("exports");
            let imported = receiver.import(bytes.as_slice(), 0).expect("imports");
            assert_eq!(imported.version, document.version().as_u64());
            let named: Vec<_> = imported.attachments.iter().map(|it| it.sha256).collect();
            let at = bodies.iter().position(|it| digest_of(it) == named[0]).expect("known");
            assert_eq!(named[1], digest_of(&bodies[(at + 1) % bodies.len()]), "one version");
            assert_eq!(exported.held, named.iter().filter(|it| held.contains(it)).count() as u64);
            assert!(named.iter().all(|it| receiver.contains(it)));
        }
        over.store(true, SeqCst);
    });
}

#[test]
fn an_export_is_brought_in_by_another_store_with_what_it_does_not_have() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let [from, to] = [0, 1].map(|it| open(folders[it].path()));
    let (first, second) = (body(1), body(2));
    for bytes in [&first, &second] {
        from.put_body(&describe(bytes), bytes.as_slice()).expect("put");
    }
    let mut held = BTreeSet::new();
    let mut pass = |expected_held: u64| {
        let mut bytes = Vec::new();
        let (document, exported) = from.export(&account("a"), &held, &mut bytes).expect("exports");
        assert_eq!(exported.held, expected_held);
        held.extend(document.attachments().map(|(_, it)| it.sha256()));
        let answer = to.import(&document, bytes.as_slice()).expect("it comes in");
        let here = to.get(&account("a")).expect("reads").expect("it is there");
        assert!(here.existing().eq(document.existing()), "{here:?}");
        assert_eq!(here.version(), answer.version);
        let again = to.import(&document, bytes.as_slice()).expect("safe to repeat");
        assert!(again.version >= answer.version);
        let same = to.get(&account("a")).expect("reads").expect("it is there");
        assert_eq!(same.version(), here.version(), "nothing is written again");
        (document, bytes)
    };
    change(&from, name_body("a", "page", Some(describe(&first))));
    from.run(add(&["a"], 5)).expect("it is valid");
    let (_, old_bytes) = pass(0);
    assert_eq!((read(&to, "a", "page").expect("it is here"), count(&to, "a")), (first, 5));
    change(&from, name_body("a", "page", None));
    change(&from, name_body("a", "cover", Some(describe(&second))));
    let (new, _) = pass(0);
    assert_eq!(read(&to, "a", "cover").expect("it is here"), second);
    change(&from, name_body("a", "back", Some(describe(&second))));
    pass(1);
    // Bytes of one version for the document of another.
    let error = to.import(&new, old_bytes.as_slice()).expect_err("they do not fit");
    let exception = error.exception().expect("an exception");
    assert_eq!(exception.details().fields[0].field, "version");
}

#[test]
fn an_import_takes_no_memories_of_operations_and_leaves_those_that_are_here() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let [from, to] = [0, 1].map(|it| open(folders[it].path()));
    let [there, here] = [3, 5].map(|by| once(add(&["a"], by)));
    from.run(there.clone()).expect("it is valid");
    let first = to.run(here.clone()).expect("it is valid");
    let mut bytes = Vec::new();
    let (document, _) = from.export(&account("a"), &BTreeSet::new(), &mut bytes).expect("exports");
    to.import(&document, bytes.as_slice()).expect("it comes in");
    assert_eq!(count(&to, "a"), 3);
    assert_eq!(to.run(here).expect("it is repeated"), first);
    assert_eq!(count(&to, "a"), 3, "it was carried out a second time");
    // An operation of elsewhere was not done here.
    to.run(there).expect("it is valid");
    assert_eq!(count(&to, "a"), 6);
}
