//! What programs print, through any manager.

use rota_client::v1;
use rota_tests::processes;
use rota_tests::programs::session_folder;
use rota_tests::sessions::{CALL, becomes, open};
use rota_tests::{Cluster, Following, PATIENCE, TestFolder, eventually, shipped_classes_and};
use rustix::process::Signal;
use v1::SessionState;

/// Prints numbers from 1 on until the file of the attribute `until` is there, then ends with code 7.
const PRINTER: &str = r#"
name = "printer"
kind = "program"
argv = ["python3", "-u", "-c", """
import os, sys, time
print("up"); print("oops \x1b[31m", file=sys.stderr)
number = 0
while not os.path.exists(sys.argv[1]):
    number += 1
    print(number)
    time.sleep(0.01)
sys.exit(7)
""", "{attr.until}"]
ready = { line = "up" }
"#;

const ID: &str = "../x y";

fn printer(until: &str) -> v1::OpenRequest {
    let attributes = [("until".to_owned(), until.to_owned())].into();
    v1::OpenRequest { attributes, ..open(ID, "printer") }
}

fn numbers(text: &str) -> Vec<u64> {
    text.lines().filter_map(|it| it.parse().ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_had_through_any_manager_and_followed_over_a_killed_one_to_the_end() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("printer", PRINTER)]);
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--classes", &classes]).await;
    let client = cluster.client();
    let flag = folder.at("end");
    let session = client.open(printer(&flag), CALL).await.unwrap().session.unwrap();
    let node = cluster.document.data.join("nodes").join(&session.node_id);
    let found = session_folder(&node, "%2E.%2Fx%20y");
    assert!(found.ends_with(format!("default/%2E.%2Fx%20y/{}", session.life)), "{found:?}");

    // It is READY with the first word that it prints.
    eventually("it has printed more", PATIENCE, async || {
        let ran = cluster.ringctl(&["session", "logs", ID]).await.expect_success();
        let both = ran.stdout.starts_with("up\n1\n") && ran.stderr.ends_with('\n');
        if both { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    // The owner is one of three: the others ask as well.
    for manager in 0..3 {
        let ran = cluster.ringctl_at(manager, &["session", "logs", ID]).await.expect_success();
        assert!(ran.stdout.starts_with("up\n1\n"), "{ran:?}");
        assert_eq!(ran.stderr, "oops \u{1b}[31m\n", "a pipe gets the bytes as they are");
    }

    let mut follower =
        Following::start(&cluster.endpoints(), &["session", "logs", ID, "-f", "--only", "stdout"]);
    assert_eq!(follower.line().await, "up");
    let mut seen = vec![follower.line().await];
    cluster.kill_manager(0).await;
    while seen.len() < 200 {
        seen.push(follower.line().await);
    }
    std::fs::write(&flag, "").unwrap();
    let ran = follower.over().await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("has ended"), "{ran:?}");
    seen.extend(ran.stdout.lines().map(str::to_owned));
    let all = numbers(&seen.join("\n"));
    let expected: Vec<u64> = (1..=all.len() as u64).collect();
    assert_eq!((all.len(), all), (seen.len(), expected), "every line once and in order");
    let ended = becomes(&client, ID, SessionState::Failed).await;
    let last = std::fs::read_to_string(found.join("stdout.log")).unwrap();
    assert_eq!(numbers(&last).last().copied(), Some(seen.len() as u64));

    // After the end, by its life also when a later one has its record.
    let last_line = format!("{}\n", seen.len());
    let tail = ["session", "logs", ID, "--tail", "1", "--only", "stdout"];
    assert_eq!(cluster.ringctl(&tail).await.expect_success().stdout, last_line);
    let later = client.open(printer(&folder.at("never")), CALL).await.unwrap().session.unwrap();
    assert!(later.life > ended.life, "{later:?}");
    let life = ended.life.to_string();
    let of_life = [&tail[..], &["--life", &life]].concat();
    assert_eq!(cluster.ringctl(&of_life).await.expect_success().stdout, last_line);
    let documents = eventually("the later life has printed", PATIENCE, async || {
        let ran = cluster.ringctl(&["session", "logs", ID, "-o", "json", "-n", "2"]).await;
        let text = ran.expect_success().stdout;
        let documents: Vec<serde_json::Value> =
            text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        if text.contains("oops") { Ok(documents) } else { Err(text) }
    })
    .await;
    assert_eq!(
        (&documents[0]["note"], &documents[0]["life"]),
        (&"begin".into(), &later.life.into())
    );
    assert!(documents.iter().any(|it| it["text"] == "oops \u{1b}[31m"), "{documents:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_output_is_told_with_the_reason() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    client.open(open("light", "traffic-light"), CALL).await.unwrap();
    let refused = async |arguments: &[&str]| {
        let line = [&["session", "logs", "-o", "json"], arguments].concat();
        let error = cluster.ringctl(&line).await.error();
        (error["reason"].as_str().unwrap().to_owned(), error["message"].to_string())
    };
    let (reason, message) = refused(&["light"]).await;
    assert_eq!(reason, "INVALID_ARGUMENT");
    assert!(message.contains("state machine"), "{message}");
    let (reason, message) = refused(&["nobody"]).await;
    assert_eq!(reason, "NOT_FOUND");
    assert!(message.contains("--folders-kept-max"), "{message}");
    assert_eq!(refused(&["light", "--node", "n9"]).await.0, "UNKNOWN_NODE");
    // A node that does not answer: whoever waits hears so, and at last which node it was.
    let node = cluster.document.nodes[0].clone();
    processes::send(node.pid, Signal::STOP);
    let line = ["session", "logs", "any", "--node", &node.id, "--patience", "4s"];
    let ran = cluster.ringctl(&line).await;
    processes::send(node.pid, Signal::CONT);
    assert_ne!(ran.code, 0);
    let told = format!("no answer yet; asking for up to 4s (--patience). node {} is ", node.id);
    assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("node {} does not answer", node.id)), "{}", ran.stderr);
    cluster.end().await;
}
