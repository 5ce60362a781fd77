//! Managers around one table: every effect of one is carried out at once as an input of another,
//! in order, with a clock that only the test moves. What a test wants lost, it drops by a filter.

pub mod asking;
mod blob_store;
mod bytes;
mod effects;
pub mod lives;
pub mod losing;
mod nodes;
mod results;

pub use blob_store::BlobStore;
use bytes::{bytes_of, bytes_written};
use effects::At;
pub use results::{closed, got, opened, refused};
use rota_docstore::{Checker, Digest, Operations, Schema};
use rota_model::node_msg::{Alive, Register, Registered, Renewed, ReportEvent, ReportItem, ToNode};
use rota_model::*;
use rota_protocol::events::{ContentEvent, SessionEvent};
use rota_protocol::operate::Job;
use rota_protocol::{
    Answer, Disk, DiskWrite, DocumentsConfig, EffectHandler, Envelope, Input, Manager,
    ManagerConfig, NodeOrdered, NumbersConfig, Op, OpResult, Order, Ordered, Sizes, TaskJob,
    TasksConfig, Timing, Transition,
};
use rota_ring::{ConfigState, Dropped, RingShape, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub const NUMBERS: [u32; 3] = [300, 600, 1000];

pub struct Table {
    pub managers: BTreeMap<u32, Manager>,
    pub disks: BTreeMap<u32, Disk>,
    pub blob_stores: BTreeMap<u32, Arc<BlobStore>>,
    /// Bodies that are asked for come at once from whoever has them and is not dead.
    pub bodies_come: bool,
    /// Bodies that were asked for, and by whom.
    pub fetches: Vec<(u32, Digest)>,
    pub config: ConfigState,
    /// What managers are told of it at their start.
    pub ring: RingShape,
    pub now_ms: u64,
    /// By how much the wall clock is off.
    pub wall_step_ms: i64,
    pub replies: BTreeMap<u64, OpResult>,
    pub notes: Vec<(u32, Transition)>,
    /// What was said beside them, where something was.
    pub said: Vec<(Transition, String)>,
    /// What was told of sessions, and by whom.
    pub events: Vec<(u32, SessionEvent)>,
    /// What was told of content.
    pub content_events: Vec<ContentEvent>,
    /// The newest answer to a registration.
    registered: Option<Result<Registered, Refusal>>,
    /// The newest answer to a renewal.
    renewed: Option<Renewed>,
    /// The newest answer to an order.
    ordered_as: Option<Result<Ordered, Refusal>>,
    /// The newest answer to an order about a node.
    pub node_ordered_as: Option<Result<NodeOrdered, Refusal>>,
    /// Calls to nodes that the test answers itself when `manual`.
    pub node_calls: Vec<(u32, ToNode)>,
    pub manual_nodes: bool,
    /// Nodes leave calls for actions unanswered.
    pub keeps_actions: bool,
    /// Work of operations that the test does itself when `manual_works`: whose, and its name.
    pub works: Vec<(u32, u64, Box<Job>)>,
    pub manual_works: bool,
    /// Programs and calls of tasks, which the test does itself: whose, and what.
    pub task_works: Vec<(u32, ManagerNumber, u64, Box<TaskJob>)>,
    /// Names of those of which nobody wants the end any more.
    pub stopped: Vec<u64>,
    /// Tasks that were given up.
    pub given_up: Vec<serde_json::Value>,
    /// Who was told that these managers run the ring of an epoch.
    pub met: Vec<(NodeId, Epoch, Vec<u32>)>,
    /// Messages for which this says true are lost.
    pub lose: Box<dyn Fn(&Envelope) -> bool>,
    pub dead: BTreeSet<u32>,
    /// Of managers that start from now on.
    pub sizes: Sizes,
    /// The same.
    pub documents: DocumentsConfig,
    /// The same; by default they assign no stable numbers.
    pub stable_numbers: Option<NumbersConfig>,
    /// The same.
    pub tasks: TasksConfig,
    /// What they offer instead of the usual operations.
    pub offer: Option<(Operations, Schema)>,
    /// Whom they ask beside the administrator's key.
    pub checker: Option<Arc<dyn Checker>>,
    /// Places of every node that registers.
    pub places: u32,
    /// Nodes that were ordered, in order.
    pub ordered: Vec<NodeId>,
    /// Nodes of which nothing is to be left, by the manager that asked; nobody has answered yet.
    pub to_clear: Vec<(u32, PoolName, NodeId)>,
    /// Who was told to start nodes, and to end what is left of one, in turn.
    pub started_by: Vec<ProvisionerName>,
    pub cleared_by: Vec<ProvisionerName>,
    /// Who ordered them, and the orders' numbers.
    pub orders: Vec<(u32, u64)>,
    /// They hear nothing of the config store.
    pub late: BTreeSet<u32>,
    /// The next that they ask of the config store happens, and nobody tells them: they are late then.
    pub unheard: BTreeSet<u32>,
    /// Batches that were written to disks.
    pub persisted: usize,
    /// The most bytes of documents in one of them.
    pub batch_max: usize,
    /// After so many of them no disk writes any more.
    pub disks_stop_after: Option<usize>,
    /// How often the config store was read.
    pub config_reads: usize,
    /// The largest message so far, in bytes of log and documents.
    pub message_max: usize,
    /// Most that was ever on its way from one manager to another, in such bytes.
    pub under_way_max: usize,
    under_way: BTreeMap<(u32, u32), usize>,
    /// Reads of the config store fail, and nobody knows what became of a compare-and-set.
    pub store_away: bool,
    /// The same for one manager alone.
    pub blind: Option<u32>,
    /// Reads are answered, and nobody knows what became of a compare-and-set.
    pub cas_unknown: bool,
    queue: VecDeque<(u32, Input)>,
    calls: u64,
    /// Inputs that managers took, each followed by a flush.
    pub turns: u64,
    /// Nodes that get calls and never answer.
    pub silent: BTreeSet<String>,
    /// What runs, where, under which token.
    pub live: BTreeMap<SessionKey, (String, Token, Alive)>,
    /// The highest token of each slot that a node has seen.
    pub seen: BTreeMap<(String, SlotId), Token>,
}

/// The lease of every node here.
pub const LEASE: LeaseTimes =
    LeaseTimes { renew_ms: 3_000, lease_term_ms: 8_000, lease_kill_ms: 12_000 };

pub fn key(id: &str) -> SessionKey {
    SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap())
}

