//! A manager's process, its disk, its clocks, and the driver that carries out its effects.

use crate::blob_store::BlobStore;
use crate::counters::{Corner, Fault};
use crate::disk::SimDisk;
use crate::event::{Event, StoreCall, WALL_START_MS};
use crate::invariant::deadlines::GRACE_MS;
use crate::manager_effects::AtManager;
use crate::mutants::Altered;
use crate::network::Place;
use crate::packet::{Packet, told};
use crate::setup::manager_address;
use crate::world::World;
use rota_model::node_msg::ToNode;
use rota_model::{BootId, ManagerNumber, NodeId, Now};
use rota_node::ReportId;
use rota_protocol::{CasOutcome, EffectHandler, Input, Manager, ManagerConfig, Op, Wait};
use rota_ring::ConfigState;
use std::collections::{BTreeMap, BTreeSet};

/// Who waits for an answer of a manager's process.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A client's call.
    Client(Place, u64),
    /// A node's registration, sent at that time of its clock.
    Register(usize, u64, u64),
    /// A node's sign of life.
    Renew(usize, u64, BootId, u64),
    /// A node's report.
    Report(usize, u64, ReportId),
}

/// Calls that wait for a connection, by machine. One that is there has something waiting.
pub type Links = BTreeMap<usize, Vec<ToNode>>;

/// A manager's machine.
pub struct ManagerHost {
    /// What its process is told.
    pub config: ManagerConfig,
    /// Whether it may come into a ring in which nobody reserved its number.
    pub joins: bool,
    /// It was told to take a number again that has left.
    pub told: bool,
    /// Its number has left, and its process is about to end.
    pub ends: bool,
    /// It stays away until the cluster is healed, whoever starts it.
    pub away: bool,
    /// Its process, when it runs.
    pub process: Option<Manager>,
    /// Counts its processes.
    pub run: u64,
    /// Its disk.
    pub disk: SimDisk,
    /// The bodies on its disk.
    pub blob_store: BlobStore,
    /// It receives nothing before this.
    pub paused_until_us: u64,
    /// Syncs take this many times longer, until then.
    pub slow_disk_until_us: u64,
    /// A sync has already taken longer for that.
    pub slow_disk_felt: bool,
    /// Its wall clock is off by this many ms.
    pub wall_ahead_ms: u64,
    /// An older copy of its disk, for a planted bug.
    pub old_disk: Option<rota_protocol::Disk>,
    /// What its disk held when the newest run had just taken its number.
    pub backup: Option<rota_protocol::Disk>,
    /// What its disk held when it was lost.
    pub lost_disk: Option<rota_protocol::Disk>,
    /// What waits for connections to nodes.
    pub links: Links,
    mono_ahead_ms: u64,
    pub(crate) callers: BTreeMap<u64, Caller>,
    pub(crate) store_calls: BTreeSet<StoreCall>,
    watched: Option<u64>,
    flush_due: bool,
    tick_at_us: Option<u64>,
}

impl ManagerHost {
    /// A machine with an empty disk.
    pub fn new(config: ManagerConfig) -> Self {
        Self {
            config,
            joins: false,
            told: false,
            ends: false,
            away: false,
            process: None,
            run: 0,
            disk: SimDisk::default(),
            blob_store: BlobStore::default(),
            paused_until_us: 0,
            slow_disk_until_us: 0,
            slow_disk_felt: false,
            wall_ahead_ms: 100_000,
            old_disk: None,
            backup: None,
            lost_disk: None,
            links: Links::default(),
            mono_ahead_ms: 0,
            callers: BTreeMap::new(),
            store_calls: BTreeSet::new(),
            watched: None,
            flush_due: false,
            tick_at_us: None,
        }
    }

    /// A watch showed this. What is refused is asked for again.
    fn watches_on(&mut self, state: &ConfigState, is_ours: bool) {
        let known = self.process.as_ref().and_then(|it| it.view()).map(|it| it.epoch);
        if is_ours && known.is_none_or(|known| state.epoch() >= known) {
            self.watched = self.watched.max(Some(state.index));
        }
    }

    /// The disk that acknowledged what was acknowledged last: of a machine that was lost, its own, until
    /// its number is taken by another one.
    pub fn disk_as_acked(&self) -> &rota_protocol::Disk {
        let is_taken = self.process.as_ref().is_some_and(Manager::is_claimed);
        self.lost_disk.as_ref().filter(|_| !is_taken).unwrap_or_else(|| self.disk.durable())
    }

