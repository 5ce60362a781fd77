//! Documents that are larger than what clients of gRPC take in one message, unless told otherwise.

use rota_client::docstore::{
    Caller, DocName, Document, Namespace, Request, SyncRequest, Update, apply,
};
use rota_client::documents::document_export::{Order, Part};
use rota_client::documents::request::{Operate, Sync};
use rota_client::{Client, v1};
use rota_proto::v1::documents_client::DocumentsClient;
use rota_proto::v1::namespaces_client::NamespacesClient;
use rota_tests::sessions::CALL;
use rota_tests::{Cluster, TestFolder};
use serde_json::json;
use std::sync::Arc;
use tonic::transport::{Channel, Endpoint};

/// Items of the document.
const ITEMS: usize = 9;

/// Characters of each.
const TEXT: usize = 700_000;

/// Bytes of each: a JSON text has quotes.
const ITEM_BYTES: usize = TEXT + 2;

fn space() -> Namespace {
    Namespace::parse("shop").unwrap()
}

fn name() -> DocName {
    DocName::new(&space(), "Film", "f").unwrap()
}

/// Writes one item: all of them together are larger than a request.
async fn put(client: &Client, key: usize, text: &str) {
    let put = json!([{"class": "R", "key": key.to_string(), "json": text.repeat(TEXT)}]);
    let change = json!({"class": "Film", "docid": "f", "life": "ensure", "put": put});
    let request = Request::new(space(), "document.write");
    let request = request.with(&json!({"changes": [change]})).unwrap();
    client.documents().operate(&Operate { request, docid: "f".to_owned() }, CALL).await.unwrap();
}

fn size(document: &Document) -> usize {
    let contents = document.items().iter().filter_map(|it| it.content());
    contents.map(|it| usize::try_from(it.volume()).unwrap()).sum()
}

async fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// What a client with the limits of the framework is told by Sync.
async fn told(channel: &Channel, of: &[&DocName]) -> Vec<v1::document_update::Update> {
    let sync = |name: &&DocName| v1::DocumentSync { name: Some((*name).into()), held: None };
    let documents = of.iter().map(sync).collect();
    let request = v1::SyncRequest { namespace: "shop".into(), documents, ..Default::default() };
    let answer = DocumentsClient::new(channel.clone()).sync(request).await.unwrap().into_inner();
    answer.updates.into_iter().map(|it| it.update.unwrap()).collect()
}

/// What it reads by an export.
async fn exported(channel: &Channel) -> (Update, usize) {
    let request = v1::ExportDocumentRequest {
        document: Some((&name()).into()),
        items_only: true,
        ..Default::default()
    };
    let mut client = DocumentsClient::new(channel.clone());
    let mut records = client.export_document(request).await.unwrap().into_inner();
    let (mut order, mut update, mut count) = (Order::default(), None, 0);
    while let Some(record) = records.message().await.unwrap() {
        count += 1;
        if let Some(Part::Update(_, its)) = order.take(record).unwrap() {
            update = Some(its);
        }
    }
    assert!(order.is_complete());
    (update.unwrap(), count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_of_6_mib_is_read_by_a_client_with_the_limits_that_frameworks_have() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    for key in 0..ITEMS {
        put(&client, key, "a").await;
    }
    let manager = channel(&cluster.document.managers[0].grpc).await;
    let small = DocName::new(&space(), "Film", "none").unwrap();
    let updates = told(&manager, &[&small, &name(), &small]).await;
    use v1::document_update::Update as Wire;
    let [Wire::AbsentAsOf(_), Wire::TooLarge(life), Wire::AbsentAsOf(_)] = &updates[..] else {
        panic!("{} updates: {:?}", updates.len(), updates.first())
    };
    let (update, records) = exported(&manager).await;
    let Update::Full(whole) = &update else { panic!("it is not whole") };
    assert_eq!((whole.version().as_u64(), whole.ctime().as_u64()), (life.version, life.ctime));
    assert_eq!(size(whole), ITEMS * ITEM_BYTES);
    assert_eq!(records, 4, "three of the document, and the end");
    by_our_client(&client, whole).await;
    by_commands(&cluster, &folder, whole, &manager).await;
    cluster.end().await;
}

async fn by_our_client(client: &Client, whole: &Arc<Document>) {
    let sync = |held| {
        let documents = vec![SyncRequest { name: name(), held }];
        Sync { space: space(), documents, stale_ok: true, caller: Caller::default() }
    };
    let updates = client.documents().sync(&sync(None), CALL).await.unwrap();
    assert_eq!(updates, [(name(), Update::Full(whole.clone()))]);
    // A difference that is too large for one answer.
    for key in 0..ITEMS {
        put(client, key, "b").await;
    }
    let held = Some(rota_client::docstore::Held::of(whole));
    let asked = Sync { stale_ok: false, ..sync(held) };
    let updates = client.documents().sync(&asked, CALL).await.unwrap();
    assert_eq!(updates[0].1.name(), "case 1");
    let after = apply(&name(), Some(whole), &updates[0].1).unwrap().unwrap();
    assert!(after.version() > whole.version());
    assert_eq!(size(&after), ITEMS * ITEM_BYTES);
}

async fn by_commands(cluster: &Cluster, folder: &TestFolder, whole: &Document, manager: &Channel) {
    let to = folder.at("film");
    let export = ["document", "export", "shop/Film/f", &to, "-o", "json"];
    assert!(cluster.ringctl(&export).await.json()["version"].as_u64() > Some(0));
    let shown = cluster.ringctl(&["document", "get", "shop/Film/f", "-o", "json"]).await.json();
    assert_eq!(shown["items"].as_array().unwrap().len(), whole.items().len());
    // A namespace takes its large documents along, in records that anybody takes.
    let file = folder.at("shop.export");
    cluster.ringctl(&["namespace", "create", "shop"]).await.expect_success();
    cluster.ringctl(&["namespace", "export", "shop", &file, "-o", "json"]).await.json();
    let import = ["namespace", "import", &file, "--into", "copy", "-o", "json"];
    let imported = cluster.ringctl(&import).await.json();
    // A busy owner is asked again, and finds it there already.
    let taken = imported["documents"].as_u64().unwrap() + imported["kept"].as_u64().unwrap();
    assert_eq!(taken, 1, "{imported}");
    let request = v1::ExportNamespaceRequest { name: "copy".into() };
    let mut client = NamespacesClient::new(manager.clone());
    let mut records = client.export_namespace(request).await.unwrap().into_inner();
    let mut order = rota_client::documents::export::Order::new();
    while let Some(record) = records.message().await.unwrap() {
        if let Some(rota_client::documents::export::Part::Document(document)) =
            order.take(record).unwrap()
        {
            assert_eq!(size(&document), ITEMS * ITEM_BYTES);
        }
    }
    assert_eq!((order.documents(), order.is_complete()), (1, true));
}
