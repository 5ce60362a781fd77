//! The whole cluster again, from its own data folder, after its ring had changed.

use rota_tests::sessions::{CALL, close, opened, read};
use rota_tests::small::{join, manager, ring};
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually, ringctl};
use serde_json::Value;
use std::fs;

/// A cluster of three with a fourth that has joined, its number, and a session that was closed.
async fn four(folder: &TestFolder) -> (Cluster, Launched, u64) {
    let cluster = Cluster::start(folder, &[]).await;
    let fourth = cluster.newcomer(folder, "m4").await;
    let contact = cluster.document.managers[0].grpc.clone();
    let joined = join(&fourth, "auto", &contact, &["--wait"]).await.json();
    opened(&cluster.client(), "a", "counter").await;
    cluster.client().close(close("a"), CALL).await.unwrap();
    (cluster, fourth, joined["number"].as_u64().unwrap())
}

/// Starts `ringctl dev` again in the same folder; the records are there. Gives the numbers of the
/// managers that it started and what it said.
async fn comes_back(folder: &TestFolder) -> (Vec<u32>, String) {
    let before = fs::read_to_string(folder.at("dev.log")).unwrap().len();
    let cluster = Cluster::start(folder, &[]).await;
    for client in cluster.clients() {
        assert_eq!(read(&client, "a").await.unwrap().class, "counter");
    }
    opened(&cluster.client(), "b", "counter").await;
    let numbers = cluster.document.managers.iter().map(|it| it.number).collect();
    cluster.end().await;
    let said = fs::read_to_string(folder.at("dev.log")).unwrap();
    (numbers, said[before..].to_owned())
}

async fn leaves(endpoint: &str, number: u64) {
    let number = number.to_string();
    ringctl(endpoint, &["leave", "--number", &number, "--wait", "-o", "json"]).await.json();
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_comes_back_although_a_manager_that_had_joined_does_not_run() {
    let folder = TestFolder::new();
    let (cluster, fourth, number) = four(&folder).await;
    fourth.kill().await;
    eventually("it is out", PATIENCE, async || {
        let ring = ring(&cluster.endpoints()).await?;
        if manager(&ring, number)["status"] == "DOWN" { Ok(()) } else { Err(ring.to_string()) }
    })
    .await;
    eventually("others hold what it held", PATIENCE, async || {
        let ring = ring(&cluster.endpoints()).await?;
        let parts = ring["partitions"].as_array().cloned().unwrap_or_default();
        let served = |part: &Value| {
            let copies = part["copies"].as_array().cloned().unwrap_or_default();
            copies.iter().filter(|it| it["in_sync"] == true).count() == 3
        };
        if parts.iter().all(served) { Ok(()) } else { Err(ring["partitions"].to_string()) }
    })
    .await;
    cluster.end().await;
    let (numbers, said) = comes_back(&folder).await;
    assert_eq!(numbers.len(), 3);
    assert!(said.contains(&format!("m4 ({number})")) && said.contains("Start each"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_comes_back_after_a_manager_has_joined_and_left() {
    let folder = TestFolder::new();
    let (cluster, fourth, number) = four(&folder).await;
    leaves(&cluster.document.managers[0].grpc, number).await;
    assert_eq!(fourth.ended().await, Some(0));
    cluster.end().await;
    let (numbers, said) = comes_back(&folder).await;
    assert!(numbers.len() == 3 && !said.contains("m4"), "{numbers:?}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_comes_back_without_its_own_manager_that_has_left() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "a", "counter").await;
    cluster.client().close(close("a"), CALL).await.unwrap();
    let all: Vec<u32> = cluster.document.managers.iter().map(|it| it.number).collect();
    leaves(&cluster.document.managers[0].grpc, all[1].into()).await;
    cluster.end().await;
    let (numbers, said) = comes_back(&folder).await;
    assert_eq!(numbers, [all[0], all[2]]);
    assert!(said.contains(&format!("m2 ({}) has left", all[1])), "{said}");
}
