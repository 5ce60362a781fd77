//! How the embedded store's process starts, ends, and says no.

use crate::conformance::{
    PATIENCE, done, first_view, name, next_node, node_id, only_node, refusal,
};
use crate::process::{Ended, Folder, StoreProcess, command, run};
use rota_membership::{CasReply, ConfigStore, EmbeddedStore, StoreError};
use rota_model::NodeState;
use rota_ring::Change;
use rustix::process::Signal;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

fn refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn a_file_of_another_cluster_is_refused_with_what_to_do() {
    let folder = Folder::new();
    StoreProcess::start(&folder, &[]).await.end(Signal::TERM).await;
    let ended = run(command(&folder, &["--cluster", "other"])).await;
    refused(&ended, 1, &["belongs to cluster \"suite\"", "for \"other\"", "--cluster"]);
}

#[tokio::test]
async fn a_file_of_another_format_is_refused_with_what_to_do() {
    let folder = Folder::new();
    std::fs::write(folder.file(), "rota config store, format 2\nsomething").unwrap();
    let ended = run(command(&folder, &[])).await;
    refused(&ended, 1, &["format 2", "format 1", "--data"]);
}

#[tokio::test]
async fn two_processes_on_one_file_are_refused_and_the_first_goes_on() {
    let folder = Folder::new();
    let first = StoreProcess::start(&folder, &[]).await;
    let ended = run(command(&folder, &[])).await;
    refused(&ended, 1, &["in use", &format!("process {}", first.pid())]);
    done(first.client().cas(Change::view(first_view(name("suite")))).await);
    // The lock goes with the process, however it ends.
    first.kill().await;
    let next = StoreProcess::start(&folder, &[]).await;
    assert_eq!(next.client().read().await.unwrap().epoch().0, 1);
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let (folder, other) = (Folder::new(), Folder::new());
    let process = StoreProcess::start(&folder, &[]).await;
    let ended = run(command(&other, &["--listen", &process.address])).await;
    refused(&ended, 1, &[&process.address, "--listen"]);
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0, "nothing was made");
}

#[tokio::test]
async fn bad_flags_end_with_code_two_and_name_the_flag() {
    let folder = Folder::new();
    for (flags, words) in [
        (["--listen", "0.0.0.0:0"], ["--insecure-bind", "loopback"]),
        (["--listen", "nowhere"], ["--listen", "nowhere"]),
        (["--cluster", ""], ["--cluster", "must not be empty"]),
        (["--log", "a=b=c"], ["--log", "no filter"]),
    ] {
        refused(&run(command(&folder, &flags)).await, 2, &words);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[tokio::test]
async fn an_address_beyond_loopback_needs_the_flag_that_says_insecure() {
    let folder = Folder::new();
    let flags = ["--listen", "0.0.0.0:0", "--insecure-bind", "--log-format", "json"];
    let process = StoreProcess::start(&folder, &flags).await;
    let ended = process.end(Signal::INT).await;
    assert!(ended.status.success());
    for line in ended.stderr.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[tokio::test]
async fn a_clean_end_answers_pending_queries_and_gives_code_zero() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = Folder::new();
        let process = StoreProcess::start(&folder, &[]).await;
        let store = process.client();
        let state = done(store.cas(Change::view(first_view(name("suite")))).await);
        // A raw request: when its head is read, the query is surely waiting.
        let mut idle = TcpStream::connect(&process.address).await.unwrap();
        let mut waiting = TcpStream::connect(&process.address).await.unwrap();
        let query = format!("GET /v1/state?index={}&wait_ms=60000 HTTP/1.1\r\n", state.index);
        waiting.write_all(format!("{query}host: localhost\r\n\r\n").as_bytes()).await.unwrap();
        // Answered on a later connection, so the store has read what came before.
        store.read().await.unwrap();
        let pending = tokio::spawn(async move { store.next(state.index, PATIENCE).await });
        tokio::task::yield_now().await;
        let ended = process.end(signal).await;
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("\"epoch\":1"), "{answer}");
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
        // This one was answered or met a closed door, and never waits on.
        assert!(timeout(PATIENCE, pending).await.is_ok());
    }
}

