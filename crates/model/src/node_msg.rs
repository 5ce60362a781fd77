//! Messages between managers and node-agents.
//!
//! Managers send [`ToNode`] over one batched stream per node and get a [`FromNode`] for each call.
//! Nodes send [`Register`], [`Renew`] and reports to managers.

use crate::class_facts::ClassFacts;
use crate::digest::ClassDigest;
use crate::epoch::{BootId, Epoch, LogPos, Token};
use crate::ids::{ClassName, ManagerNumber, NodeId, PoolName, RequestId, SessionKey, SlotId};
use crate::pool::LoadLimit;
pub use crate::resources::NodeLoad;
use crate::resources::{Labels, Resources};
use crate::sandbox::Sandbox;
use crate::session::SessionSpec;
use crate::stamp::Stamp;
use crate::state::{Exit, NodeState, Reason};
use crate::timing::LeaseTimes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The slots of one partition, `(previous number, n]` on the ring. `first > last` wraps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SlotRange {
    /// First slot.
    pub first: SlotId,
    /// Last slot (the partition's reserved number).
    pub last: SlotId,
}

impl SlotRange {
    /// Whether a slot lies in the range.
    pub fn contains(self, slot: SlotId) -> bool {
        if self.first <= self.last {
            self.first <= slot && slot <= self.last
        } else {
            slot >= self.first || slot <= self.last
        }
    }

    /// The range as one or two non-wrapping intervals `[first, last]`, lowest slots first.
    pub fn intervals(self, m: u32) -> Vec<(SlotId, SlotId)> {
        if self.first <= self.last {
            vec![(self.first, self.last)]
        } else {
            vec![(SlotId(0), self.last), (self.first, SlotId(m - 1))]
        }
    }

    /// How many slots.
    pub fn len(self, m: u32) -> u32 {
        self.intervals(m).iter().map(|(first, last)| last.0 - first.0 + 1).sum()
    }

    /// A range is never empty.
    pub fn is_empty(self) -> bool {
        false
    }
}

/// What every message to a node carries. The node obeys only its current boot, and never a `pe`
/// below its fence for the slots of `range`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeCall {
    /// Comes back in the answer.
    pub call: u64,
    /// The boot that is meant.
    pub boot: BootId,
    /// Epoch of the sender's partition.
    pub pe: Epoch,
    /// Slots of the sender's partition.
    pub range: SlotRange,
}

/// A request of a manager to a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ToNode {
    /// Run a session.
    Create {
        /// Common part.
        head: NodeCall,
        /// Which session.
        key: SessionKey,
        /// Its slot.
        slot: SlotId,
        /// Names the attempt.
        token: Token,
        /// The life that it gives the session; an event may name it.
        life: Stamp,
        /// Do not start it later than this after receipt.
        deadline_ms: u64,
        /// What to run.
        spec: SessionSpec,
        /// The request that caused it, for traces.
        request: Option<RequestId>,
    },
    /// End a session and remember its token as dead.
    Destroy {
        /// Common part.
        head: NodeCall,
        /// Which session.
        key: SessionKey,
        /// Its slot.
        slot: SlotId,
        /// Names the attempt.
        token: Token,
        /// How long its program is given to end, in milliseconds; `None`: as its class says, or as an
        /// earlier one said. A later one may only shorten the time.
        grace_ms: Option<u64>,
        /// The request that caused it, for traces.
        request: Option<RequestId>,
    },
    /// Run an action of a session that lives. Asked again until it is answered; it may run again then.
    Act {
        /// Common part.
        head: NodeCall,
        /// Which session.
        key: SessionKey,
        /// Its slot.
        slot: SlotId,
        /// The attempt that must live.
        token: Token,
        /// What to run.
        action: Box<Action>,
    },
    /// Raise the fence and tell what lives, in pages ordered by key.
    Scan {
        /// Common part.
        head: NodeCall,
        /// Start after this session.
        after: Option<SessionKey>,
        /// Most entries in the answer.
        limit: u32,
    },
    /// Who runs the ring now. The node has not renewed for longer than it should have: those that it
    /// knows may all be gone. It renews at once if this is news; there is no answer.
    Meet {
        /// Common part.
        head: NodeCall,
        /// Epoch of the View that names them.
        epoch: Epoch,
        /// The managers that serve: number, address.
        managers: Vec<(ManagerNumber, String)>,
    },
}

impl ToNode {
    /// The common part.
    pub fn head(&self) -> &NodeCall {
        match self {
            ToNode::Create { head, .. }
            | ToNode::Destroy { head, .. }
            | ToNode::Act { head, .. }
            | ToNode::Scan { head, .. }
            | ToNode::Meet { head, .. } => head,
        }
    }
}

