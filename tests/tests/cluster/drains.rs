//! Nodes that operators cordon, drain, and let serve again.

use rota_client::{Client, v1};
use rota_tests::busy::Busy;
use rota_tests::processes::{gone, process};
use rota_tests::sessions::{CALL, close, opened, read};
use rota_tests::small::{refused, ring};
use rota_tests::{
    Cluster, Launched, PATIENCE, Ran, TestFolder, eventually, http_get, shipped_classes_and,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use v1::{Reason, SessionState};

/// Two nodes of a hundred places each, and no more.
const TWO: [&str; 6] = ["--nodes", "2", "--places", "100", "--max-nodes", "2"];

async fn at(cluster: &Cluster, command: &str, node: &str, more: &[&str]) -> Ran {
    cluster.ringctl(&[&["node", command, node, "-o", "json"], more].concat()).await
}

fn node(ring: &Value, id: &str) -> Value {
    let nodes = ring["nodes"].as_array().cloned().unwrap_or_default();
    nodes.into_iter().find(|it| it["id"] == id).unwrap_or_default()
}

/// Opens sessions of a class on one of the nodes, by cordoning the other meanwhile.
async fn fill(
    cluster: &Cluster,
    index: usize,
    prefix: &str,
    class: &str,
    count: usize,
) -> Vec<v1::Session> {
    let nodes = &cluster.document.nodes;
    let (wanted, other) = (&nodes[index].id, &nodes[1 - index].id);
    at(cluster, "cordon", other, &[]).await.json();
    let client = cluster.client();
    let mut sessions = Vec::new();
    for number in 0..count {
        let session = opened(&client, &format!("{prefix}{number}"), class).await;
        assert_eq!(&session.node_id, wanted, "the other one is cordoned");
        sessions.push(session);
    }
    at(cluster, "uncordon", other, &[]).await.json();
    sessions
}

async fn all_are_drained(client: &Client, sessions: &[v1::Session]) {
    for session in sessions {
        let now = read(client, &session.id).await.unwrap();
        assert_eq!((now.state(), now.reason()), (SessionState::Closed, Reason::Drained), "{now:?}");
        assert!(now.detail.contains(&session.node_id), "{now:?}");
    }
}

async fn all_run_on(client: &Client, sessions: &[v1::Session]) {
    for session in sessions {
        let now = read(client, &session.id).await.unwrap();
        assert_eq!((now.state(), &now.address), (SessionState::Ready, &session.address), "{now:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_becomes_empty_and_the_others_sessions_run_on() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &TWO).await;
    let client = cluster.client();
    let [first, second] = [0, 1].map(|it: usize| cluster.document.nodes[it].id.clone());
    let mut there = fill(&cluster, 0, "machine", "counter", 30).await;
    there.extend(fill(&cluster, 0, "program", "http", 3).await);
    let mut elsewhere = fill(&cluster, 1, "other", "counter", 5).await;
    elsewhere.extend(fill(&cluster, 1, "other program", "http", 1).await);
    let shown = at(&cluster, "show", &first, &[]).await.json();
    assert_eq!((&shown["id"], &shown["state"]), (&json!(first), &json!("READY")));
    let missing = at(&cluster, "show", "nobody", &[]).await.error();
    let text = format!("node nobody is not registered; nodes: {first}, {second}");
    assert_eq!((&missing["reason"], &missing["message"]), (&json!("FAILED"), &json!(text)));
    let drained = at(&cluster, "drain", &first, &["--wait"]).await.json();
    assert_eq!((&drained["empty"], &drained["state"]), (&true.into(), &"DRAINING".into()));
    assert_eq!((&drained["changed"], drained["node"].as_str()), (&true.into(), Some(&*first)));
    all_are_drained(&client, &there).await;
    for session in there.iter().filter(|it| it.class == "http") {
        assert!(http_get(&session.address, "/").await.is_err(), "{session:?}");
    }
    all_run_on(&client, &elsewhere).await;
    // What was there may be opened again, elsewhere.
    assert_eq!(opened(&client, "machine0", "counter").await.node_id, second);
    let again = at(&cluster, "drain", &first, &["--wait"]).await.json();
    assert_eq!((&again["empty"], &again["changed"]), (&true.into(), &false.into()));
    let shown = node(&ring(&cluster.endpoints()).await.unwrap(), &first);
    assert_eq!((&shown["wish"], &shown["sessions"]), (&"drained".into(), &0.into()), "{shown}");
    let told = cluster.ringctl(&["node", "drain", &first, "--wait"]).await.expect_success();
    assert!(told.stdout.contains("is empty") && told.stdout.contains("uncordon"), "{told:?}");
    let table = cluster.ringctl(&["inspect", "--no-drawing"]).await.expect_success().stdout;
    assert!(table.contains("DRAINING (empty)"), "{table}");
    let back = at(&cluster, "uncordon", &first, &[]).await.json();
    assert_eq!((&back["state"], &back["changed"]), (&"READY".into(), &true.into()));
    fill(&cluster, 0, "back", "counter", 1).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_goes_on_when_ringctl_and_an_owner_are_killed_in_the_middle() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &TWO).await;
    let there = fill(&cluster, 0, "machine", "counter", 60).await;
    let elsewhere = fill(&cluster, 1, "other", "counter", 5).await;
    let id = &cluster.document.nodes[0].id;
    let agent = process(cluster.document.nodes[0].pid).unwrap();
    // It ends nothing for a moment, so that everything is in the middle.
    agent.signal(Signal::STOP);
    let mut command = Command::new(rota_tests::binary("ringctl"));
    command.args(["node", "drain", id, "--wait"]).env("ROTA_ENDPOINT", cluster.endpoints());
    let mut ringctl = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let client = cluster.client_of(0);
    eventually("sessions are being closed", PATIENCE, async || {
        let filter =
            v1::Filter { states: vec![SessionState::Closing.into()], ..Default::default() };
        let closing = rota_tests::sessions::listed(&client, filter).await.len();
        if closing > 0 { Ok(()) } else { Err("none is".to_owned()) }
    })
    .await;
    ringctl.kill().await.unwrap();
    cluster.kill_manager(2).await;
    agent.signal(Signal::CONT);
    let endpoints = &cluster.document.managers[..2];
    let endpoints: Vec<&str> = endpoints.iter().map(|it| it.grpc.as_str()).collect();
    let endpoints = endpoints.join(",");
    eventually("the node is empty", PATIENCE, async || {
        let shown = ring(&endpoints).await?;
        let shown = node(&shown, id);
        if shown["sessions"] == 0 { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    let watched = ["node", "drain", id, "--wait", "--timeout", "60s", "-o", "json"];
    let watched = rota_tests::ringctl(&endpoints, &watched).await.json();
    assert_eq!((&watched["empty"], &watched["changed"]), (&true.into(), &false.into()));
    all_are_drained(&client, &there).await;
    all_run_on(&client, &elsewhere).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_may_end_by_themselves_until_the_deadline_and_what_hangs_is_killed_then() {
    let folder = TestFolder::new();
    let stubborn = r#"
name = "stubborn"
kind = "program"
argv = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]
ready = { line = "up" }
grace = "1s"
"#;
    let classes = shipped_classes_and(&folder, &[("stubborn", stubborn)]);
    let cluster = Cluster::start(&folder, &[&TWO[..], &["--classes", &classes]].concat()).await;
    let client = cluster.client();
    let there = fill(&cluster, 0, "machine", "counter", 4).await;
    let hangs = fill(&cluster, 0, "hangs", "stubborn", 1).await;
    let id = &cluster.document.nodes[0].id;
    eventually("who orders a drain is told what is left", PATIENCE, async || {
        let waits = at(&cluster, "drain", id, &["--wait-for-sessions"]).await.json();
        assert_eq!(waits["closes_at_ms"], Value::Null);
        let told = (&waits["sessions"], &waits["empty"]);
        if told == (&5.into(), &false.into()) { Ok(()) } else { Err(waits.to_string()) }
    })
    .await;
    all_run_on(&client, &there).await;
    let late = at(&cluster, "drain", id, &["--wait", "--timeout", "1s"]).await;
    let why = "node n1 has 5 sessions left; the time of --timeout is over, and the drain goes on";
    refused(late, &[&why.replace("n1", id)]);
    at(&cluster, "drain", id, &["--deadline", "4s"]).await.json();
    client.close(close(&there[0].id), CALL).await.unwrap();
    all_run_on(&client, &there[1..]).await;
    let drained = at(&cluster, "drain", id, &["--wait"]).await.json();
    assert_eq!((&drained["empty"], &drained["changed"]), (&true.into(), &false.into()));
    let by_client = read(&client, &there[0].id).await.unwrap();
    assert_eq!(by_client.reason(), Reason::ClosedByClient);
    all_are_drained(&client, &there[1..]).await;
    all_are_drained(&client, &hangs).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_outlives_the_agent_and_what_cannot_be_ordered_is_told_why() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--max-nodes", "1"]).await;
    let client = cluster.client();
    let id = &cluster.document.nodes[0].id;
    let running = opened(&client, "runs on", "counter").await;
    let cordoned = at(&cluster, "cordon", id, &[]).await.json();
    assert_eq!((&cordoned["state"], &cordoned["changed"]), (&"CORDONED".into(), &true.into()));
    let refusal = client.open(rota_tests::sessions::open("new", "counter"), Duration::from_secs(3));
    let refusal = refusal.await.unwrap_err();
    assert_eq!(refusal.reason(), "NO_CAPACITY", "{refusal:?}");
    assert!(
        refusal.to_string().contains("is cordoned or drained (ringctl node uncordon"),
        "{refusal}"
    );
    all_run_on(&client, std::slice::from_ref(&running)).await;
    let victim = process(cluster.document.nodes[0].pid).unwrap();
    victim.signal(Signal::KILL);
    gone("the agent is gone", std::slice::from_ref(&victim)).await;
    let agent = Launched::again(&folder, "n1-again", &victim.line).await;
    eventually("the next agent is known", PATIENCE, async || {
        let shown = node(&ring(&cluster.endpoints()).await?, id);
        if shown["state"] == "CORDONED" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    all_run_on(&client, &[running]).await;
    let shown = node(&ring(&cluster.endpoints()).await.unwrap(), id);
    assert_eq!(shown["state"], "CORDONED", "{shown}");
    refused(at(&cluster, "drain", "nobody", &[]).await, &["node nobody is not registered", id]);
    refused(at(&cluster, "drain", "", &[]).await, &["node"]);
    assert_eq!(agent.end().await, Some(0));
    let gone = "nothing runs there";
    eventually("the node signs off", PATIENCE, async || {
        let shown = node(&ring(&cluster.endpoints()).await?, id);
        if shown["state"] == "REMOVED" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    refused(at(&cluster, "cordon", id, &[]).await, &["is REMOVED", gone]);
    let back = at(&cluster, "uncordon", id, &[]).await.json();
    assert_eq!((&back["state"], &back["changed"]), (&"REMOVED".into(), &true.into()));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_drained_in_turn_under_load_and_no_call_fails() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--places", "100000"]).await;
    let busy = Busy::with_losses(&cluster, "counter", 4);
    busy.more(50).await;
    for node in &cluster.document.nodes {
        let drained = at(&cluster, "drain", &node.id, &["--wait"]).await.json();
        assert_eq!(drained["empty"], true);
        busy.more(50).await;
        at(&cluster, "uncordon", &node.id, &[]).await.json();
    }
    busy.stop().await;
    cluster.end().await;
}
