//! Looks of an owner at what a node has of a session, which put right what differs from its record.

use crate::epoch::Token;
use crate::ids::{NodeId, SessionKey};

/// Compare the record of a session with what a node has of it, and put right what differs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MendOp {
    /// Which session.
    pub key: SessionKey,
    /// Which node is looked at.
    pub node: NodeId,
    /// Only tell what would be done.
    pub dry_run: bool,
}

/// What a look comes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MendStep {
    /// Record and node agree.
    Nothing,
    /// The owner works on the session by itself: it is being opened, closed or written.
    UnderWay,
    /// Something runs that the record does not name. The node ends it.
    EndInstance,
    /// The record says that it runs, and its node runs it no more. The end is written.
    WriteEnd,
    /// The node runs a later attempt than any that the owner knows. Acknowledged writes were lost: the partition
    /// is found again from what runs.
    FindAgain,
    /// The node cannot be asked: nobody registered it, or its boot is over.
    OutOfReach,
}

impl MendStep {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Nothing,
        Self::UnderWay,
        Self::EndInstance,
        Self::WriteEnd,
        Self::FindAgain,
        Self::OutOfReach,
    ];

    /// How it is called.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::UnderWay => "under_way",
            Self::EndInstance => "end_instance",
            Self::WriteEnd => "write_end",
            Self::FindAgain => "find_again",
            Self::OutOfReach => "out_of_reach",
        }
    }

    /// By its name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }
}

/// The answer to a [`MendOp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mended {
    /// What was done; of a dry run, what would be.
    pub step: MendStep,
    /// The attempt that it is about, if there is one.
    pub token: Option<Token>,
    /// The same for people.
    pub text: String,
}
