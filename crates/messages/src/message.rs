//! What managers say to each other.
//!
//! Every message travels in an [`Envelope`] that names the sender's run and its View. Messages may
//! be lost, repeated, delayed or reordered; every handler is written for that.

use crate::api::{Op, OpResult};
use crate::documents::{Doc, DocKey};
use rota_docstore::DocName;
use rota_model::{
    Epoch, Incarnation, LogPos, ManagerNumber, MemberId, PoolName, RequestId, Resources, Seq,
    SlotId, Stamp,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Most kinds of sessions that [`Message::NodeWanted`] tells apart.
pub const WAITING_KINDS_MAX: usize = 32;

/// One write: a document's new content, or its removal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Write {
    /// Which document.
    pub key: DocKey,
    /// Its content; `None` removes it.
    pub doc: Option<Arc<Doc>>,
}

impl Write {
    /// What makes a document of that slot what it is now.
    pub fn of(slot: SlotId, doc: Doc) -> Self {
        let name: DocName = doc.name().clone();
        Self { key: DocKey::new(slot, name), doc: Some(Arc::new(doc)) }
    }

    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        self.key.bytes() + self.doc.as_ref().map_or(0, |doc| doc.bytes())
    }
}

/// An entry of a partition's log: writes that happen together.
/// Made by [`Entry::new`].
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its place.
    pub at: LogPos,
    /// Its writes; none in an entry that only opens an epoch.
    pub writes: Arc<Vec<Write>>,
    /// The request that caused it, for traces.
    pub request: Option<RequestId>,
    /// Counted once: it is asked for when an entry comes, commits and goes, and documents that
    /// nobody touched in between are no longer in the processor's cache.
    bytes: usize,
}

impl Entry {
    /// An entry of these writes.
    pub fn new(at: LogPos, writes: Vec<Write>, request: Option<RequestId>) -> Self {
        let bytes = 64 + writes.iter().map(Write::bytes).sum::<usize>();
        Self { at, writes: Arc::new(writes), request, bytes }
    }

    /// About how many bytes it takes in a message. A copy may count otherwise than the owner.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, &self.writes, &self.request) == (other.at, &other.writes, &other.request)
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.at, &self.writes, &self.request).hash(state);
    }
}

/// A message with its sender.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// The sender's run.
    pub from: MemberId,
    /// The run that is meant; a later run of the receiver drops it.
    pub to: MemberId,
    /// Epoch of the sender's View. A receiver with an older View reads the config store.
    pub epoch: Epoch,
    /// The message.
    pub message: Message,
}

