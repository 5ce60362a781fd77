//! Every limit, and everything that is malformed: refused with a code, a field and the limit.

use crate::bank::*;
use rota_docstore::*;
use std::sync::Arc;

/// The slot of an account is the number in its name.
struct Numbered;

impl Territory for Numbered {
    fn slot_of(&self, name: &DocName) -> SlotId {
        let digits = name.docid().trim_start_matches(|it: char| !it.is_ascii_digit());
        SlotId(digits.parse().unwrap_or(0))
    }
    fn holds(&self, slot: SlotId) -> bool {
        slot < SlotId(10)
    }
    fn serves(&self, slot: SlotId) -> bool {
        slot < SlotId(5)
    }
}

fn numbered() -> Rules {
    Rules { territory: Arc::new(Numbered), ..rules() }
}

fn field(exception: &Exception) -> (&str, &str) {
    let field = &exception.details().fields[0];
    (&field.field, &field.problem)
}

#[test]
fn documents_of_two_slots_are_refused_by_name_before_any_work() {
    let mut store = Store::default();
    let request = transfer("x1", "y2", 5);
    let exception = store.perform(&operations(), &numbered(), request, at(1)).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::SLOT, Phase::Before));
    let expected = "bank/Acc/y2 lies in slot 2, the operation's other documents in 1";
    assert_eq!(field(&exception), ("document", expected));
}

#[test]
fn documents_of_a_slot_that_is_not_here_or_not_served_are_refused_and_what_is_here_may_be_read() {
    let (mut store, rules) = (Store::default(), numbered());
    for (from, to) in [("x11", "y11"), ("x7", "y7")] {
        let exception =
            store.perform(&operations(), &rules, transfer(from, to, 5), at(1)).unwrap_err();
        assert_eq!((exception.code(), exception.phase()), (&codes::SLOT, Phase::Before));
        assert!(field(&exception).1.ends_with("out of reach of this operation"), "{exception}");
    }
    let mut attempt = Attempt::new(space(), at(1));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    assert_eq!(transaction.current(&account("x7")).unwrap_err().code(), &codes::SLOT);
    transaction.recent(&account("x7"), Tolerance::seconds(1)).unwrap();
    assert!(transaction.current(&account("x4")).is_ok());
}

#[test]
fn more_than_32_documents_are_refused() {
    let rules = rules();
    let mut store = Store::default();
    let names: Vec<_> = (0..33).map(|it| account(&it.to_string())).collect();
    let wanted: Vec<_> = names.iter().cloned().map(Wanted::current).collect();
    let refused = |exception: Exception| {
        assert_eq!(*exception.code(), codes::LIMIT);
        assert_eq!(field(&exception), ("documents", "are 33; the limit is 32"));
        Ok(())
    };
    edit(&mut store, at(1), |transaction| refused(transaction.open(&wanted).unwrap_err())).unwrap();
    edit(&mut store, at(1), |transaction| {
        transaction.open(&wanted[..31])?;
        transaction.recent(&names[31], Tolerance::seconds(1))?;
        transaction.current(&names[0])?;
        refused(transaction.current(&names[32]).unwrap_err())
    })
    .unwrap();
    let mut attempt = Attempt::new(space(), at(1));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    transaction.open(&wanted[..32]).unwrap();
    // One that was read with a tolerance may be opened again when the number is reached.
    let mut attempt = Attempt::new(space(), at(1));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    transaction.recent(&names[0], Tolerance::seconds(1)).unwrap();
    transaction.open(&wanted[1..32]).unwrap();
    assert!(transaction.current(&names[0]).is_ok());
}

