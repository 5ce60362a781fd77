//! Filesets that only nodes with certain labels get.

use rota_tests::brief::Brief;
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually, http_get, ringctl};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

async fn run(brief: &Brief, line: &[&str]) -> Value {
    ringctl(brief.endpoint(), &[line, &["-o", "json"]].concat()).await.json()
}

fn rules(zone: &str) -> String {
    format!(
        "# Where it is.\n[[fileset]]\ncategory = \"local\"\nunder = [\"local\"]\nlabels = {{ zone = \"{zone}\" }}\n"
    )
}

/// Publishes the folder with these rules, and waits until both nodes have the commit.
async fn published(brief: &Brief, root: &Path, zone: &str) -> String {
    fs::write(root.join("content.toml"), rules(zone)).expect("it can be written");
    let line = ["content", "publish", root.to_str().expect("it is text")];
    let commit = run(brief, &line).await["commit"].clone();
    run(brief, &["content", "follow", "main"]).await;
    eventually("both nodes have it", PATIENCE, async || {
        let status = run(brief, &["content", "status"]).await;
        let nodes = status["nodes"].as_array().expect("it is a list");
        let has = |it: &Value| it["state"] == "current" && it["commit"] == commit;
        if nodes.len() == 2 && nodes.iter().all(has) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    commit.as_str().expect("it is text").to_owned()
}

/// Whether a node has the common file, and the local one.
fn has(folder: &TestFolder, node: &str) -> (bool, bool) {
    let current = folder.path().join(node).join("content/main/current");
    (current.join("common").exists(), current.join("local/file").exists())
}

/// The files that the feed tells over HTTP.
async fn told(brief: &Brief, query: &str) -> BTreeSet<String> {
    let path = format!("/v1/content/main/updates?{query}");
    let page = http_get(brief.http(), &path).await.expect("it answers");
    assert_eq!(page.code, 200, "{}", page.body);
    let lines = page.body.lines().map(|it| serde_json::from_str(it).expect("it is JSON"));
    let files = lines.filter(|it: &Value| it["file"].is_object());
    files.map(|it| it["path"].as_str().expect("it is text").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_the_filesets_of_their_labels_and_a_commit_keeps_its_rules() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let classes = classes_of(&folder, &[]);
    let root = folder.path().join("content");
    fs::create_dir_all(root.join("local")).expect("it can be made");
    fs::write(root.join("common"), "1").expect("it can be written");
    fs::write(root.join("local/file"), "2").expect("it can be written");
    let mut agents = Vec::new();
    for (node, zone) in [("n1", "eu-1"), ("n2", "us-1")] {
        let mut line = brief.agent(&folder, &classes, node);
        let id = line.iter().position(|it| it == "n1").expect("it is named");
        node.clone_into(&mut line[id]);
        line.extend(["--label".to_owned(), format!("zone={zone}")]);
        agents.push(Launched::start(&folder, node, "rota-node-agent", &line).await);
    }
    let first = published(&brief, &root, "eu-1").await;
    assert_eq!((has(&folder, "n1"), has(&folder, "n2")), ((true, true), (true, false)));
    // Only what nodes may see changes.
    let second = published(&brief, &root, "us-1").await;
    assert_eq!((has(&folder, "n1"), has(&folder, "n2")), ((true, false), (true, true)));
    let common = BTreeSet::from(["common".to_owned()]);
    let both = BTreeSet::from(["common".to_owned(), "local/file".to_owned()]);
    assert_eq!(told(&brief, "pool=default").await, common);
    assert_eq!(told(&brief, "pool=default&labels=zone=eu-1").await, common);
    assert_eq!(told(&brief, "pool=default&labels=disk=ssd,zone=us-1").await, both);
    for (query, part) in [
        ("labels=zone=us-1", "without `pool`"),
        ("pool=default&labels=zone", "NAME=VALUE"),
        ("pool=default&labels=a=1,a=2", "twice"),
    ] {
        let page = http_get(brief.http(), &format!("/v1/content/main/updates?{query}")).await;
        let page = page.expect("it answers");
        assert!(page.code == 400 && page.body.contains(part), "{query}: {}", page.body);
    }
    for (commit, zone) in [(&first, "eu-1"), (&second, "us-1")] {
        let line = ["content", "rules", "main", "--commit", commit];
        assert_eq!(ringctl(brief.endpoint(), &line).await.stdout, rules(zone));
        let shown = run(&brief, &line).await;
        assert_eq!(shown["rules"], rules(zone));
        let local = &shown["filesets"][1];
        assert_eq!((&local["category"], &local["files"]), (&json!("local"), &json!(1)), "{shown}");
        assert_eq!(local["labels"], json!({ "zone": zone }));
    }
    run(&brief, &["content", "rollback", &first]).await;
    assert_eq!(run(&brief, &["content", "rules"]).await["rules"], rules("eu-1"));
    for agent in agents {
        agent.end().await;
    }
    brief.end().await;
}
