//! Bodies of attachments.

use crate::WAIT;
use crate::manager::{Running, start};
use crate::ring::{Ring, digest};
use bytes::Bytes;
use rota_client::documents::BodyReader;
use rota_client::{CallError, Client};
use rota_docstore::Caller;
use rota_model::Namespace;
use rota_proto::documents::request::{GetBody, PutBody};
use std::io::Cursor;
use std::sync::atomic::Ordering;

/// A body of some pieces, the last one short.
fn body() -> Bytes {
    (0..1_000_001_u32).map(|it| it.to_le_bytes()[(it % 3) as usize]).collect::<Vec<u8>>().into()
}

fn put(body: &[u8]) -> PutBody {
    let (space, docid) = (Namespace::default_space(), "a".to_owned());
    let (size, caller) = (body.len() as u64, Caller::default());
    PutBody { space, docid, size, sha256: digest(body), caller }
}

fn get(body: &[u8], offset: u64) -> GetBody {
    let (space, docid) = (Namespace::default_space(), "a".to_owned());
    GetBody { space, docid, sha256: digest(body), offset, length: 0, caller: Caller::default() }
}

async fn whole(mut reader: BodyReader) -> Result<Vec<u8>, CallError> {
    let mut read = Vec::new();
    while let Some(piece) = reader.next().await? {
        read.extend_from_slice(&piece);
        assert_eq!(reader.offset(), read.len() as u64);
    }
    Ok(read)
}

fn two(first: &Running, second: &Running) -> Client {
    Client::connect(&[&*first.address, &*second.address].join(",")).unwrap()
}

#[tokio::test]
async fn a_body_is_stored_once_and_read_back_over_breaks() {
    let ring = Ring::new();
    let (first, second) = (start(&ring).await, start(&ring).await);
    let documents = two(&first, &second).documents();
    let body = body();
    *first.script.breaks_after.lock().unwrap() = Some(3);
    let mut source = Cursor::new(body.clone());
    assert!(!documents.put_body(&put(&body), &mut source, WAIT).await.unwrap());
    assert!(documents.put_body(&put(&body), &mut source, WAIT).await.unwrap());
    assert_eq!(ring.state().bodies[&digest(&body)], body);
    *second.script.breaks_after.lock().unwrap() = Some(2);
    let read = whole(documents.get_body(get(&body, 0), WAIT)).await.unwrap();
    assert_eq!(read, body);
    let part = GetBody { length: 700_000, ..get(&body, 1) };
    *second.script.breaks_after.lock().unwrap() = Some(1);
    let mut part = documents.get_body(part, WAIT);
    let mut read = Vec::new();
    while let Some(piece) = part.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert_eq!(read, body.slice(1..700_001));
    let mut rest = documents.get_body(get(&body, 1_000_000), WAIT);
    assert_eq!(rest.next().await.unwrap(), Some(body.slice(1_000_000..)));
    assert_eq!(rest.next().await.unwrap(), None);
    assert_eq!(rest.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_body_of_another_digest_is_refused_by_both_sides() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    let body = body();
    let wrong = PutBody { sha256: digest(b"another"), ..put(&body) };
    let refused = documents.put_body(&wrong, &mut Cursor::new(body.clone()), WAIT).await;
    assert_eq!(refused.unwrap_err().fields()[0].field, "sha256");
    documents.put_body(&put(&body), &mut Cursor::new(body.clone()), WAIT).await.unwrap();
    manager.script.alters.store(true, Ordering::SeqCst);
    let error = whole(documents.get_body(get(&body, 0), WAIT)).await.unwrap_err();
    assert!(matches!(error, CallError::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn an_empty_body_is_a_body_and_one_that_is_not_there_is_told_so() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    let error = whole(documents.get_body(get(b"", 0), WAIT)).await.unwrap_err();
    assert_eq!(error.reason(), "N-DOCUMENT");
    documents.put_body(&put(b""), &mut Cursor::new(Bytes::new()), WAIT).await.unwrap();
    assert_eq!(whole(documents.get_body(get(b"", 0), WAIT)).await.unwrap(), b"");
}

#[tokio::test]
async fn a_source_that_fails_ends_the_put_and_nothing_is_stored() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let documents = Client::connect(&manager.address).unwrap().documents();
    // A folder can be opened and not read.
    let folder = tempfile::tempdir().unwrap();
    let mut source = tokio::fs::File::open(folder.path()).await.unwrap();
    let error = documents.put_body(&put(b"x"), &mut source, WAIT).await.unwrap_err();
    assert!(matches!(error, CallError::Source(_)), "{error:?}");
    assert!(ring.state().bodies.is_empty());
}
