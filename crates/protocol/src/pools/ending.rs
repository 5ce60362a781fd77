//! Nodes that a pool needs no more: those that were spare for long enough, and those for which another one has come.
//!
//! ```text
//!   spare for the delay ──▶ ScaleIn ──┐                      owners close what may be closed
//!                                     ├──▶ DRAINING, retires ──▶ empty: its owner tells it, and it leaves
//!   replaced, another came ─▶ Succeeded ──┘
//! ```
//! Decided by the owner of the pool's slot; the order is a compare-and-set of the node's entry that changes nothing
//! when operators wanted something else meanwhile. Only nodes that the pool ordered itself are ended for being spare.
//! How long they were spare is counted anew by each owner.

use crate::log::at::At;
use crate::pools::order::{expected, in_force, pools_here};
use crate::pools::state::Pools;
use rota_model::items::{Orders, decision_of};
use rota_model::{NodeId, NodeLoad, NodeState, PoolName, PoolSettings};
use rota_placement::{is_spare, node_to_end};
use rota_ring::{Change, NodeChange, NodeOrder, NodeReg, NodeWish};
use std::collections::BTreeMap;

/// Between two looks.
const LOOK_MS: u64 = 250;

/// By node of a pool that is to be replaced, the node that comes or came for it; `None`: none does.
pub(crate) fn successors(
    led: &At<'_>,
    pool: &PoolName,
    orders: &Orders,
) -> BTreeMap<NodeId, Option<NodeId>> {
    let is_replaced = |it: &&NodeReg| matches!(it.wish, NodeWish::Replaced { .. });
    let replaced = led.env.nodes.of_pool(pool).filter(is_replaced);
    let by = |node: &NodeId| {
        let by = orders.successors.get(node)?;
        let comes = orders.ordered.contains(by) || orders.overdue.contains(by);
        // Of one of which something else is wanted another one comes.
        let is_there = led.env.nodes.reg.get(by);
        let is_there = is_there.is_some_and(|it| !it.state.is_gone() && it.wish.is_none());
        (comes || is_there).then(|| by.clone())
    };
    replaced.map(|it| (it.node.clone(), by(&it.node))).collect()
}

/// The newest decision of a pool of which a node was registered; 0: none.
pub(crate) fn newest_decision(led: &At<'_>, pool: &PoolName) -> u64 {
    let nodes = led.env.nodes.reg.values().filter(|it| it.pool == *pool);
    nodes.filter_map(|it| decision_of(pool, &it.node)).max().unwrap_or(0)
}

/// Whether the pool ordered that node: its name says which decision did.
pub(crate) fn was_ordered(pool: &PoolName, node: &NodeId, orders: &Orders) -> bool {
    decision_of(pool, node).is_some_and(|it| it <= orders.decisions)
}

impl Pools {
    /// What is to be written of a node that its pool needs no more, if there is one.
    pub fn next_end(&mut self, led: &At<'_>) -> Option<(Change, NodeId, String)> {
        let now = led.env.now.mono_ms;
        if now < self.look_ms || !led.may_begin() {
            return None;
        }
        self.look_ms = now + LOOK_MS;
        // A pool that grows no more may have replaced a node before.
        let pools = pools_here(led);
        let is_known =
            |node: &NodeId| led.env.nodes.reg.get(node).is_some_and(|it| pools.contains(&it.pool));
        self.spare_since.retain(|node, _| is_known(node));
        let found = pools.iter().find_map(|pool| {
            let settings = in_force(led.env, pool)?;
            let (_, orders) = expected(led, self, pool);
            let succeeded = succeeded(led, pool, &orders);
            let succeeded = succeeded.map(|node| (node, NodeOrder::Succeeded));
            succeeded.or_else(|| {
                let spare = self.spare(led, pool, &settings, &orders)?;
                Some((spare, NodeOrder::ScaleIn))
            })
        });
        let (node, order) = found?;
        let reg = led.env.nodes.reg.get(&node)?;
        let to = reg.ordered(order, led.env.now.wall_ms).ok().flatten()?;
        let why = match order {
            NodeOrder::ScaleIn => "is not needed any more",
            NodeOrder::Succeeded
            | NodeOrder::Cordon
            | NodeOrder::Drain(_)
            | NodeOrder::Uncordon
            | NodeOrder::Forget
            | NodeOrder::Replace(_) => "is replaced by another one, which has come",
        };
        let text = format!("node {node} of pool {} {why}: it is drained and ends", reg.pool);
        let id = reg.node.clone();
        let node = Some(NodeChange::to(to));
        self.spare_since.remove(&id);
        let change = Change { expect_epoch: Some(led.env.epoch()), view: None, node };
        Some((change, id, text))
    }

