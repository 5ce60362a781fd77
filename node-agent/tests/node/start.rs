//! What is refused at the start, and how it is said.

use crate::agent::Home;
use crate::manager::{Line, Manager};
use crate::waiting::LIMIT;
use std::fs;
use std::process::Stdio;

async fn refused(home: &Home, flags: &[&str]) -> (i32, String) {
    let mut command = home.command("127.0.0.1:1", flags);
    let output = command.stderr(Stdio::piped()).output();
    let output = tokio::time::timeout(LIMIT, output).await.expect("an end in time").unwrap();
    assert!(output.stdout.is_empty(), "nothing is announced");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn all_mistakes_of_all_class_files_are_listed_and_nothing_is_started() {
    let home = Home::new();
    fs::write(home.classes().join("one.toml"), "kind = \"machine\"\nstates = 5").unwrap();
    fs::write(home.classes().join("two.toml"), "name = \"two\"\nkind = \"robot\"").unwrap();
    let (code, text) = refused(&home, &["--places", "0"]).await;
    assert_eq!(code, 2, "{text}");
    for part in ["one.toml: name", "one.toml: states", "two.toml: kind", "places is 0"] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    assert!(!home.data().exists());
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, text) = refused(&home, &["--listen", &address]).await;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains(&address) && text.contains("in use"), "{text}");
    assert!(!home.data().exists(), "nothing is made before the port is this agent's");
}

#[tokio::test]
async fn a_data_folder_belongs_to_one_node_and_one_agent() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let (code, text) = refused(&home, &[]).await;
    assert_eq!(code, 1);
    assert!(text.contains("another node-agent runs"), "{text}");
    assert!(agent.leave().await.success());
    let (code, text) = refused(&home, &["--cluster", "other"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("belongs to cluster rota, not to other"), "{text}");
}

#[tokio::test]
async fn an_agent_without_managers_waits_for_one_and_still_leaves() {
    let home = Home::new();
    // A port that nothing listens on, until a manager takes it.
    let manager = Manager::start().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let both = format!("{nobody},{}", manager.address);
    let mut agent = home.start(&both, &[]).await;
    assert_eq!(agent.line().await["registered"], true);
    assert_eq!(manager.registrations(), 1);
    assert!(agent.leave().await.success());

    let agent = home.start(&nobody.to_string(), &[]).await;
    assert!(agent.leave().await.success());
}

#[tokio::test]
async fn calls_of_another_cluster_end_their_stream_and_touch_nothing() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let register = manager.registration(1).await;
    let status = Line::to(&register).await.refused_as("other").await;
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    for part in ["NodeCallBatch.cluster", "\"other\"", "\"rota\""] {
        assert!(status.message().contains(part), "{part} is not in {}", status.message());
    }
    assert_eq!(Line::to(&register).await.scan().await, vec![], "its own managers are answered");
    assert!(agent.leave().await.success());
}
