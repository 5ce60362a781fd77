//! What a class and an open say of a session's life, as far as its node keeps it: times, looks, and use.

use rota_client::v1::{self, Reason, SessionState};
use rota_tests::brief::Brief;
use rota_tests::programs::{running, session_folder};
use rota_tests::sessions::{CALL, becomes, close, open, read};
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A server that stops to answer, or answers badly, when its folder has a file that says so.
const SERVER: &str = r#"
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while os.path.exists("hang"):
            time.sleep(0.05)
        code = 302 if self.path == "/moved" else 500 if os.path.exists("bad") else 200
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
    def log_message(self, *args):
        print("asked", self.path, flush=True)
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"#;

fn server(name: &str, life: &str) -> String {
    format!(
        "name = \"{name}\"\nkind = \"program\"\nargv = [\"python3\", \"-u\", \"-c\", '''{SERVER}''', \"{{ip}}\", \
         \"{{port}}\"]\nstart_timeout = \"30s\"\n{life}\n"
    )
}

struct Scene {
    brief: Brief,
    agent: Launched,
    line: Vec<String>,
    folder: TestFolder,
}

impl Scene {
    async fn of(classes: &[(&str, String)]) -> Self {
        let folder = TestFolder::new();
        let brief = Brief::start(&folder).await;
        let classes: Vec<(&str, &str)> =
            classes.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let line = brief.agent(&folder, &classes_of(&folder, &classes), "node");
        let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
        Self { brief, agent, line, folder }
    }

    fn node(&self) -> PathBuf {
        self.folder.path().join("node")
    }

    async fn ready(&self, id: &str, class: &str) -> v1::Session {
        self.brief.opened(id, class).await;
        becomes(&self.brief.client, id, SessionState::Ready).await
    }

    fn put(&self, id: &str, file: &str) {
        fs::write(session_folder(&self.node(), id).join("work").join(file), "").unwrap();
    }

    async fn unhealthy(&self, id: &str) -> String {
        let ended = becomes(&self.brief.client, id, SessionState::Failed).await;
        assert_eq!(ended.reason(), Reason::Unhealthy, "{ended:?}");
        assert!(!running(&self.node()).contains_key(id), "nothing of it runs");
        ended.detail
    }

    async fn end(self) {
        let node = self.node();
        assert_eq!(self.agent.end().await, Some(0));
        assert!(running(&node).is_empty());
        self.brief.end().await;
    }
}

#[tokio::test]
async fn a_session_that_stops_to_answer_is_ended_as_unhealthy_and_a_well_one_stays() {
    let times = "every = \"100ms\"\ntimeout = \"300ms\"\nfailures = 2\n";
    let http = server("http", &format!("[life.health]\nhttp = \"/alive\"\n{times}"));
    let moved = server("moved", &format!("[life.health]\nhttp = \"/moved\"\n{times}"));
    let scene = Scene::of(&[("http", http), ("moved", moved)]).await;
    for (id, class) in [("hangs", "http"), ("bad", "http"), ("well", "http"), ("moved", "moved")] {
        scene.ready(id, class).await;
    }
    scene.put("hangs", "hang");
    scene.put("bad", "bad");
    let detail = scene.unhealthy("hangs").await;
    assert!(detail.contains("2 looks in a row failed") && detail.contains("300 ms"), "{detail}");
    let detail = scene.unhealthy("bad").await;
    assert!(detail.contains("GET /alive was answered with 500"), "{detail}");
    for id in ["well", "moved"] {
        let log = || fs::read_to_string(session_folder(&scene.node(), id).join("stdout.log"));
        eventually("it was asked again and again", PATIENCE, async || {
            let asked = log().map_err(|it| it.to_string())?.matches("asked").count();
            if asked > 5 { Ok(()) } else { Err(format!("{asked} times")) }
        })
        .await;
        assert_eq!(read(&scene.brief.client, id).await.unwrap().state(), SessionState::Ready);
    }
    scene.end().await;
}

/// Listens until its folder has a file that says no.
const LISTENER: &str = r#"
import os, socket, sys, time
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while not os.path.exists("shut"):
    time.sleep(0.05)
listener.close()
time.sleep(1000)
"#;

#[tokio::test]
async fn a_session_whose_port_takes_no_connection_any_more_is_unhealthy() {
    let text = server("port", "[life.health]\nport = true\nevery = \"100ms\"\nfailures = 2\n");
    let scene = Scene::of(&[("port", text.replace(SERVER, LISTENER))]).await;
    scene.ready("s", "port").await;
    scene.put("s", "shut");
    let detail = scene.unhealthy("s").await;
    assert!(detail.contains("its port takes no connection"), "{detail}");
    scene.end().await;
}

