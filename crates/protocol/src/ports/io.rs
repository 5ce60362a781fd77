//! Inputs and effects: everything that passes between the decisions and the world.
//!
//! ```text
//!            Input                                   Effect
//!  client ── Client ──▶ ┌─────────────────┐ ── Reply ───────▶ client
//!   peers ── Peer ────▶ │ protocol::       │ ── Send ────────▶ peers
//!   nodes ── Node ────▶ │   Manager        │ ── ToNode ──────▶ nodes
//!    disk ── Persisted ▶│  handle, then    │ ── Persist ─────▶ disk
//!  config ── Config ──▶ │  flush           │ ── Cas, Read ───▶ config store
//!   clock ── Tick ────▶ │                 │ ── Provision ───▶ provisioner
//! workers ── Worked ──▶ └─────────────────┘ ── Work ────────▶ workers
//! ```
//!
//! The driver feeds any number of inputs to [`crate::manager::inputs::Manager::handle`] and then carries out what
//! [`crate::manager::inputs::Manager::flush`] returns, so that entries, acknowledgements and disk writes of one
//! batch travel together. Before [`crate::manager::inputs::Manager::wake_at`] it gives a [`Input::Tick`].

use crate::ports::note::Note;
use crate::ports::task_work::{TaskJob, TaskOutcome};
use crate::ports::work::{Job, Worked};
use rota_docstore::Digest;
use rota_messages::events::Event;
use rota_messages::{DiskWrite, Envelope, NodeOrdered, Op, OpResult, Order, Ordered};
use rota_model::node_msg::{FromNode, Register, Registered, Renew, Renewed, ToNode};
use rota_model::{ManagerNumber, MemberId, NewNodes, NodeId, PoolName, ProvisionerName, Refusal};
use rota_ring::{Change, ConfigState, NodeOrder};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client's request at this manager.
    Client {
        /// The driver's name for it; comes back in [`Effect::Reply`].
        call: u64,
        /// On the monotonic clock.
        deadline_mono_ms: u64,
        /// The request.
        op: Op,
    },
    /// A message from a peer.
    Peer(Envelope),
    /// A node's answer to a [`Effect::ToNode`].
    Node(FromNode),
    /// A node wants to register a boot.
    NodeRegister {
        /// The driver's name for it.
        call: u64,
        /// The request.
        register: Register,
    },
    /// A node's sign of life.
    NodeRenew {
        /// The driver's name for it.
        call: u64,
        /// The request.
        renew: Renew,
    },
    /// An operator's order.
    Order {
        /// The driver's name for it.
        call: u64,
        /// The order.
        order: Order,
    },
    /// An operator's order about a node.
    NodeOrder {
        /// The driver's name for it.
        call: u64,
        /// The node.
        node: NodeId,
        /// The order.
        order: NodeOrder,
    },
    /// All [`Effect::Persist`] up to this number are on disk.
    Persisted {
        /// The number.
        lsn: u64,
    },
    /// The config store's watch (or a failed compare-and-set) showed this.
    Config(ConfigState),
    /// Answer to [`Effect::ReadConfig`]: read consistently after the effect was given.
    ConfigRead {
        /// The read.
        read: u64,
        /// The state; `None` when the store could not be reached.
        state: Option<ConfigState>,
    },
    /// Answer to [`Effect::Cas`].
    CasDone {
        /// The compare-and-set.
        cas: u64,
        /// What became of it.
        outcome: CasOutcome,
    },
    /// The connection to a peer was reset and its port refuses: its process is gone.
    PeerRefused {
        /// The peer.
        number: ManagerNumber,
        /// Where it was looked for. Its next run may serve elsewhere.
        address: String,
    },
    /// Somebody outside (a health check, an operator's script) says that this run of a peer looks
    /// gone. A suspicion at most: a peer that is heard stays.
    Signal {
        /// The peer.
        member: MemberId,
    },
    /// The connection to a node (re)opened: what was sent before may be lost.
    NodeConnected {
        /// The node.
        node: NodeId,
    },
    /// No connection to a node could be opened. What waited for one was thrown away.
    NodeUnreached {
        /// The node.
        node: NodeId,
        /// Where it was looked for. Its next boot may serve elsewhere.
        address: String,
        /// The calls that were thrown away, none of which was ever given to a connection: the node will
        /// never see them.
        unsent: Vec<u64>,
    },
    /// A provisioner finished an order (its nodes register on their own).
    Provisioned {
        /// The order.
        order: u64,
        /// Whether anything was begun; not where nobody knew the provisioner.
        begun: bool,
        /// Which did not start, if something went wrong; none: all of them.
        failed: Vec<NodeId>,
        /// What went wrong, for people.
        failure: Option<String>,
    },
    /// A provisioner has ended what was left of a node, or could not.
    NodeCleared {
        /// Its pool.
        pool: PoolName,
        /// The node.
        node: NodeId,
        /// What went wrong, for people.
        failure: Option<String>,
    },
    /// Bodies that [`Effect::FetchBodies`] asked for are held now, and none that was asked for is
    /// still under way.
    BodiesFetched {
        /// The partition.
        part: ManagerNumber,
    },
    /// An [`Effect::RunTask`] came to its end.
    TaskRan {
        /// Its partition.
        part: ManagerNumber,
        /// Its name.
        work: u64,
        /// How.
        outcome: TaskOutcome,
    },
    /// An [`Effect::Work`] came to its end.
    Worked {
        /// The work.
        work: u64,
        /// What it came to.
        worked: Worked,
    },
    /// Time passed.
    Tick,
}

