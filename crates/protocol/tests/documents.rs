//! Sessions as documents: what a record says, its document says, and the other way round.

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_docstore::{DocName, Document, DocumentParts};
use rota_model::*;
use rota_protocol::replica::Replica;
use rota_protocol::{Doc, DocKey, Entry, Sizes, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

type Any<T> = BoxedStrategy<T>;

/// A stamp, so many milliseconds after some moment.
fn at(ms: u64) -> Stamp {
    Stamp::from_epoch_ms(1_800_000_000_000 + ms)
}

fn key() -> SessionKey {
    SessionKey::new(Namespace::parse("shop").unwrap(), SessionId::parse("a \"b\"").unwrap())
}

fn placement() -> Any<Placement> {
    let place = |(node, boot, seq, address): (String, u64, u64, String)| Placement {
        node: NodeId::parse(&node).unwrap(),
        boot: BootId(boot),
        token: Token(LogPos::new(Epoch(3), Seq(seq))),
        address,
    };
    ("[ab]", any::<u64>(), 0..3_u64, "[x:1]{0,4}").prop_map(place).boxed()
}

fn earlier(class: &str) -> Arc<EarlierSpec> {
    let class = ClassName::parse(class).unwrap();
    Arc::new(EarlierSpec { class, pool: PoolName::default_pool() })
}

fn request() -> Any<RequestEntry> {
    let outcome = select(vec![Outcome::Created, Outcome::Existed]);
    let opened = (outcome, placement()).prop_map(|(outcome, placement)| RequestFate::Opened {
        outcome,
        life: at(1),
        version: at(2),
        placement,
    });
    let failed = Just(RequestFate::Failed { life: at(1) });
    let closed = Just(RequestFate::Closed { life: at(1) });
    let fate = prop_oneof![Just(RequestFate::Opening), opened, failed, closed];
    ("[a-e]", 0..4_u64, fate)
        .prop_map(|(id, ms, fate)| RequestEntry {
            id: RequestId::parse(&id).unwrap(),
            at: at(ms),
            ran: matches!(fate, RequestFate::Closed { .. }).then(|| earlier("e")),
            fate,
        })
        .boxed()
}

/// Requests with one entry for each id, in their order. Some lean on the placement.
fn requests(entries: Vec<RequestEntry>, here: Option<&Placement>) -> Vec<RequestEntry> {
    let lean = |mut entry: RequestEntry| {
        if let (RequestFate::Opened { placement, outcome: Outcome::Created, .. }, Some(here)) =
            (&mut entry.fate, here)
        {
            *placement = here.clone();
        }
        (entry.id.clone(), entry)
    };
    let by_id: BTreeMap<RequestId, RequestEntry> = entries.into_iter().map(lean).collect();
    let mut requests: Vec<RequestEntry> = by_id.into_values().collect();
    requests.sort_by(RequestEntry::order);
    requests
}

/// A record whose life and version come from the caller.
fn record() -> Any<SessionRecord> {
    let spec = (btree_map("[a-z]{1,4}", ".{0,8}", 0..3), "[cd]").prop_map(|(attributes, class)| {
        let (class, pool) = (ClassName::parse(&class).unwrap(), PoolName::default_pool());
        SessionSpec { class, pool, attributes: Arc::new(attributes), life: None }
    });
    let exit = prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        any::<i32>().prop_map(Exit::Signal),
        ".{0,5}".prop_map(Exit::FinalState),
    ];
    let why = (of(select(Reason::ALL.to_vec())), ".{0,9}", of(exit));
    let machine = (".{0,3}", 0..3_u64);
    let state = select(SessionState::ALL.to_vec());
    let lifetime = (of(1..9_u64), any::<bool>(), of(Just(at(3))), 0..3_u32);
    let lifetime = lifetime.prop_map(|(idle_ms, is_managed, origin, restarts)| {
        let it = Lifetime { idle_ms, is_managed, origin, restarts, ..Lifetime::default() };
        (!it.is_default()).then(|| Arc::new(it))
    });
    (spec, state, why, of(placement()), (machine, lifetime), vec(request(), 0..5))
        .prop_map(|(spec, state, (reason, detail, exit), placement, others, entries)| {
            let (machine, lifetime) = others;
            let requests = requests(entries, placement.as_ref());
            SessionRecord {
                key: key(),
                spec,
                life: at(10),
                version: at(10),
                state,
                reason,
                detail,
                exit,
                grace_ms: None,
                placement,
                attributes_digest: None,
                machine_state: machine.0,
                machine_change: machine.1,
                requests,
                lifetime,
            }
        })
        .boxed()
}

