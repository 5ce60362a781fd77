//! What nodes say to a manager, and whether they are reached.

use crate::manager::inputs::Manager;
use crate::membership::standing::Standing;
use crate::node_lease::state::Renewal;
use crate::nodes::calls::{CallFor, CallWhat};
use rota_model::NodeId;
use rota_model::node_msg::{FromNode, NodeAnswer, Renew};
use rota_ring::slot_of_node;

impl Manager {
    pub(crate) fn on_node(&mut self, answer: FromNode) {
        let FromNode { call, node, boot, load, answer } = answer;
        if self.env.nodes.reg.get(&node).is_some_and(|reg| reg.boot == boot) {
            self.env.nodes.on_load(&node, boot, load);
            self.env.nodes.on_answer(&node);
            self.env.nodes.on_heard(&node, boot, self.env.now.mono_ms);
        }
        let Some(asked) = self.env.fleet.calls.remove(&call) else {
            return;
        };
        if asked.node != node {
            return;
        }
        let Some(part) = self.parts.get_mut(&asked.part) else {
            return;
        };
        match asked.what {
            CallWhat::Create { key, token } | CallWhat::Destroy { key, token } => {
                if matches!(answer, NodeAnswer::Running { .. }) {
                    part.end_earlier(&mut self.env, (&key, token), (&node, boot));
                }
                part.on_node_answer(&mut self.env, &key, token, answer);
            }
            // What an earlier epoch asked raised no fence to this one.
            CallWhat::Scan if part.replica.pe != asked.pe => {}
            CallWhat::Scan => part.on_scanned(&mut self.env, &node, asked.boot, answer),
        }
    }

    pub(crate) fn on_renew(&mut self, call: u64, renew: Renew) {
        let Renew { node, boot, load, .. } = &renew;
        if self.env.nodes.reg.get(node).is_some_and(|reg| reg.boot == *boot) {
            self.env.nodes.on_load(node, *boot, *load);
            self.env.nodes.on_heard(node, *boot, self.env.now.mono_ms);
        }
        let view = self.env.view.clone().filter(|_| self.membership.standing == Standing::Inside);
        let part = view.map(|view| view.part_of(slot_of_node(node, view.m)).0);
        let part = part.and_then(|number| self.parts.get_mut(&number));
        match part.filter(|part| part.leading.is_some()) {
            Some(part) => {
                let until_ms = self.env.now.mono_ms + self.env.config.timing.renew_ms;
                part.on_renew(&mut self.env, Renewal { call, renew, until_ms });
            }
            None => crate::node_lease::reply::not_judge(&mut self.env, call, &renew.node),
        }
    }

    /// A connection to a node was opened: what was sent before may be lost.
    pub(crate) fn on_node_connected(&mut self, node: &NodeId) {
        self.env.nodes.on_connection(node, false);
        for part in self.parts.awake_mut() {
            part.on_node_connected(&self.env, node);
        }
    }

    /// No connection to a node could be opened. Nothing of these calls was sent, so nobody waits for their
    /// answers.
    pub(crate) fn on_node_unreached(&mut self, node: &NodeId, address: &str, unsent: Vec<u64>) {
        if self.env.nodes.reg.get(node).is_some_and(|it| it.address == address) {
            self.env.nodes.on_connection(node, true);
        }
        for call in unsent {
            let Some(CallFor { part, what, .. }) = self.env.fleet.calls.remove(&call) else {
                continue;
            };
            let CallWhat::Create { key, token } = what else { continue };
            if let Some(part) = self.parts.get_mut(&part) {
                part.on_unsent(&mut self.env, &key, token, call);
            }
        }
    }
}
