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
    /// The node waits no longer.
    until_ms: u64,
}

impl Waiting {
    /// That many partitions are asked.
    pub fn new((call, renew): (u64, Renew), parts: usize, (now_ms, renew_ms): (u64, u64)) -> Self {
        let (part_ms, until_ms) = (now_ms + renew_ms / PATIENCE_PART, now_ms + renew_ms);
        Self { call, renew, grants: Vec::new(), missing: parts, more: false, part_ms, until_ms }
    }

    fn is_due(&self, now_ms: u64) -> bool {
        self.until_ms <= now_ms || (self.part_ms <= now_ms && !self.grants.is_empty())
    }
}

/// Renewals that wait: of each node the earliest, whose rounds may be under way, and the newest. A node repeats what
/// nobody has granted, and a round may take longer than its patience.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Renewals {
    by_node: BTreeMap<NodeId, (Waiting, Option<Waiting>)>,
}

impl Renewals {
    /// One waits. Gives the one that waited in its place.
    pub fn arrive(&mut self, waiting: Waiting) -> Option<Waiting> {
        let node = waiting.renew.node.clone();
        let Some((_, newest)) = self.by_node.get_mut(&node) else {
            self.by_node.insert(node, (waiting, None));
            return None;
        };
        newest.replace(waiting).map(|it| Waiting { more: true, ..it })
    }

    /// A partition granted it, or cannot. Gives it when that was the last one.
    pub fn said(&mut self, node: &NodeId, call: u64, grant: Option<Grant>) -> Option<Waiting> {
        let (earliest, newest) = self.by_node.get_mut(node)?;
        let waiting = if earliest.call == call { earliest } else { newest.as_mut()? };
        if waiting.call != call {
            return None;
        }
        waiting.missing = waiting.missing.saturating_sub(1);
        waiting.more |= grant.is_none();
        waiting.grants.extend(grant);
        if waiting.missing > 0 { None } else { self.take(node, call) }
    }

    /// Takes one, if it waits.
    pub fn take(&mut self, node: &NodeId, call: u64) -> Option<Waiting> {
        let (earliest, newest) = self.by_node.get_mut(node)?;
        if earliest.call != call {
            return newest.take_if(|it| it.call == call);
        }
        match newest.take() {
            Some(newest) => Some(std::mem::replace(earliest, newest)),
            None => self.by_node.remove(node).map(|(earliest, _)| earliest),
        }
    }

    /// Those that wait no longer.
    pub fn due(&mut self, now_ms: u64) -> Vec<Waiting> {
        let late = self.waiting().filter(|it| it.is_due(now_ms));
        let late: Vec<_> = late.map(|it| (it.renew.node.clone(), it.call)).collect();
        let taken = late.into_iter().filter_map(|(node, call)| self.take(&node, call));
        taken.map(|it| Waiting { more: true, ..it }).collect()
    }

    /// Until when each waits.
    pub fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.waiting().map(|it| it.until_ms)
    }

    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.by_node.values().flat_map(|(earliest, newest)| std::iter::once(earliest).chain(newest))
    }
}
