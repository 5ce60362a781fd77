//! What is left of nodes that a pool started: those that have left or were forgotten, and those that never came.
//!
//! The provisioner is told to end it: a process that hangs, a container, a machine. That it did so is remembered here
//! alone for nodes that were registered: the next owner of the pool asks once more, and whoever is asked twice does it
//! once. What is to be ended of nodes that never came, and why it could not be, stands in the pool's record of orders.

use crate::log::at::At;
use crate::pools::ending::was_ordered;
use crate::pools::order::{expected, pools_with_nodes_here};
use crate::pools::state::Pools;
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use rota_model::items::decision_of;
use rota_model::{NodeId, NodeState, PoolName, ProvisionerName};
use rota_ring::NodeReg;
use std::collections::BTreeMap;

/// Between two looks.
const LOOK_MS: u64 = 1_000;

/// After a failure.
const AGAIN_MS: u64 = 30_000;

/// Most nodes that a provisioner is asked about at a time.
const ASKED_MAX: usize = 8;

/// How far one node is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// The provisioner is asked.
    Asked,
    /// It has done so.
    Cleared,
    /// It could not, and is asked again then.
    Again(u64),
}

/// What is done about nodes of which something may be left.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Clearing {
    look_ms: u64,
    steps: BTreeMap<NodeId, Step>,
}

/// Nodes of a pool of which something may be left, and who started them.
fn left_over(
    led: &At<'_>,
    pools: &Pools,
    pool: &PoolName,
) -> impl Iterator<Item = (NodeId, ProvisionerName)> {
    let (_, orders) = expected(led, pools, pool);
    // One that is LOST may come back, until it is forgotten. One that has left was cleared away before that.
    let has_ended = |reg: &&NodeReg| match reg.state {
        NodeState::Removed => !reg.is_forgotten(),
        NodeState::Lost => reg.is_forgotten(),
        NodeState::Joining
        | NodeState::Ready
        | NodeState::Cordoned
        | NodeState::Draining
        | NodeState::Unreachable => false,
    };
    let ended = led.env.nodes.reg.values().filter(|it| it.pool == *pool).filter(has_ended);
    let ended = ended.map(|it| &it.node).filter(|it| was_ordered(pool, it, &orders));
    let left: Vec<NodeId> = ended.chain(&orders.to_clear).cloned().collect();
    let now = led.env.nodes.settings(pool).and_then(|it| it.provisioner.clone());
    let pool = pool.clone();
    left.into_iter().filter_map(move |node| {
        let decision = decision_of(&pool, &node)?;
        let by = orders.provisioner_of(decision).cloned().or_else(|| now.clone())?;
        Some((node, by))
    })
}

impl Clearing {
    /// Whether nothing is left of a node.
    pub fn has_cleared(&self, node: &NodeId) -> bool {
        self.steps.get(node) == Some(&Step::Cleared)
    }
}

impl Pools {
    /// Has what is left of nodes ended.
    pub fn clear(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        if now < self.clearing.look_ms {
            return;
        }
        let mut left = BTreeMap::new();
        // A pool that starts none any more may have left something, too.
        for pool in pools_with_nodes_here(led) {
            let of_pool: Vec<_> = left_over(led, self, &pool).collect();
            let all = of_pool.iter().all(|(node, _)| self.clearing.has_cleared(node));
            self.write_cleared(led, &pool, all);
            left.extend(of_pool.into_iter().map(|(node, by)| (node, (pool.clone(), by))));
        }
        let clearing = &mut self.clearing;
        clearing.look_ms = now + LOOK_MS;
        clearing.steps.retain(|node, _| left.contains_key(node));
        let asked = clearing.steps.values().filter(|it| **it == Step::Asked).count();
        let is_due = |node: &NodeId| match clearing.steps.get(node) {
            None => true,
            Some(Step::Again(at_ms)) => now >= *at_ms,
            Some(Step::Asked | Step::Cleared) => false,
        };
        let due = left.into_iter().filter(|(node, _)| is_due(node));
        let due: Vec<_> = due.take(ASKED_MAX.saturating_sub(asked)).collect();
        for (node, (pool, provisioner)) in due {
            clearing.steps.insert(node.clone(), Step::Asked);
            led.env.effects.push(Effect::ClearNode { pool, provisioner, node });
        }
    }

    /// A provisioner has ended what was left of a node, or could not. Operators see the failure until nothing is left
    /// that was not ended.
    pub fn on_node_cleared(
        &mut self,
        led: &mut At<'_>,
        pool: &PoolName,
        node: &NodeId,
        failure: Option<&str>,
    ) {
        let Some(step) = self.clearing.steps.get_mut(node) else { return };
        *step = match failure {
            None => Step::Cleared,
            Some(_) => Step::Again(led.env.now.mono_ms + AGAIN_MS),
        };
        if let Some(why) = failure {
            let text = format!("what is left of node {node} was not ended: {why}");
            self.write_end_failure(led, pool, text.clone());
            led.env.note_node(Transition::NodeNotCleared, Some(led.log.number), node, text);
        }
    }
}
