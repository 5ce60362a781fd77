//! What clients ask about sessions, checked. The wire forms are converted in `rota-proto`;
//! a value of these types proves that every field was within its limits.

use crate::epoch::{Epoch, LogPos};
use crate::ids::{ClassName, ManagerNumber, Namespace, NodeId, RequestId, SessionKey, SlotId};
use crate::session::{SessionRecord, SessionSpec};
use crate::stamp::Stamp;
use crate::state::{NodeState, SessionState};
use std::sync::Arc;

/// Most sessions in one page of a list.
pub const PAGE_SIZE_MAX: u32 = 1000;

/// Open a session, or find the live one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OpenOp {
    /// Which.
    pub key: SessionKey,
    /// What to run when it does not live.
    pub spec: SessionSpec,
    /// Whether the caller named the pool in `spec`; else its class does.
    pub pool_named: bool,
    /// Names the request; a repetition gets the same answer.
    pub request: RequestId,
    /// False when the entry manager made the id up because the caller gave none: then an EXISTED
    /// answer is not written down, which makes it as cheap as a read. Such an open is carried out at
    /// least once: when the entry manager had to ask twice, a copy that comes late, after the session
    /// was closed, opens a new life that nobody waits for. A caller who must not have that gives an id.
    pub remember: bool,
}

/// Close a session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CloseOp {
    /// Which.
    pub key: SessionKey,
    /// Only this life, if given; another life is refused with LIFE_MISMATCH.
    pub life: Option<Stamp>,
    /// Names the request.
    pub request: RequestId,
    /// An operator's order: also where the namespace is switched off. It ends as CLOSED_BY_OPERATOR.
    pub by_operator: bool,
    /// Milliseconds that its program is given to end, at most [`GRACE_MS_MAX`] and instead of those of its
    /// class; 0: it is killed at once. Of a close under way it may only shorten the time.
    pub grace_ms: Option<u64>,
}

/// Longest time that a program may be given to end, in milliseconds.
pub const GRACE_MS_MAX: u64 = 300_000;

/// Read one session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GetOp {
    /// Which.
    pub key: SessionKey,
    /// Accept an answer that was not confirmed with the other copies.
    pub stale_ok: bool,
}

/// Say that a session is used.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeepAliveOp {
    /// Which.
    pub key: SessionKey,
    /// Only this life, if given; another life is refused with LIFE_MISMATCH.
    pub life: Option<Stamp>,
}

/// Which sessions a list or a watch shows. Every given condition must hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Filter {
    /// One of these states; empty means all.
    pub states: Vec<SessionState>,
    /// On this node.
    pub node: Option<NodeId>,
    /// Of this class.
    pub class: Option<ClassName>,
    /// In this namespace.
    pub namespace: Option<Namespace>,
    /// Exactly this session (used by a watch of one id).
    pub key: Option<SessionKey>,
}

impl Filter {
    /// Whether a record passes.
    pub fn passes(&self, record: &SessionRecord) -> bool {
        (self.states.is_empty() || self.states.contains(&record.state))
            && self.class.as_ref().is_none_or(|it| *it == record.spec.class)
            && self.namespace.as_ref().is_none_or(|it| *it == record.key.namespace)
            && self.key.as_ref().is_none_or(|it| *it == record.key)
            && (self.node.as_ref())
                .is_none_or(|it| record.placement.as_ref().is_some_and(|at| at.node == *it))
    }
}

/// A place in the ring-wide order of sessions: by slot, then by key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListCursor {
    /// Slot of the last session shown, or of the first to show.
    pub slot: SlotId,
    /// The last session shown; `None` starts with the slot's first.
    pub after: Option<SessionKey>,
}

/// A page of the sessions of the partition that holds `from.slot`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ListOp {
    /// Where to start.
    pub from: ListCursor,
    /// Most sessions in the answer, 1 to [`PAGE_SIZE_MAX`].
    pub limit: u32,
    /// Which to show.
    pub filter: Filter,
    /// Accept an answer that was not confirmed with the other copies.
    pub stale_ok: bool,
}

/// Wait for changes in one partition (a long poll of a watch).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PullOp {
    /// A slot of the partition.
    pub slot: SlotId,
    /// Changes after this position; `None` asks for a snapshot first.
    pub from: Option<LogPos>,
    /// Continue a snapshot after this session.
    pub snapshot_after: Option<ListCursor>,
    /// Most events in one answer.
    pub limit: u32,
    /// Answer with no events after this time, so that the caller sees progress.
    pub wait_ms: u64,
    /// Which to show.
    pub filter: Filter,
}

/// How the owner of a session stands with the session's node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeContact {
    /// The node's state in the registry, or UNREACHABLE: its port takes no connection from the owner, or
    /// the owner missed a renewal of it.
    pub state: NodeState,
    /// How long ago the owner heard the node, in milliseconds: by a renewal, a report or an answer. `None`:
    /// it has not heard it since it owns the session.
    pub unheard_ms: Option<u64>,
}

/// A session as a client sees it, with who answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SessionView {
    /// The record. What it remembers of requests stays at the owner: other managers, and clients, are
    /// not told.
    pub record: Arc<SessionRecord>,
    /// The owner that answered.
    pub owner: ManagerNumber,
    /// Its View's epoch.
    pub epoch: Epoch,
    /// In answers to opens and gets, of a session that has a node and has not ended.
    pub node: Option<NodeContact>,
    /// How many events of its life cycles have failed and wait for their action to be tried again, or for an operator.
    pub failed_actions: u32,
}

/// The answer to a [`ListOp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Page {
    /// Sessions in order of (slot, key).
    pub sessions: Vec<SessionView>,
    /// Where to go on; `None` when nothing is left up to slot m-1.
    pub next: Option<ListCursor>,
    /// True when an owner did not confirm its part of the page.
    pub stale: bool,
}

/// The answer to a long poll of a watch: to a [`PullOp`], unless it is said of what else.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pulled<Event = SessionView, Cursor = ListCursor> {
    /// Partition that answered.
    pub part: ManagerNumber,
    /// What changed, oldest first; in a snapshot, in order of (slot, key).
    pub events: Vec<Event>,
    /// True while the events are a snapshot's.
    pub snapshot: bool,
    /// Ask again from here.
    pub upto: LogPos,
    /// The snapshot goes on after this.
    pub snapshot_next: Option<Cursor>,
}
