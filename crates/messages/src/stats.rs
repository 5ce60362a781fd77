//! What operators see of a manager.

use rota_model::NodeLoad;
use rota_model::{LogPos, ManagerNumber, NodeId, PoolName, SessionState};
use rota_ring::NodeReg;
use rota_tasks::TaskCounts;
use std::collections::BTreeMap;
use std::iter::Sum;

/// What an operator sees of a manager.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Partitions that this manager owns or copies.
    pub parts: Vec<PartitionStats>,
    /// Nodes, with the load as this manager knows it.
    pub nodes: Vec<(NodeReg, NodeLoad)>,
    /// The stable number of each manager, where it is known.
    pub manager_numbers: BTreeMap<ManagerNumber, Numbered>,
    /// The stable number of each node, where it is known.
    pub node_numbers: BTreeMap<NodeId, Numbered>,
    /// Client requests that wait here.
    pub requests_waiting: usize,
    /// Operations of applications that work beside the decisions.
    pub works: usize,
    /// Those of them whose callers were told that they take too long.
    pub works_overdue: usize,
    /// What the indexes hold by which documents of partitions that this manager owns are searched.
    pub indexes: IndexStats,
}

/// How much indexes hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexStats {
    /// Documents; one of several indexes counts in each.
    pub documents: u64,
    /// Values of fields.
    pub values: u64,
    /// About how many bytes of memory they take.
    pub bytes: u64,
}

impl Sum for IndexStats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, stats| Self {
            documents: sum.documents + stats.documents,
            values: sum.values + stats.values,
            bytes: sum.bytes + stats.bytes,
        })
    }
}

/// Tasks of a queue in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskStats {
    /// By state.
    pub counts: TaskCounts,
    /// Those that wait and have been due for [`TASK_LATE_MS`].
    pub late: usize,
}

/// How long a task may be due before it is late, in milliseconds. Lower, and each short rush looks like trouble. Higher,
/// and trouble is told later.
pub const TASK_LATE_MS: u64 = 60_000;

/// The stable number of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// From 1 on, within its type and parent.
    pub number: u64,
    /// By which it is kept.
    pub uuid: String,
}

/// What an operator sees of a partition at one manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionStats {
    /// Which partition.
    pub part: ManagerNumber,
    /// `serving`, `syncing`, `scanning`, `wedged`, `copy`, `former copy` (outside the ISR, with what
    /// its disk held when it went), `learning`, `recovering`, `idle`.
    pub role: &'static str,
    /// Last entry here.
    pub last: LogPos,
    /// Last committed entry known here.
    pub committed: LogPos,
    /// Committed sessions by state, tombstones included.
    pub sessions: BTreeMap<SessionState, u64>,
    /// Documents here, sessions and tombstones among them.
    pub documents: u64,
    /// At the owner: each copy and how many entries it is behind.
    pub lag: Vec<(ManagerNumber, u64)>,
    /// Sessions that have not ended, by the node where they run or are to run.
    pub on_nodes: BTreeMap<NodeId, u64>,
    /// At the owner: sessions that wait for a node, by pool. An open that waits has no record yet; a lost session that
    /// is opened again has one, and is LOST.
    pub waiting: BTreeMap<PoolName, u64>,
    /// At the owner: tasks by queue. Managers do not tell each other of them: whoever asks for a backlog asks all owners.
    pub tasks: BTreeMap<u8, TaskStats>,
    /// At the owner: age of the oldest change that has not reached all deferred copies, in milliseconds; 0:
    /// there is none. Told as tasks are.
    pub copy_lag_ms: u64,
    /// Order-independent digest of all committed session records (key, life, version, state).
    pub digest: u64,
    /// The same at some earlier committed positions, oldest first.
    pub marks: Vec<(LogPos, u64)>,
}
