//! Namespaces: described in `z`, switched off, limited, read by others.

use crate::bank::*;
use rota_docstore::space::{SPACE_CLASS, WEB_CLASS, WebHead};
use rota_docstore::*;

fn pay(store: &mut Store) -> Result<Answer, Exception> {
    store.perform(&operations(), &rules(), transfer("a", "b", 1), at(10))
}

#[test]
fn a_namespace_is_switched_off_with_a_message_and_on_again() {
    let mut store = two_accounts();
    let off = Some("back at noon".to_owned());
    describe(&mut store, "bank", &Description { off, ..Description::default() }, at(1));
    let exception = pay(&mut store).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::OFF, Phase::Before));
    assert_eq!(exception.to_string(), "O-OFF: namespace bank is off: back at noon");
    assert_eq!(exception.status(), Status::Unavailable);
    describe(&mut store, "bank", &Description::default(), at(2));
    assert!(pay(&mut store).is_ok());
}

#[test]
fn a_namespace_that_is_not_described_is_open_or_refused_by_choice() {
    let mut open = two_accounts();
    assert!(pay(&mut open).is_ok());
    let mut strict = Store::new(Spaces::new(z(), Undescribed::Refused));
    for document in two_accounts().iter() {
        strict.set(document.name(), Some(document.clone()));
    }
    let exception = pay(&mut strict).unwrap_err();
    assert_eq!((exception.code(), exception.status()), (&codes::NAMESPACE, Status::NotFound));
    describe(&mut strict, "bank", &Description::default(), at(1));
    assert!(pay(&mut strict).is_ok());
    // The space for configuration needs no description, or nobody could write one.
    assert!(strict.spaces().check_open(&z()).is_ok());
}

#[test]
fn a_description_goes_with_its_document() {
    let mut store = two_accounts();
    let off = Some(String::new());
    describe(&mut store, "bank", &Description { off, ..Description::default() }, at(1));
    assert_eq!(pay(&mut store).unwrap_err().to_string(), "O-OFF: namespace bank is switched off");
    let name = DocName::new(&z(), SPACE_CLASS, "bank").unwrap();
    let described = store.peek(&name).cloned();
    let end = store.change(&rules(), &z(), at(2), |transaction| {
        transaction.current(&name)?.destroy();
        Ok(())
    });
    end.unwrap();
    let exception = pay(&mut store).unwrap_err();
    let problem = "N-NAMESPACE: namespace bank was deleted; it can be created anew";
    assert_eq!(exception.to_string(), problem);
    let mut forgetful = store.clone();
    forgetful.spaces_mut().forget_deleted(at(2));
    assert!(pay(&mut forgetful).is_err(), "as long as others remember it");
    forgetful.spaces_mut().forget_deleted(at(3));
    assert!(pay(&mut forgetful).is_ok());
    describe(&mut store, "bank", &Description::default(), at(3));
    assert!(pay(&mut store).is_ok());
    // Gone without trace.
    store.set(&name, described);
    store.set(&name, None);
    assert!(pay(&mut store).is_ok());
}

#[test]
fn limits_stop_growth_and_nothing_else() {
    let mut store = two_accounts();
    let item_bytes = store.usage("bank").item_bytes;
    let limits = Limits {
        documents: Some(2),
        item_bytes: Some(item_bytes + 2),
        attachment_bytes: Some(100),
    };
    describe(&mut store, "bank", &Description { limits, ..Description::default() }, at(1));
    let refused = |store: &mut Store, work: fn(&mut Transaction<'_>) -> Result<(), Exception>| {
        let exception = edit(store, at(5), work).unwrap_err();
        assert_eq!((exception.code(), exception.phase()), (&codes::LIMIT, Phase::Validation));
        exception.details().fields[0].clone()
    };
    let third = refused(&mut store, |transaction| transaction.current(&account("c"))?.create());
    let problem = "of the namespace would be 3; the limit is 2";
    assert_eq!(third, FieldError::new("documents", problem));
    let long = refused(&mut store, |transaction| {
        let note = Some("a long note".to_owned());
        transaction.current(&account("a"))?.put_one(&Balance { cents: 100, note })
    });
    assert_eq!(long.field, "item_bytes");
    set_balance(&mut store, "a", 999, at(6));
    assert_eq!(balance(&store, "a"), Some(999));
    // Shrinking is always allowed.
    let limits = Limits { documents: Some(1), item_bytes: Some(1), attachment_bytes: Some(0) };
    describe(&mut store, "bank", &Description { limits, ..Description::default() }, at(6));
    set_balance(&mut store, "a", 9, at(7));
    let work = |transaction: &mut Transaction<'_>| {
        transaction.current(&account("a"))?.destroy();
        Ok(())
    };
    edit(&mut store, at(8), work).unwrap();
    assert_eq!(store.usage("bank").documents, 1);
}

#[test]
fn bodies_of_attachments_count_for_their_own_limit() {
    let mut store = two_accounts();
    let limits = Limits { attachment_bytes: Some(100), ..Limits::default() };
    describe(&mut store, "bank", &Description { limits, ..Description::default() }, at(1));
    let mut attach = |key: &'static str, size: u64, now: u64| {
        edit(&mut store, at(now), |transaction| {
            let photo = Attachment::new("", size, Digest([0; 32]))?;
            transaction.current(&account("a"))?.attach(key, photo)
        })
    };
    let exception = attach("x", 101, 2).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::LIMIT, Phase::Validation));
    let problem = "of the namespace would be 101; the limit is 100";
    assert_eq!(exception.details().fields, [FieldError::new("attachment_bytes", problem)]);
    attach("x", 60, 3).unwrap();
    assert_eq!(*attach("y", 41, 4).unwrap_err().code(), codes::LIMIT);
    attach("y", 40, 5).unwrap();
    assert_eq!(store.usage("bank").attachment_bytes, 100);
}

