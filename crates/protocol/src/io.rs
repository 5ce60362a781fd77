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
//! The driver feeds any number of inputs to [`crate::Manager::handle`] and then carries out what
//! [`crate::Manager::flush`] returns, so that entries, acknowledgements and disk writes of one
//! batch travel together. Before [`crate::Manager::wake_at`] it gives a [`Input::Tick`].

use crate::operate::{Job, Worked};
use rota_docstore::Digest;
use rota_messages::{DiskWrite, Envelope, NodeOrdered, Op, OpResult, Order, Ordered};
use rota_model::node_msg::{FromNode, Register, Registered, Renew, Renewed, ToNode};
use rota_model::{
    ClassName, ManagerNumber, MemberId, NodeId, PoolName, Reason, Refusal, SessionState,
};
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
        /// What went wrong, for people.
        failure: Option<String>,
    },
    /// Bodies that [`Effect::FetchBodies`] asked for are held now, and none that was asked for is
    /// still under way.
    BodiesFetched {
        /// The partition.
        part: ManagerNumber,
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
    /// Answer a client. Everything that the answer promises is already at the whole ISR.
    Reply {
        /// The driver's name for the request.
        call: u64,
        /// The answer.
        result: OpResult,
    },
    /// Answer a node's registration.
    ReplyRegister {
        /// The driver's name for it.
        call: u64,
        /// The answer.
        result: Result<Registered, Refusal>,
    },
    /// Answer a node's sign of life.
    ReplyRenew {
        /// The driver's name for it.
        call: u64,
        /// The answer.
        result: Renewed,
    },
    /// Answer an operator's order.
    ReplyOrder {
        /// The driver's name for it.
        call: u64,
        /// The answer.
        result: Result<Ordered, Refusal>,
    },
    /// Answer an operator's order about a node.
    ReplyNodeOrder {
        /// The driver's name for it.
        call: u64,
        /// The answer.
        result: Result<NodeOrdered, Refusal>,
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
        /// The pool.
        pool: PoolName,
        /// Names of the new nodes.
        nodes: Vec<NodeId>,
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
    /// Let an operation of an application work, beside the decisions: it may take as long as it likes. Then
    /// give [`Input::Worked`]. There are never more than
    /// [`works_max`](crate::DocumentsConfig::works_max) at once.
    Work {
        /// Comes back.
        work: u64,
        /// The operation; see [`Job::run`].
        job: Box<Job>,
    },
    /// Something worth counting or telling. Needs nothing done.
    Note(Note),
}

/// Something worth counting or telling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// What kind of step.
    pub transition: Transition,
    /// The partition, where there is one.
    pub part: Option<ManagerNumber>,
    /// A sentence for people; may be empty.
    pub text: String,
    /// The end of a life that was written, where the step is one.
    pub end: Option<Box<SessionEnd>>,
}

/// The end of a life as its owner writes it. One that takes over before it is committed writes it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEnd {
    /// What it ran.
    pub class: ClassName,
    /// State before: READY, or how far its start or close had come.
    pub from: SessionState,
    /// State after: CLOSED, FAILED or LOST.
    pub state: SessionState,
    /// Why.
    pub reason: Option<Reason>,
}

macro_rules! transitions {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// A step of the protocol. The simulator fails when one never happened.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Transition { $($(#[$doc])* $variant,)* }
        impl Transition {
            /// Every step.
            pub const ALL: &'static [Transition] = &[$(Transition::$variant),*];
            /// Name in traces, counters and metrics.
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }
        }
    };
}