    /// The node that is ended because it was spare for long enough.
    fn spare(
        &mut self,
        led: &At<'_>,
        pool: &PoolName,
        settings: &PoolSettings,
        orders: &Orders,
    ) -> Option<NodeId> {
        let (now, nodes) = (led.env.now.mono_ms, &led.env.nodes);
        // What is known of one that is out of reach is old.
        let is_heard = |reg: &&NodeReg| {
            let known =
                nodes.known.get(&reg.node).is_some_and(|known| known.boot == Some(reg.boot));
            known && !nodes.is_unreachable(&reg.node, now)
        };
        let ready = nodes.of_pool(pool).filter(|it| it.state == NodeState::Ready);
        let serve: Vec<&NodeReg> = ready.filter(|it| it.wish.is_none()).filter(is_heard).collect();
        let is_spare = |reg: &&&NodeReg| {
            was_ordered(pool, &reg.node, orders) && is_spare(settings, nodes.load(reg))
        };
        let spare: Vec<&NodeReg> = serve.iter().filter(is_spare).copied().collect();
        let of_pool = |node: &NodeId| nodes.reg.get(node).is_some_and(|it| it.pool == *pool);
        let still = |node: &NodeId| spare.iter().any(|it| it.node == *node);
        self.spare_since.retain(|node, _| !of_pool(node) || still(node));
        let delay_ms = u64::from(settings.scale_in_delay_s) * 1_000;
        let mut long: Vec<(NodeId, NodeLoad)> = Vec::new();
        for reg in spare {
            let since = *self.spare_since.entry(reg.node.clone()).or_insert(now);
            if now >= since + delay_ms {
                long.push((reg.node.clone(), nodes.load(reg)));
            }
        }
        let waits = !self.waiting(pool, nodes.seen_all(pool), now).is_empty();
        let comes = !orders.ordered.is_empty() || !orders.overdue.is_empty();
        if long.is_empty() || waits || comes || self.ordering.contains_key(pool) {
            return None;
        }
        let loads: Vec<(NodeId, NodeLoad)> =
            serve.iter().map(|it| (it.node.clone(), nodes.load(it))).collect();
        // What runs on nodes that end already comes back to these.
        let retiring = nodes.of_pool(pool).filter(|it| it.retires());
        let coming_back = retiring.map(|it| nodes.load(it).used.places);
        let coming_back = coming_back.fold(0, u32::saturating_add);
        let offers = nodes.offers_of_new(pool, settings);
        node_to_end(settings, nodes.limit(pool), offers, (&loads, coming_back), long)
    }
}

/// A node that is to be replaced, once the other one takes sessions.
fn succeeded(led: &At<'_>, pool: &PoolName, orders: &Orders) -> Option<NodeId> {
    let reg = &led.env.nodes.reg;
    let serves = |by: &NodeId| reg.get(by).is_some_and(|it| it.state == NodeState::Ready);
    let successors = successors(led, pool, orders).into_iter();
    successors.filter(|(_, by)| by.as_ref().is_some_and(serves)).map(|it| it.0).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_their_pool_ordered_count_as_its_own() {
        let pool = PoolName::parse("small").unwrap();
        let orders = Orders { decisions: 3, ..Orders::default() };
        let was = |node: &str| was_ordered(&pool, &NodeId::parse(node).unwrap(), &orders);
        assert!(was("small-1-0") && was("small-3-17"));
        for other in ["small-4-0", "small-1", "small-x-0", "small-1-x", "n1", "smaller-1-0"] {
            assert!(!was(other), "{other}");
        }
    }
}
