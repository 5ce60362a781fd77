//! A node-agent process.

use crate::waiting::{LIMIT, children_of, running_for, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Class files of the tests. What writes its pids runs as the node's user: in a namespace of its own it would
/// know others, and tests of that are black-box tests.
const CLASSES: &[(&str, &str)] = &[
    (
        "http.toml",
        r#"name = "http"
kind = "program"
argv = ["python3", "-u", "-m", "http.server", "{port}", "--bind", "127.0.0.1", "--directory", "{folder}"]
start_timeout = "30s"
grace = "2s""#,
    ),
    (
        "family.toml",
        r#"name = "family"
kind = "program"
sandbox = "none"
argv = ["sh", "-c", """
    echo $$ > pids; sleep 1000 & echo $! >> pids
    setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
    while [ "$(wc -l < pids)" -lt 3 ]; do sleep 0.01; done
    echo up; wait"""]
port = true
ready = { line = "up" }
grace = "1s""#,
    ),
    (
        "bare.toml",
        r#"name = "bare"
kind = "program"
sandbox = "none"
argv = ["sh", "-c", """
    echo $$ > pids; env -i /bin/sleep 1000 & echo $! >> pids
    sleep 1000 & echo $! >> pids
    echo up; wait"""]
ready = { line = "up" }"#,
    ),
    (
        "stubborn.toml",
        r#"name = "stubborn"
kind = "program"
sandbox = "none"
argv = ["sh", "-c", "trap 'echo term >> signs' TERM; echo $$ > pids; echo up; while :; do sleep 0.02; done"]
ready = { line = "up" }
grace = "1m""#,
    ),
    (
        "brief.toml",
        r#"name = "brief"
kind = "program"
argv = ["sh", "-c", "echo up; while [ ! -e stop ]; do sleep 0.02; done; exit 5"]
ready = { line = "up" }"#,
    ),
    (
        "broken.toml",
        r#"name = "broken"
kind = "program"
argv = ["sh", "-c", 'echo no such thing as "$1" >&2; exit 4', "sh", "{attr.thing}"]
ready = { line = "up" }"#,
    ),
    (
        "slow.toml",
        r#"name = "slow"
kind = "program"
sandbox = "none"
argv = ["sh", "-c", "echo $$ > pids; sleep 1000", "{port}"]
start_timeout = "300ms""#,
    ),
    (
        "missing.toml",
        r#"name = "missing"
kind = "program"
argv = ["./no-such-program-here", "{port}"]"#,
    ),
    (
        "door.toml",
        r#"name = "door"
kind = "machine"
states = ["open", "shut", "gone"]
initial = "shut"
final = ["gone"]
events = ["push", "pull", "burn"]
transitions = [
    { from = "shut", event = "push", to = "open" },
    { from = "open", event = "pull", to = "shut" },
    { from = ["open", "shut"], event = "burn", to = "gone" },
]"#,
    ),
];

/// A node's data folder and class folder; several agents may run on it one after another.
pub struct Home {
    folder: TempDir,
}

impl Home {
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let classes = folder.path().join("classes");
        fs::create_dir(&classes).unwrap();
        for (file, text) in CLASSES {
            fs::write(classes.join(file), text).unwrap();
        }
        Self { folder }
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn classes(&self) -> PathBuf {
        self.folder.path().join("classes")
    }

    /// The working folder of a session's program.
    pub fn work(&self, id: &str) -> PathBuf {
        let lives = fs::read_dir(self.data().join("sessions/default").join(id)).unwrap().flatten();
        let newest = lives.map(|it| it.path()).max();
        newest.expect("a session's folder").join("work")
    }

    /// Starts `rota-node-agent run` with this home.
    pub fn command(&self, managers: &str, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rota-node-agent"));
        command
            .args(["run", "--id", "n1", "--managers", managers, "--log", "debug,h2=info"])
            .arg("--data")
            .arg(self.data())
            .arg("--classes")
            .arg(self.classes())
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub async fn start(&self, managers: &str, flags: &[&str]) -> Agent {
        Self::started(self.command(managers, flags)).await
    }

    /// The same with what it logs in a file, a document a line.
    pub async fn start_logging_to(&self, managers: &str, log: &Path) -> Agent {
        let mut command = self.command(managers, &["--log-format", "json"]);
        command.stderr(fs::File::create(log).unwrap());
        Self::started(command).await
    }

    async fn started(mut command: Command) -> Agent {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = next(&mut lines).await;
        assert_eq!(ready["ready"], true);
        assert_eq!(ready["pid"], child.id().unwrap());
        Agent { child, lines, ready }
    }

    /// Waits until no keeper and no program of this node does anything.
    pub async fn until_empty(&self) {
        let data = self.data();
        until("the end of all keepers and programs", || {
            running_for(&data).into_iter().all(is_guardian).then_some(())
        })
        .await;
    }
}

/// Programs outlive an agent that a failed test kills: they are ended by their folder.
impl Drop for Home {
    fn drop(&mut self) {
        for pid in running_for(&self.data()) {
            kill(pid);
        }
    }
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = tokio::time::timeout(LIMIT, lines.next_line()).await;
    let line = line.expect("a line in time").unwrap().expect("a line before the end");
    serde_json::from_str(&line).unwrap()
}

/// A running agent.
pub struct Agent {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub ready: Value,
}

impl Agent {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("it runs")).unwrap()
    }

    pub async fn line(&mut self) -> Value {
        next(&mut self.lines).await
    }

    /// The pid of its guardian, once that is one.
    pub async fn guardian(&self) -> i32 {
        let pid = self.pid();
        until("a guardian", || children_of(pid).into_iter().find(|it| is_guardian(*it))).await
    }

    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to leave and waits for its end.
    pub async fn leave(mut self) -> ExitStatus {
        signal(self.pid(), Signal::TERM);
        tokio::time::timeout(LIMIT, self.child.wait()).await.expect("an end in time").unwrap()
    }
}

/// One that only waits to be reaped has no command line.
fn is_guardian(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"guardian")
}

pub fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Kills a process that may be gone already.
pub fn kill(pid: i32) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

/// The pid of the keeper of the session in that working folder.
pub fn keeper_of(work: &Path) -> i32 {
    let text = fs::read(work.parent().unwrap().join("pids.json")).unwrap();
    let pids: Value = serde_json::from_slice(&text).unwrap();
    i32::try_from(pids["keeper"]["pid"].as_i64().unwrap()).unwrap()
}
