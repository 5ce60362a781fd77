//! What operators see of a manager.

use crate::env::Env;
use crate::leading::Phase;
use crate::partition::Partition;
use rota_model::node_msg::NodeLoad;
use rota_model::{LogPos, ManagerNumber, NodeId, SessionState};
use rota_ring::NodeReg;
use std::collections::BTreeMap;

/// What an operator sees of a manager.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Partitions that this manager owns or copies.
    pub parts: Vec<PartStats>,
    /// Nodes, with the load as this manager knows it.
    pub nodes: Vec<(NodeReg, NodeLoad)>,
    /// Client requests that wait here.
    pub requests_waiting: usize,
    /// Operations of applications that work beside the decisions.
    pub works: usize,
    /// Those of them whose callers were told that they take too long.
    pub works_overdue: usize,
}

/// What an operator sees of a partition at one manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartStats {
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
    /// Order-independent digest of all committed session records (key, life, version, state).
    pub digest: u64,
    /// The same at some earlier committed positions, oldest first.
    pub marks: Vec<(LogPos, u64)>,
}

/// What an operator sees of a partition.
pub(crate) fn of_part(env: &Env, part: &Partition) -> PartStats {
    let view = env.view.as_ref();
    let member =
        view.and_then(|it| it.parts.get(&part.number)).is_some_and(|it| it.has(env.me.number));
    let last = part.replica.last;
    let behind = |acked: rota_model::LogPos| last.seq.0.saturating_sub(acked.seq.0);
    let lag = part.leading.iter().flat_map(|it| it.copies.iter());
    let role = match part.leading.as_ref().map(|it| &it.phase) {
        Some(Phase::Scan(_)) => "scanning",
        Some(Phase::Recover(_)) => "recovering",
        Some(Phase::Sync(_)) => "syncing",
        Some(Phase::Serving) => "serving",
        Some(Phase::Wedged { .. }) => "wedged",
        None if part.learning.is_some() => "learning",
        None if member => "copy",
        None if !part.replica.docs.is_empty() => "former copy",
        None => "idle",
    };
    PartStats {
        part: part.number,
        role,
        last,
        committed: part.replica.committed,
        sessions: part.replica.census.by_state().clone(),
        documents: part.replica.docs.len() as u64,
        lag: lag.map(|(number, copy)| (*number, behind(copy.flow.acked))).collect(),
        digest: part.replica.digest,
        marks: part.replica.marks.iter().copied().collect(),
        on_nodes: part.sessions_on_nodes(),
    }
}
