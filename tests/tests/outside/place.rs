//! Where sessions go when a node is dead, and what is told of those that are on it.

use rota_client::{Client, v1};
use rota_tests::processes::{Process, gone, process};
use rota_tests::sessions::{CALL, get, open, opened, read};
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually, ringctl_in};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use v1::{Outcome, Reason, SessionState};

/// Far below the time after which a node is LOST, and far above what an open takes on a busy machine.
const SOON: Duration = Duration::from_secs(8);

/// Two nodes, some sessions that are all on one of them and that all managers have a part in, and that node's agent.
async fn fuller_and_idle(folder: &TestFolder) -> (Cluster, Client, Vec<v1::Session>, Process) {
    let cluster = Cluster::start(folder, &["--nodes", "2"]).await;
    let client = cluster.client();
    let mut sessions = Vec::new();
    let mut owners = BTreeSet::new();
    while sessions.len() < 6 || owners.len() < cluster.document.managers.len() {
        assert!(sessions.len() < 60, "only {owners:?} own any of these ids");
        let session = opened(&client, &format!("old-{}", sessions.len()), "counter").await;
        owners.insert(session.owner);
        sessions.push(session);
    }
    let node = &sessions[0].node_id;
    assert!(sessions.iter().all(|it| it.node_id == *node), "the most loaded one gets them");
    let known = cluster.document.nodes.iter().find(|it| it.id == *node).unwrap();
    let agent = process(known.pid).expect("the agent runs");
    (cluster, client, sessions, agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_of_a_new_id_goes_to_the_idle_node_when_the_fuller_one_refuses_connections() {
    let folder = TestFolder::new();
    let (cluster, client, sessions, agent) = fuller_and_idle(&folder).await;
    let dead = sessions[0].node_id.clone();
    agent.signal(Signal::KILL);
    // What a manager sent while the agent died may have arrived: that open waits for the end of the node.
    for session in &sessions {
        unreachable(&client, &session.id).await;
    }
    let mut opens = JoinSet::new();
    let mut beat = tokio::time::interval(Duration::from_millis(50));
    for number in 0..40 {
        beat.tick().await;
        let client = client.clone();
        opens.spawn(async move {
            let began = Instant::now();
            let answer = client.open(open(&format!("new-{number}"), "counter"), CALL).await;
            (began.elapsed(), answer.unwrap())
        });
    }
    while let Some(opened) = opens.join_next().await {
        let (took, answer) = opened.unwrap();
        let session = answer.session.clone().unwrap();
        assert_eq!((answer.outcome(), session.state()), (Outcome::Created, SessionState::Ready));
        assert_ne!(session.node_id, dead, "nothing runs there");
        assert!(took < SOON, "{} took {took:?}", session.id);
    }
    cluster.end().await;
}

/// The session once its owner says that its node is out of reach.
async fn unreachable(client: &Client, id: &str) -> v1::Session {
    eventually("a get says that the node is out of reach", SOON, async || {
        let now = read(client, id).await.map_err(|error| format!("{error:?}"))?;
        if now.node_state == "UNREACHABLE" { Ok(now) } else { Err(format!("{now:?}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_a_session_on_a_dead_node_says_so_at_once() {
    let folder = TestFolder::new();
    let (cluster, client, sessions, agent) = fuller_and_idle(&folder).await;
    let near = read(&client, "old-0").await.unwrap();
    assert_eq!(near.node_state, "READY");
    assert!(near.node_unheard_ms.is_some_and(|it| it < 20_000), "{near:?}");
    agent.signal(Signal::KILL);
    let killed_at = Instant::now();
    for session in &sessions {
        let told = unreachable(&client, &session.id).await;
        assert_eq!((told.state(), &told.address), (SessionState::Ready, &session.address));
    }
    let answer = client.open(open("old-0", "counter"), CALL).await.unwrap();
    assert_eq!(answer.outcome(), Outcome::Existed);
    assert_eq!(answer.session.unwrap().node_state, "UNREACHABLE");
    let shown = cluster.ringctl(&["session", "get", "old-0", "-o", "json"]).await.json();
    assert_eq!(shown["node"]["state"], "UNREACHABLE", "{shown}");
    let told = cluster.ringctl(&["session", "open", "old-0", "--class", "counter"]).await;
    assert!(told.stderr.contains("may have ended"), "{}", told.stderr);
    let told = cluster.ringctl(&["explain", "old-0"]).await.expect_success().stdout;
    assert!(told.contains("UNREACHABLE"), "{told}");
    let node = &sessions[0].node_id;
    eventually("inspect shows it", SOON, async || {
        let ring = cluster.ringctl(&["inspect", "-o", "json"]).await.json();
        let nodes = ring["nodes"].as_array().cloned().unwrap_or_default();
        let of = |id: &str| nodes.iter().find(|it| it["id"] == *id).map(|it| it["state"].clone());
        let states: Vec<_> = cluster.document.nodes.iter().map(|it| (of(&it.id), &it.id)).collect();
        let fine = states.iter().all(|(state, id)| {
            let expected = if *id == node { "UNREACHABLE" } else { "READY" };
            *state == Some(Value::from(expected))
        });
        if fine { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
    assert!(killed_at.elapsed() < PATIENCE);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_dead_node_tells_the_slowest_open_and_when_the_node_was_lost() {
    let folder = TestFolder::new();
    let ran = ringctl_in(&folder, &["bench", "dead-node", "-o", "json"]).await.expect_success();
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let figure = |it: &str| told[it].as_f64().unwrap_or_else(|| panic!("{it} in {told}"));
    assert!(figure("node_lost_ms") > 8_000.0, "{told}");
    assert!(figure("slowest_open_ms") > 0.0 && figure("opens") > 10.0, "{told}");
    assert!(figure("slowest_open_ms") < figure("node_lost_ms") / 2.0, "{told}");
}

#[tokio::test]
async fn what_runs_of_partitions_that_serve_all_the_time_goes_on_while_others_stand_still() {
    let folder = TestFolder::new();
    let stall =
        ["bench", "stall", "--sessions", "60", "--nodes", "3", "--after", "14s", "-o", "json"];
    let ran = ringctl_in(&folder, &stall).await.expect_success();
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let figure = |it: &str| told[it].as_u64().unwrap_or_else(|| panic!("{it} in {told}"));
    assert_eq!(figure("sessions"), 60, "{told}");
    assert!(figure("served") > 0, "{told}");
    assert_eq!(figure("ended"), figure("sessions") - figure("served"), "{told}");
    assert_eq!(figure("ended_where_served"), 0, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_since_nobody_renewed_its_nodes_lease_says_that_and_says_it_soon() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client_of(2);
    let ids: Vec<String> = (0..5).map(|it| format!("s{it}")).collect();
    for id in &ids {
        opened(&client, id, "http").await;
    }
    let keepers = cluster.keepers();
    assert_eq!(keepers.len(), ids.len());
    let line = cluster.kill_store().await;
    cluster.kill_manager(0).await;
    // No partition has all of its copies, so none serves, and nobody may judge the node.
    gone("the node ends what it runs", &keepers).await;
    let again = Launched::again(&folder, "store-again", &line).await;
    for id in &ids {
        eventually("its partition serves", PATIENCE, async || {
            client.get(get(id), SOON).await.map(drop).map_err(|error| format!("{error:?}"))
        })
        .await;
        let ended = eventually("its end is known", SOON, async || {
            let now = read(&client, id).await.map_err(|error| format!("{error:?}"))?;
            if now.state() != SessionState::Ready { Ok(now) } else { Err(format!("{now:?}")) }
        })
        .await;
        assert_eq!(
            (ended.state(), ended.reason()),
            (SessionState::Closed, Reason::LeaseNotRenewed)
        );
        assert_eq!(ended.address, "");
    }
    cluster.end_with(vec![again]).await;
}
