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
//! the [`Ground`]; clients and watchers are [`Users`], and see it alone. What happens at a manager or at a node is
//! given that machine and the ground: [`AtManager`], [`AtNode`].

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::fault::on_disturb;
use crate::ground::Ground;
use crate::invariant::deadlines;
use crate::manager_host::ManagerHost;
use crate::mutants::plant::Plant;
use crate::network::Place;
use crate::node_host::NodeHost;
use crate::packet::Packet;
use crate::rng::SeededRng;
use crate::setup::{Setup, node_address};
use crate::site::{AtManager, AtNode};
use crate::store::Store;
use crate::users::Users;
use crate::users::take_backs::on_take_back;
use rota_model::{ManagerNumber, NodeId, PoolName};
use rota_node::NodeInput;
use rota_protocol::Input;
use rota_ring::{ConfigState, RingShape, View};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A cluster.
pub struct World {
    /// What every machine stands on.
    pub ground: Ground,
    /// The config store.
    pub store: Store,
    /// Managers.
    pub managers: BTreeMap<ManagerNumber, ManagerHost>,
    /// Nodes, in order of first start.
    pub nodes: Vec<NodeHost>,
    /// Whoever uses the cluster.
    pub users: Users,
    /// A planted bug.
    pub plant: Option<Plant>,
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
        let ground = Ground::new(setup, (seed, rng), keep_trace, &state);
        let mut world = Self {
            ground,
            store: Store::new(state),
            managers: BTreeMap::new(),
            nodes: Vec::new(),
            users: Users::new(seed),
            plant,
            arrived: BTreeMap::new(),
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for (number, id) in self.ground.machines.numbers.clone() {
            let config = self.ground.setup.manager_config(number, &id);
            self.add_manager(number, ManagerHost::new(config));
            let delay_us = self.ground.rng.within(0, 200_000);
            self.ground.queue.after(delay_us, Event::StartManager(number));
            self.ground.queue.after(400_000, Event::Pull(number));
            self.ground.queue.after(400_000, Event::Documents(number));
        }
        for index in 0..self.ground.setup.nodes {
            let node = NodeId::parse(&format!("node-{index}")).expect("a short name");
            self.add_machine(node.clone(), node_address(&node));
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
        let runs = managers.chain(nodes.map(|(index, _)| Place::Node(index)));
        runs.eq(self.ground.machines.running())
    }

    /// Adds a manager's machine that was never started.
    pub fn add_manager(&mut self, number: ManagerNumber, host: ManagerHost) {
        self.ground.machines.add_manager(number);
        self.managers.insert(number, host);
    }

    /// Adds a node's machine that was never started. Gives its place.
    pub fn add_machine(&mut self, id: NodeId, address: String) -> usize {
        self.ground.machines.add_node(id.clone(), address);
        self.nodes.push(NodeHost::new(id));
        self.nodes.len() - 1
    }

    /// A manager's machine.
    pub fn manager(&mut self, number: ManagerNumber) -> Option<AtManager<'_>> {
        let Self { ground, plant, store, managers, .. } = self;
        let host = managers.get_mut(&number)?;
        Some(AtManager { ground, plant, store, host, number })
    }

