//! Messages about the log of a partition, taken apart.

use crate::log::at::At;
use crate::log::copies::Report;
use crate::log::env::Env;
use crate::log::lead::{Lead, Next};
use crate::log::resident::RequestHandler;
use crate::log::state::Log;
use crate::log::sync::SyncPiece;
use crate::partition::state::Partition;
use rota_messages::Message;
use rota_model::MemberId;

impl<R: RequestHandler> Partition<R> {
    /// A message about the log of this partition: the owner's to a copy, or the answer of one.
    pub fn on_message(&mut self, env: &mut Env, from: MemberId, message: Message) {
        match message {
            Message::Prepare { pe, committed, after, entries, .. } => {
                self.on_prepare(env, from, pe, committed, after, entries);
            }
            Message::SyncAsk { pe, .. } => self.on_sync_ask(env, from, pe),
            Message::SyncData { pe, at, piece, pieces, writes, .. } => {
                self.on_sync_data(env, from, SyncPiece { pe, at, piece, pieces, writes });
            }
            Message::SnapshotChunk { chunk, .. } => {
                env.stamps.forgotten = env.stamps.forgotten.max(chunk.forgotten);
                self.log.replica.raise_water(chunk.forgotten);
                self.on_chunk(env, from, chunk);
            }
            Message::Ack { pe, seq, .. } => {
                self.at_owner(env, |lead, env, log| lead.on_ack(env, log, from, pe, seq));
            }
            Message::Nack { pe, seq, .. } => self.at_owner(env, |lead, env, log| {
                lead.on_missing(env, log, from, pe, seq);
                Next::Nothing
            }),
            Message::SyncReport { pe, last, committed, touched, .. } => {
                env.store.refresh |= pe > self.log.replica.pe;
                let report = Report { last, committed, touched };
                self.at_owner(env, |lead, _, log| lead.on_sync_report(log, from, pe, report));
            }
            Message::SyncApplied { pe, taken, .. } => self.at_owner(env, |lead, env, log| {
                lead.on_sync_applied(env, log, from, pe, taken);
                Next::Nothing
            }),
            Message::SnapshotAck { pe, learn, chunk, .. } => self
                .at_owner(env, |lead, env, log| {
                    lead.on_snapshot_ack(env, log, from, pe, learn, chunk)
                }),
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

    /// What a copy or a learner answers means something to the owner only.
    fn at_owner(&mut self, env: &mut Env, take: impl FnOnce(&mut Lead, &mut Env, &Log) -> Next) {
        let Some(mut led) = self.led(env) else { return };
        let At { env, log, lead, .. } = &mut led.at;
        let next = take(lead, env, log);
        led.go_on(next);
    }
}
