//! The other members of the ISR as the owner sees them, and how far a Sync is with each.

use crate::log::progress::{Flow, Pieces};
use rota_messages::{DocKey, Write};
use rota_model::{LogPos, ManagerNumber, MemberId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Another member of the ISR, as the owner sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CopyState {
    pub member: MemberId,
    pub flow: Flow,
    /// Since when something is unacknowledged.
    pub behind_ms: Option<u64>,
    /// While the partition synchronises: what it must take.
    pub difference: Option<Difference>,
    /// It needs full content: it must leave the ISR and learn.
    pub too_old: bool,
}

impl CopyState {
    /// One of which nothing is known yet.
    pub fn new(member: MemberId, now_ms: u64) -> Self {
        let flow = Flow::new(LogPos::ZERO, now_ms);
        Self { member, flow, behind_ms: None, difference: None, too_old: false }
    }
}

/// Progress of a Sync.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct SyncState {
    pub reports: BTreeMap<ManagerNumber, Report>,
    /// The new epoch's first position, once every report is there.
    pub at: Option<LogPos>,
    pub asked_ms: u64,
    /// What the scan of the nodes found, to be written with the first entry.
    pub found: Vec<Write>,
}

/// What a copy reported.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Report {
    pub last: LogPos,
    pub committed: LogPos,
    pub touched: Vec<DocKey>,
}

/// What one copy must take, in pieces.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Difference {
    pub(crate) contents: Vec<Arc<Vec<Write>>>,
    pub(crate) progress: Pieces,
}

/// At a copy: the pieces that came so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Syncing {
    pub(crate) at: LogPos,
    pub(crate) taken: u64,
    pub(crate) writes: Vec<Write>,
}
