//! Requests to the owner of a slot, and their answers: of clients, and of other managers on behalf
//! of theirs.

use rota_model::node_msg::ReportItem;
use rota_model::{
    CloseOp, GetOp, ListOp, OpenOp, Outcome, Page, PullOp, Pulled, Refusal, SessionView,
};

/// A request to the owner of a slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Open.
    Open(OpenOp),
    /// Close.
    Close(CloseOp),
    /// Get.
    Get(GetOp),
    /// One page of one partition.
    List(ListOp),
    /// One long poll of one partition.
    Pull(PullOp),
    /// A node's report about one session; acknowledged when committed.
    Report(ReportItem),
}

impl Op {
    /// Whether a client asks for a change, and so must hear whether it may have happened. Reports
    /// are repeated by nodes until they are acknowledged, whatever they were told.
    pub fn changes(&self) -> bool {
        match self {
            Op::Open(_) | Op::Close(_) => true,
            Op::Get(_) | Op::List(_) | Op::Pull(_) | Op::Report(_) => false,
        }
    }
}

/// The answer to an [`Op`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// To an open.
    Opened {
        /// CREATED or EXISTED.
        outcome: Outcome,
        /// The session.
        session: SessionView,
    },
    /// To a close. `finished` is false when the node was silent: the owner keeps driving.
    Closed {
        /// Whether the session is CLOSED now.
        finished: bool,
        /// The session.
        session: SessionView,
    },
    /// To a get.
    Got {
        /// The session.
        session: SessionView,
        /// True when the answer was not confirmed.
        stale: bool,
    },
    /// To a list.
    Listed(Page),
    /// To a pull.
    Pulled(Pulled),
    /// To a report.
    Reported,
}

/// What a request comes to.
pub type OpResult = Result<Answer, Refusal>;