#[test]
fn a_new_document_whose_name_turns_the_direction_of_writing_is_refused_and_an_old_one_is_changed() {
    let mut store = Store::default();
    let turned = account("a\u{202e}b");
    let told = ("docid", "has U+202E at byte 1, which turns the direction of writing");
    let refused = [
        edit(&mut store, at(1), |transaction| transaction.current(&turned)?.create()),
        edit(&mut store, at(1), |transaction| {
            transaction.current(&turned)?.ensure();
            Ok(())
        }),
    ];
    for refused in refused.map(Result::unwrap_err) {
        assert_eq!((refused.code(), field(&refused)), (&codes::INVALID, told));
    }
    edit(&mut store, at(2), |transaction| {
        transaction.current(&turned)?.ensure_copy();
        Ok(())
    })
    .unwrap();
    let change = |transaction: &mut Transaction<'_>| {
        transaction.current(&turned)?.put("k", &Entry { cents: 1 })
    };
    assert_eq!(edit(&mut store, at(3), change).unwrap().writes.len(), 1);
}

#[test]
fn a_key_over_255_bytes_and_one_with_nul_are_refused() {
    let mut store = two_accounts();
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        let long = edited.put(&"k".repeat(256), &Entry { cents: 1 }).unwrap_err();
        assert_eq!(field(&long), ("key", "is 256 bytes long; the limit is 255"));
        let nul = edited.put("a\0b", &Entry { cents: 1 }).unwrap_err();
        assert_eq!((nul.code(), field(&nul)), (&codes::INVALID, ("key", "has a NUL at byte 1")));
        edited.put(&"k".repeat(255), &Entry { cents: 1 })
    };
    assert_eq!(edit(&mut store, at(1), work).unwrap().writes.len(), 1);
}

#[test]
fn unknown_classes_are_refused() {
    let mut store = two_accounts();
    let work = |transaction: &mut Transaction<'_>| {
        let name = DocName::new(&space(), "Nope", "a").unwrap();
        assert_eq!(field(&transaction.current(&name).unwrap_err()).0, "class");
        let edited = transaction.current(&account("a"))?;
        let item = ItemName::singleton("Nope").unwrap();
        let unknown = edited.put_content(&item, Content::json("1")?).unwrap_err();
        assert_eq!(field(&unknown), ("class", r#""Nope" of items is unknown in "Acc""#));
        let wrong = ItemName::singleton("Bal").unwrap();
        let wrong = edited.put_content(&wrong, Content::json(r#"{"cents":"x"}"#)?).unwrap_err();
        assert_eq!(field(&wrong).0, "json");
        Ok(())
    };
    edit(&mut store, at(1), work).unwrap();
}

#[test]
fn a_document_of_elsewhere_must_fit_the_classes() {
    let store = two_accounts();
    let document = store.peek(&account("a")).unwrap();
    assert_eq!(schema().check_document(document), Ok(()));
    assert_eq!(Schema::new().check_document(document).unwrap_err().field, "class");
    let mut parts = Document::clone(document).into_parts();
    let item = ItemName::singleton("Bal").unwrap();
    let broken = Content::json(r#"{"cents":"many"}"#).unwrap();
    parts.items = vec![Item::existing(item, at(0), at(0), broken).unwrap()];
    let broken = Document::from_parts(parts).unwrap();
    assert_eq!(schema().check_document(&broken).unwrap_err().field, "json");
}

#[test]
fn a_document_has_a_limit_of_bytes_and_of_items() {
    let mut store = two_accounts();
    let million = Content::raw(vec![7; 1024 * 1024]).unwrap();
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        for key in 0..8 {
            let name = ItemName::keyed("Raw", &key.to_string())?;
            edited.put_content(&name, million.clone())?;
        }
        Ok(())
    };
    let exception = edit(&mut store, at(1), work).unwrap_err();
    assert_eq!((exception.code(), field(&exception).0), (&codes::LIMIT, "item_bytes"));
    assert!(field(&exception).1.ends_with("the limit is 8388608"));
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        (0..16_384).try_for_each(|key| edited.put(&key.to_string(), &Entry { cents: 1 }))
    };
    let exception = edit(&mut store, at(1), work).unwrap_err();
    assert_eq!(field(&exception), ("items", "of bank/Acc/a are 16385; the limit is 16384"));
}

#[test]
fn an_operation_has_a_limit_of_bytes_however_little_of_its_documents_it_changes() {
    let mut store = two_accounts();
    let million = Content::raw(vec![7; 1024 * 1024]).unwrap();
    let names: Vec<_> = (0..5).map(|number| account(&format!("large{number}"))).collect();
    for (number, name) in (1..).zip(&names) {
        let work = |transaction: &mut Transaction<'_>| {
            let edited = transaction.current(name)?;
            edited.ensure();
            (0..7).try_for_each(|key| {
                edited.put_content(&ItemName::keyed("Raw", &key.to_string())?, million.clone())
            })
        };
        edit(&mut store, at(number), work).unwrap();
    }
    let mut touch = |count: usize| {
        let work = |transaction: &mut Transaction<'_>| {
            names[..count]
                .iter()
                .try_for_each(|name| transaction.current(name).map(|it| it.touch()))
        };
        edit(&mut store, at(10), work)
    };
    let exception = touch(5).unwrap_err();
    assert_eq!((exception.code(), field(&exception).0), (&codes::LIMIT, "operation"));
    assert!(field(&exception).1.ends_with("the limit is 33554432"), "{exception}");
    assert_eq!(touch(4).unwrap().writes.len(), 4);
}

