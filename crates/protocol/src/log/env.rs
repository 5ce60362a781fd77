//! What every partition of a manager shares: who it is, the View, the nodes, and what is to be done.

use crate::documents::documents_env::DocumentsEnv;
use crate::log::internal::{Internal, RouterWishes};
use crate::log::origin::Origin;
use crate::nodes::Leases;
use crate::nodes::calls::{CALLS_MAX, CallFor, FAILURE_CHARS_MAX, Fleet};
use crate::nodes::registry::{FailedOrder, Nodes};
use crate::ports::bodies::{Bodies, NoBodies};
use crate::ports::io::Effect;
use crate::ports::note::{Note, SessionEnd, Transition};
use crate::settings::config::ManagerConfig;
use crate::{Identity, PartitionMeta};
use rota_docstore::AHEAD_MS_MAX;
use rota_ids::Told;
use rota_messages::{DiskWrite, Doc, DocKey, Envelope, Message, OpResult};
use rota_model::node_msg::ToNode;
use rota_model::{
    BootId, Epoch, ManagerNumber, MemberId, NodeId, Now, PoolName, SessionKey, SessionRecord,
    SessionState, Stamp,
};
use rota_ring::{NodeReg, View};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a number names that this run gives out. Each kind counts by itself, so that the order in which
/// unrelated things happen leaves no trace: a search over all states knows them for the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameOf {
    /// A request that waits at its entry manager.
    Request,
    /// A confirm round.
    Round,
    /// A read of the config store.
    Read,
    /// A compare-and-set.
    Change,
    /// A call to a node.
    Call,
    /// A copying to a learner.
    Copying,
    /// An order of new nodes.
    Order,
    /// Work of an operation beside the decisions.
    Work,
    /// Something that a worker of tasks waits for.
    Task,
}

impl NameOf {
    /// How many kinds there are.
    const COUNT: usize = NameOf::Task as usize + 1;
}

/// What a partition waits for a consistent read of the config store for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ReadFor {
    /// A lone owner confirms what was asked before the read began: the requests of that round.
    Round(u64),
    /// A wedge ends by a compare-and-set only, so the config store must be there.
    Wedge,
}

/// Most traces that one change drops.
const DROPS_MAX: usize = 100;

/// A peer that should be taken out, and since when.
pub(crate) type Suspects = BTreeMap<MemberId, u64>;

#[derive(Clone)]
pub(crate) struct Env {
    pub config: ManagerConfig,
    /// This run; incarnation 0 before the number was claimed.
    pub me: MemberId,
    pub now: Now,
    pub view: Option<Arc<View>>,
    pub nodes: Nodes,
    /// What was asked of nodes, and of those who start them.
    pub fleet: Fleet,
    /// Leases of nodes.
    pub leases: Leases,
    /// What operations on documents need.
    pub documents_env: DocumentsEnv,
    /// Stable numbers.
    pub numbers: KnownNumbers,
    /// What is held here.
    pub held: Held,
    pub stamps: Stamps,
    pub effects: Vec<Effect>,
    /// The batch that is persisted next.
    pub disk: Batch,
    /// What is wanted of the config store.
    pub store: StoreWishes,
    /// What is wanted of this manager's router.
    pub router: RouterWishes,
    names: Names,
}

/// The stable numbers that this manager knows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct KnownNumbers {
    /// Those of managers, pools and nodes, as the follower learned them.
    pub told: Arc<Told>,
    /// Those of sessions that this manager assigns.
    pub of_sessions: Arc<Told>,
}

/// What is held at this manager, over all of its partitions.
#[derive(Clone)]
pub(crate) struct Held {
    /// What records of sessions fill.
    pub session_bytes: u64,
    /// What documents of applications fill.
    pub document_bytes: u64,
    /// The bodies of attachments.
    pub bodies: Arc<dyn Bodies>,
}

/// Bounds of versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamps {
    /// When this run began: its clock may be set back since.
    began: Now,
    /// A version that was found beyond what any clock of today gives: documents go on from there.
    beyond: Stamp,
    /// Highest version of a document that was removed, kept on disk: new lives are above it.
    pub forgotten: Stamp,
}

