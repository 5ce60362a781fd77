//! A manager's process on its machine, and the driver that carries out its effects.

use crate::counters::{Corner, Fault};
use crate::event::{Event, StoreCall};
use crate::manager_host::{Caller, ProcessWaits};
use crate::mutants::bug::Bug;
use crate::mutants::contents::bodies_of;
use crate::mutants::plant::Altered;
use crate::mutants::recoveries::on_crash;
use crate::mutants::rules::plant_config;
use crate::mutants::{on_effect, on_input};
use crate::network::Place;
use crate::packet::{Packet, told};
use crate::setup::manager_address;
use crate::site::AtManager;
use rota_model::node_msg::{ReportEvent, ReportItem};
use rota_protocol::{CasOutcome, EffectHandler, Input, Manager, Op};

impl AtManager<'_> {
    /// Starts a manager's process with what its disk holds.
    pub fn start(&mut self) {
        let now_us = self.ground.now_us();
        let (seed, mono_ahead_ms) = (self.ground.rng.word(), self.ground.rng.within(1, 1_000_000));
        if self.host.away || self.host.process.is_some() || self.stays_away() {
            return;
        }
        let may_join = self.may_join();
        let config = plant_config(self.bug(), self.host.config.clone());
        let bodies = bodies_of(self.bug(), &self.host.blob_store);
        let (number, me, host) = (self.number, self.place(), &mut *self.host);
        host.run += 1;
        host.ends = false;
        host.mono_ahead_ms = mono_ahead_ms;
        let (run, disk, now) = (host.run, host.disk.read(), host.now(now_us));
        let mut manager = Manager::new(config, disk, seed, now);
        let offered = manager.offer(crate::writing::operations(), crate::copying::schema());
        offered.expect("it is the schema that every manager has");
        manager.keep_bodies(bodies);
        if may_join {
            manager.may_join();
        }
        if host.past.lost.is_some() && host.disk.is_empty() {
            // An operator's word: the machine before is gone for good.
            manager.force_lost();
        }
        host.process = Some(manager);
        self.ground.machines.on_start(me, run);
        if run > 1 {
            self.ground.counters.fault(Fault::ManagerRestart);
        }
        self.ground.trace.mark((now_us, "start", number, run));
        self.ground.trace.line(now_us, me, || format!("starts, run {run}"));
        let delay_us = self.ground.rng.within(500, 20_000);
        self.ground.queue.after(delay_us, Event::Watch(number, run, true));
        self.flush();
    }

    /// Kills a manager's process. What its disk had not synced may be lost.
    pub fn crash(&mut self) {
        if self.host.process.is_some() {
            self.ground.counters.fault(Fault::ManagerCrash);
            self.end_process();
        }
    }

    /// Kills a manager's process, and starts it again later.
    pub fn restart_after(&mut self, delay_us: u64) {
        self.crash();
        self.ground.queue.after(delay_us, Event::StartManager(self.number));
    }

    /// Ends a manager's process, whatever is under way.
    pub fn end_process(&mut self) {
        let now_us = self.ground.now_us();
        let (number, me, host) = (self.number, self.place(), &mut *self.host);
        if host.process.take().is_some_and(|it| it.is_claimed()) {
            host.past.lost = None;
        }
        self.ground.machines.on_end(me);
        let run = host.run;
        let crashed = host.disk.crash(&mut self.ground.rng);
        host.waiting = ProcessWaits::default();
        host.paused_until_us = 0;
        self.ground.checker.ledger.disks.on_durable(number, &crashed.kept);
        self.ground.checker.deadlines.on_gone(number, run);
        self.ground.counters.crashed(&crashed);
        self.ground.trace.mark((now_us, "crash", number, crashed.lost));
        let torn = if crashed.is_torn { ", the first in the middle of it" } else { "" };
        let line = || format!("dies, run {run}; {} batches lost{torn}", crashed.lost);
        self.ground.trace.line(now_us, me, line);
        on_crash(self);
        for other in self.ground.machines.managers() {
            let cut = self.ground.network.is_cut(Place::Manager(other), me);
            if other != number && !cut && self.ground.rng.permille(700) {
                let delay_us = self.ground.rng.within(1_000, 60_000);
                let address = manager_address(number);
                self.ground.tell_later(other, delay_us, Input::PeerRefused { number, address });
            }
        }
    }

    /// Gives a manager's process an input.
    pub fn tell(&mut self, input: Input) {
        let now_us = self.ground.now_us();
        let (number, me, host) = (self.number, self.place(), &mut *self.host);
        let run = host.run;
        if let Some(until_us) = host.paused_until(now_us) {
            self.ground.queue.at(until_us, Event::Tell(number, run, Box::new(input)));
            return;
        }
        let now = host.now(now_us);
        let Some(process) = &mut host.process else { return };
        // Whatever it was told, nothing more is to be heard of that one.
        if let Input::CasDone { cas, .. } = &input {
            host.waiting.store_calls.remove(&StoreCall::Cas(*cas));
        }
        self.ground.checker.on_input((number, run), &input);
        if let Some(line) = self.ground.trace.keeps_text().then(|| told(&input)).flatten() {
            self.ground.trace.line(now_us, me, || line);
        }
        process.handle(now, input);
        let is_full = process.is_batch_full();
        if is_full {
            self.ground.counters.corner(Corner::FullBatch);
        }
        if is_full || !host.waiting.flush_due {
            // Mostly at once; sometimes the driver gathers more first, while there is room.
            if is_full || self.ground.rng.permille(750) {
                self.flush();
            } else {
                host.waiting.flush_due = true;
                let delay_us = self.ground.rng.within(10, 1_500);
                self.ground.queue.after(delay_us, Event::Flush(number, run));
            }
        }
    }

    /// The driver has gathered enough.
    pub fn on_flush_due(&mut self) {
        if let Some(until_us) = self.host.paused_until(self.ground.now_us()) {
            self.ground.queue.at(until_us, Event::Flush(self.number, self.host.run));
            return;
        }
        self.host.waiting.flush_due = false;
        self.flush();
    }

    fn flush(&mut self) {
        let now_us = self.ground.now_us();
        let (number, host) = (self.number, &mut *self.host);
        let (now, run) = (host.now(now_us), host.run);
        let Some(process) = &mut host.process else { return };
        let effects = process.flush(now);
        if let Some(wake_ms) = process.wake_at() {
            let at_us = wake_ms.saturating_sub(host.mono_ahead_ms).saturating_mul(1000);
            let at_us = at_us.max(now_us + 100);
            if host.waiting.tick_at_us.is_none_or(|it| at_us < it || it <= now_us) {
                host.waiting.tick_at_us = Some(at_us);
                self.ground.queue.at(at_us, Event::Tick(number, run, at_us));
            }
        }
        for effect in &effects {
            self.ground.checker.on_effect(now_us, (number, run), effect);
            if let Some(corner) = Corner::of(effect) {
                self.ground.counters.corner(corner);
            }
        }
        self.ground.checker.on_flushed((number, run));
        for effect in effects {
            if let Altered::Kept(effect) = on_effect(self, effect) {
                self.carry_out(effect);
            }
        }
        self.see_whether_left();
    }

    /// A manager's timer.
    pub fn on_tick(&mut self, at_us: u64) {
        if self.host.waiting.tick_at_us == Some(at_us) {
            self.host.waiting.tick_at_us = None;
            self.tell(Input::Tick);
        }
    }

    /// A manager waits no longer for the config store.
    pub fn on_store_timeout(&mut self, call: StoreCall) {
        if self.host.waiting.store_calls.remove(&call) {
            self.tell(match call {
                StoreCall::Read(read) => Input::ConfigRead { read, state: None },
                StoreCall::Cas(cas) => Input::CasDone { cas, outcome: CasOutcome::Unknown },
            });
        }
    }

    /// A packet reaches a manager.
    pub fn gets(&mut self, only: Option<u64>, from: Place, packet: Packet) {
        let host = &mut *self.host;
        if host.process.is_none() || only.is_some_and(|it| it != host.run) {
            return;
        }
        let boot_run =
            |node: usize| self.ground.machines.nodes().get(node).map_or(0, |it| it.run());
        let input = match packet {
            Packet::Peer(envelope) => Input::Peer(envelope),
            Packet::FromNode(answer) => Input::Node(answer),
            Packet::Call { call, deadline_ms, op } => {
                self.client_input(Caller::Client(from, call), deadline_ms, op)
            }
            Packet::Report { id, item } => {
                let Place::Node(node) = from else { return };
                let boot_run = boot_run(node);
                if self.drops_news(&item) {
                    let (me, packet) = (self.place(), Packet::ReportAcked(id));
                    return self.ground.send(me, from, Some(boot_run), packet);
                }
                self.client_input(Caller::Report(node, boot_run, id), 2_000, Op::Report(item))
            }
            Packet::Register { run: boot_run, sent_mono_ms, register } => {
                let Place::Node(node) = from else { return };
                let call = self.ground.name();
                let caller = Caller::Register(node, boot_run, sent_mono_ms);
                host.waiting.callers.insert(call, caller);
                Input::NodeRegister { call, register }
            }
            Packet::Renew { sent_mono_ms, renew } => {
                let Place::Node(node) = from else { return };
                let caller = Caller::Renew(node, boot_run(node), renew.boot, sent_mono_ms);
                let call = self.ground.name();
                host.waiting.callers.insert(call, caller);
                Input::NodeRenew { call, renew }
            }
            Packet::ReadDone { read, state } => {
                if !host.waiting.store_calls.remove(&StoreCall::Read(read)) {
                    return;
                }
                Input::ConfigRead { read, state: Some(state) }
            }
            Packet::CasDone { cas, outcome } => {
                if !host.waiting.store_calls.remove(&StoreCall::Cas(cas)) {
                    return;
                }
                Input::CasDone { cas, outcome }
            }
            Packet::Watch(state) => {
                let is_ours =
                    state.view.as_ref().is_some_and(|it| self.ground.checker.ledger.is_ours(it));
                host.watches_on(&state, is_ours);
                Input::Config(state)
            }
            Packet::ToNode { .. }
            | Packet::Reply { .. }
            | Packet::Registered { .. }
            | Packet::Renewed { .. }
            | Packet::ReportAcked(_)
            | Packet::Read { .. }
            | Packet::Cas { .. } => return,
        };
        let input = on_input(self, input);
        self.tell(input);
    }

    /// For a planted bug: news that never reaches the manager, which acknowledges it all the same.
    fn drops_news(&self, item: &ReportItem) -> bool {
        let machine = matches!(item.event, ReportEvent::MachineState { .. });
        machine && self.bug() == Some(Bug::NewsDropped)
    }

    fn client_input(&mut self, caller: Caller, deadline_ms: u64, op: Op) -> Input {
        let now_us = self.ground.now_us();
        let (call, run) = (self.ground.name(), self.host.run);
        self.host.waiting.callers.insert(call, caller);
        let deadline_mono_ms = self.host.now(now_us).mono_ms + deadline_ms;
        let until_us = now_us + deadline_ms * 1000;
        self.ground.checker.deadlines.on_asked(self.number, run, call, until_us);
        Input::Client { call, deadline_mono_ms, op }
    }
}