#[test]
fn another_namespace_is_read_only_where_it_names_the_reader_and_never_changed() {
    let mut store = two_accounts();
    let rules = rules();
    let auditor = Namespace::parse("audit").unwrap();
    let read = |store: &Store| {
        let mut attempt = Attempt::new(auditor.clone(), at(5));
        let mut transaction = Transaction::new(&rules, store, None, &mut attempt);
        transaction.recent(&account("a"), Tolerance::seconds(5)).map(|it| it.exists())
    };
    let exception = read(&store).unwrap_err();
    assert_eq!((exception.code(), exception.status()), (&codes::SPACE, Status::PermissionDenied));
    let readers = vec![auditor.clone()];
    let described = Description { readers, ..Description::default() };
    describe(&mut store, "bank", &described, at(1));
    assert!(read(&store).unwrap());
    let off = Some("back at noon".to_owned());
    describe(&mut store, "bank", &Description { off, ..described.clone() }, at(2));
    let exception = read(&store).unwrap_err();
    assert_eq!(exception.to_string(), "O-OFF: namespace bank is off: back at noon");
    describe(&mut store, "bank", &described, at(3));
    let mut attempt = Attempt::new(auditor.clone(), at(5));
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    assert_eq!(*transaction.current(&account("a")).unwrap_err().code(), codes::SPACE);
    // The same holds for documents that a caller wants brought up to date.
    let syncs = vec![SyncRequest { name: account("a"), held: None }];
    let stranger = Namespace::parse("stranger").unwrap();
    let request = Request { syncs, ..Request::new(stranger, "transfer") };
    let exception = store.perform(&operations(), &rules, request, at(6)).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::SPACE, Phase::Before));
}

#[test]
fn web_resources_are_documents_of_the_space_for_configuration() {
    let (rules, mut store) = (rules(), Store::default());
    let mut attempt = Attempt::new(z(), at(1));
    let name = DocName::new(&z(), WEB_CLASS, "index.html").unwrap();
    let mut transaction = Transaction::new(&rules, &store, None, &mut attempt);
    let edited = transaction.current(&name).unwrap();
    edited.ensure();
    edited.put_one(&WebHead { mime: "text/html".into() }).unwrap();
    let body = Content::raw(&b"<p>hello</p>"[..]).unwrap();
    edited.put_content(&ItemName::singleton("Body").unwrap(), body.clone()).unwrap();
    store.commit(&rules, attempt, at(1)).unwrap();
    let document = store.peek(&name).unwrap();
    assert_eq!(document.one::<WebHead>().unwrap().unwrap().mime, "text/html");
    assert_eq!(document.content("Body", None), Some(&body));
}

#[test]
fn a_description_that_does_not_read_leaves_what_was_known() {
    let mut spaces = Spaces::default();
    let document = |json: &str| {
        let content = Content::json(json).unwrap();
        let item = ItemName::singleton("Desc").unwrap();
        Document::from_parts(DocumentParts {
            name: DocName::new(&z(), SPACE_CLASS, "bank").unwrap(),
            ctime: at(1),
            version: at(1),
            dtime: at(1),
            is_deleted: false,
            items: vec![Item::existing(item, at(1), at(1), content).unwrap()],
        })
        .unwrap()
    };
    assert_eq!(spaces.learn(&document(r#"{"off":"x"}"#)), Ok(true));
    let error = spaces.learn(&document(r#"{"of":"x"}"#)).unwrap_err();
    assert!(error.problem.starts_with("z/Space/bank: json does not fit"), "{error}");
    assert_eq!(spaces.get("bank").unwrap().off.as_deref(), Some("x"));
    assert_eq!(spaces.iter().count(), 1);
}

#[test]
fn a_description_that_cannot_be_learned_is_not_written() {
    let (rules, mut store) = (rules(), Store::default());
    let name = DocName::new(&z(), SPACE_CLASS, "bank").unwrap();
    let long = Description { description: "x".repeat(1_025), ..Description::default() };
    assert_eq!(long.check().unwrap_err().field, "description");
    let work = |transaction: &mut Transaction<'_>| {
        transaction.current(&name)?.ensure();
        transaction.current(&name)?.put_one(&long)
    };
    let exception = store.change(&rules, &z(), at(1), work).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::INVALID, Phase::Validation));
    let text = "document z/Space/bank: description is 1025 bytes long; the limit is 1024";
    assert_eq!(exception.details().message, text);
    assert!(store.is_empty());
}

#[test]
fn the_documents_of_one_namespace_can_be_listed() {
    let mut store = two_accounts();
    describe(&mut store, "bank", &Description::default(), at(1));
    for space in ["ban", "bank!", "banka", "a"] {
        let name = DocName::new(&Namespace::parse(space).unwrap(), "Acc", "a").unwrap();
        let parts = DocumentParts { name, ..account_a(&store) };
        store.set(&parts.name.clone(), Some(Document::from_parts(parts).unwrap().into()));
    }
    let names: Vec<_> = store.in_space(&space()).map(|it| it.name().to_string()).collect();
    assert_eq!(names, ["bank/Acc/a", "bank/Acc/b"]);
    assert_eq!(store.in_space(&Namespace::parse("none").unwrap()).count(), 0);
}

fn account_a(store: &Store) -> DocumentParts {
    Document::clone(store.peek(&account("a")).unwrap()).into_parts()
}
