//! A bug that is planted in one run, and what it remembers.

use crate::mutants::bug::Bug;
use rota_model::node_msg::ToNode;
use rota_model::{BootId, ManagerNumber, NodeId, SessionKey};
use rota_protocol::Message;
use std::collections::{BTreeMap, BTreeSet};

/// A planted bug and what it remembers.
#[derive(Clone, Debug)]
pub struct Plant {
    /// Which.
    pub bug: Bug,
    /// Boots of calls that were rewritten, by call, to rewrite the answers.
    pub(super) boots: BTreeMap<u64, BootId>,
    /// A node's agent before its newest call.
    pub(super) before: Option<rota_node::Node>,
    /// The newest chunk of each number that a learner got, by learner and partition.
    pub(super) chunks: BTreeMap<(ManagerNumber, ManagerNumber, u64), Message>,
    /// The first revision of each boot's entry in the registry.
    pub(super) revisions: BTreeMap<(NodeId, BootId), u64>,
    /// Until when compare-and-sets of a manager are late.
    pub(crate) held: BTreeMap<ManagerNumber, u64>,
    /// Copyings by which a learner gets too little: learner, partition, and which one.
    pub(crate) deltas: BTreeSet<(ManagerNumber, ManagerNumber, u64)>,
    /// The newest action that was asked for of each session.
    pub(super) acts: BTreeMap<SessionKey, ToNode>,
}

impl Plant {
    /// A bug, freshly planted.
    pub fn new(bug: Bug) -> Self {
        let (boots, chunks, revisions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (held, deltas, acts) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { bug, boots, before: None, chunks, revisions, held, deltas, acts }
    }
}

/// What became of something that passed a planted bug.
pub enum Altered<T> {
    /// It goes on, perhaps changed.
    Kept(T),
    /// It is gone.
    Dropped,
}
