//! Where the sessions of a partition are, as operators ask and as its owner answers.

use crate::documents::DocKey;
use rota_model::{Epoch, ManagerNumber, Placement, SessionKey, SessionState};

/// What somebody asks the owner of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementsAsk {
    /// The partition.
    pub part: ManagerNumber,
    /// Which of its sessions.
    pub which: Which,
}

/// Sessions of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// A page of those that have not ended: at most `limit` behind that document.
    After {
        /// [`Placements::next`] of the page before.
        after: Option<DocKey>,
        /// Most of them.
        limit: usize,
    },
    /// These, ended or not, as far as they are there.
    Named(Vec<SessionKey>),
}

/// A session, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Which.
    pub key: SessionKey,
    /// Its state.
    pub state: SessionState,
    /// Where it runs or ran; `None` for a life that found no node.
    pub placement: Option<Placement>,
}

/// Committed sessions of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placements {
    /// The partition's epoch under which this manager serves it.
    pub pe: Epoch,
    /// The sessions.
    pub sessions: Vec<Placed>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<DocKey>,
}
