//! What an attempt sees, and when it is valid.

use crate::bank::*;
use rota_docstore::*;

fn begin(now: Stamp) -> Attempt {
    Attempt::new(space(), now)
}

fn add(transaction: &mut Transaction<'_>, docid: &str, cents: i64) -> Result<(), Exception> {
    let edited = transaction.current(&account(docid))?;
    let mut balance = edited.one::<Balance>()?.unwrap();
    balance.cents += cents;
    edited.put_one(&balance)
}

#[test]
fn everything_that_an_operation_changes_gets_its_version() {
    let mut store = two_accounts();
    let commit = edit(&mut store, at(500), |transaction| {
        add(transaction, "a", -1)?;
        add(transaction, "b", 1)
    });
    let version = commit.unwrap().version;
    assert_eq!(version, at(500));
    for docid in ["a", "b"] {
        let document = store.peek(&account(docid)).unwrap();
        let item = document.item("Bal", None).unwrap();
        assert_eq!((document.version(), item.version()), (version, version));
        assert_eq!(item.item_version(), Some(version));
        assert_ne!(document.ctime(), version);
    }
}

#[test]
fn a_document_that_is_asked_for_again_is_the_same_one() {
    let mut store = two_accounts();
    let commit = edit(&mut store, at(9), |transaction| {
        for _ in 0..5 {
            add(transaction, "a", 1)?;
        }
        assert_eq!(transaction.current(&account("a"))?.one::<Balance>()?.unwrap().cents, 105);
        assert_eq!(
            transaction.recent(&account("a"), Tolerance::seconds(9))?.version(),
            Some(at(0))
        );
        let recent = transaction.recent(&account("a"), Tolerance::seconds(9))?;
        assert_eq!(recent.one::<Balance>()?.unwrap().cents, 105);
        Ok(())
    });
    assert_eq!(commit.unwrap().writes.len(), 1);
}

#[test]
fn the_slower_of_two_operations_on_one_document_meets_contention() {
    let (rules, mut store) = (rules(), two_accounts());
    let (mut slow, mut fast) = (begin(at(1)), begin(at(2)));
    add(&mut Transaction::new(&rules, &store, None, &mut slow), "a", 1).unwrap();
    add(&mut Transaction::new(&rules, &store, None, &mut fast), "a", 10).unwrap();
    store.commit(&rules, fast, at(3)).unwrap();
    let before = store.clone();
    let exception = store.commit(&rules, slow, at(4)).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::CONTENTION, Phase::Validation));
    assert!(exception.details().fields[0].problem.contains("bank/Acc/a"), "{exception}");
    assert_eq!(store.peek(&account("a")), before.peek(&account("a")));
    assert_eq!(balance(&store, "a"), Some(110));
}

#[test]
fn a_document_that_was_only_read_is_validated_too() {
    let (rules, mut store) = (rules(), two_accounts());
    let mut attempt = begin(at(1));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    transaction.current(&account("a")).unwrap();
    add(&mut transaction, "b", 7).unwrap();
    set_balance(&mut store, "a", 1, at(2));
    let exception = store.commit(&rules, attempt, at(3)).unwrap_err();
    assert_eq!(*exception.code(), codes::CONTENTION);
    assert_eq!(balance(&store, "b"), Some(0), "nothing of it is written");
}

#[test]
fn a_document_that_did_not_exist_must_still_not_exist() {
    let (rules, mut store) = (rules(), two_accounts());
    let mut attempt = begin(at(1));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    assert!(!transaction.current(&account("new")).unwrap().exists());
    set_balance(&mut store, "new", 1, at(2));
    assert!(store.commit(&rules, attempt, at(3)).is_err());
}

#[test]
fn a_document_read_with_a_tolerance_may_change_meanwhile() {
    let (rules, mut store) = (rules(), two_accounts());
    let mut attempt = begin(at(1));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    transaction.recent(&account("a"), Tolerance::seconds(1)).unwrap();
    add(&mut transaction, "b", 7).unwrap();
    set_balance(&mut store, "a", 1, at(2));
    assert!(store.commit(&rules, attempt, at(3)).is_ok());
}