/// The batch that is persisted next.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Batch {
    /// Its number.
    pub lsn: u64,
    writes: Vec<DiskWrite>,
    /// About how many bytes the documents of that batch have.
    bytes: usize,
    /// Meta data of that batch: only the newest of each partition matters.
    metas: BTreeMap<ManagerNumber, PartitionMeta>,
    /// Something waits for that batch: the next flush persists it.
    pub persist_now: bool,
}

/// What is wanted of the config store.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct StoreWishes {
    /// Somebody saw a newer View: read it.
    pub refresh: bool,
    /// It was not reached when it was asked last.
    pub is_away: bool,
    pub suspects: Suspects,
    /// Partitions that wait for a consistent read, and what for.
    pub reads_wanted: Vec<(ManagerNumber, ReadFor)>,
}

/// Names that this run gives out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Names {
    /// The newest name of each kind.
    newest: [u64; NameOf::COUNT],
    rng: u64,
}

impl Env {
    pub fn new(config: ManagerConfig, seed: u64, now: Now) -> Self {
        let me = MemberId { number: config.number, incarnation: rota_model::Incarnation(0) };
        let documents_env = DocumentsEnv::new(&config.documents, &config.tasks);
        let nodes = Nodes::new(config.timing.renew_ms, config.load_limit);
        Self {
            config,
            me,
            now,
            view: None,
            nodes,
            fleet: Fleet::default(),
            leases: Leases::default(),
            documents_env,
            numbers: KnownNumbers::default(),
            held: Held { session_bytes: 0, document_bytes: 0, bodies: Arc::new(NoBodies) },
            stamps: Stamps { began: now, beyond: Stamp::MIN, forgotten: Stamp::MIN },
            effects: Vec::new(),
            disk: Batch { lsn: 1, ..Batch::default() },
            store: StoreWishes::default(),
            router: RouterWishes::default(),
            // Names of different runs differ, so that an answer to an earlier run matches nothing.
            names: Names { newest: [(seed >> 16) << 20; NameOf::COUNT], rng: seed | 1 },
        }
    }

    pub fn view(&self) -> &View {
        self.view.as_deref().expect("partitions exist only under a View")
    }

    /// A time that has come, whatever the clock says: it was set back, or was ahead and is put right.
    pub fn clock(&self) -> Stamp {
        let elapsed = self.now.mono_ms.saturating_sub(self.stamps.began.mono_ms);
        Stamp::from_epoch_ms(self.stamps.began.wall_ms.saturating_add(elapsed))
            .max(self.stamps.beyond)
    }

    /// Versions through this one are there: those of a clock that was ahead are gone on from.
    pub fn found(&mut self, high_water: Stamp) {
        if high_water > self.clock().plus_ms(AHEAD_MS_MAX) {
            self.stamps.beyond = high_water;
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.view.as_ref().map_or(Epoch(0), |it| it.epoch)
    }

    /// A number that this run gives out once for that kind.
    pub fn next_id(&mut self, kind: NameOf) -> u64 {
        let name = &mut self.names.newest[kind as usize];
        *name += 1;
        *name
    }

    /// Everything that names come from, random numbers included.
    pub fn fresh_names(&self) -> impl std::hash::Hash + '_ {
        (&self.names.newest, self.names.rng, self.disk.lsn)
    }

