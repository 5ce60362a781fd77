//! Keepers and node-agents that are killed.

use rota_client::{Client, v1};
use rota_tests::processes::{Process, gone, process};
use rota_tests::programs::session_folder;
use rota_tests::sessions::{CALL, becomes, close, open, opened, read};
use rota_tests::small::ring;
use rota_tests::{
    Cluster, Launched, PATIENCE, TestFolder, eventually, http_get, shipped_classes_and,
};
use rustix::process::Signal;
use v1::{Outcome, SessionState};

fn agent(cluster: &Cluster, node: usize) -> Process {
    process(cluster.document.nodes[node].pid).expect("the agent runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_keeper_takes_its_program_with_it_and_its_session_ends() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let first = opened(&client, "first", "http").await;
    let keepers = cluster.keepers();
    let programs = cluster.programs_of(&keepers[0]);
    assert_eq!((keepers.len(), programs.len()), (1, 1));
    let second = opened(&client, "second", "http").await;
    keepers[0].signal(Signal::KILL);
    gone("the program of a killed keeper is gone", &programs).await;
    assert!(http_get(&first.address, "/").await.is_err());
    let ended = eventually("the session ends", PATIENCE, async || {
        let session = read(&client, "first").await.map_err(|error| format!("{error:?}"))?;
        let ended = [SessionState::Failed, SessionState::Lost].contains(&session.state());
        if ended { Ok(session) } else { Err(format!("{session:?}")) }
    })
    .await;
    assert_eq!(ended.address, "");
    let untouched = read(&client, "second").await.unwrap();
    assert_eq!((untouched.state(), &untouched.address), (SessionState::Ready, &second.address));
    let again = client.open(open("first", "http"), CALL).await.unwrap();
    assert_eq!(again.outcome(), Outcome::Created);
    let again = again.session.unwrap();
    assert!(again.life > first.life);
    assert_eq!(http_get(&again.address, "/").await.unwrap().code, 200);
    cluster.end().await;
}

/// Opens sessions one after the other until some run on the second node: the most loaded node that
/// has room is taken, so the first fills up first.
async fn until_on_both(client: &Client) -> Vec<v1::Session> {
    let mut sessions = Vec::new();
    for number in 0..30 {
        sessions.push(opened(client, &format!("s{number}"), "http").await);
        let on_second = sessions.iter().filter(|it| it.node_id != sessions[0].node_id).count();
        if on_second == 3 {
            return sessions;
        }
    }
    panic!("all thirty run on one node of ten places");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_killed_agent_are_lost_after_the_lease_and_only_when_nothing_runs() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--places", "10"]).await;
    let client = cluster.client();
    let sessions = until_on_both(&client).await;
    let node = sessions.last().unwrap().node_id.clone();
    let (lost, kept): (Vec<_>, Vec<_>) = sessions.iter().partition(|it| it.node_id == node);
    let index = cluster.document.nodes.iter().position(|it| it.id == node).unwrap();
    let victim = agent(&cluster, index);
    let keepers: Vec<Process> =
        cluster.keepers().into_iter().filter(|it| it.parent == victim.pid).collect();
    let programs: Vec<Process> = keepers.iter().flat_map(|it| cluster.programs_of(it)).collect();
    assert_eq!(programs.len(), lost.len());
    victim.signal(Signal::KILL);
    for session in &lost {
        let after = becomes(&client, &session.id, SessionState::Lost).await;
        let running = programs.iter().filter(|it| it.runs()).count();
        assert_eq!(running, 0, "a session is LOST only when no program runs any more");
        assert_eq!((after.reason(), after.address.as_str()), (v1::Reason::NodeLost, ""));
    }
    gone("the keepers are gone", &keepers).await;
    for session in &kept[..4] {
        assert!(client.close(close(&session.id), CALL).await.unwrap().finished);
    }
    for session in &lost {
        let answer = client.open(open(&session.id, "http"), CALL).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Created);
        let now = answer.session.unwrap();
        assert_ne!(now.node_id, node, "a lost node gets no sessions");
        assert_eq!(http_get(&now.address, "/").await.unwrap().code, 200);
    }
    for session in &kept[4..] {
        let now = read(&client, &session.id).await.unwrap();
        assert_eq!((now.state(), &now.address), (SessionState::Ready, &session.address));
        assert_eq!(http_get(&now.address, "/").await.unwrap().code, 200);
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_boots_again_says_at_once_that_its_sessions_are_lost_and_takes_new_ones() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let old = [("program", "http"), ("machine", "counter")];
    let mut addresses = Vec::new();
    for (id, class) in old {
        addresses.push(opened(&client, id, class).await.address);
    }
    let victim = agent(&cluster, 0);
    let mut running = cluster.keepers();
    running.extend(running.clone().iter().flat_map(|it| cluster.programs_of(it)));
    assert_eq!(running.len(), 2);
    victim.signal(Signal::KILL);
    gone("the agent is gone", std::slice::from_ref(&victim)).await;
    // With it the next agent would go on with the boot.
    std::fs::remove_file(cluster.document.data.join("nodes/n1/journal")).unwrap();
    let agent = Launched::again(&folder, "n1-again", &victim.line).await;
    assert!(running.iter().all(|it| !it.runs()), "a new boot runs nothing of the old one");
    for (id, _) in old {
        let session = becomes(&client, id, SessionState::Lost).await;
        assert_eq!((session.reason(), session.address.as_str()), (v1::Reason::NodeLost, ""));
    }
    assert!(http_get(&addresses[0], "/").await.is_err());
    for (id, class) in old {
        let answer = client.open(open(id, class), CALL).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Created);
    }
    assert_eq!(agent.end().await, Some(0));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_of_a_fresh_cluster_keeps_its_lease() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "4"]).await;
    let lease = |node: &str| {
        let file = cluster.document.data.join("nodes").join(node).join("lease");
        std::fs::read(file).map_err(|error| error.to_string())
    };
    let nodes: Vec<&str> = cluster.document.nodes.iter().map(|it| it.id.as_str()).collect();
    // The cluster is ready as soon as its nodes are registered; the file follows.
    let first = eventually("every node has a lease", PATIENCE, async || {
        nodes.iter().map(|it| lease(it)).collect::<Result<Vec<_>, _>>()
    })
    .await;
    eventually("every lease is renewed", PATIENCE, async || {
        let is_old = |(node, first): (&&str, &Vec<u8>)| lease(node).as_ref() == Ok(first);
        let old = nodes.iter().zip(&first).filter(|it| is_old(*it)).count();
        if old == 0 { Ok(()) } else { Err(format!("{old} nodes have the lease of their start")) }
    })
    .await;
    cluster.end().await;
}

