//! Ports of programs: who listens counts, and a range that a firewall knows.

use rota_client::v1::{Reason, Session, SessionState};
use rota_tests::brief::Brief;
use rota_tests::programs::session_folders;
use rota_tests::sessions::{CALL, becomes, open, opened, read};
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually};
use std::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

/// Waits until somebody else listens on its port, says so, and tries to listen there itself for ever.
const LATE: &str = r#"
name = "late"
kind = "program"
argv = ["python3", "-u", "-c", """
import socket, sys, time
port = int(sys.argv[1])
print("began")
while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
    time.sleep(0.01)
print("taken")
while True:
    try:
        held = socket.create_server(("127.0.0.1", port))
        break
    except OSError:
        time.sleep(0.01)
time.sleep(600)
""", "{port}"]
start_timeout = "4s"
"#;

/// A child of the program listens.
const PARENT: &str = r#"
name = "parent"
kind = "program"
argv = ["sh", "-c", "python3 -m http.server $ROTA_PORT --bind 127.0.0.1 & wait"]
port = true
"#;

/// Has a port for UDP alone, and answers there with what its environment says of it.
const GAME: &str = r#"
name = "game"
kind = "program"
argv = ["python3", "-u", "-c", """
import os, socket, sys
it = socket.socket(type=socket.SOCK_DGRAM)
it.bind(("127.0.0.1", int(sys.argv[1])))
print("listening on", sys.argv[1])
while True:
    _, whom = it.recvfrom(10)
    it.sendto((os.environ["ROTA_PORT_GAME"] + " " + str("ROTA_PORT" in os.environ)).encode(), whom)
""", "{port.game}"]
ports = ["game"]
ready = { line = "listening on" }
"#;

struct Ground {
    folder: TestFolder,
    brief: Brief,
    agent: Launched,
}

impl Ground {
    async fn start(class: (&str, &str), more: &[&str]) -> Self {
        let folder = TestFolder::new();
        let brief = Brief::start(&folder).await;
        let classes = classes_of(&folder, &[class]);
        let mut line = brief.agent(&folder, &classes, "node");
        line.extend(more.iter().map(|it| (*it).to_owned()));
        let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
        // Opens wait for the node, but not for ever.
        eventually("the node is registered", PATIENCE, async || {
            let log = std::fs::read_to_string(&agent.log).map_err(|it| it.to_string())?;
            if log.contains("registered") { Ok(()) } else { Err(log) }
        })
        .await;
        Self { folder, brief, agent }
    }

    /// What the only session has printed, once it has printed that.
    async fn printed(&self, part: &str) -> String {
        eventually(&format!("it prints {part}"), PATIENCE, async || {
            let sessions = session_folders(&self.folder.path().join("node")).into_iter();
            let text: String = sessions
                .filter_map(|it| std::fs::read_to_string(it.1.join("stdout.log")).ok())
                .collect();
            if text.contains(part) { Ok(text) } else { Err(text) }
        })
        .await
    }

    async fn end(self) {
        assert_eq!(self.agent.end().await, Some(0));
        self.brief.end().await;
    }
}

/// A port that was free a moment ago, as a range, outside of those that others draw.
fn one_port() -> (u16, String) {
    // Tests run in processes of their own.
    let first = 22_000 + u16::try_from(std::process::id() % 7_000).unwrap();
    let free = (first..29_999).find(|it| TcpListener::bind(("127.0.0.1", *it)).is_ok());
    let port = free.expect("a port is free");
    (port, format!("{port}-{port}"))
}

/// Opens a session whose port a stranger takes meanwhile; gives the stranger, and the open, which waits.
async fn late_with_a_stranger(ground: &Ground, port: u16) -> (TcpListener, JoinHandle<()>) {
    let client = ground.brief.client.clone();
    let opened = tokio::spawn(async move {
        // It is told what runs, or why nothing does.
        let _told = client.open(open("s", "late"), CALL).await;
    });
    ground.printed("began").await;
    let stranger = TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    ground.printed("taken").await;
    (stranger, opened)
}

#[tokio::test]
async fn a_session_is_not_ready_while_a_stranger_listens_on_its_port() {
    let (port, range) = one_port();
    let ground = Ground::start(("late", LATE), &["--session-ports", &range]).await;
    let (stranger, opened) = late_with_a_stranger(&ground, port).await;
    let session: Session = eventually("the start is over", PATIENCE, async || {
        let session = read(&ground.brief.client, "s").await.map_err(|it| format!("{it:?}"))?;
        assert_ne!(session.state(), SessionState::Ready, "{session:?}");
        let ended = session.state() == SessionState::Failed;
        if ended { Ok(session) } else { Err(format!("{session:?}")) }
    })
    .await;
    assert_eq!(session.reason(), Reason::StartTimeout, "{session:?}");
    let who = format!("process {} (", std::process::id());
    for part in [&*who, "listens on its port"] {
        assert!(session.detail.contains(part), "{part:?} is not in {:?}", session.detail);
    }
    opened.await.unwrap();
    drop(stranger);
    ground.end().await;
}

#[tokio::test]
async fn a_session_is_ready_once_the_stranger_is_gone_and_it_listens_itself() {
    let (port, range) = one_port();
    let ground = Ground::start(("late", LATE), &["--session-ports", &range]).await;
    let (stranger, opened) = late_with_a_stranger(&ground, port).await;
    drop(stranger);
    let session = becomes(&ground.brief.client, "s", SessionState::Ready).await;
    assert_eq!(session.address, format!("127.0.0.1:{port}"));
    opened.await.unwrap();
    ground.end().await;
}

#[tokio::test]
async fn a_range_without_a_free_port_says_so_and_a_freed_port_is_given_again() {
    let (port, range) = one_port();
    let ground = Ground::start(("parent", PARENT), &["--session-ports", &range]).await;
    let client = &ground.brief.client;
    opened(client, "a", "parent").await;
    let first = becomes(client, "a", SessionState::Ready).await;
    assert_eq!(first.address, format!("127.0.0.1:{port}"), "its child listens");
    let error = client.open(open("b", "parent"), CALL).await.expect_err("there is no port");
    let expected = format!("all 1 ports of --session-ports {range} are taken");
    assert!(error.to_string().contains(&expected), "{error}");
    client.close(rota_tests::sessions::close("a"), CALL).await.unwrap();
    opened(client, "c", "parent").await;
    becomes(client, "c", SessionState::Ready).await;
    ground.end().await;
}

#[tokio::test]
async fn a_class_may_ask_for_ports_by_name_and_one_without_a_port_has_no_address() {
    let ground = Ground::start(("game", GAME), &[]).await;
    opened(&ground.brief.client, "g", "game").await;
    let session = becomes(&ground.brief.client, "g", SessionState::Ready).await;
    assert_eq!(session.address, "", "nobody listens there");
    let said = ground.printed("listening on ").await;
    let port: u16 = said.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((30_000..32_000).contains(&port), "{port}");
    let here = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    here.set_read_timeout(Some(PATIENCE)).unwrap();
    here.send_to(b"who?", ("127.0.0.1", port)).unwrap();
    let mut answer = [0; 100];
    let count = here.recv(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer[..count]), format!("{port} False"));
    ground.end().await;
}