pub fn open(id: &str, request: &str) -> Op {
    Op::Open(OpenOp {
        pool_named: true,
        key: key(id),
        spec: SessionSpec {
            class: ClassName::parse("builtin").unwrap(),
            pool: PoolName::default_pool(),
            attributes: Arc::default(),
            life: None,
        },
        request: RequestId::parse(request).unwrap(),
        remember: true,
    })
}

/// An open whose attributes take so many bytes.
pub fn open_large(id: &str, request: &str, bytes: usize) -> Op {
    let Op::Open(mut op) = open(id, request) else { unreachable!("open gives an open") };
    op.spec.attributes = Arc::new(Attributes::from([("a".to_owned(), "x".repeat(bytes))]));
    Op::Open(op)
}

pub fn close(id: &str, request: &str) -> Op {
    let request = RequestId::parse(request).unwrap();
    Op::Close(CloseOp { key: key(id), life: None, request, grace_ms: None, by_operator: false })
}

pub fn get(id: &str) -> Op {
    Op::Get(GetOp { key: key(id), stale_ok: false })
}

pub fn keep_alive(id: &str) -> Op {
    Op::KeepAlive(KeepAliveOp { key: key(id), life: None })
}

/// A node's news of a session.
pub fn report(id: &str, placement: &Placement, event: ReportEvent) -> Op {
    Op::Report(ReportItem {
        key: key(id),
        node: placement.node.clone(),
        boot: placement.boot,
        token: placement.token,
        event,
    })
}

pub fn manager_id(n: u32) -> ManagerId {
    ManagerId::parse(&format!("m{n}")).unwrap()
}

fn config(n: u32, ring: RingShape) -> ManagerConfig {
    ManagerConfig {
        number: ManagerNumber(n),
        id: manager_id(n),
        ring,
        grpc: format!("m{n}:1"),
        http: String::new(),
        load_limit: LoadLimit::of_permille(800).expect("within bounds"),
        timing: Timing::default(),
        sizes: Sizes::default(),
        documents: DocumentsConfig::default(),
        numbers: None,
        tasks: TasksConfig::default(),
    }
}

