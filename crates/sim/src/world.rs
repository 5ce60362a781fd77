//! A whole cluster in one thread: the event loop, and what passes between its processes.
//!
//! ```text
//!   clients ──Call──▶ managers ──ToNode──▶ nodes ──▶ programs
//!            ◀─Reply─  ▲ │ ▲    ◀─FromNode─
//!                      │ ▼ └──Peer──▶ managers
//!                      disk   ──Cas, Read──▶ config store ──Watch──▶ managers
//! ```
//!
//! Every arrow is an event of the queue, delayed, lost, repeated or cut by the network. Each host
//! (manager, node, client) is an `impl World` block in a file of its own.

use crate::admin_host::AdminHost;
use crate::calls::{CallFor, TakeBack};
use crate::checker::Checker;
use crate::client_host::ClientHost;
use crate::counters::{Counters, Fault};
use crate::document_watcher::DocumentWatcher;
use crate::invariant::deadlines;
use crate::manager_host::ManagerHost;
use crate::mutants::Plant;
use crate::network::{Network, Place, STRAGGLER_US_MAX};
use crate::node_host::NodeHost;
use crate::packet::Packet;
use crate::queue::Queue;
use crate::rng::SeededRng;
use crate::setup::Setup;
use crate::store::Store;
use crate::trace::Trace;
use crate::watcher::Watcher;
use crate::writer_host::WriterHost;
use rota_docstore::Digest;
use rota_model::{BootId, ManagerId, ManagerNumber, NodeId, PoolName, SessionKey, Token};
use rota_node::NodeInput;
use rota_protocol::Input;
use rota_protocol::operate::Job;
use rota_ring::{ClaimRefused, ConfigState, RingShape, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Wall clock at the start of every run, in ms since 1970.
pub const WALL_START_MS: u64 = 1_750_000_000_000;

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A packet arrives.
    Arrive {
        /// From.
        from: Place,
        /// To.
        to: Place,
        /// Only if that run of the receiver is still there.
        run: Option<u64>,
        /// How many packets were sent before it.
        serial: u64,
        /// What.
        packet: Box<Packet>,
    },
    /// A manager carries out what it decided.
    Flush(ManagerNumber, u64),
    /// A manager's timer.
    Tick(ManagerNumber, u64, u64),
    /// A manager's disk finished a sync.
    Synced(ManagerNumber, u64),
    /// A manager looks at the config store's watch, and perhaps again later.
    Watch(ManagerNumber, u64, bool),
    /// A manager waits no longer for the config store: a read, or a compare-and-set.
    StoreTimeout(ManagerNumber, u64, StoreCall),
    /// A manager's link to a node tries to open a connection.
    Link(ManagerNumber, u64, usize),
    /// A node refuses connections for a while.
    Refuse,
    /// Something reaches a manager from outside the network.
    Tell(ManagerNumber, u64, Box<Input>),
    /// A manager starts again.
    StartManager(ManagerNumber),
    /// That run of a manager ends, since its number has left.
    EndManager(ManagerNumber, u64),
    /// A node starts, or starts again.
    BootNode(usize),
    /// The next agent of a boot starts.
    ResumeAgent(usize, u64),
    /// A node sends its registration.
    RegisterNode(usize, u64),
    /// A node's timer.
    NodeTick(usize, u64, u64),
    /// That run of a second agent under one id ends.
    Retire(usize, u64),
    /// Something reaches a node's agent from its runtime.
    TellNode(usize, u64, Box<NodeInput>),
    /// A client takes an item of a life cycle back.
    TakeBack(Box<TakeBack>),
    /// An action of a session comes to its end: by its number in the observer's book.
    Acted(usize, u64, usize, Box<NodeInput>),
    /// A program takes its next step.
    Program(usize, u64, SessionKey, Token, ProgramStep),
    /// A keeper looks at the lease.
    Keeper(usize, u64),
    /// Ordered nodes are there (or not).
    Provisioned(ManagerNumber, u64, u64, Vec<NodeId>),
    /// What was left of a node is ended (or not).
    NodeCleared(ManagerNumber, u64, PoolName, NodeId),
    /// Bodies that a manager asked for, for a partition, have come (or not).
    Fetched(ManagerNumber, u64, ManagerNumber, Vec<Digest>),
    /// A manager's worker has done an operation's work.
    Worked(ManagerNumber, u64, u64, Box<Job>),
    /// The program of a task comes to its end.
    TaskRan(ManagerNumber, u64, Box<Input>),
    /// A client does something.
    ClientNext(usize),
    /// A writer does something.
    WriterNext(usize),
    /// A client waits no longer for a call.
    ClientTimeout(u64),
    /// A watcher pulls from a partition.
    Pull(ManagerNumber),
    /// The watcher of documents polls a partition.
    Documents(ManagerNumber),
    /// Somebody describes the pool.
    Describe,
    /// The next disturbance.
    Disturb,
    /// A disturbance ends.
    Calm(u64),
    /// The observer looks at deadlines.
    Audit,
}

