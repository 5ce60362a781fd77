//! What operators order about nodes: cordon, drain, uncordon.

use crate::counters::Fault;
use crate::world::World;
use rota_model::NodeId;
use rota_protocol::Input;
use rota_ring::{DrainTime, NodeOrder, NodeReg};

impl World {
    /// Somebody orders that nothing more is placed on some node.
    pub fn order_cordon(&mut self, fault: Fault) {
        if let Some(node) = self.some_registered() {
            self.give_node_order(fault, node, NodeOrder::Cordon);
        }
    }

    /// Somebody orders that some node becomes empty, mostly at once.
    pub fn order_drain(&mut self, fault: Fault) {
        let time = match self.rng.within(0, 9) {
            0 => DrainTime::Unlimited,
            1..=3 => DrainTime::Ms(self.rng.within(0, 3_000)),
            4 => DrainTime::Force,
            _ => DrainTime::AsBefore,
        };
        let replaces = self.rng.permille(200);
        let order = if replaces { NodeOrder::Replace(time) } else { NodeOrder::Drain(time) };
        if let Some(node) = self.some_registered() {
            self.give_node_order(fault, node, order);
        }
    }

    /// Somebody lets all nodes take sessions again.
    pub fn order_uncordon(&mut self, fault: Fault) {
        for node in self.cordoned() {
            self.give_node_order(fault, node, NodeOrder::Uncordon);
        }
    }

    fn some_registered(&mut self) -> Option<NodeId> {
        let nodes: Vec<NodeId> = self.store.state().nodes.keys().cloned().collect();
        (!nodes.is_empty()).then(|| self.rng.pick(&nodes).clone())
    }

    /// Nodes of which operators want something.
    pub fn cordoned(&self) -> Vec<NodeId> {
        let nodes = self.store.state().nodes.values().filter(|it| !it.wish.is_none());
        nodes.map(|it| it.node.clone()).collect()
    }

    fn give_node_order(&mut self, fault: Fault, node: NodeId, order: NodeOrder) {
        let what = format!("{order:?} of {node}");
        self.order(fault, &what, |call| Input::NodeOrder { call, node, order });
    }

    /// Nodes that should be empty by now, whichever manager's wall clock is asked. What is only waited for may run on.
    pub fn drained(&self) -> Vec<NodeId> {
        let now_us = self.now_us();
        let walls = self.managers.values().map(|it| it.wall_ms(now_us));
        let wall_ms = walls.min().unwrap_or_default();
        let closes =
            |it: &&NodeReg| it.closes(wall_ms).is_some_and(|it| !it.spares(self.setup.disturb));
        let nodes = self.store.state().nodes.values().filter(closes);
        nodes.map(|it| it.node.clone()).collect()
    }
}
