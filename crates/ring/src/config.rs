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
    /// What it has for sessions. It stands among the other fields, without what the node did not say.
    #[serde(flatten, with = "offers")]
    pub offers: Resources,
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

    /// What a session of a class takes there, by the text of the class that the node has.
    pub fn takes(&self, class: &ClassName) -> Resources {
        self.facts.get(class).map_or(Resources::of_places(1), |it| it.needs.takes())
    }

    /// Whether it has the labels that a class needs, by the text of the class that the node has.
    pub fn fits(&self, class: &ClassName) -> bool {
        self.facts.get(class).is_none_or(|it| it.needs.fits(&self.labels))
    }
}

/// How [`NodeReg::offers`] is written.
mod offers {
    use rota_model::Resources;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Written {
        places: u32,
        #[serde(default, skip_serializing_if = "is_zero")]
        cpu_millis: u32,
        #[serde(default, skip_serializing_if = "is_zero")]
        memory_mib: u32,
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_zero(number: &u32) -> bool {
        *number == 0
    }

    pub(super) fn serialize<S: Serializer>(offers: &Resources, to: S) -> Result<S::Ok, S::Error> {
        let Resources { places, cpu_millis, memory_mib } = *offers;
        Written { places, cpu_millis, memory_mib }.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Resources, D::Error> {
        let Written { places, cpu_millis, memory_mib } = Written::deserialize(from)?;
        Ok(Resources { places, cpu_millis, memory_mib })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What is left of nodes that have no entry any more: one bound for all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Of a node without an entry, every boot up to this one is over. It only grows; 0: no entry was dropped.
    pub through: BootId,
    /// Owners may have to wait for one of these until what they granted it is over.
    pub unproven: bool,
}

impl Dropped {
    /// Whether that boot of a node without an entry is over.
    pub fn is_over(self, boot: BootId) -> bool {
        !self.is_none() && boot <= self.through
    }

    /// Whether it is certain that nothing of it runs.
    pub fn is_proved_over(self, boot: BootId) -> bool {
        self.is_over(boot) && !self.unproven
    }

    /// Whether nothing was dropped.
    pub fn is_none(&self) -> bool {
        self.through == BootId(0)
    }

    fn take(&mut self, trace: &NodeReg) {
        self.through = self.through.max(trace.boot);
        self.unproven |= trace.may_outlive();
    }
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
    /// What is left of those that were dropped from it.
    pub dropped: Dropped,
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
    /// Traces of nodes that are gone, which are dropped with it: their boots stay over ([`Dropped`]). What is no
    /// trace any more stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<NodeId>,
}

impl NodeChange {
    /// The change to that entry, and nothing else.
    pub fn to(to: NodeReg) -> Self {
        Self { expect_revision: to.revision - 1, to, drops: Vec::new() }
    }
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

impl NodeChange {
    fn apply(&self, state: &mut ConfigState) -> Option<()> {
        let before = state.nodes.get(&self.to.node);
        let (revision, is_over) = match before {
            // Revisions begin anew after a drop. So a late change of an earlier entry may expect the right one.
            Some(before) => (before.revision, before.boot > self.to.boot),
            None => (0, state.dropped.is_over(self.to.boot)),
        };
        if revision != self.expect_revision || is_over {
            return None;
        }
        state.nodes.insert(self.to.node.clone(), self.to.clone());
        for node in &self.drops {
            if let Some(trace) = state.nodes.get(node).filter(|it| it.is_forgotten()).cloned() {
                state.dropped.take(&trace);
                state.nodes.remove(node);
            }
        }
        Some(())
    }
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
            change.apply(&mut next)?;
        }
        Some(next)
    }
}