/// What became of a compare-and-set.
#[derive(Clone, Debug)]
pub enum CasOutcome {
    /// Written; this is the state since.
    Done(ConfigState),
    /// An expectation did not hold, and nothing was written; this is the state.
    Conflict(ConfigState),
    /// Nobody knows whether it was or will be written.
    Unknown,
}

/// The answer to a call, by the input that the call came with.
#[derive(Clone, Debug)]
pub enum Reply {
    /// [`Input::Client`].
    Request(OpResult),
    /// [`Input::NodeRegister`].
    Registered(Result<Registered, Refusal>),
    /// [`Input::NodeRenew`].
    Renewed(Renewed),
    /// [`Input::Order`].
    Ordered(Result<Ordered, Refusal>),
    /// [`Input::NodeOrder`].
    NodeOrdered(Result<NodeOrdered, Refusal>),
}

/// Something to do. Effects of one flush may be carried out in any order and in parallel.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Write to disk, all or nothing, in order of `lsn`; then give [`Input::Persisted`].
    Persist {
        /// Grows by one.
        lsn: u64,
        /// The writes.
        writes: Vec<DiskWrite>,
    },
    /// Send to a peer. Loss is allowed.
    Send {
        /// Where the View says that the receiver serves, or where a claimer says that it does.
        address: String,
        /// What.
        envelope: Envelope,
    },
    /// Send to a node. Loss is allowed.
    ToNode {
        /// The node.
        node: NodeId,
        /// Where the registry says that it serves.
        address: String,
        /// What.
        message: ToNode,
    },
    /// Answer a call. Everything that the answer promises is already at the whole ISR.
    Reply {
        /// The driver's name for the call.
        call: u64,
        /// The answer.
        reply: Reply,
    },
    /// Read the config store consistently, then give [`Input::ConfigRead`].
    ReadConfig {
        /// Comes back.
        read: u64,
    },
    /// Compare-and-set in the config store, then give [`Input::CasDone`].
    Cas {
        /// Comes back.
        cas: u64,
        /// The change.
        change: Box<Change>,
    },
    /// Start nodes, then give [`Input::Provisioned`].
    Provision {
        /// Comes back.
        order: u64,
        /// Names of the new nodes.
        nodes: Vec<NodeId>,
        /// Of which pool, and how.
        new: NewNodes,
    },
    /// End what is left of a node that was started and is gone, or never came; then give [`Input::NodeCleared`]. May be
    /// asked for again, also by another manager.
    ClearNode {
        /// Its pool.
        pool: PoolName,
        /// Who started it.
        provisioner: ProvisionerName,
        /// The node.
        node: NodeId,
    },
    /// Get these bodies of attachments from managers that hold copies of this partition, its owner
    /// first, and keep them; then give [`Input::BodiesFetched`]. Asked for again as long as they are
    /// missing.
    FetchBodies {
        /// The partition.
        part: ManagerNumber,
        /// In order, each once.
        bodies: Vec<Digest>,
    },
    /// Run the program, or make the call, of a task; then give [`Input::TaskRan`]. There are never more than the queues
    /// have workers.
    RunTask {
        /// Comes back.
        part: ManagerNumber,
        /// Comes back.
        work: u64,
        /// What is to be done.
        job: Box<TaskJob>,
    },
    /// Nobody waits for an [`Effect::RunTask`] any more: end it.
    StopTask {
        /// Its name.
        work: u64,
    },
    /// Tell an administrator that a task was given up.
    TaskGivenUp {
        /// Its record.
        task: Box<serde_json::Value>,
    },
    /// Let an operation of an application work, beside the decisions: it may take as long as it likes. Then
    /// give [`Input::Worked`]. There are never more than
    /// [`works_max`](crate::settings::documents::DocumentsConfig::works_max) at once.
    Work {
        /// Comes back.
        work: u64,
        /// The operation; see [`Job::run`].
        job: Box<Job>,
    },
    /// What was committed in a partition of this manager, for operators. Needs nothing done.
    Events(Vec<Event>),
    /// Something worth counting or telling. Needs nothing done.
    Note(Note),
}