/// What a manager waits for at the config store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StoreCall {
    /// A read.
    Read(u64),
    /// A compare-and-set.
    Cas(u64),
}

/// How a program goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ProgramStep {
    /// It begins to run.
    Run,
    /// It answers.
    Ready,
    /// It ends on its own.
    End,
    /// Its machine goes to another state; this many times so far.
    Change(u64),
    /// It does not get ready in time.
    StartTimeout,
    /// It has stopped, as it was asked.
    Stopped,
}

/// What the cluster is going through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Clients work, faults happen.
    Chaos,
    /// No faults, no new requests.
    Quiet,
    /// Clients work, no faults.
    Serve,
}

/// A cluster.
pub struct World {
    /// What the seed decided.
    pub setup: Setup,
    /// Events.
    pub queue: Queue<Event>,
    /// Randomness of the network and the hosts.
    pub rng: SeededRng,
    /// That of the links between managers and nodes.
    pub link_chance: SeededRng,
    /// The network.
    pub network: Network,
    /// The config store.
    pub store: Store,
    /// Managers.
    pub managers: BTreeMap<ManagerNumber, ManagerHost>,
    /// Nodes, in order of first start.
    pub nodes: Vec<NodeHost>,
    /// Every boot that there was, of any node.
    pub boots: BTreeSet<BootId>,
    /// Clients.
    pub clients: Vec<ClientHost>,
    /// Clients that work with documents.
    pub writers: Vec<WriterHost>,
    /// Whoever describes the pool.
    pub admin: AdminHost,
    /// The watcher.
    pub watcher: Watcher,
    /// The watcher of documents.
    pub document_watcher: DocumentWatcher,
    /// The observer.
    pub checker: Checker,
    /// What happened, counted.
    pub counters: Counters,
    /// What happened, in order.
    pub trace: Trace,
    /// A planted bug.
    pub plant: Option<Plant>,
    /// What the cluster goes through.
    pub phase: Phase,
    /// Calls of clients that are under way.
    pub calls: BTreeMap<u64, CallFor>,
    /// Numbers that have left.
    pub gone: Vec<(ManagerNumber, ManagerId)>,
    /// Orders of operators that are not answered: through whom, its run, the call.
    pub orders: BTreeSet<(ManagerNumber, u64, u64)>,
    /// Sessions and lives of which an item was taken back, or is to be.
    pub taken_back: BTreeSet<String>,
    /// Names for calls, runs and disturbances.
    pub names: u64,
    /// Disturbances of the chaos phase that took effect.
    pub disturbed: u64,
    sent: u64,
    arrived: BTreeMap<(Place, Place), u64>,
}

