//! Requests about the tasks of a partition, and their answers.

use crate::api::DocumentCursor;
use rota_model::Namespace;
use rota_tasks::{Backlog, Filter, Task, TaskCounts};

/// A page of the tasks of the partition that holds `from.slot`, and what its queues have.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TasksOp {
    /// Where to start.
    pub from: DocumentCursor,
    /// Most tasks in the answer; 0: only what the queues have.
    pub limit: u32,
    /// Which.
    pub filter: Filter,
}

/// What a queue has of a namespace, in one partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueRow {
    /// The queue.
    pub queue: u8,
    /// The namespace.
    pub space: Namespace,
    /// What there is.
    pub backlog: Backlog,
}

/// The answer to a [`TasksOp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TasksPage {
    /// Committed tasks, in order.
    pub tasks: Vec<Task>,
    /// Where to go on; `None` when nothing is left up to slot m-1.
    pub next: Option<DocumentCursor>,
    /// What the queues of the partition have, by namespace. Of a request with limit 0.
    pub queues: Vec<QueueRow>,
    /// How many tasks are in which state, by queue. Of a request with limit 0.
    pub counts: Vec<(u8, TaskCounts)>,
}
