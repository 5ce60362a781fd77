//! Signals that a service manager, a shutdown or an operator sends.

use rota_client::v1::{Reason, SessionState, exit};
use rota_daemon::processes::descendants;
use rota_tests::brief::Brief;
use rota_tests::processes::{process, send};
use rota_tests::programs::session_folders;
use rota_tests::sessions::becomes;
use rota_tests::{Launched, TestFolder, classes_of};
use rustix::process::Signal;
use std::path::Path;

/// Told to end, it takes longer than anybody waits by default, saves, and ends well.
const SAVE: &str = r#"
name = "save"
kind = "program"
argv = ["python3", "-u", "-c", """
import signal, sys, time
def save(*_):
    time.sleep(float(sys.argv[1]))
    print("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
print("ready")
# A signal that comes just before a sleep is handled after it.
while True:
    time.sleep(0.02)
""", "{attr.seconds}"]
attributes = { seconds = "1.5" }
ready = { line = "ready" }
grace = "20s"
"#;

/// An agent with a session of class `save`, `s`.
async fn saving(folder: &TestFolder, brief: &Brief) -> Launched {
    let classes = classes_of(folder, &[("save", SAVE)]);
    let line = brief.agent(folder, &classes, "node");
    let agent = Launched::start(folder, "agent", "rota-node-agent", &line).await;
    brief.opened("s", "save").await;
    becomes(&brief.client, "s", SessionState::Ready).await;
    agent
}

/// Whether the program of the only session said that it saved.
fn has_saved(node: &Path) -> bool {
    let sessions = session_folders(node);
    let log = sessions.first().expect("a session ran").1.join("stdout.log");
    std::fs::read_to_string(log).unwrap().contains("saved")
}

/// Fails unless the program had its time, and its end is told as it was.
async fn expect_saved(folder: &TestFolder, brief: &Brief) {
    assert!(has_saved(&folder.path().join("node")), "it had no time");
    let session = becomes(&brief.client, "s", SessionState::Closed).await;
    assert_eq!(session.reason(), Reason::Drained, "{session:?}");
    let exit = session.exit.clone().and_then(|it| it.how);
    assert_eq!(exit, Some(exit::How::Code(0)), "{session:?}");
}

#[tokio::test]
async fn a_program_has_its_grace_when_all_of_a_service_is_told_to_end_at_once() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let agent = saving(&folder, &brief).await;
    let below = descendants(i32::try_from(agent.pid()).unwrap());
    let pids: Vec<u32> = below.into_iter().map(|it| u32::try_from(it).unwrap()).collect();
    let lines: Vec<String> = pids.iter().map(|it| process(*it).unwrap().line.join(" ")).collect();
    for part in ["keeper", "guardian", "import signal"] {
        assert!(lines.iter().any(|it| it.contains(part)), "{part} is not in {lines:?}");
    }
    // Those below first: an agent that leaves must not be what saves them.
    pids.iter().for_each(|it| send(*it, Signal::TERM));
    assert_eq!(agent.end().await, Some(0));
    expect_saved(&folder, &brief).await;
    brief.end().await;
}

#[tokio::test]
async fn keepers_and_guardian_outlive_the_signals_that_end_others() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let agent = saving(&folder, &brief).await;
    let below = descendants(i32::try_from(agent.pid()).unwrap());
    let pids = below.into_iter().map(|it| u32::try_from(it).unwrap());
    let guards: Vec<_> =
        pids.filter_map(process).filter(|it| it.line[0] == "rota-node-agent").collect();
    assert!(guards.len() >= 2, "{guards:?}");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        guards
            .iter()
            .filter(|it| ["keeper", "guardian"].contains(&&*it.line[1]))
            .for_each(|it| it.signal(signal));
    }
    becomes(&brief.client, "s", SessionState::Ready).await;
    assert!(guards.iter().all(|it| it.runs()), "{guards:?}");
    assert_eq!(agent.end().await, Some(0));
    expect_saved(&folder, &brief).await;
    brief.end().await;
}

#[tokio::test]
async fn an_agent_that_leaves_waits_for_the_grace_of_the_class() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let classes = classes_of(&folder, &[("save", &SAVE.replace("\"1.5\"", "\"8.5\""))]);
    let line = brief.agent(&folder, &classes, "node");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    brief.opened("s", "save").await;
    becomes(&brief.client, "s", SessionState::Ready).await;
    assert_eq!(agent.end().await, Some(0));
    expect_saved(&folder, &brief).await;
    brief.end().await;
}