/// An action of a session: the program that its class has for an event of a life cycle.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Action {
    /// The life of the session, for the action's own orders.
    pub life: Stamp,
    /// The life cycle.
    pub life_cycle: String,
    /// The last word of the item: what fires.
    pub word: String,
    /// How often it failed.
    pub failures: u32,
    /// How long it may take, in milliseconds from its start.
    pub timeout_ms: u64,
    /// The session as JSON, for its standard input.
    pub document: String,
}

impl Action {
    /// The name of the event: the word without its time.
    pub fn event(&self) -> &str {
        self.word.split_once('@').map_or(&self.word, |(event, _)| event)
    }
}

/// Longest text that an action may print as its answer, in bytes. What is longer has failed.
pub const ACTION_OUTPUT_BYTES_MAX: usize = 128 * 1024;

/// How an action came out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ActionEnd {
    /// It ended with exit code 0.
    Done {
        /// What it printed on its standard output, at most [`ACTION_OUTPUT_BYTES_MAX`].
        output: String,
    },
    /// It failed, or was not run.
    Failed {
        /// `EXIT-3`, `SIGNAL-9`, `TIMEOUT`, `NOT-STARTED`, `NOT-RUNNING`, `OUTPUT`, `BUSY`.
        code: String,
        /// What it said last on its standard error, or why it was not run.
        report: String,
    },
}

/// Why a start came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Blame {
    /// The node took nothing at that time: it was full, its lease had run out, it was leaving. Says
    /// nothing of the session, which may run elsewhere, or there a moment later.
    Node,
    /// What was to be started: its class is not there, or its program did not begin to run.
    Session,
}

/// Why a token does not live.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum DeadToken {
    /// It never ran and never will: another node may be tried.
    NeverStarted {
        /// Whether that is the node's fault, or the session's.
        blame: Blame,
        /// Why, for people.
        detail: String,
    },
    /// It ran and ended.
    Ended {
        /// Why.
        reason: Reason,
        /// How.
        exit: Option<Exit>,
        /// For people.
        detail: String,
    },
}

impl DeadToken {
    /// What there is to say of it, for people.
    pub fn detail(&self) -> &str {
        match self {
            DeadToken::NeverStarted { detail, .. } | DeadToken::Ended { detail, .. } => detail,
        }
    }
}

/// One entry of a scan.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ScanItem {
    /// Which session.
    pub key: SessionKey,
    /// Which attempt.
    pub token: Token,
    /// Alive or dead.
    pub fate: ScanFate,
}

/// What a scan found of one token.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ScanFate {
    /// It lives.
    Live(Box<Alive>),
    /// It is dead.
    Dead(DeadToken),
}

/// A session that lives, with all that a record of it needs: its managers may have lost theirs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Alive {
    /// Where it answers; empty while it starts.
    pub address: String,
    /// Whether it answers already.
    pub ready: bool,
    /// Why it is being ended, if it is: nothing undoes that.
    pub ends: Option<Reason>,
    /// The life that its Create gave it.
    pub life: Stamp,
    /// What it runs.
    pub spec: SessionSpec,
    /// The machine's state that was reported last, and the number of that change. Empty and 0 for a
    /// program.
    pub machine_state: String,
    /// That number.
    pub machine_change: u64,
}

impl Alive {
    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        let attributes = self.spec.attributes.iter();
        let attributes: usize = attributes.map(|(name, value)| name.len() + value.len() + 8).sum();
        96 + self.address.len() + self.machine_state.len() + attributes
    }
}

/// A node's answer to a [`ToNode`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FromNode {
    /// The call that is answered.
    pub call: u64,
    /// The node.
    pub node: NodeId,
    /// Its boot.
    pub boot: BootId,
    /// Its load after the call.
    pub load: NodeLoad,
    /// The answer.
    pub answer: NodeAnswer,
}

/// What a node answers. All but `Starting` are definite: the same call gets the same answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodeAnswer {
    /// An action came to its end.
    Acted {
        /// How.
        end: ActionEnd,
    },
    /// It runs; `ready` says whether it answers yet. A report follows when it does.
    Running {
        /// Where it answers.
        address: String,
        /// Whether it answers already.
        ready: bool,
        /// What its opener should know of it, for people; empty when there is nothing.
        remark: String,
    },
    /// The token is dead.
    Dead(DeadToken),
    /// No room; the token is dead now.
    Full,
    /// Another token of that session lives here.
    OtherLive {
        /// That token.
        token: Token,
    },
    /// To a destroy: nothing of that token runs, and it never will.
    Destroyed {
        /// How it ended, if it ran.
        exit: Option<Exit>,
        /// What there is to say of that, for people; empty when it ended in good order.
        detail: String,
    },
    /// To a scan: a page.
    Scanned {
        /// Entries in order of key.
        items: Vec<ScanItem>,
        /// More follow after the last one.
        more: bool,
        /// On the last page, the highest token of the scanned slots that this boot has seen: of what
        /// lives, what is dead, and what is forgotten. The lowest of all on the other pages.
        highest: Token,
    },
    /// The sender's epoch is below the fence.
    Fenced {
        /// The fence.
        fence: Epoch,
    },
    /// Another boot runs now; nothing of the boot that was meant runs.
    WrongBoot,
}