/// States of one life (or, at a new one, of the next) after each other, at growing versions. None
/// moves as sessions do: documents do not mind.
fn history() -> Any<Vec<SessionRecord>> {
    let step = (record(), 1..400_000_u64, proptest::bool::weighted(0.2));
    vec(step, 1..12)
        .prop_map(|steps| {
            let (mut life, mut version) = (at(10), at(10));
            let mut records = Vec::new();
            for (mut record, ms, is_new) in steps {
                version = version.plus_ms(ms);
                life = if is_new { version } else { life };
                (record.life, record.version) = (life, version);
                // The session's machine and the state stay where they are now and then.
                if let Some(before) = records.last().filter(|_| ms % 2 == 0) {
                    let before: &SessionRecord = before;
                    record.placement.clone_from(&before.placement);
                    record.requests.clone_from(&before.requests);
                }
                records.push(record);
            }
            records
        })
        .boxed()
}

fn documents(records: &[SessionRecord]) -> Vec<Doc> {
    let mut documents: Vec<Doc> = Vec::new();
    for record in records {
        let doc = Doc::session_after(documents.last(), record.clone());
        documents.push(doc);
    }
    documents
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_record_comes_back_from_its_documents_bytes(history in history()) {
        for (doc, record) in documents(&history).iter().zip(&history) {
            let back = Doc::from_bytes(&doc.to_bytes()).unwrap();
            prop_assert_eq!(&back, doc);
            prop_assert_eq!(&**back.session().unwrap(), record);
            prop_assert_eq!(back.brief(), doc.brief());
            // A document of its own says the same, though not since when.
            let alone = Doc::session_after(None, record.clone());
            prop_assert_eq!(&**alone.session().unwrap(), record);
            prop_assert_eq!(Doc::from_bytes(&alone.to_bytes()), Ok(alone));
        }
    }

    #[test]
    fn a_copy_says_what_the_owner_says_before_and_after_it_is_read(history in history()) {
        for (doc, record) in documents(&history).iter().zip(&history) {
            let bytes = doc.to_bytes();
            let copy = Doc::from_manager(&bytes).unwrap();
            prop_assert_eq!((copy.name(), copy.brief()), (doc.name(), doc.brief()));
            prop_assert_eq!((copy.ctime(), copy.version()), (doc.ctime(), doc.version()));
            prop_assert_eq!(copy.bodies().count(), 0);
            prop_assert_eq!(copy.to_bytes(), bytes.clone());
            prop_assert_eq!(&copy, &Doc::from_manager(&bytes).unwrap());
            let length = copy.bytes();
            prop_assert_eq!(&**copy.session().unwrap(), record);
            prop_assert_eq!(&copy, doc);
            prop_assert_eq!(copy.bytes(), length, "what is counted once is taken off again");
            prop_assert_eq!(copy.to_bytes(), bytes);
        }
    }

    #[test]
    fn an_item_has_the_version_at_which_it_changed_last(history in history()) {
        let documents = documents(&history);
        for (before, after) in documents.iter().zip(documents.iter().skip(1)) {
            let (before, after) = (before.document(), after.document());
            let goes_on = before.ctime() == after.ctime();
            for item in after.items() {
                let old = before.item(item.name().class(), item.name().key());
                let same = old.filter(|it| goes_on && it.content() == item.content());
                let expected = same.map_or(after.version(), |it| it.version());
                prop_assert_eq!(item.version(), expected, "{:?}", item.name());
            }
            prop_assert!(goes_on || after.ctime() > before.version());
            // Whatever goes is known as destroyed.
            let gone = |item: &&rota_docstore::Item| {
                let name = item.name();
                goes_on && !item.is_destroyed() && after.item(name.class(), name.key()).is_none()
            };
            prop_assert_eq!(before.items().iter().find(gone), None);
        }
    }
}

