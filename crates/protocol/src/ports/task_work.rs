//! What the Queue Manager and the operations that keep its records tell each other, and the work of a task that is no
//! operation.

use rota_docstore::{Namespace, Stamp};
use rota_tasks::{Patience, Progress, Run};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The operation that starts a task.
pub const START: &str = "task.start";
/// The operation that ends a task well whose work was no operation.
pub const END: &str = "task.end";
/// The operation that ends a run badly.
pub const FAIL: &str = "task.fail";

/// The operation that says how far a run has come.
pub const PROGRESS: &str = "task.progress";

/// Parameters of [`START`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starting {
    /// The id of the task's document.
    pub docid: String,
}

/// The answer to [`START`]: what is to be done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Started {
    /// When the run was started.
    pub start_time: Stamp,
    /// Its number.
    pub retry: u32,
    /// The operation.
    pub operation: String,
    /// Its parameters.
    #[serde(default)]
    pub param: Value,
    /// Whether it is a program or a call.
    pub is_outside: bool,
    /// Whether it goes around the ring.
    #[serde(default)]
    pub goes_around: bool,
    /// How far an earlier run of such a task came.
    #[serde(default)]
    pub progress: Progress,
}

impl Started {
    /// The run.
    pub fn run(&self) -> Run {
        Run { start_time: self.start_time, retry: self.retry }
    }
}

/// Parameters of [`END`] and [`FAIL`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    /// The id of the task's document.
    pub docid: String,
    /// When the run was started.
    pub start_time: Stamp,
    /// Its number.
    pub retry: u32,
    /// Of a failure: its code.
    #[serde(default)]
    pub code: String,
    /// Of a failure: a text about it.
    #[serde(default)]
    pub report: String,
    /// Nobody runs it any more.
    #[serde(default)]
    pub is_lost: bool,
    /// Of a failure: how patient the manager is.
    pub patience: Option<Patience>,
    /// Of copying: how many changes it knew.
    #[serde(default)]
    pub changes: Option<u64>,
}

/// Parameters of [`PROGRESS`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progressing {
    /// The id of the task's document.
    pub docid: String,
    /// When the run was started.
    pub start_time: Stamp,
    /// Its number.
    pub retry: u32,
    /// How far it is.
    pub progress: Progress,
}

/// The work of a task that is a program or a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskJob {
    /// The namespace of the task.
    pub ns: Namespace,
    /// The id of its document.
    pub docid: String,
    /// `exec`, `http` or `grpc`.
    pub operation: String,
    /// What it is given.
    pub param: Value,
    /// The run.
    pub run: Run,
    /// How long it may take, in milliseconds.
    pub quota_ms: u64,
}

/// How such work ended: well, or with a code and a text.
pub type TaskOutcome = Result<(), (String, String)>;
