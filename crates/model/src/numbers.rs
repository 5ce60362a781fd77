//! The stable numbers of a node's sessions: who tells that a session runs there, and who asks for numbers.

use crate::epoch::Epoch;
use crate::ids::{NodeId, PoolName, SessionKey};
use crate::node_msg::SlotRange;

/// Most sessions of one node that have a number, those that are gone and keep theirs included. Those beyond have
/// none. It bounds the document of a node.
pub const SESSION_NUMBERS_MAX: usize = 1_000;

/// About the stable numbers of the sessions of one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NumbersOp {
    /// The pool of the node.
    pub pool: PoolName,
    /// The node.
    pub node: NodeId,
    /// What runs there; `None` asks for the numbers.
    pub there: Option<SessionsThere>,
}

/// The sessions of some slots that run on a node, as the owner of these slots knows them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SessionsThere {
    /// The epoch of the partition under which its owner says so. One that was overtaken says nothing.
    pub pe: Epoch,
    /// The slots. Sessions of other slots may run there, too.
    pub range: SlotRange,
    /// All sessions of these slots that run there, at most [`SESSION_NUMBERS_MAX`].
    pub sessions: Vec<SessionKey>,
}