impl NodeAnswer {
    /// To a scan: nothing that was ever there, in the only page.
    pub fn nothing_found() -> Self {
        NodeAnswer::Scanned { items: Vec::new(), more: false, highest: Token(LogPos::ZERO) }
    }
}

/// Most boots in [`Register::ended_boots`]. A node that started more often without ever getting in
/// waits until its last registered boot was declared lost.
pub const ENDED_BOOTS_MAX: usize = 32;

/// A node registers a boot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Register {
    /// The node.
    pub node: NodeId,
    /// The new boot.
    pub boot: BootId,
    /// Earlier boots of which nothing runs for certain, newest last: they kept what they ran in the
    /// data folder of this one, whose agent ended it all. Empty for a fresh folder, which proves
    /// nothing. At most [`ENDED_BOOTS_MAX`].
    pub ended_boots: Vec<BootId>,
    /// Where managers reach it, `host:port`.
    pub address: String,
    /// The pool that it belongs to.
    pub pool: PoolName,
    /// What it has for sessions.
    pub offers: Resources,
    /// What it is, as its operator says.
    pub labels: Labels,
    /// What it can run.
    pub classes: Vec<ClassName>,
    /// Which texts of these it has.
    pub digests: BTreeMap<ClassName, ClassDigest>,
    /// What these texts say, where that is not what a text without a word of it says.
    pub facts: BTreeMap<ClassName, ClassFacts>,
    /// The best that it can keep a program from; `None` when it did not say.
    pub sandbox: Option<Sandbox>,
    /// READY, or REMOVED when it leaves with nothing running.
    pub state: NodeState,
    /// Its lease, by which managers know when nothing of it runs any more.
    pub lease: LeaseTimes,
    /// How long it remembers what has ended, at least.
    pub tombstone_ms: u64,
}

/// What a registering node learns: a View that was read consistently after its boot was written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Registered {
    /// The View's epoch.
    pub epoch: Epoch,
    /// Slots of the ring.
    pub m: u32,
    /// First fences: the epoch of each partition.
    pub fences: Vec<(SlotRange, Epoch)>,
    /// Managers to renew with and report to: number, address.
    pub managers: Vec<(ManagerNumber, String)>,
}

/// A node's sign of life.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Renew {
    /// The node.
    pub node: NodeId,
    /// Its boot.
    pub boot: BootId,
    /// Its load.
    pub load: NodeLoad,
}

/// What a node is told of the load limit of its pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ToldLimit {
    /// Nothing: what was told last holds.
    #[default]
    Nothing,
    /// The pool has none: as the node was started.
    AsStarted,
    /// That.
    Of(LoadLimit),
}

/// An owner lets a node run what it has there, for a while.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    /// The slots of its partition.
    pub range: SlotRange,
    /// Its epoch: slots whose fence is higher are not meant any more.
    pub pe: Epoch,
}

/// Answer to a [`Renew`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Renewed {
    /// The load is taken, and this manager speaks for what it owns.
    Heard {
        /// The View's epoch.
        epoch: Epoch,
        /// Managers to renew with.
        managers: Vec<(ManagerNumber, String)>,
        /// T of its pool.
        load_limit: ToldLimit,
        /// The leases of these slots run anew from the moment at which the renewal was sent. One for each
        /// partition that this manager owns.
        grants: Vec<Grant>,
        /// It owns more, and cannot grant that yet: try again soon.
        more: bool,
        /// The node is to end as soon as it runs nothing.
        retires: bool,
    },
    /// This boot was declared lost, or another boot is registered: end everything, boot anew.
    Lost,
    /// Try again soon.
    NotServing,
}

/// A node's news of one session, sent until acknowledged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReportItem {
    /// Which session.
    pub key: SessionKey,
    /// Which node.
    pub node: NodeId,
    /// Which boot.
    pub boot: BootId,
    /// Which attempt.
    pub token: Token,
    /// What happened.
    pub event: ReportEvent,
}

/// What a node reports.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ReportEvent {
    /// It answers now.
    Ready {
        /// Where.
        address: String,
        /// What its opener should know of it, for people; empty when there is nothing.
        remark: String,
    },
    /// It ended on its own.
    Ended {
        /// Why.
        reason: Reason,
        /// How.
        exit: Option<Exit>,
        /// For people.
        detail: String,
    },
    /// The machine is in this state now. `change` counts its changes, so that late news is dropped.
    MachineState {
        /// The state's name.
        state: String,
        /// How many changes there were.
        change: u64,
    },
}
