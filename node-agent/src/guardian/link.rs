//! The agent's end of its guardian: starts it, starts another when it is killed, and lets it go.

use super::LEASE_VARIABLE;
use crate::leftovers::DATA_VARIABLE;
use crate::runtime::Keepers;
use anyhow::Context;
use rota_daemon::Log;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// Least time between two starts, so that one that cannot run does not keep the machine busy.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a guardian may take to end after an agent that has left. It ends at once when no session
/// is left, and is left alone otherwise: then it still has work.
const END: Duration = Duration::from_secs(1);

/// A guardian, for as long as the agent lives.
pub struct GuardianLink {
    leave: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl GuardianLink {
    /// Starts the first one.
    pub fn start(
        data: &Path,
        lease_ms_max: u64,
        keepers: &Keepers,
        log: &Log,
    ) -> anyhow::Result<Self> {
        let (data, keepers, log) = (data.to_owned(), keepers.clone(), log.clone());
        let place = Place { data, lease_ms_max, keepers, log };
        let first = Guardian::start(&place)?;
        let (leave, leaves) = oneshot::channel();
        let task = tokio::spawn(keep(place, first, leaves));
        Ok(Self { leave, task })
    }

    /// The agent leaves, and everything that can be ended has been.
    pub async fn leave(self) {
        // A task that is gone has no guardian either.
        let _gone = self.leave.send(());
        let _late = timeout(END, self.task).await;
    }
}

/// What every guardian of an agent needs.
struct Place {
    data: PathBuf,
    /// No lease of this node goes on for longer.
    lease_ms_max: u64,
    keepers: Keepers,
    log: Log,
}

async fn keep(place: Place, first: Guardian, leaves: oneshot::Receiver<()>) {
    tokio::pin!(leaves);
    let (mut guardian, mut began) = (first, Instant::now());
    loop {
        tokio::select! {
            () = guardian.reap(&place.keepers) => {
                tracing::warn!("the guardian was ended; another one is started");
            }
            _ = &mut leaves => {
                drop(guardian.input.take());
                return guardian.reap(&place.keepers).await;
            }
        }
        guardian = loop {
            tokio::select! {
                () = sleep_until(began + PAUSE) => {}
                _ = &mut leaves => return,
            }
            began = Instant::now();
            match Guardian::start(&place) {
                Ok(next) => break next,
                Err(error) => tracing::error!("{error:#}"),
            }
        };
    }
}

/// A running guardian.
struct Guardian {
    child: Child,
    /// Closed by the agent's end, however it comes.
    input: Option<ChildStdin>,
    pid: Option<i32>,
}

impl Guardian {
    /// In a process group of its own, so that a terminal's Ctrl-C does not reach it, and without a
    /// pipe that somebody reads to its end.
    fn start(place: &Place) -> anyhow::Result<Self> {
        let Place { data, lease_ms_max, keepers, log } = place;
        let start = || {
            let errors = File::create(data.join("guardian.log"))?;
            let mut command = Command::new("/proc/self/exe");
            command
                .arg0("rota-node-agent")
                .arg("guardian")
                .args(log.options())
                .env_clear()
                .env(DATA_VARIABLE, data)
                .env(LEASE_VARIABLE, lease_ms_max.to_string())
                .current_dir("/")
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(errors);
            command.spawn()
        };
        let mut child = start().context("cannot start the guardian")?;
        // Before anything is awaited: whoever looks for strays must not take it for one.
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        pid.iter().for_each(|pid| keepers.add(*pid));
        let input = child.stdin.take();
        Ok(Self { child, input, pid })
    }

    /// Resolves when it has ended.
    async fn reap(&mut self, keepers: &Keepers) {
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "the guardian could not be waited for");
        }
        self.pid.iter().for_each(|pid| keepers.remove(*pid));
    }
}
