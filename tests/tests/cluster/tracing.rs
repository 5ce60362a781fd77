//! What the logs tell of one request.

use rota_tests::programs::session_folder;
use rota_tests::{Cluster, PATIENCE, TestFolder, binary, eventually};
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use tokio::process::Command;
use tokio::time::timeout;

const WANTED: &str = "info,rota_manager=debug,rota_node_agent=debug,rota_client=debug";

/// Opens a session with a program at the first manager with `ringctl`, under a request id. Gives its
/// owner's number, and what the client logged, in the format (text or json).
async fn opened(cluster: &Cluster, id: &str, request: &str, format: &str) -> (u64, String) {
    let mut command = Command::new(binary("ringctl"));
    command.args(["session", "open", id, "--class", "http", "--request-id", request]);
    command.args(["-o", "json", "--endpoint", &cluster.document.managers[0].grpc]);
    command.env("ROTA_LOG", WANTED).env("ROTA_LOG_FORMAT", format);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await.expect("it ends").expect("it starts");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    let opened: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    (opened["owner"].as_u64().expect("the owner is a number"), log)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_id_is_in_the_logs_of_client_entry_owner_copies_node_and_keeper() {
    let folder = TestFolder::new();
    let cluster = Cluster::start_in(&folder, &[], &[("ROTA_LOG", WANTED)]).await;
    let entry = u64::from(cluster.document.managers[0].number);
    for number in 0.. {
        assert!(number < 40, "every one of forty sessions belongs to the first manager");
        let request = format!("the-request-{number}-of-mine");
        let (owner, client) = opened(&cluster, &format!("s{number}"), &request, "text").await;
        assert!(client.contains(&request), "the client: {client}");
        if owner == entry {
            continue;
        }
        // The entry, the owner, and one that is only a copy: all three managers.
        for name in ["m1", "m2", "m3", "n1"] {
            eventually(&format!("{name} logs the request"), PATIENCE, async || {
                let told = cluster.log(name).contains(&request);
                if told { Ok(()) } else { Err(format!("no {request}")) }
            })
            .await;
        }
        let keeper = keeper_log(&cluster, &format!("s{number}"));
        assert!(keeper.contains(&request), "the keeper: {keeper}");
        break;
    }
    cluster.end().await;
}

/// What the keeper of a session's program logged on the cluster's first node.
fn keeper_log(cluster: &Cluster, id: &str) -> String {
    let folder = session_folder(&cluster.document.data.join("nodes/n1"), id);
    fs::read_to_string(folder.join("keeper.log")).unwrap()
}

/// Every line of a log; fails when one is no JSON object with a time, a level and a target. What a
/// process announces on its standard output stands there too.
fn documents(name: &str, log: &str) -> Vec<Value> {
    let document = |line: &str| {
        let document: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{name} logged no JSON ({error}): {line}"));
        let announced = document["ready"] == true || document["registered"] == true;
        for field in ["timestamp", "level", "target"].into_iter().filter(|_| !announced) {
            assert!(document[field].is_string(), "{name}: no {field} in {line}");
        }
        document
    };
    log.lines().map(document).collect()
}

/// Whether a line belongs to a request: by a field of its own, or of a span that it is in.
fn is_of(document: &Value, request: &str) -> bool {
    let spans = document["spans"].as_array().into_iter().flatten();
    spans.chain([document]).any(|it| it["request"] == request)
}

#[tokio::test(flavor = "multi_thread")]
async fn as_json_every_line_of_every_process_is_an_object_and_those_of_a_request_carry_its_id() {
    let folder = TestFolder::new();
    let variables = [("ROTA_LOG", WANTED), ("ROTA_LOG_FORMAT", "json")];
    let cluster = Cluster::start_in(&folder, &[], &variables).await;
    let request = "the-request-of-mine";
    let (_, client) = opened(&cluster, "s", request, "json").await;
    assert!(documents("ringctl", &client).iter().any(|it| is_of(it, request)), "{client}");
    // Each manager is the entry, the owner or a copy.
    for name in ["m1", "m2", "m3", "n1"] {
        eventually(&format!("{name} logs the request"), PATIENCE, async || {
            let log = cluster.log(name);
            // The last line may be half written.
            let whole = log.rfind('\n').map_or("", |end| &log[..end]);
            let told = documents(name, whole).iter().any(|it| is_of(it, request));
            if told { Ok(()) } else { Err(format!("no line of {request}")) }
        })
        .await;
    }
    assert!(!documents("store", &cluster.log("store")).is_empty());
    let keeper = documents("keeper", &keeper_log(&cluster, "s"));
    assert!(!keeper.is_empty() && keeper.iter().all(|it| is_of(it, request)), "{keeper:?}");
    let guardian = cluster.document.data.join("nodes/n1/guardian.log");
    assert!(!documents("guardian", &fs::read_to_string(guardian).unwrap()).is_empty());
    cluster.end().await;
}
