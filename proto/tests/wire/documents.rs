//! Documents, operations, namespaces and exceptions.

use crate::strategies as some;
use proptest::prelude::*;
use prost::Message;
use rota_docstore::request::SYNCS_MAX;
use rota_docstore::{DocName, Document, Effect, Exception, Item, Phase, TABLE, Update, codes};
use rota_messages::api::{DocumentChange, DocumentEvent};
use rota_model::{FieldError, Namespace, Retry, Stamp};
use rota_proto::documents::answer::{self, Head, Told};
use rota_proto::documents::export::{Order, Part};
use rota_proto::documents::{
    ANSWER_BYTES_MAX, DocumentCursor, NamespaceState, UPDATES_BYTES_MAX, cursor, document_export,
    exception, request, status, watch,
};
use rota_proto::{refusal, v1};
use std::sync::Arc;
use tonic::Code;
use tonic_types::StatusExt;

/// Sends a message through its bytes.
fn sent<M: Message + Default>(message: &M) -> M {
    M::decode(&*message.encode_to_vec()).expect("what was encoded decodes")
}

fn fields(exception: &Exception) -> Vec<&str> {
    exception.details().fields.iter().map(|it| &*it.field).collect()
}

proptest! {
    #[test]
    fn every_document_comes_back(document in some::document()) {
        let back = Document::try_from(sent(&v1::Document::from(&document)));
        prop_assert_eq!(back, Ok(document));
    }

    #[test]
    fn every_update_comes_back(name in some::doc_name(), update in some::update()) {
        let wire = sent(&v1::DocumentUpdate::from((&name, &update)));
        prop_assert_eq!(<(DocName, Update)>::try_from(wire), Ok((name, update)));
    }

    #[test]
    fn every_request_is_read_as_it_was_written(
        operate in some::operate(),
        (sync, list) in (some::sync(), some::document_list()),
        (put, get, export) in (some::put_body(), some::get_body(), some::export_document()),
        (create, set, switch) in (some::create(), some::set(), some::switch()),
    ) {
        prop_assert_eq!(request::operate(sent(&(&operate).into())), Ok(operate));
        prop_assert_eq!(request::sync(sent(&(&sync).into())), Ok(sync));
        prop_assert_eq!(request::list(sent(&(&list).into())), Ok(list));
        prop_assert_eq!(request::put_body(Some(sent(&(&put).into()))), Ok(put));
        prop_assert_eq!(request::get_body(&sent(&(&get).into())), Ok(get));
        prop_assert_eq!(request::export_document(sent(&(&export).into())), Ok(export));
        prop_assert_eq!(request::create(sent(&(&create).into())), Ok(create));
        prop_assert_eq!(request::set(sent(&(&set).into())), Ok(set));
        prop_assert_eq!(request::switch(sent(&(&switch).into())), Ok(switch));
    }

    #[test]
    fn every_watch_is_read_as_it_was_written(given in some::watch_of_documents()) {
        let wire = sent(&v1::WatchDocumentsRequest::from(&given));
        prop_assert_eq!(watch::watch_documents(wire), Ok(given));
    }

    #[test]
    fn every_event_of_a_watch_comes_back(event in some::event()) {
        prop_assert_eq!(sent(&v1::DocumentEvent::from(&event)).try_into(), Ok(event.clone()));
        let is_large = v1::DocumentEvent::from(&event).encoded_len() > UPDATES_BYTES_MAX;
        let change = if is_large { DocumentChange::TooLarge } else { event.change.clone() };
        let told = DocumentEvent { change, ..event.clone() };
        prop_assert_eq!(sent(&watch::told(&event)).try_into(), Ok(told));
    }

    #[test]
    fn every_answer_comes_back(
        given in some::answer_of_operation(),
        heads in proptest::collection::vec(some::head(), 0..4),
        state in some::namespace_state(),
    ) {
        let synced = answer::synced(sent(&answer::sync_response(&given.updates)));
        let told = |(name, update): &(DocName, Update)| (name.clone(), Told::Update(update.clone()));
        prop_assert_eq!(synced, Ok(given.updates.iter().map(told).collect::<Vec<_>>()));
        let operated = answer::operated(sent(&answer::operate_response(&given)));
        prop_assert_eq!(operated, Ok(given));
        let wire: Vec<v1::DocumentHead> = heads.iter().map(Into::into).collect();
        let back: Result<Vec<Head>, _> = wire.iter().map(|it| sent(it).try_into()).collect();
        prop_assert_eq!(back, Ok(heads));
        let back = NamespaceState::try_from(sent(&v1::NamespaceInfo::from(&state)));
        prop_assert_eq!(back, Ok(state));
    }

    #[test]
    fn every_exception_comes_back_from_its_status(given in some::exception()) {
        let status = status(&given);
        prop_assert_eq!(status.code(), exception::code(given.status()));
        let back = exception::exception(&status);
        prop_assert_eq!(back.as_ref(), Some(&given));
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        let changed = if given.phase().number() > 2 { "yes" } else { "no" };
        prop_assert_eq!(&info.metadata["changed"], changed);
        prop_assert_eq!(info.metadata["retry"] == "never", given.retry() == Retry::Never);
        prop_assert_eq!(
            details.retry_info().is_some(),
            matches!(given.retry(), Retry::AfterMs(_))
        );
    }

    #[test]
    fn a_page_token_continues_only_its_own_list(list in some::document_list()) {
        let class = list.class.as_deref();
        let token = cursor::page_token(&list.from, &list.space, class);
        prop_assert_eq!(cursor::parse_page_token(&token, &list.space, class), Ok(list.from));
        let other = Namespace::parse("another").unwrap();
        prop_assert!(cursor::parse_page_token(&token, &other, class).is_err());
        let other_class = Some("Another").filter(|_| class.is_none());
        prop_assert!(cursor::parse_page_token(&token, &list.space, other_class).is_err());
        prop_assert!(cursor::parse_page_token(&token[2..], &list.space, class).is_err());
    }

    #[test]
    fn an_export_comes_back_and_no_record_of_it_may_be_missing(
        parts in some::export(),
        missing in any::<prop::sample::Index>(),
    ) {
        let mut order = Order::new();
        for part in &parts {
            prop_assert!(!order.is_complete());
            prop_assert_eq!(order.take(sent(&part.into())), Ok(Some(part.clone())));
        }
        prop_assert!(order.is_complete() && order.is_body_whole());
        let (mut order, missing) = (Order::new(), missing.index(parts.len()));
        let rest = parts.iter().enumerate().filter(|(at, _)| *at != missing);
        let taken: Result<Vec<_>, _> = rest.map(|(_, it)| order.take(it.into())).collect();
        prop_assert!(taken.is_err() || !order.is_complete());
    }
}

