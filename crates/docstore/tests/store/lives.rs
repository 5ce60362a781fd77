//! Documents begin, end and begin again; volumes; attachments.

use crate::bank::*;
use rota_docstore::*;

fn destroy(store: &mut Store, docid: &str, now: Stamp) -> Commit {
    let work = |transaction: &mut Transaction<'_>| {
        assert!(transaction.current(&account(docid))?.destroy());
        Ok(())
    };
    edit(store, now, work).unwrap()
}

#[test]
fn a_document_may_have_no_item() {
    let mut store = Store::default();
    let work = |transaction: &mut Transaction<'_>| transaction.current(&account("a"))?.create();
    let commit = edit(&mut store, at(1), work).unwrap();
    let document = store.peek(&account("a")).unwrap();
    assert_eq!((document.ctime(), document.version()), (commit.version, commit.version));
    assert_eq!((document.dtime(), document.items().len()), (commit.version, 0));
}

#[test]
fn a_document_that_is_created_here_has_no_version_yet() {
    let mut store = two_accounts();
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("new"))?;
        assert!(edited.ensure() && !edited.ensure());
        assert_eq!((edited.exists(), edited.version(), edited.ctime()), (true, None, None));
        assert_eq!(*edited.create().unwrap_err().code(), codes::EXISTS);
        assert_eq!(transaction.current(&account("a"))?.version(), Some(at(0)));
        Ok(())
    };
    edit(&mut store, at(1), work).unwrap();
}

#[test]
fn an_ended_life_leaves_name_ctime_and_version() {
    let mut store = two_accounts();
    destroy(&mut store, "a", at(5));
    let trace = store.peek(&account("a")).unwrap();
    assert!(trace.is_deleted() && trace.items().is_empty());
    assert_eq!((trace.ctime(), trace.version()), (at(0), at(5)));
    let work = |transaction: &mut Transaction<'_>| {
        assert!(!transaction.current(&account("a"))?.exists());
        assert!(!transaction.current(&account("a"))?.destroy());
        let gone = transaction.current(&account("a"))?.must_exist().unwrap_err();
        assert_eq!((gone.code(), gone.status()), (&codes::DOCUMENT, Status::NotFound));
        Ok(())
    };
    assert_eq!(edit(&mut store, at(6), work).unwrap().writes, []);
}

#[test]
fn a_new_life_has_a_new_ctime_also_within_one_operation() {
    let mut store = two_accounts();
    destroy(&mut store, "a", at(5));
    set_balance(&mut store, "a", 7, at(6));
    assert_eq!(store.peek(&account("a")).unwrap().ctime(), at(6));
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("b"))?;
        edited.destroy();
        edited.create()?;
        assert_eq!(edited.one::<Balance>()?, None);
        edited.put("x", &Entry { cents: 1 })
    };
    edit(&mut store, at(7), work).unwrap();
    let document = store.peek(&account("b")).unwrap();
    assert_eq!((document.ctime(), document.items().len()), (at(7), 1));
}

#[test]
fn a_document_created_and_destroyed_in_one_operation_never_was() {
    let mut store = Store::default();
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        edited.create()?;
        edited.put("x", &Entry { cents: 1 })?;
        assert!(edited.destroy());
        Ok(())
    };
    assert_eq!(edit(&mut store, at(1), work).unwrap().writes, []);
    assert!(store.is_empty());
}

#[test]
fn a_destroyed_item_stays_known_until_dtime() {
    let mut store = two_accounts();
    let put = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.put("x", &Entry { cents: 1 })
    };
    edit(&mut store, at(1), put).unwrap();
    let remove = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        assert!(edited.remove("Ent", Some("x"))?);
        assert!(!edited.remove("Ent", Some("x"))?);
        assert_eq!(edited.item::<Entry>("x")?, None);
        Ok(())
    };
    let version = edit(&mut store, at(2), remove).unwrap().version;
    let document = store.peek(&account("a")).unwrap();
    let item = document.item("Ent", Some("x")).unwrap();
    assert_eq!((item.version(), item.item_version(), item.content()), (version, None, None));
    assert_eq!(document.existing().count(), 1);
    assert_eq!(document.forget_before(version), None, "destroyed at dtime: kept");
    assert_eq!(document.forget_before(at(9_999)), None, "dtime is never after the version");
    set_balance(&mut store, "a", 7, at(5));
    let document = store.peek(&account("a")).unwrap();
    assert_eq!(document.forget_before(version), None);
    let later = document.forget_before(version.next()).unwrap();
    assert!(later.item("Ent", Some("x")).is_none());
    assert_eq!((later.dtime(), later.version()), (version.next(), at(5)));
}

#[test]
fn an_item_that_came_and_went_within_one_operation_leaves_no_trace() {
    let mut store = two_accounts();
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        edited.put("x", &Entry { cents: 1 })?;
        assert_eq!(edited.keys("Ent").collect::<Vec<_>>(), ["x"]);
        assert!(edited.remove("Ent", Some("x"))?);
        assert_eq!(edited.keys("Ent").count(), 0);
        Ok(())
    };
    assert_eq!(edit(&mut store, at(2), work).unwrap().writes, []);
}

