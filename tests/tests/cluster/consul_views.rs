//! What Consul holds is not what the managers left there: it is of another ring, broken, or older. Nobody
//! follows it, operators are told, complete partitions serve, and all goes on when it is put back.

use crate::consul::{consul, health, http_of, until_reachable};
use rota_tests::sessions::{opened, read};
use rota_tests::small::{manager, ring};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually};
use serde_json::Value;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs `consul` at the cluster's agent, with this on its stdin.
async fn run(cluster: &Cluster, command: &[&str], input: &str) {
    let mut child = Command::new("consul")
        .args(command)
        .env("CONSUL_HTTP_ADDR", http_of(cluster))
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run deploy/install-consul");
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("in time");
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{command:?}: {ended:?}");
}

/// Overwrites what the cluster keeps in Consul, as somebody else would.
async fn overwrite(cluster: &Cluster, text: &str) {
    run(cluster, &["kv", "put", "rota/state", "-"], text).await;
}

/// These managers follow `epoch` still, and tell operators why they follow nothing else.
async fn nobody_follows(cluster: &Cluster, managers: &[usize], epoch: &Value, why: &str) {
    for manager in managers {
        until_reachable(cluster, *manager, false).await;
        let (_, health) = health(cluster, *manager).await.unwrap();
        assert_eq!((&health["claimed"], &health["epoch"]), (&true.into(), epoch), "{why}");
        let told = health["config_store"]["error"].as_str().unwrap_or_default();
        assert!(told.starts_with("the config store holds what cannot be used: "), "{health}");
        assert!(told.contains(why), "{why:?} is not in {health}");
        let contact = &cluster.document.managers[*manager].grpc;
        let shown = rota_tests::ringctl(contact, &["inspect", "-o", "json"]).await.json();
        let rows = shown["managers"].as_array().expect("it shows managers");
        let told =
            |it: &Value| it["config_store_error"].as_str().is_some_and(|it| it.contains(why));
        assert!(rows.iter().any(told), "{why:?} is not in {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_consul_should_not_hold_is_followed_by_nobody_and_told_to_operators() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--consul"]).await;
    let client = cluster.client();
    let life = opened(&client, "a", "counter").await.life;
    let own = consul(&cluster, "/v1/kv/rota/state?raw").await.unwrap();
    // Epochs and indexes grow, as if managers of some other mind had written it.
    let later = |by: u64, field: &str, value: Value| {
        let mut state = own.clone();
        state["view"]["epoch"] = (own["view"]["epoch"].as_u64().unwrap() + by).into();
        state["index"] = (own["index"].as_u64().unwrap() + by).into();
        state["view"][field] = value;
        state.to_string()
    };
    let same = own.to_string();
    // What is a whole state is the newest that was seen: what is put back after it must be newer.
    let newer = later(2, "r", own["view"]["r"].clone());
    let strange = [
        (later(1, "parts", serde_json::json!({})), "no partitions", &same),
        (later(1, "format", 99.into()), "format 99", &same),
        ("rubbish".to_owned(), "does not parse", &same),
        (later(1, "r", 1.into()), "another ring", &newer),
    ];
    for (text, why, put_back) in strange {
        overwrite(&cluster, &text).await;
        nobody_follows(&cluster, &[0, 1, 2], &own["view"]["epoch"], why).await;
        assert_eq!(read(&client, "a").await.unwrap().life, life, "complete partitions serve");
        overwrite(&cluster, put_back).await;
        for manager in 0..3 {
            until_reachable(&cluster, manager, true).await;
        }
    }
    opened(&client, "b", "counter").await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consul_that_was_restored_from_a_snapshot_is_followed_by_nobody_until_it_has_the_view_again()
 {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--consul"]).await;
    let client = cluster.client_of(0);
    let life = opened(&client, "a", "counter").await.life;
    let snapshot = folder.at("consul.snap");
    run(&cluster, &["snapshot", "save", &snapshot], "").await;
    cluster.kill_manager(1).await;
    let contact = cluster.document.managers[0].grpc.clone();
    eventually("the dead manager is out", PATIENCE, async || {
        let ring = ring(&contact).await?;
        let is_down = manager(&ring, 681)["status"] == "DOWN";
        if is_down { Ok(()) } else { Err(ring.to_string()) }
    })
    .await;
    assert_eq!(read(&client, "a").await.unwrap().life, life);
    let newest = consul(&cluster, "/v1/kv/rota/state?raw").await.unwrap();
    run(&cluster, &["snapshot", "restore", &snapshot], "").await;
    let restored = consul(&cluster, "/v1/kv/rota/state?raw").await.unwrap();
    let epoch = |state: &Value| state["view"]["epoch"].as_u64().unwrap();
    assert!(epoch(&restored) < epoch(&newest), "{restored} {newest}");
    nobody_follows(&cluster, &[0, 2], &newest["view"]["epoch"], "went back").await;
    assert_eq!(read(&client, "a").await.unwrap().life, life, "complete partitions serve");
    overwrite(&cluster, &newest.to_string()).await;
    for manager in [0, 2] {
        until_reachable(&cluster, manager, true).await;
    }
    opened(&client, "b", "counter").await;
    cluster.end().await;
}