    /// A node's machine.
    pub fn node(&mut self, index: usize) -> Option<AtNode<'_>> {
        let Self { ground, plant, nodes, .. } = self;
        let host = nodes.get_mut(index)?;
        Some(AtNode { ground, plant, host, index })
    }

    /// Something happens at a manager.
    pub fn at_manager(&mut self, number: ManagerNumber, what: impl FnOnce(&mut AtManager<'_>)) {
        self.manager(number).as_mut().map(what);
    }

    /// Something happens at a node.
    pub fn at_node(&mut self, index: usize, what: impl FnOnce(&mut AtNode<'_>)) {
        self.node(index).as_mut().map(what);
    }

    /// Something happens at that run of a manager, if it is the newest.
    fn at_run(
        &mut self,
        (number, run): (ManagerNumber, u64),
        what: impl FnOnce(&mut AtManager<'_>),
    ) {
        self.manager(number).filter(|it| it.host.run == run).as_mut().map(what);
    }

    /// Something happens at that boot of a node, if it is the newest.
    fn at_boot(&mut self, (index, run): (usize, u64), what: impl FnOnce(&mut AtNode<'_>)) {
        self.node(index).filter(|it| it.host.run == run).as_mut().map(what);
    }

    /// That run of a manager is given an input.
    pub(crate) fn tell_run(&mut self, run: (ManagerNumber, u64), input: Input) {
        self.at_run(run, |at| at.tell(input));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { from, to, run, serial, packet } => {
                self.arrive(from, to, run, serial, packet);
            }
            Event::Flush(number, run) => self.at_run((number, run), |at| at.on_flush_due()),
            Event::Tick(number, run, at_us) => {
                self.at_run((number, run), |at| at.on_tick(at_us));
            }
            Event::Synced(number, run) => self.at_run((number, run), |at| at.on_synced()),
            Event::Watch(number, run, again) => {
                self.at_manager(number, |at| at.on_watch(run, again));
            }
            Event::StoreTimeout(number, run, call) => {
                self.at_run((number, run), |at| at.on_store_timeout(call));
            }
            Event::Link(number, run, index) => {
                self.at_run((number, run), |at| at.on_link_due(index));
            }
            Event::Refuse => self.ground.on_refuse_due(),
            Event::Tell(number, run, input) | Event::TaskRan(number, run, input) => {
                self.tell_run((number, run), *input);
            }
            Event::StartManager(number) => {
                self.at_manager(number, |at| at.start());
            }
            Event::EndManager(number, run) => self.at_run((number, run), |at| at.on_end()),
            Event::BootNode(index) => self.at_node(index, |at| at.boot()),
            Event::ResumeAgent(index, run) => {
                self.at_boot((index, run), |at| at.resume_agent());
            }
            Event::RegisterNode(index, run) => {
                self.at_node(index, |at| at.on_register_due(run));
            }
            Event::NodeTick(index, run, at_us) => {
                self.at_boot((index, run), |at| at.on_tick(at_us));
            }
            Event::Retire(index, run) => self.at_boot((index, run), |at| at.kill()),
            Event::TellNode(index, run, input) => {
                self.at_boot((index, run), |at| at.tell(*input));
            }
            Event::TakeBack(it) => on_take_back(&mut self.ground, it),
            Event::Acted(index, run, number, input) => self.on_acted((index, run), number, *input),
            Event::Program(index, run, key, token, step) => {
                self.at_boot((index, run), |at| at.on_program(key, token, step));
            }
            Event::Keeper(index, run) => self.at_boot((index, run), |at| at.on_keeper()),
            Event::Provisioned(number, run, order, nodes) => {
                self.on_provisioned((number, run), order, nodes);
            }
            Event::NodeCleared(number, run, pool, node) => {
                self.on_node_cleared((number, run), pool, node);
            }
            Event::Fetched(number, run, part, bodies) => {
                self.on_fetched((number, run), part, &bodies);
            }
            Event::Worked(number, run, work, job) => {
                self.tell_run((number, run), Input::Worked { work, worked: job.run() });
            }
            Event::ClientNext(index) => self.users.on_client_next(&mut self.ground, index),
            Event::WriterNext(index) => self.users.on_writer_next(&mut self.ground, index),
            Event::ClientTimeout(call) => self.users.on_timeout(&mut self.ground, call),
            Event::Pull(part) => self.users.watcher.on_due(&mut self.ground, part),
            Event::Documents(part) => self.users.document_watcher.on_due(&mut self.ground, part),
            Event::Describe => self.users.admin.on_describe(&mut self.ground),
            Event::Disturb => on_disturb(self),
            Event::Calm(id) => self.ground.on_calm(id),
            Event::Audit => self.on_audit(),
        }
    }

    /// An action comes to its end, if nothing ended it before.
    fn on_acted(&mut self, boot: (usize, u64), number: usize, input: NodeInput) {
        let now_us = self.ground.now_us();
        let Some(ran) = self.ground.checker.ledger.actions.ran.get_mut(number) else { return };
        if ran.to_us.is_none() {
            ran.to_us = Some(now_us);
            self.at_boot(boot, |at| at.tell(input));
        }
    }

    /// Ordered nodes are there, or did not come.
    fn on_provisioned(&mut self, run: (ManagerNumber, u64), order: u64, nodes: Vec<NodeId>) {
        let fails = self.provisioner_fails();
        if fails {
            self.ground.counters.fault(Fault::ProvisionFailed);
        } else {
            for node in nodes {
                if self.ground.machines.of_node(&node).is_none() {
                    let index = self.add_machine(node.clone(), node_address(&node));
                    let delay_us = self.ground.rng.within(1_000, 150_000);
                    self.ground.queue.after(delay_us, Event::BootNode(index));
                }
            }
        }
        let failure = fails.then(|| String::from("the simulator lets it fail"));
        self.tell_run(run, Input::Provisioned { order, begun: true, failed: Vec::new(), failure });
    }

    /// What was left of a node is ended, or could not be. Nodes of the simulator leave nothing behind.
    fn on_node_cleared(&mut self, run: (ManagerNumber, u64), pool: PoolName, node: NodeId) {
        let failure = self.provisioner_fails().then(|| "the simulator lets it fail".to_owned());
        self.tell_run(run, Input::NodeCleared { pool, node, failure });
    }

    fn provisioner_fails(&mut self) -> bool {
        self.ground.phase == Phase::Chaos && self.ground.rng.permille(150)
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
        for number in self.ground.machines.managers() {
            self.at_manager(number, |at| at.try_join_again());
        }
        for number in self.ground.machines.managers() {
            self.at_manager(number, |at| at.try_empty_machine_again());
        }
        self.ground.queue.after(250_000, Event::Audit);
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
            Place::Manager(number) => {
                self.at_manager(number, |at| at.gets(run, from, *packet));
            }
            Place::Node(index) => {
                self.at_node(index, |at| at.gets(run, *packet));
            }
            Place::Store => self.store_gets(from, *packet),
            Place::Client(_) => self.users.gets(&mut self.ground, *packet),
        }
    }

    /// Until when a place receives nothing, if it is paused.
    fn paused_until(&self, place: Place) -> Option<u64> {
        let now_us = self.ground.now_us();
        match place {
            Place::Manager(number) => self.managers.get(&number)?.paused_until(now_us),
            Place::Node(index) => self.nodes.get(index)?.paused_until(now_us),
            Place::Store | Place::Client(_) => None,
        }
    }
}
