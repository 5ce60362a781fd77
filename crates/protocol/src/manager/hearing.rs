//! Renewals of nodes, and what became of orders of new ones.

use crate::log::env::Env;
use crate::manager::inputs::Manager;
use crate::membership::standing::Standing;
use crate::node_lease::state::Renewal;
use crate::ports::note::Transition;
use rota_model::node_msg::Renew;
use rota_ring::slot_of_node;

impl Manager {
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
}

impl Env {
    pub(crate) fn on_provisioned(&mut self, order: u64, failure: Option<String>) {
        let pool = self.fleet.orders.remove(&order);
        if let Some(pool) = &pool {
            self.nodes.failed_orders.remove(pool);
        }
        let Some(why) = failure else { return };
        if let Some(pool) = &pool {
            self.on_order_failed(pool, &why);
        }
        let text = format!("order {order} of new nodes failed: {why}");
        self.note_text(Transition::OrderFailed, None, text);
    }
}