#[test]
fn the_largest_document_with_the_longest_traces_is_no_longer_than_an_engine_takes() {
    let mut store = two_accounts();
    let long = |key: u32| format!("{key:05}{}", "k".repeat(250));
    let fill = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        (0..16_000).try_for_each(|key| edited.put(&long(key), &Entry { cents: 1 }))
    };
    edit(&mut store, at(1), fill).unwrap();
    let million = Content::raw(vec![7; 1024 * 1024]).unwrap();
    let replace = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        (0..16_000).try_for_each(|key| edited.remove("Ent", Some(&long(key))).map(drop))?;
        (0..7).try_for_each(|key| {
            edited.put_content(&ItemName::keyed("Raw", &key.to_string())?, million.clone())
        })
    };
    edit(&mut store, at(2), replace).unwrap();
    let bytes = store.peek(&account("a")).unwrap().to_bytes().len() as u64;
    assert!(bytes > 8 * 1024 * 1024, "names of what is gone are stored, too: {bytes}");
    assert!(bytes <= rota_docstore::document::STORED_BYTES_MAX);
}

#[test]
fn requests_have_limits() {
    let mut store = two_accounts();
    let mut refused = |change: fn(&mut Request)| {
        let mut request = transfer("a", "b", 1);
        change(&mut request);
        let exception = store.perform(&operations(), &rules(), request, at(1)).unwrap_err();
        assert_eq!((exception.phase(), exception.letter()), (Phase::Before, Letter::A));
        let (field, problem) = field(&exception);
        (field.to_owned(), problem.to_owned())
    };
    let long = |bytes: usize, limit: usize| format!("is {bytes} bytes long; the limit is {limit}");
    assert_eq!(refused(|it| it.operation = "x".repeat(65)), ("operation".into(), long(65, 64)));
    assert_eq!(refused(|it| it.who.account = "x".repeat(129)), ("account".into(), long(129, 128)));
    assert_eq!(refused(|it| it.who.key = "x".repeat(2_000)), ("key".into(), long(2_000, 1_024)));
    assert_eq!(refused(|it| it.who.account = "a\0".into()).0, "account");
    let many = refused(|it| it.syncs = vec![SyncRequest { name: account("a"), held: None }; 257]);
    assert_eq!(many, ("syncs".into(), "are 257 documents; the limit is 256".into()));
    let unknown = refused(|request| {
        let name = DocName::new(&space(), "Nope", "a").unwrap();
        request.syncs = vec![SyncRequest { name, held: None }];
    });
    assert_eq!(unknown.0, "syncs[0].class");
    let future = refused(|request| {
        let held = Held::new(at(0), at(9_999), at(0)).unwrap();
        request.syncs = vec![SyncRequest { name: account("a"), held: Some(held) }];
    });
    assert_eq!(future.0, "syncs[0].version");
    assert!(future.1.contains("in the future"), "{future:?}");
    assert_eq!(refused(|it| it.parameters = None).0, "parameters");
    let parameters = refused(|it| it.parameters = Some(JsonText::parse("[]").unwrap()));
    assert_eq!(parameters.0, "parameters");
}