    /// What waits in its process, unless that has just been paused and may be late.
    pub fn waits(&self, now_us: u64) -> Option<Vec<Wait>> {
        let awake = now_us >= self.paused_until_us + GRACE_MS * 1000;
        let process = self.process.as_ref().filter(|_| awake)?;
        Some(process.waits(self.now(now_us).mono_ms))
    }

    /// What its wall clock says.
    pub fn wall_ms(&self, now_us: u64) -> u64 {
        self.now(now_us).wall_ms
    }

    pub(crate) fn now(&self, now_us: u64) -> Now {
        let mono_ms = now_us / 1000 + self.mono_ahead_ms;
        // Offsets are held shifted by 100 s, so that they may be negative.
        let wall_ms = WALL_START_MS + now_us / 1000 + self.wall_ahead_ms - 100_000;
        Now { mono_ms, wall_ms }
    }
}

impl World {
    /// Starts a manager's process with what its disk holds.
    pub fn start_manager(&mut self, number: ManagerNumber) {
        let now_us = self.ground.now_us();
        let (seed, mono_ahead_ms) = (self.ground.rng.word(), self.ground.rng.within(1, 1_000_000));
        let bodies = self.blobs_of(number);
        if self.managers.get(&number).is_none_or(|it| it.away || it.process.is_some())
            || self.stays_away(number)
        {
            return;
        }
        let may_join = self.may_join(number);
        let config = self.managers.get(&number).map(|it| self.plant_config(it.config.clone()));
        let (Some(host), Some(config)) = (self.managers.get_mut(&number), config) else { return };
        host.run += 1;
        host.ends = false;
        let run = host.run;
        host.mono_ahead_ms = mono_ahead_ms;
        let disk = host.disk.read();
        let now = host.now(now_us);
        let mut manager = Manager::new(config, disk, seed, now);
        let offered = manager.offer(crate::writing::operations(), crate::copying::schema());
        offered.expect("it is the schema that every manager has");
        manager.keep_bodies(bodies);
        if may_join {
            manager.may_join();
        }
        if host.lost_disk.is_some() && host.disk.is_empty() {
            // An operator's word: the machine before is gone for good.
            manager.force_lost();
        }
        host.process = Some(manager);
        self.ground.on_start(Place::Manager(number));
        if run > 1 {
            self.ground.counters.fault(Fault::ManagerRestart);
        }
        self.ground.trace.mark((now_us, "start", number, run));
        self.ground.trace.line(now_us, Place::Manager(number), || format!("starts, run {run}"));
        let delay_us = self.ground.rng.within(500, 20_000);
        self.ground.queue.after(delay_us, Event::Watch(number, run, true));
        self.flush_manager(number);
    }

    /// Kills a manager's process. What its disk had not synced may be lost.
    pub fn crash_manager(&mut self, number: ManagerNumber) {
        if self.managers.get(&number).is_some_and(|it| it.process.is_some()) {
            self.ground.counters.fault(Fault::ManagerCrash);
            self.end_process(number);
        }
    }

    /// Ends a manager's process, whatever is under way.
    pub fn end_process(&mut self, number: ManagerNumber) {
        let now_us = self.ground.now_us();
        let Some(host) = self.managers.get_mut(&number) else { return };
        if host.process.take().is_some_and(|it| it.is_claimed()) {
            host.lost_disk = None;
        }
        self.ground.on_end(Place::Manager(number));
        let run = host.run;
        let crashed = host.disk.crash(&mut self.ground.rng);
        host.callers.clear();
        host.links.clear();
        host.store_calls.clear();
        host.watched = None;
        host.flush_due = false;
        host.tick_at_us = None;
        host.paused_until_us = 0;
        self.ground.checker.ledger.on_durable(number, &crashed.kept);
        self.ground.checker.deadlines.on_gone(number, run);
        self.ground.counters.crashed(&crashed);
        self.ground.trace.mark((now_us, "crash", number, crashed.lost));
        let torn = if crashed.is_torn { ", the first in the middle of it" } else { "" };
        let line = || format!("dies, run {run}; {} batches lost{torn}", crashed.lost);
        self.ground.trace.line(now_us, Place::Manager(number), line);
        self.plant_on_crash(number);
        for other in self.managers.keys().copied().collect::<Vec<_>>() {
            let cut = self.ground.network.is_cut(Place::Manager(other), Place::Manager(number));
            if other != number && !cut && self.ground.rng.permille(700) {
                let delay_us = self.ground.rng.within(1_000, 60_000);
                let address = manager_address(number);
                self.tell_later(other, delay_us, Input::PeerRefused { number, address });
            }
        }
    }