impl World {
    /// The cluster of a seed, everything about to start.
    pub fn new(seed: u64, keep_trace: bool, plant: Option<Plant>) -> Self {
        let mut rng = SeededRng::new(seed);
        let setup = Setup::draw(&mut rng);
        let mut network = Network::default();
        network.base = setup.network_profile;
        network.stragglers = true;
        let RingShape { cluster, m, r } = setup.ring();
        let view = View::found(cluster, m, r, 100, &setup.numbers)
            .expect("the drawn numbers are distinct and below m");
        let state = ConfigState { index: 1, view: Some(Arc::new(view)), ..ConfigState::default() };
        let mut checker = Checker::new(setup.m, &setup.timing);
        checker.ledger.disturb = setup.disturb;
        checker.ledger.on_config(0, &state);
        let mut world = Self {
            queue: Queue::default(),
            network,
            store: Store::new(state),
            managers: BTreeMap::new(),
            nodes: Vec::new(),
            boots: BTreeSet::new(),
            clients: Vec::new(),
            writers: Vec::new(),
            admin: AdminHost::new(seed),
            watcher: Watcher::default(),
            document_watcher: DocumentWatcher::default(),
            checker,
            counters: Counters::default(),
            trace: Trace::new(keep_trace),
            plant,
            phase: Phase::Chaos,
            calls: BTreeMap::new(),
            gone: Vec::new(),
            orders: BTreeSet::new(),
            taken_back: BTreeSet::new(),
            names: 0,
            disturbed: 0,
            sent: 0,
            arrived: BTreeMap::new(),
            rng,
            link_chance: SeededRng::of_links(seed),
            setup,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for (number, id) in self.setup.numbers.clone() {
            let config = self.setup.manager_config(number, &id);
            self.managers.insert(number, ManagerHost::new(config));
            let delay_us = self.rng.within(0, 200_000);
            self.queue.after(delay_us, Event::StartManager(number));
            self.queue.after(400_000, Event::Pull(number));
            self.queue.after(400_000, Event::Documents(number));
        }
        for index in 0..self.setup.nodes {
            let node = NodeId::parse(&format!("node-{index}")).expect("a short name");
            self.add_node(node);
            let delay_us = self.rng.within(0, 300_000);
            self.queue.after(delay_us, Event::BootNode(index));
        }
        for index in 0..self.setup.clients {
            self.clients.push(ClientHost::new(self.rng.fork()));
            let delay_us = self.rng.within(300_000, 600_000);
            self.queue.after(delay_us, Event::ClientNext(index));
        }
        for index in 0..crate::writer_host::WRITERS {
            self.writers.push(WriterHost::new(self.rng.fork()));
            let delay_us = self.rng.within(300_000, 600_000);
            self.queue.after(delay_us, Event::WriterNext(index));
        }
        self.queue.after(250_000, Event::Describe);
        self.queue.after(700_000, Event::Disturb);
        self.queue.after(900_000, Event::Refuse);
        self.queue.after(500_000, Event::Audit);
    }

    /// A name that was not given before.
    pub fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// Simulated time in microseconds.
    pub fn now_us(&self) -> u64 {
        self.queue.now_us()
    }

    /// Lets everything happen up to a moment, or until a rule is broken.
    pub fn run_until(&mut self, until_us: u64) {
        while self.checker.violations.is_empty() {
            let Some(event) = self.queue.next_until(until_us) else { break };
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { from, to, run, serial, packet } => {
                self.arrive(from, to, run, serial, packet);
            }
            Event::Flush(number, run) => self.on_flush_due(number, run),
            Event::Tick(number, run, at_us) => self.on_tick(number, run, at_us),
            Event::Synced(number, run) => self.on_synced(number, run),
            Event::Watch(number, run, again) => self.on_watch(number, run, again),
            Event::StoreTimeout(number, run, call) => self.on_store_timeout(number, run, call),
            Event::Link(number, run, index) => self.on_link_due((number, run), index),
            Event::Refuse => self.on_refuse_due(),
            Event::Tell(number, run, input) => self.tell_manager(number, run, *input),
            Event::StartManager(number) => self.start_manager(number),
            Event::EndManager(number, run) => self.on_end_manager(number, run),
            Event::BootNode(index) => self.boot_node(index),
            Event::ResumeAgent(index, run) => self.resume_agent(index, run),
            Event::RegisterNode(index, run) => self.on_register_due(index, run),
            Event::NodeTick(index, run, at_us) => self.on_node_tick(index, run, at_us),
            Event::Retire(index, run) => self.on_retire(index, run),
            Event::TellNode(index, run, input) => self.tell_node(index, run, *input),
            Event::TakeBack(it) => self.on_take_back(it),
            Event::Acted(index, run, number, input) => self.on_acted(index, run, number, *input),
            Event::Program(index, run, key, token, step) => {
                self.on_program(index, run, key, token, step);
            }
            Event::Keeper(index, run) => self.on_keeper(index, run),
            Event::Provisioned(number, run, order, nodes) => {
                self.on_provisioned(number, run, order, nodes);
            }
            Event::NodeCleared(number, run, pool, node) => {
                self.on_node_cleared(number, run, pool, node);
            }
            Event::Fetched(number, run, part, bodies) => {
                self.on_fetched(number, run, part, &bodies);
            }
            Event::Worked(number, run, work, job) => {
                self.tell_manager(number, run, Input::Worked { work, worked: job.run() });
            }
            Event::TaskRan(number, run, input) => self.tell_manager(number, run, *input),
            Event::ClientNext(index) => self.on_client_next(index),
            Event::WriterNext(index) => self.on_writer_next(index),
            Event::ClientTimeout(call) => self.on_client_timeout(call),
            Event::Pull(part) => self.on_pull_due(part),
            Event::Documents(part) => self.on_documents_due(part),
            Event::Describe => self.on_describe(),
            Event::Disturb => self.on_disturb(),
            Event::Calm(id) => self.on_calm(id),
            Event::Audit => self.on_audit(),
        }
    }

    fn on_audit(&mut self) {
        let now_us = self.now_us();
        let verdict = self.checker.deadlines.check(now_us);
        self.checker.judge(now_us, verdict);
        for (number, host) in &self.managers {
            if let Some(waits) = host.waits(now_us) {
                let verdict = deadlines::check_waits(*number, &waits);
                self.checker.judge(now_us, verdict);
            }
        }
        self.try_joins_again();
        self.try_empty_machines_again();
        self.queue.after(250_000, Event::Audit);
    }

    /// Who was refused because another one joins, tries again.
    fn try_joins_again(&mut self) {
        let refused = |host: &ManagerHost| host.process.as_ref()?.refused().cloned();
        let busy =
            |host: &ManagerHost| matches!(refused(host), Some(ClaimRefused::InTransition { .. }));
        let busy = self.managers.iter().filter(|(_, host)| busy(host)).map(|(number, _)| *number);
        for number in busy.collect::<Vec<_>>() {
            self.counters.fault(Fault::JoinRefused);
            self.crash_manager(number);
            self.queue.after(200_000, Event::StartManager(number));
        }
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

    fn arrive(
        &mut self,
        from: Place,
        to: Place,
        run: Option<u64>,
        serial: u64,
        packet: Box<Packet>,
    ) {
        if let Some(until_us) = self.paused_until(to) {
            self.queue.at(until_us, Event::Arrive { from, to, run, serial, packet });
            return;
        }
        let newest = self.arrived.entry((from, to)).or_default();
        if serial < *newest {
            self.counters.fault(Fault::Reordering);
        }
        *newest = (*newest).max(serial);
        let now_us = self.now_us();
        self.trace.mark((now_us, from, to, serial));
        let name = packet.name();
        self.trace.line(now_us, to, || format!("gets #{serial} from {from}: {name}"));
        match to {
            Place::Manager(number) => self.manager_gets(number, run, from, *packet),
            Place::Node(index) => self.node_gets(index, run, *packet),
            Place::Store => self.store_gets(from, *packet),
            Place::Client(_) => self.client_gets(*packet),
        }
    }

    /// Whether anybody would get what is sent there now.
    pub fn is_there(&self, place: Place) -> bool {
        match place {
            Place::Manager(number) => {
                self.managers.get(&number).is_some_and(|it| it.process.is_some())
            }
            Place::Node(index) => self.nodes.get(index).is_some_and(|it| it.agent.is_some()),
            Place::Store | Place::Client(_) => true,
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

    /// Until when a place receives nothing, if it is paused.
    pub fn paused_until(&self, place: Place) -> Option<u64> {
        let until_us = match place {
            Place::Manager(number) => self.managers.get(&number).map(|it| it.paused_until_us),
            Place::Node(index) => self.nodes.get(index).map(|it| it.paused_until_us),
            Place::Store | Place::Client(_) => None,
        };
        until_us.filter(|it| *it > self.now_us())
    }
}