proptest! {
    #[test]
    fn an_export_of_a_document_comes_back_and_no_record_of_it_may_be_missing(
        parts in some::document_export(),
        missing in any::<prop::sample::Index>(),
    ) {
        let mut order = document_export::Order::default();
        for part in &parts {
            prop_assert!(!order.is_complete());
            prop_assert_eq!(order.take(sent(&part.into())), Ok(Some(part.clone())));
        }
        prop_assert!(order.is_complete() && order.is_body_whole());
        let mut order = document_export::Order::default();
        let missing = missing.index(parts.len());
        let rest = parts.iter().enumerate().filter(|(at, _)| *at != missing);
        let taken: Result<Vec<_>, _> = rest.map(|(_, it)| order.take(it.into())).collect();
        prop_assert!(taken.is_err() || !order.is_complete());
    }
}

#[test]
fn an_export_of_a_document_says_what_is_wrong_with_what_the_receiver_has() {
    let held = v1::HeldDocument { ctime: 1, version: 2, dtime: 3 };
    let request = v1::ExportDocumentRequest {
        held: Some(held),
        bodies: vec![vec![0; 32].into(), vec![0; 31].into()],
        ..Default::default()
    };
    let wrong = request::export_document(request).unwrap_err();
    let expected = ["document", "held.ctime", "held.version", "held.dtime", "bodies[1]"];
    assert_eq!(fields(&wrong), expected);
    let bodies = vec![vec![0; 32].into(); request::BODIES_HELD_MAX + 1];
    let many = v1::ExportDocumentRequest { bodies, ..Default::default() };
    let refused = request::export_document(many).unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (&codes::LIMIT, vec!["bodies"]));
}