impl Table {
    /// Three managers with r = 2, started and serving, and one node with 100 places.
    pub fn serving() -> Self {
        let mut table = Self::laid();
        table.start_all();
        table.register("n1", 7);
        table
    }

    /// Three numbers reserved with r = 2, and nobody started.
    pub fn laid() -> Self {
        Self::laid_with(2)
    }

    /// The same with that many copies beside the owner.
    pub fn laid_with(r: u32) -> Self {
        Self::laid_among(&NUMBERS, r)
    }

    /// The same with these numbers of a ring of 1,024 slots.
    pub fn laid_among(numbers: &[u32], r: u32) -> Self {
        let blob_stores = numbers.iter().map(|n| (*n, Arc::default())).collect();
        let numbers: Vec<_> = numbers.iter().map(|n| (ManagerNumber(*n), manager_id(*n))).collect();
        let cluster = ClusterName::parse("test").unwrap();
        let view = View::found(cluster, 1024, r, 100, &numbers).unwrap();
        Self {
            managers: BTreeMap::new(),
            disks: BTreeMap::new(),
            blob_stores,
            bodies_come: true,
            fetches: Vec::new(),
            ring: view.shape(),
            config: ConfigState {
                index: 1,
                view: Some(Arc::new(view)),
                nodes: BTreeMap::new(),
                dropped: Dropped::default(),
            },
            now_ms: 1_000,
            wall_step_ms: 0,
            replies: BTreeMap::new(),
            notes: Vec::new(),
            said: Vec::new(),
            events: Vec::new(),
            content_events: Vec::new(),
            registered: None,
            renewed: None,
            ordered_as: None,
            node_ordered_as: None,
            node_calls: Vec::new(),
            manual_nodes: false,
            keeps_actions: false,
            works: Vec::new(),
            manual_works: false,
            task_works: Vec::new(),
            stopped: Vec::new(),
            given_up: Vec::new(),
            met: Vec::new(),
            lose: Box::new(|_| false),
            dead: BTreeSet::new(),
            sizes: Sizes::default(),
            documents: DocumentsConfig::default(),
            stable_numbers: None,
            tasks: TasksConfig::default(),
            offer: None,
            checker: None,
            places: 100,
            ordered: Vec::new(),
            to_clear: Vec::new(),
            started_by: Vec::new(),
            cleared_by: Vec::new(),
            orders: Vec::new(),
            late: BTreeSet::new(),
            unheard: BTreeSet::new(),
            persisted: 0,
            batch_max: 0,
            disks_stop_after: None,
            config_reads: 0,
            message_max: 0,
            under_way_max: 0,
            under_way: BTreeMap::new(),
            store_away: false,
            blind: None,
            cas_unknown: false,
            queue: VecDeque::new(),
            calls: 0,
            turns: 0,
            silent: BTreeSet::new(),
            live: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    pub fn now(&self) -> Now {
        let wall_ms = (1_800_000_000_000 + self.now_ms).saturating_add_signed(self.wall_step_ms);
        Now { mono_ms: self.now_ms, wall_ms }
    }

    /// Starts every manager, and waits until they serve.
    pub fn start_all(&mut self) {
        let numbers: Vec<u32> = self.view().managers.keys().map(|it| it.0).collect();
        numbers.iter().for_each(|n| self.start(*n));
        self.settle();
        self.pass(500);
    }

    /// Starts a manager from its disk.
    pub fn start(&mut self, n: u32) {
        self.start_as(n, false, false);
    }

    /// The same with an empty disk, and with the operator's word that the one before is gone for good.
    pub fn start_lost(&mut self, n: u32) {
        self.disks.remove(&n);
        self.start_as(n, false, true);
    }

    /// The same; one that may join when nobody reserved its number.
    pub fn start_newcomer(&mut self, n: u32) {
        self.blob_stores.entry(n).or_default();
        self.start_as(n, true, false);
        self.settle();
    }

    fn start_as(&mut self, n: u32, joins: bool, lost: bool) {
        let disk = self.disks.entry(n).or_default().clone();
        let seed = 77 + u64::from(n) * 1_000_003 + self.now_ms * 65_536;
        let (documents, sizes, numbers) = (self.documents.clone(), self.sizes, self.stable_numbers);
        let config = ManagerConfig {
            documents,
            sizes,
            numbers,
            tasks: self.tasks.clone(),
            ..config(n, self.ring.clone())
        };
        let mut manager = Manager::new(config, disk, seed, self.now());
        if let Some((operations, schema)) = &self.offer {
            manager.offer(operations.clone(), schema.clone()).expect("it has what managers keep");
        }
        if let Some(checker) = &self.checker {
            manager.check_with(checker.clone());
        }
        manager.keep_bodies(self.blob_stores[&n].clone());
        if joins {
            manager.may_join();
        }
        if lost {
            manager.force_lost();
        }
        self.managers.insert(n, manager);
        self.dead.remove(&n);
        self.queue.push_back((n, Input::Config(self.config.clone())));
        self.queue.push_back((n, Input::Tick));
    }

    pub fn kill(&mut self, n: u32) {
        self.managers.remove(&n);
        self.dead.insert(n);
        self.under_way.retain(|(_, to), _| *to != n);
        self.queue.retain(|(to, _)| *to != n);
    }

    pub fn input(&mut self, n: u32, input: Input) {
        self.queue.push_back((n, input));
        self.settle();
    }

    pub fn register(&mut self, node: &str, boot: u64) {
        self.register_with(node, boot, self.places);
    }

    pub fn register_with(&mut self, node: &str, boot: u64, places: u32) {
        self.register_as(node, boot, places, &["builtin".to_owned()], |it| it);
    }

    pub fn register_offering(&mut self, node: &str, boot: u64, classes: &[String]) {
        self.register_as(node, boot, self.places, classes, |it| it);
    }

    /// A node registers, with whatever else `told` says of it.
    pub fn register_as(
        &mut self,
        node: &str,
        boot: u64,
        places: u32,
        classes: &[String],
        told: impl FnOnce(Register) -> Register,
    ) {
        let node_id = NodeId::parse(node).unwrap();
        // Its folder was that of the boot before.
        let before = self.config.nodes.get(&node_id).map(|it| it.boot);
        let register = Register {
            node: node_id,
            boot: BootId(boot),
            ended_boots: before.into_iter().collect(),
            address: format!("{node}:1"),
            pool: PoolName::default_pool(),
            offers: rota_model::Resources::of_places(places),
            labels: rota_model::Labels::new(),
            classes: classes.iter().map(|it| ClassName::parse(it).unwrap()).collect(),
            digests: std::collections::BTreeMap::new(),
            facts: std::collections::BTreeMap::new(),
            sandbox: None,
            state: NodeState::Ready,
            lease: LEASE,
            tombstone_ms: 600_000,
        };
        let register = told(register);
        let on_time = |n: &&u32| !self.late.contains(n);
        let n = *self.managers.keys().find(on_time).unwrap();
        self.live.retain(|_, (at, ..)| at != node);
        self.seen.retain(|(at, _), _| at != node);
        self.input(n, Input::NodeRegister { call: 1, register });
    }

    /// A node asks a manager to register it. Gives the answer.
    pub fn registers(&mut self, n: u32, register: Register) -> Result<Registered, Refusal> {
        self.registered = None;
        self.input(n, Input::NodeRegister { call: 1, register });
        self.registered.take().expect("no answer yet")
    }

    /// An operator orders something through a manager. Gives the answer.
    pub fn order(&mut self, n: u32, order: Order) -> Result<Ordered, Refusal> {
        self.ordered_as = None;
        self.input(n, Input::Order { call: 2, order });
        let end = self.now_ms + 10_000;
        while self.ordered_as.is_none() {
            assert!(self.now_ms < end, "the order is not answered");
            self.pass(20);
        }
        self.ordered_as.take().unwrap()
    }

    /// The newest answer to an order, if it has come.
    pub fn ordered(&mut self) -> Option<Result<Ordered, Refusal>> {
        self.ordered_as.take()
    }

    /// Asks through a manager; gives the name under which the reply will stand.
    pub fn ask(&mut self, n: u32, op: Op) -> u64 {
        self.ask_within(n, op, 10_000)
    }

    /// The same with a deadline.
    pub fn ask_within(&mut self, n: u32, op: Op, ms: u64) -> u64 {
        self.calls += 1;
        let call = self.calls + 100;
        let deadline_mono_ms = self.now_ms + ms;
        self.input(n, Input::Client { call, deadline_mono_ms, op });
        call
    }

    /// Asks through a manager and expects the reply at once.
    pub fn call(&mut self, n: u32, op: Op) -> OpResult {
        let call = self.ask(n, op);
        self.replies.remove(&call).expect("no reply yet")
    }

    /// Lets time pass in small steps, until the reply is there.
    pub fn wait_for(&mut self, call: u64, most_ms: u64) -> OpResult {
        self.pass_until("a reply", most_ms, |it| it.replies.contains_key(&call));
        self.replies.remove(&call).unwrap()
    }

    /// Lets time pass in small steps, until that holds.
    pub fn pass_until(&mut self, what: &str, most_ms: u64, holds: impl Fn(&Self) -> bool) {
        let end = self.now_ms + most_ms;
        while !holds(self) {
            assert!(self.now_ms < end, "not within {most_ms} ms: {what}; {:?}", self.view());
            self.pass(20);
        }
    }

    pub fn pass(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while self.now_ms < end {
            self.now_ms += 20;
            let all: Vec<u32> = self.managers.keys().copied().collect();
            for n in all {
                self.queue.push_back((n, Input::Tick));
            }
            self.settle();
        }
    }

    pub fn count(&self, transition: Transition) -> usize {
        self.notes.iter().filter(|(_, it)| *it == transition).count()
    }

    pub fn view(&self) -> &View {
        self.config.view.as_ref().unwrap()
    }

    /// The manager that owns a session's slot.
    pub fn owner(&self, id: &str) -> u32 {
        self.view().owner_of(rota_ring::slot_of_session(&key(id), 1024)).0
    }

    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let Some((n, input)) = self.queue.pop_front() else { return };
            let now = self.now();
            if let Input::Peer(envelope) = &input {
                let way = (envelope.from.number.0, n);
                self.under_way.entry(way).and_modify(|it| *it -= bytes_of(&envelope.message));
            }
            let Some(manager) = self.managers.get_mut(&n) else { continue };
            self.turns += 1;
            manager.handle(now, input);
            let effects = manager.flush(now);
            for effect in effects {
                At { table: self, n }.carry_out(effect);
            }
        }
        panic!("the managers never come to rest");
    }

