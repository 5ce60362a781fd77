//! Watches of documents, by the client and by `ringctl`, and copies that keep themselves in step.

use crate::documents::now;
use rota_client::documents::watch::{DocumentChange, DocumentEvent};
use rota_client::{
    CachedDocument, CachedDocumentOptions, Client, DocumentCopy, DocumentWatch, WatchOptions, v1,
};
use rota_docstore::{Caller, DocName, Namespace, Request, SyncRequest, Update};
use rota_model::RequestId;
use rota_proto::documents::request::{Operate, Sync};
use rota_ring::{View, slot_of_document};
use rota_tests::sessions::CALL;
use rota_tests::{Cluster, Following, PATIENCE, TestFolder, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// Version, and whether the document lives, by docid.
type Known = BTreeMap<String, (u64, bool)>;

fn shop() -> Namespace {
    Namespace::parse("shop").unwrap()
}

fn name(docid: &str) -> DocName {
    DocName::new(&shop(), "Cart", docid).unwrap()
}

async fn operate(client: &Client, docid: &str, change: Value) -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let request = Request::new(shop(), "document.write");
    let mut request = request.with(&json!({"changes": [change]})).unwrap();
    // By these a repetition is known, however often it is sent.
    let id = format!("request {}", COUNT.fetch_add(1, Ordering::Relaxed));
    request.operation_time = Some(now());
    request.request_id = RequestId::parse(&id).ok();
    let operate = Operate { request, docid: docid.to_owned() };
    let written = eventually("the document is written", PATIENCE, async || {
        client.documents().operate(&operate, CALL).await.map_err(|it| it.to_string())
    });
    written.await.version.as_u64()
}

async fn write(client: &Client, docid: &str, n: u64) -> u64 {
    let put = json!([{"class": "Ln", "key": "1", "json": {"n": n}}]);
    let change = json!({"class": "Cart", "docid": docid, "life": "ensure", "put": put});
    operate(client, docid, change).await
}

async fn end(client: &Client, docid: &str) -> u64 {
    let change = json!({"class": "Cart", "docid": docid, "life": "destroy"});
    operate(client, docid, change).await
}

fn carts() -> v1::WatchDocumentsRequest {
    v1::WatchDocumentsRequest {
        namespace: "shop".into(),
        class: "Cart".into(),
        ..Default::default()
    }
}

async fn next(watch: &mut DocumentWatch) -> v1::WatchDocumentsResponse {
    let answer = timeout(PATIENCE, watch.next()).await.expect("the watch goes on");
    answer.unwrap_or_else(|error| panic!("{error:?}"))
}

/// Follows until the watch has told this version; gives all that it told.
async fn until(watch: &mut DocumentWatch, docid: &str, version: u64) -> Vec<DocumentEvent> {
    let mut told = Vec::new();
    loop {
        let Some(event) = next(watch).await.event else { continue };
        let event = DocumentEvent::try_from(event).unwrap();
        let is_last = event.name.docid() == docid && event.version.as_u64() == version;
        told.push(event);
        if is_last {
            return told;
        }
    }
}

/// Follows until the watch has told all that there was.
async fn caught_up(watch: &mut Following) -> Vec<Value> {
    let mut lines = Vec::new();
    loop {
        let line = watch.json().await;
        let is_last = line["caught_up"] == true;
        lines.push(line);
        if is_last {
            return lines;
        }
    }
}