/// Contents of a range of keys of a partition, for a learner. The first chunk of a `learn` empties
/// the learner; a chunk replaces everything between `after` and `through`, except what entries after
/// `upto` wrote.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Chunk {
    /// The partition's epoch.
    pub pe: Epoch,
    /// Names this copying; grows within an epoch.
    pub learn: u64,
    /// Number of the chunk, from 0.
    pub number: u64,
    /// The learner's log begins here; Prepares follow from here on.
    pub start: LogPos,
    /// The contents are those after this entry.
    pub upto: LogPos,
    /// Keys after this one (`None`: from the first).
    pub after: Option<DocKey>,
    /// Through this one (`None`: to the last; this is the last chunk).
    pub through: Option<DocKey>,
    /// Contents, in order of key.
    pub docs: Vec<(DocKey, Arc<Doc>)>,
    /// Highest version of a document that was removed.
    pub forgotten: Stamp,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// Entry manager -> owner: carry out a request. Repeated until answered; every [`Op`] may be
    /// repeated safely.
    Request {
        /// The sender's name for it.
        rid: u64,
        /// How long the sender waits, from receipt.
        deadline_ms: u64,
        /// What to do.
        op: Box<Op>,
    },
    /// Owner -> entry manager.
    Answer {
        /// The request's name.
        rid: u64,
        /// What it came to.
        result: Box<OpResult>,
    },
    /// Owner -> copies and learners: entries that follow each other, and what is committed.
    Prepare {
        /// Partition.
        part: ManagerNumber,
        /// Its epoch.
        pe: Epoch,
        /// Everything up to here is at the whole ISR.
        committed: LogPos,
        /// Position before the first entry.
        after: LogPos,
        /// Entries in order.
        entries: Vec<Entry>,
    },
    /// Copy -> owner: everything up to `seq` is on my disk, under exactly this epoch.
    Ack {
        /// Partition.
        part: ManagerNumber,
        /// Its epoch.
        pe: Epoch,
        /// Up to here.
        seq: Seq,
    },
    /// Copy -> owner: I miss entries after `seq`.
    Nack {
        /// Partition.
        part: ManagerNumber,
        /// Its epoch.
        pe: Epoch,
        /// I have up to here.
        seq: Seq,
    },
    /// New owner -> copies: tell me what you have. Asked again until answered.
    SyncAsk {
        /// Partition.
        part: ManagerNumber,
        /// Its new epoch.
        pe: Epoch,
    },
    /// Copy -> new owner. Also sent unasked when a View with a new epoch arrives.
    SyncReport {
        /// Partition.
        part: ManagerNumber,
        /// Its new epoch.
        pe: Epoch,
        /// My last entry.
        last: LogPos,
        /// What I know to be committed.
        committed: LogPos,
        /// Documents that I touched above that.
        touched: Vec<DocKey>,
    },
    /// New owner -> copy: a piece of the documents in which we may differ. Together they replace
    /// the copy's uncommitted entries as one entry at `at`, which counts as uncommitted until
    /// announced.
    SyncData {
        /// Partition.
        part: ManagerNumber,
        /// Its new epoch.
        pe: Epoch,
        /// The new epoch's first position.
        at: LogPos,
        /// Number of the piece, from 0.
        piece: u64,
        /// How many there are.
        pieces: u64,
        /// Contents.
        writes: Arc<Vec<Write>>,
    },
    /// Copy -> new owner: I have so many pieces, from the first on, and need more.
    SyncApplied {
        /// Partition.
        part: ManagerNumber,
        /// Its new epoch.
        pe: Epoch,
        /// How many.
        taken: u64,
    },
    /// Owner -> copies: am I still the owner of these? Only answers to rounds begun after a
    /// request arrived count for it.
    ReadIndex {
        /// The sender's name for the round.
        round: u64,
        /// Partitions and epochs.
        parts: Vec<(ManagerNumber, Epoch)>,
    },
    /// Copy -> owner: these I know under exactly that epoch.
    ReadIndexConfirmed {
        /// The round.
        round: u64,
        /// Partitions and epochs that hold.
        parts: Vec<(ManagerNumber, Epoch)>,
    },
    /// Owner -> learner: contents of a range of keys.
    SnapshotChunk {
        /// Partition.
        part: ManagerNumber,
        /// What it holds.
        chunk: Chunk,
    },
    /// Learner -> owner.
    SnapshotAck {
        /// Partition.
        part: ManagerNumber,
        /// Its epoch.
        pe: Epoch,
        /// Which copying.
        learn: u64,
        /// This chunk and all before it are on my disk.
        chunk: u64,
    },
    /// Between managers that share a partition; tells what is committed where the sender owns.
    Heartbeat {
        /// Partition, epoch, committed position.
        committed: Vec<(ManagerNumber, LogPos)>,
    },
    /// Claimer -> a manager that the View calls running: does the run that this is for still run? Asked
    /// by who has no number yet, so it is answered whoever asks.
    Probe {
        /// Where the claimer serves; the View may name where its last run did.
        reply_to: String,
    },
    /// The answer.
    Probed {
        /// Which run was asked for.
        incarnation: Incarnation,
        /// Whether it has its number. If not, it never does anything as that run again.
        runs: bool,
    },
    /// Session owner -> pool owner: `waiting` opens found no node with room.
    NodeWanted {
        /// The pool.
        pool: PoolName,
        /// What each of them takes, and how many there are of each kind. At most [`WAITING_KINDS_MAX`].
        waiting: Vec<(Resources, u32)>,
        /// Index of the newest state of the config store that the sender has seen: of nodes that
        /// came later it knows nothing yet.
        index: u64,
    },
    /// Pool owner -> who wanted nodes: those that were ordered did not start.
    NodesFailed {
        /// The pool.
        pool: PoolName,
        /// What went wrong, for people.
        why: String,
    },
}

impl Message {
    /// Name, for traces and counters.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Request { .. } => "request",
            Message::Answer { .. } => "answer",
            Message::Prepare { .. } => "prepare",
            Message::Ack { .. } => "ack",
            Message::Nack { .. } => "nack",
            Message::SyncAsk { .. } => "sync_ask",
            Message::SyncReport { .. } => "sync_report",
            Message::SyncData { .. } => "sync_data",
            Message::SyncApplied { .. } => "sync_applied",
            Message::ReadIndex { .. } => "read_index",
            Message::ReadIndexConfirmed { .. } => "read_index_confirmed",
            Message::SnapshotChunk { .. } => "snapshot_chunk",
            Message::SnapshotAck { .. } => "snapshot_ack",
            Message::Heartbeat { .. } => "heartbeat",
            Message::Probe { .. } => "probe",
            Message::Probed { .. } => "probed",
            Message::NodeWanted { .. } => "node_wanted",
            Message::NodesFailed { .. } => "nodes_failed",
        }
    }
}
