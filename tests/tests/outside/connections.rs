//! Connections that say nothing, and pages of others that ask.

use rota_tests::sessions::opened;
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, http_get};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn silent(address: &str, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await;
        all.push(stream.expect("a connection stands at once").expect("somebody listens"));
    }
    all
}

/// Waits until the other side has ended all of them.
async fn all_end(address: &str, streams: Vec<TcpStream>) {
    let count = streams.len();
    let ended = async {
        for mut stream in streams {
            // Whether it is closed or cut, nothing comes.
            stream.read_to_end(&mut Vec::new()).await.ok();
        }
    };
    let ended = timeout(PATIENCE, ended).await;
    ended.unwrap_or_else(|_| panic!("{address} keeps some of {count} silent connections"));
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_end_at_managers_and_nodes() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let manager = &cluster.document.managers[0];
    for address in [&manager.grpc, &cluster.document.nodes[0].address] {
        let mut streams = silent(address, 300).await;
        // Half of what HTTP/2 begins with is silence, too.
        streams[0].write_all(b"PRI * HTTP/2").await.unwrap();
        opened(&cluster.client(), "a", "counter").await;
        all_end(address, streams).await;
    }
    eventually("the manager counts those that it ended", PATIENCE, async || {
        let page = http_get(&manager.http, "/metrics").await?;
        let line = page.body.lines().find(|it| it.contains("reason=\"silent\"")).map(str::to_owned);
        let count = line.as_deref().and_then(|it| it.rsplit(' ').next()?.parse::<u64>().ok());
        if count.is_some_and(|it| it >= 300) { Ok(()) } else { Err(format!("{line:?}")) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_shut_the_config_store() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    let store = &cluster.document.config_store.address;
    let _kept = silent(store, 1_100).await;
    let answered = timeout(Duration::from_secs(5), http_get(store, "/healthz")).await;
    let page = answered.expect("it answers beside them").expect("it answers");
    assert_eq!(page.code, 200, "{page:?}");
    cluster.end().await;
}

/// The status of an answer to a request with these headers.
async fn asked(address: &str, line: &str, headers: &[&str], body: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (headers, length) = (headers.join("\r\n"), body.len());
    let text = format!(
        "{line} HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("it answers").expect("it answers");
    let text = String::from_utf8_lossy(&answer);
    let code = text.split_ascii_whitespace().nth(1).and_then(|it| it.parse().ok());
    code.unwrap_or_else(|| panic!("this is no HTTP: {text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_others_can_neither_read_nor_change_the_config_store() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    let store = &cluster.document.config_store.address;
    let state = http_get(store, "/v1/state").await.unwrap().body;
    let change = r#"{"cluster": "x", "change": {}}"#;
    let (own, json) = (format!("Host: {store}"), "Content-Type: application/json");
    let cas = "POST /v1/cas";
    let named = ["Host: evil.example", json];
    let foreign = [own.as_str(), "Origin: https://evil.example", json];
    let simple = [own.as_str(), "Content-Type: text/plain"];
    assert_eq!(asked(store, cas, &named, change).await, 421);
    assert_eq!(asked(store, cas, &foreign, change).await, 403);
    assert_eq!(asked(store, cas, &simple, change).await, 415);
    assert_eq!(asked(store, "GET /v1/state", &["Host: evil.example"], "").await, 421);
    assert_eq!(http_get(store, "/v1/state").await.unwrap().body, state);
    let pages = &cluster.document.managers[0].http;
    assert_eq!(asked(pages, "GET /healthz", &["Host: evil.example"], "").await, 421);
    assert_eq!(asked(pages, "GET /healthz", &["Host: localhost"], "").await, 200);
    cluster.end().await;
}
