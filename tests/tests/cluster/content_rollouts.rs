//! Sessions that run with older versions of content: closed node by node, where their class lets them be.

use rota_client::v1::{Reason, SessionState};
use rota_tests::processes::process;
use rota_tests::sessions::{becomes, opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, classes_of, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A class whose program runs until it is told to end.
fn class(name: &str, more: &str) -> String {
    let argv = r#"["sh", "-c", "echo up; exec sleep 1000"]"#;
    format!(
        "name = \"{name}\"\nkind = \"program\"\nargv = {argv}\nready = {{ line = \"up\" }}\n{more}\n"
    )
}

async fn run(cluster: &Cluster, line: &[&str]) -> Value {
    cluster.ringctl(&[line, &["-o", "json"]].concat()).await.json()
}

/// Publishes a version of both classes, and waits until every node has it.
async fn published(cluster: &Cluster, root: &Path, version: &str) -> Value {
    for (name, more) in [("soft", ""), ("hard", "disturb = \"never\"")] {
        fs::create_dir_all(root.join(name)).expect("the folder can be made");
        fs::write(root.join(name).join("version"), version).expect("it can be written");
        let path = root.join(format!("{name}.toml"));
        fs::write(path, class(name, more)).expect("it can be written");
    }
    let line = ["content", "publish", root.to_str().expect("the path is text")];
    let commit = run(cluster, &line).await["commit"].clone();
    run(cluster, &["content", "follow", "main"]).await;
    let told = run(cluster, &["content", "rollout", "--wait=60s"]).await;
    let all = json!(cluster.document.nodes.len());
    assert_eq!((&told["current"], &told["of"]), (&all, &all), "{told}");
    let nodes = told["nodes"].as_array().expect("it is a list");
    assert!(nodes.iter().all(|it| it["commit"] == commit), "{told}");
    commit
}

/// The ids of sessions of a rollout that came to this.
fn with_fate<'a>(told: &'a Value, fate: &str) -> BTreeSet<&'a str> {
    let nodes = told["nodes"].as_array().expect("it is a list").iter();
    let sessions = nodes.flat_map(|it| it["sessions"].as_array().expect("it is a list"));
    sessions.filter(|it| it["fate"] == fate).filter_map(|it| it["id"].as_str()).collect()
}

fn counts(told: &Value) -> (u64, u64, u64) {
    let [closed, left, failed] =
        ["closed", "left", "failed"].map(|it| told[it].as_u64().expect("it is a number"));
    (closed, left, failed)
}

/// The state and the life of a session.
async fn stands(cluster: &Cluster, id: &str) -> (String, u64) {
    let session = read(&cluster.client(), id).await.expect("it was opened");
    (session.state().as_str_name().to_owned(), session.life)
}

