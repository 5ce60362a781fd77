//! Answers that their clients do not read.

use rota_client::docstore::{DocName, Namespace, Request};
use rota_client::documents::request::Operate;
use rota_client::v1;
use rota_proto::v1::documents_client::DocumentsClient;
use rota_tests::sessions::{CALL, opened};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, http_get};
use serde_json::json;
use tokio::task::JoinSet;

use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};
use tonic_prost::ProstCodec;

/// Calls on one connection.
const CALLS: usize = 600;

/// Bytes of each answer.
const ANSWER_BYTES: usize = 450_000;

/// What a manager may grow by meanwhile, in KiB: far below the 264,000 of all answers. A connection has 8 MiB.
const GROWTH_KIB_MAX: u64 = 80_000;

fn name() -> DocName {
    DocName::new(&Namespace::default_space(), "Film", "f").unwrap()
}

/// A connection whose answers stay in its window: 64 KiB of each, and of all together.
async fn narrow(address: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let narrow = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    narrow.connect().await.unwrap()
}

fn sync() -> v1::SyncRequest {
    let documents = vec![v1::DocumentSync { name: Some((&name()).into()), held: None }];
    v1::SyncRequest { documents, ..Default::default() }
}

/// Asks, and reads nothing of the answer.
async fn ask(channel: Channel) -> Result<Streaming<v1::SyncResponse>, tonic::Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|it| tonic::Status::unavailable(it.to_string()))?;
    let path = PathAndQuery::from_static("/rota.v1.Documents/Sync");
    let codec = ProstCodec::<v1::SyncRequest, v1::SyncResponse>::default();
    let answer = client.server_streaming(tonic::Request::new(sync()), path, codec).await?;
    Ok(answer.into_inner())
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A number of a manager's metrics.
async fn metric(http: &str, name: &str) -> Result<u64, String> {
    let page = http_get(http, "/metrics").await?;
    let line = page.body.lines().find(|it| it.starts_with(name)).ok_or("it is not there")?;
    line.rsplit(' ').next().unwrap_or_default().parse().map_err(|it| format!("{line}: {it}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_fill_no_memory_and_end_their_connection() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let put = json!([{"class": "R", "key": "1", "json": "a".repeat(ANSWER_BYTES)}]);
    let change = json!({"class": "Film", "docid": "f", "life": "ensure", "put": put});
    let request = Request::new(Namespace::default_space(), "document.write");
    let request = request.with(&json!({"changes": [change]})).unwrap();
    client.documents().operate(&Operate { request, docid: "f".to_owned() }, CALL).await.unwrap();
    let manager = &cluster.document.managers[0];
    let connection = narrow(&manager.grpc).await;
    let before = resident(manager.pid);
    let mut calls: JoinSet<_> = (0..CALLS).map(|_| ask(connection.clone())).collect();
    let mut kept = Vec::new();
    let (mut refused, mut growth) = (0, 0);
    eventually("the connection is ended", PATIENCE, async || {
        growth = growth.max(resident(manager.pid).saturating_sub(before));
        while let Some(answered) = calls.try_join_next() {
            match answered.unwrap() {
                Ok(unread) => kept.push(unread),
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                    refused += 1;
                }
            }
        }
        let ended = "rota_connections_ended_total{reason=\"unread\"}";
        let ended = metric(&manager.http, ended).await?;
        if ended > 0 { Ok(()) } else { Err(format!("{} answers stand", kept.len())) }
    })
    .await;
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB for {} answers that nobody reads", kept.len());
    assert!(refused > CALLS / 2, "{refused} of {CALLS} were refused, {} not", kept.len());
    // Whoever reads was served all the time, and is now: also by that manager.
    opened(&client, "a", "counter").await;
    let reader = Endpoint::from_shared(format!("http://{}", manager.grpc)).unwrap();
    let mut reader = DocumentsClient::new(reader.connect().await.unwrap());
    assert_eq!(reader.sync(sync()).await.unwrap().into_inner().updates.len(), 1);
    let held = metric(&manager.http, "rota_answers_bytes ").await.unwrap();
    assert!(held < 1_000_000, "{held} bytes are still counted");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_many_large_answers_at_once_gets_them_all() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    let client = cluster.client();
    let put = json!([{"class": "R", "key": "1", "json": "a".repeat(ANSWER_BYTES)}]);
    let change = json!({"class": "Film", "docid": "f", "life": "ensure", "put": put});
    let request = Request::new(Namespace::default_space(), "document.write");
    let request = request.with(&json!({"changes": [change]})).unwrap();
    client.documents().operate(&Operate { request, docid: "f".to_owned() }, CALL).await.unwrap();
    let connection = narrow(&cluster.document.managers[0].grpc).await;
    let read = |channel: Channel| async move {
        let answer = DocumentsClient::new(channel).sync(sync()).await?;
        Ok::<_, tonic::Status>(answer.into_inner().updates.len())
    };
    let mut calls: JoinSet<_> = (0..100).map(|_| read(connection.clone())).collect();
    while let Some(answered) = calls.join_next().await {
        assert_eq!(answered.unwrap().expect("it waits for the others"), 1);
    }
    cluster.end().await;
}
