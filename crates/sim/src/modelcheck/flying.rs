//! What is under way between processes, and what a process sends.

use rota_model::node_msg::{FromNode, Register, Registered, Renew, Renewed, ReportItem, ToNode};
use rota_model::{BootId, ManagerNumber, Refusal};
use rota_node::ReportId;
use rota_protocol::{Envelope, OpResult, Ordered};
use rota_ring::{Change, ConfigState};
use std::sync::Arc;

/// One run of a manager's process.
pub type Run = (ManagerNumber, u64);

/// A message under way. The network keeps no order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Flying {
    /// Manager to manager.
    Peer(Envelope),
    /// Manager to node.
    ToNode {
        /// Who asks.
        from: Run,
        /// The node.
        node: usize,
        /// What.
        message: ToNode,
    },
    /// Node to manager.
    FromNode {
        /// Who asked.
        to: Run,
        /// The node.
        node: usize,
        /// The answer.
        answer: FromNode,
    },
    /// A compare-and-set whose manager waits for its outcome.
    Cas {
        /// Whose.
        from: Run,
        /// Its name there.
        cas: u64,
        /// The change.
        change: Arc<Change>,
    },
    /// A compare-and-set that nobody waits for any more: its manager died, or was told that the
    /// outcome is unknown. It may be written at any time, or never.
    Orphan {
        /// Whose it was.
        from: ManagerNumber,
        /// The change.
        change: Arc<Change>,
    },
    /// What became of a compare-and-set, and what the config store held then.
    Outcome {
        /// Whose.
        to: Run,
        /// Its name there.
        cas: u64,
        /// Whether it was written.
        done: bool,
        /// What the config store held.
        held: Box<ConfigState>,
    },
    /// Node to manager: a boot.
    Register {
        /// To whom.
        to: Run,
        /// The node.
        node: usize,
        /// On the node's clock.
        sent_mono_ms: u64,
        /// The boot.
        register: Box<Register>,
    },
    /// Manager to node.
    Registered {
        /// The node, and its boot.
        to: (usize, BootId),
        /// On the node's clock.
        sent_mono_ms: u64,
        /// The answer.
        result: Result<Registered, Refusal>,
    },
    /// Node to manager: a sign of life.
    Renew {
        /// To whom.
        to: Run,
        /// The node.
        node: usize,
        /// On the node's clock.
        sent_mono_ms: u64,
        /// The sign.
        renew: Renew,
    },
    /// Manager to node.
    Renewed {
        /// The node, and its boot.
        to: (usize, BootId),
        /// On the node's clock.
        sent_mono_ms: u64,
        /// The answer.
        renewed: Renewed,
    },
    /// Node to manager: news of a session.
    Report {
        /// To whom.
        to: Run,
        /// The node.
        node: usize,
        /// Its name for it.
        id: ReportId,
        /// The news.
        item: ReportItem,
    },
    /// Manager to node.
    ReportAcked {
        /// The node, and its boot.
        to: (usize, BootId),
        /// Its name for it.
        id: ReportId,
    },
}

/// Who waits for an answer of a manager's process, beside clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Caller {
    /// A node's registration, sent at that time of its clock.
    Register((usize, BootId), u64),
    /// A node's sign of life.
    Renew((usize, BootId), u64),
    /// A node's report.
    Report((usize, BootId), ReportId),
}

/// What comes out of a process in one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// A message.
    Fly(Flying),
    /// The same, by its number in the room: so a step that is remembered has its messages.
    Kept(u32),
    /// From a node: a message to any manager that runs.
    ToAny(ToAny),
    /// A consistent read of the config store.
    Read(u64),
    /// An answer to a client.
    Reply(u64, Box<OpResult>),
    /// An answer to an operator.
    Ordered(Result<Ordered, Refusal>),
    /// A planted bug makes the manager believe that a peer sent this.
    Forged(Box<Envelope>),
    /// A planted bug makes the manager believe that a node answered this.
    ForgedNode(Box<FromNode>),
    /// A node ends what it runs, since its lease is over.
    LeaseOver,
    /// A process breaks a rule by itself: which, and how.
    Broken(&'static str, String),
}

/// What a node says to whichever manager it reaches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToAny {
    /// A boot.
    Register(u64, Box<Register>),
    /// News.
    Report(ReportId, Box<ReportItem>),
    /// A sign of life, to this manager.
    Renew(ManagerNumber, u64, Renew),
}
