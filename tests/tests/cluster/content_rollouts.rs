//! Sessions that run with older versions of content: closed node by node, where their class lets them be.

use rota_tests::sessions::{opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, classes_of, eventually};
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
    assert_eq!((&told["current"], &told["of"]), (&json!(2), &json!(2)), "{told}");
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
    let told = run(&cluster, &["content", "rollout", "--restart", "--dry-run"]).await;
    assert_eq!((with_fate(&told, "closes"), counts(&told)), (soft.clone(), (0, 1, 0)), "{told}");
    assert_eq!(stands(&cluster, "soft-1").await.0, READY);

    let told = run(&cluster, &["content", "rollout", "--restart"]).await;
    assert_eq!((with_fate(&told, "closed"), counts(&told)), (soft.clone(), (3, 1, 0)), "{told}");
    assert_eq!(with_fate(&told, "left"), BTreeSet::from(["hard-1"]), "{told}");
    for id in soft {
        assert_eq!(stands(&cluster, id).await.0, CLOSED, "{id}");
    }
    for id in ["hard-1", "soft-new"] {
        assert_eq!(stands(&cluster, id).await.0, READY, "{id}");
    }
    // What is left is waited for, and that ends.
    let waiting = ["content", "rollout", "--restart", "--wait=1s"];
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
