//! Everything that the config store holds, and a compare-and-set on it.

use crate::node_order::NodeWish;
use crate::view::View;
use rota_model::{
    BootId, ClassDigest, ClassFacts, ClassName, Epoch, Labels, NodeId, NodeState, PoolName,
    Resources, Sandbox,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node in the registry.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct NodeReg {
    /// The node.
    pub node: NodeId,
    /// Its newest boot. Nothing of an earlier (lower) boot runs any more, but for what `unproven` says.
    pub boot: BootId,
    /// Its newest boot before this one of which nothing proved that it was over: it was LOST, and its owners wait
    /// until what they granted it is over. So it is with those below, as far as anybody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven: Option<BootId>,
    /// Where managers reach it, `host:port`.
    pub address: String,
    /// Its pool.
    pub pool: PoolName,
    /// How many places it has.
    pub places: u32,
    /// Processors that it has for sessions, in thousandths; 0 when it did not say.
    #[serde(default, skip_serializing_if = "is_zero32")]
    pub cpu_millis: u32,
    /// Memory that it has for sessions, in MiB; 0 when it did not say.
    #[serde(default, skip_serializing_if = "is_zero32")]
    pub memory_mib: u32,
    /// What it is, as its operator says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// What it can run.
    pub classes: Vec<ClassName>,
    /// Which texts of these it has, as far as it told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub digests: BTreeMap<ClassName, ClassDigest>,
    /// What these texts say, where they say anything that managers decide by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<ClassName, ClassFacts>,
    /// The best that it can keep a program from, if it told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// How often it renews its lease, in ms; 0 when it did not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub renew_ms: u64,
    /// State; LOST and REMOVED are verdicts about `boot`.
    pub state: NodeState,
    /// What operators want of the node, whichever boot it is. `state` shows it while the node is there.
    #[serde(default, skip_serializing_if = "NodeWish::is_none")]
    pub wish: NodeWish,
    /// Grows by one with each write; the first is 1.
    pub revision: u64,
}

impl NodeReg {
    /// Whether that boot is over: a later one is registered, or a verdict stands. An earlier one in the registry
    /// only shows that the registry is old.
    pub fn is_over(&self, boot: BootId) -> bool {
        self.boot > boot || (self.boot == boot && self.state.is_gone())
    }

    /// Whether it is certain that nothing of that boot runs: it left in good order, or the next one had ended what
    /// it left. Of one that was declared lost only its owners know, who granted it leases.
    pub fn is_proved_over(&self, boot: BootId) -> bool {
        let is_lost = self.state == NodeState::Lost && boot == self.boot;
        self.is_over(boot) && !is_lost && self.unproven.is_none_or(|it| boot > it)
    }

    /// Whether owners may have to wait for a boot of this node until what they granted it is over.
    pub fn may_outlive(&self) -> bool {
        self.state == NodeState::Lost || self.unproven.is_some()
    }

    /// What stands as unproven in the entry of a boot that comes after this one, and that proves of these that they
    /// are over.
    pub fn unproven_after(&self, boot: BootId, ended: &[BootId]) -> Option<BootId> {
        let proves =
            boot == self.boot || self.state == NodeState::Removed || ended.contains(&self.boot);
        if proves { self.unproven } else { Some(self.boot) }
    }

    /// What it has for sessions.
    pub fn offers(&self) -> Resources {
        let (cpu_millis, memory_mib) = (self.cpu_millis, self.memory_mib);
        Resources { places: self.places, cpu_millis, memory_mib }
    }

    /// What a session of a class takes there, by the text of the class that the node has.
    pub fn takes(&self, class: &ClassName) -> Resources {
        self.facts.get(class).map_or(Resources::of_places(1), |it| it.needs.takes())
    }

    /// Whether it has the labels that a class needs, by the text of the class that the node has.
    pub fn fits(&self, class: &ClassName) -> bool {
        self.facts.get(class).is_none_or(|it| it.needs.fits(&self.labels))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero32(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// All of the config store at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConfigState {
    /// Grows with every write of any key.
    pub index: u64,
    /// The View; `None` before the cluster was founded.
    pub view: Option<Arc<View>>,
    /// The node registry.
    pub nodes: BTreeMap<NodeId, NodeReg>,
}

impl ConfigState {
    /// The View's epoch; 0 when there is none.
    pub fn epoch(&self) -> Epoch {
        self.view.as_ref().map_or(Epoch(0), |view| view.epoch)
    }
}

/// A write of a node's entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct NodeChange {
    /// The revision that must stand there; 0 for none. `to.revision` is one more.
    pub expect_revision: u64,
    /// The new entry.
    pub to: NodeReg,
}

/// A compare-and-set. Everything that is given is checked and written as one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Change {
    /// The epoch that the View must have; 0 for none; `None` does not look at the View.
    pub expect_epoch: Option<Epoch>,
    /// The next View, of epoch `expect_epoch + 1`.
    pub view: Option<View>,
    /// A node's entry.
    pub node: Option<NodeChange>,
}

impl Change {
    /// Replaces the View that `next` was made from.
    pub fn view(next: View) -> Self {
        Self { expect_epoch: Some(Epoch(next.epoch.0 - 1)), view: Some(next), node: None }
    }

    /// Applies to a state, as every config store does it. Gives the new state, or `None` when an
    /// expectation does not hold.
    pub fn apply(&self, state: &ConfigState) -> Option<ConfigState> {
        if self.expect_epoch.is_some_and(|expected| expected != state.epoch()) {
            return None;
        }
        // A View of another ring that happens to have that epoch is not overwritten.
        if let (Some(next), Some(there)) = (&self.view, &state.view)
            && next.shape() != there.shape()
        {
            return None;
        }
        let mut next = state.clone();
        next.index += 1;
        if let Some(view) = &self.view {
            next.view = Some(Arc::new(view.clone()));
        }
        if let Some(change) = &self.node {
            let revision = state.nodes.get(&change.to.node).map_or(0, |it| it.revision);
            if revision != change.expect_revision {
                return None;
            }
            next.nodes.insert(change.to.node.clone(), change.to.clone());
        }
        Some(next)
    }
}
