//! Who is told of tasks that were given up: a program of the administrator's, or the log.

use super::exec::command;
use super::{TaskEnds, text_of};
use rota_daemon::program::{Kept, Manner, Rest, RunFailure, run_program};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Tasks that wait until the program is told of them. Fewer, and a night's failure is told in part; more, and the
/// program is still told of it when it is over.
const WAITING_MAX: usize = 100;

/// How the program is run.
const MANNER: Manner =
    Manner { deadline: Duration::from_secs(30), kept: Kept::Last(1_024), rest: Rest::Ends };

/// Tells of tasks that were given up.
pub struct Hook {
    /// Towards the program.
    waiting: Option<Sender<Value>>,
}

impl Hook {
    /// A program, or the log.
    pub fn start(program: Option<PathBuf>, ends: &TaskEnds) -> Self {
        let waiting = program.map(|program| {
            let (waiting, next) = channel(WAITING_MAX);
            let stop = ends.stop.clone();
            ends.tracker.spawn(async move {
                let mut next = next;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tell_all(&program, &mut next) => {}
                }
                while let Ok(task) = next.try_recv() {
                    log(&task, "this manager stops, and its program was not told");
                }
            });
            waiting
        });
        Self { waiting }
    }

    /// Tells of a task, and does not wait for it.
    pub fn tell(&self, task: Value) {
        let Some(waiting) = &self.waiting else {
            return log(&task, "--task-given-up names a program that is told");
        };
        if let Err(error) = waiting.try_send(task) {
            log(
                &error.into_inner(),
                "too many tasks are given up at once, the program is not told",
            );
        }
    }
}

fn log(task: &Value, note: &str) {
    tracing::warn!(%task, "a task was given up; {note}");
}

/// One after the other.
async fn tell_all(program: &Path, next: &mut Receiver<Value>) {
    while let Some(task) = next.recv().await {
        let input = format!("{task}\n");
        let told = match run_program(&mut command(program), input.as_bytes(), MANNER).await {
            Ok(ran) if ran.status.success() => continue,
            Ok(ran) => format!("{}: {}", ran.status, text_of(&ran.stderr)),
            Err(RunFailure::NotStarted(error)) => format!("it does not start: {error}"),
            Err(RunFailure::Late(_)) => format!("it did not end within {:?}", MANNER.deadline),
            Err(RunFailure::Broken(why)) => why,
        };
        log(&task, &format!("the program {} failed: {told}", program.display()));
    }
}
