//! A node's agent, its programs under their keepers, and what really runs there.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::folders::Folder;
use crate::ledger::EndCause;
use crate::network::Place;
use crate::packet::Packet;
use crate::setup::node_address;
use crate::world::World;
use rota_model::node_msg::ToNode;
use rota_model::{BootId, ManagerNumber, NodeId, NodeState, PoolName, SessionKey, SlotId, Token};
use rota_node::{Entry, Node, NodeConfig, NodeEffect, NodeInput, SlotLease, StopHow};
use rota_protocol::Input;
use std::collections::{BTreeMap, BTreeSet};

/// A program under its keeper.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its execution in the observer's book; `None` before it runs.
    pub instance: Option<usize>,
    /// It was asked to stop.
    pub stopping: Option<StopHow>,
    /// It answers.
    pub ready: bool,
    /// It will not start.
    pub fails: bool,
    /// It is not to start later than this, on the node's clock.
    pub not_after_mono_ms: u64,
}

/// A node's machine.
pub struct NodeHost {
    /// Its id.
    pub id: NodeId,
    /// Where managers reach it; two machines may have one id.
    pub address: String,
    /// What its data folder remembers of its boots.
    pub folder: Folder,
    /// Its agent, when it runs.
    pub agent: Option<Node>,
    /// How many agents of this boot there were before this one.
    pub agents_before: u64,
    /// What they wrote down for the next one.
    pub journal: Vec<Entry>,
    /// What keepers said of ends while there was no agent.
    pub untold: BTreeMap<(SessionKey, Token), NodeInput>,
    /// The agent dies when it has next written something down, before it does anything that follows.
    pub dies_next: bool,
    /// Counts its boots.
    pub run: u64,
    /// This boot.
    pub boot: BootId,
    /// The agent receives nothing before this.
    pub paused_until_us: u64,
    mono_ahead_ms: u64,
    /// Its programs.
    pub programs: BTreeMap<(SessionKey, Token), Program>,
    /// When keepers end programs politely, and when they kill, by slot and on the node's clock.
    pub lease: Vec<SlotLease>,
    pub(crate) streams: BTreeMap<u64, (ManagerNumber, u64)>,
    pub(crate) tick_at_us: Option<u64>,
    /// Answers to its registrations are lost before this.
    pub registered_lost_until_us: u64,
    /// It takes no new connection before this.
    pub refuses_until_us: u64,
    /// It was told to leave; registers as REMOVED once it has.
    pub leaving: Leaving,
}

/// How long signs of life are lost after the answers to registrations.
const RENEWS_LOST_US: u64 = 900_000;

/// The time that a registration as draining carries: its answer is told from others by it.
const DRAINING: u64 = 0;

/// How far a node is with leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// It stays.
    No,
    /// It ends what it runs.
    Asked,
    /// Nothing is left but to say so.
    Left,
}

impl NodeHost {
    /// The node's monotonic clock.
    pub fn mono_ms(&self, now_us: u64) -> u64 {
        now_us / 1000 + self.mono_ahead_ms
    }

    fn us_of(&self, mono_ms: u64) -> u64 {
        mono_ms.saturating_sub(self.mono_ahead_ms).saturating_mul(1000)
    }

    /// When keepers kill what is in a slot.
    pub fn kill_at_ms(&self, slot: SlotId) -> Option<u64> {
        self.lease.iter().find(|it| it.slots.contains(slot)).map(|it| it.kill_at_mono_ms)
    }

    /// Boot as the observer names it.
    pub fn name(&self) -> (NodeId, BootId) {
        (self.id.clone(), self.boot)
    }
}

impl World {
    /// Adds a machine that was never started.
    pub fn add_node(&mut self, id: NodeId) {
        let address = node_address(&id);
        self.add_machine(id, address);
    }

