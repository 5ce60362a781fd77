//! Actions that wait for room, node by node: who came first goes first, and a node without room holds up nobody of
//! other nodes.

use rota_messages::DocKey;
use rota_model::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Documents whose next action waits for room.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Crowd {
    /// Of each node, in the order in which they came. No node has none.
    waiting: BTreeMap<NodeId, BTreeSet<(u64, DocKey)>>,
    /// Where each one stands there.
    places: BTreeMap<DocKey, (NodeId, u64)>,
    /// Nodes that have no room, and until when none of theirs is asked for.
    full: BTreeMap<NodeId, u64>,
}

impl Crowd {
    /// One waits since then for a node. Who waits for it already keeps its place.
    pub fn join(&mut self, node: &NodeId, key: &DocKey, since_ms: u64) {
        let since_ms = match self.leave(key) {
            Some((at, before_ms)) if at == *node => before_ms.min(since_ms),
            Some(_) | None => since_ms,
        };
        self.waiting.entry(node.clone()).or_default().insert((since_ms, key.clone()));
        self.places.insert(key.clone(), (node.clone(), since_ms));
    }

    fn leave(&mut self, key: &DocKey) -> Option<(NodeId, u64)> {
        let (node, since_ms) = self.places.remove(key)?;
        if let Some(there) = self.waiting.get_mut(&node) {
            there.remove(&(since_ms, key.clone()));
            if there.is_empty() {
                self.waiting.remove(&node);
            }
        }
        Some((node, since_ms))
    }

    /// A node has no room until then.
    pub fn note_full(&mut self, node: &NodeId, until_ms: u64) {
        self.full.insert(node.clone(), until_ms);
    }

    /// Whether whoever comes now for a node has to wait.
    pub fn is_ahead(&self, node: &NodeId, now_ms: u64) -> bool {
        self.waiting.contains_key(node) || self.full.get(node).is_some_and(|it| *it > now_ms)
    }

    /// Whoever goes next, and since when it waits.
    pub fn next(&mut self, now_ms: u64) -> Option<(DocKey, u64)> {
        self.full.retain(|_, until_ms| *until_ms > now_ms);
        let open = self.waiting.iter().filter(|(node, _)| !self.full.contains_key(*node));
        let (since_ms, key) = open.filter_map(|(_, there)| there.first()).min()?.clone();
        self.leave(&key);
        Some((key, since_ms))
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
