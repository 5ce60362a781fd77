//! What programs use, as `ringctl top` shows it.

use rota_tests::sessions::opened;
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, shipped_classes_and};
use serde_json::Value;

/// Uses all of a processor that it gets.
const BURNER: &str = r#"
name = "burner"
kind = "program"
argv = ["sh", "-c", "echo up; while :; do :; done"]
ready = { line = "up" }
[limits]
memory_mib = 256
"#;

/// Keeps some memory and does nothing.
const SLEEPER: &str = r#"
name = "sleeper"
kind = "program"
argv = ["python3", "-c", "import time; some = b'x' * (64 << 20); print('up', flush=True); time.sleep(10**6)"]
ready = { line = "up" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_burns_cpu_stands_above_one_that_sleeps_and_below_it_by_memory() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("burner", BURNER), ("sleeper", SLEEPER)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let client = cluster.client();
    opened(&client, "sleeps", "sleeper").await;
    opened(&client, "burns", "burner").await;
    let top = async |arguments: &[&str]| {
        let line = [&["top"], arguments, &["-o", "json", "--interval-ms", "500"]].concat();
        cluster.ringctl(&line).await.json()
    };
    let ids = |top: &Value| {
        let rows = top["sessions"].as_array().unwrap().iter();
        rows.map(|it| it["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let by_cpu = eventually("the burner gets a processor", PATIENCE, async || {
        let by_cpu = top(&["session"]).await;
        let burns = by_cpu["sessions"][0]["cpu_millis"].as_u64().unwrap();
        if burns > 50 { Ok(by_cpu) } else { Err(by_cpu.to_string()) }
    })
    .await;
    assert_eq!(ids(&by_cpu), ["burns", "sleeps"], "{by_cpu}");
    let [burner, sleeper] = [&by_cpu["sessions"][0], &by_cpu["sessions"][1]];
    assert_eq!(burner["limits"]["memory_bytes"], 256 << 20);
    assert_eq!(sleeper["limits"], serde_json::json!({}));
    assert!(sleeper["memory_bytes"].as_u64().unwrap() > 64 << 20, "{sleeper}");
    let by_memory = top(&["session", "--by", "memory"]).await;
    assert_eq!(ids(&by_memory), ["sleeps", "burns"], "{by_memory}");
    let nodes = top(&["node"]).await;
    let node = &nodes["nodes"][0];
    assert_eq!((&node["node"], &node["programs"]), (&"n1".into(), &2.into()));
    assert!(node["cpu_millis"].as_u64().unwrap() > 50, "{node}");
    assert!(node["own_memory_bytes"].as_u64().unwrap() > 1 << 20, "{node}");
    cluster.end().await;
}
