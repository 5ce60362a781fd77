//! Links of managers to nodes: what waits for a connection, and what becomes of it.
//!
//! ```text
//!            ┌─ a connection is there ─────────────▶ the network: from here on it counts as sent
//!  a call ───┤
//!            └─ there is none ─▶ queue ─┬─ opened ──▶ the network
//!                                       └─ refused ─▶ thrown away, and the manager is told which calls
//! ```
//!
//! A node refuses while its agent does not run, and now and then for no reason at all, while what it runs goes
//! on. A manager does not always notice at once: then what it sends is lost, and nobody tells it.

use crate::checker::Run;
use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::network::Place;
use crate::packet::Packet;
use crate::world::World;
use rota_model::node_msg::ToNode;
use rota_protocol::Input;

/// Between two attempts of a link to open a connection, at most.
const TRY_US_MAX: u64 = 1_000_000;

impl World {
    /// A manager asks a node for something.
    pub(crate) fn give_to_link(&mut self, run: Run, index: usize, message: ToNode) {
        let refuses = self.refuses(index);
        let Some(host) = self.managers.get_mut(&run.0) else { return };
        if let Some(waiting) = host.links.get_mut(&index) {
            waiting.push(message);
            return;
        }
        let is_dead = self.nodes.get(index).is_some_and(|it| it.agent.is_none());
        if !refuses || !self.link_chance.permille(if is_dead { 800 } else { 500 }) {
            return self.send_to_node(run, index, message);
        }
        host.links.insert(index, vec![message]);
        let delay_us = self.link_chance.skewed(100, TRY_US_MAX);
        self.ground.queue.after(delay_us, Event::Link(run.0, run.1, index));
    }

    fn send_to_node(&mut self, run: Run, index: usize, message: ToNode) {
        let sent = self.ground.checker.on_given_to_network(&message);
        self.ground.checker.judge(self.ground.now_us(), sent);
        self.plant_unsent(run, index, &message);
        let packet = Packet::ToNode { manager: run.0, generation: run.1, message };
        self.ground.send(Place::Manager(run.0), Place::Node(index), None, packet);
    }

    /// A link tries to open a connection.
    pub(crate) fn on_link_due(&mut self, run: Run, index: usize) {
        let (number, generation) = run;
        if let Some(until_us) = self.paused_until(Place::Manager(number)) {
            return self.ground.queue.at(until_us, Event::Link(number, generation, index));
        }
        let refuses = self.refuses(index);
        let host = self.managers.get_mut(&number).filter(|it| it.run == generation);
        let Some(waiting) = host.and_then(|it| it.links.remove(&index)) else { return };
        let Some(node) = self.nodes.get(index) else { return };
        let (node, address) = (node.id.clone(), node.address.clone());
        let delay_us = self.link_chance.within(0, 3_000);
        if refuses {
            self.ground.counters.fault(Fault::ConnectionRefused);
            let unsent = self.plant_refused(run, &node, waiting);
            let unreached = Input::NodeUnreached { node, address, unsent };
            return self.tell_later(number, delay_us, unreached);
        }
        self.ground.counters.fault(Fault::SentLate);
        self.tell_later(number, delay_us, Input::NodeConnected { node });
        for message in waiting {
            self.send_to_node(run, index, message);
        }
    }

    /// Whether a node takes no connection.
    fn refuses(&self, index: usize) -> bool {
        let now_us = self.ground.now_us();
        self.nodes.get(index).is_some_and(|it| it.agent.is_none() || now_us < it.refuses_until_us)
    }

    /// A node that runs refuses connections for a while.
    pub(crate) fn on_refuse_due(&mut self) {
        if self.ground.phase != Phase::Chaos {
            return;
        }
        let index = self.link_chance.index(self.nodes.len().max(1));
        let until_us = self.ground.now_us() + self.link_chance.skewed(50_000, 2_500_000);
        if let Some(node) = self.nodes.get_mut(index) {
            node.refuses_until_us = until_us;
        }
        let pause_us = self.link_chance.within(300_000, 3_000_000);
        self.ground.queue.after(pause_us, Event::Refuse);
    }
}
