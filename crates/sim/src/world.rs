//! A whole cluster in one thread: the event loop, and what passes between its processes.
//!
//! ```text
//!   clients ──Call──▶ managers ──ToNode──▶ nodes ──▶ programs
//!            ◀─Reply─  ▲ │ ▲    ◀─FromNode─
//!                      │ ▼ └──Peer──▶ managers
//!                      disk   ──Cas, Read──▶ config store ──Watch──▶ managers
//! ```
//!
//! Every arrow is an event of the queue, delayed, lost, repeated or cut by the network. What all of them stand on is
//! the [`Ground`]; clients and watchers are [`Users`], and see it alone. Managers, nodes and the config store are
//! `impl World` blocks in files of their own.

use crate::counters::Fault;
use crate::event::Event;
use crate::ground::Ground;
use crate::invariant::deadlines;
use crate::manager_host::ManagerHost;
use crate::mutants::Plant;
use crate::network::Place;
use crate::node_host::NodeHost;
use crate::packet::Packet;
use crate::rng::SeededRng;
use crate::setup::Setup;
use crate::store::Store;
use crate::users::Users;
use crate::users::take_backs::on_take_back;
use rota_model::{BootId, ManagerId, ManagerNumber, NodeId};
use rota_protocol::Input;
use rota_ring::{ClaimRefused, ConfigState, RingShape, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A cluster.
pub struct World {
    /// What every machine stands on.
    pub ground: Ground,
    /// Randomness of the links between managers and nodes.
    pub link_chance: SeededRng,
    /// The config store.
    pub store: Store,
    /// Managers.
    pub managers: BTreeMap<ManagerNumber, ManagerHost>,
    /// Nodes, in order of first start.
    pub nodes: Vec<NodeHost>,
    /// Every boot that there was, of any node.
    pub boots: BTreeSet<BootId>,
    /// Whoever uses the cluster.
    pub users: Users,
    /// A planted bug.
    pub plant: Option<Plant>,
    /// Numbers that have left.
    pub gone: Vec<(ManagerNumber, ManagerId)>,
    /// Orders of operators that are not answered: through whom, its run, the call.
    pub orders: BTreeSet<(ManagerNumber, u64, u64)>,
    arrived: BTreeMap<(Place, Place), u64>,
}

impl World {
    /// The cluster of a seed, everything about to start.
    pub fn new(seed: u64, keep_trace: bool, plant: Option<Plant>) -> Self {
        let mut rng = SeededRng::new(seed);
        let setup = Setup::draw(&mut rng);
        let RingShape { cluster, m, r } = setup.ring();
        let view = View::found(cluster, m, r, 100, &setup.numbers)
            .expect("the drawn numbers are distinct and below m");
        let state = ConfigState { index: 1, view: Some(Arc::new(view)), ..ConfigState::default() };
        let ground = Ground::new(setup, rng, keep_trace, &state);
        let mut world = Self {
            ground,
            link_chance: SeededRng::of_links(seed),
            store: Store::new(state),
            managers: BTreeMap::new(),
            nodes: Vec::new(),
            boots: BTreeSet::new(),
            users: Users::new(seed),
            plant,
            gone: Vec::new(),
            orders: BTreeSet::new(),
            arrived: BTreeMap::new(),
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for (number, id) in self.ground.setup.numbers.clone() {
            let config = self.ground.setup.manager_config(number, &id);
            self.managers.insert(number, ManagerHost::new(config));
            let delay_us = self.ground.rng.within(0, 200_000);
            self.ground.queue.after(delay_us, Event::StartManager(number));
            self.ground.queue.after(400_000, Event::Pull(number));
            self.ground.queue.after(400_000, Event::Documents(number));
        }
        for index in 0..self.ground.setup.nodes {
            let node = NodeId::parse(&format!("node-{index}")).expect("a short name");
            self.add_node(node);
            let delay_us = self.ground.rng.within(0, 300_000);
            self.ground.queue.after(delay_us, Event::BootNode(index));
        }
        self.users.begin(&mut self.ground);
        self.ground.queue.after(250_000, Event::Describe);
        self.ground.queue.after(700_000, Event::Disturb);
        self.ground.queue.after(900_000, Event::Refuse);
        self.ground.queue.after(500_000, Event::Audit);
    }

    /// Lets everything happen up to a moment, or until a rule is broken.
    pub fn run_until(&mut self, until_us: u64) {
        while self.ground.checker.violations.is_empty() {
            let Some(event) = self.ground.queue.next_until(until_us) else { break };
            self.happen(event);
            self.bring_bodies();
            debug_assert!(self.is_told_who_runs());
        }
    }

    /// Whether the ground was told of every start and every end of a process and an agent.
    fn is_told_who_runs(&self) -> bool {
        let managers = self.managers.iter().filter(|(_, host)| host.process.is_some());
        let nodes = self.nodes.iter().enumerate().filter(|(_, host)| host.agent.is_some());
        let managers = managers.map(|(number, _)| Place::Manager(*number));
        managers.chain(nodes.map(|(index, _)| Place::Node(index))).eq(self.ground.running())
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
            Event::TakeBack(it) => on_take_back(&mut self.ground, it),
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
            Event::ClientNext(index) => self.users.on_client_next(&mut self.ground, index),
            Event::WriterNext(index) => self.users.on_writer_next(&mut self.ground, index),
            Event::ClientTimeout(call) => self.users.on_timeout(&mut self.ground, call),
            Event::Pull(part) => self.users.watcher.on_due(&mut self.ground, part),
            Event::Documents(part) => self.users.document_watcher.on_due(&mut self.ground, part),
            Event::Describe => self.users.admin.on_describe(&mut self.ground),
            Event::Disturb => self.on_disturb(),
            Event::Calm(id) => self.on_calm(id),
            Event::Audit => self.on_audit(),
        }
    }

    fn on_audit(&mut self) {
        let now_us = self.ground.now_us();
        let verdict = self.ground.checker.deadlines.check(now_us);
        self.ground.checker.judge(now_us, verdict);
        for (number, host) in &self.managers {
            if let Some(waits) = host.waits(now_us) {
                let verdict = deadlines::check_waits(*number, &waits);
                self.ground.checker.judge(now_us, verdict);
            }
        }
        self.try_joins_again();
        self.try_empty_machines_again();
        self.ground.queue.after(250_000, Event::Audit);
    }

    /// Who was refused because another one joins, tries again.
    fn try_joins_again(&mut self) {
        let refused = |host: &ManagerHost| host.process.as_ref()?.refused().cloned();
        let busy =
            |host: &ManagerHost| matches!(refused(host), Some(ClaimRefused::InTransition { .. }));
        let busy = self.managers.iter().filter(|(_, host)| busy(host)).map(|(number, _)| *number);
        for number in busy.collect::<Vec<_>>() {
            self.ground.counters.fault(Fault::JoinRefused);
            self.crash_manager(number);
            self.ground.queue.after(200_000, Event::StartManager(number));
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
            self.ground.queue.at(until_us, Event::Arrive { from, to, run, serial, packet });
            return;
        }
        let newest = self.arrived.entry((from, to)).or_default();
        if serial < *newest {
            self.ground.counters.fault(Fault::Reordering);
        }
        *newest = (*newest).max(serial);
        let now_us = self.ground.now_us();
        self.ground.trace.mark((now_us, from, to, serial));
        let name = packet.name();
        self.ground.trace.line(now_us, to, || format!("gets #{serial} from {from}: {name}"));
        match to {
            Place::Manager(number) => self.manager_gets(number, run, from, *packet),
            Place::Node(index) => self.node_gets(index, run, *packet),
            Place::Store => self.store_gets(from, *packet),
            Place::Client(_) => self.users.gets(&mut self.ground, *packet),
        }
    }

    /// Until when a place receives nothing, if it is paused.
    pub fn paused_until(&self, place: Place) -> Option<u64> {
        let until_us = match place {
            Place::Manager(number) => self.managers.get(&number).map(|it| it.paused_until_us),
            Place::Node(index) => self.nodes.get(index).map(|it| it.paused_until_us),
            Place::Store | Place::Client(_) => None,
        };
        until_us.filter(|it| *it > self.ground.now_us())
    }
}