#[tokio::test]
async fn a_program_that_looks_decides_and_a_later_agent_goes_on_looking() {
    let text = "name = \"looked\"\nkind = \"program\"\nargv = [\"sh\", \"-c\", \"echo ready; exec sleep 1000\"]\n\
                ready = { line = \"ready\" }\n[life.health]\n\
                argv = [\"sh\", \"-c\", 'echo $ROTA_SESSION >> looks; test ! -e bad || (echo it is bad >&2; exit 7)']\n\
                every = \"100ms\"\nfailures = 3\n";
    let scene = Scene::of(&[("looked", text.to_owned())]).await;
    scene.ready("s", "looked").await;
    let looks = |scene: &Scene| {
        let file = session_folder(&scene.node(), "s").join("work/looks");
        fs::read_to_string(file).unwrap_or_default().lines().filter(|it| *it == "s").count()
    };
    eventually("it is looked at", PATIENCE, async || {
        let count = looks(&scene);
        if count > 3 { Ok(()) } else { Err(format!("{count} times")) }
    })
    .await;
    let Scene { brief, agent, line, folder } = scene;
    agent.kill().await;
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    let scene = Scene { brief, agent, line, folder };
    let before = looks(&scene);
    eventually("the next agent looks", PATIENCE, async || {
        let count = looks(&scene);
        if count > before + 3 { Ok(()) } else { Err(format!("{count} times")) }
    })
    .await;
    scene.put("s", "bad");
    let detail = scene.unhealthy("s").await;
    assert!(detail.contains("sh ended with exit code 7: it is bad"), "{detail}");
    scene.end().await;
}

#[tokio::test]
async fn an_open_may_shorten_the_start_and_the_grace_of_its_class_also_for_a_later_agent() {
    let stubborn = "name = \"stubborn\"\nkind = \"program\"\ngrace = \"5m\"\nready = { line = \"ready\" }\n\
                    argv = [\"sh\", \"-c\", \"trap '' TERM; echo ready; while :; do sleep 0.1; done\"]\n";
    let never = "name = \"never\"\nkind = \"program\"\nargv = [\"sleep\", \"1000\"]\n\
                 ready = { line = \"ready\" }\nstart_timeout = \"10m\"\n";
    let scene = Scene::of(&[("stubborn", stubborn.into()), ("never", never.into())]).await;
    let life = |start, grace| v1::LifeOptions {
        start_timeout_ms: start,
        close_grace_ms: grace,
        ..Default::default()
    };
    scene.ready("warm", "stubborn").await;
    let asked = v1::OpenRequest { life: Some(life(Some(300), None)), ..open("late", "never") };
    drop(scene.brief.client.open(asked, CALL).await);
    let late = becomes(&scene.brief.client, "late", SessionState::Failed).await;
    assert_eq!(late.reason(), Reason::StartTimeout, "{late:?}");
    assert!(late.detail.contains("start_timeout (300 ms)"), "{}", late.detail);
    let asked = v1::OpenRequest { life: Some(life(None, Some(200))), ..open("s", "stubborn") };
    scene.brief.client.open(asked, CALL).await.unwrap();
    becomes(&scene.brief.client, "s", SessionState::Ready).await;
    let Scene { brief, agent, line, folder } = scene;
    agent.kill().await;
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    let scene = Scene { brief, agent, line, folder };
    drop(scene.brief.client.close(close("s"), CALL).await);
    let closed = becomes(&scene.brief.client, "s", SessionState::Closed).await;
    assert!(closed.detail.contains("grace 200 ms"), "{}", closed.detail);
    let warm = v1::CloseRequest { grace_ms: Some(0), ..close("warm") };
    scene.brief.client.close(warm, CALL).await.unwrap();
    scene.end().await;
}

#[tokio::test]
async fn a_session_is_told_to_be_used_while_somebody_is_connected_to_it() {
    let life = "[life]\nidle = \"4s\"\nidle_connections = true\n";
    let scene = Scene::of(&[("used", server("used", life))]).await;
    let session = scene.ready("s", "used").await;
    let mut connection = TcpStream::connect(&session.address).unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    // Each answer tells how long ago somebody said that the session is used: the node has, after this test did.
    let mut said = Instant::now();
    eventually("its manager hears of the use", PATIENCE, async || {
        if said.elapsed() < Duration::from_millis(1_500) {
            return Err("the node had no time to look".to_owned());
        }
        let asked = v1::KeepAliveRequest { id: "s".into(), ..Default::default() };
        let waited = std::mem::replace(&mut said, Instant::now()).elapsed();
        let answer = scene.brief.client.keep_alive(asked, CALL).await;
        let idle_ms = answer.map_err(|error| format!("{error:?}"))?.idle_ms;
        let by_the_node = idle_ms.is_some_and(|ms| u128::from(ms) + 200 < waited.as_millis());
        if by_the_node { Ok(()) } else { Err(format!("{idle_ms:?} after {waited:?}")) }
    })
    .await;
    scene.end().await;
}
