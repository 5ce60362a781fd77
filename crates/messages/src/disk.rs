//! What a manager keeps on its disk.

use crate::documents::{Doc, DocKey};
use rota_model::{Epoch, Incarnation, LogPos, ManagerNumber, Nonce, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A write to this manager's disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DiskWrite {
    /// A document's content, or its removal.
    Doc {
        /// Which.
        key: DocKey,
        /// Content.
        doc: Option<Arc<Doc>>,
    },
    /// What this manager knows of a partition.
    Part {
        /// Which.
        part: ManagerNumber,
        /// Newest epoch seen, and last entry.
        meta: PartitionMeta,
    },
    /// Who this manager is.
    Identity(Identity),
}

/// A partition as it stands on a manager's disk, beside its documents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PartitionMeta {
    /// Newest epoch under which this disk was a member.
    pub pe: Epoch,
    /// Last entry on this disk.
    pub last: LogPos,
    /// False while a snapshot is being received: the documents are no copy of anything.
    pub whole: bool,
    /// Highest version of a document that was removed: new lives are above it, whatever the clock says.
    pub forgotten: Stamp,
    /// While the partition is found again: how much this disk held before anything was written that was
    /// found. The last entry is no measure of that.
    pub found_from: Option<LogPos>,
}

/// Who a manager is, on its disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Identity {
    /// Incarnation and nonce that were taken last.
    pub taken: Option<(Incarnation, Nonce)>,
    /// Incarnation and nonce that were meant to be taken next, written before the compare-and-set.
    pub intended: Option<(Incarnation, Nonce)>,
}

/// Everything on a manager's disk, as read at its start.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Disk {
    /// Who it is.
    pub identity: Identity,
    /// Partitions.
    pub parts: BTreeMap<ManagerNumber, PartitionMeta>,
    /// Documents.
    pub docs: BTreeMap<DocKey, Arc<Doc>>,
}

impl Disk {
    /// Applies a write, as a storage engine does it.
    pub fn apply(&mut self, write: &DiskWrite) {
        match write {
            DiskWrite::Doc { key, doc: Some(doc) } => {
                self.docs.insert(key.clone(), doc.clone());
            }
            DiskWrite::Doc { key, doc: None } => {
                self.docs.remove(key);
            }
            DiskWrite::Part { part, meta } => {
                self.parts.insert(*part, *meta);
            }
            DiskWrite::Identity(identity) => self.identity = identity.clone(),
        }
    }
}