#[test]
fn a_result_has_a_limit() {
    let long = "x".repeat(3 * 1024 * 1024);
    let results = [
        (Body::json(&long), 3 * 1024 * 1024 + 2),
        (Body::binary("text/plain", vec![0; 3 * 1024 * 1024 + 1]), 3 * 1024 * 1024 + 1),
    ];
    for (result, bytes) in results {
        let exception = result.unwrap_err();
        let text = format!("is {bytes} bytes long; the limit is 3145728");
        assert_eq!((exception.code(), field(&exception)), (&codes::LIMIT, ("result", &*text)));
    }
    assert!(Body::binary("text/plain", long.into_bytes()).is_ok());
    assert_eq!(Body::json(&()).unwrap(), Body::Nothing);
}

fn raised(error: impl Into<Exception>) -> Exception {
    error.into()
}

/// Asks for something of a transaction, and is refused.
fn of_work(work: impl FnOnce(&mut Transaction<'_>) -> Result<(), Exception>) -> Exception {
    edit(&mut two_accounts(), at(1), work).unwrap_err()
}

fn of_request(change: impl FnOnce(&mut Request)) -> Exception {
    let mut request = transfer("a", "b", 1);
    change(&mut request);
    two_accounts().perform(&operations(), &rules(), request, at(1)).unwrap_err()
}

/// Adds a raw item of so many bytes to account `a`.
fn raw(transaction: &mut Transaction<'_>, key: &str, bytes: usize) -> Result<(), Exception> {
    let content = Content::raw(vec![7; bytes])?;
    transaction.current(&account("a"))?.put_content(&ItemName::keyed("Raw", key)?, content)
}

fn described(description: Description) -> Exception {
    raised(description.check().unwrap_err())
}

/// What is too long by itself is A-INVALID: that request is refused whatever else changes. What is too
/// many or too much together is A-LIMIT.
#[test]
fn what_is_too_long_by_itself_is_refused_with_its_field_and_the_limit() {
    let long = |bytes: usize| "x".repeat(bytes);
    let name = |class: &str, docid: &str| raised(DocName::new(&space(), class, docid).unwrap_err());
    let nested = format!("{}{}", "[".repeat(101), "]".repeat(101));
    let off = Description { off: Some(long(1_025)), ..Description::default() };
    let description = Description { description: long(1_025), ..Description::default() };
    let mime = || raised(Attachment::new(&long(256), 1, Digest([0; 32])).unwrap_err());
    let cases = [
        (name(&long(33), "a"), "class", "is 33 bytes long; the limit is 32"),
        (name("Acc", &long(256)), "docid", "is 256 bytes long; the limit is 255"),
        (
            raised(ItemName::keyed("Ent", &long(256)).unwrap_err()),
            "key",
            "is 256 bytes long; the limit is 255",
        ),
        (
            raised(Content::json(&nested).unwrap_err()),
            "json",
            "is nested 101 deep; the limit is 100",
        ),
        (
            raised(Content::raw(vec![0; 1_048_577]).unwrap_err()),
            "content",
            "is 1048577 bytes long; the limit is 1048576",
        ),
        (mime(), "mime", "is 256 bytes long; the limit is 255"),
        (described(off), "off", "is 1025 bytes long; the limit is 1024"),
        (described(description), "description", "is 1025 bytes long; the limit is 1024"),
        (
            of_request(|it| it.operation = long(65)),
            "operation",
            "is 65 bytes long; the limit is 64",
        ),
        (
            of_request(|it| it.who.account = long(129)),
            "account",
            "is 129 bytes long; the limit is 128",
        ),
        (of_request(|it| it.who.key = long(1_025)), "key", "is 1025 bytes long; the limit is 1024"),
        (
            of_request(|it| it.who.admin = long(1_025)),
            "admin",
            "is 1025 bytes long; the limit is 1024",
        ),
    ];
    for (exception, place, text) in &cases {
        assert_eq!((exception.code(), field(exception)), (&codes::INVALID, (*place, *text)));
    }
}

#[test]
fn what_is_too_much_together_is_refused_with_its_field_and_the_limit() {
    let many = |transaction: &mut Transaction<'_>| {
        (0..33).try_for_each(|it| transaction.current(&account(&it.to_string())).map(drop))
    };
    let sync = || SyncRequest { name: account("a"), held: None };
    let cases = [
        (
            of_request(|it| it.syncs = (0..257).map(|_| sync()).collect()),
            "syncs",
            "are 257 documents; the limit is 256",
        ),
        (of_work(many), "documents", "are 33; the limit is 32"),
        (
            of_work(|transaction| {
                (0..9).try_for_each(|it| raw(transaction, &it.to_string(), 1_000_000))
            }),
            "item_bytes",
            "of bank/Acc/a is 9000061 bytes; the limit is 8388608",
        ),
        (
            of_work(|transaction| {
                (0..16_384).try_for_each(|it| raw(transaction, &it.to_string(), 0))
            }),
            "items",
            "of bank/Acc/a are 16385; the limit is 16384",
        ),
    ];
    for (exception, place, text) in &cases {
        assert_eq!((exception.code(), field(exception)), (&codes::LIMIT, (*place, *text)));
    }
}