fn simple(version: u64, requests: &[(&str, u64)]) -> SessionRecord {
    let spec = SessionSpec {
        class: ClassName::parse("c").unwrap(),
        pool: PoolName::default_pool(),
        attributes: Arc::default(),
        life: None,
    };
    let entry = |(id, ms): &(&str, u64)| RequestEntry {
        id: RequestId::parse(id).unwrap(),
        at: at(*ms),
        fate: RequestFate::Closed { life: at(0) },
        ran: None,
    };
    SessionRecord {
        key: key(),
        spec,
        life: at(0),
        version: at(version),
        state: SessionState::Closed,
        reason: None,
        detail: String::new(),
        exit: None,
        grace_ms: None,
        placement: None,
        attributes_digest: None,
        machine_state: String::new(),
        machine_change: 0,
        requests: requests.iter().map(entry).collect(),
        lifetime: None,
    }
}

#[test]
fn a_forgotten_request_stays_known_as_destroyed_for_as_long_as_requests_are_remembered() {
    let first = Doc::session_after(None, simple(1, &[("a", 1), ("b", 1)]));
    let gone = Doc::session_after(Some(&first), simple(2, &[("b", 1)]));
    let item = |doc: &Doc| doc.document().item("request", Some("a")).cloned();
    assert!(item(&gone).unwrap().is_destroyed());
    let late = Doc::session_after(Some(&gone), simple(2 + REQUEST_MEMORY_MS, &[("b", 1)]));
    assert_eq!(item(&late), item(&gone));
    let later = Doc::session_after(Some(&late), simple(3 + REQUEST_MEMORY_MS, &[("b", 1)]));
    assert_eq!(item(&later), None);
    assert_eq!(later.document().dtime(), at(3));
}

#[test]
fn of_many_forgotten_requests_the_newest_stay_known() {
    let mut doc = Doc::session_after(None, simple(1, &[("0", 0)]));
    for n in 1..500_u64 {
        doc = Doc::session_after(Some(&doc), simple(1 + n, &[(n.to_string().as_str(), n)]));
    }
    let destroyed: Vec<&str> = doc
        .document()
        .items()
        .iter()
        .filter(|it| it.is_destroyed())
        .filter_map(|it| it.name().key())
        .collect();
    assert!((7..10).contains(&destroyed.len()), "{destroyed:?}");
    assert!(destroyed.contains(&"498") && !destroyed.contains(&"480"), "{destroyed:?}");
}

/// A session's document with one of its items as given.
fn forged(class: &str, json: &str) -> Vec<u8> {
    let doc = Doc::session_after(None, simple(1, &[("a", 1)]));
    let parts: DocumentParts = Document::clone(doc.document()).into_parts();
    let items = parts.items.into_iter().filter(|it| it.name().class() != class);
    let name = match class {
        "request" => rota_docstore::ItemName::keyed(class, "a").unwrap(),
        _ => rota_docstore::ItemName::singleton(class).unwrap(),
    };
    let content = rota_docstore::Content::json(json).unwrap();
    let item = rota_docstore::Item::existing(name, parts.version, parts.version, content).unwrap();
    let mut items: Vec<_> = items.chain([item]).collect();
    items.sort_by(|a, b| a.name().cmp(b.name()));
    Document::from_parts(DocumentParts { items, ..parts }).unwrap().to_bytes()
}

