//! Lists of the whole ring.

use rota_client::{Client, v1};
use rota_tests::sessions::{CALL, close, listed, opened};
use rota_tests::{Cluster, TestFolder};
use std::collections::BTreeSet;
use v1::SessionState;

async fn page(client: &Client, size: u32, token: &str) -> v1::ListResponse {
    let request =
        v1::ListRequest { page_size: size, page_token: token.to_owned(), ..Default::default() };
    client.list(request, CALL).await.unwrap_or_else(|error| panic!("{error:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_through_different_managers_show_every_session_once() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let ids: BTreeSet<String> = (0..50).map(|it| format!("s{it:02}")).collect();
    for id in &ids {
        opened(&client, id, "builtin").await;
    }
    let managers = cluster.clients();
    for size in [1, 7, 50, 1000] {
        let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let answer = page(&managers[pages % 3], size, &token).await;
            assert!(answer.sessions.len() <= size as usize);
            seen.extend(answer.sessions.into_iter().map(|it| it.id));
            token = answer.next_page_token;
            pages += 1;
            assert!(pages <= 60, "the pages come to an end");
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen.len(), ids.len(), "pages of {size}: no miss, no double");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), ids);
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_owners_need_not_confirm_says_that_it_is_stale() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "a", "builtin").await;
    for client in cluster.clients() {
        for stale_ok in [false, true] {
            let request = v1::ListRequest { stale_ok, ..Default::default() };
            let answer = client.list(request, CALL).await.unwrap();
            assert_eq!((answer.stale, answer.sessions.len()), (stale_ok, 1));
        }
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_what_every_condition_allows() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2"]).await;
    let client = cluster.client();
    for id in ["a", "b", "c", "d"] {
        opened(&client, id, "builtin").await;
    }
    opened(&client, "e", "counter").await;
    client.close(close("d"), CALL).await.unwrap();
    let count = async |filter| listed(&client, filter).await.len();
    let ready = SessionState::Ready.into();
    let closed = SessionState::Closed.into();
    let class = |class: &str| v1::Filter { class: class.to_owned(), ..Default::default() };
    assert_eq!(count(v1::Filter::default()).await, 5);
    assert_eq!(count(class("builtin")).await, 4);
    assert_eq!(count(v1::Filter { states: vec![ready], ..class("builtin") }).await, 3);
    assert_eq!(count(v1::Filter { states: vec![ready, closed], ..class("builtin") }).await, 4);
    assert_eq!(count(v1::Filter { states: vec![closed], ..class("counter") }).await, 0);
    let on = |node: &str| v1::Filter { node_id: node.to_owned(), ..Default::default() };
    assert_eq!(count(on("n1")).await + count(on("n2")).await, 5);
    assert_eq!(count(on("n3")).await, 0);
    let json = ["session", "list", "--state", "ready", "--class", "builtin", "-o", "json"];
    let shown = cluster.ringctl(&json).await.json();
    let shown = shown["sessions"].as_array().or(shown.as_array()).map(Vec::len);
    assert_eq!(shown, Some(3));
    cluster.end().await;
}
