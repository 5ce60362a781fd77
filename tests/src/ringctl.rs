//! `ringctl`, run to its end.

use crate::folder::TestFolder;
use serde_json::Value;
use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// How long one command may take; it only ends what hangs.
const WAIT: Duration = Duration::from_secs(90);

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

impl Ran {
    /// Fails unless the command succeeded.
    pub fn expect_success(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// The one document on stdout of a command that succeeded.
    pub fn json(self) -> Value {
        let ran = self.expect_success();
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
    }

    /// The error document on stderr of a command (with `-o json`) that failed.
    pub fn error(self) -> Value {
        assert_eq!(self.code, 1, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "", "nothing but data goes to stdout");
        let error: Value = serde_json::from_str(&self.stderr)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stderr));
        error["error"].clone()
    }
}

/// Runs `ringctl` at these endpoints (by the environment, so that options come first).
pub async fn ringctl(endpoints: &str, arguments: &[&str]) -> Ran {
    run(("ROTA_ENDPOINT", endpoints.as_ref()), arguments).await
}

/// Runs a command of `ringctl` that starts processes of its own: they are found by the folder.
pub async fn ringctl_in(folder: &TestFolder, arguments: &[&str]) -> Ran {
    run(("ROTA_TEST_FOLDER", folder.path().as_os_str()), arguments).await
}

async fn run((variable, value): (&str, &OsStr), arguments: &[&str]) -> Ran {
    let mut command = Command::new(crate::binary("ringctl"));
    command.env(variable, value).args(arguments);
    to_end(command, &format!("ringctl {arguments:?}")).await
}

/// Runs a command to its end, and ends it when that takes too long.
pub(crate) async fn to_end(mut command: Command, what: &str) -> Ran {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(WAIT, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{what} did not end"));
    let output = output.unwrap_or_else(|error| panic!("{what}: {error}"));
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
