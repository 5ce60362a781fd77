//! Messages between managers.

use crate::encoded::DocBytes;
use crate::op::{answer_from_wire, answer_to_wire, op_from_wire, request_to_wire};
use crate::record::{
    doc_to_wire, entry_from_wire, entry_to_wire, forgotten_stamp, write_from_wire, write_to_wire,
};
use crate::v1;
use crate::wire::{WireError, check_cluster, convert, each, named, optional, required};
use rota_messages::{Chunk, Doc, DocKey, Entry, Envelope, Message, WAITING_KINDS_MAX, Write};
use rota_model::{
    ClusterName, Epoch, Incarnation, LogPos, ManagerNumber, PoolName, Resources, Seq,
};
use std::sync::Arc;

/// Envelopes to one peer, as they travel together.
pub fn batch(
    cluster: &ClusterName,
    envelopes: impl IntoIterator<Item = Envelope>,
) -> v1::PeerBatch {
    let envelopes = envelopes.into_iter().map(Into::into).collect();
    v1::PeerBatch { cluster: cluster.as_str().into(), envelopes }
}

/// The envelopes of a batch, each with its own verdict, so that a message of a newer version
/// does not sink the others. Refuses a batch of another cluster. The bytes of what they carry
/// are kept in `docs`.
pub fn envelopes<'a>(
    cluster: &ClusterName,
    batch: v1::PeerBatch,
    docs: &'a mut DocBytes,
) -> Result<impl Iterator<Item = Result<Envelope, WireError>> + use<'a>, WireError> {
    check_cluster("PeerBatch.cluster", cluster, &batch.cluster)?;
    Ok(batch.envelopes.into_iter().map(|envelope| from_wire(envelope, docs)))
}

/// An envelope for the wire. What `docs` knows is not encoded again.
pub fn to_wire(envelope: Envelope, docs: &mut DocBytes) -> v1::Envelope {
    v1::Envelope {
        from: Some(envelope.from.into()),
        to: Some(envelope.to.into()),
        epoch: envelope.epoch.0,
        message: Some(message_to_wire(envelope.message, docs)),
    }
}

/// An envelope of the wire. The bytes of what it carries are kept in `docs`.
pub fn from_wire(envelope: v1::Envelope, docs: &mut DocBytes) -> Result<Envelope, WireError> {
    let message = required("Envelope.message", envelope.message)?;
    Ok(Envelope {
        from: convert("Envelope.from", envelope.from)?,
        to: convert("Envelope.to", envelope.to)?,
        epoch: Epoch(envelope.epoch),
        message: message_from_wire(message, docs)?,
    })
}

impl From<Envelope> for v1::Envelope {
    fn from(envelope: Envelope) -> Self {
        to_wire(envelope, &mut DocBytes::default())
    }
}

impl TryFrom<v1::Envelope> for Envelope {
    type Error = WireError;
    fn try_from(envelope: v1::Envelope) -> Result<Self, WireError> {
        from_wire(envelope, &mut DocBytes::default())
    }
}

fn part_epochs(parts: Vec<(ManagerNumber, Epoch)>) -> Vec<v1::PartEpoch> {
    parts.into_iter().map(|(part, pe)| v1::PartEpoch { part: part.0, pe: pe.0 }).collect()
}

fn part_epochs_from(parts: Vec<v1::PartEpoch>) -> Vec<(ManagerNumber, Epoch)> {
    parts.into_iter().map(|it| (ManagerNumber(it.part), Epoch(it.pe))).collect()
}

fn committed(parts: Vec<(ManagerNumber, LogPos)>) -> Vec<v1::PartCommitted> {
    let to_wire = |(part, at): (ManagerNumber, LogPos)| v1::PartCommitted {
        part: part.0,
        at: Some(at.into()),
    };
    parts.into_iter().map(to_wire).collect()
}

fn committed_from(
    parts: Vec<v1::PartCommitted>,
) -> Result<Vec<(ManagerNumber, LogPos)>, WireError> {
    let from_wire =
        |it: v1::PartCommitted| Ok((ManagerNumber(it.part), convert("PartCommitted.at", it.at)?));
    parts.into_iter().map(from_wire).collect()
}

