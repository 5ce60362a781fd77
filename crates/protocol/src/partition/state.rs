//! One partition at one manager: its copy, what is owed about it, and (at the owner) the leading.

use crate::log::answered::Settled;
use crate::log::copies::Syncing;
use crate::log::learner::Learning;
use crate::log::origin::Origin;
use crate::log::replica::Replica;
use crate::log::requests::{Asked, Promised};
use crate::partition::leading::Leading;
use rota_model::node_msg::SlotRange;
use rota_model::{Epoch, LogPos, ManagerNumber};
use std::collections::{BTreeMap, VecDeque};

/// A partition at a manager.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Partition {
    pub number: ManagerNumber,
    pub range: SlotRange,
    pub replica: Replica,
    /// At a copy: pieces of a Sync.
    pub syncing: Option<Syncing>,
    /// At a learner: how far the snapshot is.
    pub learning: Option<Learning>,
    /// Positions that are durable once a batch is: (batch, position).
    pub durable_due: VecDeque<(u64, LogPos)>,
    /// Snapshot acknowledgements owed once a batch is durable.
    pub chunk_acks: VecDeque<(u64, Epoch, u64, u64)>,
    /// At the owner.
    pub leading: Option<Box<Leading>>,
    /// Requests from the partition that this one was just cut out of, until this manager leads it; with
    /// the answer, if it was carried out there: its entry is in this log, too.
    pub inherited: BTreeMap<Origin, (Asked, Option<Promised>)>,
    /// Refusals that were given, for repetitions that are still under way.
    pub settled: Settled,
    /// Why the partition cannot be served from this disk, though the View does not say so yet.
    pub halted: Option<String>,
}

impl Partition {
    pub fn new(number: ManagerNumber, range: SlotRange) -> Self {
        Self {
            number,
            range,
            replica: Replica::default(),
            syncing: None,
            learning: None,
            durable_due: VecDeque::new(),
            chunk_acks: VecDeque::new(),
            leading: None,
            inherited: BTreeMap::new(),
            settled: Settled::default(),
            halted: None,
        }
    }
}