transitions!(
    /// A number was claimed.
    Claimed = "claimed",
    /// A manager that took its number wrote down who did not answer it, since its copies would have been
    /// left to them.
    OthersGone = "others_gone",
    /// A new View was adopted.
    ViewAdopted = "view_adopted",
    /// The config store's View breaks a rule, or is of another ring: the one before stays.
    ViewRefused = "view_refused",
    /// A partition began to synchronise under a new epoch.
    SyncStarted = "sync_started",
    /// A partition serves.
    Serving = "serving",
    /// A partition was handed to another owner.
    SteppedDown = "stepped_down",
    /// A copy's uncommitted entries were overwritten.
    SuffixReplaced = "suffix_replaced",
    /// A copy asked for entries that it missed.
    GapResent = "gap_resent",
    /// A lone copy took over from its own disk and began to scan the nodes.
    LoneTakeOver = "lone_take_over",
    /// That scan ended.
    ScanDone = "scan_done",
    /// Acknowledged writes of a partition are lost: its owner finds again what runs.
    LastCopyLost = "last_copy_lost",
    /// The View says that a partition is to be found again, since its owner saw that its disk is old.
    GivenUp = "given_up",
    /// A manager that holds more of a partition is to find it again.
    RecoveryHandedOn = "recovery_handed_on",
    /// A partition was found again from the nodes, and is about to serve.
    Recovered = "recovered",
    /// Copying to a learner began.
    LearnStarted = "learn_started",
    /// A learner fell behind what the owner keeps: copying to it began anew.
    LearnRestarted = "learn_restarted",
    /// The owner stopped new entries to add a member.
    Wedged = "wedged",
    /// A member was added.
    MemberAdded = "member_added",
    /// A copy that needs full content was taken out of the ISR, to learn.
    MemberDropped = "member_dropped",
    /// A former copy was dropped.
    CopyDropped = "copy_dropped",
    /// A newcomer came into the ring.
    JoinStarted = "join_started",
    /// Its arc was cut out of the partition that held it, by that one's owner.
    ArcSplit = "arc_split",
    /// A manager cut its copy in two.
    ArcCut = "arc_cut",
    /// A newcomer holds all that it should.
    JoinFinished = "join_finished",
    /// A newcomer was taken out before it held all that it should.
    JoinRolledBack = "join_rolled_back",
    /// A newcomer came no further for so long that the next may join.
    JoinGivenUp = "join_given_up",
    /// An operator took a join back: the newcomer leaves.
    JoinCancelled = "join_cancelled",
    /// A number began to leave the ring.
    LeaveStarted = "leave_started",
    /// An owner let who leaves go from a partition of which enough others have copies.
    LeaverLetGo = "leaver_let_go",
    /// A number has left: it holds nothing that the ring needs.
    LeaveFinished = "leave_finished",
    /// A run ends, since its number has left.
    HasLeft = "has_left",
    /// Who was leaving is down with a last copy, so it stays.
    LeaveRolledBack = "leave_rolled_back",
    /// Who was leaving came no further for so long that it stays.
    LeaveGivenUp = "leave_given_up",
    /// An operator took a leave back.
    LeaveCancelled = "leave_cancelled",
    /// Copying began to a manager that stands in for one that cannot be copied to.
    StandInStarted = "stand_in_started",
    /// An owner gave its own partition a new epoch, since a change of unknown outcome might land.
    EpochRenewed = "epoch_renewed",
    /// A manager was suspected.
    Suspected = "suspected",
    /// A manager was taken out.
    TakenOut = "taken_out",
    /// A compare-and-set lost the race.
    CasConflict = "cas_conflict",
    /// A compare-and-set has an unknown outcome.
    CasUnknown = "cas_unknown",
    /// An id was driven again by a new owner.
    Redriven = "redriven",
    /// A new life began: PENDING was written.
    OpenPending = "open_pending",
    /// An open was answered CREATED.
    OpenCreated = "open_created",
    /// An open was answered EXISTED.
    OpenExisted = "open_existed",
    /// A repeated request id was answered from the record.
    RequestRepeated = "request_repeated",
    /// Another node was chosen after a definite refusal.
    NodeRefused = "node_refused",
    /// A node took nothing at that time, its lease over or leaving: it is not chosen for a while.
    NodeUnable = "node_unable",
    /// An attempt of which nothing was ever sent was taken back, and another node chosen.
    Withdrawn = "withdrawn",
    /// A life found no node.
    OpenFailed = "open_failed",
    /// CLOSING was written.
    CloseStarted = "close_started",
    /// CLOSED was written.
    CloseFinished = "close_finished",
    /// A node reported an end.
    Ended = "ended",
    /// A session was lost with its node.
    SessionLost = "session_lost",
    /// A node was declared lost.
    NodeLost = "node_lost",
    /// A node registered a boot.
    NodeRegistered = "node_registered",
    /// A node was refused, since it does not prove that its registered boot is over.
    NodeUnproven = "node_unproven",
    /// An operator cordoned or drained a node, or let it serve again.
    NodeOrdered = "node_ordered",
    /// A session is closed, since its node is drained.
    SessionDrained = "session_drained",
    /// A node was fenced off an older owner, or the owner off it.
    Fenced = "fenced",
    /// A request was forwarded to an owner.
    Forwarded = "forwarded",
    /// A forwarded request was sent again.
    ForwardRetried = "forward_retried",
    /// A read was confirmed with the copies.
    ReadConfirmed = "read_confirmed",
    /// A tombstone was removed.
    TombstonePurged = "tombstone_purged",
    /// Destroyed items of a document were forgotten.
    ItemsForgotten = "items_forgotten",
    /// An operation changed documents.
    Operated = "operated",
    /// An operation only read.
    OperationRead = "operation_read",
    /// An operation failed unexpectedly, and waits for its next attempt.
    OperationPaused = "operation_paused",
    /// An operation of an application began to work beside the decisions.
    WorkBegun = "work_begun",
    /// One works for longer than it may: its caller was told so.
    WorkOverdue = "work_overdue",
    /// One was refused, since as many work as may.
    WorkRefused = "work_refused",
    /// One has worked for nobody: its caller was told something else meanwhile, or another owner works.
    WorkDropped = "work_dropped",
    /// An operation waits for documents of other owners.
    DocumentsFetched = "documents_fetched",
    /// Copies of documents were brought up to date.
    CopiesSynced = "copies_synced",
    /// The description of a namespace was learned.
    NamespaceLearned = "namespace_learned",
    /// A request was refused, since its namespace is switched off.
    NamespaceRefused = "namespace_refused",
    /// New nodes were ordered.
    NodesOrdered = "nodes_ordered",
    /// Nodes that were to be ordered do not come.
    OrderFailed = "order_failed",
);
