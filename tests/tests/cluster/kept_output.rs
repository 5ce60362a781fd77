//! What programs printed last, as the ring keeps it: it is read when their node is gone.

use rota_client::v1;
use rota_tests::processes::process;
use rota_tests::sessions::{CALL, becomes, close, open};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, shipped_classes_and};
use rustix::process::Signal;
use serde_json::Value;
use v1::SessionState;

/// Prints more than is kept of it: numbered lines, and a word on the other output.
const TALKER: &str = r#"
name = "talker"
kind = "program"
argv = ["sh", "-c", "seq 1 1000; echo oops >&2; echo up; exec sleep 1000"]
ready = { line = "up" }
output_kept_kib = 2
"#;

/// Nothing is kept of it.
const SECRET: &str = r#"
name = "secret"
kind = "program"
argv = ["sh", "-c", "echo up; exec sleep 1000"]
ready = { line = "up" }
output_kept = "0s"
"#;

/// It is kept for a moment.
const BRIEF: &str = r#"
name = "brief"
kind = "program"
argv = ["sh", "-c", "echo up; exec sleep 1000"]
ready = { line = "up" }
output_kept = "1s"
"#;

async fn kept(cluster: &Cluster, id: &str) -> Value {
    let line = ["document", "list", "--class", "session-output", "-o", "json"];
    let listed = cluster.ringctl(&line).await.json();
    let documents = listed["documents"].as_array().cloned().unwrap_or_default();
    documents.into_iter().find(|it| it["docid"] == id).unwrap_or(Value::Null)
}

/// One life from its beginning to its end. Gives its stamp.
async fn lives(cluster: &Cluster, id: &str, class: &str) -> u64 {
    let client = cluster.client();
    let opened = client.open(open(id, class), CALL).await.expect("it opens").session;
    client.close(close(id), CALL).await.expect("it closes");
    becomes(&client, id, SessionState::Closed).await;
    opened.expect("a session").life
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_what_a_program_printed_is_read_when_its_node_is_dead() {
    let folder = TestFolder::new();
    let classes = [("talker", TALKER), ("secret", SECRET)];
    let classes = shipped_classes_and(&folder, &classes);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let first = lives(&cluster, "talk", "talker").await;
    let second = lives(&cluster, "talk", "talker").await;
    lives(&cluster, "quiet", "secret").await;
    assert!(first < second);
    eventually("both lives are kept", PATIENCE, async || {
        let document = kept(&cluster, "talk").await;
        let all = document.to_string();
        if document.is_null() { Err(all) } else { Ok(()) }
    })
    .await;
    let node = cluster.document.nodes[0].clone();
    process(node.pid).expect("the agent runs").signal(Signal::KILL);
    let told = eventually("the ring tells it", PATIENCE, async || {
        let ran = cluster.ringctl(&["session", "logs", "talk", "--patience", "5s"]).await;
        if ran.code == 0 && ran.stderr.contains("as the ring keeps it") {
            Ok(ran)
        } else {
            Err(format!("{ran:?}"))
        }
    })
    .await;
    assert!(told.stdout.ends_with("\n999\n1000\nup\n") && told.stdout.len() <= 2_048, "{told:?}");
    let whole = told.stdout.lines().next().and_then(|it| it.parse::<u32>().ok());
    assert!(whole.is_some_and(|it| it > 100), "it begins with a whole line: {told:?}");
    assert!(told.stderr.ends_with("oops\n"), "{told:?}");
    assert!(told.stderr.contains("bytes of stdout are not kept any more"), "{told:?}");
    assert!(told.stderr.contains(&format!("life {second}")), "{told:?}");
    let line = ["session", "logs", "talk", "--life", &first.to_string(), "-n", "2", "-o", "json"];
    let ran = cluster.ringctl(&line).await.expect_success();
    let lines: Vec<Value> =
        ran.stdout.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect();
    assert_eq!(lines[0]["kept_by_ring"], true, "{lines:?}");
    assert_eq!((&lines[0]["node"], &lines[0]["life"]), (&node.id.into(), &first.into()));
    let texts: Vec<&str> = lines.iter().filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(texts, ["1000", "up", "oops"]);
    let quiet = cluster.ringctl(&["session", "logs", "quiet", "--patience", "2s"]).await;
    assert_eq!((quiet.code, quiet.stdout.as_str()), (1, ""), "{quiet:?}");
    assert!(kept(&cluster, "quiet").await.is_null());
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_for_long_enough_is_forgotten() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("brief", BRIEF)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let line = ["session", "events", "talk", "-f", "-o", "json"];
    let mut following = rota_tests::Following::start(&cluster.endpoints(), &line);
    lives(&cluster, "talk", "brief").await;
    while following.json().await["kind"] != "session_closed" {}
    following.end(Signal::INT).await;
    eventually("it is forgotten", PATIENCE, async || {
        let document = kept(&cluster, "talk").await;
        if document.is_null() { Ok(()) } else { Err(document.to_string()) }
    })
    .await;
    cluster.end().await;
}
