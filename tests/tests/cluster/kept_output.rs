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
output_kept = "3s"
"#;

/// The lives of which something is kept.
async fn lives_kept(cluster: &Cluster, id: &str) -> Vec<u64> {
    let ran = cluster.ringctl(&["document", "get", &document(id), "-o", "json"]).await;
    if ran.code != 0 {
        return Vec::new();
    }
    let items = ran.json()["items"].as_array().cloned().unwrap_or_default();
    let of_lives = items.iter().filter(|it| it["class"] == "life");
    let mut lives: Vec<u64> =
        of_lives.filter_map(|it| it["key"].as_str().and_then(|it| it.parse().ok())).collect();
    lives.sort_unstable();
    lives
}

fn document(id: &str) -> String {
    format!("default/session-output/{id}")
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
        let lives = lives_kept(&cluster, "talk").await;
        if lives == [first, second] { Ok(()) } else { Err(format!("{lives:?}")) }
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
    assert_eq!((&lines[0]["node"], &lines[0]["life"]), (&node.id.clone().into(), &first.into()));
    let texts: Vec<&str> = lines.iter().filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(texts, ["1000", "up", "oops"]);
    let quiet = cluster.ringctl(&["session", "logs", "quiet", "--patience", "2s"]).await;
    assert_eq!((quiet.code, quiet.stdout.as_str()), (1, ""), "{quiet:?}");
    let lost = format!("node {} is LOST", node.id);
    eventually("the node is told as lost", PATIENCE, async || {
        let told = cluster.ringctl(&["session", "logs", "talk", "--node", &node.id]).await;
        let quiet = cluster.ringctl(&["session", "logs", "quiet", "--patience", "2s"]).await;
        let nothing = format!("{lost}, and the ring keeps nothing");
        let is_told = told.stderr.contains(&lost) && told.stdout.ends_with("\n1000\nup\n");
        let is_it = is_told && quiet.stderr.contains(&nothing) && quiet.code == 1;
        if is_it { Ok(()) } else { Err(format!("{told:?} {quiet:?}")) }
    })
    .await;
    assert!(lives_kept(&cluster, "quiet").await.is_empty());
    let forgotten = cluster.ringctl(&["session", "logs", "talk", "--forget", "-o", "json"]).await;
    assert_eq!(forgotten.json()["lives"], 2);
    let gone = cluster.ringctl(&["session", "logs", "talk", "--patience", "2s"]).await;
    assert_eq!((gone.code, gone.stdout.as_str()), (1, ""), "{gone:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_for_long_enough_is_forgotten() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("brief", BRIEF)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let life = lives(&cluster, "talk", "brief").await;
    eventually("it is kept", PATIENCE, async || {
        let lives = lives_kept(&cluster, "talk").await;
        if lives == [life] { Ok(()) } else { Err(format!("{lives:?}")) }
    })
    .await;
    eventually("it is forgotten", PATIENCE, async || {
        let lives = lives_kept(&cluster, "talk").await;
        if lives.is_empty() { Ok(()) } else { Err(format!("{lives:?}")) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_with_many_sessions_sends_what_all_of_them_printed() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("talker", TALKER)]);
    let more = ["--nodes", "1", "--places", "100", "--classes", &classes];
    let cluster = Cluster::start(&folder, &more).await;
    let client = cluster.client();
    let ids: Vec<String> = (0..60).map(|it| format!("s{it}")).collect();
    for id in &ids {
        client.open(open(id, "talker"), CALL).await.expect("it opens");
    }
    process(cluster.document.nodes[0].pid).expect("the agent runs").signal(Signal::TERM);
    let line = ["document", "list", "--class", "session-output", "-o", "json"];
    eventually("all of it is kept", PATIENCE, async || {
        let listed = cluster.ringctl(&line).await.json();
        let count = listed["documents"].as_array().map_or(0, Vec::len);
        if count == ids.len() { Ok(()) } else { Err(format!("{count} are kept")) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_leaves_room_for_what_somebody_stores() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("talker", TALKER)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let client = cluster.client();
    let create = ["namespace", "create", "shop", "--max-documents", "4"];
    cluster.ringctl(&create).await.expect_success();
    // Of one slot: what others hold is heard of a little later.
    for id in ["{k}a", "{k}b", "{k}c", "{k}d"] {
        let namespace = "shop".to_owned();
        let opening = v1::OpenRequest { namespace: namespace.clone(), ..open(id, "talker") };
        client.open(opening, CALL).await.expect("it opens");
        let closing = v1::CloseRequest { namespace, ..close(id) };
        client.close(closing, CALL).await.expect("it closes");
    }
    let log = cluster.document.nodes[0].id.clone();
    eventually("the rest is refused", PATIENCE, async || {
        let listed = cluster
            .ringctl(&["document", "list", "shop", "--class", "session-output", "-o", "json"])
            .await;
        let count = listed.json()["documents"].as_array().map_or(0, Vec::len);
        let told = cluster.log(&log).contains("what programs printed gets a half");
        if count == 2 && told { Ok(()) } else { Err(format!("{count} are kept; told: {told}")) }
    })
    .await;
    for id in ["{k}x", "{k}y"] {
        let change = format!(
            "{{\"changes\": [{{\"class\": \"Cart\", \"docid\": \"{id}\", \"life\": \"create\"}}]}}"
        );
        let write = ["document", "operate", &format!("shop/{id}"), "document.write", &change];
        cluster.ringctl(&write).await.expect_success();
    }
    cluster.end().await;
}