#[test]
fn an_operation_with_nothing_right_lists_every_mistake() {
    let name = v1::DocumentName { namespace: "\n".into(), class: "C".repeat(33), docid: "".into() };
    let held = v1::HeldDocument { ctime: 1, version: 2, dtime: 3 };
    let wrong = v1::DocumentSync { name: Some(name), held: Some(held) };
    let request = v1::OperateRequest {
        namespace: "x".repeat(256),
        parameters: "{".into(),
        docid: "d".repeat(256),
        operation_time: 7,
        syncs: vec![wrong, v1::DocumentSync::default()],
        ..Default::default()
    };
    let exception = request::operate(request).unwrap_err();
    let expected = [
        "namespace",
        "parameters",
        "docid",
        "operation_time",
        "syncs[0].name.namespace",
        "syncs[0].name.class",
        "syncs[0].name.docid",
        "syncs[0].held.ctime",
        "syncs[0].held.version",
        "syncs[0].held.dtime",
        "syncs[1].name",
    ];
    assert_eq!(fields(&exception), expected);
    assert_eq!((exception.code(), exception.phase()), (&codes::INVALID, Phase::Before));
    let text = exception.to_string();
    for part in ["docid is 256 bytes long; the limit is 255", "syncs[0].name.class is 33 bytes"] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
}

