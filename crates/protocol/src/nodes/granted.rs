//! What this manager granted to nodes: for each partition that it owns, when it let each boot go on last. A verdict
//! in the registry only shuts a boot out. Its owner takes what ran there for over when its own grant is.

use rota_model::{BootId, ManagerNumber, NodeId};
use std::collections::BTreeMap;

/// Grants of this manager, by partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Granted {
    parts: BTreeMap<ManagerNumber, OfOwner>,
}

/// What the owner of one partition granted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct OfOwner {
    /// Since when it owns the partition, as far as nodes are concerned: owners before it granted nothing later.
    since_ms: u64,
    newest_ms: BTreeMap<(NodeId, BootId), u64>,
}

impl Granted {
    /// Ownership begins: whatever was granted before was granted until now.
    pub fn begin(&mut self, part: ManagerNumber, now_ms: u64) {
        self.parts.insert(part, OfOwner { since_ms: now_ms, newest_ms: BTreeMap::new() });
    }

    /// Ownership is over.
    pub fn end(&mut self, part: ManagerNumber) {
        self.parts.remove(&part);
    }

    /// A node asked before now, and was granted that.
    pub fn grant(&mut self, part: ManagerNumber, node: &NodeId, boot: BootId, now_ms: u64) {
        if let Some(of) = self.parts.get_mut(&part) {
            of.newest_ms.insert((node.clone(), boot), now_ms);
        }
    }

    /// Forgets what was granted so long ago that it tells nothing any more.
    pub fn forget(&mut self, lost_ms: u64, now_ms: u64) {
        for of in self.parts.values_mut() {
            let since_ms = of.since_ms;
            of.newest_ms.retain(|_, at| now_ms < *at + lost_ms && *at > since_ms);
        }
    }

    /// From when the owner of a partition counts until nothing of a boot runs there. `None` before it owns it.
    pub fn counts_from(&self, part: ManagerNumber, node: &NodeId, boot: BootId) -> Option<u64> {
        let of = self.parts.get(&part)?;
        let newest = of.newest_ms.get(&(node.clone(), boot)).copied().unwrap_or_default();
        Some(newest.max(of.since_ms))
    }

    /// Since when this manager owns a partition.
    pub fn owns_since(&self, part: ManagerNumber) -> Option<u64> {
        self.parts.get(&part).map(|it| it.since_ms)
    }

    /// The newest grant of a partition to any of these boots.
    pub fn newest(
        &self,
        part: ManagerNumber,
        is_meant: impl Fn(&NodeId, BootId) -> bool,
    ) -> Option<u64> {
        let newest_ms = self.parts.get(&part).into_iter().flat_map(|it| &it.newest_ms);
        newest_ms.filter(|((node, boot), _)| is_meant(node, *boot)).map(|(_, at)| *at).max()
    }
}