#[test]
fn a_tolerant_document_that_is_then_wanted_for_change_is_opened_anew() {
    let mut store = two_accounts();
    let commit = edit(&mut store, at(9), |transaction| {
        transaction.recent(&account("a"), Tolerance::seconds(9))?;
        add(transaction, "a", 1)
    });
    assert_eq!(commit.unwrap().writes.len(), 1);
}

#[test]
fn versions_grow_whatever_the_clock_does() {
    let mut store = Store::default();
    let first = set_balance(&mut store, "a", 1, at(1_000)).version;
    let second = set_balance(&mut store, "a", 2, at(10)).version;
    let third = set_balance(&mut store, "b", 3, at(10)).version;
    assert_eq!([first, second, third], [at(1_000), at(1_001), at(1_001)]);
    // Another owner with an older high-water mark got the documents.
    let mut other = Store::default();
    for document in store.iter() {
        other.set(document.name(), Some(document.clone()));
    }
    assert_eq!(set_balance(&mut other, "a", 9, at(0)).version, at(1_002));
}

#[test]
fn operations_on_different_documents_share_a_millisecond_and_those_on_one_do_not() {
    let mut store = Store::default();
    for it in 0..5_000 {
        assert_eq!(set_balance(&mut store, &it.to_string(), 1, at(9)).version, at(9));
    }
    assert_eq!(set_balance(&mut store, "0", 2, at(9)).version, at(10));
    // Not before what was given out, whatever the document's own version is.
    assert_eq!(set_balance(&mut store, "1", 2, at(8)).version, at(10));
    // A cache that heard in this very millisecond that there is no such document learns of it.
    let name = account("new");
    let mut cache = Cache::new(rules().schema, 100_000);
    let absent = store.sync(&name, None, at(10)).unwrap();
    assert_eq!(absent, Update::Absent { as_of: at(9) });
    cache.apply(&name, &absent, at(10)).unwrap();
    assert_eq!(set_balance(&mut store, "new", 3, at(10)).version, at(10));
    let full = store.sync(&name, None, at(10)).unwrap();
    cache.apply(&name, &full, at(10)).unwrap();
    assert_eq!(cache.peek(&name), store.peek(&name));
}

#[test]
fn a_document_that_is_gone_without_trace_is_absent_for_a_cache_that_has_its_last_version() {
    let mut store = Store::default();
    set_balance(&mut store, "a", 1, at(1));
    let name = account("a");
    let copy = store.peek(&name).cloned();
    store.set(&name, None);
    let held = copy.as_deref().map(Held::of);
    let update = store.sync(&name, held.as_ref(), at(1)).unwrap();
    assert_eq!(apply(&name, copy.as_ref(), &update), Ok(None));
}

#[test]
fn the_end_of_the_century_is_an_exception() {
    let mut store = Store::default();
    store.raise(Stamp::MAX);
    assert_eq!(set_balance(&mut store, "a", 1, at(0)).version, Stamp::MAX);
    let touch = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.touch();
        Ok(())
    };
    let exception = edit(&mut store, at(0), touch).unwrap_err();
    assert_eq!(*exception.code(), codes::STAMPS);
}

#[test]
fn an_operation_that_only_reads_writes_nothing() {
    let mut store = two_accounts();
    let before = store.high_water();
    let commit =
        edit(&mut store, at(77), |transaction| transaction.current(&account("a")).map(|_| ()))
            .unwrap();
    assert_eq!(commit.writes, []);
    assert_eq!(store.high_water(), before);
}

#[test]
fn putting_what_is_already_there_changes_nothing() {
    let mut store = two_accounts();
    let commit = set_balance(&mut store, "a", 100, at(5));
    assert_eq!(commit.writes, []);
    let there_and_back = edit(&mut store, at(6), |transaction| {
        add(transaction, "a", 1)?;
        add(transaction, "a", -1)
    });
    assert_eq!(there_and_back.unwrap().writes, []);
}

