//! Nodes under judgement, and renewals that wait.

use rota_model::{BootId, NodeId};
use std::collections::BTreeMap;

/// A node under judgement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Judged {
    pub boot: BootId,
    /// The registration counted from: each one gives the node a lease of its own, whoever wrote it.
    pub revision: u64,
    pub heard_ms: u64,
    /// When it is called next, unless it renews.
    pub call_ms: u64,
}

/// A renewal that waits for a confirm round.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Renewal {
    pub call: u64,
    pub node: NodeId,
    pub boot: BootId,
}

/// What the owner of a partition has of leases beside its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct NodeLeases {
    /// Nodes whose slot lies in this partition.
    pub judged: BTreeMap<NodeId, Judged>,
    /// Renewals that wait for the next round, and for the one under way. At most one of each for a registered node.
    pub renewals_next: Vec<Renewal>,
    pub renewals_now: Vec<Renewal>,
}