async fn raw(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it answers").unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn requests_that_make_no_sense_get_a_code_and_a_line_that_names_the_mistake() {
    let folder = Folder::new();
    let process = StoreProcess::start(&folder, &[]).await;
    let end = "host: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n";
    for (request, code, words) in [
        (format!("POST /v1/cas HTTP/1.1\r\n{end}content-length: 2\r\n\r\n{{}}"), 400, "cluster"),
        (format!("POST /v1/cas HTTP/1.1\r\n{end}content-length: 3\r\n\r\nabc"), 400, "parse"),
        (format!("POST /v1/cas HTTP/1.1\r\n{end}content-length: 9999999\r\n\r\n"), 413, "4194304"),
        (format!("GET /v1/state?index=x HTTP/1.1\r\n{end}\r\n"), 400, "index"),
        (format!("GET /v1/state?indx=1 HTTP/1.1\r\n{end}\r\n"), 400, "indx"),
        (format!("GET /v1/other HTTP/1.1\r\n{end}\r\n"), 404, ""),
        (format!("DELETE /v1/state HTTP/1.1\r\n{end}\r\n"), 405, ""),
        (format!("GET /healthz HTTP/1.1\r\n{end}\r\n"), 200, "\"ok\":true"),
    ] {
        let answer = raw(&process.address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{request}: {answer}");
        assert!(answer.contains(words), "{request}: {answer}");
    }
    let chunk = "x".repeat(1 << 20);
    let mut chunked = format!("POST /v1/cas HTTP/1.1\r\n{end}transfer-encoding: chunked\r\n\r\n");
    for _ in 0..4 {
        chunked += &format!("100000\r\n{chunk}\r\n");
    }
    // One byte over the limit, and no more than the store reads.
    chunked += "1\r\nx\r\n0\r\n\r\n";
    let answer = raw(&process.address, &chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("4194304"), "{answer}");
}

#[tokio::test]
async fn a_client_of_another_cluster_is_refused_on_both_ways() {
    let folder = Folder::new();
    let process = StoreProcess::start(&folder, &[]).await;
    let stranger = EmbeddedStore::new(&process.address, name("other"), PATIENCE).unwrap();
    match stranger.read().await {
        Err(StoreError::Broken(text)) => assert!(text.contains("cluster \"suite\""), "{text}"),
        other => panic!("{other:?}"),
    }
    let change = Change::view(first_view(name("other")));
    let text = refusal(stranger.cas(change.clone()).await);
    assert!(text.contains("403") && text.contains("cluster"), "{text}");
    let text = refusal(process.client().cas(change).await);
    assert!(text.contains("view.cluster"), "{text}");
    assert_eq!(process.client().read().await.unwrap().index, 0);
}

#[tokio::test]
async fn a_store_that_hangs_is_a_timeout_and_its_late_write_may_still_happen() {
    let folder = Folder::new();
    let process = StoreProcess::start(&folder, &[]).await;
    let limit = Duration::from_millis(200);
    let hasty = EmbeddedStore::new(&process.address, name("suite"), limit).unwrap();
    let state = process.client().read().await.unwrap();
    process.signal(Signal::STOP);
    assert_eq!(hasty.read().await, Err(StoreError::Timeout(limit)));
    let change = only_node(next_node(&state, &node_id("n"), NodeState::Ready, 1));
    assert_eq!(hasty.cas(change).await, CasReply::Unknown(StoreError::Timeout(limit)));
    process.signal(Signal::CONT);
    // The request was sent whole and its connection was closed: written or not, never halfway.
    let now = process.client().read().await.unwrap();
    assert!(now.index <= 1 && now.nodes.len() as u64 == now.index, "{now:?}");
}