    /// The same at an address of its own.
    pub fn add_machine(&mut self, id: NodeId, address: String) {
        self.ground.node_ids.push(id.clone());
        self.nodes.push(NodeHost {
            id,
            address,
            folder: Folder::default(),
            agent: None,
            agents_before: 0,
            journal: Vec::new(),
            untold: BTreeMap::new(),
            dies_next: false,
            run: 0,
            boot: BootId(0),
            paused_until_us: 0,
            mono_ahead_ms: 0,
            programs: BTreeMap::new(),
            lease: Vec::new(),
            streams: BTreeMap::new(),
            tick_at_us: None,
            registered_lost_until_us: 0,
            refuses_until_us: 0,
            leaving: Leaving::No,
        });
    }

    /// Starts a boot, unless one is there.
    pub fn boot_node(&mut self, index: usize) {
        if self.nodes.get(index).is_none_or(|it| it.agent.is_some()) || self.is_retired(index) {
            return;
        }
        // What an earlier boot left is ended first.
        self.end_programs(index);
        let now_us = self.ground.now_us();
        let (boot, ended_boots) = self.next_boot(index);
        let mono_ahead_ms = self.ground.rng.within(1, 1_000_000);
        let lease_us = self.ground.setup.timing.node_lost_ms * 1000;
        let lost_us = self.ground.rng.within(lease_us * 7 / 10, lease_us * 95 / 100);
        let is_lost =
            self.ground.phase == Phase::Chaos && self.ground.rng.permille(self.registered_lost());
        let Some(host) = self.nodes.get_mut(index) else { return };
        host.run += 1;
        host.boot = boot;
        host.mono_ahead_ms = mono_ahead_ms;
        host.lease.clear();
        host.leaving = Leaving::No;
        host.registered_lost_until_us = if is_lost { now_us + lost_us } else { 0 };
        host.paused_until_us = 0;
        let config = NodeConfig { ended_boots, ..self.ground.setup.node_config(&host.id, boot) };
        let agent = Node::new(config);
        host.journal = agent.remembered();
        (host.agents_before, host.dies_next) = (0, false);
        host.agent = Some(agent);
        self.ground.on_start(Place::Node(index));
        let run = host.run;
        self.ground.trace.mark((now_us, "boot", index, run));
        self.ground
            .trace
            .line(now_us, Place::Node(index), || format!("boots, run {run}, {boot:?}"));
        self.ground.queue.after(1_000, Event::RegisterNode(index, run));
        self.connect_node(index);
        self.flush_node(index, None);
    }

    /// Kills a node with everything that it runs.
    pub fn kill_node(&mut self, index: usize) {
        let now_us = self.ground.now_us();
        let Some(host) = self.nodes.get_mut(index) else { return };
        // Nobody goes on from it.
        host.journal.clear();
        self.ground.on_end(Place::Node(index));
        if host.agent.take().is_none() && host.programs.is_empty() {
            return;
        }
        host.tick_at_us = None;
        host.streams.clear();
        self.end_programs(index);
        self.ground.trace.mark((now_us, "kill", index));
        self.ground.trace.line(now_us, Place::Node(index), || "dies with all its programs".into());
    }

    /// Ends everything that runs on a machine.
    pub fn end_programs(&mut self, index: usize) {
        let Some(host) = self.nodes.get_mut(index) else { return };
        host.untold.clear();
        for program in std::mem::take(&mut host.programs).into_values() {
            self.end_instance(program.instance, EndCause::BootDied);
        }
    }

    /// Tells the managers that a connection to a node was opened anew.
    pub fn connect_node(&mut self, index: usize) {
        let Some(node) = self.nodes.get(index).map(|it| it.id.clone()) else { return };
        for number in self.managers.keys().copied().collect::<Vec<_>>() {
            let delay_us = self.ground.rng.within(500, 80_000);
            self.tell_later(number, delay_us, Input::NodeConnected { node: node.clone() });
        }
    }

    fn any_manager(&mut self) -> ManagerNumber {
        let index = self.ground.rng.index(self.ground.setup.numbers.len());
        self.ground.setup.numbers[index].0
    }

