//! The embedded store's process, as tests start and end it.

use crate::conformance::{PATIENCE, name};
use rota_membership::EmbeddedStore;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A data folder; kept when its test fails.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("config-store-").tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The store's file.
    pub fn file(&self) -> PathBuf {
        self.path().join("config-store.log")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.disable_cleanup(true);
            eprintln!("kept {}", self.path().display());
        }
    }
}

/// How a process ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
}

/// A store that runs; killed when dropped.
pub struct StoreProcess {
    child: Child,
    stderr: JoinHandle<String>,
    pub address: String,
}

/// `rota-config-store` for cluster `suite` with this folder; later flags in `more`.
pub fn command(folder: &Folder, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rota-config-store"));
    command.arg("--data").arg(folder.path()).args(more);
    if !more.contains(&"--cluster") {
        command.args(["--cluster", "suite"]);
    }
    command
}

fn spawn(mut command: Command) -> (Child, JoinHandle<String>) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("the program starts");
    let mut stderr = child.stderr.take().unwrap();
    let reader = tokio::spawn(async move {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).await.unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    (child, reader)
}

/// Runs a command that ends by itself.
pub async fn run(command: Command) -> Ended {
    let (mut child, stderr) = spawn(command);
    let status = timeout(PATIENCE, child.wait()).await.expect("it ends by itself").unwrap();
    Ended { status, stderr: stderr.await.unwrap() }
}

impl StoreProcess {
    pub async fn start(folder: &Folder, more: &[&str]) -> Self {
        Self::start_command(command(folder, more)).await
    }

    /// Starts a command and waits until it says that it listens.
    pub async fn start_command(command: Command) -> Self {
        let (mut child, stderr) = spawn(command);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("it says something").unwrap();
        let Some(line) = line else {
            let status = child.wait().await.unwrap();
            panic!("{status}: {}", stderr.await.unwrap());
        };
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ready["ready"], true);
        assert_eq!(ready["pid"], child.id().unwrap());
        let address = ready["address"].as_str().unwrap().to_owned();
        Self { child, stderr, address }
    }

    pub fn client(&self) -> EmbeddedStore {
        EmbeddedStore::new(&self.address, name("suite"), PATIENCE).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it was not awaited")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// kill -9.
    pub async fn kill(self) {
        self.end(Signal::KILL).await;
    }

    pub async fn end(self, signal: Signal) -> Ended {
        self.signal(signal);
        self.ended().await
    }

    /// Waits until it has ended by itself.
    pub async fn ended(mut self) -> Ended {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        Ended { status, stderr: self.stderr.await.unwrap() }
    }
}
