//! State of a wedge, and of entries that are not sent yet. How a wedge goes stands in [`crate::log::learn`].

use rota_model::{ManagerNumber, MemberId};
use std::collections::BTreeMap;

/// What the log comes to rest for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Wedge {
    /// Who may be a copy already: a compare-and-set that adds them was asked for, and it is not known that
    /// it failed. One of them may own the partition by now, and take out all that this owner knows of.
    pub adding: BTreeMap<ManagerNumber, MemberId>,
    /// A newcomer whose arc is to be cut out of this partition.
    pub to_split: Option<ManagerNumber>,
    /// Who leaves the ring is a copy, or this owner, and enough others hold everything.
    pub releases: bool,
    /// None begins before this.
    pub next_ms: u64,
    /// One begins when the config store has answered.
    pub asks: bool,
}

/// Entries that are not sent yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Unsent {
    /// Entries were appended, or must be sent again.
    pub dirty: bool,
    /// When entries that nobody waits for must be sent, if some are unsent.
    pub due_ms: Option<u64>,
}
