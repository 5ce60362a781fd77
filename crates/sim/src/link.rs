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

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::ground::Ground;
use crate::mutants::links::{on_refused, on_sent};
use crate::network::Place;
use crate::packet::Packet;
use crate::site::AtManager;
use rota_model::node_msg::ToNode;
use rota_protocol::Input;

/// Between two attempts of a link to open a connection, at most.
const TRY_US_MAX: u64 = 1_000_000;

impl AtManager<'_> {
    /// A manager asks a node for something.
    pub(crate) fn give_to_link(&mut self, index: usize, message: ToNode) {
        let refuses = self.is_refused_by(index);
        if let Some(waiting) = self.host.waiting.links.get_mut(&index) {
            waiting.push(message);
            return;
        }
        let is_dead = self.ground.machines.nodes().get(index).is_some_and(|it| !it.is_on());
        if !refuses || !self.ground.link_chance.permille(if is_dead { 800 } else { 500 }) {
            return self.send_to_machine(index, message);
        }
        self.host.waiting.links.insert(index, vec![message]);
        let delay_us = self.ground.link_chance.skewed(100, TRY_US_MAX);
        self.ground.queue.after(delay_us, Event::Link(self.number, self.host.run, index));
    }

    fn send_to_machine(&mut self, index: usize, message: ToNode) {
        let sent = self.ground.checker.on_given_to_network(&message);
        self.ground.checker.judge(self.ground.now_us(), sent);
        on_sent(self, index, &message);
        let (manager, generation) = (self.number, self.host.run);
        let packet = Packet::ToNode { manager, generation, message };
        self.ground.send(self.place(), Place::Node(index), None, packet);
    }

    /// A link tries to open a connection.
    pub(crate) fn on_link_due(&mut self, index: usize) {
        if let Some(until_us) = self.host.paused_until(self.ground.now_us()) {
            let event = Event::Link(self.number, self.host.run, index);
            return self.ground.queue.at(until_us, event);
        }
        let refuses = self.is_refused_by(index);
        let Some(waiting) = self.host.waiting.links.remove(&index) else { return };
        let Some(node) = self.ground.machines.nodes().get(index) else { return };
        let (node, address) = (node.id.clone(), node.address.clone());
        let delay_us = self.ground.link_chance.within(0, 3_000);
        if refuses {
            self.ground.counters.fault(Fault::ConnectionRefused);
            let unsent = on_refused(self, &node, waiting);
            return self.hears(delay_us, Input::NodeUnreached { node, address, unsent });
        }
        self.ground.counters.fault(Fault::SentLate);
        self.hears(delay_us, Input::NodeConnected { node });
        for message in waiting {
            self.send_to_machine(index, message);
        }
    }

    /// Whether a node takes no connection.
    fn is_refused_by(&self, index: usize) -> bool {
        let now_us = self.ground.now_us();
        self.ground.machines.nodes().get(index).is_some_and(|it| it.refuses(now_us))
    }
}

impl Ground {
    /// A node that runs refuses connections for a while.
    pub(crate) fn on_refuse_due(&mut self) {
        if self.phase != Phase::Chaos {
            return;
        }
        let index = self.link_chance.index(self.machines.nodes().len().max(1));
        let until_us = self.now_us() + self.link_chance.skewed(50_000, 2_500_000);
        if let Some(node) = self.machines.node_mut(index) {
            node.refuses_until_us = until_us;
        }
        let pause_us = self.link_chance.within(300_000, 3_000_000);
        self.queue.after(pause_us, Event::Refuse);
    }
}
