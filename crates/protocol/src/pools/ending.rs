//! Nodes that a pool needs no more: those that were spare for long enough, and those for which another one has come.
//!
//! ```text
//!   spare for the delay ──▶ ScaleIn ──┐                      owners close what may be closed
//!                                     ├──▶ DRAINING, retires ──▶ empty: its judge tells it, and it leaves
//!   replaced, another came ─▶ Succeeded ──┘
//! ```
//! Decided by the owner of the pool's slot; the order is a compare-and-set of the node's entry that changes nothing
//! when operators wanted something else meanwhile. Only nodes that the pool ordered itself are ended for being spare.
//! How long they were spare is counted anew by each owner.

use crate::log::at::At;
use crate::pools::order::{count, growing_here, ordered};
use crate::pools::state::Pools;
use rota_model::items::Orders;
use rota_model::{NodeId, NodeLoad, NodeState, PoolName, PoolSettings};
use rota_placement::{PoolNodes, is_spare, node_to_end};
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
        let is_there = led.env.nodes.reg.get(by).is_some_and(|it| !it.state.is_gone());
        (comes || is_there).then(|| by.clone())
    };
    replaced.map(|it| (it.node.clone(), by(&it.node))).collect()
}

/// Whether the pool ordered that node: its name says which decision did.
pub(crate) fn was_ordered(pool: &PoolName, node: &NodeId, orders: &Orders) -> bool {
    let rest = node.as_str().strip_prefix(pool.as_str()).and_then(|it| it.strip_prefix('-'));
    let numbers = rest.and_then(|it| it.split_once('-'));
    numbers.is_some_and(|(decision, place)| {
        let decision: Result<u64, _> = decision.parse();
        decision.is_ok_and(|it| it <= orders.decisions) && place.parse::<u32>().is_ok()
    })
}

impl Pools {
    /// What is to be written of a node that its pool needs no more, if there is one.
    pub fn next_end(&mut self, led: &At<'_>) -> Option<(Change, String)> {
        let now = led.env.now.mono_ms;
        if now < self.look_ms || !led.may_begin() {
            return None;
        }
        self.look_ms = now + LOOK_MS;
        let pools = growing_here(led);
        let is_known =
            |node: &NodeId| led.env.nodes.reg.get(node).is_some_and(|it| pools.contains(&it.pool));
        self.spare_since.retain(|node, _| is_known(node));
        let found = pools.iter().find_map(|pool| {
            let settings = led.env.nodes.settings(pool)?.clone();
            let (_, orders) = ordered(led, pool);
            let reg = &led.env.nodes.reg;
            let orders = orders.as_of(led.env.now.wall_ms, |it| reg.contains_key(it));
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
        let expect_revision = to.revision - 1;
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
        let node = Some(NodeChange { expect_revision, to });
        Some((Change { expect_epoch: Some(led.env.epoch()), view: None, node }, text))
    }

    /// The node that is ended because it was spare for long enough. One after the other: each of them counts what is
    /// left.
    fn spare(
        &mut self,
        led: &At<'_>,
        pool: &PoolName,
        settings: &PoolSettings,
        orders: &Orders,
    ) -> Option<NodeId> {
        let (now, nodes) = (led.env.now.mono_ms, &led.env.nodes);
        let serve = || {
            let ready = nodes.of_pool(pool).filter(|it| it.state == NodeState::Ready);
            ready.filter(|it| it.wish.is_none())
        };
        let mut long: Vec<(NodeId, NodeLoad)> = Vec::new();
        let delay_ms = u64::from(settings.scale_in_delay_s) * 1_000;
        for reg in nodes.of_pool(pool) {
            let load = nodes.load(reg);
            let is_heard = nodes.known.get(&reg.node).is_some_and(|it| it.boot == Some(reg.boot));
            let serves = reg.state == NodeState::Ready && reg.wish.is_none() && is_heard;
            if !serves || !was_ordered(pool, &reg.node, orders) || !is_spare(settings, load) {
                self.spare_since.remove(&reg.node);
                continue;
            }
            let since = *self.spare_since.entry(reg.node.clone()).or_insert(now);
            if now >= since + delay_ms {
                long.push((reg.node.clone(), load));
            }
        }
        let is_ending = nodes.of_pool(pool).any(NodeReg::retires);
        let waits = !self.waiting(pool, nodes.seen_all(pool), now).is_empty();
        if is_ending || waits || self.ordering.contains_key(pool) {
            return None;
        }
        let coming = orders.ordered.iter().chain(&orders.overdue);
        let pool_nodes = PoolNodes {
            there: count(serve()),
            ordered: count(coming),
            overdue: 0,
            free: nodes.free(pool),
        };
        let offers = nodes.offers_of_new(pool, settings);
        node_to_end(settings, nodes.limit(pool), offers, pool_nodes, long)
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
