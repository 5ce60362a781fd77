//! Paths that commands write and read.

use rota_tests::{Cluster, TestFolder, binary};
use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs `ringctl` with something on its standard input. Gives its exit code and what it said on stdout.
async fn with_input(endpoint: &str, arguments: &[&str], input: &[u8]) -> (i32, String) {
    let mut command = Command::new(binary("ringctl"));
    command.args(arguments).env("ROTA_ENDPOINT", endpoint).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(input).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_write_and_read_pipes_and_replace_nothing_unasked() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    cluster.ringctl(&["namespace", "create", "shop"]).await.expect_success();
    let endpoint = cluster.endpoints();
    let put = ["document", "put-body", "shop/att", "-", "-o", "json"];
    let (code, stored) = with_input(&endpoint, &put, b"a body").await;
    assert_eq!(code, 0, "{stored}");
    let stored: serde_json::Value = serde_json::from_str(&stored).unwrap();
    let digest = stored["sha256"].as_str().unwrap();
    let file = folder.at("body");
    let get = ["document", "get-body", "shop/att", digest, &file];
    cluster.ringctl(&get).await.expect_success();
    assert_eq!(std::fs::read(&file).unwrap(), b"a body");

    let export = ["namespace", "export", "shop", &file];
    let refused = cluster.ringctl(&export).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(std::fs::read(&file).unwrap(), b"a body");
    cluster.ringctl(&[&export[..], &["--force"]].concat()).await.expect_success();
    let exported = std::fs::read(&file).unwrap();
    assert!(exported.starts_with(b"rota namespace export 2\n"));

    cluster.ringctl(&["namespace", "export", "shop", "/dev/null"]).await.expect_success();
    let null = std::fs::metadata("/dev/null").unwrap().file_type();
    assert!(null.is_char_device(), "the device is still one");
    let import = ["namespace", "import", "--into", "copy", "/dev/stdin"];
    let (code, told) = with_input(&endpoint, &import, &exported).await;
    assert_eq!(code, 0, "{told}");
    cluster.end().await;
}