    /// A boot registers, and repeats that until it is answered.
    pub fn on_register_due(&mut self, index: usize, run: u64) {
        if let Some(until_us) = self.paused_until(Place::Node(index)) {
            self.ground.queue.at(until_us, Event::RegisterNode(index, run));
            return;
        }
        let now_us = self.ground.now_us();
        let manager = self.any_manager();
        let Some(host) = self.nodes.get(index).filter(|it| it.run == run) else { return };
        let Some(agent) = &host.agent else { return };
        let state =
            if host.leaving == Leaving::Left { NodeState::Removed } else { NodeState::Ready };
        let is_known = agent.is_registered() && !agent.managers().is_empty();
        if is_known && state == NodeState::Ready {
            return;
        }
        let register = agent.registration(host.address.clone(), PoolName::default_pool(), state);
        let sent_mono_ms = host.mono_ms(now_us);
        let packet = Packet::Register { run, sent_mono_ms, register };
        self.ground.send(Place::Node(index), Place::Manager(manager), None, packet);
        let again_us = self.ground.rng.within(150_000, 700_000);
        self.ground.queue.after(again_us, Event::RegisterNode(index, run));
    }

    /// A packet reaches a node.
    pub fn node_gets(&mut self, index: usize, only: Option<u64>, packet: Packet) {
        let now_us = self.ground.now_us();
        let Some(host) = self.nodes.get_mut(index) else { return };
        let run = host.run;
        if host.agent.is_none() || only.is_some_and(|it| it != run) {
            return;
        }
        let input = match packet {
            Packet::ToNode { manager, generation, message } => {
                self.node_call(index, (manager, generation), message);
                return;
            }
            Packet::Registered { sent_mono_ms: DRAINING, .. } => return,
            Packet::Registered { result: Err(refusal), .. } => {
                return self.on_register_refused(index, &refusal);
            }
            Packet::Registered { .. } if now_us < host.registered_lost_until_us => {
                if host.agent.as_ref().is_some_and(|it| !it.is_registered()) {
                    self.ground.counters.fault(Fault::RegisteredLost);
                }
                return;
            }
            Packet::Registered { result: Ok(_), .. } if host.leaving == Leaving::Left => {
                self.kill_node(index);
                let delay_us = self.ground.rng.within(50_000, 2_000_000);
                self.ground.queue.after(delay_us, Event::BootNode(index));
                return;
            }
            Packet::Registered { sent_mono_ms, result: Ok(registered) } => {
                self.ground.checker.on_fences(&host.name(), &registered.fences);
                let registered = self.plant_on_registered(registered);
                NodeInput::Registered { sent_mono_ms, registered }
            }
            Packet::Renewed { boot, sent_mono_ms, renewed } => {
                return self.on_renewed((index, run), (boot, sent_mono_ms), renewed);
            }
            Packet::ReportAcked(id) => match host.own_report(id) {
                Some(id) => NodeInput::ReportsAcked { ids: vec![id] },
                None => return,
            },
            Packet::Peer(_)
            | Packet::FromNode(_)
            | Packet::Call { .. }
            | Packet::Reply { .. }
            | Packet::Register { .. }
            | Packet::Renew { .. }
            | Packet::Report { .. }
            | Packet::Read { .. }
            | Packet::ReadDone { .. }
            | Packet::Cas { .. }
            | Packet::CasDone { .. }
            | Packet::Watch(_) => return,
        };
        self.tell_node(index, run, input);
    }

    fn node_call(&mut self, index: usize, from: (ManagerNumber, u64), message: ToNode) {
        let stream = self.ground.name();
        let Some(host) = self.nodes.get_mut(index) else { return };
        host.streams.insert(stream, from);
        self.ground.checker.on_node_call(from, &host.name(), &message);
        let call = message.head().call;
        let Some(message) = self.plant_on_node_call(index, message) else { return };
        let now_us = self.ground.now_us();
        let Some(host) = self.nodes.get_mut(index) else { return };
        let mono_ms = host.mono_ms(now_us);
        let Some(agent) = &mut host.agent else { return };
        agent.handle(mono_ms, NodeInput::Call { stream, message });
        self.flush_node(index, Some((from, call)));
    }

