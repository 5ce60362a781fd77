//! An agent that is killed while it brings content up to date: the next one comes to the right end.

use rota_tests::brief::Brief;
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually, ringctl};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

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
    let contents: BTreeSet<&Vec<u8>> = published.values().collect();
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

/// A folder of files is seen in one zone only.
fn zone_of(folder: usize) -> &'static str {
    if folder < 10 { "a" } else { "b" }
}

/// Rules for two zones, each with half of the folders.
fn zones() -> String {
    let fileset = |zone: &str| {
        let folders = (0..20).filter(|it| zone_of(*it) == zone);
        let folders: Vec<String> = folders.map(|it| format!("\"f{it:02}\"")).collect();
        let under = folders.join(", ");
        format!(
            "[[fileset]]\ncategory = \"in-{zone}\"\nunder = [{under}]\nlabels = {{ zone = \"{zone}\" }}\n"
        )
    };
    format!("{}{}", fileset("a"), fileset("b"))
}

/// What changes while a node brings its content up to date.
fn marks_of(node: &Path) -> (Option<SystemTime>, BTreeSet<OsString>, usize) {
    let content = node.join("content/main");
    let written = fs::metadata(content.join("records.redb")).and_then(|it| it.modified()).ok();
    let versions = fs::read_dir(content.join("versions")).into_iter().flatten().flatten();
    (written, versions.map(|it| it.file_name()).collect(), cached(node))
}

/// The files of the version in use are those that a zone sees, and the cache has nothing else.
fn check_zone(root: &Path, node: &Path, zone: &str) -> Result<(), String> {
    let mut published = files(root);
    published.retain(|path, _| {
        // The rules are no file of a version.
        path.get(1..3).and_then(|it| it.parse().ok()).is_some_and(|it| zone_of(it) == zone)
    });
    let current = node.join("content/main/current").canonicalize();
    let has = files(&current.map_err(|it| it.to_string())?);
    let contents: BTreeSet<&Vec<u8>> = published.values().collect();
    let (wanted, count) = (contents.len(), cached(node));
    match published == has && count == wanted {
        true => Ok(()),
        false => Err(format!(
            "{} files, not {}; {count} cached, not {wanted}",
            has.len(),
            published.len()
        )),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_view_changes_and_that_is_killed_anywhere_comes_to_the_right_end() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let classes = classes_of(&folder, &[]);
    let (root, node) = (folder.path().join("content"), folder.path().join("node"));
    fs::create_dir_all(&root).expect("it can be made");
    fs::write(root.join("content.toml"), zones()).expect("it can be written");
    let line_in = |zone: &str| {
        let mut line = brief.agent(&folder, &classes, "node");
        line.extend(["--label".to_owned(), format!("zone={zone}")]);
        line
    };
    let mut cut_off = 0;
    for round in 0..8 {
        let zone = if round % 2 == 0 { "a" } else { "b" };
        if round % 3 == 0 {
            write(&root, round / 3);
            run(&brief, &["content", "publish", root.to_str().expect("it is text")]).await;
            run(&brief, &["content", "follow", "main"]).await;
        }
        let (mut seen, mut changes) = (marks_of(&node), 0);
        let agent = Launched::start(&folder, "agent", "rota-node-agent", &line_in(zone)).await;
        eventually("enough has changed", PATIENCE, async || {
            let now = marks_of(&node);
            changes += usize::from(now != seen);
            seen = now;
            let is_right = check_zone(&root, &node, zone).is_ok();
            if changes > round || is_right { Ok(()) } else { Err(format!("{changes} changes")) }
        })
        .await;
        agent.kill().await;
        cut_off += usize::from(check_zone(&root, &node, zone).is_err());
    }
    assert!(cut_off >= 2, "only {cut_off} refreshes were cut off");
    for zone in ["b", "a"] {
        let agent = Launched::start(&folder, "agent", "rota-node-agent", &line_in(zone)).await;
        eventually("the node has what its zone sees", PATIENCE, async || {
            check_zone(&root, &node, zone)
        })
        .await;
        agent.kill().await;
    }
    brief.end().await;
}
