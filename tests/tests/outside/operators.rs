//! What an operator meets: a config store that is away at a start, managers that all go, a wrong target.

use rota_tests::sessions::{opened, read};
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually, http_get, processes};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use tokio::process::{Child, Command};
use tokio::time::timeout;

fn spawned(folder: &TestFolder, line: &[String]) -> Child {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).env("ROTA_TEST_FOLDER", folder.path()).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits until the manager there says that it waits for its config store.
async fn waits_for_the_store(http: &str) {
    let health = eventually("it says what it waits for", PATIENCE, async || {
        let page = http_get(http, "/healthz").await?;
        if page.code == 503 { Ok(page) } else { Err(format!("{page:?}")) }
    })
    .await;
    let health: Value = serde_json::from_str(&health.body).unwrap();
    assert_eq!((&health["claimed"], &health["id"]), (&false.into(), &"m1".into()), "{health}");
    assert_eq!(health["config_store"]["reachable"], false, "{health}");
    assert!(health["config_store"]["error"].is_string(), "{health}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_waits_for_its_config_store_and_says_so_and_can_be_told_to_end() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    opened(&cluster.client(), "a", "counter").await;
    let manager = &cluster.document.managers[0];
    let process = processes::process(manager.pid).unwrap();
    let store = cluster.kill_store().await;
    cluster.kill_manager(0).await;

    let mut told_to_end = spawned(&folder, &process.line);
    waits_for_the_store(&manager.http).await;
    let refused =
        cluster.ringctl(&["session", "get", "a", "--timeout", "300ms", "-o", "json"]).await;
    let refused = refused.error();
    assert_eq!(refused["reason"], "NOT_SERVING", "{refused}");
    assert!(
        refused["message"].as_str().unwrap().contains("waits for the config store"),
        "{refused}"
    );
    let pid = told_to_end.id().and_then(|it| rustix::process::Pid::from_raw(it.cast_signed()));
    rustix::process::kill_process(pid.unwrap(), Signal::TERM).unwrap();
    let ended = timeout(PATIENCE, told_to_end.wait()).await.expect("it ends").unwrap();
    assert_eq!(ended.code(), Some(0));

    let back = async {
        waits_for_the_store(&manager.http).await;
        Launched::again(&folder, "store", &store).await
    };
    let (again, store) = tokio::join!(Launched::again(&folder, "m1", &process.line), back);
    cluster.ringctl(&["session", "get", "a"]).await.expect_success();
    let log = std::fs::read_to_string(&again.log).unwrap();
    for said in ["this manager waits for it", "the start goes on"] {
        assert!(log.contains(said), "{said:?} is not in {log}");
    }
    cluster.end_with(vec![again, store]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_all_managers_says_so_and_keeps_what_runs_when_they_are_back_in_time() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "2", "--replicas", "1"]).await;
    let client = cluster.client();
    let address = opened(&client, "a", "http").await.address;
    // Once each owner has heard of the node, the node knows each manager.
    for id in ["b", "c", "d", "e", "f", "g", "h", "i"] {
        opened(&client, id, "counter").await;
        eventually("its owner has heard of the node", PATIENCE, async || {
            let now = read(&client, id).await.map_err(|error| format!("{error:?}"))?;
            now.node_unheard_ms.map(drop).ok_or(format!("{now:?}"))
        })
        .await;
    }
    let lines = cluster.kill_managers(&[0, 1]).await.into_iter().map(|it| it.line);
    let lines: Vec<Vec<String>> = lines.collect();
    let said = async |what: &str| {
        eventually(what, PATIENCE, async || {
            let log = cluster.log("n1");
            log.lines().find(|it| it.contains(what)).map(str::to_owned).ok_or(log)
        })
        .await
    };
    let silent = said("no manager answers").await;
    for manager in &cluster.document.managers {
        assert!(silent.contains(&manager.grpc), "{silent}");
    }
    assert!(silent.contains("lease_left_ms"), "{silent}");
    let (one, two) = tokio::join!(
        Launched::again(&folder, "m1", &lines[0]),
        Launched::again(&folder, "m2", &lines[1])
    );
    said("a manager answers again").await;
    let session = eventually("the session is read", PATIENCE, async || {
        let ran = cluster.ringctl(&["session", "get", "a", "-o", "json"]).await;
        if ran.code == 0 { Ok(ran.json()) } else { Err(ran.stderr) }
    })
    .await;
    assert_eq!(
        (&session["state"], session["address"].as_str()),
        (&"READY".into(), Some(&*address))
    );
    cluster.end_with(vec![one, two]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_no_target_of_a_join_and_that_is_said_at_once() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    let node = cluster.document.nodes[0].address.as_str();
    let contact = cluster.document.managers[0].grpc.as_str();
    let join = ["join", "--target", node, "--number", "auto", "--contact", contact, "-o", "json"];
    let refused = cluster.ringctl(&join).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    for part in [node, "a node-agent", "nothing was changed", "--join", "USAGE"] {
        assert!(refused.stderr.contains(part), "{part:?} is not in {refused:?}");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_leaves_the_gauges_and_is_forgotten_and_one_that_is_there_is_not() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "a", "counter").await;
    let gauges = async || {
        let mut told = Vec::new();
        for manager in &cluster.document.managers {
            let page = http_get(&manager.http, "/metrics").await.unwrap();
            let of_node = page.body.lines().filter(|it| it.starts_with("rota_node_used{"));
            told.extend(of_node.map(str::to_owned));
        }
        told
    };
    eventually("one manager tells of the node", PATIENCE, async || {
        let told = gauges().await;
        if told == ["rota_node_used{node=\"n1\"} 1"] { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    let forget = ["node", "forget", "n1", "-o", "json"];
    let refused = cluster.ringctl(&forget).await.error();
    assert_eq!(
        (&refused["reason"], &refused["changed"]),
        (&"INVALID_ARGUMENT".into(), &"no".into())
    );
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("n1 is READY") && message.contains("tell its agent to end"),
        "{refused}"
    );

    let agent = processes::process(cluster.document.nodes[0].pid).unwrap();
    agent.signal(Signal::TERM);
    let state = async || {
        let list = cluster.ringctl(&["node", "list", "-o", "json"]).await.json();
        list["nodes"][0]["state"].clone()
    };
    eventually("the node has left", PATIENCE, async || {
        let state = state().await;
        if state == "REMOVED" { Ok(()) } else { Err(state.to_string()) }
    })
    .await;
    assert!(gauges().await.is_empty(), "what is gone is told by nobody");
    let forgotten = cluster.ringctl(&forget).await.json();
    assert_eq!((&forgotten["node"], &forgotten["changed"]), (&"n1".into(), &true.into()));
    eventually("nobody shows it", PATIENCE, async || {
        let state = state().await;
        if state.is_null() { Ok(()) } else { Err(state.to_string()) }
    })
    .await;
    assert_eq!(cluster.ringctl(&forget).await.json()["changed"], false, "it may be repeated");
    let unknown = cluster.ringctl(&["node", "uncordon", "n1", "-o", "json"]).await.error();
    assert_eq!(unknown["reason"], "UNKNOWN_NODE", "{unknown}");
    let again = Launched::again(&folder, "n1", &agent.line).await;
    eventually("a new boot is a node again", PATIENCE, async || {
        let state = state().await;
        if state == "READY" { Ok(()) } else { Err(state.to_string()) }
    })
    .await;
    opened(&cluster.client(), "b", "counter").await;
    cluster.end_with(vec![again]).await;
}
