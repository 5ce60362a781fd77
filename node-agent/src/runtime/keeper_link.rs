//! The agent's end of a keeper: starts it, talks to it, and clears up after one that was killed.

use super::orphans::{self, Keepers};
use super::program::ProgramSettings;
use crate::keeper::order::{Command, News, Order, PIDS_FILE, Pids};
use crate::leftovers::DATA_VARIABLE;
use anyhow::Context;
use rota_model::Exit;
use serde::Serialize;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

/// How long a keeper may take to read a line. It does nothing else meanwhile that blocks, so a
/// longer wait means that it is stopped or broken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A running keeper.
pub struct KeeperLink {
    child: Child,
    input: Option<ChildStdin>,
    news: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
    pid: Option<i32>,
    keepers: Keepers,
    /// The program's process group, once the keeper told it.
    group: Option<i32>,
    /// The session's own uid.
    user: Option<u32>,
}

impl KeeperLink {
    /// Starts a keeper, in a process group of its own so that a terminal's Ctrl-C does not reach
    /// it, and gives it the order.
    pub async fn start(order: &Order, settings: &ProgramSettings) -> anyhow::Result<Self> {
        let ProgramSettings { data, keepers, log, .. } = settings;
        let errors = File::create(order.folder.join("keeper.log"))?;
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command
            .arg0("rota-node-agent")
            .arg("keeper")
            .args(log.options())
            .env_clear()
            .env(DATA_VARIABLE, data)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = command.spawn().context("cannot start a keeper")?;
        // Before anything is awaited: whoever looks for strays must not take it for one.
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        pid.iter().for_each(|pid| keepers.add(*pid));
        let input = child.stdin.take();
        let output = child.stdout.take().context("a keeper without output")?;
        let mut link = Self {
            child,
            input,
            news: BufReader::new(output).lines(),
            folder: order.folder.clone(),
            pid,
            keepers: keepers.clone(),
            group: None,
            user: order.own.map(|it| it.user),
        };
        // A keeper that gets no order says so, or ends.
        link.write(order).await;
        Ok(link)
    }

    /// The keeper's pid.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    async fn write(&mut self, value: &impl Serialize) {
        let Some(input) = &mut self.input else { return };
        let mut line = serde_json::to_vec(value).expect("orders and commands have text keys");
        line.push(b'\n');
        let written = tokio::time::timeout(WRITE_TIMEOUT, async {
            input.write_all(&line).await?;
            input.flush().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            self.input = None;
        }
    }

    /// Asks for the end of the program.
    pub async fn stop(&mut self, grace_ms: u64) {
        self.write(&Command::Stop { grace_ms }).await;
    }

    /// What the keeper tells next; `None` once it is gone.
    pub async fn news(&mut self) -> Option<News> {
        let line = self.news.next_line().await.ok()??;
        let news: News = serde_json::from_str(&line).ok()?;
        if let News::Started { pid } = news {
            self.group = Some(pid);
        }
        Some(news)
    }

    /// Kills the keeper itself; the kernel kills the program with it.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        drop(self.child.start_kill());
    }

    /// After the keeper's last news: takes its exit status.
    pub async fn reap(mut self) {
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "a keeper could not be waited for");
        }
        self.pid.iter().for_each(|pid| self.keepers.remove(*pid));
    }

    /// Instead of [`KeeperLink::reap`], when the keeper went without telling the end: ends what is
    /// left of its program, and waits until it is gone. Tells how the program ended, if it ran.
    pub async fn clear_up(mut self) -> Option<Exit> {
        self.kill();
        let group = self.group.or_else(|| {
            let pids = Pids::read(&self.folder).ok()??;
            Some(pids.program?.pid)
        });
        let (folder, keepers, user) = (self.folder.clone(), self.keepers.clone(), self.user);
        self.reap().await;
        let left = orphans::Left { group, user, folder: &folder };
        let exit = orphans::end(left, &keepers).await;
        // Nothing is left that a later agent would have to end.
        drop(fs::remove_file(folder.join(PIDS_FILE)));
        exit
    }
}
