//! Sessions that are real programs.

use rota_client::v1;
use rota_tests::sessions::{CALL, becomes, close, open, opened};
use rota_tests::{
    Cluster, PATIENCE, TestFolder, eventually, http_get, shipped_classes_and, skipped,
};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use v1::SessionState;
use v1::exit::How;

/// Runs until the file named by the attribute `until` is there, then ends with code 7.
const LEAVER: &str = r#"
name = "leaver"
kind = "program"
argv = ["sh", "-c", "echo up; until [ -e \"$1\" ]; do sleep 0.02; done; exit 7", "sh", "{attr.until}"]
ready = { line = "up" }
"#;

/// Ends at once, before it is ready.
const FAILER: &str = r#"
name = "failer"
kind = "program"
argv = ["sh", "-c", "echo no luck today >&2; exit 3"]
ready = { line = "up" }
start_timeout = "5s"
"#;

/// Prints what it was given, on its port, to whoever connects.
const TELLER: &str = r#"
name = "teller"
kind = "program"
argv = [
    "python3", "-u", "-c",
    "import sys, runpy; sys.argv = ['server', sys.argv[1], '--bind', '127.0.0.1']; runpy.run_module('http.server', run_name='__main__')",
    "{port}", "{attr.colour}",
]
env = { WHO = "{namespace}/{session}", COLOUR = "{attr.colour}" }
ready = { port = true }
"#;

fn leaver(id: &str, until: &str) -> v1::OpenRequest {
    let attributes = [("until".to_owned(), until.to_owned())].into();
    v1::OpenRequest { attributes, ..open(id, "leaver") }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_session_of_class_http_is_a_web_server_of_its_own() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2"]).await;
    let client = cluster.client();
    let mut addresses = Vec::new();
    for id in ["a", "b", "c"] {
        let session = opened(&client, id, "http").await;
        let page = http_get(&session.address, "/").await.unwrap();
        assert_eq!(page.code, 200);
        assert!(page.body.contains("Directory listing"), "{}", page.body);
        addresses.push(session.address);
    }
    let keepers = cluster.keepers();
    assert_eq!(keepers.len(), 3, "each program has its keeper");
    let closed = client.close(close("b"), CALL).await.unwrap();
    assert!(closed.finished);
    assert!(http_get(&addresses[1], "/").await.is_err(), "nothing answers after the close");
    assert_eq!(cluster.keepers().len(), 2);
    for address in [&addresses[0], &addresses[2]] {
        assert_eq!(http_get(address, "/").await.unwrap().code, 200);
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_class_redis_answers_ping() {
    let installed = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|it| it.join("redis-server").is_file())
    });
    if !installed {
        return skipped("a_session_of_class_redis_answers_ping", "redis-server is not installed");
    }
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let session = opened(&cluster.client(), "cache", "redis").await;
    let mut stream = TcpStream::connect(&session.address).await.unwrap();
    stream.write_all(b"PING\r\n").await.unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_of_a_program_is_reported_with_its_code_or_signal() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("leaver", LEAVER)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let client = cluster.client();
    let flag = folder.at("leave");
    client.open(leaver("leaves", &flag), CALL).await.unwrap();
    std::fs::write(&flag, "").unwrap();
    let left = becomes(&client, "leaves", SessionState::Failed).await;
    assert_eq!(left.reason(), v1::Reason::Exited);
    assert_eq!(left.exit.unwrap().how, Some(How::Code(7)));
    assert_eq!(left.address, "");
    let shown = cluster.ringctl(&["session", "get", "leaves", "-o", "json"]).await.json();
    assert_eq!((&shown["reason"], &shown["exit"]["code"]), (&"EXITED".into(), &7.into()));

    client.open(leaver("killed", &folder.at("never")), CALL).await.unwrap();
    let keepers = cluster.keepers();
    assert_eq!(keepers.len(), 1);
    let programs = cluster.programs_of(&keepers[0]);
    assert_eq!(programs.len(), 1, "{programs:?}");
    programs[0].signal(Signal::KILL);
    let killed = becomes(&client, "killed", SessionState::Failed).await;
    assert_eq!(killed.reason(), v1::Reason::Exited);
    assert_eq!(killed.exit.unwrap().how, Some(How::Signal(9)));
    eventually("the keeper has ended", PATIENCE, async || {
        let left = cluster.keepers();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_start_fails_its_open_with_the_reason() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("failer", FAILER), ("leaver", LEAVER)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let client = cluster.client();
    let error = client.open(open("a", "failer"), CALL).await.unwrap_err();
    assert_eq!(error.reason(), "START_FAILED", "{error:?}");
    let ended = becomes(&client, "a", SessionState::Failed).await;
    assert_eq!((ended.reason(), ended.address.as_str()), (v1::Reason::Exited, ""));
    assert_eq!(ended.exit.unwrap().how, Some(How::Code(3)));
    assert!(ended.detail.contains("no luck today"), "{}", ended.detail);
    let error = client.open(open("b", "leaver"), CALL).await.unwrap_err();
    assert_eq!(error.reason(), "START_FAILED", "{error:?}");
    assert!(error.to_string().contains("until"), "the missing attribute is named: {error}");
    assert_eq!(cluster.keepers(), vec![]);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_its_port_its_folder_and_its_values_and_no_shell() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("teller", TELLER)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let client = cluster.client();
    let touched = folder.path().join("touched");
    let touch = touched.display();
    let hostile = &format!("$(touch {touch}); `touch {touch}` \"quoted\"");
    let request = v1::OpenRequest {
        attributes: [("colour".to_owned(), hostile.to_owned())].into(),
        ..open("who am I", "teller")
    };
    let session = client.open(request, CALL).await.unwrap().session.unwrap();
    let keepers = cluster.keepers();
    let programs = cluster.programs_of(&keepers[0]);
    let pid = programs[0].pid;
    let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let has = |entry: String| environment.split('\0').any(|it| it == entry);
    assert!(has("WHO=default/who am I".to_owned()), "{environment}");
    assert!(has(format!("COLOUR={hostile}")), "{environment}");
    assert_eq!(programs[0].line.last(), Some(hostile), "one word of the command line");
    assert!(!touched.exists(), "a shell has read it");
    let port = session.address.rsplit(':').next().unwrap();
    assert!(programs[0].line.iter().any(|it| it == port), "{:?}", programs[0].line);
    let working = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert!(working.starts_with(&cluster.document.data), "{}", working.display());
    cluster.end().await;
}