#[test]
fn limits_are_named_with_code_and_field() {
    let syncs = vec![v1::DocumentSync::default(); SYNCS_MAX + 1];
    let refused =
        request::operate(v1::OperateRequest { syncs: syncs.clone(), ..Default::default() });
    let refused = refused.unwrap_err();
    assert_eq!(refused.to_string(), "A-LIMIT: syncs are 257 documents; the limit is 256");
    let refused = request::sync(v1::SyncRequest { documents: syncs, ..Default::default() });
    assert_eq!(*refused.unwrap_err().code(), codes::LIMIT);
    let parameters = " ".repeat(request::PARAMETERS_BYTES_MAX + 1);
    let docid = "d".to_owned();
    let refused = request::operate(v1::OperateRequest { parameters, docid, ..Default::default() });
    let expected = "A-INVALID: parameters are 1048577 bytes long; the limit is 1048576";
    assert_eq!(refused.unwrap_err().to_string(), expected);
    let list = v1::ListDocumentsRequest { page_size: 1001, ..Default::default() };
    let refused = request::list(list).unwrap_err();
    assert_eq!(refused.to_string(), "A-INVALID: page_size is 1001; the limit is 1000");
    let piece = vec![0; rota_proto::documents::PIECE_BYTES_MAX + 1];
    let part = Some(v1::put_body_request::Part::Bytes(piece.into()));
    let refused = request::put_piece(v1::PutBodyRequest { part }).unwrap_err();
    let expected = "A-INVALID: bytes are 1048577; the limit of one piece is 1048576";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn bodies_and_namespaces_with_nothing_right_list_every_mistake() {
    let begin = v1::put_body_request::Begin { namespace: "\n".into(), ..Default::default() };
    let part = Some(v1::put_body_request::Part::Begin(begin));
    let refused = request::put_body(Some(v1::PutBodyRequest { part })).unwrap_err();
    assert_eq!(fields(&refused), ["namespace", "docid", "sha256"]);
    assert!(refused.to_string().contains("sha256 is 0 bytes long; it must be 32"));
    assert_eq!(fields(&request::put_body(None).unwrap_err()), ["begin"]);
    let create = v1::CreateNamespaceRequest {
        description: "x".repeat(1025),
        readers: vec!["fine".into(), String::new()],
        ..Default::default()
    };
    assert_eq!(
        fields(&request::create(create).unwrap_err()),
        ["name", "readers[1]", "description"]
    );
    let nothing = v1::SetNamespaceRequest { name: "n".into(), ..Default::default() };
    assert_eq!(fields(&request::set(nothing.clone()).unwrap_err()), ["name"]);
    let readers = || vec!["a".to_owned()];
    let (add_readers, remove_readers) = (readers(), readers());
    let both = v1::SetNamespaceRequest { add_readers, remove_readers, ..nothing };
    assert_eq!(fields(&request::set(both).unwrap_err()), ["add_readers[0]"]);
    let on = v1::SwitchNamespaceRequest { name: "n".into(), off: false, message: "why".into() };
    assert_eq!(fields(&request::switch(on).unwrap_err()), ["message"]);
}

#[test]
fn codes_of_statuses_are_those_of_the_one_table() {
    for row in &TABLE {
        let name = format!("{:?}-X", row.letter);
        let given = Exception::new(rota_docstore::Code::parse(&name).unwrap(), "no");
        let code = format!("{:?}", status(&given).code());
        assert_eq!(code, format!("{:?}", row.status));
        let with_field = given.clone().with_field(FieldError::new("key", "is wrong"));
        let code = format!("{:?}", status(&with_field).code());
        assert_eq!(code, format!("{:?}", row.status_of_fields));
        let info = status(&given).get_error_details().error_info().unwrap().clone();
        assert_eq!((&*info.domain, &*info.reason), ("rota.documents", &*name));
        assert_eq!(info.metadata["major"], row.major.to_string());
    }
}

#[test]
fn after_the_commit_nobody_is_told_to_repeat() {
    let late = Exception::unexpected("LATE", "the answer was lost").at(Phase::Sending);
    assert_eq!(late.phase().effect(), Effect::Committed);
    let details = status(&late).get_error_details();
    let metadata = &details.error_info().unwrap().metadata;
    assert_eq!((&*metadata["changed"], &*metadata["retry"]), ("yes", "never"));
    assert!(details.retry_info().is_none());
}

#[test]
fn a_status_of_another_domain_or_an_unknown_letter_is_no_exception() {
    let refused = rota_model::Refusal::new(rota_model::RefusalKind::NotOwner, Retry::Now, "moved");
    assert_eq!(exception::exception(&refusal::status(&refused)), None);
    assert_eq!(exception::exception(&tonic::Status::unavailable("gone")), None);
    let mut details = tonic_types::ErrorDetails::new();
    let phase = [("phase".to_owned(), "1".to_owned())];
    let metadata = std::collections::HashMap::from(phase);
    details.set_error_info("Z-NEW", "rota.documents", metadata);
    let status = tonic::Status::with_error_details(Code::Aborted, "new", details);
    assert_eq!(exception::exception(&status), None);
    // The code of gRPC still says what to do.
    assert_eq!(refusal::refusal(&status).retry, Retry::Now);
}

#[test]
fn statuses_fit_into_headers_whatever_the_exception_holds() {
    let field = FieldError::new("f".repeat(5000), "é".repeat(5000));
    let given = Exception::new(codes::INVALID, "é".repeat(50_000));
    let given = (0..100).fold(given, |it, _| it.with_field(field.clone()));
    let status = status(&given);
    let (escaped, details) = (status.message().len() * 3, status.details().len().div_ceil(3) * 4);
    assert!(escaped + details < 16 * 1024, "{escaped} + {details}");
    assert!(!fields(&exception::exception(&status).unwrap()).is_empty());
}

/// A document with so many items of 1 MiB.
fn large(docid: &str, count: usize) -> (DocName, Update) {
    let name = DocName::new(&Namespace::default_space(), "C", docid).unwrap();
    let at = Stamp::MIN.plus_ms(1);
    let item = |key: usize| {
        let name = rota_docstore::ItemName::keyed("R", &key.to_string()).unwrap();
        let content = rota_docstore::Content::raw(vec![0; 1024 * 1024]).unwrap();
        Item::existing(name, at, at, content).unwrap()
    };
    let items = (0..count).map(item).collect();
    let parts = rota_docstore::DocumentParts {
        name: name.clone(),
        ctime: at,
        version: at,
        dtime: at,
        is_deleted: false,
        items,
    };
    (name, Update::Full(Arc::new(Document::from_parts(parts).unwrap())))
}

#[test]
fn a_response_holds_the_first_updates_that_fit_and_names_what_would_not_fit_alone() {
    let updates: Vec<_> =
        [("a", 1), ("b", 7), ("c", 1), ("d", 1), ("e", 1)].map(|it| large(it.0, it.1)).into();
    let response = answer::sync_response(&updates);
    assert_eq!(response.updates.len(), 3, "a fourth MiB has no room");
    assert!(response.encoded_len() <= UPDATES_BYTES_MAX + 64);
    let synced = answer::synced(response).unwrap();
    let whole = |(name, update): (DocName, Update)| (name, Told::Update(update));
    let Update::Full(document) = &updates[1].1 else { panic!("it is whole") };
    let too_large = Told::TooLarge { ctime: document.ctime(), version: document.version() };
    let expected =
        [whole(updates[0].clone()), (updates[1].0.clone(), too_large), whole(updates[2].clone())];
    assert_eq!(synced, expected);
}

#[test]
fn beside_the_largest_body_of_an_operation_an_answer_is_still_one_that_clients_take() {
    let bytes = vec![7; rota_docstore::attempt::BODY_BYTES_MAX];
    let body = rota_docstore::Body::binary("image/png", bytes).unwrap();
    let updates = vec![large("a", 0), large("b", 1)];
    let given = rota_docstore::Answer { version: Stamp::MIN, body, updates };
    let response = answer::operate_response(&given);
    assert!(response.encoded_len() < ANSWER_BYTES_MAX - 256 * 1024, "{}", response.encoded_len());
    assert_eq!(response.updates.len(), 1);
}

/// Names that are long, of items that stay as they are.
fn many_names() -> Update {
    let at = Stamp::MIN.plus_ms(1);
    let name = |key: usize| format!("{key:05}{}", "k".repeat(250));
    let named = |key| rota_docstore::ItemName::keyed("R", &name(key)).unwrap();
    let parts = rota_docstore::ChangesParts {
        ctime: at,
        since: at,
        version: at.plus_ms(9),
        dtime: at.plus_ms(5),
        items: Vec::new(),
        unchanged: Some((0..16_000).map(named).collect()),
    };
    Update::Changes(rota_docstore::Changes::from_parts(parts).unwrap())
}

#[test]
fn what_is_too_large_for_one_record_comes_in_several_that_clients_take_and_none_may_be_missing() {
    use document_export::Part as One;
    let (name, whole) = large("a", 7);
    for (update, count) in [(whole.clone(), 4), (many_names(), 2), (large("b", 2).1, 1)] {
        let part = One::Update(name.clone(), update);
        let records = part.records();
        assert_eq!(records.len(), count);
        assert!(records.iter().all(|it| it.encoded_len() <= UPDATES_BYTES_MAX), "{count}");
        let end = v1::DocumentRecord::from(&One::End { bodies: 0 });
        for missing in 0..records.len() {
            let mut order = document_export::Order::default();
            let rest = records.iter().enumerate().filter(|it| it.0 != missing).map(|it| it.1);
            let rest = rest.chain([&end]).map(|it| order.take(it.clone()));
            assert!(rest.collect::<Result<Vec<_>, _>>().is_err(), "record {missing} of {count}");
        }
        let mut order = document_export::Order::default();
        let parts: Result<Vec<_>, _> = records.iter().map(|it| order.take(sent(it))).collect();
        let parts = parts.unwrap();
        assert!(parts[..count - 1].iter().all(Option::is_none));
        assert_eq!(parts[count - 1], Some(part));
    }
    let Update::Full(document) = whole else { panic!("it is whole") };
    let part = Part::Document((*document).clone());
    let header = Part::Header(NamespaceState {
        name: Namespace::default_space(),
        description: rota_docstore::Description::default(),
        usage: Ok(rota_docstore::Usage::default()),
        version: None,
    });
    // An older export has it in one.
    for records in [part.records(), vec![(&part).into()]] {
        let mut order = Order::new();
        order.take((&header).into()).unwrap();
        let parts: Vec<_> = records.iter().map(|it| order.take(sent(it)).unwrap()).collect();
        assert_eq!(parts.last(), Some(&Some(part.clone())));
        assert_eq!(order.documents(), 1);
    }
}

#[test]
fn more_of_nothing_and_more_than_a_document_may_be_are_refused() {
    use v1::document_record::Record;
    let record = |record, more_count| v1::DocumentRecord { record: Some(record), more_count };
    let items = |(_, update): (DocName, Update)| {
        let Update::Full(document) = update else { panic!("not whole: {update:?}") };
        v1::Document::from(&*document).items
    };
    let more = v1::DocumentMore { items: items(large("a", 7)), unchanged: Vec::new() };
    let mut order = document_export::Order::default();
    let refused = order.take(record(Record::More(more.clone()), 0)).unwrap_err();
    assert_eq!(refused.problem, "is more of nothing");
    let end = Record::End(v1::document_record::End { bodies: 0 });
    let refused = document_export::Order::default().take(record(end, 1)).unwrap_err();
    assert_eq!(refused.problem, "has more_count, and is no update");
    let (name, update) = large("a", 1);
    let mut order = document_export::Order::default();
    order.take(record(Record::Update((&name, &update).into()), u32::MAX)).unwrap();
    let taken: Result<Vec<_>, _> =
        (0..9).map(|_| order.take(record(Record::More(more.clone()), 0))).collect();
    assert!(taken.unwrap_err().problem.starts_with("makes a document of more than"));
}

#[test]
fn a_document_that_breaks_the_rules_of_documents_is_refused_with_what_is_wrong() {
    let (name, _) = large("a", 1);
    let wire = v1::Document { name: Some((&name).into()), ctime: 9, ..Default::default() };
    assert_eq!(Document::try_from(wire.clone()).unwrap_err().field, "Document.ctime");
    let stamp = |ms| Stamp::MIN.plus_ms(ms).as_u64();
    let wire = v1::Document { ctime: stamp(5), version: stamp(9), dtime: stamp(3), ..wire };
    let error = Document::try_from(wire).unwrap_err().to_string();
    assert!(error.starts_with("Document has a wrong dtime of default/C/a is"), "{error}");
}

#[test]
fn exports_that_are_cut_or_mixed_up_are_refused_with_what_came() {
    let state = NamespaceState {
        name: Namespace::default_space(),
        description: rota_docstore::Description::default(),
        usage: Ok(rota_docstore::Usage::default()),
        version: None,
    };
    let header = || v1::NamespaceRecord::from(&Part::Header(state.clone()));
    let footer = |documents| v1::NamespaceRecord::from(&Part::Footer { documents, bodies: 0 });
    let refused = |records: Vec<v1::NamespaceRecord>| {
        let mut order = Order::new();
        let taken: Result<Vec<_>, _> = records.into_iter().map(|it| order.take(it)).collect();
        taken.unwrap_err().problem
    };
    assert_eq!(refused(vec![footer(0)]), "is not a header, which comes first");
    assert_eq!(refused(vec![header(), header()]), "is a second header");
    let expected = "says 1 documents and 0 bodies; 0 and 0 came";
    assert_eq!(refused(vec![header(), footer(1)]), expected);
    assert_eq!(refused(vec![header(), footer(0), footer(0)]), "comes after the footer");
    let mut old = header();
    if let Some(v1::namespace_record::Record::Header(header)) = &mut old.record {
        header.format = 3;
    }
    assert_eq!(refused(vec![old]), "is 3; this build reads 1 to 2");
    assert_eq!(DocumentCursor::default().after, None);
}

#[test]
fn a_watch_names_all_of_its_mistakes() {
    let request = v1::WatchDocumentsRequest {
        namespace: "a/b".into(),
        reader: "/".into(),
        docid: "\u{7}".into(),
        item: "Line".into(),
        position: vec![1, 2, 3].into(),
        ..Default::default()
    };
    let refused = watch::watch_documents(request).unwrap_err();
    let expected = ["namespace", "reader", "docid", "class", "class", "position"];
    assert_eq!(fields(&refused), expected, "{refused}");
    assert_eq!((refused.code(), refused.phase()), (&codes::INVALID, Phase::Before));
    let one = v1::WatchDocumentsRequest { docid: "a".into(), ..Default::default() };
    let refused = watch::watch_documents(one).unwrap_err();
    assert!(refused.to_string().contains("docid needs the class"), "{refused}");
}

#[test]
fn a_document_that_takes_more_than_an_answer_is_told_by_its_version() {
    let (name, Update::Full(document)) = large("a", 4) else { panic!("it is whole") };
    let (ctime, version) = (document.ctime(), document.version());
    let event = DocumentEvent { name, ctime, version, change: DocumentChange::Is(document) };
    let told = DocumentEvent::try_from(sent(&watch::told(&event))).unwrap();
    assert_eq!(told, DocumentEvent { change: DocumentChange::TooLarge, ..event });
    assert!(watch::told(&told).encoded_len() < 1_000);
}