#[test]
fn a_sessions_document_that_does_not_read_as_one_is_refused_by_its_name() {
    let wrong = [
        ("spec", r#"{"class":"c"}"#),
        ("spec", r#"{"class":"","pool":"p"}"#),
        ("state", r#"{"state":"ODD"}"#),
        ("state", r#"{"state":"READY","more":1}"#),
        ("machine", r#"[1]"#),
        ("request", r#"{"at":0,"fate":"opening"}"#),
        (
            "request",
            r#"{"at":260101000000000,"fate":{"opened":{"outcome":"CREATED","life":260101000000000,"version":260101000000000}}}"#,
        ),
    ];
    for (class, json) in wrong {
        let error = Doc::from_bytes(&forged(class, json)).unwrap_err();
        assert_eq!(error.field, "document", "{class} {json}");
        assert!(error.problem.starts_with("shop/session/a \"b\": "), "{error}");
    }
    for (class, json) in wrong.into_iter().filter(|(class, _)| *class == "state") {
        let error = Doc::from_manager(&forged(class, json)).unwrap_err();
        assert!(error.problem.starts_with("shop/session/a \"b\": "), "{error}");
    }
    let state = r#"{"state":"READY"}"#;
    assert!(Doc::from_bytes(&forged("state", state)).is_ok());
}

/// A document of some other class, with one raw item of so many bytes.
fn note(docid: &str, version: u64, bytes: usize) -> Doc {
    let name = DocName::new(&Namespace::parse("shop").unwrap(), "note", docid).unwrap();
    let content = rota_docstore::Content::raw(vec![7; bytes]).unwrap();
    let item_name = rota_docstore::ItemName::singleton("text").unwrap();
    let item = rota_docstore::Item::existing(item_name, at(version), at(version), content).unwrap();
    let document = Document::from_parts(DocumentParts {
        name,
        ctime: at(version),
        version: at(version),
        dtime: at(version),
        is_deleted: false,
        items: vec![item],
    });
    Doc::new(Arc::new(document.unwrap())).unwrap()
}

#[test]
fn documents_of_any_class_are_copied_counted_and_seen_by_operations_before_they_are_committed() {
    let sizes = Sizes::default();
    let mut replica = Replica::default();
    let slot = SlotId(5);
    let pos = |seq| LogPos::new(Epoch(1), Seq(seq));
    let entry = |seq, writes| Entry::new(pos(seq), writes, None);
    replica.append(entry(1, vec![Write::of(slot, note("a", 1, 10))]));
    let (name, usage) = (note("a", 1, 10).name().clone(), |it: &Replica| it.usage("shop"));
    let key = |slot| DocKey::new(slot, name.clone());
    assert_eq!(replica.get(&key(slot)).map(|it| &**it), Some(&note("a", 1, 10)));
    assert_eq!(replica.get(&key(SlotId(6))), None);
    assert_eq!((usage(&replica).documents, usage(&replica).item_bytes), (1, 14));
    assert_eq!(replica.high_water, at(1));
    let empty = replica.digest;
    replica.commit_to(pos(1), &sizes);
    let one = replica.digest;
    assert_ne!(one, empty);
    assert_eq!((usage(&replica).documents, usage(&replica).item_bytes), (1, 14));
    let write = Write::of(slot, note("a", 9, 20));
    replica.append(entry(2, vec![write.clone(), Write::of(slot, note("b", 9, 1))]));
    assert_eq!((usage(&replica).documents, usage(&replica).item_bytes), (2, 24 + 5));
    replica.commit_to(pos(2), &sizes);
    assert_eq!((usage(&replica).documents, usage(&replica).item_bytes), (2, 24 + 5));
    assert_ne!(replica.digest, one);
    replica.append(entry(3, vec![Write { key: write.key, doc: None }]));
    assert_eq!((usage(&replica).documents, usage(&replica).item_bytes), (1, 5));
    replica.commit_to(pos(3), &sizes);
    assert_eq!((usage(&replica).documents, usage(&replica).item_bytes), (1, 5));
    assert_eq!(replica.high_water, at(9));
}