/// The next line of `ringctl` that tells of a document.
async fn next_event(watch: &mut Following) -> Value {
    loop {
        let line = watch.json().await;
        if !line["event"].is_null() {
            return line["event"].clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_documents_prints_a_line_a_change_and_ends_well_on_each_signal() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    for (turn, signal) in (1..).zip([Signal::INT, Signal::TERM]) {
        let mine = format!("mine {turn}");
        let target = format!("shop/Cart/{mine}");
        let one = ["document", "watch", &target, "-o", "json"];
        let mut one = Following::start(&cluster.endpoints(), &one);
        let filter = format!("docid = \"{mine}\"");
        let some = ["document", "watch", "shop/Cart", "--where", &filter, "--names-only"];
        let some = [&some[..], &["-o", "json"]].concat();
        let mut some = Following::start(&cluster.endpoints(), &some);
        for watch in [&mut one, &mut some] {
            let before = caught_up(watch).await;
            assert!(before.iter().all(|it| it["event"].is_null()), "{before:?}");
        }
        write(&client, "other", turn).await;
        let version = write(&client, &mine, 7).await;
        let event = next_event(&mut one).await;
        assert_eq!((&event["docid"], &event["news"]), (&json!(mine), &json!("is")));
        assert_eq!(event["version"], version);
        assert_eq!(event["document"]["items"][0]["json"], json!({"n": 7}));
        let ended = end(&client, &mine).await;
        let event = next_event(&mut one).await;
        assert_eq!((&event["news"], &event["version"]), (&json!("ended"), &json!(ended)));
        // Partitions may come in any order, those of one document do not.
        let mut told = Vec::new();
        while told.len() < 3 {
            let event = next_event(&mut some).await;
            told.push((event["docid"].clone(), event["news"].clone()));
        }
        assert!(told.contains(&(json!("other"), json!("left"))), "{told:?}");
        told.retain(|it| it.0 == json!(mine));
        let news: Vec<Value> = told.into_iter().map(|it| it.1).collect();
        assert_eq!(news, [json!("named"), json!("ended")]);
        for watch in [one, some] {
            let ended = watch.end(signal).await;
            assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{signal:?}");
        }
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_from_a_position_and_mistakes_are_told_by_their_fields() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let (client, managers) = (cluster.client(), cluster.clients());
    let version = write(&client, "a", 1).await;
    let mut first = managers[0].watch_documents(carts(), WatchOptions::default());
    let snapshot = until(&mut first, "a", version).await;
    assert!(matches!(snapshot[0].change, DocumentChange::Is(_)), "{snapshot:?}");
    while !next(&mut first).await.caught_up {}
    let position = first.position().to_vec();
    drop(first);
    let (changed, ended) = (write(&client, "a", 2).await, end(&client, "a").await);
    let request = v1::WatchDocumentsRequest { position: position.into(), ..carts() };
    let mut second = managers[1].watch_documents(request, WatchOptions::default());
    let told = until(&mut second, "a", ended).await;
    let versions: Vec<u64> = told.iter().map(|it| it.version.as_u64()).collect();
    assert_eq!(versions, [changed, ended]);
    assert_eq!(told[1].change, DocumentChange::Ended);
    for (mistake, field, text) in [
        (v1::WatchDocumentsRequest { filter: "docid =".into(), ..carts() }, "filter", "column"),
        (
            v1::WatchDocumentsRequest { position: vec![7; 40].into(), ..carts() },
            "position",
            "garbled",
        ),
        (
            v1::WatchDocumentsRequest { class: String::new(), docid: "a".into(), ..carts() },
            "class",
            "docid",
        ),
    ] {
        let mut watch = client.watch_documents(mistake, WatchOptions::default());
        let error = timeout(PATIENCE, watch.next()).await.unwrap().unwrap_err();
        assert_eq!((error.reason(), &*error.fields()[0].field), ("A-INVALID", field));
        assert!(error.fields()[0].problem.contains(text), "{error}");
    }
    let wrong = cluster.ringctl(&["document", "watch", "shop/Cart", "--where", "docid"]).await;
    assert!(wrong.code != 0 && wrong.stderr.contains("column"), "{wrong:?}");
    cluster.end().await;
}

/// Which manager of the cluster owns the slot of a document.
async fn owner_of(cluster: &Cluster, docid: &str) -> usize {
    let inspected = cluster.client().inspect(CALL).await.unwrap();
    let view = View::try_from(inspected.view.unwrap()).unwrap();
    let owner = view.owner_of(slot_of_document(&shop(), docid, view.m));
    let address = &view.managers[&owner].grpc;
    let managers = &cluster.document.managers;
    managers.iter().position(|it| it.grpc == *address).expect("it is one of them")
}

/// What `ringctl` told, until each of these was told in its newest version.
async fn known_by_ringctl(watch: &mut Following, newest: &Known) -> Known {
    let mut known = Known::new();
    while newest.iter().any(|(docid, it)| known.get(docid) != Some(it)) {
        let event = next_event(watch).await;
        let docid = event["docid"].as_str().unwrap().to_owned();
        let news = (event["version"].as_u64().unwrap(), event["news"] != "ended");
        let known = known.entry(docid).or_insert(news);
        *known = news.max(*known);
    }
    known
}

/// The same of a watch of the client.
async fn known_by_client(watch: &mut DocumentWatch, newest: &Known) -> Known {
    let mut known = Known::new();
    while newest.iter().any(|(docid, it)| known.get(docid) != Some(it)) {
        let Some(event) = next(watch).await.event else { continue };
        let event = DocumentEvent::try_from(event).unwrap();
        let news = (event.version.as_u64(), event.change != DocumentChange::Ended);
        let known = known.entry(event.name.docid().to_owned()).or_insert(news);
        *known = news.max(*known);
    }
    known
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_and_copies_of_documents_miss_nothing_when_the_owner_is_killed() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let line = ["document", "watch", "shop/Cart", "-o", "json"];
    let mut printed = Following::start(&cluster.endpoints(), &line);
    caught_up(&mut printed).await;
    let mut watch = client.watch_documents(carts(), WatchOptions::default());
    while !next(&mut watch).await.caught_up {}
    let options = CachedDocumentOptions {
        call_wait: Duration::from_secs(2),
        patience: Duration::from_secs(2),
        ..CachedDocumentOptions::default()
    };
    let mut cached = CachedDocument::open(&client, &name("cart 0"), options).await.unwrap();
    let mut newest = Known::new();
    for n in 0..60_u64 {
        let docid = format!("cart {}", n % 12);
        if n == 30 {
            // Its owner dies between two changes of it, and other documents are changed meanwhile.
            cluster.kill_manager(owner_of(&cluster, "cart 0").await).await;
        }
        let news = match newest.get(&docid) {
            Some((_, true)) if n % 5 == 4 => (end(&client, &docid).await, false),
            _ => (write(&client, &docid, n).await, true),
        };
        newest.insert(docid, news);
    }
    assert!(newest.values().any(|it| !it.1), "some have ended: {newest:?}");
    assert_eq!(known_by_client(&mut watch, &newest).await, newest);
    assert_eq!(known_by_ringctl(&mut printed, &newest).await, newest);
    let is_newest = |copy: &DocumentCopy| {
        let version = copy.version().map(|it| it.as_u64());
        version == Some(newest["cart 0"].0)
    };
    let copy = cached.wait_until(PATIENCE, is_newest).await.unwrap();
    let asked = vec![SyncRequest { name: name("cart 0"), held: None }];
    let (space, caller) = (shop(), Caller::default());
    let sync = Sync { space, documents: asked, stale_ok: false, caller };
    let (_, update) = client.documents().sync(&sync, CALL).await.unwrap().remove(0);
    match update {
        Update::Full(document) => assert!(copy.document().unwrap().says_the_same(&document)),
        Update::Deleted { .. } => assert!(copy.document().unwrap().is_deleted()),
        other @ (Update::Unchanged { .. }
        | Update::Changes(_)
        | Update::Absent { .. }
        | Update::SourceBehind { .. }) => panic!("{other:?}"),
    }
    let ended = printed.end(Signal::INT).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    cluster.end().await;
}
