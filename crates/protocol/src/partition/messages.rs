//! Messages about the log of a partition, taken apart.

use crate::log::copies::Report;
use crate::log::env::Env;
use crate::log::sync::SyncPiece;
use crate::partition::state::Partition;
use rota_messages::Message;
use rota_model::MemberId;

impl Partition {
    /// A message about the log of this partition.
    pub fn on_message(&mut self, env: &mut Env, from: MemberId, message: Message) {
        match message {
            Message::Prepare { pe, committed, after, entries, .. } => {
                self.on_prepare(env, from, pe, committed, after, entries);
            }
            Message::Ack { pe, seq, .. } => self.on_ack(env, from, pe, seq),
            Message::Missing { pe, seq, .. } => self.on_missing(env, from, pe, seq),
            Message::SyncAsk { pe, .. } => self.on_sync_ask(env, from, pe),
            Message::SyncReport { pe, last, committed, touched, .. } => {
                self.on_sync_report(env, from, pe, Report { last, committed, touched });
            }
            Message::SyncData { pe, at, piece, pieces, writes, .. } => {
                self.on_sync_data(env, from, SyncPiece { pe, at, piece, pieces, writes });
            }
            Message::SyncTaken { pe, taken, .. } => self.on_sync_taken(env, from, pe, taken),
            Message::SnapshotChunk { chunk, .. } => {
                env.stamps.forgotten = env.stamps.forgotten.max(chunk.forgotten);
                self.replica.raise_water(chunk.forgotten);
                self.on_chunk(env, from, chunk);
            }
            Message::SnapshotAck { pe, learn, chunk, .. } => {
                self.on_snapshot_ack(env, from, pe, learn, chunk);
            }
            Message::Request { .. }
            | Message::Answer { .. }
            | Message::Confirm { .. }
            | Message::Confirmed { .. }
            | Message::Heartbeat { .. }
            | Message::Probe { .. }
            | Message::Probed { .. }
            | Message::NodeWanted { .. }
            | Message::NodesFailed { .. } => {}
        }
    }
}
