//! What an administrator decides about tasks.

use rota_tasks::{Patience, QueueSettings};
use std::collections::{BTreeMap, BTreeSet};

/// What an administrator decides about tasks. It should be the same at all managers: each goes by its own, for the
/// tasks of the partitions that it owns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TasksConfig {
    /// The queues with their workers in each partition, and when a run is lost.
    pub queues: QueueSettings,
    /// The queue of an operation. One that is not there has queue 0.
    pub queue_of: BTreeMap<String, u8>,
    /// How often a task is repeated, and how fast.
    pub patience: Patience,
    /// How long one cycle of a task may work, in milliseconds. Default 5 minutes. Too low: what would have ended well is
    /// repeated. Too high: what hangs holds its worker.
    pub quota_ms: u64,
    /// Programs that tasks may run.
    pub programs: BTreeSet<String>,
    /// Targets that tasks may call.
    pub targets: BTreeSet<String>,
}

impl Default for TasksConfig {
    fn default() -> Self {
        Self {
            queues: QueueSettings::default(),
            queue_of: BTreeMap::new(),
            patience: Patience::default(),
            quota_ms: 300_000,
            programs: BTreeSet::new(),
            targets: BTreeSet::new(),
        }
    }
}