#[test]
fn null_fields_are_not_stored() {
    let store = two_accounts();
    let content = store.peek(&account("a")).unwrap().content("Bal", None).unwrap().clone();
    assert_eq!(content, Content::json(r#"{"cents":100}"#).unwrap());
}

#[test]
fn a_late_copy_never_overwrites_a_newer_one() {
    let mut store = two_accounts();
    let name = ItemName::keyed("Ent", "from-elsewhere").unwrap();
    let copy = |cents| Content::json_of(&Entry { cents }).unwrap();
    let mut put = |cents, item_version, now| {
        let mut taken = None;
        let commit = edit(&mut store, now, |transaction| {
            let edited = transaction.current(&account("a"))?;
            taken = Some(edited.put_copy(&name, copy(cents), item_version)?);
            Ok(())
        });
        (taken.unwrap(), commit.unwrap().version)
    };
    assert_eq!(put(3, at(30), at(40)), (true, at(40)));
    assert!(!put(2, at(20), at(50)).0, "made earlier, arrives later");
    assert!(!put(3, at(30), at(55)).0, "arrives twice");
    // The other machine's clock is ahead: the version is not older than the content.
    assert_eq!(put(9, at(900), at(60)), (true, at(901)));
    let item = store.peek(&account("a")).unwrap().item("Ent", Some("from-elsewhere")).cloned();
    assert_eq!(item.unwrap().item_version(), Some(at(900)));
}

#[test]
fn of_two_copies_in_one_operation_the_newer_one_stays_whatever_the_order() {
    let name = ItemName::keyed("Ent", "from-elsewhere").unwrap();
    let copy = |cents| Content::json_of(&Entry { cents }).unwrap();
    for order in [[(3, 30), (2, 20)], [(2, 20), (3, 30)]] {
        let mut store = two_accounts();
        edit(&mut store, at(40), |transaction| {
            for (cents, item_version) in order {
                transaction.current(&account("a"))?.put_copy(
                    &name,
                    copy(cents),
                    at(item_version),
                )?;
            }
            Ok(())
        })
        .unwrap();
        let item = store.peek(&account("a")).unwrap().item("Ent", Some("from-elsewhere")).cloned();
        let item = item.unwrap();
        assert_eq!(
            (item.item_version(), item.content()),
            (Some(at(30)), Some(&copy(3))),
            "{order:?}"
        );
    }
    // What the operation itself writes is newer than any copy.
    let mut store = two_accounts();
    edit(&mut store, at(40), |transaction| {
        let edited = transaction.current(&account("a"))?;
        edited.put("from-elsewhere", &Entry { cents: 1 })?;
        assert!(!edited.put_copy(&name, copy(3), at(30))?);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_lock_document_shows_that_its_group_changed() {
    let (rules, mut store) = (rules(), two_accounts());
    let lock = DocName::new(&space(), "Sum", "group").unwrap();
    let pay = |store: &mut Store, now| {
        edit(store, now, |transaction| {
            let edited = transaction.current(&lock)?;
            edited.ensure();
            edited.touch();
            add(transaction, "a", 5)
        })
    };
    pay(&mut store, at(1)).unwrap();
    // Reads the group without asking for its members with tolerance 0.
    let mut reader = begin(at(2));
    let mut transaction = Transaction::new(&rules, &store, None, &mut reader);
    transaction.current(&lock).unwrap();
    transaction.recent(&account("a"), Tolerance::seconds(60)).unwrap();
    pay(&mut store, at(3)).unwrap();
    let exception = store.commit(&rules, reader, at(4)).unwrap_err();
    assert_eq!(*exception.code(), codes::CONTENTION);
    assert!(exception.to_string().contains("Sum/group"));
}

#[test]
fn writes_applied_at_a_copy_once_or_twice_make_it_equal() {
    let (mut owner, mut copy) = (Store::default(), Store::default());
    for step in 0..20 {
        let docid = format!("{}", step % 3);
        let commit = if step % 7 == 6 {
            edit(&mut owner, at(step), |transaction| {
                transaction.current(&account(&docid))?.destroy();
                Ok(())
            })
            .unwrap()
        } else {
            set_balance(&mut owner, &docid, 1 + step as i64, at(step))
        };
        copy.apply(&commit.writes, commit.high_water);
        copy.apply(&commit.writes, commit.high_water);
    }
    assert!(owner.iter().eq(copy.iter()));
    assert_eq!(owner.high_water(), copy.high_water());
    assert_eq!(owner.usage("bank"), copy.usage("bank"));
}
