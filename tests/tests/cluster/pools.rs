//! Nodes that managers start when all are full.

use rota_client::{Client, v1};
use rota_model::{Changed, Retry};
use rota_tests::processes::Process;
use rota_tests::sessions::{CALL, close, open, opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, binary, eventually, http_get};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use v1::{Outcome, Reason, SessionState};

/// Opens that found no room have left no life behind, if all of them say so. The owner of an id may have asked a
/// full node before it knew; then a life that no node took stands there for some seconds.
async fn leaves_what_it_says(client: &Client, id: &str, changed: &[Changed]) {
    match read(client, id).await {
        Ok(session) => {
            assert_eq!(session.state(), SessionState::Failed, "{session:?}");
            let was_taken_by_none = session.reason() == Reason::NoCapacity;
            let is_unknown = changed.contains(&Changed::Unknown);
            assert!(was_taken_by_none || is_unknown, "{changed:?}: {session:?}");
        }
        Err(error) => assert_eq!(error.reason(), "NOT_FOUND", "{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_nodes_are_started_when_all_are_full_up_to_the_maximum() {
    let folder = TestFolder::new();
    // At a load limit of 0.8, a node of two places takes both.
    let cluster = Cluster::start(&folder, &["--places", "2", "--max-nodes", "3"]).await;
    let client = cluster.client();
    let mut nodes = BTreeSet::new();
    for number in 0..6 {
        let session = opened(&client, &format!("s{number}"), "counter").await;
        nodes.insert(session.node_id);
    }
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    assert_eq!(cluster.started_nodes().len(), 2);
    let mut changed = Vec::new();
    for client in cluster.clients() {
        let wait = Duration::from_secs(3);
        let error = client.open(open("one too many", "counter"), wait).await.unwrap_err();
        assert_eq!(error.reason(), "NO_CAPACITY", "{error:?}");
        assert!(matches!(error.retry(), Retry::AfterMs(1..)), "{:?}", error.retry());
        changed.push(error.changed());
    }
    leaves_what_it_says(&client, "one too many", &changed).await;
    client.close(close("s3"), CALL).await.unwrap();
    opened(&client, "one too many", "counter").await;
    assert_eq!(cluster.started_nodes().len(), 2, "the maximum holds");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_class_starts_a_node_where_none_runs_and_is_refused_by_what_that_one_offers() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0", "--max-nodes", "1"]).await;
    assert_eq!(cluster.started_nodes().len(), 0);
    for client in cluster.clients() {
        let error = client.open(open("a", "no such class"), CALL).await.unwrap_err();
        assert_eq!(error.reason(), "UNKNOWN_CLASS", "{error:?}");
        assert_eq!(cluster.started_nodes().len(), 1, "only a node tells which classes there are");
    }
    let error = read(&cluster.client(), "a").await.unwrap_err();
    assert_eq!(error.reason(), "NOT_FOUND", "a refused open leaves nothing");
    opened(&cluster.client(), "a", "counter").await;
    assert_eq!(cluster.started_nodes().len(), 1);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_opens_at_once_start_as_many_nodes_as_are_needed_and_no_more() {
    let folder = TestFolder::new();
    let options = ["--nodes", "0", "--places", "4", "--max-nodes", "3"];
    let cluster = Cluster::start(&folder, &options).await;
    let clients = cluster.clients();
    let opening = (0..12).map(|number| {
        let (client, request) =
            (clients[number % 3].clone(), open(&format!("s{number}"), "counter"));
        tokio::spawn(async move { client.open(request, CALL * 2).await })
    });
    for it in opening.collect::<Vec<_>>() {
        assert_eq!(it.await.unwrap().unwrap().outcome(), Outcome::Created);
    }
    assert_eq!(cluster.started_nodes().len(), 3);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn room_that_became_free_is_found_by_every_owner() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "4"]).await;
    let client = cluster.client();
    for number in 0..4 {
        opened(&client, &format!("first {number}"), "counter").await;
    }
    // Twelve ids have three owners: each of them hears that the only node is full.
    let later: Vec<String> = (0..12).map(|it| format!("later {it}")).collect();
    for id in &later {
        let wait = Duration::from_millis(700);
        let error = client.open(open(id, "counter"), wait).await.unwrap_err();
        assert_eq!(error.reason(), "NO_CAPACITY", "{error:?}");
    }
    for number in 0..4 {
        client.close(close(&format!("first {number}")), CALL).await.unwrap();
    }
    for id in &later {
        let answer = client.open(open(id, "counter"), CALL).await;
        let answer = answer.unwrap_or_else(|error| panic!("{id}: {error:?}"));
        assert_eq!(answer.outcome(), Outcome::Created);
        client.close(close(id), CALL).await.unwrap();
    }
    cluster.end().await;
}

/// A folder with a node-agent that, as a node that a manager starts, waits until the file `gate` is
/// in the test's folder (and two minutes at most: a test that failed makes none).
fn gated_agent(folder: &TestFolder) -> String {
    let gate = folder.at("gate");
    let wait = format!(
        "looks=0\nwhile [ ! -e '{gate}' ] && [ $looks -lt 2400 ]; do sleep 0.05; \
         looks=$((looks + 1)); done"
    );
    changed_agent(folder, &wait)
}

/// A folder with a node-agent that, as a node that a manager starts, does something else before.
fn changed_agent(folder: &TestFolder, before: &str) -> String {
    let programs = folder.path().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    let agent = binary("rota-node-agent");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *'--id default-'*)\n{before}\nesac\nexec '{}' \"$@\"\n",
        agent.display()
    );
    let file = programs.join("rota-node-agent");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder.at("programs")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_that_waits_for_a_node_that_does_not_start_is_told_why() {
    let folder = TestFolder::new();
    let programs = changed_agent(&folder, "exit 3");
    let options = ["--nodes", "0", "--max-nodes", "2"];
    let cluster = Cluster::start_in(&folder, &options, &[("ROTA_BIN_DIR", &programs)]).await;
    // Ids of several owners: one of them orders for all.
    for id in ["a", "b", "c", "d", "e"] {
        eventually("the refusal says why", PATIENCE, async || {
            let wait = Duration::from_millis(1_500);
            let error = cluster.client().open(open(id, "counter"), wait).await.unwrap_err();
            assert_eq!(error.reason(), "PROVISIONING", "{error:?}");
            let text = error.to_string();
            let says = text.contains("ended at once (exit status: 3); see ");
            if says { Ok(()) } else { Err(text) }
        })
        .await;
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_that_waits_for_a_node_is_told_so_and_when_to_come_again() {
    let folder = TestFolder::new();
    let programs = gated_agent(&folder);
    let options = ["--places", "1", "--max-nodes", "2"];
    let cluster = Cluster::start_in(&folder, &options, &[("ROTA_BIN_DIR", &programs)]).await;
    let client = cluster.client();
    opened(&client, "first", "counter").await;
    let request = v1::OpenRequest { request_id: "r".to_owned(), ..open("second", "counter") };
    // Nothing but patience can come to an end while the gate is shut.
    let error = client.open(request.clone(), Duration::from_secs(3)).await.unwrap_err();
    assert_eq!(error.reason(), "PROVISIONING", "{error:?}");
    assert!(matches!(error.retry(), Retry::AfterMs(1..)), "{:?}", error.retry());
    leaves_what_it_says(&client, "second", &[error.changed()]).await;
    std::fs::write(folder.at("gate"), "").unwrap();
    let answer = client.open(request, CALL).await.unwrap();
    assert_eq!(answer.outcome(), Outcome::Created);
    assert_eq!(cluster.started_nodes().len(), 1, "one order, however often it is asked for");
    cluster.end().await;
}

/// The index of the manager that started a node, from the node's parent.
fn starter(cluster: &Cluster, node: &Process) -> usize {
    let managers = &cluster.document.managers;
    let starter = managers.iter().position(|it| it.pid == node.parent);
    starter.expect("a manager started the node")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_manager_that_started_a_node_leaves_it_and_its_sessions_running() {
    let folder = TestFolder::new();
    let options = ["--nodes", "0", "--places", "10", "--max-nodes", "1"];
    let cluster = Cluster::start(&folder, &options).await;
    let client = cluster.client();
    let session = opened(&client, "a", "http").await;
    let nodes = cluster.started_nodes();
    assert_eq!(nodes.len(), 1);
    let victim = starter(&cluster, &nodes[0]);
    cluster.kill_manager(victim).await;
    let others: Vec<Client> =
        (0..3).filter(|it| *it != victim).map(|it| cluster.client_of(it)).collect();
    for client in &others {
        let seen = read(client, "a").await.unwrap();
        assert_eq!((seen.state(), &seen.address), (SessionState::Ready, &session.address));
    }
    // The node renews its lease with the managers that are left. The first renewal that is seen may
    // have been granted before the kill; the second was asked for later.
    let lease = format!("{}/lease", nodes[0].option("--data").expect("a node has a folder"));
    for renewal in 1..=2 {
        let before = std::fs::read_to_string(&lease).unwrap();
        eventually(&format!("renewal {renewal} of the lease"), PATIENCE, async || {
            let now = std::fs::read_to_string(&lease).map_err(|error| error.to_string())?;
            if now == before { Err(now) } else { Ok(()) }
        })
        .await;
    }
    assert_eq!(http_get(&session.address, "/").await.unwrap().code, 200);
    assert!(nodes[0].runs());
    opened(&others[0], "b", "counter").await;
    cluster.end().await;
}
