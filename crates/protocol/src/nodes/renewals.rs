//! Renewals at this manager: each waits until every partition that it owns has granted it, or for a short while.

use rota_model::NodeId;
use rota_model::node_msg::{Grant, Renew};
use std::collections::BTreeMap;

/// What one partition grants waits for the others for this part of the time between two renewals.
const PATIENCE_PART: u64 = 3;

/// A renewal that waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiting {
    pub call: u64,
    pub renew: Renew,
    /// What was granted so far.
    pub grants: Vec<Grant>,
    /// How many partitions have not said anything.
    pub missing: usize,
    /// Some partition cannot grant now.
    pub more: bool,
    /// What is granted by then goes out.
    part_ms: u64,
    /// The node sends the next one by then.
    until_ms: u64,
}

impl Waiting {
    /// That many partitions are asked.
    pub fn new(
        (call, renew): (u64, Renew),
        parts: usize,
        (now_ms, renew_ms): (u64, u64),
    ) -> Self {
        let (part_ms, until_ms) = (now_ms + renew_ms / PATIENCE_PART, now_ms + renew_ms);
        Self { call, renew, grants: Vec::new(), missing: parts, more: false, part_ms, until_ms }
    }
}

/// Renewals that wait, one for each node: who renews again has given the earlier one up.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Renewals {
    by_node: BTreeMap<NodeId, Waiting>,
}

impl Renewals {
    /// One waits. Gives the earlier one of that node.
    pub fn arrive(&mut self, waiting: Waiting) -> Option<Waiting> {
        let earlier = self.by_node.insert(waiting.renew.node.clone(), waiting)?;
        Some(Waiting { more: true, ..earlier })
    }

    /// A partition granted it, or cannot. Gives it when that was the last one.
    pub fn said(&mut self, node: &NodeId, call: u64, grant: Option<Grant>) -> Option<Waiting> {
        let waiting = self.by_node.get_mut(node).filter(|it| it.call == call)?;
        waiting.missing = waiting.missing.saturating_sub(1);
        waiting.more |= grant.is_none();
        waiting.grants.extend(grant);
        if waiting.missing > 0 { None } else { self.by_node.remove(node) }
    }

    /// One of a boot that is over.
    pub fn over(&mut self, node: &NodeId, call: u64) -> bool {
        let is_it = self.by_node.get(node).is_some_and(|it| it.call == call);
        is_it && self.by_node.remove(node).is_some()
    }

    /// Those that wait no longer.
    pub fn due(&mut self, now_ms: u64) -> Vec<Waiting> {
        let is_due = |it: &Waiting| {
            it.until_ms <= now_ms || (it.part_ms <= now_ms && !it.grants.is_empty())
        };
        let late = self.by_node.extract_if(.., |_, it| is_due(it));
        late.map(|(_, it)| Waiting { more: true, ..it }).collect()
    }

    /// Until when each waits.
    pub fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.by_node.values().map(|it| it.until_ms)
    }
}
