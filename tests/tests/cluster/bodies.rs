//! Bodies of attachments: put through one manager, named through another, read through a third,
//! and never lost.

use crate::documents::now;
use rota_client::documents::{Documents, RecordSource};
use rota_client::{CallError, Client, v1};
use rota_docstore::space::Limits;
use rota_docstore::{Caller, Description, Digest, Namespace, Request};
use rota_model::{RefusalKind, Retry};
use rota_proto::documents::request::{Create, GetBody, Operate, PutBody};
use rota_proto::refusal::refusal;
use rota_proto::v1::documents_client::DocumentsClient;
use rota_tests::processes::process;
use rota_tests::sessions::{CALL, opened};
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::io::Cursor;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::transport::Endpoint;

pub fn space() -> Namespace {
    Namespace::default_space()
}

pub fn digest(body: &[u8]) -> Digest {
    Digest(Sha256::digest(body).into())
}

/// A body in which no piece is like another.
pub fn body(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn announced(docid: &str, body: &[u8]) -> PutBody {
    let (docid, size) = (docid.to_owned(), body.len() as u64);
    PutBody { space: space(), docid, size, sha256: digest(body), caller: Caller::default() }
}

pub async fn put(documents: &Documents, docid: &str, body: &[u8]) -> Result<bool, CallError> {
    documents.put_body(&announced(docid, body), &mut Cursor::new(body.to_vec()), CALL).await
}

/// Makes a body the attachment `a` of a document.
pub async fn attach(documents: &Documents, docid: &str, body: &[u8]) -> Result<(), CallError> {
    attach_in(documents, &space(), docid, body).await
}

async fn attach_in(
    documents: &Documents,
    space: &Namespace,
    docid: &str,
    body: &[u8],
) -> Result<(), CallError> {
    let (size, sha256) = (body.len(), digest(body).to_string());
    let attachment = json!({"mime": "image/png", "size": size, "sha256": sha256});
    let put = json!([{"class": "P", "key": "a", "attachment": attachment}]);
    let change = json!({"class": "Album", "docid": docid, "life": "ensure", "put": put});
    let request = Request::new(space.clone(), "document.write");
    let mut request = request.with(&json!({"changes": [change]})).unwrap();
    request.operation_time = Some(now());
    let operate = Operate { request, docid: docid.to_owned() };
    documents.operate(&operate, CALL).await.map(drop)
}

async fn read_from(
    documents: &Documents,
    docid: &str,
    sha256: Digest,
    offset: u64,
) -> Result<Vec<u8>, CallError> {
    pieces_of(documents, get_of(docid, sha256, offset)).await
}

fn get_of(docid: &str, sha256: Digest, offset: u64) -> GetBody {
    let caller = Caller::default();
    GetBody { space: space(), docid: docid.to_owned(), sha256, offset, length: 0, caller }
}

async fn pieces_of(documents: &Documents, get: GetBody) -> Result<Vec<u8>, CallError> {
    let mut reader = documents.get_body(get, CALL);
    let mut all = Vec::new();
    while let Some(piece) = reader.next().await? {
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

pub async fn read(documents: &Documents, docid: &str, body: &[u8]) -> Result<Vec<u8>, CallError> {
    read_from(documents, docid, digest(body), 0).await
}

/// Whether a document has that body as its attachment, by a confirmed read.
async fn names(documents: &Documents, docid: &str, body: &[u8]) -> bool {
    let reading = json!({"documents": [{"class": "Album", "docid": docid}]});
    let mut request = Request::new(space(), "document.read").with(&reading).unwrap();
    // Only what has a time of its caller's is asked again when the owner that was asked is gone.
    request.operation_time = Some(now());
    let operate = Operate { request, docid: docid.to_owned() };
    let answer = documents.operate(&operate, CALL).await.unwrap();
    format!("{:?}", answer.body).contains(&digest(body).to_string())
}

/// The manager that owns a document: that of the session of the same id.
async fn owner(cluster: &Cluster, docid: &str) -> usize {
    let owner = opened(&cluster.client(), docid, "counter").await.owner;
    cluster.document.managers.iter().position(|it| it.number == owner).unwrap()
}

/// Where a manager keeps bodies.
pub fn attachments_of(cluster: &Cluster, manager: usize) -> PathBuf {
    let pid = cluster.document.managers[manager].pid;
    let line = process(pid).map(|it| it.line).unwrap_or_default();
    let data = line.iter().position(|it| it == "--data").map(|at| PathBuf::from(&line[at + 1]));
    data.unwrap().join("attachments")
}

/// Files of bodies at a manager, whole ones and others.
fn files(cluster: &Cluster, manager: usize) -> Vec<String> {
    in_folder(&attachments_of(cluster, manager))
}

pub fn in_folder(folder: &std::path::Path) -> Vec<String> {
    let all = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
    let all = all.map(|it| it.into_string().unwrap());
    all.filter(|it| it != "OWNER" && it != "LOCK").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_was_put_through_one_manager_is_named_through_another_and_read_through_a_third()
{
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let clients: Vec<Documents> = cluster.clients().iter().map(Client::documents).collect();
    let body = body(1, 3_000_001);
    assert!(!put(&clients[0], "album", &body).await.unwrap());
    // Durable at every copy before it was answered.
    for manager in 0..3 {
        assert_eq!(files(&cluster, manager), [digest(&body).to_string()], "{manager}");
    }
    assert!(put(&clients[1], "album", &body).await.unwrap(), "it is known");
    attach(&clients[1], "album", &body).await.unwrap();
    for documents in &clients {
        assert!(names(documents, "album", &body).await);
        assert_eq!(read(documents, "album", &body).await.unwrap(), body);
        let rest = read_from(documents, "album", digest(&body), 2_999_990).await.unwrap();
        let part = GetBody { length: 1_500_000, ..get_of("album", digest(&body), 5) };
        let part = pieces_of(documents, part).await.unwrap();
        assert!(part == body[5..1_500_005], "{} bytes", part.len());
        assert_eq!(rest, body[2_999_990..]);
    }
    let beyond = read_from(&clients[0], "album", digest(&body), 3_000_002).await.unwrap_err();
    assert!(beyond.to_string().contains("offset"), "{beyond}");
    let none = read_from(&clients[0], "album", Digest([9; 32]), 0).await.unwrap_err();
    assert_eq!(none.reason(), "N-BODY", "{none:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_is_killed_right_after_its_answer_takes_no_body_with_it() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let (docid, body) = ("album", body(2, 400_000));
    let owner = owner(&cluster, docid).await;
    let documents = cluster.client_of(owner).documents();
    put(&documents, docid, &body).await.unwrap();
    attach(&documents, docid, &body).await.unwrap();
    cluster.kill_manager(owner).await;
    for manager in (0..3).filter(|it| *it != owner) {
        let documents = cluster.client_of(manager).documents();
        assert!(names(&documents, docid, &body).await);
        assert_eq!(read(&documents, docid, &body).await.unwrap(), body);
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_down_has_the_body_on_its_disk_before_it_counts_as_in_sync() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let (docid, body) = ("album", body(3, 2_000_000));
    let owner = owner(&cluster, docid).await;
    let away = (owner + 1) % 3;
    let line = process(cluster.document.managers[away].pid).unwrap().line;
    cluster.kill_manager(away).await;
    let documents = cluster.client_of(owner).documents();
    put(&documents, docid, &body).await.unwrap();
    attach(&documents, docid, &body).await.unwrap();
    let back = Launched::again(&folder, "manager-again", &line).await;
    cluster.every_copy_is_in_sync().await;
    let at = line.iter().position(|it| it == "--data").unwrap();
    let there = in_folder(&PathBuf::from(&line[at + 1]).join("attachments"));
    assert_eq!(there, [digest(&body).to_string()]);
    // The others die one after the other: it is the last that has it.
    cluster.kill_manager(owner).await;
    let last = cluster.client_of(away).documents();
    assert!(names(&last, docid, &body).await);
    cluster.kill_manager((owner + 2) % 3).await;
    assert!(names(&last, docid, &body).await);
    assert_eq!(read(&last, docid, &body).await.unwrap(), body);
    cluster.end_with(vec![back]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_what_was_announced_is_refused_by_field_and_leaves_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let documents = cluster.client().documents();
    let body = body(4, 300_000);
    let right = announced("album", &body);
    let wrong = [
        ("sha256", PutBody { sha256: Digest([1; 32]), ..right.clone() }),
        ("size", PutBody { size: 300_001, ..right.clone() }),
        ("size", PutBody { size: 299_999, ..right.clone() }),
        ("size", PutBody { size: 1 << 50, ..right.clone() }),
    ];
    for (field, put) in wrong {
        let mut source = Cursor::new(body.clone());
        let refused = documents.put_body(&put, &mut source, CALL).await.unwrap_err();
        let CallError::Raised { exception, .. } = &refused else { panic!("{refused:?}") };
        let fields: Vec<&str> =
            exception.details().fields.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, [field], "{refused:?}");
    }
    for manager in 0..3 {
        // Another copy may still notice that its sender has gone.
        eventually("nothing is left", PATIENCE, async || {
            let left = files(&cluster, manager);
            if left.is_empty() { Ok(()) } else { Err(format!("{manager} has {left:?}")) }
        })
        .await;
    }
    assert!(!put(&documents, "album", &body).await.unwrap());
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_names_an_unknown_body_is_refused_and_an_old_body_stays_readable() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let documents = cluster.client().documents();
    let (old, new) = (body(5, 100_000), body(6, 0));
    let unknown = attach(&documents, "album", &old).await.unwrap_err();
    assert_eq!(unknown.reason(), "N-BODY");
    let text = unknown.to_string();
    for part in [&digest(&old).to_string(), "body", "default/Album/album", "put it first"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    put(&documents, "album", &old).await.unwrap();
    attach(&documents, "album", &old).await.unwrap();
    let unknown = attach(&documents, "album", &new).await.unwrap_err();
    assert_eq!(unknown.reason(), "N-BODY");
    assert!(names(&documents, "album", &old).await);
    put(&documents, "album", &new).await.unwrap();
    attach(&documents, "album", &new).await.unwrap();
    assert!(names(&documents, "album", &new).await);
    for client in cluster.clients() {
        let documents = client.documents();
        assert_eq!(read(&documents, "album", &old).await.unwrap(), old);
        assert_eq!(read(&documents, "album", &new).await.unwrap(), new);
    }
    cluster.end().await;
}

/// Most memory that a process ever had, in KiB.
fn memory_max(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|it| it.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_streams_with_little_memory_also_through_a_manager_that_has_no_copy() {
    let folder = TestFolder::new();
    let more = ["--managers", "4", "--replicas", "1"];
    let cluster = Cluster::start(&folder, &more).await;
    let pids: Vec<u32> = cluster.document.managers.iter().map(|it| it.pid).collect();
    let body = body(7, 64 * 1024 * 1024);
    let before: Vec<u64> = pids.iter().map(|it| memory_max(*it)).collect();
    for (number, client) in cluster.clients().iter().enumerate() {
        // Each finds it known but the first.
        assert_eq!(put(&client.documents(), "album", &body).await.unwrap(), number > 0);
    }
    let with_files = |it: &usize| !files(&cluster, *it).is_empty();
    let holders: Vec<usize> = (0..4).filter(with_files).collect();
    assert_eq!(holders.len(), 2, "one replica beside the owner: {holders:?}");
    let away = (0..4).find(|it| !holders.contains(it)).unwrap();
    let documents = cluster.client_of(away).documents();
    attach(&documents, "album", &body).await.unwrap();
    assert!(read(&documents, "album", &body).await.unwrap() == body, "other bytes came back");
    for (pid, before) in pids.iter().zip(before) {
        let grown = memory_max(*pid).saturating_sub(before);
        assert!(grown < 48 * 1024, "manager {pid} grew by {grown} KiB for a body of 64 MiB");
    }
    cluster.end().await;
}

struct Records(VecDeque<v1::NamespaceRecord>);

impl RecordSource for Records {
    async fn next(&mut self) -> Result<Option<v1::NamespaceRecord>, CallError> {
        Ok(self.0.pop_front())
    }
}

fn shop(attachment_bytes: Option<u64>) -> Create {
    let limits = Limits { attachment_bytes, ..Limits::default() };
    let description = Description { limits, ..Description::default() };
    Create { name: Namespace::parse("shop").unwrap(), description }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_brings_its_bodies_into_another_cluster_and_v2_is_limited() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let documents = client.documents();
    let shop = shop(Some(700_000));
    client.namespaces().create(&shop, CALL).await.unwrap();
    let (one, other) = (body(8, 300_000), body(9, 300_001));
    for (docid, body) in [("{x}a", &one), ("{x}b", &other)] {
        let put = PutBody { space: shop.name.clone(), ..announced(docid, body) };
        documents.put_body(&put, &mut Cursor::new(body.clone()), CALL).await.unwrap();
        attach_in(&documents, &shop.name, docid, body).await.unwrap();
    }
    let mut export = client.namespaces().export(&shop.name, CALL).await.unwrap();
    let mut records = VecDeque::new();
    while let Some((record, _)) = export.next().await.unwrap() {
        records.push_back(record);
    }
    // Two documents, and two that remember who named the bodies.
    assert_eq!(export.so_far(), (4, 2));
    // A body counts as often as it is named. The limit holds from when an owner heard of it.
    let mut more = 0;
    eventually("the limit is refused", PATIENCE, async || {
        more += 1;
        match attach_in(&documents, &shop.name, &format!("{{x}}c{more}"), &one).await {
            Ok(()) => Err(format!("{more} more are taken")),
            Err(error) if error.reason() == "A-LIMIT" => Ok(()),
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    cluster.end().await;
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    client.namespaces().create(&shop, CALL).await.unwrap();
    for (taken, kept, bodies) in [(4, 0, 2), (0, 4, 0), (0, 4, 0)] {
        let mut source = Records(records.clone());
        let done = client.namespaces().import(None, &mut source, CALL).await.unwrap();
        assert_eq!((done.documents, done.kept, done.bodies), (taken, kept, bodies));
        // What it holds is the same, however often it came.
        let usage = client.namespaces().get(&shop.name, CALL).await.unwrap().usage;
        assert_eq!(usage.map(|it| (it.documents, it.attachment_bytes)), Ok((2, 600_001)));
    }
    let documents = cluster.client_of(1).documents();
    for (docid, body) in [("{x}a", &one), ("{x}b", &other)] {
        let get = GetBody {
            space: shop.name.clone(),
            docid: docid.to_owned(),
            sha256: digest(body),
            offset: 0,
            length: 0,
            caller: Caller::default(),
        };
        let mut reader = documents.get_body(get, CALL);
        let mut read = Vec::new();
        while let Some(piece) = reader.next().await.unwrap() {
            read.extend_from_slice(&piece);
        }
        assert!(read == *body);
    }
    let everywhere = (0..3).all(|it| files(&cluster, it).len() == 2);
    assert!(everywhere, "bodies are at every copy before the import has ended");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_whose_file_was_lost_is_fetched_from_another_copy() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let (docid, body) = ("album", body(10, 200_000));
    let documents = cluster.client_of(0).documents();
    put(&documents, docid, &body).await.unwrap();
    attach(&documents, docid, &body).await.unwrap();
    let line = process(cluster.document.managers[1].pid).unwrap().line;
    let at = line.iter().position(|it| it == "--data").unwrap();
    let attachments = PathBuf::from(&line[at + 1]).join("attachments");
    cluster.kill_manager(1).await;
    std::fs::remove_file(attachments.join(digest(&body).to_string())).unwrap();
    let back = Launched::again(&folder, "manager-again", &line).await;
    eventually("the body is there again", PATIENCE, async || {
        let there = in_folder(&attachments);
        if there == [digest(&body).to_string()] { Ok(()) } else { Err(format!("{there:?}")) }
    })
    .await;
    let documents = cluster.client_of(1).documents();
    assert_eq!(read(&documents, docid, &body).await.unwrap(), body);
    cluster.end_with(vec![back]).await;
}

/// The file of a body at a manager.
fn file_of(cluster: &Cluster, manager: usize, body: &[u8]) -> PathBuf {
    attachments_of(cluster, manager).join(digest(body).to_string())
}

/// Changes a byte of a body's file.
fn alter(file: &std::path::Path) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[70_000] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_whose_file_was_altered_is_read_from_another_copy_and_fetched_again() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let (docid, body) = ("album", body(12, 200_000));
    let documents = cluster.client_of(1).documents();
    put(&documents, docid, &body).await.unwrap();
    attach(&documents, docid, &body).await.unwrap();
    let altered: Vec<PathBuf> = (0..3).map(|it| file_of(&cluster, it, &body)).collect();
    let whole = std::fs::read(&altered[0]).unwrap();
    alter(&altered[1]);
    assert_eq!(read(&documents, docid, &body).await.unwrap(), body);
    eventually("the file is whole again", PATIENCE, async || {
        let is_whole = std::fs::read(&altered[1]).unwrap() == whole;
        if is_whole { Ok(()) } else { Err("it is still altered".to_owned()) }
    })
    .await;
    // When nobody has it, it is told which file is damaged; a new put mends them all.
    altered.iter().for_each(|it| alter(it));
    let (space, docid_of) = (space(), docid.to_owned());
    let (sha256, caller) = (digest(&body), Caller::default());
    let get = GetBody { space, docid: docid_of, sha256, offset: 0, length: 0, caller };
    let mut reader = documents.get_body(get, Duration::from_secs(4));
    let error = loop {
        match reader.next().await {
            Ok(piece) => assert!(piece.is_some(), "it is not whole"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.reason(), "X-DAMAGED", "{error:?}");
    let names_file = altered.iter().any(|it| error.to_string().contains(&*it.to_string_lossy()));
    assert!(names_file && error.to_string().contains("has changed between bytes"), "{error}");
    put(&documents, docid, &body).await.unwrap();
    assert_eq!(read(&documents, docid, &body).await.unwrap(), body);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_read_by_a_document_that_names_it_or_did_and_by_no_other() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let documents = cluster.client().documents();
    let (secret, later) = (b"secret".to_vec(), b"later".to_vec());
    put(&documents, "x", &secret).await.unwrap();
    assert_eq!(read(&documents, "anything", &secret).await.unwrap(), secret, "nobody names it");
    attach(&documents, "x", &secret).await.unwrap();
    for client in cluster.clients() {
        let documents = client.documents();
        assert_eq!(read(&documents, "x", &secret).await.unwrap(), secret);
        for other in ["anything", "y"] {
            let error = read(&documents, other, &secret).await.unwrap_err();
            assert_eq!(error.reason(), "N-BODY", "{error:?}");
        }
    }
    // The same content elsewhere is another document's, too; what x gave up it may still read.
    put(&documents, "y", &secret).await.unwrap();
    attach(&documents, "y", &secret).await.unwrap();
    put(&documents, "x", &later).await.unwrap();
    attach(&documents, "x", &later).await.unwrap();
    for client in cluster.clients() {
        let documents = client.documents();
        for docid in ["x", "y"] {
            assert_eq!(read(&documents, docid, &secret).await.unwrap(), secret, "{docid}");
        }
        let error = read(&documents, "anything", &secret).await.unwrap_err();
        assert_eq!(error.reason(), "N-BODY", "{error:?}");
    }
    cluster.end().await;
}

/// Uploads that a manager has place for.
const PLACES: usize = 64;

/// Announces a body to a manager, and brings nothing of it. Ends with what the client is told.
async fn announce_only(grpc: String, body: Vec<u8>) -> Status {
    let endpoint = Endpoint::from_shared(format!("http://{grpc}")).unwrap();
    let mut client = DocumentsClient::new(endpoint.connect().await.unwrap());
    let begin = v1::PutBodyRequest::from(&announced("album", &body));
    let nothing_more = tokio_stream::iter([begin]).chain(tokio_stream::pending());
    client.put_body(nothing_more).await.expect_err("it is not whole")
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_bring_nothing_keep_nobody_from_putting_a_body() {
    let folder = TestFolder::new();
    // The fourth manager has no copy of anything that the first two have: it passes bytes on.
    let more = ["--managers", "4", "--replicas", "1"];
    let cluster = Cluster::start(&folder, &more).await;
    let owner = owner(&cluster, "album").await;
    let away = (owner + 2) % 4;
    let mut idle = JoinSet::new();
    for number in 0..PLACES {
        let through = if number % 2 == 0 { owner } else { away };
        let grpc = cluster.document.managers[through].grpc.clone();
        idle.spawn(announce_only(grpc, body(100 + number as u64, 1_000)));
    }
    eventually("every place is taken", PATIENCE, async || {
        let taken = files(&cluster, owner).len();
        if taken == PLACES { Ok(()) } else { Err(format!("{taken} are taken")) }
    })
    .await;
    let (documents, body) = (cluster.client_of(owner).documents(), body(11, 300_000));
    let (put, mut source) = (announced("album", &body), Cursor::new(body.clone()));
    // Far less than an upload may be silent for when nobody else wants its place.
    let known = documents.put_body(&put, &mut source, Duration::from_secs(15)).await;
    assert!(!known.unwrap());
    let told = tokio::time::timeout(PATIENCE, idle.join_next()).await.unwrap().unwrap().unwrap();
    let told = refusal(&told);
    assert_eq!(told.kind, RefusalKind::Overloaded, "{told:?}");
    assert!(matches!(told.retry, Retry::AfterMs(_)), "{told:?}");
    assert!(told.message.contains("others wanted its place; begin again"), "{told:?}");
    assert_eq!(idle.len(), PLACES - 1, "the others keep theirs");
    idle.shutdown().await;
    cluster.end().await;
}
