//! One process of Rota alone: started until it says that it is ready, or run to its end.

use crate::folder::TestFolder;
use crate::processes;
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long a process may take to become ready, or to end.
const WAIT: Duration = Duration::from_secs(60);

/// A process that ran to its end.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

impl Ended {
    /// Fails unless the process ended with this code and said all of these on stderr.
    pub fn expect_refusal(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "stderr: {}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in: {}", self.stderr);
        }
    }
}

/// Runs a program of Rota to its end. Fails when it is still running after a minute: a start that
/// should have been refused was not.
pub async fn run_to_end<S: AsRef<str>>(program: &str, arguments: &[S]) -> Ended {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let mut command = Command::new(crate::binary(program));
    let output = command.args(&arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(WAIT, output).await;
    let output = output.unwrap_or_else(|_| panic!("{program} {arguments:?} did not end"));
    let output = output.expect("the program starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A process that said that it is ready. It is killed when this is dropped.
#[derive(Debug)]
pub struct Launched {
    /// What it said.
    pub ready: Value,
    /// What it writes to stderr.
    pub log: PathBuf,
    child: Child,
}

impl Launched {
    /// Starts a program and waits for its ready line. Its log goes to `NAME.log` in the folder.
    pub async fn start<S: AsRef<str>>(
        folder: &TestFolder,
        name: &str,
        program: &str,
        arguments: &[S],
    ) -> Self {
        let mut command = Command::new(crate::binary(program));
        command.args(arguments.iter().map(AsRef::as_ref));
        Self::ready(folder, name, command).await
    }

    /// Starts again what once ran with this command line.
    pub async fn again(folder: &TestFolder, name: &str, line: &[String]) -> Self {
        let (program, arguments) = line.split_first().expect("a command line has a program");
        let mut command = Command::new(program);
        command.args(arguments);
        Self::ready(folder, name, command).await
    }

    async fn ready(folder: &TestFolder, name: &str, mut command: Command) -> Self {
        let log = folder.path().join(format!("{name}.log"));
        let file = std::fs::File::options().create(true).append(true).open(&log);
        command.env("ROTA_TEST_FOLDER", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command.stderr(file.expect("the log can be written"));
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let line = timeout(WAIT, lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{name} said nothing within {WAIT:?}"));
        let Ok(Some(line)) = line else {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("{name} ended before it was ready: {log}");
        };
        let ready: Value = serde_json::from_str(&line).expect("the ready line is JSON");
        assert_eq!(ready["ready"], true, "{name} said {line}");
        Self { ready, log, child }
    }

    /// A text of its ready line.
    pub fn told(&self, field: &str) -> &str {
        self.ready[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.ready))
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end and gives its exit code.
    pub async fn end(mut self) -> Option<i32> {
        processes::send(self.pid(), Signal::TERM);
        let status = timeout(WAIT, self.child.wait()).await.expect("it ends when it is asked to");
        status.expect("a child can be waited for").code()
    }

    /// Waits until it has ended by itself, and gives its exit code.
    pub async fn ended(mut self) -> Option<i32> {
        let status = timeout(WAIT, self.child.wait()).await.expect("it ends by itself");
        status.expect("a child can be waited for").code()
    }

    /// Kills it and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("a child can be killed");
    }
}
