//! Clients that we did not write: Python's grpcio with stubs made from `proto/`, and grpcurl.

use rota_tests::sessions::opened;
use rota_tests::{Cluster, TestFolder, checkout, skipped};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(300);

/// Runs a program to its end and gives its stdout; fails with everything that it said.
pub async fn run(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(WAIT, output).await.expect("it ends").expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stdout}\n{stderr}");
    stdout
}

/// The Python that has what `tests/foreign/requirements.txt` names: `deploy/test` makes it and names it.
pub fn python() -> Option<PathBuf> {
    let given = std::env::var_os("ROTA_PYTHON").map(PathBuf::from);
    let made = || {
        let test = std::env::current_exe().ok()?;
        Some(test.ancestors().nth(3)?.join("python/bin/python"))
    };
    given.or_else(made).filter(|it| it.is_file())
}

/// The program grpcurl: the machine's own, or the one that `deploy/test` puts beside its Python.
fn grpcurl() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|it| it.join("grpcurl"));
    let beside = python().map(|it| it.with_file_name("grpcurl"));
    installed.chain(beside).find(|it| it.is_file())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_client_with_stubs_from_our_proto_files_uses_a_session() {
    let name = "a_python_client_with_stubs_from_our_proto_files_uses_a_session";
    let Some(python) = python() else {
        return skipped(name, "there is no Python with grpcio; deploy/test makes one");
    };
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let mut command = Command::new(python);
    command.arg(checkout().join("tests/foreign/client.py"));
    command.arg("--proto").arg(checkout().join("proto"));
    let managers = format!("ipv4:{}", cluster.endpoints());
    command.args(["--stubs", &folder.at("stubs"), "--managers", &managers]);
    let told = run(command).await;
    assert_eq!(told.lines().filter(|it| it.starts_with("ok ")).count(), 11, "{told}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_finds_the_services_by_reflection_and_opens_a_session() {
    let name = "grpcurl_finds_the_services_by_reflection_and_opens_a_session";
    let Some(grpcurl) = grpcurl() else {
        return skipped(name, "grpcurl is not installed; deploy/test installs it where it can");
    };
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let manager = |index: usize| cluster.document.managers[index].grpc.clone();
    let mut list = Command::new(&grpcurl);
    list.args(["-plaintext", &manager(0), "list"]);
    let services = run(list).await;
    assert!(services.contains("rota.v1.Sessions"), "{services}");
    let mut open = Command::new(&grpcurl);
    open.args(["-plaintext", "-d", r#"{"id": "curled", "class": "http"}"#, &manager(0)]);
    open.arg("rota.v1.Sessions/Open");
    let opened = run(open).await;
    assert!(opened.contains("OUTCOME_CREATED"), "{opened}");
    let mut get = Command::new(&grpcurl);
    get.args(["-plaintext", "-d", r#"{"id": "curled"}"#, &manager(1), "rota.v1.Sessions/Get"]);
    let got: serde_json::Value = serde_json::from_str(&run(get).await).unwrap();
    let address = got["session"]["address"].as_str().unwrap();
    assert_eq!(rota_tests::http_get(address, "/").await.unwrap().code, 200);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_asks_at_a_sessions_address_what_is_served_and_sends_an_event() {
    let name = "grpcurl_asks_at_a_sessions_address_what_is_served_and_sends_an_event";
    let Some(grpcurl) = grpcurl() else {
        return skipped(name, "grpcurl is not installed; deploy/test installs it where it can");
    };
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let address = opened(&cluster.client(), "crossing", "traffic-light").await.address;
    let mut list = Command::new(&grpcurl);
    list.args(["-plaintext", &address, "list"]);
    let services = run(list).await;
    assert!(services.lines().any(|it| it == "rota.v1.Machines"), "{services}");
    assert!(!services.contains("rota.v1.Sessions"), "only what is served there: {services}");
    let mut send = Command::new(&grpcurl);
    send.args(["-plaintext", "-d", r#"{"id": "crossing", "event": "next"}"#, &address]);
    send.arg("rota.v1.Machines/Send");
    let moved: serde_json::Value = serde_json::from_str(&run(send).await).unwrap();
    assert_eq!((&moved["from"], &moved["to"]), (&"red".into(), &"red-amber".into()), "{moved}");
    cluster.end().await;
}