    /// Tells a manager something that comes from outside the network.
    pub fn tell_later(&mut self, number: ManagerNumber, delay_us: u64, input: Input) {
        let Some(host) = self.managers.get(&number).filter(|it| it.process.is_some()) else {
            return;
        };
        self.ground.queue.after(delay_us, Event::Tell(number, host.run, Box::new(input)));
    }

    /// Gives a manager's process an input, if that run is still there.
    pub fn tell_manager(&mut self, number: ManagerNumber, run: u64, input: Input) {
        if let Some(until_us) = self.paused_until(Place::Manager(number)) {
            self.ground.queue.at(until_us, Event::Tell(number, run, Box::new(input)));
            return;
        }
        let now_us = self.ground.now_us();
        let Some(host) = self.managers.get_mut(&number).filter(|it| it.run == run) else { return };
        let now = host.now(now_us);
        let Some(process) = &mut host.process else { return };
        // Whatever it was told, nothing more is to be heard of that one.
        if let Input::CasDone { cas, .. } = &input {
            host.store_calls.remove(&StoreCall::Cas(*cas));
        }
        self.ground.checker.on_input((number, run), &input);
        if let Some(line) = self.ground.trace.keeps_text().then(|| told(&input)).flatten() {
            self.ground.trace.line(now_us, Place::Manager(number), || line);
        }
        process.handle(now, input);
        let is_full = process.is_batch_full();
        if is_full {
            self.ground.counters.corner(Corner::FullBatch);
        }
        if is_full || !host.flush_due {
            // Mostly at once; sometimes the driver gathers more first, while there is room.
            if is_full || self.ground.rng.permille(750) {
                self.flush_manager(number);
            } else {
                host.flush_due = true;
                let delay_us = self.ground.rng.within(10, 1_500);
                self.ground.queue.after(delay_us, Event::Flush(number, run));
            }
        }
    }

    /// The driver has gathered enough.
    pub fn on_flush_due(&mut self, number: ManagerNumber, run: u64) {
        if let Some(until_us) = self.paused_until(Place::Manager(number)) {
            self.ground.queue.at(until_us, Event::Flush(number, run));
            return;
        }
        if let Some(host) = self.managers.get_mut(&number).filter(|it| it.run == run) {
            host.flush_due = false;
            self.flush_manager(number);
        }
    }

