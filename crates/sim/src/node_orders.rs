//! What operators order about nodes: cordon, drain, uncordon, forget; and looks at what they have.

use crate::calls::CallFor;
use crate::counters::Fault;
use crate::network::Place;
use crate::node_host::NodeHost;
use crate::setup::CLIENT_DEADLINE_MS_MAX;
use crate::world::World;
use rota_model::{MendOp, NodeId};
use rota_protocol::{Input, Op};
use rota_ring::{DrainTime, NodeOrder, NodeReg};

impl World {
    /// Somebody orders that nothing more is placed on some node.
    pub fn order_cordon(&mut self, fault: Fault) {
        if let Some(node) = self.some_registered() {
            self.give_node_order(fault, node, NodeOrder::Cordon);
        }
    }

    /// Somebody has all nodes forgotten that are gone.
    pub fn order_forget(&mut self, fault: Fault) {
        let is_gone = |it: &&NodeReg| it.state.is_gone() && !it.is_forgotten();
        let gone = self.store.state().nodes.values().filter(is_gone);
        for node in gone.map(|it| it.node.clone()).collect::<Vec<_>>() {
            self.give_node_order(fault, node, NodeOrder::Forget);
        }
    }

    /// Somebody orders that some node becomes empty, mostly at once.
    pub fn order_drain(&mut self, fault: Fault) {
        let time = match self.ground.rng.within(0, 9) {
            0 => DrainTime::Unlimited,
            1..=3 => DrainTime::Ms(self.ground.rng.within(0, 3_000)),
            4 => DrainTime::Force,
            _ => DrainTime::AsBefore,
        };
        let replaces = self.ground.rng.permille(200);
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

    /// Somebody has the owners of some sessions look at what a node has of them, mostly one that runs them.
    pub fn order_mends(&mut self, fault: Fault) {
        for _ in 0..self.ground.rng.within(1, 6) {
            let Some(any) = self.some_registered() else { return };
            let key = self.ground.rng.pick(&self.ground.setup.keys).clone();
            let runs = |host: &&NodeHost| {
                let agent = host.agent.as_ref();
                agent.is_some_and(|it| !it.live_of(std::slice::from_ref(&key)).is_empty())
            };
            let at = self.nodes.iter().find(runs).map(|it| it.id.clone());
            let node = at.filter(|_| self.ground.rng.permille(700)).unwrap_or(any);
            let (through, dry_run) = (self.some_manager(), self.ground.rng.permille(100));
            let deadline_ms = self.ground.rng.within(200, CLIENT_DEADLINE_MS_MAX);
            if self.ground.is_there(Place::Manager(through)) {
                self.ground.took_effect(fault);
            }
            let op = Op::Mend(MendOp { key, node, dry_run });
            self.ground.call(through, CallFor::Mend, Place::Client(0), deadline_ms, op);
        }
    }

    fn some_registered(&mut self) -> Option<NodeId> {
        let nodes: Vec<NodeId> = self.store.state().nodes.keys().cloned().collect();
        (!nodes.is_empty()).then(|| self.ground.rng.pick(&nodes).clone())
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
        let now_us = self.ground.now_us();
        let walls = self.managers.values().map(|it| it.wall_ms(now_us));
        let wall_ms = walls.min().unwrap_or_default();
        let disturb = self.ground.setup.disturb;
        let closes = |reg: &&NodeReg| reg.closes(wall_ms).is_some_and(|it| !it.spares(disturb));
        let nodes = self.store.state().nodes.values().filter(closes);
        nodes.map(|it| it.node.clone()).collect()
    }
}
