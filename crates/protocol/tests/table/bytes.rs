//! How large messages and writes are, without what frames them.

use rota_protocol::{DiskWrite, Entry, Message, Write};

/// Bytes of log and documents in a message.
pub fn bytes_of(message: &Message) -> usize {
    match message {
        Message::Prepare { entries, .. } => entries.iter().map(Entry::bytes).sum(),
        Message::SyncData { writes, .. } => writes.iter().map(Write::bytes).sum(),
        Message::SnapshotChunk { chunk, .. } => {
            chunk.docs.iter().map(|(key, doc)| key.bytes() + doc.bytes()).sum()
        }
        Message::Request { .. }
        | Message::Answer { .. }
        | Message::Ack { .. }
        | Message::Nack { .. }
        | Message::SyncAsk { .. }
        | Message::SyncReport { .. }
        | Message::SyncApplied { .. }
        | Message::ReadIndex { .. }
        | Message::ReadIndexConfirmed { .. }
        | Message::SnapshotAck { .. }
        | Message::Heartbeat { .. }
        | Message::Probe { .. }
        | Message::Probed { .. }
        | Message::NodeWanted { .. }
        | Message::NodesFailed { .. } => 0,
    }
}

/// Bytes of documents in what goes to a disk.
pub fn bytes_written(write: &DiskWrite) -> usize {
    match write {
        DiskWrite::Doc { key, doc } => key.bytes() + doc.as_ref().map_or(0, |it| it.bytes()),
        DiskWrite::Part { .. } | DiskWrite::Identity(_) => 0,
    }
}