    /// Gives a node's agent an input, if that boot is still there.
    pub fn tell_node(&mut self, index: usize, run: u64, input: NodeInput) {
        if let Some(until_us) = self.paused_until(Place::Node(index)) {
            self.ground.queue.at(until_us, Event::TellNode(index, run, Box::new(input)));
            return;
        }
        let now_us = self.ground.now_us();
        let Some(host) = self.nodes.get_mut(index).filter(|it| it.run == run) else { return };
        let mono_ms = host.mono_ms(now_us);
        let Some(agent) = &mut host.agent else { return };
        if input != NodeInput::Tick {
            self.ground.trace.line(now_us, Place::Node(index), || format!("is told {input:?}"));
        }
        agent.handle(mono_ms, input);
        self.flush_node(index, None);
    }

    /// A node's timer.
    pub fn on_node_tick(&mut self, index: usize, run: u64, at_us: u64) {
        let host = self.nodes.get_mut(index);
        let Some(host) = host.filter(|it| it.run == run && it.tick_at_us == Some(at_us)) else {
            return;
        };
        host.tick_at_us = None;
        self.tell_node(index, run, NodeInput::Tick);
    }

    pub(crate) fn flush_node(&mut self, index: usize, call: Option<((ManagerNumber, u64), u64)>) {
        let now_us = self.ground.now_us();
        let Some(host) = self.nodes.get_mut(index) else { return };
        let (run, boot) = (host.run, host.name());
        let Some(agent) = &mut host.agent else { return };
        let mut effects = agent.flush();
        self.plant_on_node_decided(index, &effects);
        let dies = self.write_journal(index, &mut effects);
        let Some(host) = self.nodes.get_mut(index) else { return };
        let Some(agent) = &host.agent else { return };
        let wake_us = agent.wake_at().map(|it| host.us_of(it).max(now_us + 100));
        if let Some(at_us) = wake_us
            && host.tick_at_us.is_none_or(|it| at_us < it || it <= now_us)
        {
            host.tick_at_us = Some(at_us);
            self.ground.queue.at(at_us, Event::NodeTick(index, run, at_us));
        }
        for effect in effects {
            self.ground.checker.on_node_effect(now_us, &boot, call, &effect);
            self.carry_out_at_node(index, run, effect);
        }
        if dies {
            self.kill_agent(index);
        }
    }

    fn carry_out_at_node(&mut self, index: usize, run: u64, effect: NodeEffect) {
        let (now_us, me) = (self.ground.now_us(), Place::Node(index));
        let Some(host) = self.nodes.get_mut(index).filter(|it| it.run == run) else { return };
        match effect {
            NodeEffect::Answer { stream, answer } => {
                // A stream may carry several answers to one repeated call; it stays known.
                let Some((manager, generation)) = host.streams.get(&stream).copied() else {
                    return;
                };
                let boot = host.name();
                self.ground.checker.on_node_answer(now_us, (manager, generation), &boot, &answer);
                let answer = self.plant_on_node_answer(answer);
                let to = Place::Manager(manager);
                self.ground.send(me, to, Some(generation), Packet::FromNode(answer));
            }
            NodeEffect::Start { key, token, spec: _, not_after_mono_ms } => {
                self.start_program(index, run, key, token, not_after_mono_ms);
            }
            NodeEffect::Stop { key, token, how } => self.stop_program(index, run, key, token, how),
            NodeEffect::Act { key, token, action, .. } => {
                // The agent may not have heard that the program ended.
                if host.programs.contains_key(&(key.clone(), token)) {
                    self.start_action(index, run, key, token, *action);
                } else {
                    self.refuse_action(index, run, key, token, *action);
                }
            }
            // Written down already.
            NodeEffect::Journal { .. } => {}
            NodeEffect::Adopt { key, token, .. } => self.adopt_program(index, run, key, token),
            NodeEffect::Report { id, item, attempt: _ } => {
                let (id, manager) = (host.name_of_report(id), self.any_manager());
                self.ground.send(me, Place::Manager(manager), None, Packet::Report { id, item });
            }
            // The network that lost the answers loses the first signs of life, too.
            NodeEffect::Renew { .. }
                if host.registered_lost_until_us > 0
                    && now_us < host.registered_lost_until_us + RENEWS_LOST_US => {}
            NodeEffect::Renew { sent_mono_ms, renew, managers } => {
                for (number, _) in managers {
                    let packet = Packet::Renew { sent_mono_ms, renew: renew.clone() };
                    self.ground.send(me, Place::Manager(number), None, packet);
                }
            }
            NodeEffect::Lease { slots } => {
                let kills: BTreeSet<u64> = slots.iter().map(|it| it.kill_at_mono_ms).collect();
                let kills: Vec<u64> = kills.into_iter().map(|it| host.us_of(it)).collect();
                host.lease = slots;
                for at_us in kills {
                    self.ground.queue.at(at_us.max(now_us), Event::Keeper(index, run));
                }
            }
            NodeEffect::BootAnew => {
                self.ground.trace.line(now_us, me, || "boots anew: it was declared lost".into());
                self.kill_node(index);
                let delay_us = self.ground.rng.within(1_000, 200_000);
                self.ground.queue.after(delay_us, Event::BootNode(index));
            }
            NodeEffect::Retire => host.leaving = Leaving::Asked,
            NodeEffect::Left => {
                host.leaving = Leaving::Left;
                self.ground.queue.after(100, Event::RegisterNode(index, run));
            }
        }
    }

