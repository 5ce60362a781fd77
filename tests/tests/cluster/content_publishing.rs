//! Content that is published while something goes wrong, and content that only some nodes get.

use rota_tests::{Cluster, PATIENCE, Ran, TestFolder, binary, classes_of, eventually};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

async fn run(cluster: &Cluster, line: &[&str]) -> Value {
    cluster.ringctl(&[line, &["-o", "json"]].concat()).await.json()
}

async fn published(cluster: &Cluster, root: &Path) -> Value {
    run(cluster, &["content", "publish", &root.to_string_lossy()]).await["commit"].clone()
}

/// Bytes of bodies that a manager keeps.
fn kept_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let told = entry.metadata().ok()?;
        Some(if told.is_dir() { kept_bytes(&entry.path()) } else { told.len() })
    });
    sizes.sum()
}

/// Writes files that nothing can make smaller.
fn write_noise(root: &Path, files: u32, seed: u64) {
    let mut state = seed;
    for number in 0..files {
        let mut bytes = Vec::with_capacity(1024 * 1024);
        while bytes.len() < 1024 * 1024 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.extend_from_slice(&state.to_be_bytes());
        }
        fs::write(root.join(format!("noise-{number}")), bytes).expect("it can be written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_is_killed_midway_leaves_the_old_commit_and_the_next_one_goes_on() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let root = folder.path().join("content");
    fs::create_dir_all(&root).expect("the folder can be made");
    fs::write(root.join("readme"), "one").expect("it can be written");
    let first = published(&cluster, &root).await;
    run(&cluster, &["content", "follow", "main"]).await;
    let managers = cluster.document.data.join("managers");
    for seed in 1..=3 {
        write_noise(&root, 32, seed);
        let before = kept_bytes(&managers);
        let mut command = Command::new(binary("ringctl"));
        command.env("ROTA_ENDPOINT", cluster.endpoints());
        command.args(["content", "publish"]).arg(&root).kill_on_drop(true);
        let mut publishing = command.stdin(Stdio::null()).spawn().expect("it starts");
        eventually("some of it is stored", PATIENCE, async || {
            let more = kept_bytes(&managers) - before;
            if more > 1024 * 1024 { Ok(()) } else { Err(format!("{more} bytes")) }
        })
        .await;
        publishing.kill().await.expect("it is killed");
        let log = run(&cluster, &["content", "log"]).await;
        assert_eq!(log["commits"][0]["commit"], first, "{log}");
        let status = run(&cluster, &["content", "status", "--wait=30s"]).await;
        assert_eq!(status["nodes"][0]["commit"], first, "{status}");
    }
    let second = published(&cluster, &root).await;
    assert_ne!(second, first);
    let status = run(&cluster, &["content", "status", "--wait=60s"]).await;
    assert_eq!(status["nodes"][0]["commit"], second, "{status}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_share_gets_the_newest_commit_and_keeps_it_when_the_share_grows() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--nodes", "4", "--classes", &classes]).await;
    let root = folder.path().join("content");
    fs::create_dir_all(&root).expect("the folder can be made");
    let mut commits = Vec::new();
    for text in ["one", "two"] {
        fs::write(root.join("readme"), text).expect("it can be written");
        let commit = published(&cluster, &root).await;
        commits.push(commit.as_str().expect("a hash").to_owned());
    }
    let follow = ["content", "follow", "main", "--commit", &commits[0], "--canary"];
    let none = cluster.ringctl(&[&follow[..], &["5%"]].concat()).await;
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.stderr.contains("takes none of the 4 nodes of pool default"), "{none:?}");
    assert!(none.stderr.contains("takes one is 6%"), "{none:?}");
    let mut before = BTreeSet::new();
    for share in ["0%", "20%", "50%", "80%", "100%"] {
        let line = [&follow[..], &[share]].concat();
        let followed: Ran = cluster.ringctl(&line).await.expect_success();
        let status = run(&cluster, &["content", "status", "--wait=60s"]).await;
        let nodes = status["nodes"].as_array().expect("a list");
        assert!(nodes.iter().all(|it| it["commit"] == it["target"]), "{status} {followed:?}");
        let newest = nodes.iter().filter(|it| it["commit"] == commits[1]);
        let newest: BTreeSet<String> = newest.map(|it| it["node"].to_string()).collect();
        assert!(newest.is_superset(&before), "{share}: {newest:?} had {before:?}");
        let told = format!("({} of 4 nodes: ", newest.len());
        assert_eq!(followed.stdout.contains(&told), !newest.is_empty(), "{followed:?}");
        before = newest;
        match share {
            "0%" => assert!(before.is_empty(), "{before:?}"),
            "100%" => assert_eq!(before.len(), 4),
            _ => {}
        }
    }
    cluster.end().await;
}
