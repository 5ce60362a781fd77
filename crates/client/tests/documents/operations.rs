//! Operations, synchronisations, lists.

use crate::WAIT;
use crate::manager::{nowhere, start};
use crate::ring::{Add, Balance, Ring, account};
use rota_client::{CallError, Client, Options, v1};
use rota_docstore::*;
use rota_model::{Changed, Refusal, RefusalKind, Retry};
use rota_proto::documents::request::{Operate, PutBody, Sync};
use rota_proto::documents::status;
use rota_proto::refusal;
use std::sync::Arc;
use tonic::Status as Grpc;

fn add(account: &str, cents: i64) -> Operate {
    let add = Add { account: account.to_owned(), cents, fails_late: false };
    let request = Request::new(Namespace::default_space(), "add").with(&add).unwrap();
    Operate { request, docid: account.to_owned() }
}

fn with_operation_time(operate: Operate, ring: &Ring) -> Operate {
    let request = Request { operation_time: Some(ring.state().now), ..operate.request };
    Operate { request, ..operate }
}

fn balance(ring: &Ring, docid: &str) -> Option<i64> {
    let document = ring.state().store.peek(&account(docid)).cloned()?;
    document.one::<Balance>().unwrap().map(|it| it.cents)
}

#[tokio::test]
async fn an_operation_answers_and_brings_copies_up_to_date() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    let mut operate = add("a", 5);
    operate.request.syncs = vec![SyncRequest { name: account("a"), held: None }];
    let answer = documents.operate(&operate, WAIT).await.unwrap();
    let Body::Json(text) = &answer.body else { panic!("a balance is JSON") };
    assert_eq!(text.read::<Balance>().unwrap(), Balance { cents: 5 });
    let (name, update) = &answer.updates[0];
    let copy = apply(name, None, update).unwrap().unwrap();
    assert_eq!(
        (copy.version(), copy.one::<Balance>().unwrap().unwrap().cents),
        (answer.version, 5)
    );
    // Later ones are small.
    documents.operate(&add("a", 1), WAIT).await.unwrap();
    let held = Some(Held::of(&copy));
    let documents_asked = vec![SyncRequest { name: account("a"), held }];
    let space = Namespace::default_space();
    let sync =
        Sync { space, documents: documents_asked, stale_ok: false, caller: Caller::default() };
    let updates = documents.sync(&sync, WAIT).await.unwrap();
    assert_eq!(updates[0].1.name(), "case 1");
    let copy = apply(&account("a"), Some(&copy), &updates[0].1).unwrap().unwrap();
    assert_eq!(copy.one::<Balance>().unwrap().unwrap().cents, 6);
}

#[tokio::test]
async fn an_exception_comes_with_everything_and_is_not_repeated_unless_advised() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    let error = documents.operate(&add("a", -1), WAIT).await.unwrap_err();
    assert_eq!(
        (error.reason(), error.retry(), error.changed()),
        ("A-POOR", Retry::WhenChanged, Changed::No)
    );
    let exception = error.exception().unwrap().details();
    assert_eq!((exception.operation.as_str(), exception.attempts), ("add", 1));
    assert_eq!(manager.calls(), 1);
    // Every mistake of a request is named.
    let mut wrong = add("", 1);
    wrong.request.syncs = vec![];
    let error = documents.operate(&wrong, WAIT).await.unwrap_err();
    assert_eq!(error.fields()[0].field, "docid");
    // Contention is repeated after the advised pause.
    let contention = Exception::new(codes::CONTENTION, "a document changed").at(Phase::Validation);
    manager.script.refusals.lock().unwrap().push_back(status(&contention));
    documents.operate(&add("a", 5), WAIT).await.unwrap();
    assert_eq!((manager.calls(), balance(&ring, "a")), (4, Some(5)));
}

#[tokio::test]
async fn what_failed_after_the_commit_has_changed_and_is_not_sent_again() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    let late = Add { account: "a".to_owned(), cents: 7, fails_late: true };
    let request = Request::new(Namespace::default_space(), "add").with(&late).unwrap();
    let operate = Operate { request, docid: "a".to_owned() };
    let error = documents.operate(&operate, WAIT).await.unwrap_err();
    assert!(error.has_changed(), "{error:?}");
    assert_eq!((error.reason(), error.retry()), ("X-LATE", Retry::Never));
    assert_eq!((manager.calls(), balance(&ring, "a")), (1, Some(7)));
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_only_with_a_operation_time() {
    let ring = Ring::new();
    let (first, second) = (start(&ring).await, start(&ring).await);
    let endpoints = [&*first.address, &*second.address].join(",");
    let documents = Client::connect(&endpoints).unwrap().documents();
    let lose = || {
        first.script.lost_answers.lock().unwrap().push_back(Grpc::unavailable("reset"));
    };
    lose();
    let error = documents.operate(&add("a", 1), WAIT).await.unwrap_err();
    assert!(matches!(error, CallError::Broken { .. }), "{error:?}");
    assert_eq!(error.changed(), Changed::Unknown);
    assert_eq!((balance(&ring, "a"), second.calls()), (Some(1), 0));
    lose();
    let operate = with_operation_time(add("a", 1), &ring);
    documents.operate(&operate, WAIT).await.unwrap();
    assert_eq!((balance(&ring, "a"), second.calls()), (Some(2), 1));
    // The next attempt is refused: what is known of it is not known of the lost one.
    lose();
    let documents = Client::connect(&endpoints).unwrap().documents();
    let off = Exception::new(codes::OFF, "namespace default is off: back at noon");
    second.script.refusals.lock().unwrap().push_back(status(&off.at(Phase::Before)));
    let error =
        documents.operate(&with_operation_time(add("a", 1), &ring), WAIT).await.unwrap_err();
    assert_eq!((error.reason(), error.changed()), ("O-OFF", Changed::Unknown));
}