    fn persist(&mut self, n: u32, lsn: u64, writes: &[DiskWrite]) {
        if self.disks_stop_after.is_some_and(|it| self.persisted >= it) {
            return;
        }
        self.persisted += 1;
        self.batch_max = self.batch_max.max(writes.iter().map(bytes_written).sum());
        let disk = self.disks.entry(n).or_default();
        writes.iter().for_each(|write| disk.apply(write));
        self.queue.push_back((n, Input::Persisted { lsn }));
    }

    fn send(&mut self, n: u32, envelope: Envelope) {
        let bytes = bytes_of(&envelope.message);
        self.message_max = self.message_max.max(bytes);
        if !(self.lose)(&envelope) && !self.dead.contains(&envelope.to.number.0) {
            let under_way = self.under_way.entry((n, envelope.to.number.0)).or_default();
            *under_way += bytes;
            self.under_way_max = self.under_way_max.max(*under_way);
            self.queue.push_back((envelope.to.number.0, Input::Peer(envelope)));
        }
    }

    /// Does work that waits: the oldest one.
    pub fn work_once(&mut self) {
        let (n, work, job) = self.works.remove(0);
        self.queue.push_back((n, Input::Worked { work, worked: job.run() }));
        self.settle();
    }

    /// Whether that manager reaches no config store.
    fn is_away(&self, n: u32) -> bool {
        self.store_away || self.blind == Some(n)
    }

    fn fetch(&mut self, n: u32, part: ManagerNumber, bodies: Vec<Digest>) {
        for sha256 in bodies {
            self.fetches.push((n, sha256));
            let is_there = |(at, blob_store): (&u32, &Arc<BlobStore>)| {
                !self.dead.contains(at) && blob_store.has(sha256)
            };
            if self.bodies_come && self.blob_stores.iter().any(is_there) {
                self.blob_stores[&n].put(sha256);
                self.queue.push_back((n, Input::BodiesFetched { part }));
            }
        }
    }
}
