//! A node's agent on its machine: how it boots, what it is told, and what its effects come to.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::ledger::EndCause;
use crate::mutants::nodes::{after_decision, answer_as_meant, grant_for_all, renewed_late};
use crate::mutants::on_node_call;
use crate::mutants::rules::{registered_lost_permille, without_fences};
use crate::network::Place;
use crate::node_host::{AgentWaits, Leaving};
use crate::packet::Packet;
use crate::site::AtNode;
use rota_model::node_msg::{Renewed, ToNode};
use rota_model::{BootId, ManagerNumber, NodeState, PoolName};
use rota_node::{Node, NodeConfig, NodeEffect, NodeInput};
use std::collections::BTreeSet;

/// How long signs of life are lost after the answers to registrations.
const RENEWS_LOST_US: u64 = 900_000;

/// The time that a registration as draining carries: its answer is told from others by it.
const DRAINING: u64 = 0;

impl AtNode<'_> {
    /// Starts a boot, unless one is there.
    pub fn boot(&mut self) {
        if self.host.agent.is_some() || self.is_retired() {
            return;
        }
        // What an earlier boot left is ended first.
        self.end_programs();
        let now_us = self.ground.now_us();
        let (boot, ended_boots) = self.next_boot();
        let mono_ahead_ms = self.ground.rng.within(1, 1_000_000);
        let lease_us = self.ground.setup.timing.node_lost_ms * 1000;
        let lost_us = self.ground.rng.within(lease_us * 7 / 10, lease_us * 95 / 100);
        let lost_permille = registered_lost_permille(self.bug());
        let is_lost = self.ground.phase == Phase::Chaos && self.ground.rng.permille(lost_permille);
        let host = &mut *self.host;
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
        let (index, run, me) = (self.index, host.run, self.place());
        self.ground.machines.on_start(me, run);
        self.ground.trace.mark((now_us, "boot", index, run));
        self.ground.trace.line(now_us, me, || format!("boots, run {run}, {boot:?}"));
        self.ground.queue.after(1_000, Event::RegisterNode(index, run));
        self.ground.connect_node(index);
        self.flush(None);
    }

    /// Kills a node with everything that it runs.
    pub fn kill(&mut self) {
        let now_us = self.ground.now_us();
        // Nobody goes on from it.
        self.host.journal.clear();
        self.ground.machines.on_end(self.place());
        if self.host.agent.take().is_none() && self.host.programs.is_empty() {
            return;
        }
        self.host.waiting = AgentWaits::default();
        self.end_programs();
        self.ground.trace.mark((now_us, "kill", self.index));
        self.ground.trace.line(now_us, self.place(), || "dies with all its programs".into());
    }

    /// Kills a node, and boots it again after some time.
    pub fn boot_anew(&mut self, (from_us, to_us): (u64, u64)) {
        self.kill();
        let delay_us = self.ground.rng.within(from_us, to_us);
        self.ground.queue.after(delay_us, Event::BootNode(self.index));
    }

    /// Ends everything that runs on a machine.
    fn end_programs(&mut self) {
        self.host.untold.clear();
        for program in std::mem::take(&mut self.host.programs).into_values() {
            self.end_instance(program.instance, EndCause::BootDied);
        }
    }

    /// A boot registers, and repeats that until it is answered.
    pub fn on_register_due(&mut self, run: u64) {
        let now_us = self.ground.now_us();
        let event = Event::RegisterNode(self.index, run);
        if let Some(until_us) = self.host.paused_until(now_us) {
            self.ground.queue.at(until_us, event);
            return;
        }
        let manager = self.ground.some_manager();
        let Some(agent) = self.host.agent.as_ref().filter(|_| self.host.run == run) else { return };
        let is_left = self.host.leaving == Leaving::Left;
        let state = if is_left { NodeState::Removed } else { NodeState::Ready };
        let is_known = agent.is_registered() && !agent.managers().is_empty();
        if is_known && state == NodeState::Ready {
            return;
        }
        self.register(manager, self.host.mono_ms(now_us), state);
        let again_us = self.ground.rng.within(150_000, 700_000);
        self.ground.queue.after(again_us, event);
    }

    fn register(&mut self, manager: ManagerNumber, sent_mono_ms: u64, state: NodeState) {
        let Some(agent) = &self.host.agent else { return };
        let address = self.ground.machines.nodes()[self.index].address.clone();
        let register = agent.registration(address, PoolName::default_pool(), state);
        let packet = Packet::Register { run: self.host.run, sent_mono_ms, register };
        self.ground.send(self.place(), Place::Manager(manager), None, packet);
    }

    /// A packet reaches a node.
    pub fn gets(&mut self, only: Option<u64>, packet: Packet) {
        let now_us = self.ground.now_us();
        let host = &mut *self.host;
        if host.agent.is_none() || only.is_some_and(|it| it != host.run) {
            return;
        }
        let input = match packet {
            Packet::ToNode { manager, generation, message } => {
                self.is_called((manager, generation), message);
                return;
            }
            Packet::Registered { sent_mono_ms: DRAINING, .. } => return,
            Packet::Registered { result: Err(refusal), .. } => {
                return self.on_register_refused(&refusal);
            }
            Packet::Registered { .. } if now_us < host.registered_lost_until_us => {
                if host.agent.as_ref().is_some_and(|it| !it.is_registered()) {
                    self.ground.counters.fault(Fault::RegisteredLost);
                }
                return;
            }
            Packet::Registered { result: Ok(_), .. } if host.leaving == Leaving::Left => {
                return self.boot_anew((50_000, 2_000_000));
            }
            Packet::Registered { sent_mono_ms, result: Ok(registered) } => {
                self.ground.checker.on_fences(&host.name(), &registered.fences);
                let registered = without_fences(self.bug(), registered);
                NodeInput::Registered { sent_mono_ms, registered }
            }
            Packet::Renewed { boot, sent_mono_ms, renewed } => {
                return self.on_renewed((boot, sent_mono_ms), renewed);
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
        self.tell(input);
    }

    fn is_called(&mut self, from: (ManagerNumber, u64), message: ToNode) {
        let stream = self.ground.name();
        self.host.waiting.streams.insert(stream, from);
        self.ground.checker.on_node_call(from, &self.host.name(), &message);
        let call = message.head().call;
        let Some(message) = on_node_call(self, message) else { return };
        let mono_ms = self.host.mono_ms(self.ground.now_us());
        let Some(agent) = &mut self.host.agent else { return };
        agent.handle(mono_ms, NodeInput::Call { stream, message });
        self.flush(Some((from, call)));
    }

    /// A node is told that its lease was renewed, as an answer to what it sent at that time.
    fn on_renewed(&mut self, (boot, sent_mono_ms): (BootId, u64), renewed: Renewed) {
        let renewed = grant_for_all(self.bug(), self.ground.setup.m, renewed);
        let Some(late_us) = renewed_late(self) else {
            return self.tell(NodeInput::Renewed { boot, sent_mono_ms, renewed });
        };
        let sent_mono_ms = self.host.mono_ms(self.ground.now_us() + late_us);
        self.hears(late_us, NodeInput::Renewed { boot, sent_mono_ms, renewed });
    }

    /// This boot's agent is told something by its runtime, later.
    pub(crate) fn hears(&mut self, delay_us: u64, input: NodeInput) {
        let event = Event::TellNode(self.index, self.host.run, Box::new(input));
        self.ground.queue.after(delay_us, event);
    }

    /// Gives a node's agent an input.
    pub fn tell(&mut self, input: NodeInput) {
        let now_us = self.ground.now_us();
        if let Some(until_us) = self.host.paused_until(now_us) {
            let event = Event::TellNode(self.index, self.host.run, Box::new(input));
            self.ground.queue.at(until_us, event);
            return;
        }
        let (mono_ms, me) = (self.host.mono_ms(now_us), self.place());
        let Some(agent) = &mut self.host.agent else { return };
        if input != NodeInput::Tick {
            self.ground.trace.line(now_us, me, || format!("is told {input:?}"));
        }
        agent.handle(mono_ms, input);
        self.flush(None);
    }

    /// A node's timer.
    pub fn on_tick(&mut self, at_us: u64) {
        if self.host.waiting.tick_at_us == Some(at_us) {
            self.host.waiting.tick_at_us = None;
            self.tell(NodeInput::Tick);
        }
    }

    pub(crate) fn flush(&mut self, call: Option<((ManagerNumber, u64), u64)>) {
        let now_us = self.ground.now_us();
        let (index, run, boot) = (self.index, self.host.run, self.host.name());
        let Some(agent) = &mut self.host.agent else { return };
        let mut effects = agent.flush();
        after_decision(self, &effects);
        let dies = self.write_journal(&mut effects);
        let host = &mut *self.host;
        let Some(agent) = &host.agent else { return };
        let wake_us = agent.wake_at().map(|it| host.us_of(it).max(now_us + 100));
        if let Some(at_us) = wake_us
            && host.waiting.tick_at_us.is_none_or(|it| at_us < it || it <= now_us)
        {
            host.waiting.tick_at_us = Some(at_us);
            self.ground.queue.at(at_us, Event::NodeTick(index, run, at_us));
        }
        for effect in effects {
            self.ground.checker.on_node_effect(now_us, &boot, call, &effect);
            if self.host.run == run {
                self.carry_out(effect);
            }
        }
        if dies {
            self.kill_agent();
        }
    }

    fn carry_out(&mut self, effect: NodeEffect) {
        let (now_us, me) = (self.ground.now_us(), self.place());
        let host = &mut *self.host;
        match effect {
            NodeEffect::Answer { stream, answer } => {
                // A stream may carry several answers to one repeated call; it stays known.
                let Some((manager, generation)) = host.waiting.streams.get(&stream).copied() else {
                    return;
                };
                let boot = host.name();
                self.ground.checker.on_node_answer(now_us, (manager, generation), &boot, &answer);
                let answer = answer_as_meant(self.plant.as_ref(), answer);
                let to = Place::Manager(manager);
                self.ground.send(me, to, Some(generation), Packet::FromNode(answer));
            }
            NodeEffect::Start { key, token, spec: _, not_after_mono_ms } => {
                self.start_program(key, token, not_after_mono_ms);
            }
            NodeEffect::Stop { key, token, how } => self.stop_program(key, token, how),
            NodeEffect::Act { key, token, action, .. } => {
                // The agent may not have heard that the program ended.
                if host.programs.contains_key(&(key.clone(), token)) {
                    self.start_action(key, token, *action);
                } else {
                    self.refuse_action(key, token, *action);
                }
            }
            // Written down already.
            NodeEffect::Journal { .. } => {}
            NodeEffect::Adopt { key, token, .. } => self.adopt_program(key, token),
            NodeEffect::Report { id, item, attempt: _ } => {
                let (id, manager) = (host.name_of_report(id), self.ground.some_manager());
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
                    let event = Event::Keeper(self.index, host.run);
                    self.ground.queue.at(at_us.max(now_us), event);
                }
            }
            NodeEffect::BootAnew => {
                self.ground.trace.line(now_us, me, || "boots anew: it was declared lost".into());
                self.boot_anew((1_000, 200_000));
            }
            NodeEffect::Retire => host.leaving = Leaving::Asked,
            NodeEffect::Left => {
                host.leaving = Leaving::Left;
                self.ground.queue.after(100, Event::RegisterNode(self.index, host.run));
            }
        }
    }

    /// Tells a node to leave in good order.
    pub fn ask_to_leave(&mut self) -> bool {
        let registered = self.host.agent.as_ref().is_some_and(Node::is_registered);
        if !registered || self.host.leaving != Leaving::No {
            return false;
        }
        self.host.leaving = Leaving::Asked;
        self.tell(NodeInput::Leave);
        if self.ground.rng.permille(500) {
            self.register_as_draining();
        }
        true
    }

    /// Says so in the registry, too: nobody opens anything there any more. It needs no answer.
    fn register_as_draining(&mut self) {
        let manager = self.ground.some_manager();
        if self.host.agent.is_some() {
            self.ground.counters.fault(Fault::NodeDraining);
            self.register(manager, DRAINING, NodeState::Draining);
        }
    }
}
