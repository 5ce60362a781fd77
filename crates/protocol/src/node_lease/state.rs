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

/// A renewal that waits for a confirm round.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Renewal {
    pub call: u64,
    pub renew: Renew,
    /// The node sends the next one by then.
    pub until_ms: u64,
}

/// What the judge of nodes has beside its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct NodeLeases {
    pub judged: BTreeMap<NodeId, Judged>,
    /// Renewals of nodes that wait for the next round, and for the one under way.
    pub renewals_next: Vec<Renewal>,
    pub renewals_now: Vec<Renewal>,
}

impl NodeLeases {
    /// Takes the renewals that nobody waits for any more.
    pub fn forget(&mut self, now_ms: u64) -> Vec<Renewal> {
        let late = |it: &mut Renewal| it.until_ms <= now_ms;
        let mut late_ones: Vec<Renewal> = self.renewals_next.extract_if(.., late).collect();
        late_ones.extend(self.renewals_now.extract_if(.., late));
        late_ones
    }

    /// Until when each renewal waits.
    pub fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.renewals_next.iter().chain(&self.renewals_now).map(|it| it.until_ms)
    }
}