#[test]
fn old_destroyed_items_and_ended_lives_are_purged() {
    let mut rules = rules();
    (rules.destroyed_ms, rules.deleted_ms) = (1_000, 5_000);
    let mut store = two_accounts();
    let put = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.put("x", &Entry { cents: 1 })
    };
    edit(&mut store, at(1), put).unwrap();
    let remove = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.remove("Ent", Some("x"))
    };
    edit(&mut store, at(2), |transaction| remove(transaction).map(|_| ())).unwrap();
    set_balance(&mut store, "a", 7, at(20));
    destroy(&mut store, "b", at(3));
    assert_eq!(store.purge(&rules, at(1_002), None, 10), Purged::default());
    let first = store.purge(&rules, at(1_003), None, 1);
    assert!(first.next.is_some());
    let second = store.purge(&rules, at(1_003), first.next.as_ref(), 1);
    assert_eq!((first.writes.len() + second.writes.len(), second.next), (1, None));
    let document = store.peek(&account("a")).unwrap();
    assert_eq!((document.items().len(), document.version(), document.dtime()), (1, at(20), at(3)));
    let purged = store.purge(&rules, at(5_022), None, 10);
    assert_eq!(purged.writes[0].after, None);
    assert_eq!((store.len(), purged.next), (1, None));
}

#[test]
fn a_purge_between_work_and_validation_is_no_contention_and_stays_done() {
    let mut rules = rules();
    rules.destroyed_ms = 1_000;
    let mut store = two_accounts();
    let put = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.put("x", &Entry { cents: 1 })
    };
    edit(&mut store, at(10), put).unwrap();
    let remove = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.remove("Ent", Some("x"))
    };
    edit(&mut store, at(20), |transaction| remove(transaction).map(|_| ())).unwrap();
    set_balance(&mut store, "a", 1, at(30));
    let mut attempt = Attempt::new(space(), at(40));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    transaction.current(&account("a")).unwrap().put("y", &Entry { cents: 2 }).unwrap();
    assert_eq!(store.purge(&rules, at(1_025), None, 10).writes.len(), 1);
    let commit = store.commit(&super::bank::rules(), attempt, at(50)).unwrap();
    let document = commit.writes[0].after.as_ref().unwrap();
    assert!(document.item("Ent", Some("x")).is_none());
    assert_eq!(document.dtime(), at(25));
    assert!(Document::from_parts(Document::clone(document).into_parts()).is_ok());
}

#[test]
fn a_change_forgets_old_destroyed_items_on_the_way() {
    let mut rules = rules();
    rules.destroyed_ms = 1_000;
    let mut store = two_accounts();
    for (key, now) in [("x", 1), ("y", 2)] {
        let put = |transaction: &mut Transaction<'_>| {
            transaction.current(&account("a"))?.put(key, &Entry { cents: 1 })
        };
        edit(&mut store, at(now), put).unwrap();
    }
    for (key, now) in [("x", 10), ("y", 2_000)] {
        let mut attempt = Attempt::new(space(), at(now));
        let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
        transaction.current(&account("a")).unwrap().remove("Ent", Some(key)).unwrap();
        store.commit(&rules, attempt, at(now)).unwrap();
    }
    let document = store.peek(&account("a")).unwrap();
    assert!(document.item("Ent", Some("x")).is_none());
    assert!(document.item("Ent", Some("y")).unwrap().is_destroyed());
    assert_eq!(document.dtime(), at(1_000));
}

fn photo(byte: u8, size: u64) -> Attachment {
    Attachment::new("image/png", size, Digest([byte; 32])).unwrap()
}

#[test]
fn attachments_count_in_v2_as_often_as_they_are_named() {
    let mut store = two_accounts();
    let item_bytes = store.usage("bank").item_bytes;
    let work = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.attach("face", photo(1, 1_000))?;
        transaction.current(&account("a"))?.attach("same", photo(1, 1_000))?;
        transaction.current(&account("b"))?.attach("face", photo(1, 1_000))
    };
    let commit = edit(&mut store, at(1), work).unwrap();
    assert_eq!(commit.bodies().len(), 1, "the body is stored once");
    let usage = store.usage("bank");
    assert_eq!((usage.documents, usage.attachment_bytes), (2, 3_000));
    // Class and key with what stands between, mime type, size and digest.
    assert_eq!(usage.item_bytes - item_bytes, 3 * (6 + 9 + 40));
    let keys: Vec<_> = store.peek(&account("a")).unwrap().attachments().map(|it| it.0).collect();
    assert_eq!(keys, ["face", "same"]);
    destroy(&mut store, "a", at(2));
    assert_eq!(store.usage("bank").attachment_bytes, 1_000);
}

#[test]
fn a_commit_names_the_bodies_that_it_needs_and_only_new_ones() {
    let mut store = two_accounts();
    let attach = |byte| {
        move |transaction: &mut Transaction<'_>| {
            transaction.current(&account("a"))?.attach("face", photo(byte, 5))
        }
    };
    assert_eq!(edit(&mut store, at(1), attach(1)).unwrap().bodies(), [Digest([1; 32])].into());
    assert_eq!(set_balance(&mut store, "a", 3, at(2)).bodies().len(), 0);
    let commit = edit(&mut store, at(3), attach(2)).unwrap();
    assert_eq!(commit.bodies(), [Digest([2; 32])].into());
    assert_eq!(commit.writes[0].bodies_lost(), [Digest([1; 32])].into());
}

#[test]
fn an_attachment_stands_in_class_p_and_nothing_else_does() {
    let mut store = two_accounts();
    let content = Content::Attachment(photo(1, 1).into());
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        let raw = ItemName::keyed("Raw", "x").unwrap();
        assert!(edited.put_content(&raw, content.clone()).is_err());
        let attachment = ItemName::keyed("P", "x").unwrap();
        assert!(edited.put_content(&attachment, Content::raw([1]).unwrap()).is_err());
        edited.put_content(&attachment, content.clone())
    };
    edit(&mut store, at(1), work).unwrap();
}
