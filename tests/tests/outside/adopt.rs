//! An agent that dies or is told to go, and the next one of its folder: what runs goes on.

use rota_client::v1::{self, Reason, SessionState, exit};
use rota_tests::brief::Brief;
use rota_tests::processes::{gone, process, send};
use rota_tests::programs::{running, session_folder};
use rota_tests::sessions::{CALL, becomes, close, open, read};
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually};
use rustix::process::Signal;
use std::fs;

/// Ends with code 3 when its folder has a file `end`.
const WAITS: &str = r#"
name = "waits"
kind = "program"
argv = ["sh", "-c", "echo ready; while [ ! -e end ]; do echo beat; sleep 0.05; done; echo over; exit 3"]
ready = { line = "ready" }
"#;

/// Says that it is ready when its folder has a file `go`.
const SLOW: &str = r#"
name = "slow"
kind = "program"
argv = ["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo ready; while :; do sleep 0.05; done"]
ready = { line = "ready" }
start_timeout = "60s"
"#;

const LIGHT: &str = r#"
name = "light"
kind = "machine"
states = ["red", "green", "off"]
initial = "red"
final = ["off"]
events = ["go", "stop"]
report_states = false
transitions = [
    { from = "red", event = "go", to = "green" },
    { from = "green", event = "stop", to = "off" },
]
"#;

const HTTP: &str = include_str!("../../../deploy/classes/http.toml");

struct Scene {
    brief: Brief,
    line: Vec<String>,
    folder: TestFolder,
}

impl Scene {
    async fn start() -> (Self, Launched) {
        let folder = TestFolder::new();
        let brief = Brief::start(&folder).await;
        let all = [("waits", WAITS), ("slow", SLOW), ("light", LIGHT), ("http", HTTP)];
        let classes = classes_of(&folder, &all);
        let line = brief.agent(&folder, &classes, "node");
        let scene = Self { brief, line, folder };
        let agent = scene.agent().await;
        (scene, agent)
    }

    async fn agent(&self) -> Launched {
        Launched::start(&self.folder, "agent", "rota-node-agent", &self.line).await
    }

    async fn ready(&self, id: &str, class: &str) -> v1::Session {
        self.brief.opened(id, class).await;
        becomes(&self.brief.client, id, SessionState::Ready).await
    }

