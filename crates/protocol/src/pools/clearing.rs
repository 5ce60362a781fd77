//! What is left of nodes that a pool started: those that have left or were forgotten, and those that never came.
//!
//! The provisioner is told to end it: a process that hangs, a container, a machine. Nothing of that is remembered but
//! here: the next owner of the pool asks once more, and whoever is asked twice does it once.

use crate::log::at::At;
use crate::pools::ending::was_ordered;
use crate::pools::order::{growing_here, ordered};
use crate::pools::state::Pools;
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use rota_model::{NodeId, NodeState, PoolName};
use rota_ring::NodeReg;
use std::collections::BTreeMap;

/// Between two looks.
const LOOK_MS: u64 = 1_000;

/// After a failure.
const AGAIN_MS: u64 = 30_000;

/// Most nodes that a provisioner is asked about at a time.
const ASKED_MAX: usize = 16;

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

/// Nodes of a pool of which something may be left.
fn left_over(led: &At<'_>, pool: &PoolName) -> Vec<NodeId> {
    let (_, orders) = ordered(led, pool);
    let reg = &led.env.nodes.reg;
    // One that is LOST may come back, until it is forgotten.
    let has_ended = |it: &&NodeReg| it.state == NodeState::Removed || it.is_forgotten();
    let ended = reg.values().filter(|it| it.pool == *pool).filter(has_ended);
    let ended = ended.map(|it| &it.node).filter(|it| was_ordered(pool, it, &orders));
    let given_up = led.env.now.wall_ms >= orders.given_up_wall_ms;
    let never_came = orders.ordered.iter().chain(&orders.overdue);
    let never_came = never_came.filter(|it| given_up && !reg.contains_key(*it));
    ended.chain(never_came).cloned().collect()
}

impl Pools {
    /// Has what is left of nodes ended.
    pub fn clear(&mut self, led: &mut At<'_>) {
        let (now, clearing) = (led.env.now.mono_ms, &mut self.clearing);
        if now < clearing.look_ms {
            return;
        }
        clearing.look_ms = now + LOOK_MS;
        let mut left = BTreeMap::new();
        for pool in growing_here(led) {
            left.extend(left_over(led, &pool).into_iter().map(|node| (node, pool.clone())));
        }
        clearing.steps.retain(|node, _| left.contains_key(node));
        let asked = clearing.steps.values().filter(|it| **it == Step::Asked).count();
        let is_due = |node: &NodeId| match clearing.steps.get(node) {
            None => true,
            Some(Step::Again(at_ms)) => now >= *at_ms,
            Some(Step::Asked | Step::Cleared) => false,
        };
        let due = left.into_iter().filter(|(node, _)| is_due(node));
        let due: Vec<_> = due.take(ASKED_MAX.saturating_sub(asked)).collect();
        for (node, pool) in due {
            let settings = led.env.nodes.settings(&pool);
            let Some(provisioner) = settings.and_then(|it| it.provisioner.clone()) else {
                continue;
            };
            clearing.steps.insert(node.clone(), Step::Asked);
            led.env.effects.push(Effect::EndNode { pool, provisioner, node });
        }
    }

    /// A provisioner has ended what was left of a node, or could not.
    pub fn on_node_ended(&mut self, led: &mut At<'_>, node: &NodeId, failure: Option<&str>) {
        let Some(step) = self.clearing.steps.get_mut(node) else { return };
        *step = match failure {
            None => Step::Cleared,
            Some(_) => Step::Again(led.env.now.mono_ms + AGAIN_MS),
        };
        if let Some(why) = failure {
            let text = format!("what is left of node {node} was not ended: {why}");
            led.env.note_text(Transition::NodeNotCleared, Some(led.log.number), text);
        }
    }
}
