//! Nodes under judgement, and renewals that wait.

use rota_model::node_msg::Renew;
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

/// Nodes of which this manager asked that they be declared lost under the View that it knows, and which
/// entry of each that was about. The word may still be written, whatever became of the partition that
/// gave the verdict: until the View changes, or the config store said no, such a boot is granted nothing.
pub(crate) type Condemned = BTreeMap<NodeId, u64>;

/// A renewal that waits for a confirm round.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Renewal {
    pub call: u64,
    pub renew: Renew,
    /// The node sends the next one by then.
    pub until_ms: u64,
}
