//! An agent that is killed while it brings content up to date: the next one comes to the right end.

use rota_tests::brief::Brief;
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually, ringctl};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Files of each commit.
const FILES: usize = 400;
/// After so many files more in the cache the agent is killed, once for each commit.
const KILLED_AFTER: [usize; 5] = [1, 40, 150, 300, 399];

async fn run(brief: &Brief, line: &[&str]) -> Value {
    ringctl(brief.endpoint(), &[line, &["-o", "json"]].concat()).await.json()
}

/// Every file below a folder, with its bytes.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(at) = folders.pop() {
        // What is under way may go while it is looked at.
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let (Ok(below), Ok(bytes)) = (path.strip_prefix(root), fs::read(&path)) {
                found.insert(below.to_string_lossy().into_owned(), bytes);
            }
        }
    }
    found
}

fn cached(node: &Path) -> usize {
    files(&node.join("content/main/cache")).len()
}

/// Half of the files are new in each commit, and some go.
fn write(root: &Path, round: usize) {
    for at in 0..FILES {
        let path = root.join(format!("f{:02}/{at}", at % 20));
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("it can be made");
        if at % 2 == 0 || round == 0 {
            fs::write(&path, format!("{at} of {round}")).expect("it can be written");
        }
    }
    let gone = root.join(format!("f{:02}/{}", 2 * round + 1, 2 * round + 1));
    fs::remove_file(gone).expect("it was there");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_in_each_refresh_has_the_last_commit_and_nothing_else_in_the_end() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let classes = classes_of(&folder, &[]);
    let line = brief.agent(&folder, &classes, "node");
    let (root, node) = (folder.path().join("content"), folder.path().join("node"));
    run(&brief, &["content", "list"]).await;
    let mut last = Value::Null;
    for (round, more) in KILLED_AFTER.into_iter().enumerate() {
        write(&root, round);
        last = run(&brief, &["content", "publish", root.to_str().expect("it is text")]).await;
        run(&brief, &["content", "follow", "main"]).await;
        let before = cached(&node);
        let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
        let version = last["commit"].as_str().expect("it is text").to_owned();
        eventually("files come, or all have come", PATIENCE, async || {
            let versions = fs::read_dir(node.join("content/main/versions"));
            let names = versions.into_iter().flatten().flatten().map(|it| it.file_name());
            let has_it = names.map(|it| it.to_string_lossy().into_owned());
            let is_whole = has_it.into_iter().any(|it| it.starts_with(&version));
            if cached(&node) >= before + more || is_whole { Ok(()) } else { Err("not yet".into()) }
        })
        .await;
        agent.kill().await;
    }
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    eventually("the node has the commit", PATIENCE, async || {
        let status = run(&brief, &["content", "status"]).await;
        let node = &status["nodes"][0];
        let is_there = node["state"] == "current" && node["commit"] == last["commit"];
        if is_there { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let current = node.join("content/main/current").canonicalize().expect("a version is in use");
    let (published, has) = (files(&root), files(&current));
    assert!(published == has, "{} and {} files", published.len(), has.len());
    let contents: std::collections::BTreeSet<&Vec<u8>> = published.values().collect();
    eventually("the cache has what the commit has, and nothing else", PATIENCE, async || {
        let count = cached(&node);
        if count == contents.len() { Ok(()) } else { Err(format!("{count} files")) }
    })
    .await;
    assert_eq!(
        run(&brief, &["content", "status", "--wait", "1s"]).await["nodes"][0]["files"],
        json!(published.len())
    );
    agent.end().await;
    brief.end().await;
}