#[tokio::test]
async fn an_operation_that_nobody_has_got_goes_to_the_next_endpoint() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let endpoints = [&*nowhere().await, &*manager.address].join(",");
    let documents = Client::connect(&endpoints).unwrap().documents();
    documents.operate(&add("a", 1), WAIT).await.unwrap();
    // A manager that refused without having changed anything is left just as well.
    let moved = Refusal::new(RefusalKind::NotOwner, Retry::AtOwner(rota_model::Epoch(2)), "moved");
    manager.script.refusals.lock().unwrap().push_back(refusal::status(&moved));
    documents.operate(&add("a", 1), WAIT).await.unwrap();
    assert_eq!(balance(&ring, "a"), Some(2));
}

#[tokio::test]
async fn a_namespace_that_is_off_says_why_and_the_caller_hears_it_at_once() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    let off = Exception::new(codes::OFF, "namespace default is off: back at noon");
    manager.script.refusals.lock().unwrap().push_back(status(&off.at(Phase::Before)));
    let error = documents.operate(&add("a", 1), WAIT).await.unwrap_err();
    assert_eq!(error.to_string(), "namespace default is off: back at noon");
    assert_eq!((error.reason(), error.retry()), ("O-OFF", Retry::AfterMs(30_000)));
}

#[tokio::test]
async fn with_routing_calls_about_a_document_go_to_its_owner_directly() {
    let ring = Ring::new();
    let (entry, owner) = (start(&ring).await, start(&ring).await);
    let entry_of = |number: u32, address: &str| v1::ManagerEntry {
        number,
        grpc: address.to_owned(),
        ..Default::default()
    };
    *entry.script.view.lock().unwrap() = Some(v1::View {
        m: 1024,
        managers: vec![entry_of(1, &entry.address), entry_of(2, &owner.address)],
        parts: vec![v1::Part { number: 1, owner: 2, ..Default::default() }],
        ..Default::default()
    });
    let options = Options { route_by_view: true, ..Options::default() };
    let documents = Client::with_options(&entry.address, options).unwrap().documents();
    documents.operate(&add("a", 1), WAIT).await.unwrap();
    let wanted = vec![SyncRequest { name: account("a"), held: None }];
    let space = Namespace::default_space();
    let sync = Sync {
        space: space.clone(),
        documents: wanted,
        stale_ok: false,
        caller: Caller::default(),
    };
    documents.sync(&sync, WAIT).await.unwrap();
    let sha256 = crate::ring::digest(b"x");
    let caller = Caller::default();
    let put = PutBody { space, docid: "a".to_owned(), size: 1, sha256, caller };
    documents.put_body(&put, &mut std::io::Cursor::new(b"x"), WAIT).await.unwrap();
    assert_eq!((entry.calls(), owner.calls()), (0, 3));
}

/// A document of so many MiB: an answer has three at most.
fn put_large(ring: &Ring, docid: &str, count: usize) {
    let state = &mut *ring.state();
    let at = state.now;
    let item = |key: usize| {
        let name = ItemName::keyed("Raw", &key.to_string()).unwrap();
        Item::existing(name, at, at, Content::raw(vec![7; 1024 * 1024]).unwrap()).unwrap()
    };
    let parts = DocumentParts {
        name: account(docid),
        ctime: at,
        version: at,
        dtime: at,
        is_deleted: false,
        items: (0..count).map(item).collect(),
    };
    let document = Arc::new(Document::from_parts(parts).unwrap());
    state.store.set(&account(docid), Some(document));
}

#[tokio::test]
async fn updates_that_do_not_fit_into_one_answer_come_in_several() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    let names = ["a", "b", "c", "d", "e", "f"];
    for docid in names {
        put_large(&ring, docid, if docid == "d" { 7 } else { 2 });
    }
    let wanted = names.iter().map(|it| SyncRequest { name: account(it), held: None });
    let space = Namespace::default_space();
    let sync =
        Sync { space, documents: wanted.collect(), stale_ok: true, caller: Caller::default() };
    let updates = documents.sync(&sync, WAIT).await.unwrap();
    let came: Vec<&str> = updates.iter().map(|(name, _)| name.docid()).collect();
    assert_eq!(came, names);
    assert!(updates.iter().all(|(_, it)| it.name() == "full"));
    let Update::Full(largest) = &updates[3].1 else { panic!("it is whole") };
    assert_eq!(largest.items().len(), 7);
    // One for each that fits alone, and an export of the one that does not.
    assert_eq!(manager.calls(), 6);
}

#[tokio::test]
async fn a_list_goes_on_where_its_token_says() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    for docid in ["a", "b", "c"] {
        documents.operate(&add(docid, 1), WAIT).await.unwrap();
    }
    let mut request =
        v1::ListDocumentsRequest { class: "Acc".into(), page_size: 2, ..Default::default() };
    let page = documents.list(request.clone(), WAIT).await.unwrap();
    let ids = |page: &rota_client::documents::Listed| -> Vec<String> {
        page.documents.iter().map(|it| it.name.docid().to_owned()).collect()
    };
    assert_eq!(ids(&page), ["a", "b"]);
    request.page_token = page.next_page_token;
    let page = documents.list(request, WAIT).await.unwrap();
    assert_eq!((ids(&page), page.next_page_token), (vec!["c".to_owned()], String::new()));
}
