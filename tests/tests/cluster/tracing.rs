//! What the logs tell of one request.

use rota_tests::{Cluster, PATIENCE, TestFolder, binary, eventually};
use std::process::Stdio;
use tokio::process::Command;
use tokio::time::timeout;

const WANTED: &str = "info,rota_manager=debug,rota_node_agent=debug,rota_client=debug";

/// Opens a session at the first manager with `ringctl`, under a request id. Gives its owner's
/// number, and what the client logged.
async fn opened(cluster: &Cluster, id: &str, request: &str) -> (u64, String) {
    let mut command = Command::new(binary("ringctl"));
    command.args(["session", "open", id, "--class", "counter", "--request-id", request]);
    command.args(["-o", "json", "--endpoint", &cluster.document.managers[0].grpc]);
    command.env("ROTA_LOG", WANTED).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await.expect("it ends").expect("it starts");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    let opened: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    (opened["owner"].as_u64().expect("the owner is a number"), log)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_id_is_in_the_logs_of_client_entry_owner_copies_and_node() {
    let folder = TestFolder::new();
    let cluster = Cluster::start_in(&folder, &[], ("ROTA_LOG", WANTED)).await;
    let entry = u64::from(cluster.document.managers[0].number);
    for number in 0.. {
        assert!(number < 40, "every one of forty sessions belongs to the first manager");
        let request = format!("the-request-{number}-of-mine");
        let (owner, client) = opened(&cluster, &format!("s{number}"), &request).await;
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
        break;
    }
    cluster.end().await;
}