const READY: &str = "SESSION_STATE_READY";
const CLOSED: &str = "SESSION_STATE_CLOSED";

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_closes_sessions_of_older_versions_and_leaves_those_that_nobody_may_disturb() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--classes", &classes]).await;
    let (client, root) = (cluster.client(), folder.path().join("content"));
    published(&cluster, &root, "one").await;
    for id in ["soft-1", "soft-2", "soft-3"] {
        opened(&client, id, "soft").await;
    }
    opened(&client, "hard-1", "hard").await;
    let told = run(&cluster, &["content", "rollout", "--restart"]).await;
    assert_eq!((counts(&told), stands(&cluster, "soft-1").await.0), ((0, 0, 0), READY.to_owned()));

    let second = published(&cluster, &root, "two").await;
    opened(&client, "soft-new", "soft").await;
    let soft = BTreeSet::from(["soft-1", "soft-2", "soft-3"]);
    let told = run(&cluster, &["content", "rollout", "--dry-run"]).await;
    assert_eq!((with_fate(&told, "closes"), counts(&told)), (soft.clone(), (0, 1, 0)), "{told}");
    assert_eq!(stands(&cluster, "soft-1").await.0, READY);

    let told = run(&cluster, &["content", "rollout", "--restart"]).await;
    assert_eq!((with_fate(&told, "closed"), counts(&told)), (soft.clone(), (3, 1, 0)), "{told}");
    assert_eq!(with_fate(&told, "left"), BTreeSet::from(["hard-1"]), "{told}");
    for id in soft {
        let ended = read(&client, id).await.expect("it was opened");
        assert_eq!(ended.reason(), Reason::ClosedByOperator, "{id}");
        assert_eq!(stands(&cluster, id).await.0, CLOSED, "{id}");
    }
    for id in ["hard-1", "soft-new"] {
        assert_eq!(stands(&cluster, id).await.0, READY, "{id}");
    }
    // What is left is waited for, and that ends.
    let waiting = ["content", "rollout", "--restart", "--wait", "1s"];
    let ran = cluster.ringctl(&waiting).await;
    assert!(ran.code == 1 && ran.stdout.contains("hard-1") && ran.stdout.contains("--force"));

    let life = stands(&cluster, "hard-1").await.1;
    let told = run(&cluster, &["content", "rollout", "--restart", "--force"]).await;
    assert_eq!((with_fate(&told, "closed"), counts(&told)), (["hard-1"].into(), (1, 0, 0)));
    assert_eq!(stands(&cluster, "hard-1").await, (CLOSED.to_owned(), life));
    assert_eq!(stands(&cluster, "soft-new").await.0, READY);
    let status = run(&cluster, &["content", "status"]).await;
    let nodes = status["nodes"].as_array().expect("it is a list");
    let none = |it: &Value| it["sessions_older"] == 0 && it["commit"] == second;
    assert!(nodes.iter().all(none), "{status}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_waits_for_a_session_that_is_left_and_closes_no_later_life_of_it() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--classes", &classes]).await;
    let (client, root) = (cluster.client(), folder.path().join("content"));
    published(&cluster, &root, "one").await;
    opened(&client, "again", "hard").await;
    published(&cluster, &root, "two").await;
    let before = stands(&cluster, "again").await.1;
    let waiting = ["content", "rollout", "--restart", "--wait=60s"];
    let (told, after) = tokio::join!(run(&cluster, &waiting), async {
        run(&cluster, &["session", "close", "again"]).await;
        eventually("it lives again", PATIENCE, async || {
            opened(&client, "again", "hard").await;
            let (state, life) = stands(&cluster, "again").await;
            if state == READY && life > before { Ok(life) } else { Err(state) }
        })
        .await
    });
    assert_eq!((counts(&told).1, counts(&told).2), (0, 0), "{told}");
    let told = run(&cluster, &["content", "rollout", "--restart", "--force"]).await;
    assert_eq!(counts(&told), (0, 0, 0), "{told}");
    assert_eq!(stands(&cluster, "again").await, (READY.to_owned(), after));
    let ran = cluster.ringctl(&["content", "rollout", "--force"]).await;
    assert!(ran.code == 2 && ran.stderr.contains("--restart"), "{}", ran.stderr);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_the_very_files_of_a_rollback_is_none_of_an_older_version() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let (client, root) = (cluster.client(), folder.path().join("content"));
    let first = published(&cluster, &root, "one").await;
    opened(&client, "then", "soft").await;
    published(&cluster, &root, "two").await;
    opened(&client, "between", "soft").await;
    let back = ["content", "rollback", first.as_str().expect("a hash")];
    let back = run(&cluster, &back).await["commit"].clone();
    let status = run(&cluster, &["content", "status", "--wait=60s", "--sessions"]).await;
    let node = &status["nodes"][0];
    assert_eq!((&node["commit"], &node["sessions_current"]), (&back, &json!(1)), "{status}");
    assert_eq!((&node["sessions_older"], &node["older"][0]["id"]), (&json!(1), &json!("between")));
    let told = run(&cluster, &["content", "rollout", "--restart"]).await;
    assert_eq!(with_fate(&told, "closed"), BTreeSet::from(["between"]), "{told}");
    assert_eq!(stands(&cluster, "then").await.0, READY);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_nothing_any_more_is_waited_for_and_who_uses_what_is_removed_is_told() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--classes", &classes]).await;
    published(&cluster, &folder.path().join("content"), "one").await;
    opened(&cluster.client(), "soft-1", "soft").await;
    let used = "pool default follows it; 2 nodes have it; 1 session runs with it";
    let unsure = cluster.ringctl(&["content", "remove", "main"]).await;
    assert!(unsure.code == 2 && unsure.stderr.contains(used), "{unsure:?}");
    run(&cluster, &["content", "unfollow"]).await;
    let status = run(&cluster, &["content", "status", "--wait", "60s"]).await;
    let nodes = status["nodes"].as_array().expect("it is a list");
    assert!(nodes.iter().all(|it| it["state"] == "nothing" && it["commit"] == ""), "{status}");
    run(&cluster, &["content", "follow"]).await;
    run(&cluster, &["content", "status", "--wait"]).await;
    let gone = cluster.ringctl(&["content", "remove", "main", "--yes"]).await.expect_success();
    assert!(gone.stderr.contains(&format!("warning: {used}")), "{gone:?}");
    let again = run(&cluster, &["content", "remove", "main", "--yes"]).await;
    assert_eq!((&again["existed"], &again["pools"]), (&json!(false), &json!(["default"])));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_lost_stays_in_the_status_and_nobody_waits_for_it() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--classes", &classes]).await;
    published(&cluster, &folder.path().join("content"), "one").await;
    let node = cluster.document.nodes[0].clone();
    process(node.pid).expect("the agent runs").signal(Signal::KILL);
    // Whoever looks does not wait for it, nor until it is lost.
    let status = run(&cluster, &["content", "status", "--timeout", "10m"]).await;
    let silent = status["nodes"].as_array().into_iter().flatten().find(|it| it["node"] == *node.id);
    let silent = silent.expect("it is shown");
    assert_eq!(silent["state"], "unknown", "{status}");
    let why = format!("node {} does not answer at ", node.id);
    assert!(silent["failure"].as_str().is_some_and(|it| it.contains(&why)), "{status}");
    let line = ["content", "status", "--timeout", "1s"];
    let status = eventually("it is shown as lost", PATIENCE, async || {
        let status = run(&cluster, &line).await;
        let of_node = status["nodes"].as_array().into_iter().flatten();
        let of_node = of_node.filter(|it| it["node"] == *node.id).map(|it| it["state"].clone());
        if of_node.eq([json!("lost")]) { Ok(status) } else { Err(status.to_string()) }
    })
    .await;
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(2), "{status}");
    let ran = cluster.ringctl(&[&line[..], &["--wait=60s"]].concat()).await.expect_success();
    let row = ran.stdout.lines().find(|it| it.starts_with(&node.id)).expect("its row");
    assert!(row.contains("lost") && row.contains(" - "), "{row}");
    cluster.end().await;
}

/// A class whose program takes its time to end.
const SLOW: &str = r#"
name = "slow"
kind = "program"
argv = ["sh", "-c", "trap '' TERM; echo up; sleep 1000 & while :; do wait; done"]
ready = { line = "up" }
grace = "8s"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_fails_midway_shows_what_it_did_and_then_why() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let (client, root) = (cluster.client(), folder.path().join("content"));
    fs::create_dir_all(&root).expect("the folder can be made");
    fs::write(root.join("slow.toml"), SLOW).expect("it can be written");
    published(&cluster, &root, "one").await;
    opened(&client, "slow-1", "slow").await;
    published(&cluster, &root, "two").await;
    let line = ["content", "rollout", "--restart", "--timeout", "3s"];
    let (ran, ()) = tokio::join!(cluster.ringctl(&line), async {
        becomes(&client, "slow-1", SessionState::Closing).await;
        cluster.kill_managers(&[0, 1, 2]).await;
    });
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("slow-1") && ran.stdout.contains("failed"), "{ran:?}");
    assert!(ran.stderr.contains("error: "), "{ran:?}");
    cluster.crash(|_| true).await;
}
