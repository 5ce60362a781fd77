//! Namespaces: their life, exports, imports.

use crate::WAIT;
use crate::manager::start;
use crate::ring::{Add, Balance, Ring, State, digest};
use rota_client::documents::{Imported, RecordSource};
use rota_client::{CallError, Client, v1};
use rota_docstore::*;
use rota_proto::documents::export::Part;
use rota_proto::documents::request::{Create, Operate, Switch};
use std::collections::VecDeque;

struct Records(VecDeque<v1::NamespaceRecord>);

impl RecordSource for Records {
    async fn next(&mut self) -> Result<Option<v1::NamespaceRecord>, CallError> {
        Ok(self.0.pop_front())
    }
}

fn shop() -> Namespace {
    Namespace::parse("shop").unwrap()
}

fn create() -> Create {
    let description = Description { description: "a shop".to_owned(), ..Description::default() };
    Create { name: shop(), description }
}

async fn fill(ring: &Ring, client: &Client) {
    client.namespaces().create(&create(), WAIT).await.unwrap();
    for account in ["a", "b", "c"] {
        let add = Add { account: account.to_owned(), cents: 5, fails_late: false };
        let request = Request::new(shop(), "add").with(&add).unwrap();
        let operate = Operate { request, docid: account.to_owned() };
        client.documents().operate(&operate, WAIT).await.unwrap();
    }
    let State { store, now, bodies } = &mut *ring.state();
    let body = vec![9; 2_500];
    let attachment = Attachment::new("image/png", 2_500, digest(&body)).unwrap();
    bodies.insert(digest(&body), body.into());
    let name = DocName::new(&shop(), "Acc", "a").unwrap();
    let changed = store.change(&ring.rules, &shop(), *now, |transaction| {
        transaction.current(&name)?.attach("logo", attachment)
    });
    changed.unwrap();
}

async fn export(client: &Client) -> Result<Vec<v1::NamespaceRecord>, CallError> {
    let mut export = client.namespaces().export(&shop(), WAIT).await?;
    let mut records = Vec::new();
    while let Some((record, _)) = export.next().await? {
        records.push(record);
    }
    assert_eq!(export.so_far(), (3, 1));
    Ok(records)
}

#[tokio::test]
async fn a_namespace_is_created_switched_off_and_on_and_deleted_over_a_break() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let client = Client::connect(&manager.address).unwrap();
    let namespaces = client.namespaces();
    fill(&ring, &client).await;
    // Safe to repeat, and only that.
    let again = namespaces.create(&create(), WAIT).await.unwrap();
    let documents = again.usage.map(|it| it.documents);
    assert_eq!((documents, &*again.description.description), (Ok(3), "a shop"));
    let other = Create { description: Description::default(), ..create() };
    assert_eq!(namespaces.create(&other, WAIT).await.unwrap_err().reason(), "A-EXISTS");
    assert_eq!(namespaces.list(WAIT).await.unwrap().len(), 1);
    let another = Create { name: Namespace::parse("another").unwrap(), ..create() };
    namespaces.create(&another, WAIT).await.unwrap();
    // This manager tells one at a time.
    let listed = namespaces.list(WAIT).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["another", "shop"]);
    let refused = namespaces.delete(&shop(), WAIT, |_| {}).await.unwrap_err();
    assert_eq!(refused.reason(), "A-ON");
    let off = Switch { name: shop(), off: Some("moving".to_owned()) };
    let state = namespaces.switch(&off, WAIT).await.unwrap();
    assert_eq!(state.description.off.as_deref(), Some("moving"));
    let mut told = Vec::new();
    let deleted = namespaces.delete(&shop(), WAIT, |so_far| told.push(so_far)).await.unwrap();
    assert_eq!((deleted, told), (3, vec![1, 2, 3, 3]));
    let gone = namespaces.get(&shop(), WAIT).await.unwrap_err();
    assert_eq!(gone.reason(), "N-NAMESPACE");
}

#[tokio::test]
async fn an_export_is_imported_elsewhere_and_a_second_time_changes_nothing() {
    let (ring, other) = (Ring::new(), Ring::new());
    let (manager, there) = (start(&ring).await, start(&other).await);
    let client = Client::connect(&manager.address).unwrap();
    fill(&ring, &client).await;
    let records = export(&client).await.unwrap();
    let mut header = rota_proto::documents::export::Order::new();
    assert!(matches!(header.take(records[0].clone()), Ok(Some(Part::Header(_)))));
    let client = Client::connect(&there.address).unwrap();
    let into = Namespace::parse("copy").unwrap();
    for expected in [(3, 0), (0, 3)] {
        let mut source = Records(records.clone().into());
        let done = client.namespaces().import(Some(&into), &mut source, WAIT).await.unwrap();
        let (documents, kept) = expected;
        assert_eq!(done, Imported { documents, kept, bodies: 1 });
    }
    let state = other.state();
    let name = DocName::new(&into, "Acc", "a").unwrap();
    let copy = state.store.peek(&name).unwrap();
    assert_eq!(copy.one::<Balance>().unwrap().unwrap().cents, 5);
    let (_, attachment) = copy.attachments().next().unwrap();
    assert_eq!(state.bodies[&attachment.sha256()].len(), 2_500);
}

#[tokio::test]
async fn an_export_that_breaks_off_is_never_taken_for_whole() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let client = Client::connect(&manager.address).unwrap();
    fill(&ring, &client).await;
    let records = export(&client).await.unwrap();
    for count in 1..records.len() {
        *manager.script.breaks_after.lock().unwrap() = Some(count);
        assert!(export(&client).await.is_err(), "{count}");
        let mut source = Records(records[..count].to_vec().into());
        let refused = client.namespaces().import(None, &mut source, WAIT).await.unwrap_err();
        assert_eq!(refused.reason(), "INVALID_ARGUMENT", "{count}");
    }
}

#[tokio::test]
async fn every_change_carries_the_administrators_key_and_nobody_prints_it() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    *manager.script.admin_key.lock().unwrap() = Some("k7secret");
    let client = Client::connect(&manager.address).unwrap();
    let refused = client.namespaces().create(&create(), WAIT).await.unwrap_err();
    assert_eq!(refused.reason(), "S-REFUSED");
    let namespaces = client.namespaces().with_admin_key("k7secret").unwrap();
    assert!(!format!("{namespaces:?}").contains("k7secret"));
    namespaces.create(&create(), WAIT).await.unwrap();
    let mut export = namespaces.export(&shop(), WAIT).await.unwrap();
    let mut records = VecDeque::new();
    while let Some((record, _)) = export.next().await.unwrap() {
        records.push_back(record);
    }
    namespaces.import(None, &mut Records(records), WAIT).await.unwrap();
    let off = Switch { name: shop(), off: Some(String::new()) };
    namespaces.switch(&off, WAIT).await.unwrap();
    assert_eq!(namespaces.delete(&shop(), WAIT, |_| {}).await.unwrap(), 0);
    let wrong = client.namespaces().with_admin_key("a\nb").unwrap_err();
    assert_eq!(wrong.field, "admin_key");
}