#[test]
fn a_document_whose_parts_do_not_fit_is_refused() {
    let item = |key: &str, version: u64| {
        let name = ItemName::keyed("Ent", key).unwrap();
        Item::existing(name, at(version), at(version), Content::json("{\"cents\":1}").unwrap())
            .unwrap()
    };
    let gone = |key: &str, version: u64| {
        Item::destroyed(ItemName::keyed("Ent", key).unwrap(), at(version))
    };
    let good = DocumentParts {
        name: account("a"),
        ctime: at(10),
        version: at(50),
        dtime: at(20),
        is_deleted: false,
        items: vec![item("a", 10), gone("b", 20), item("c", 50)],
    };
    let document = Document::from_parts(good.clone()).unwrap();
    assert_eq!(document.into_parts(), good);
    let refused = |change: &dyn Fn(&mut DocumentParts)| {
        let mut parts = good.clone();
        change(&mut parts);
        Document::from_parts(parts).unwrap_err().field
    };
    assert_eq!(refused(&|it| it.dtime = at(9)), "dtime");
    assert_eq!(refused(&|it| it.dtime = at(51)), "dtime");
    assert_eq!(refused(&|it| it.ctime = at(51)), "dtime");
    assert_eq!(refused(&|it| it.is_deleted = true), "items");
    assert_eq!(refused(&|it| it.items.swap(0, 1)), "items");
    assert_eq!(refused(&|it| it.items[1] = item("a", 20)), "items");
    assert_eq!(refused(&|it| it.items[0] = item("a", 9)), "version");
    assert_eq!(refused(&|it| it.items[0] = item("a", 51)), "version");
    assert_eq!(refused(&|it| it.items[1] = gone("b", 19)), "version");
    let name = ItemName::keyed("Ent", "a").unwrap();
    let content = Content::json("1").unwrap();
    let error = Item::existing(name, at(1), at(2), content.clone()).unwrap_err();
    assert_eq!(error.field, "item_version");
    let attachment = ItemName::keyed("P", "a").unwrap();
    assert!(Item::existing(attachment, at(1), at(1), content).is_err());
    let future = Document::from_parts(good.clone()).unwrap().check_not_after(at(49)).unwrap_err();
    assert_eq!(future.field, "version");
}
