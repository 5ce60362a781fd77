//! A command of `ringctl` that runs until it is told to end, such as a watch.

use crate::processes;
use crate::ringctl::Ran;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// How long a line, or the end, may take; it only ends what hangs.
const WAIT: Duration = Duration::from_secs(60);

/// A command that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Following {
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Following {
    /// Starts `ringctl` at these endpoints.
    pub fn start(endpoints: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(crate::binary("ringctl"));
        command.env("ROTA_ENDPOINT", endpoints).args(arguments).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("ringctl starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        Self { lines: BufReader::new(stdout).lines(), child }
    }

    /// The next line.
    pub async fn line(&mut self) -> String {
        let line = timeout(WAIT, self.lines.next_line()).await.expect("a line comes in time");
        line.expect("stdout can be read").expect("the command goes on")
    }

    /// The next line, which is a document.
    pub async fn json(&mut self) -> Value {
        let line = self.line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Sends a signal and waits for the end; gives what was not read yet.
    pub async fn end(self, signal: Signal) -> Ran {
        processes::send(self.child.id().expect("it was not waited for"), signal);
        self.over().await
    }

    /// Waits until it ends by itself; gives what was not read yet.
    pub async fn over(mut self) -> Ran {
        let mut stderr = self.child.stderr.take().expect("stderr is piped");
        let ended = async {
            let (mut rest, mut errors) = (String::new(), String::new());
            while let Some(line) = self.lines.next_line().await.expect("stdout can be read") {
                rest.push_str(&line);
                rest.push('\n');
            }
            stderr.read_to_string(&mut errors).await.expect("stderr can be read");
            let status = self.child.wait().await.expect("a child can be waited for");
            Ran { code: status.code().unwrap_or(-1), stdout: rest, stderr: errors }
        };
        timeout(WAIT, ended).await.expect("it ends in time")
    }
}