    /// Tells a node to leave in good order.
    pub fn ask_to_leave(&mut self, index: usize) -> bool {
        let Some(host) = self.nodes.get_mut(index) else { return false };
        let registered = host.agent.as_ref().is_some_and(Node::is_registered);
        if !registered || host.leaving != Leaving::No {
            return false;
        }
        host.leaving = Leaving::Asked;
        let run = host.run;
        self.tell_node(index, run, NodeInput::Leave);
        if self.ground.rng.permille(500) {
            self.register_as_draining(index);
        }
        true
    }

    /// Says so in the registry, too: nobody opens anything there any more. It needs no answer.
    fn register_as_draining(&mut self, index: usize) {
        let manager = self.any_manager();
        let Some(host) = self.nodes.get(index) else { return };
        let Some(agent) = &host.agent else { return };
        let (address, run) = (host.address.clone(), host.run);
        let register = agent.registration(address, PoolName::default_pool(), NodeState::Draining);
        let packet = Packet::Register { run, sent_mono_ms: DRAINING, register };
        self.ground.counters.fault(Fault::NodeDraining);
        self.ground.send(Place::Node(index), Place::Manager(manager), None, packet);
    }

    /// Ordered nodes are there, or did not come.
    pub fn on_provisioned(
        &mut self,
        number: ManagerNumber,
        run: u64,
        order: u64,
        nodes: Vec<NodeId>,
    ) {
        let fails = self.ground.phase == Phase::Chaos && self.ground.rng.permille(150);
        if fails {
            self.ground.counters.fault(Fault::ProvisionFailed);
        } else {
            for node in nodes {
                if self.node_index(&node).is_none() {
                    self.add_node(node);
                    let index = self.nodes.len() - 1;
                    let delay_us = self.ground.rng.within(1_000, 150_000);
                    self.ground.queue.after(delay_us, Event::BootNode(index));
                }
            }
        }
        let failure = fails.then(|| String::from("the simulator lets it fail"));
        self.tell_manager(
            number,
            run,
            Input::Provisioned { order, begun: true, failed: Vec::new(), failure },
        );
    }

    /// What was left of a node is ended, or could not be. Nodes of the simulator leave nothing behind.
    pub fn on_node_cleared(
        &mut self,
        number: ManagerNumber,
        run: u64,
        pool: PoolName,
        node: NodeId,
    ) {
        let fails = self.ground.phase == Phase::Chaos && self.ground.rng.permille(150);
        let failure = fails.then(|| String::from("the simulator lets it fail"));
        self.tell_manager(number, run, Input::NodeCleared { pool, node, failure });
    }
}
