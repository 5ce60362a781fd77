//! What every machine of a cluster stands on: simulated time, the network, the random numbers, and the observer.
//!
//! Nothing here decides what a machine does. Users are given this alone, so that they reach managers and nodes by
//! what they send, and by nothing else.

use crate::calls::CallFor;
use crate::checker::Checker;
use crate::counters::{Counters, Fault};
use crate::event::{Event, Phase};
use crate::machines::Machines;
use crate::network::{Network, Place, STRAGGLER_US_MAX};
use crate::packet::Packet;
use crate::queue::Queue;
use crate::rng::SeededRng;
use crate::setup::Setup;
use crate::trace::Trace;
use rota_docstore::{Attachment, Digest};
use rota_model::ManagerNumber;
use rota_protocol::{Input, Op};
use rota_ring::ConfigState;
use std::collections::BTreeMap;

/// What every machine stands on.
pub struct Ground {
    /// What the seed decided.
    pub setup: Setup,
    /// Events.
    pub queue: Queue<Event>,
    /// Randomness of the network and the hosts.
    pub rng: SeededRng,
    /// The network.
    pub network: Network,
    /// The observer.
    pub checker: Checker,
    /// What happened, counted.
    pub counters: Counters,
    /// What happened, in order.
    pub trace: Trace,
    /// What the cluster goes through.
    pub phase: Phase,
    /// Calls of users that are under way.
    pub calls: BTreeMap<u64, CallFor>,
    /// Which machines there are.
    pub machines: Machines,
    /// Disturbances of the chaos phase that took effect.
    pub disturbed: u64,
    /// Randomness of the links between managers and nodes.
    pub link_chance: SeededRng,
    /// Bodies that users have put, and the managers that get them.
    bodies: Vec<(ManagerNumber, Digest)>,
    names: u64,
    sent: u64,
}

impl Ground {
    /// The ground of a seed's cluster. The random numbers go on after those that decided the setup.
    pub fn new(
        setup: Setup,
        (seed, rng): (u64, SeededRng),
        keep_trace: bool,
        state: &ConfigState,
    ) -> Self {
        let mut network = Network::default();
        network.base = setup.network_profile;
        network.stragglers = true;
        let mut checker = Checker::new(setup.m, &setup.timing);
        checker.ledger.disturb = setup.disturb;
        checker.ledger.on_config(0, state);
        let machines = Machines::new(&setup);
        Self {
            setup,
            queue: Queue::default(),
            rng,
            network,
            checker,
            counters: Counters::default(),
            trace: Trace::new(keep_trace),
            phase: Phase::Chaos,
            calls: BTreeMap::new(),
            machines,
            disturbed: 0,
            link_chance: SeededRng::of_links(seed),
            bodies: Vec::new(),
            names: 0,
            sent: 0,
        }
    }

    /// A name that was not given before: for calls, runs and disturbances.
    pub fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// Simulated time in microseconds.
    pub fn now_us(&self) -> u64 {
        self.queue.now_us()
    }

    /// Whether anybody would get what is sent there now.
    pub fn is_there(&self, place: Place) -> bool {
        self.machines.is_on(place)
    }

    /// A manager of the ring, or one that is to come into it.
    pub fn some_manager(&mut self) -> ManagerNumber {
        let index = self.rng.index(self.machines.numbers.len());
        self.machines.numbers[index].0
    }

    /// Tells a manager, if it runs, something that comes from outside the network.
    pub fn tell_later(&mut self, number: ManagerNumber, delay_us: u64, input: Input) {
        let run = self.machines.run_of(number).filter(|_| self.is_there(Place::Manager(number)));
        if let Some(run) = run {
            self.queue.after(delay_us, Event::Tell(number, run, Box::new(input)));
        }
    }

    /// Tells the managers that a connection to a node was opened anew.
    pub fn connect_node(&mut self, index: usize) {
        let Some(node) = self.machines.nodes().get(index).map(|it| it.id.clone()) else { return };
        for number in self.machines.managers() {
            let delay_us = self.rng.within(500, 80_000);
            self.tell_later(number, delay_us, Input::NodeConnected { node: node.clone() });
        }
    }

    /// Something is sent: the disturbances that this is the first to suffer from took effect.
    pub fn feel(&mut self, from: Place, to: Place) {
        if self.is_there(to) {
            for fault in self.network.feel(from, to) {
                self.took_effect(fault);
            }
        }
    }

    /// A disturbance met somebody.
    pub fn took_effect(&mut self, fault: Fault) {
        self.counters.fault(fault);
        self.disturbed += u64::from(self.phase == Phase::Chaos);
    }

    /// Somebody puts a body: most managers that run get it before it is named, as a rule.
    pub fn put_body(&mut self, attachment: &Attachment) {
        for place in self.machines.running() {
            match place {
                Place::Manager(number) if self.rng.permille(800) => {
                    self.bodies.push((number, attachment.sha256()));
                }
                Place::Manager(_) | Place::Node(_) | Place::Store | Place::Client(_) => {}
            }
        }
    }

    /// Bodies that were put and have not come yet, with the managers that get them.
    pub fn take_bodies(&mut self) -> Vec<(ManagerNumber, Digest)> {
        std::mem::take(&mut self.bodies)
    }

    /// Calls a manager.
    pub fn call(
        &mut self,
        number: ManagerNumber,
        what: CallFor,
        from: Place,
        deadline_ms: u64,
        op: Op,
    ) {
        let call = self.name();
        self.calls.insert(call, what);
        self.queue.after(deadline_ms * 1000 + 200_000, Event::ClientTimeout(call));
        self.send(from, Place::Manager(number), None, Packet::Call { call, deadline_ms, op });
    }

    /// Sends a packet. With `run`, only that run of the receiver gets it.
    pub fn send(&mut self, from: Place, to: Place, run: Option<u64>, packet: Packet) {
        let (repeats, there) = (packet.may_repeat(), self.is_there(to));
        self.feel(from, to);
        let mut passage = self.network.pass(from, to, repeats, &mut self.rng);
        let late = self.phase == Phase::Chaos && matches!(packet, Packet::ToNode { .. });
        if late && passage.again_us.is_none() && self.rng.permille(30) {
            passage.again_us = Some(self.rng.within(50_000, STRAGGLER_US_MAX));
            if there {
                self.counters.fault(Fault::LateNodeCall);
            }
        }
        self.sent += 1;
        let serial = self.sent;
        if there && passage.arrives_us.is_none() && !self.network.is_cut(from, to) {
            self.counters.fault(Fault::Loss);
        }
        if there && passage.arrives_us.is_some() && passage.again_us.is_some() {
            self.counters.fault(Fault::Duplication);
        }
        let ways = [passage.arrives_us, passage.again_us];
        if self.trace.keeps_text() {
            let fate = match ways {
                [None, None] => " (lost)",
                [Some(_), Some(_)] => " (twice)",
                [Some(_), None] => "",
                [None, Some(_)] => " (late)",
            };
            let line =
                || format!("sends #{serial} to {to}{fate}: {} {}", packet.name(), packet.line());
            self.trace.line(self.queue.now_us(), from, line);
        }
        let mut packet = Some(Box::new(packet));
        for (index, delay_us) in ways.into_iter().enumerate() {
            let Some(delay_us) = delay_us else { continue };
            let last = index == 1 || ways[1].is_none();
            let content = if last { packet.take() } else { packet.clone() };
            if let Some(packet) = content {
                self.queue.after(delay_us, Event::Arrive { from, to, run, serial, packet });
            }
        }
    }
}
