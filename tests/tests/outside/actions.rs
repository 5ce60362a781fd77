//! Actions of sessions, each end that one can have: real programs under a real agent.

use super::acting::{Ran, act};
use rota_client::v1::SessionState;
use rota_tests::brief::Brief;
use rota_tests::processes::{Process, of_folder, send};
use rota_tests::programs::{running, session_folder};
use rota_tests::sessions::{CALL, becomes, close};
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const ACTS: &str = r#"
name = "acts"
kind = "program"
argv = ["sh", "-c", "echo ready; exec sleep 1000"]
env = { OWN = "{attr.colour}" }
attributes = { colour = "red" }
ready = { line = "ready" }
life.cycles.hoards.memory_mib = 64
"#;

/// Life cycle and program.
const PROGRAMS: [(&str, &str); 10] = [
    ("tells", "cat > got.json; env > got.env; pwd > got.pwd; echo $# > got.args; echo '{\"a\":1}'"),
    ("fails", "echo no paper >&2; exit 3"),
    ("dies", "kill -9 $$"),
    ("hangs", "sleep 1000 & exec sleep 1000"),
    ("floods", "exec yes"),
    ("shouts", "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo last words >&2; exit 4"),
    ("forks", "setsid sleep 1000 & sleep 1000 & exit 0"),
    ("deaf", "exit 0"),
    ("odd", "printf '\\377'"),
    ("hoards", "exec tail /dev/zero"),
];

struct Scene {
    brief: Brief,
    agent: Launched,
    line: Vec<String>,
    folder: TestFolder,
}

/// Processes of a session's actions: what was started with the variable that only actions have.
fn acting(folder: &TestFolder, id: &str) -> Vec<Process> {
    let all = running(&folder.path().join("node")).remove(id).unwrap_or_default();
    all.into_iter().filter(|it| it.variable("ROTA_LIFE_CYCLE").is_some()).collect()
}

impl Scene {
    async fn with(flags: &[&str]) -> Self {
        Self::of(ACTS, flags).await
    }