    /// What was written and is not given to the disk yet.
    pub fn unwritten(&self) -> impl std::hash::Hash + '_ {
        (&self.disk.writes, &self.disk.metas)
    }

    /// A random number from the seed (splitmix64): for nonces and jitter only.
    pub fn random(&mut self) -> u64 {
        self.names.rng = self.names.rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.names.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn persist_doc(&mut self, key: DocKey, doc: Option<Arc<Doc>>) {
        self.disk.bytes += key.bytes() + doc.as_ref().map_or(0, |it| it.bytes());
        self.disk.writes.push(DiskWrite::Doc { key, doc });
        self.disk.persist_now = true;
    }

    /// Persists a partition's meta data; gives the batch that carries it.
    pub fn persist_part(&mut self, part: ManagerNumber, meta: PartitionMeta) -> u64 {
        self.disk.metas.insert(part, meta);
        self.disk.persist_now = true;
        self.disk.lsn
    }

    pub fn persist_identity(&mut self, identity: Identity) -> u64 {
        self.disk.writes.push(DiskWrite::Identity(identity));
        self.disk.persist_now = true;
        self.disk.lsn
    }

    /// Whether so much is about to go to the disk that it should, before more comes.
    pub fn is_batch_full(&self) -> bool {
        self.disk.bytes >= self.config.sizes.batch_bytes
    }

    pub fn has_writes(&self) -> bool {
        !self.disk.writes.is_empty() || !self.disk.metas.is_empty()
    }

    /// Everything of the batch. The meta data comes after the documents that it speaks of.
    pub fn take_writes(&mut self) -> Vec<DiskWrite> {
        let mut writes = std::mem::take(&mut self.disk.writes);
        let metas = std::mem::take(&mut self.disk.metas);
        self.disk.bytes = 0;
        writes.extend(metas.into_iter().map(|(part, meta)| DiskWrite::Part { part, meta }));
        writes
    }

    /// Sends to the current run of a manager.
    pub fn send(&mut self, to: ManagerNumber, message: Message) {
        let Some(view) = &self.view else { return };
        let (Some(to), Some(entry)) = (view.member(to), view.managers.get(&to)) else {
            return;
        };
        if entry.grpc.is_empty() {
            return;
        }
        let envelope = Envelope { from: self.me, to, epoch: view.epoch, message };
        self.effects.push(Effect::Send { address: entry.grpc.clone(), envelope });
    }

    /// Nodes that were ordered did not start: opens that wait for them are told so for a while. An
    /// order that failed lapses after `provision_ms`, and the next one brings its own news.
    pub fn on_order_failed(&mut self, pool: &PoolName, why: &str) {
        let until_ms = self.now.mono_ms + 2 * self.config.timing.provision_ms;
        let why = why.chars().take(FAILURE_CHARS_MAX).collect();
        self.nodes.failed_orders.insert(pool.clone(), FailedOrder { why, until_ms });
    }

    /// Asks a node; `None` when it is not registered under that boot.
    pub fn ask_node(&mut self, call: CallFor, message: impl FnOnce(u64) -> ToNode) -> Option<u64> {
        let reg = self.nodes.reg.get(&call.node)?;
        if reg.boot != call.boot || reg.state.is_gone() {
            return None;
        }
        let (node, address) = (reg.node.clone(), reg.address.clone());
        let id = self.next_id(NameOf::Call);
        if self.fleet.calls.len() >= CALLS_MAX {
            self.fleet.calls.pop_first();
        }
        self.nodes.on_call(&node, self.now.mono_ms);
        self.fleet.calls.insert(id, call);
        self.effects.push(Effect::ToNode { node, address, message: message(id) });
        Some(id)
    }

    /// Answers a request, wherever it came from.
    pub fn answer(&mut self, origin: Origin, result: OpResult) {
        match origin {
            Origin::Here { rid } => self.router.answers.push((rid, result)),
            Origin::Task { part, rid } => {
                self.router.done.push((Internal::Task { part, rid }, result));
            }
            Origin::Peer { from, rid } => {
                let current = self.view.as_ref().and_then(|view| view.member(from.number));
                if current == Some(from) {
                    self.send(from.number, Message::Answer { rid, result: Box::new(result) });
                }
            }
        }
    }

    pub fn note(&mut self, transition: Transition, part: Option<ManagerNumber>) {
        self.note_text(transition, part, String::new());
    }

    pub fn note_text(
        &mut self,
        transition: Transition,
        part: Option<ManagerNumber>,
        text: impl Into<String>,
    ) {
        let text = text.into();
        let (node, session) = (None, None);
        self.effects.push(Effect::Note(Note { transition, part, node, session, text, end: None }));
    }

    /// Notes a step that is about a node.
    pub fn note_node(
        &mut self,
        transition: Transition,
        part: Option<ManagerNumber>,
        node: &NodeId,
        text: String,
    ) {
        let (node, session) = (Some(node.clone()), None);
        self.effects.push(Effect::Note(Note { transition, part, node, session, text, end: None }));
    }

    /// Notes a step that is about a session.
    pub fn note_session(
        &mut self,
        transition: Transition,
        part: Option<ManagerNumber>,
        session: SessionKey,
        text: String,
    ) {
        let (node, session) = (None, Some(Box::new(session)));
        self.effects.push(Effect::Note(Note { transition, part, node, session, text, end: None }));
    }

    /// Notes the end of a life that was in state `from`.
    pub fn note_end(
        &mut self,
        transition: Transition,
        part: ManagerNumber,
        from: SessionState,
        ended: &SessionRecord,
    ) {
        let SessionRecord { spec, state, reason, .. } = ended;
        let (class, state, reason) = (spec.class.clone(), *state, *reason);
        let end = Some(Box::new(SessionEnd { class, from, state, reason }));
        let (part, node, session, text) = (Some(part), None, None, String::new());
        self.effects.push(Effect::Note(Note { transition, part, node, session, text, end }));
    }

    /// When the owner of a partition takes what ran there on a boot for over: at once when that is proved, and else
    /// when what it granted is. `None` while the boot is not shut out, or this manager does not own the partition.
    pub fn over_at(&self, part: ManagerNumber, node: &NodeId, boot: BootId) -> Option<u64> {
        if self.nodes.is_proved_over(node, boot) {
            return Some(0);
        }
        let since_ms = self.leases.granted.counts_from(part, node, boot)?;
        let is_shut_out = self.nodes.is_over(node, boot);
        is_shut_out.then(|| since_ms.saturating_add(self.config.timing.node_lost_ms))
    }

    /// Whether nothing of a boot runs in that partition any more, as its owner knows.
    pub fn is_over(&self, part: ManagerNumber, node: &NodeId, boot: BootId) -> bool {
        self.over_at(part, node, boot).is_some_and(|at| at <= self.now.mono_ms)
    }

    /// Whether nothing can run in that partition that its owner cannot ask for: its predecessors may have granted
    /// something to a boot that was shut out since.
    pub fn has_outwaited(&self, part: ManagerNumber) -> bool {
        let Some(since_ms) = self.leases.granted.owns_since(part) else { return false };
        let is_shut_out = |node: &NodeId, boot: BootId| {
            self.nodes.is_over(node, boot) && !self.nodes.is_proved_over(node, boot)
        };
        // This owner granted leases while it looked, too.
        let newest_ms = self.leases.granted.newest(part, is_shut_out).unwrap_or_default();
        let over_ms = since_ms.max(newest_ms).saturating_add(self.config.timing.node_lost_ms);
        let may_outlive =
            self.nodes.dropped.unproven || self.nodes.reg.values().any(NodeReg::may_outlive);
        over_ms <= self.now.mono_ms || !may_outlive
    }

    /// The traces that are dropped when an entry becomes one: those of the earliest boots, where there are more than
    /// are kept. None goes that is new to this manager: what is left of such a node may have to be ended still.
    /// Whoever drops none lets the registry grow with every node that ends.
    pub fn drops_with(&self, to: &NodeReg) -> Vec<NodeId> {
        if !to.is_forgotten() {
            return Vec::new();
        }
        let sizes = &self.config.sizes;
        let others = self.nodes.reg.values().filter(|it| it.is_forgotten() && it.node != to.node);
        let surplus = (others.clone().count() + 1).saturating_sub(sizes.traces_max);
        // The newest one stays, unless none is to.
        let newest = [to].into_iter().filter(|_| sizes.traces_max == 0);
        let now_ms = self.now.mono_ms;
        let is_old = |it: &&NodeReg| self.nodes.is_unheard_for(&it.node, sizes.traces_ms, now_ms);
        let mut old: Vec<&NodeReg> = others.chain(newest).filter(is_old).collect();
        old.sort_by_key(|it| (it.boot, &it.node));
        old.into_iter().take(surplus.min(DROPS_MAX)).map(|it| it.node.clone()).collect()
    }

    pub fn suspect(&mut self, member: MemberId) {
        let now = self.now.mono_ms;
        if member.number != self.me.number && !self.store.suspects.contains_key(&member) {
            self.store.suspects.insert(member, now);
            self.note_text(Transition::Suspected, None, format!("manager {member}"));
        }
    }
}