#[allow(clippy::too_many_lines, reason = "it is a list")]
fn message_to_wire(message: Message, docs: &mut DocBytes) -> v1::envelope::Message {
    use v1::envelope::Message as Wire;
    match message {
        Message::Request { rid, deadline_ms, op } => {
            Wire::Request(request_to_wire(rid, deadline_ms, *op))
        }
        Message::Answer { rid, result } => Wire::Answer(answer_to_wire(rid, *result)),
        Message::Prepare { part, pe, committed, after, entries } => Wire::Prepare(v1::Prepare {
            part: part.0,
            pe: pe.0,
            committed: Some(committed.into()),
            after: Some(after.into()),
            entries: entries.iter().map(|it| entry_to_wire(it, docs)).collect(),
        }),
        Message::Ack { part, pe, seq } => Wire::Ack(v1::Ack { part: part.0, pe: pe.0, seq: seq.0 }),
        Message::Nack { part, pe, seq } => {
            Wire::Nack(v1::Nack { part: part.0, pe: pe.0, seq: seq.0 })
        }
        Message::SyncAsk { part, pe } => Wire::SyncAsk(v1::SyncAsk { part: part.0, pe: pe.0 }),
        Message::SyncReport { part, pe, last, committed, touched } => {
            Wire::SyncReport(v1::SyncReport {
                part: part.0,
                pe: pe.0,
                last: Some(last.into()),
                committed: Some(committed.into()),
                touched: touched.iter().map(Into::into).collect(),
            })
        }
        Message::SyncApplied { part, pe, taken } => {
            Wire::SyncApplied(v1::SyncApplied { part: part.0, pe: pe.0, taken })
        }
        Message::SyncData { part, pe, at, piece, pieces, writes } => Wire::SyncData(v1::SyncData {
            part: part.0,
            pe: pe.0,
            at: Some(at.into()),
            piece,
            pieces,
            writes: writes.iter().map(|it| write_to_wire(it, docs)).collect(),
        }),
        Message::ReadIndex { round, parts } => {
            Wire::ReadIndex(v1::ReadIndex { round, parts: part_epochs(parts) })
        }
        Message::ReadIndexConfirmed { round, parts } => {
            Wire::ReadIndexConfirmed(v1::ReadIndexConfirmed { round, parts: part_epochs(parts) })
        }
        Message::SnapshotChunk { part, chunk: it } => Wire::SnapshotChunk(v1::SnapshotChunk {
            part: part.0,
            pe: it.pe.0,
            learn: it.learn,
            chunk: it.number,
            start: Some(it.start.into()),
            upto: Some(it.upto.into()),
            after: it.after.as_ref().map(Into::into),
            through: it.through.as_ref().map(Into::into),
            docs: it.docs.iter().map(|(key, doc)| doc_to_wire(key.slot, doc, docs)).collect(),
            forgotten: it.forgotten.as_u64(),
        }),
        Message::SnapshotAck { part, pe, learn, chunk } => {
            Wire::SnapshotAck(v1::SnapshotAck { part: part.0, pe: pe.0, learn, chunk })
        }
        Message::Heartbeat { committed: parts } => {
            Wire::Heartbeat(v1::Heartbeat { committed: committed(parts) })
        }
        Message::Probe { reply_to } => Wire::Probe(v1::Probe { reply_to }),
        Message::Probed { incarnation, runs } => {
            Wire::Probed(v1::Probed { incarnation: incarnation.0, runs })
        }
        Message::NodeWanted { pool, waiting, index } => {
            let waiting = waiting.into_iter().map(waiting_kind).collect();
            Wire::NodeWanted(v1::NodeWanted { pool: pool.as_str().into(), waiting, index })
        }
        Message::NodesFailed { pool, why } => {
            Wire::NodesFailed(v1::NodesFailed { pool: pool.as_str().into(), why })
        }
    }
}

fn chunk_doc_from(write: v1::Write, docs: &mut DocBytes) -> Result<(DocKey, Arc<Doc>), WireError> {
    let Write { key, doc } = write_from_wire(write, docs)?;
    Ok((key, required("SnapshotChunk.docs", doc)?))
}

fn entries_from(entries: Vec<v1::Entry>, docs: &mut DocBytes) -> Result<Vec<Entry>, WireError> {
    entries.into_iter().map(|it| entry_from_wire(it, docs)).collect()
}

fn writes_from(writes: Vec<v1::Write>, docs: &mut DocBytes) -> Result<Vec<Write>, WireError> {
    writes.into_iter().map(|it| write_from_wire(it, docs)).collect()
}

