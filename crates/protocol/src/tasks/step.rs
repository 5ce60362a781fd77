//! What a worker of a queue does at a time.

use crate::ports::task_work::Started;
use rota_docstore::JsonText;
use rota_messages::Op;
use rota_tasks::{Run, TaskKey};

/// A task that a worker has, and what it waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Held {
    pub key: TaskKey,
    pub step: Step,
    /// What was asked for; none of a program or a call.
    pub op: Option<Op>,
    /// When it is asked for again, after a refusal.
    pub again_ms: Option<u64>,
    /// Nobody waits for it after that.
    pub until_ms: u64,
}

/// What a worker waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// The commit that starts it.
    Start,
    /// An operation: a cycle of the run.
    Cycle(Box<Work>),
    /// A program or a call beside the decisions.
    Outside(Run),
    /// The commit that says how far work around the ring has come.
    Told(Run),
    /// The commit of its end.
    End,
}

/// The work of a run that is an operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Work {
    pub run: Run,
    pub operation: String,
    pub parameters: Option<JsonText>,
}

impl Work {
    pub fn of(started: &Started) -> Self {
        let parameters = (!started.param.is_null()).then(|| JsonText::of(&started.param).ok());
        Self {
            run: started.run(),
            operation: started.operation.clone(),
            parameters: parameters.flatten(),
        }
    }
}
