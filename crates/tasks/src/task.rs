//! The record of a task, and its life: each transition is a function from a record to what is to be written.

pub(crate) mod end;
mod orders;
pub(crate) mod register;
#[cfg(test)]
mod tests;

use rota_model::{Cron, Namespace, Stamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The class of the documents that hold tasks, one document for each.
pub const TASK_CLASS: &str = "Task";
/// The class of the documents that hold large parameters. The id is that of the task.
pub const PARAM_CLASS: &str = "TaskParam";
/// The operation that runs a program.
pub const EXEC: &str = "exec";
/// The operation that sends a request to a URL.
pub const HTTP: &str = "http";
/// The operation that calls a method of gRPC.
pub const GRPC: &str = "grpc";
/// The operation that copies what changed in a document. Only its change registers it.
pub const COPY: &str = "document.copy";
/// The operation that closes the sessions that a filter selects.
pub const CLOSE: &str = "session.close";
/// The operation that runs an action of a session again. Owners register it when one failed.
pub const ACT: &str = "session.action";
/// The code of a task that nobody runs any more and that did not say how it ended.
pub const LOST: &str = "LOST";
/// How much earlier than `startAt` a start is taken, in milliseconds. Lower, and two managers whose clocks differ
/// put a task off once more. Higher, and tasks run before their time.
pub const EARLY_MS: u64 = 100;

/// The parameters of a task.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Param {
    /// The JSON itself.
    Json(Value),
    /// The id of a document of [`PARAM_CLASS`] in the same namespace.
    Document(String),
}

/// A task as its document holds it: JSON with the names of the source (`opName`, `startAt`).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The namespace.
    pub ns: Namespace,
    /// The part of document ids in braces, which says the slot.
    pub place: String,
    /// Its id, drawn when it was registered.
    pub taskid: String,
    /// The operation.
    pub op_name: String,
    /// What the operation is given.
    pub param: Param,
    /// Text for administrators, who select by it.
    pub info: String,
    /// How often it was started again; 0: the first run.
    pub retry: u32,
    /// Not before; `None`: never, it was given up.
    pub start_at: Option<Stamp>,
    /// Since when it runs; `None`: it does not.
    pub start_time: Option<Stamp>,
    /// The queue.
    pub qn: u8,
    /// The code of the exception that ended the last run; `None` from a start on.
    pub exc: Option<String>,
    /// Text about that exception.
    pub report: Option<String>,
    /// When it runs again after a success.
    pub cron: Option<Cron>,
    /// A periodic task that an administrator holds back.
    #[serde(default)]
    pub paused: bool,
    /// How far a run that goes around the ring has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// How far a run that goes around the ring has come.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// How many were done, at least.
    pub done: u64,
    /// How many failed in this run.
    pub failed: u64,
}

/// What a task does at this moment; it follows from the record alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// Its start is ahead, or a worker is not free yet.
    Waiting,
    /// A worker runs it.
    Running,
    /// Its worker went, and it waits for its next run.
    Lost,
    /// It failed too often, and waits for an administrator.
    Parked,
    /// An administrator holds it back.
    Paused,
}

impl TaskState {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "WAITING",
            Self::Running => "RUNNING",
            Self::Lost => "LOST",
            Self::Parked => "PARKED",
            Self::Paused => "PAUSED",
        }
    }
}

/// One run of a task: what tells it from other runs of the same task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    /// When it was started.
    pub start_time: Stamp,
    /// Its number.
    pub retry: u32,
}

/// Why a start does nothing. None of these is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoStart {
    /// It ended well, or an administrator deleted it.
    Gone,
    /// Its `startAt` is ahead: an administrator postponed it.
    Postponed,
    /// Another run is under way.
    Running,
    /// It was given up.
    Parked,
    /// An administrator holds it back.
    Paused,
}

impl Task {
    /// The id of its document: its place in braces, then its id. So it lies in the slot of its place.
    pub fn docid(&self) -> String {
        docid(&self.place, &self.taskid)
    }

    /// Whether its work is a program or a call, and no operation on documents: nobody can take back what it did.
    pub fn works_outside(&self) -> bool {
        [EXEC, HTTP, GRPC].contains(&self.op_name.as_str())
    }

    /// Whether its work goes around the ring: what it did may be done again.
    pub fn goes_around(&self) -> bool {
        [COPY, CLOSE, ACT].contains(&self.op_name.as_str())
    }

    /// Its state.
    pub fn state(&self) -> TaskState {
        match (self.start_time, self.start_at) {
            (Some(_), _) => TaskState::Running,
            (None, None) => TaskState::Parked,
            (None, Some(_)) if self.paused => TaskState::Paused,
            (None, Some(_)) if self.exc.as_deref() == Some(LOST) => TaskState::Lost,
            (None, Some(_)) => TaskState::Waiting,
        }
    }

    /// From when on the Queue Manager may start it; `None`: it runs, is parked or paused.
    pub fn due_at(&self) -> Option<Stamp> {
        match self.state() {
            TaskState::Waiting | TaskState::Lost => self.start_at,
            TaskState::Running | TaskState::Parked | TaskState::Paused => None,
        }
    }

    /// The run that is under way.
    pub fn run(&self) -> Option<Run> {
        self.start_time.map(|start_time| Run { start_time, retry: self.retry })
    }
}

/// The id of a task's document.
pub(crate) fn docid(place: &str, taskid: &str) -> String {
    format!("{{{place}}}{taskid}")
}

/// Starts a task: gives the record to write. The run begins when that is committed.
///
/// # Errors
///
/// [`NoStart`], if there is nothing to start. The caller ends quietly and frees the worker.
pub fn start(stored: Option<&Task>, now: Stamp) -> Result<Task, NoStart> {
    let task = stored.ok_or(NoStart::Gone)?;
    match task.state() {
        TaskState::Running => return Err(NoStart::Running),
        TaskState::Parked => return Err(NoStart::Parked),
        TaskState::Paused => return Err(NoStart::Paused),
        TaskState::Waiting | TaskState::Lost => {}
    }
    if task.start_at.is_some_and(|at| at > now.plus_ms(EARLY_MS)) {
        return Err(NoStart::Postponed);
    }
    Ok(Task { start_time: Some(now), exc: None, report: None, ..task.clone() })
}