    /// A session that is not ready yet, once its program runs.
    async fn open_only(&self, id: &str, class: &str) {
        let (client, asked) = (self.brief.client.clone(), open(id, class));
        let opening = tokio::spawn(async move { client.open(asked, CALL).await });
        eventually("its program runs", PATIENCE, async || {
            let all = running(&self.folder.path().join("node"));
            if all.contains_key(id) { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
        opening.abort();
    }

    /// Puts a file into the working folder of a session.
    fn put(&self, id: &str, file: &str) {
        let folder = session_folder(&self.folder.path().join("node"), id);
        fs::write(folder.join("work").join(file), "").unwrap();
    }

    fn output(&self, id: &str) -> String {
        let folder = session_folder(&self.folder.path().join("node"), id);
        fs::read_to_string(folder.join("stdout.log")).unwrap()
    }

    /// Keepers and programs.
    fn pids(&self) -> Vec<u32> {
        let all = running(&self.folder.path().join("node"));
        // A loop of a shell starts one process after the other, and each looks like the shell for a moment.
        let lasting = all.into_values().flatten().filter(|it| it.is_keeper() || it.pid == it.group);
        let mut pids: Vec<u32> = lasting.map(|it| it.pid).collect();
        pids.sort_unstable();
        pids
    }

    async fn end(self, agent: Launched) {
        assert_eq!(agent.end().await, Some(0));
        assert!(self.pids().is_empty(), "nothing is left");
        self.brief.end().await;
    }
}

async fn event(brief: &Brief, light: &v1::Session, event: &str) -> v1::SendResponse {
    let (id, event) = (light.id.clone(), event.to_owned());
    let event = v1::SendRequest { id, event, ..Default::default() };
    brief.client.send_event(&light.address, event, CALL).await.unwrap()
}

#[tokio::test]
async fn what_runs_goes_on_when_its_agent_is_killed_and_the_next_one_tells_what_ended_meanwhile() {
    let (scene, agent) = Scene::start().await;
    let web = scene.ready("web", "http").await;
    scene.ready("ends", "waits").await;
    scene.ready("stays", "waits").await;
    let light = scene.ready("light", "light").await;
    assert_eq!(event(&scene.brief, &light, "go").await.to, "green");
    scene.open_only("late", "slow").await;
    let boot = agent.ready["boot"].clone();
    let pids = eventually("four programs run under their keepers", PATIENCE, async || {
        let pids = scene.pids();
        if pids.len() == 8 { Ok(pids) } else { Err(format!("{pids:?}")) }
    })
    .await;
    let log = fs::read_to_string(&agent.log).unwrap();
    assert!(log.contains(": started") && !log.contains(": adopted"), "{log}");
    agent.kill().await;
    scene.put("ends", "end");
    eventually("one ends while there is no agent", PATIENCE, async || {
        let output = scene.output("ends");
        let over = output.contains("over") && scene.pids().len() < pids.len();
        if over { Ok(()) } else { Err(output) }
    })
    .await;
    let before = scene.output("stays");
    let agent = scene.agent().await;
    assert_eq!((&agent.ready["boot"], &agent.ready["adopts"]), (&boot, &5.into()));
    let ended = becomes(&scene.brief.client, "ends", SessionState::Failed).await;
    let how = ended.exit.clone().and_then(|it| it.how);
    assert_eq!((ended.reason(), how), (Reason::Exited, Some(exit::How::Code(3))), "{ended:?}");
    scene.put("late", "go");
    becomes(&scene.brief.client, "late", SessionState::Ready).await;
    let again = read(&scene.brief.client, "web").await.unwrap();
    assert_eq!((again.state(), again.life), (SessionState::Ready, web.life));
    assert_eq!(again.address, web.address);
    // A shell that is about to become another program is seen for a moment.
    eventually("nothing was started again", PATIENCE, async || {
        let now = scene.pids();
        if now.iter().all(|it| pids.contains(it)) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    eventually("its output goes on", PATIENCE, async || {
        let now = scene.output("stays");
        if now.starts_with(&before) && now.len() > before.len() { Ok(()) } else { Err(now) }
    })
    .await;
    let told = fs::read_to_string(&agent.log).unwrap().split_off(log.len());
    let count = |what: &str| told.matches(what).count();
    assert_eq!((count(": adopted"), count(": started")), (3, 0), "{told}");
    let stopped = event(&scene.brief, &light, "stop").await;
    assert_eq!((stopped.to.as_str(), stopped.changes), ("off", 2), "{stopped:?}");
    let keepers: Vec<_> = scene.pids().into_iter().filter_map(process).collect();
    for id in ["web", "stays", "late"] {
        scene.brief.client.close(close(id), CALL).await.unwrap();
        becomes(&scene.brief.client, id, SessionState::Closed).await;
    }
    gone("what was adopted is ended as it was asked", &keepers).await;
    scene.end(agent).await;
}

#[tokio::test]
async fn an_agent_that_is_told_to_leave_what_runs_ends_at_once_and_the_next_one_may_be_told_too() {
    let (scene, mut agent) = Scene::start().await;
    scene.ready("stays", "waits").await;
    let pids = scene.pids();
    for _ in 0..3 {
        send(agent.pid(), Signal::USR2);
        assert_eq!(agent.ended().await, Some(0));
        agent = scene.agent().await;
        assert_eq!(agent.ready["adopts"], 1);
        becomes(&scene.brief.client, "stays", SessionState::Ready).await;
        assert_eq!(scene.pids(), pids);
    }
    eventually("one guardian is left", PATIENCE, async || {
        let all = rota_tests::processes::of_folder(scene.folder.path());
        let lines: Vec<String> = all.iter().map(|it| it.line.join(" ")).collect();
        let guardians = lines.iter().filter(|it| it.contains("guardian")).count();
        if guardians == 1 { Ok(()) } else { Err(format!("{lines:?}")) }
    })
    .await;
    scene.end(agent).await;
}

#[tokio::test]
async fn a_torn_journal_ends_what_runs_and_a_new_boot_begins() {
    let (scene, agent) = Scene::start().await;
    scene.ready("stays", "waits").await;
    let boot = agent.ready["boot"].as_u64().unwrap();
    agent.kill().await;
    let journal = scene.folder.path().join("node/journal");
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() - 2]).unwrap();
    let agent = scene.agent().await;
    assert!(agent.ready["boot"].as_u64().unwrap() > boot, "{}", agent.ready);
    assert_eq!((&agent.ready["adopts"], scene.pids()), (&0.into(), vec![]));
    let lost = becomes(&scene.brief.client, "stays", SessionState::Lost).await;
    assert_eq!(lost.reason(), Reason::NodeLost, "{lost:?}");
    let log = fs::read_to_string(&agent.log).unwrap();
    assert!(log.contains("ends in the middle of a line"), "{log}");
    scene.end(agent).await;
}

#[tokio::test]
async fn without_a_next_agent_everything_ends_with_the_lease_and_its_end_is_told_when_one_comes() {
    let (scene, agent) = Scene::start().await;
    scene.ready("stays", "waits").await;
    let pids: Vec<_> = scene.pids().into_iter().filter_map(process).collect();
    agent.kill().await;
    gone("its keeper ends it with the lease", &pids).await;
    let agent = scene.agent().await;
    let ended = eventually("its end is known", PATIENCE, async || {
        let now = read(&scene.brief.client, "stays").await.map_err(|it| format!("{it:?}"))?;
        if now.state() == SessionState::Ready { Err(format!("{now:?}")) } else { Ok(now) }
    })
    .await;
    // Whoever comes first: the agent's news, or the verdict.
    let reasons = [Reason::LeaseNotRenewed, Reason::NodeLost];
    assert!(reasons.contains(&ended.reason()), "{ended:?}");
    scene.ready("next", "waits").await;
    scene.end(agent).await;
}
