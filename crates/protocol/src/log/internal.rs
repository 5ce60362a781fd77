//! Requests that a manager makes on its own account.

use crate::log::origin::Origin;
use rota_docstore::DocName;
use rota_messages::Op;
use rota_messages::api::OpResult;
use rota_model::{ManagerNumber, NodeId, Stamp};
use std::collections::VecDeque;

/// Something that a manager asks for on its own account.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Internal {
    /// News of namespaces.
    Follow,
    /// An operation of a task of a partition.
    Task { part: ManagerNumber, rid: u64 },
    /// Something that the work of a task asks for: that work, and the question.
    RingTask { part: ManagerNumber, work: u64, rid: u64 },
    /// Whoever keeps the numbers of a node's sessions is told of those of a partition.
    Numbers { part: ManagerNumber, node: NodeId },
    /// A document for an operation that waits.
    Fetch {
        part: ManagerNumber,
        origin: Origin,
        name: DocName,
        /// When it was asked for.
        asked: Stamp,
    },
}

/// A request that a manager makes on its own account.
#[derive(Clone, Debug)]
pub(crate) struct InternalRequest {
    pub inner: Internal,
    pub op: Op,
    pub deadline_ms: u64,
}

/// An operation that a partition asks of itself. It goes to no other manager: whoever owns the partition then has
/// workers of its own.
#[derive(Clone, Debug)]
pub(crate) struct OwnRequest {
    pub part: ManagerNumber,
    pub rid: u64,
    pub op: Op,
    /// How long it may take.
    pub deadline_ms: u64,
}

/// What is wanted of this manager's router: requests are to go to their owners, answers to whoever asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouterWishes {
    /// What this manager asks for on its own account.
    pub asked: Vec<InternalRequest>,
    /// What its partitions ask of themselves.
    pub own: VecDeque<OwnRequest>,
    /// Answers to what it asked for on its own account.
    pub done: Vec<(Internal, OpResult)>,
    /// Answers to requests that this manager passed on.
    pub answers: Vec<(u64, OpResult)>,
}