    fn flush_manager(&mut self, number: ManagerNumber) {
        let now_us = self.ground.now_us();
        let Some(host) = self.managers.get_mut(&number) else { return };
        let (now, run) = (host.now(now_us), host.run);
        let Some(process) = &mut host.process else { return };
        let effects = process.flush(now);
        if let Some(wake_ms) = process.wake_at() {
            let at_us = wake_ms.saturating_sub(host.mono_ahead_ms).saturating_mul(1000);
            let at_us = at_us.max(now_us + 100);
            if host.tick_at_us.is_none_or(|it| at_us < it || it <= now_us) {
                host.tick_at_us = Some(at_us);
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
            if let Altered::Kept(effect) = self.plant_on_effect(number, run, effect) {
                AtManager { world: self, number, run }.carry_out(effect);
            }
        }
        self.see_whether_left(number);
    }

    /// A manager's timer.
    pub fn on_tick(&mut self, number: ManagerNumber, run: u64, at_us: u64) {
        let host = self.managers.get_mut(&number);
        let Some(host) = host.filter(|it| it.run == run && it.tick_at_us == Some(at_us)) else {
            return;
        };
        host.tick_at_us = None;
        self.tell_manager(number, run, Input::Tick);
    }

    /// A manager waits no longer for the config store.
    pub fn on_store_timeout(&mut self, number: ManagerNumber, run: u64, call: StoreCall) {
        let Some(host) = self.managers.get_mut(&number).filter(|it| it.run == run) else { return };
        if host.store_calls.remove(&call) {
            let input = match call {
                StoreCall::Read(read) => Input::ConfigRead { read, state: None },
                StoreCall::Cas(cas) => Input::CasDone { cas, outcome: CasOutcome::Unknown },
            };
            self.tell_manager(number, run, input);
        }
    }

    /// A manager's watch of the config store: it shows the state if that is newer than shown last.
    pub fn on_watch(&mut self, number: ManagerNumber, run: u64, again: bool) {
        let again_us = self.ground.rng.within(500_000, 1_500_000);
        let Some(host) = self.managers.get_mut(&number) else { return };
        if host.run != run || host.process.is_none() {
            return;
        }
        let state = self.store.state();
        if host.watched.is_none_or(|it| it < state.index) {
            let cut = self.ground.network.is_cut(Place::Store, Place::Manager(number))
                || self.ground.network.is_cut(Place::Manager(number), Place::Store);
            if cut {
                self.ground.feel(Place::Store, Place::Manager(number));
            } else {
                let packet = Packet::Watch(self.shown_config(Place::Manager(number)));
                self.ground.send(Place::Store, Place::Manager(number), Some(run), packet);
            }
        }
        if again {
            self.ground.queue.after(again_us, Event::Watch(number, run, true));
        }
    }

    /// A packet reaches a manager.
    pub fn manager_gets(
        &mut self,
        number: ManagerNumber,
        only: Option<u64>,
        from: Place,
        packet: Packet,
    ) {
        let Some(host) = self.managers.get_mut(&number) else { return };
        let run = host.run;
        if host.process.is_none() || only.is_some_and(|it| it != run) {
            return;
        }
        let input = match packet {
            Packet::Peer(envelope) => Input::Peer(envelope),
            Packet::FromNode(answer) => Input::Node(answer),
            Packet::Call { call, deadline_ms, op } => {
                let caller = Caller::Client(from, call);
                self.client_input(number, caller, deadline_ms, op)
            }
            Packet::Report { id, item } => {
                let Place::Node(node) = from else { return };
                let boot_run = self.nodes.get(node).map_or(0, |it| it.run);
                if self.plant_drops_news(&item) {
                    let me = Place::Manager(number);
                    return self.ground.send(me, from, Some(boot_run), Packet::ReportAcked(id));
                }
                let caller = Caller::Report(node, boot_run, id);
                self.client_input(number, caller, 2_000, Op::Report(item))
            }
            Packet::Register { run: boot_run, sent_mono_ms, register } => {
                let Place::Node(node) = from else { return };
                let call = self.ground.name();
                if let Some(host) = self.managers.get_mut(&number) {
                    host.callers.insert(call, Caller::Register(node, boot_run, sent_mono_ms));
                }
                Input::NodeRegister { call, register }
            }
            Packet::Renew { sent_mono_ms, renew } => {
                let Place::Node(node) = from else { return };
                let boot_run = self.nodes.get(node).map_or(0, |it| it.run);
                let call = self.ground.name();
                if let Some(host) = self.managers.get_mut(&number) {
                    let caller = Caller::Renew(node, boot_run, renew.boot, sent_mono_ms);
                    host.callers.insert(call, caller);
                }
                Input::NodeRenew { call, renew }
            }
            Packet::ReadDone { read, state } => {
                if !host.store_calls.remove(&StoreCall::Read(read)) {
                    return;
                }
                Input::ConfigRead { read, state: Some(state) }
            }
            Packet::CasDone { cas, outcome } => {
                if !host.store_calls.remove(&StoreCall::Cas(cas)) {
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
        let input = self.plant_on_input(number, input);
        self.tell_manager(number, run, input);
    }

    fn client_input(
        &mut self,
        number: ManagerNumber,
        caller: Caller,
        deadline_ms: u64,
        op: Op,
    ) -> Input {
        let now_us = self.ground.now_us();
        let call = self.ground.name();
        let mut deadline_mono_ms = 0;
        let mut run = 0;
        if let Some(host) = self.managers.get_mut(&number) {
            host.callers.insert(call, caller);
            deadline_mono_ms = host.now(now_us).mono_ms + deadline_ms;
            run = host.run;
        }
        self.ground.checker.deadlines.on_asked(number, run, call, now_us + deadline_ms * 1000);
        Input::Client { call, deadline_mono_ms, op }
    }

    /// The machine at an address.
    pub(crate) fn machine_at(&self, address: &str) -> Option<usize> {
        self.nodes.iter().position(|it| it.address == address)
    }

    /// Whether that node is known here, and its index.
    pub fn node_index(&self, node: &NodeId) -> Option<usize> {
        self.nodes.iter().position(|it| it.id == *node)
    }
}