#[allow(clippy::too_many_lines, reason = "it is a list")]
fn message_from_wire(
    message: v1::envelope::Message,
    docs: &mut DocBytes,
) -> Result<Message, WireError> {
    use v1::envelope::Message as Wire;
    Ok(match message {
        Wire::Request(it) => Message::Request {
            rid: it.rid,
            deadline_ms: it.deadline_ms,
            op: Box::new(op_from_wire(it.op)?),
        },
        Wire::Answer(it) => {
            Message::Answer { rid: it.rid, result: Box::new(answer_from_wire(it.result)?) }
        }
        Wire::Prepare(it) => Message::Prepare {
            part: ManagerNumber(it.part),
            pe: Epoch(it.pe),
            committed: convert("Prepare.committed", it.committed)?,
            after: convert("Prepare.after", it.after)?,
            entries: entries_from(it.entries, docs)?,
        },
        Wire::Ack(v1::Ack { part, pe, seq }) => {
            Message::Ack { part: ManagerNumber(part), pe: Epoch(pe), seq: Seq(seq) }
        }
        Wire::Nack(v1::Nack { part, pe, seq }) => {
            Message::Nack { part: ManagerNumber(part), pe: Epoch(pe), seq: Seq(seq) }
        }
        Wire::SyncAsk(v1::SyncAsk { part, pe }) => {
            Message::SyncAsk { part: ManagerNumber(part), pe: Epoch(pe) }
        }
        Wire::SyncReport(it) => Message::SyncReport {
            part: ManagerNumber(it.part),
            pe: Epoch(it.pe),
            last: convert("SyncReport.last", it.last)?,
            committed: convert("SyncReport.committed", it.committed)?,
            touched: each(it.touched)?,
        },
        Wire::SyncData(it) => Message::SyncData {
            part: ManagerNumber(it.part),
            pe: Epoch(it.pe),
            at: convert("SyncData.at", it.at)?,
            piece: it.piece,
            pieces: it.pieces,
            writes: Arc::new(writes_from(it.writes, docs)?),
        },
        Wire::SyncApplied(v1::SyncApplied { part, pe, taken }) => {
            Message::SyncApplied { part: ManagerNumber(part), pe: Epoch(pe), taken }
        }
        Wire::ReadIndex(it) => {
            Message::ReadIndex { round: it.round, parts: part_epochs_from(it.parts) }
        }
        Wire::ReadIndexConfirmed(it) => {
            Message::ReadIndexConfirmed { round: it.round, parts: part_epochs_from(it.parts) }
        }
        Wire::SnapshotChunk(it) => {
            Message::SnapshotChunk { part: ManagerNumber(it.part), chunk: chunk_from(it, docs)? }
        }
        Wire::SnapshotAck(v1::SnapshotAck { part, pe, learn, chunk }) => {
            Message::SnapshotAck { part: ManagerNumber(part), pe: Epoch(pe), learn, chunk }
        }
        Wire::Heartbeat(it) => Message::Heartbeat { committed: committed_from(it.committed)? },
        Wire::Probe(v1::Probe { reply_to }) => Message::Probe { reply_to },
        Wire::Probed(v1::Probed { incarnation, runs }) => {
            Message::Probed { incarnation: Incarnation(incarnation), runs }
        }
        Wire::NodeWanted(it) => Message::NodeWanted {
            pool: named("NodeWanted.pool", PoolName::parse(&it.pool))?,
            waiting: waiting_from(it.waiting)?,
            index: it.index,
        },
        Wire::NodesFailed(it) => Message::NodesFailed {
            pool: named("NodesFailed.pool", PoolName::parse(&it.pool))?,
            why: it.why,
        },
    })
}

fn waiting_kind((takes, count): (Resources, u32)) -> v1::node_wanted::Waiting {
    let Resources { places, cpu_millis, memory_mib } = takes;
    v1::node_wanted::Waiting { places, cpu_millis, memory_mib, count }
}

fn waiting_from(kinds: Vec<v1::node_wanted::Waiting>) -> Result<Vec<(Resources, u32)>, WireError> {
    if kinds.len() > WAITING_KINDS_MAX {
        let problem = format!("are {} kinds; the limit is {WAITING_KINDS_MAX}", kinds.len());
        return Err(WireError::new("NodeWanted.waiting", problem));
    }
    let kinds = kinds.into_iter().map(|kind| {
        let v1::node_wanted::Waiting { places, cpu_millis, memory_mib, count } = kind;
        (Resources { places, cpu_millis, memory_mib }, count)
    });
    Ok(kinds.collect())
}

fn chunk_from(it: v1::SnapshotChunk, docs: &mut DocBytes) -> Result<Chunk, WireError> {
    let contents = it.docs.into_iter().map(|it| chunk_doc_from(it, docs));
    Ok(Chunk {
        pe: Epoch(it.pe),
        learn: it.learn,
        number: it.chunk,
        docs: contents.collect::<Result<_, _>>()?,
        start: convert("SnapshotChunk.start", it.start)?,
        upto: convert("SnapshotChunk.upto", it.upto)?,
        after: optional(it.after)?,
        through: optional(it.through)?,
        forgotten: forgotten_stamp("SnapshotChunk.forgotten", it.forgotten)?,
    })
}
