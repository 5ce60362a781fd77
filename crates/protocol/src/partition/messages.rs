//! Messages about the log of a partition, taken apart.

use crate::log::at::At;
use crate::log::copies::Report;
use crate::log::env::Env;
use crate::log::lead::Next;
use crate::log::resident::RequestHandler;
use crate::log::sync::SyncPiece;
use crate::partition::led::Led;
use crate::partition::state::Partition;
use rota_messages::Message;
use rota_model::MemberId;

impl<R: RequestHandler> Partition<R> {
    /// A message about the log of this partition.
    pub fn on_message(&mut self, env: &mut Env, from: MemberId, message: Message) {
        match message {
            Message::Prepare { pe, committed, after, entries, .. } => {
                self.on_prepare(env, from, pe, committed, after, entries);
            }
            Message::SyncAsk { pe, .. } => self.on_sync_ask(env, from, pe),
            Message::SyncReport { pe, .. } if self.leader().is_none() => {
                env.store.refresh |= pe > self.log.replica.pe;
            }
            Message::SyncData { pe, at, piece, pieces, writes, .. } => {
                self.on_sync_data(env, from, SyncPiece { pe, at, piece, pieces, writes });
            }
            Message::SnapshotChunk { chunk, .. } => {
                env.stamps.forgotten = env.stamps.forgotten.max(chunk.forgotten);
                self.log.replica.raise_water(chunk.forgotten);
                self.on_chunk(env, from, chunk);
            }
            Message::Ack { .. }
            | Message::Nack { .. }
            | Message::SyncReport { .. }
            | Message::SyncApplied { .. }
            | Message::SnapshotAck { .. } => {
                if let Some(mut led) = self.led(env) {
                    led.on_message(from, message);
                }
            }
            Message::Request { .. }
            | Message::Answer { .. }
            | Message::ReadIndex { .. }
            | Message::ReadIndexConfirmed { .. }
            | Message::Heartbeat { .. }
            | Message::Probe { .. }
            | Message::Probed { .. }
            | Message::NodeWanted { .. }
            | Message::NodesFailed { .. } => {}
        }
    }
}

impl<R: RequestHandler> Led<'_, R> {
    /// A copy or a learner answers.
    fn on_message(&mut self, from: MemberId, message: Message) {
        let At { env, log, lead, .. } = &mut self.at;
        let next = match message {
            Message::Ack { pe, seq, .. } => lead.on_ack(env, log, from, pe, seq),
            Message::Nack { pe, seq, .. } => {
                lead.on_missing(env, log, from, pe, seq);
                Next::Nothing
            }
            Message::SyncReport { pe, last, committed, touched, .. } => {
                env.store.refresh |= pe > log.replica.pe;
                lead.on_sync_report(log, from, pe, Report { last, committed, touched })
            }
            Message::SyncApplied { pe, taken, .. } => {
                lead.on_sync_applied(env, log, from, pe, taken);
                Next::Nothing
            }
            Message::SnapshotAck { pe, learn, chunk, .. } => {
                lead.on_snapshot_ack(env, log, from, pe, learn, chunk)
            }
            Message::Prepare { .. }
            | Message::SyncAsk { .. }
            | Message::SyncData { .. }
            | Message::SnapshotChunk { .. }
            | Message::Request { .. }
            | Message::Answer { .. }
            | Message::ReadIndex { .. }
            | Message::ReadIndexConfirmed { .. }
            | Message::Heartbeat { .. }
            | Message::Probe { .. }
            | Message::Probed { .. }
            | Message::NodeWanted { .. }
            | Message::NodesFailed { .. } => Next::Nothing,
        };
        self.go_on(next);
    }
}
