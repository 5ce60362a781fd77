//! SIGHUP at an agent: classes are read again, and nothing ends. `ringctl node list` tells who has which text.

use rota_client::v1::SessionState;
use rota_tests::brief::Brief;
use rota_tests::processes::{of_folder, send};
use rota_tests::programs::session_folder;
use rota_tests::sessions::{becomes, opened, read};
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually, ringctl};
use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;

/// A program that prints a word.
fn class(name: &str, word: &str) -> String {
    format!(
        "name = \"{name}\"\nkind = \"program\"\nready = {{ line = \"{word}\" }}\n\
         argv = [\"sh\", \"-c\", \"echo {word}; exec sleep 600\"]\n"
    )
}

fn digest(text: &str) -> String {
    let bytes: [u8; 32] = Sha256::digest(text).into();
    bytes[..8].iter().map(|it| format!("{it:02x}")).collect()
}

async fn nodes(brief: &Brief) -> Value {
    ringctl(brief.endpoint(), &["node", "list", "-o", "json"]).await.json()
}

/// Waits until the node is listed with these digests of its classes.
async fn lists(brief: &Brief, node: &str, digests: &Value) {
    eventually("the managers know the classes", PATIENCE, async || {
        let list = nodes(brief).await;
        let all = list["nodes"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|it| it["id"] == node).unwrap_or_default();
        if found["digests"] == *digests { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
}

async fn logs(agent: &Launched, part: &str) {
    eventually(&format!("it logs {part}"), PATIENCE, async || {
        let log = std::fs::read_to_string(&agent.log).map_err(|it| it.to_string())?;
        if log.contains(part) { Ok(()) } else { Err(log) }
    })
    .await;
}

/// What the session with that id has printed.
fn printed(folder: &TestFolder, id: &str) -> String {
    let found = session_folder(&folder.path().join("node"), id);
    std::fs::read_to_string(found.join("stdout.log")).unwrap()
}

#[tokio::test]
async fn a_hang_up_has_an_agent_read_its_classes_again_and_ends_nothing() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let (one, two, fresh) = (class("said", "one"), class("said", "two"), class("fresh", "new"));
    let classes = classes_of(&folder, &[("said", &one)]);
    let line = brief.agent(&folder, &classes, "node");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    brief.opened("a", "said").await;
    let before = becomes(&brief.client, "a", SessionState::Ready).await;
    lists(&brief, "n1", &serde_json::json!({ "said": digest(&one) })).await;

    classes_of(&folder, &[("said", &two), ("fresh", &fresh)]);
    send(agent.pid(), Signal::HUP);
    let both = serde_json::json!({ "said": digest(&two), "fresh": digest(&fresh) });
    lists(&brief, "n1", &both).await;
    opened(&brief.client, "b", "said").await;
    opened(&brief.client, "c", "fresh").await;
    for id in ["b", "c"] {
        becomes(&brief.client, id, SessionState::Ready).await;
    }
    assert_eq!([printed(&folder, "a"), printed(&folder, "b")], ["one\n", "two\n"]);

    classes_of(&folder, &[("said", "name = \"said\"\nkind = \"program\"\n")]);
    send(agent.pid(), Signal::HUP);
    logs(&agent, "the classes stay as they were").await;
    logs(&agent, "argv is missing").await;
    lists(&brief, "n1", &both).await;
    opened(&brief.client, "d", "said").await;
    becomes(&brief.client, "d", SessionState::Ready).await;
    assert_eq!(printed(&folder, "d"), "two\n");
    let after = read(&brief.client, "a").await.unwrap();
    assert_eq!((after.state(), after.life), (SessionState::Ready, before.life));
    assert_eq!(agent.end().await, Some(0));
    brief.end().await;
}

#[tokio::test]
async fn nodes_of_one_pool_with_different_texts_of_a_class_are_told() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let (one, two) = (class("said", "one"), class("said", "two"));
    let mut agents = Vec::new();
    for (node, text) in [("n1", &one), ("n2", &two)] {
        let classes = folder.path().join(format!("classes-{node}"));
        std::fs::create_dir(&classes).unwrap();
        std::fs::write(classes.join("said.toml"), text).unwrap();
        let mut line = brief.agent(&folder, &classes.display().to_string(), node);
        let id = line.iter().position(|it| it == "n1").unwrap();
        line[id] = node.to_owned();
        agents.push(Launched::start(&folder, node, "rota-node-agent", &line).await);
        lists(&brief, node, &serde_json::json!({ "said": digest(text) })).await;
    }
    let expected = serde_json::json!([{
        "pool": "default",
        "class": "said",
        "nodes": { digest(&one): ["n1"], digest(&two): ["n2"] },
    }]);
    assert_eq!(nodes(&brief).await["differing"], expected);
    for command in [&["node", "list"][..], &["inspect", "--no-drawing"]] {
        let ran = ringctl(brief.endpoint(), command).await.expect_success();
        let warning = "warning: class \"said\" has 2 texts in pool \"default\": ";
        assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    }
    for agent in agents {
        assert_eq!(agent.end().await, Some(0));
    }
    brief.end().await;
}

/// Whether that process has the file open.
fn has_open(pid: u32, file: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.into_iter().any(|it| std::fs::read_link(it.path()).is_ok_and(|to| to == file))
}

#[tokio::test]
async fn a_hang_up_during_a_start_that_still_ends_what_was_left_ends_nothing_else() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    // It is killed after two seconds with TERM.
    let stubborn = "name = \"stubborn\"\nkind = \"program\"\nready = { line = \"up\" }\n\
                    argv = [\"sh\", \"-c\", \"trap '' TERM; echo up; while :; do sleep 1; done\"]\n";
    let classes = classes_of(&folder, &[("stubborn", stubborn)]);
    let line = brief.agent(&folder, &classes, "node");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    brief.opened("a", "stubborn").await;
    becomes(&brief.client, "a", SessionState::Ready).await;
    agent.kill().await;
    let lock = folder.path().canonicalize().unwrap().join("node/lock");
    let hang_up = eventually("the next one has its folder", PATIENCE, async || {
        let all = of_folder(folder.path());
        let found = all.iter().find(|it| it.is_agent() && has_open(it.pid, &lock));
        let found = found.ok_or_else(|| format!("{all:?}"))?;
        found.signal(Signal::HUP);
        Ok(())
    });
    let start = Launched::start(&folder, "agent", "rota-node-agent", &line);
    let (agent, ()) = tokio::join!(start, hang_up);
    logs(&agent, "the classes were read again").await;
    assert_eq!(agent.end().await, Some(0));
    brief.end().await;
}