/// Tells the attribute that its open gave, and nothing of an earlier life.
const MAP: &str = r#"
name = "map"
kind = "program"
argv = ["sh", "-c", "echo $0; echo ready; while :; do sleep 0.1; done", "{attr.map}"]
attributes = { map = "none" }
ready = { line = "ready" }
on_node_loss = "reopen"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_on_a_lost_node_is_opened_again_elsewhere_where_its_class_says_so() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("map", MAP)]);
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--classes", &classes]).await;
    let client = cluster.client();
    let attributes = [("map".to_owned(), "desert".to_owned())].into();
    let ask = v1::OpenRequest { attributes, ..open("game", "map") };
    client.open(ask, CALL).await.unwrap();
    let before = becomes(&client, "game", SessionState::Ready).await;
    let plain = opened(&client, "plain", "counter").await;
    assert_eq!(plain.node_id, before.node_id);
    let index = cluster.document.nodes.iter().position(|it| it.id == before.node_id).unwrap();
    agent(&cluster, index).signal(Signal::KILL);
    let after = eventually("it runs again", PATIENCE, async || {
        let now = read(&client, "game").await.map_err(|error| format!("{error:?}"))?;
        let again = now.life > before.life && now.state() == SessionState::Ready;
        if again { Ok(now) } else { Err(format!("{now:?}")) }
    })
    .await;
    assert_ne!(after.node_id, before.node_id);
    assert_eq!((&after.attributes, after.reason()), (&before.attributes, v1::Reason::Unspecified));
    let node = cluster.document.data.join("nodes").join(&after.node_id);
    let output = std::fs::read_to_string(session_folder(&node, "game").join("stdout.log")).unwrap();
    assert!(output.starts_with("desert\n"), "{output}");
    let lost = becomes(&client, "plain", SessionState::Lost).await;
    assert_eq!(lost.reason(), v1::Reason::NodeLost);
    let shown = cluster.ringctl(&["pool", "show", "default"]).await.expect_success().stdout;
    assert!(shown.contains("(reopens)"), "{shown}");
    cluster.end().await;
}

/// Everything of a node but its programs: agent, guardian and keepers.
fn machinery(cluster: &Cluster, node: usize) -> Vec<Process> {
    let agent = agent(cluster, node);
    let folder = format!("/nodes/{}", cluster.document.nodes[node].id);
    let names = |it: &Process| it.line.iter().any(|word| word.contains(&folder));
    let is_agents = |it: &Process| it.line.first().is_some_and(|it| it.contains("node-agent"));
    let all = cluster.processes().into_iter();
    all.filter(|it| is_agents(it) && (it.pid == agent.pid || it.parent == agent.pid || names(it)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_that_comes_back_ends_what_it_runs_before_it_takes_anything() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("map", MAP)]);
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--classes", &classes]).await;
    let client = cluster.client();
    opened(&client, "game", "map").await;
    let before = becomes(&client, "game", SessionState::Ready).await;
    let programs: Vec<Process> =
        cluster.keepers().iter().flat_map(|it| cluster.programs_of(it)).collect();
    assert!(!programs.is_empty());
    let node = async || {
        let ring = ring(&cluster.endpoints()).await?;
        let nodes = ring["nodes"].as_array().cloned().unwrap_or_default();
        nodes.into_iter().find(|it| it["id"] == before.node_id).ok_or("no such node".to_owned())
    };
    let boot = node().await.expect("it is registered")["boot"].clone();
    // Nothing of the node runs but the program, which nobody ends now.
    let index = cluster.document.nodes.iter().position(|it| it.id == before.node_id).unwrap();
    let stopped = machinery(&cluster, index);
    stopped.iter().for_each(|it| it.signal(Signal::STOP));
    eventually("it runs elsewhere", PATIENCE, async || {
        let now = read(&client, "game").await.map_err(|error| format!("{error:?}"))?;
        let again = now.life > before.life && now.state() == SessionState::Ready;
        if again { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    assert!(programs.iter().any(Process::runs), "it was left running");
    stopped.iter().for_each(|it| it.signal(Signal::CONT));
    let back = eventually("the node serves again", PATIENCE, async || {
        let node = node().await?;
        let serves = node["state"] == "READY" && node["boot"] != boot;
        if serves { Ok(node) } else { Err(node.to_string()) }
    })
    .await;
    let left: Vec<u32> = programs.iter().filter(|it| it.runs()).map(|it| it.pid).collect();
    assert_eq!(left, [0; 0], "{back}");
    let now = read(&client, "game").await.unwrap();
    assert_eq!(now.state(), SessionState::Ready);
    assert_ne!(now.node_id, before.node_id);
    cluster.ringctl(&["node", "cordon", &now.node_id]).await.expect_success();
    assert_eq!(opened(&client, "next", "map").await.node_id, before.node_id);
    cluster.end().await;
}
