//! Documents with their attachments, exported as of one version, without what the receiver has.

use crate::bodies::{body, digest, put, space};
use crate::documents::now;
use rota_client::documents::document_export::Part;
use rota_client::documents::{DocumentExport, Documents};
use rota_docstore::{Caller, Digest, DocName, Held, Request, Update, apply};
use rota_proto::documents::request::{ExportDocument, Operate};
use rota_tests::sessions::CALL;
use rota_tests::{Cluster, TestFolder};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Puts a body, and makes it an attachment of the album.
async fn attach(documents: &Documents, key: &str, body: &[u8]) {
    put(documents, "album", body).await.unwrap();
    let sha256 = digest(body).to_string();
    let attachment = json!({"mime": "image/png", "size": body.len(), "sha256": sha256});
    let put = json!([{"class": "P", "key": key, "attachment": attachment}]);
    let change = json!({"class": "Album", "docid": "album", "life": "ensure", "put": put});
    let request = Request::new(space(), "document.write");
    let mut request = request.with(&json!({"changes": [change]})).unwrap();
    request.operation_time = Some(now());
    documents.operate(&Operate { request, docid: "album".to_owned() }, CALL).await.unwrap();
}

fn asked(held: Option<Held>, bodies: &[&[u8]]) -> ExportDocument {
    let name = DocName::new(&space(), "Album", "album").unwrap();
    let bodies = bodies.iter().map(|it| digest(it)).collect();
    let (space, caller) = (space(), Caller::default());
    ExportDocument { space, name, held, bodies, caller, items_only: false, stale_ok: false }
}

/// The rest of an export: the bodies that came, each as long as it was said to be.
async fn rest(mut export: DocumentExport) -> BTreeSet<Digest> {
    let (mut sizes, mut current) = (BTreeMap::new(), None);
    while let Some(part) = export.next().await.unwrap() {
        match part {
            Part::Update(..) => panic!("it comes first"),
            Part::Body(it) => {
                sizes.insert(it.sha256(), it.size());
                current = Some(it.sha256());
            }
            Part::Bytes(bytes) => *sizes.get_mut(&current.unwrap()).unwrap() -= bytes.len() as u64,
            Part::End { bodies } => assert_eq!(bodies, sizes.len() as u64),
        }
    }
    assert!(sizes.values().all(|left| *left == 0), "{sizes:?}");
    sizes.into_keys().collect()
}

async fn begun(documents: &Documents, asked: &ExportDocument) -> (Update, DocumentExport) {
    let mut export = documents.export(asked, CALL).await.unwrap();
    match export.next().await.unwrap() {
        Some(Part::Update(name, update)) if name == asked.name => (update, export),
        other => panic!("no update: {other:?}"),
    }
}

fn digests(bodies: &[&[u8]]) -> BTreeSet<Digest> {
    bodies.iter().map(|it| digest(it)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_exported_at_one_version_and_then_what_the_receiver_does_not_have() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let documents = cluster.client_of(0).documents();
    let other = cluster.client_of(1).documents();
    let (large, old, new) = (body(1, 6_000_000), body(2, 300_000), body(3, 1));
    attach(&documents, "a", &large).await;
    attach(&documents, "b", &old).await;
    // The document changes while its export is read: that goes on with what it had.
    let (update, export) = begun(&other, &asked(None, &[])).await;
    let Update::Full(first) = &update else { panic!("not whole: {update:?}") };
    attach(&documents, "b", &new).await;
    assert_eq!(rest(export).await, digests(&[&large, &old]));
    // The next one brings the difference.
    let has: [&[u8]; 2] = [&large, &old];
    let (update, export) = begun(&other, &asked(Some(Held::of(first)), &has)).await;
    assert_eq!(update.name(), "case 1");
    let second = apply(first.name(), Some(first), &update).unwrap().unwrap();
    let named: BTreeSet<Digest> = second.attachments().map(|(_, it)| it.sha256()).collect();
    assert_eq!(named, digests(&[&large, &new]));
    assert_eq!(rest(export).await, digests(&[&new]));
    let all: [&[u8]; 3] = [&large, &old, &new];
    let (update, export) = begun(&documents, &asked(Some(Held::of(&second)), &all)).await;
    assert_eq!((update.name(), rest(export).await), ("unchanged", BTreeSet::new()));
    into_a_folder(&cluster, &folder, &large, &new).await;
    cluster.end().await;
}

async fn into_a_folder(cluster: &Cluster, folder: &TestFolder, large: &[u8], new: &[u8]) {
    let to = folder.at("album");
    let command = ["document", "export", "default/Album/album", &to, "-o", "json"];
    let cut = std::path::Path::new(&to).join(digest(new).to_string());
    for (came, bytes, held) in [(2, large.len() + new.len(), 0), (0, 0, 2), (1, new.len(), 1)] {
        if came == 1 {
            std::fs::write(&cut, "something else").unwrap();
        }
        let done = cluster.ringctl(&command).await.json();
        assert_eq!(done["bodies"], came, "{done}");
        assert_eq!((&done["bytes"], &done["held"]), (&json!(bytes), &json!(held)));
    }
    for body in [large, new] {
        let file = std::path::Path::new(&to).join(digest(body).to_string());
        assert!(std::fs::read(file).unwrap() == body);
    }
    let text = std::fs::read(std::path::Path::new(&to).join("document.json")).unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&text).unwrap();
    // Beside them the document remembers operations.
    let items = shown["items"].as_array().unwrap().iter();
    let named: Vec<_> = items.filter(|it| it["class"] == "P").collect();
    let digests = named.iter().map(|it| it["attachment"]["sha256"].clone());
    assert_eq!(digests.collect::<Vec<_>>(), [large, new].map(|it| json!(digest(it).to_string())));
    let nowhere = folder.at("nowhere");
    let nobody = ["document", "export", "default/Album/none", &nowhere, "-o", "json"];
    let error = cluster.ringctl(&nobody).await.error();
    assert!(error["message"].as_str().unwrap().contains("does not exist"), "{error}");
    assert!(!std::path::Path::new(&nowhere).exists());
}
