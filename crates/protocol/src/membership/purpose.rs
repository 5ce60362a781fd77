//! What a compare-and-set is for.

use crate::membership::waiting::{Waiting, WaitingNode};
use crate::ports::note::Transition;
use rota_messages::Ordered;
use rota_model::node_msg::Register;
use rota_model::{ManagerNumber, MemberId, NodeId};
use rota_ring::NodeReg;

/// What a compare-and-set is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Purpose {
    Claim,
    /// These; and what that means for the transition, if one of them joins or leaves.
    TakeOut(Vec<MemberId>, Option<(Transition, ManagerNumber)>),
    /// A partition's own change, and the step that it is.
    Part(ManagerNumber, Transition),
    /// The end of a transition, and the step that it is.
    Release(Transition, ManagerNumber),
    /// An operator's order, and what is answered.
    Order(Box<Waiting>, Ordered),
    /// One about a node, and the entry that it asks for.
    NodeOrder(Box<WaitingNode>, Box<NodeReg>),
    Register {
        call: u64,
        register: Register,
        tries: u32,
    },
    /// A node is lost.
    Verdict,
    /// A node that has been gone for long is forgotten.
    Forget,
    /// A node that its pool needs no more is drained; and why.
    EndNode(NodeId, String),
}

impl Purpose {
    pub(crate) fn is_view(&self) -> bool {
        match self {
            Purpose::Claim
            | Purpose::TakeOut(..)
            | Purpose::Part(..)
            | Purpose::Release(..)
            | Purpose::Order(..) => true,
            Purpose::NodeOrder(..)
            | Purpose::Register { .. }
            | Purpose::Verdict
            | Purpose::Forget
            | Purpose::EndNode(..) => false,
        }
    }
}
