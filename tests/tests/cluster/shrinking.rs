//! Pools that end nodes, and nodes that operators have replaced.

use rota_client::Client;
use rota_client::v1::{Reason, SessionState};
use rota_tests::processes::gone;
use rota_tests::sessions::{CALL, close, opened, read};
use rota_tests::small::{refused, ring};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, shipped_classes_and};
use serde_json::{Value, json};

async fn node(cluster: &Cluster, id: &str) -> Value {
    let ring = ring(&cluster.endpoints()).await.expect("a manager answers");
    let nodes = ring["nodes"].as_array().cloned().unwrap_or_default();
    nodes.into_iter().find(|it| it["id"] == id).unwrap_or_default()
}

/// Fills the node of the cluster, and opens one session more, for which a node is started. Gives both.
async fn overflowing(client: &Client) -> (String, String) {
    let first = opened(client, "s0", "counter").await.node_id;
    for number in 1..3 {
        let session = opened(client, &format!("s{number}"), "counter").await;
        if session.node_id != first {
            return (first, session.node_id);
        }
    }
    panic!("a node of two places took three sessions");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_empty_for_the_delay_ends_and_another_one_is_started_when_it_is_needed() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "2", "--max-nodes", "3"]).await;
    let client = cluster.client();
    let (first, second) = overflowing(&client).await;
    let started = cluster.started_nodes();
    assert_eq!(started.len(), 1);
    let set = ["pool", "set", "default", "--scale-in-delay", "1s"];
    cluster.ringctl(&set).await.expect_success();
    let shown = cluster.ringctl(&["pool", "show", "default"]).await.expect_success().stdout;
    assert!(shown.contains("after 1 s empty"), "{shown}");
    client.close(close("s2"), CALL).await.unwrap();
    gone("the node that was started ends", &started).await;
    let ended = eventually("it has left", PATIENCE, async || {
        let node = node(&cluster, &second).await;
        if node["state"] == "REMOVED" { Ok(node) } else { Err(node.to_string()) }
    })
    .await;
    assert_eq!((&ended["wish"], &ended["retires"]), (&json!("drained"), &json!(true)));
    let untouched = read(&client, "s0").await.unwrap();
    assert_eq!((untouched.state(), untouched.node_id), (SessionState::Ready, first));
    let next = opened(&client, "s2", "counter").await;
    assert_ne!(next.node_id, second);
    assert_eq!(cluster.started_nodes().len(), 1);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_replaced_by_another_one_that_comes_before_its_sessions_are_closed() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "2", "--max-nodes", "3"]).await;
    let client = cluster.client();
    let (_, second) = overflowing(&client).await;
    let before = cluster.started_nodes();
    let replace = ["node", "replace", &second, "--wait", "-o", "json"];
    let replaced = cluster.ringctl(&replace).await.json();
    let expected = (&json!(second), &json!("REMOVED"), &json!(true));
    assert_eq!((&replaced["node"], &replaced["state"], &replaced["changed"]), expected);
    gone("the node that was replaced ends", &before).await;
    let closed = read(&client, "s2").await.unwrap();
    assert_eq!((closed.state(), closed.reason()), (SessionState::Closed, Reason::Drained));
    // Its successor is there already.
    assert_eq!(cluster.started_nodes().len(), 1);
    let next = opened(&client, "s2", "counter").await;
    assert_ne!(next.node_id, second);
    assert_eq!(cluster.started_nodes().len(), 1);
    let gone = cluster.ringctl(&["node", "replace", &second, "-o", "json"]).await;
    refused(gone, &["INVALID_ARGUMENT", "is REMOVED"]);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_pool_without_a_provisioner_is_not_replaced() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let id = cluster.document.nodes[0].id.clone();
    let replaced = cluster.ringctl(&["node", "replace", &id, "-o", "json"]).await;
    refused(replaced, &["INVALID_ARGUMENT", "has no provisioner", "drain"]);
    assert_eq!(node(&cluster, &id).await["state"], "READY");
    cluster.end().await;
}

const MATCH: &str = r#"
name = "match"
kind = "machine"
states = ["plays"]
initial = "plays"
disturb = "never"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_for_sessions_that_are_never_disturbed_and_force_closes_them() {
    let folder = TestFolder::new();
    let idle = MATCH.replace("\"match\"", "\"idle\"");
    let classes = shipped_classes_and(&folder, &[("match", MATCH), ("idle", &idle)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let client = cluster.client();
    opened(&client, "final", "match").await;
    opened(&client, "other", "counter").await;
    let id = cluster.document.nodes[0].id.clone();
    cluster.ringctl(&["node", "drain", &id, "-o", "json"]).await.json();
    let drain = ["node", "drain", &id, "-o", "json"];
    let waits = eventually("only what is not to be disturbed is left", PATIENCE, async || {
        let drain = cluster.ringctl(&drain).await.json();
        if drain["sessions"] == 1 { Ok(drain) } else { Err(drain.to_string()) }
    })
    .await;
    assert_eq!((&waits["waits_for"], &waits["changed"]), (&json!(["match"]), &json!(false)));
    assert_eq!(read(&client, "final").await.unwrap().state(), SessionState::Ready);
    let text = cluster.ringctl(&["node", "drain", &id]).await.expect_success().stdout;
    assert!(text.contains(&format!("`ringctl node drain {id} --force` closes them")), "{text}");
    let forced = [&drain[..], &["--force", "--wait"]].concat();
    let forced = cluster.ringctl(&forced).await.json();
    assert_eq!((&forced["empty"], &forced["changed"]), (&json!(true), &json!(true)));
    let closed = read(&client, "final").await.unwrap();
    assert_eq!((closed.state(), closed.reason()), (SessionState::Closed, Reason::Drained));
    cluster.end().await;
}