    async fn of(class: &str, flags: &[&str]) -> Self {
        let folder = TestFolder::new();
        let brief = Brief::start(&folder).await;
        let classes = classes_of(&folder, &[("acts", class)]);
        let actions = folder.path().join("classes/acts/actions");
        fs::create_dir_all(&actions).unwrap();
        for (name, text) in PROGRAMS {
            fs::write(actions.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(actions.join(name), Permissions::from_mode(0o755)).unwrap();
        }
        // Programs with a user of their own pass through.
        for folder in [folder.path().to_owned(), folder.path().join("classes/acts"), actions] {
            fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        }
        let mut line = brief.agent(&folder, &classes, "node");
        line.extend(flags.iter().map(|it| (*it).to_owned()));
        let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
        Self { brief, agent, line, folder }
    }

    async fn start() -> Self {
        Self::with(&[]).await
    }

    fn node(&self) -> PathBuf {
        self.folder.path().join("node")
    }

    async fn ready(&self, id: &str) -> Ran {
        self.brief.opened(id, "acts").await;
        becomes(&self.brief.client, id, SessionState::Ready).await;
        Ran::of(&self.node(), id)
    }

    fn work(&self, id: &str, file: &str) -> String {
        fs::read_to_string(session_folder(&self.node(), id).join("work").join(file)).unwrap()
    }

    fn acting(&self, id: &str) -> Vec<Process> {
        acting(&self.folder, id)
    }

    /// Waits until an action of the session runs.
    async fn acts(&self, id: &str) {
        eventually("an action runs", PATIENCE, async || {
            let all = self.acting(id);
            let runs = all.iter().any(|it| it.line.first().is_some_and(|it| it == "sleep"));
            if runs { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
    }

    async fn end(self) {
        assert_eq!(self.agent.end().await, Some(0));
        self.brief.end().await;
    }
}

#[tokio::test]
async fn an_action_is_told_what_it_is_about_and_what_it_prints_is_its_answer() {
    let scene = Scene::start().await;
    let ran = scene.ready("s").await;
    let mut asked = ran.act("tells", "paid@270101000000000");
    let document = r#"{"attributes":{"colour":"blue"},"id":"s"}"#;
    (asked.failures, asked.document) = (2, document.to_owned());
    let end = act(&scene.agent, asked).await;
    assert_eq!(end, ("DONE".to_owned(), "{\"a\":1}\n".to_owned()));
    assert_eq!(scene.work("s", "got.json"), format!("{document}\n"));
    assert_eq!(scene.work("s", "got.args"), "0\n");
    assert_eq!(PathBuf::from(scene.work("s", "got.pwd").trim()).file_name().unwrap(), "work");
    let env = scene.work("s", "got.env");
    for line in [
        "ROTA_SESSION=s",
        "ROTA_NAMESPACE=default",
        "ROTA_LIFE_CYCLE=tells",
        "ROTA_EVENT=paid",
        "ROTA_EVENT_WORD=paid@270101000000000",
        "ROTA_ATTEMPT=3",
        "ROTA_ATTRIBUTES={\"colour\":\"blue\"}",
        "OWN=red",
        &format!("ROTA_LIFE={}", ran.life),
    ] {
        assert!(env.lines().any(|it| it == line), "{line} in:\n{env}");
    }
    let known = ["PATH", "LANG", "TZ", "HOME", "TMPDIR", "OWN", "PWD", "SHLVL", "OLDPWD", "_"];
    let is_known = |it: &str| known.contains(&it) || it.starts_with("ROTA_");
    assert!(env.lines().all(|it| is_known(it.split('=').next().unwrap())), "{env}");
    scene.end().await;
}

#[tokio::test]
async fn every_end_of_an_action_is_told_and_nothing_of_it_is_left() {
    let scene = Scene::start().await;
    let ran = scene.ready("s").await;
    let ask = async |cycle: &str| {
        let end = act(&scene.agent, ran.act(cycle, "x")).await;
        assert!(scene.acting("s").is_empty(), "{cycle}: {:?}", scene.acting("s"));
        end
    };
    assert_eq!(ask("fails").await, ("EXIT-3".to_owned(), "no paper".to_owned()));
    assert_eq!(ask("dies").await, ("SIGNAL-9".to_owned(), String::new()));
    assert_eq!(ask("forks").await, ("DONE".to_owned(), String::new()));
    let (code, report) = ask("floods").await;
    assert_eq!((code.as_str(), report.contains("more than 131072 bytes")), ("OUTPUT", true));
    let (code, report) = ask("shouts").await;
    assert_eq!(code, "EXIT-4");
    assert!(report.ends_with("xlast words") && report.len() <= 4096, "{}", report.len());
    assert_eq!(ask("odd").await.0, "OUTPUT");
    let (code, report) = ask("hoards").await;
    assert_eq!((code.as_str(), report.contains("may have 64 MiB (memory_mib)")), ("EXIT-1", true));
    assert!(report.contains("memory exhausted"), "{report}");
    let mut late = ran.act("hangs", "x");
    late.timeout_ms = 300;
    assert_eq!(act(&scene.agent, late).await.0, "TIMEOUT");
    assert!(scene.acting("s").is_empty(), "{:?}", scene.acting("s"));
    let mut long = ran.act("deaf", "x");
    long.document = format!("\"{}\"", "x".repeat(1_000_000));
    assert_eq!(act(&scene.agent, long).await, ("DONE".to_owned(), String::new()));
    let left = fs::read_dir(session_folder(&scene.node(), "s")).unwrap().flatten();
    assert!(left.into_iter().all(|it| it.path().extension().is_none_or(|it| it != "in")));
    scene.end().await;
}

#[tokio::test]
async fn an_action_whose_minder_is_killed_is_killed_too_and_told_so() {
    let scene = Scene::start().await;
    let ran = scene.ready("s").await;
    let kills = async {
        scene.acts("s").await;
        let all = of_folder(&scene.node());
        let minder = all.iter().find(|it| it.line.get(1).is_some_and(|it| it == "once"));
        minder.unwrap_or_else(|| panic!("no minder: {all:?}")).signal(Signal::KILL);
    };
    let (end, ()) = tokio::join!(act(&scene.agent, ran.act("hangs", "x")), kills);
    assert_eq!((end.0.as_str(), end.1.contains("its minder was killed")), ("SIGNAL-9", true));
    assert!(scene.acting("s").is_empty(), "{:?}", scene.acting("s"));
    assert_eq!(act(&scene.agent, ran.act("deaf", "x")).await.0, "DONE", "the session goes on");
    scene.end().await;
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_told_as_not_started() {
    let scene = Scene::start().await;
    let ran = scene.ready("s").await;
    let actions = scene.folder.path().join("classes/acts/actions");
    fs::set_permissions(actions.join("tells"), Permissions::from_mode(0o644)).unwrap();
    let (code, report) = act(&scene.agent, ran.act("tells", "x")).await;
    assert_eq!((code.as_str(), report.contains("is not executable")), ("NOT-STARTED", true));
    fs::write(actions.join("deaf"), "#!/no/such/interpreter\n").unwrap();
    let (code, report) = act(&scene.agent, ran.act("deaf", "x")).await;
    assert_eq!((code.as_str(), report.contains("cannot run")), ("NOT-STARTED", true), "{report}");
    for cycle in ["none", "../actions/fails"] {
        assert_eq!(act(&scene.agent, ran.act(cycle, "x")).await.0, "NOT-STARTED", "{cycle}");
    }
    scene.end().await;
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_action() {
    let scene = Scene::start().await;
    let ran = scene.ready("s").await;
    let hangs = act(&scene.agent, ran.act("hangs", "x"));
    let closes = async {
        scene.acts("s").await;
        scene.brief.client.close(close("s"), CALL).await.unwrap();
        assert!(scene.acting("s").is_empty(), "{:?}", scene.acting("s"));
    };
    let (end, ()) = tokio::join!(hangs, closes);
    assert_eq!(end.0, "NOT-RUNNING");
    assert_eq!(act(&scene.agent, ran.act("deaf", "x")).await.0, "NOT-RUNNING");
    scene.end().await;
}

#[tokio::test]
async fn an_action_ends_with_its_agent_and_runs_again_when_the_next_one_is_asked() {
    let scene = Scene::start().await;
    let ran = scene.ready("s").await;
    tokio::select! {
        end = act(&scene.agent, ran.act("hangs", "x")) => panic!("{end:?}"),
        () = scene.acts("s") => {}
    }
    let Scene { brief, agent, line, folder } = scene;
    agent.kill().await;
    eventually("nothing of the action is left", PATIENCE, async || {
        let all = acting(&folder, "s");
        if all.is_empty() { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    assert!(running(&folder.path().join("node")).contains_key("s"), "its program goes on");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    let scene = Scene { brief, agent, line, folder };
    eventually("the session goes on, and so do its actions", PATIENCE, async || {
        let end = act(&scene.agent, ran.act("fails", "x")).await;
        if end.0 == "EXIT-3" { Ok(()) } else { Err(format!("{end:?}")) }
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn what_an_action_left_when_agent_and_minder_were_killed_at_once_ends_with_its_session() {
    // Without a namespace, which the kernel would end.
    let scene = Scene::of(&format!("{ACTS}sandbox = \"none\"\n"), &[]).await;
    let ran = scene.ready("s").await;
    tokio::select! {
        end = act(&scene.agent, ran.act("hangs", "x")) => panic!("{end:?}"),
        () = scene.acts("s") => {}
    }
    let Scene { brief, agent, line, folder } = scene;
    let of_once = |it: &Process| it.line.get(1).is_some_and(|it| it == "once");
    let minders = of_folder(&folder.path().join("node")).into_iter().filter(of_once);
    let minders: Vec<Process> = minders.collect();
    assert_eq!(minders.len(), 1);
    // Neither has time to do anything.
    send(agent.pid(), Signal::STOP);
    minders[0].signal(Signal::KILL);
    agent.kill().await;
    assert!(!acting(&folder, "s").is_empty(), "what the action forked runs on");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    let scene = Scene { brief, agent, line, folder };
    scene.brief.client.close(close("s"), CALL).await.unwrap();
    assert!(scene.acting("s").is_empty(), "{:?}", scene.acting("s"));
    scene.end().await;
}

#[tokio::test]
async fn one_action_runs_at_a_time_on_a_node_that_says_so_and_none_where_none_may() {
    let scene = Scene::with(&["--actions-max", "1"]).await;
    let (first, second) = (scene.ready("a").await, scene.ready("b").await);
    let mut hangs = first.act("hangs", "x");
    hangs.timeout_ms = 2_000;
    let waits = async {
        scene.acts("a").await;
        act(&scene.agent, second.act("fails", "x")).await
    };
    let began = std::time::Instant::now();
    let (slow, quick) = tokio::join!(act(&scene.agent, hangs), waits);
    assert_eq!((slow.0.as_str(), quick.0.as_str()), ("TIMEOUT", "EXIT-3"));
    assert!(began.elapsed().as_millis() >= 2_000, "it waited for the first");
    scene.end().await;
    let scene = Scene::with(&["--no-actions"]).await;
    let ran = scene.ready("s").await;
    let (code, report) = act(&scene.agent, ran.act("fails", "x")).await;
    assert_eq!((code.as_str(), report.contains("--no-actions")), ("NOT-STARTED", true));
    scene.end().await;
}

#[tokio::test]
async fn an_action_for_which_a_node_has_no_room_for_long_is_given_back_and_runs_when_there_is_some()
{
    let scene = Scene::with(&["--actions-max", "1"]).await;
    let (first, second) = (scene.ready("a").await, scene.ready("b").await);
    let mut hangs = first.act("hangs", "x");
    hangs.timeout_ms = 60_000;
    let waits = async {
        scene.acts("a").await;
        let mut short = second.act("fails", "x");
        short.timeout_ms = 100;
        act(&scene.agent, short).await
    };
    let busy = tokio::select! {
        end = act(&scene.agent, hangs) => panic!("{end:?}"),
        busy = waits => busy,
    };
    assert_eq!((busy.0.as_str(), busy.1.contains("--actions-max")), ("BUSY", true), "{busy:?}");
    scene.brief.client.close(close("a"), CALL).await.unwrap();
    assert_eq!(act(&scene.agent, second.act("fails", "x")).await.0, "EXIT-3");
    scene.end().await;
}
