//! Tasks whose work is a program or a call, between the decisions and the world.
//!
//! ```text
//!  Effect::RunTask ──▶ exec ──▶ a process group of its own ──┐
//!                  ├─▶ http ──▶ a request ───────────────────┼──▶ Input::TaskRan
//!                  └─▶ grpc ──▶ a unary call ────────────────┘
//!  Effect::StopTask ─▶ the work is dropped: programs are killed, connections closed
//!  Effect::TaskGivenUp ─▶ hook ─▶ a program of the administrator's, or the log
//! ```
//!
//! The decisions start no more of them than queues have workers. Each ends at its quota, and all with the manager.

mod exec;
mod grpc;
mod headers;
mod hook;
mod http;
mod target;

pub use target::Target;

use crate::mailbox::Mailbox;
use hook::Hook;
use http::HttpClients;
use rota_model::ManagerNumber;
use rota_protocol::outside::Outside;
use rota_protocol::{Input, TaskJob, TaskOutcome};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The code of work that did not end within its quota.
const TIMEOUT: &str = "TIMEOUT";
/// The code of a server that does not answer.
const UNREACHABLE: &str = "UNREACHABLE";
/// The code of work that cannot be begun here: another manager's flags allow it, or a program is gone.
const NOT_STARTED: &str = "NOT-STARTED";

/// Bytes that are kept of what a program or a server says. The record of a task holds no more of it.
const SAID_BYTES: usize = 4 * 1024 - 256;

/// How long work may take to end with the manager.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// What tasks may reach, by name, and who is told of those that are given up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskWorld {
    /// Programs.
    pub programs: BTreeMap<String, PathBuf>,
    /// Servers.
    pub targets: BTreeMap<String, Target>,
    /// The program that is told; without one the log is.
    pub given_up: Option<PathBuf>,
}

/// Carries out what tasks do beside the manager.
pub struct Tasks {
    runner: Arc<Runner>,
    mailbox: Mailbox,
    under_way: HashMap<u64, AbortHandle>,
    hook: Hook,
    ends: TaskEnds,
}

/// Ends all work of tasks.
#[derive(Clone, Default)]
pub struct TaskEnds {
    stop: CancellationToken,
    tracker: TaskTracker,
}

struct Runner {
    world: TaskWorld,
    clients: HttpClients,
}

impl Tasks {
    /// Work reaches this world, and what it came to goes into this mailbox.
    ///
    /// # Errors
    /// A target cannot be called.
    pub fn new(world: TaskWorld, mailbox: Mailbox) -> anyhow::Result<Self> {
        let ends = TaskEnds::default();
        let hook = Hook::start(world.given_up.clone(), &ends);
        let clients = HttpClients::new(&world.targets)?;
        let runner = Arc::new(Runner { world, clients });
        Ok(Self { runner, mailbox, under_way: HashMap::new(), hook, ends })
    }

    /// What ends all of it.
    pub fn ends(&self) -> TaskEnds {
        self.ends.clone()
    }

    /// Begins work, and gives [`Input::TaskRan`] when it ended.
    pub fn run(&mut self, part: ManagerNumber, work: u64, job: Box<TaskJob>) {
        self.under_way.retain(|_, it| !it.is_finished());
        let (runner, mailbox) = (self.runner.clone(), self.mailbox.clone());
        let stop = self.ends.stop.clone();
        let running = self.ends.tracker.spawn(async move {
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = runner.run(&job) => outcome,
            };
            // A driver that has ended needs no answer.
            let _ = mailbox.input(Input::TaskRan { part, work, outcome }).await;
        });
        self.under_way.insert(work, running.abort_handle());
    }

    /// Ends work that nobody waits for.
    pub fn stop(&mut self, work: u64) {
        if let Some(running) = self.under_way.remove(&work) {
            running.abort();
        }
    }

    /// A task was given up.
    pub fn given_up(&self, task: serde_json::Value) {
        self.hook.tell(task);
    }
}

impl TaskEnds {
    /// Ends all work, and waits until nothing is left.
    pub async fn end(self) {
        self.stop.cancel();
        self.tracker.close();
        if tokio::time::timeout(END_PATIENCE, self.tracker.wait()).await.is_err() {
            tracing::warn!("work of tasks did not end within {END_PATIENCE:?}");
        }
    }
}

impl Runner {
    async fn run(&self, job: &TaskJob) -> TaskOutcome {
        let quota = Duration::from_millis(job.quota_ms);
        let wrong = |why: String| Err((NOT_STARTED.to_owned(), why));
        let outside = match Outside::parse(&job.operation, &job.param) {
            Ok(Some(outside)) => outside,
            Ok(None) => return wrong(format!("{} is no work beside the manager", job.operation)),
            Err(mistake) => return wrong(mistake.to_string()),
        };
        match outside {
            Outside::Exec(run) => match self.world.programs.get(&run.program) {
                Some(path) => exec::run(path, &run, job, quota).await,
                None => wrong(not_allowed("program", &run.program)),
            },
            Outside::Http(call) => {
                let known = (self.world.targets.get(&call.target), self.clients.of(&call.target));
                match known {
                    (Some(target), Some(client)) => {
                        within(quota, http::call(client, target, &call, job)).await
                    }
                    _ => wrong(not_allowed("target", &call.target)),
                }
            }
            Outside::Grpc(call) => match self.world.targets.get(&call.target) {
                Some(target) => within(quota, grpc::call(target, call, job, quota)).await,
                None => wrong(not_allowed("target", &call.target)),
            },
        }
    }
}

/// The flags of the manager that registered the task were others.
fn not_allowed(what: &str, name: &str) -> String {
    format!("the {what} {name:?} stands in no --task-{what} of the manager that runs the task")
}

async fn within(quota: Duration, call: impl Future<Output = TaskOutcome>) -> TaskOutcome {
    tokio::time::timeout(quota, call)
        .await
        .unwrap_or_else(|_| Err((TIMEOUT.to_owned(), format!("no answer came within {quota:?}"))))
}

/// What was said, as text.
fn text_of(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim().to_owned()
}

#[cfg(test)]
mod tests;
