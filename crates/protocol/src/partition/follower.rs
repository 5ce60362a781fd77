//! A copy of a partition: what it appends, persists and obeys.

use crate::log::copies::Syncing;
use crate::log::env::Env;
use crate::log::learner::Learning;
use crate::log::resident::RequestHandler;
use crate::log::sync::SyncPiece;
use crate::partition::state::{Partition, Role};
use crate::ports::note::Transition;
use rota_messages::{Chunk, Entry, Message};
use rota_model::{Epoch, LogPos, MemberId, Seq};

impl<R: RequestHandler> Partition<R> {
    /// A View with a new epoch for this partition: never obey or acknowledge below it (I4).
    pub fn learn_epoch(&mut self, env: &mut Env, pe: Epoch) {
        if pe > self.log.replica.pe {
            self.log.replica.pe = pe;
            self.stop_learning();
            self.log.syncing = None;
            self.log.persist_meta(env);
        }
    }

    /// Whether a message of `from` under `pe` may be obeyed. An older epoch is told the newer one
    /// by the header of any answer; a newer one makes this manager read the config store.
    pub fn obeys(&mut self, env: &mut Env, from: MemberId, pe: Epoch) -> bool {
        if pe < self.log.replica.pe {
            env.send(from.number, Message::Heartbeat { committed: Vec::new() });
            return false;
        }
        if pe > self.log.replica.pe {
            env.store.refresh = true;
            return false;
        }
        let owns =
            self.log.entry(env).is_some_and(|part| part.pe == pe && part.owner == from.number);
        owns && self.leader().is_none()
    }

    pub fn on_prepare(
        &mut self,
        env: &mut Env,
        from: MemberId,
        pe: Epoch,
        committed: LogPos,
        after: LogPos,
        entries: Vec<Entry>,
    ) {
        if !self.obeys(env, from, pe) || !(self.log.is_member(env) || self.is_learning()) {
            return;
        }
        // Before the first Sync or snapshot under this epoch, the log here is another one.
        let begun = self.log.replica.last.pe == pe;
        if !begun || after > self.log.replica.last {
            let seq = if begun { self.log.replica.last.seq } else { Seq(0) };
            env.send(from.number, Message::Nack { part: self.log.number, pe, seq });
            return;
        }
        let before = self.log.replica.last;
        for entry in entries {
            if entry.at.seq.0 == self.log.replica.last.seq.0 + 1 && entry.at.pe == pe {
                if let Role::Learner(learning) = &mut self.role {
                    learning.note(&entry);
                }
                self.log.append(env, entry);
            }
        }
        if self.log.replica.last == before && self.log.replica.durable.pe == pe {
            let seq = self.log.replica.durable.seq;
            env.send(from.number, Message::Ack { part: self.log.number, pe, seq });
        }
        self.log.commit_here(env, committed);
    }

    /// A chunk of a snapshot. It may repeat; chunks are taken in order.
    pub fn on_chunk(&mut self, env: &mut Env, from: MemberId, chunk: Chunk) {
        if !self.obeys(env, from, chunk.pe) || self.log.is_member(env) {
            return;
        }
        // Copyings of one epoch are numbered upwards: a late chunk of an earlier one would bring
        // old contents back.
        let known = self.learning().map(|learning| learning.learn);
        if known.is_some_and(|learn| learn > chunk.learn) {
            return;
        }
        if known != Some(chunk.learn) {
            if chunk.number != 0 {
                return;
            }
            let touched = self.log.begin_learning(chunk.start);
            self.role = Role::Learner(Learning { learn: chunk.learn, next_chunk: 0, touched });
        }
        let Role::Learner(learning) = &mut self.role else { return };
        if chunk.number == learning.next_chunk {
            learning.next_chunk += 1;
            self.log.take_chunk(env, learning, &chunk);
        }
        let taken = learning.next_chunk;
        if let Some(newest) = taken.checked_sub(1).filter(|_| chunk.number < taken) {
            self.log.persist_meta(env);
            self.log.chunk_acks.push_back((env.disk.lsn, chunk.pe, chunk.learn, newest));
        }
    }

    /// A batch is on disk: what it carried is acknowledged.
    pub fn on_persisted(&mut self, env: &mut Env, lsn: u64) {
        let mut moved = false;
        while self.log.durable_due.front().is_some_and(|(due, _)| *due <= lsn) {
            if let Some((_, at)) = self.log.durable_due.pop_front() {
                self.log.replica.durable = at;
                moved = true;
            }
        }
        while self.log.chunk_acks.front().is_some_and(|(due, ..)| *due <= lsn) {
            let Some((_, pe, learn, chunk)) = self.log.chunk_acks.pop_front() else {
                break;
            };
            let current = self.log.entry(env).filter(|part| part.pe == pe).map(|part| part.owner);
            if let Some(owner) = current {
                let part = self.log.number;
                env.send(owner, Message::SnapshotAck { part, pe, learn, chunk });
            }
        }
        if !moved {
            return;
        }
        if let Some(mut led) = self.led(env) {
            return led.advance_commit();
        }
        let (pe, durable) = (self.log.replica.pe, self.log.replica.durable);
        let Some(part) = self.log.entry(env) else { return };
        if durable.pe == pe && part.pe == pe && part.owner != env.me.number {
            let owner = part.owner;
            env.send(owner, Message::Ack { part: self.log.number, pe, seq: durable.seq });
        }
    }

    pub fn on_sync_ask(&mut self, env: &mut Env, from: MemberId, pe: Epoch) {
        if self.obeys(env, from, pe) {
            self.log.send_sync_report(env);
        }
    }

    /// The owner's contents replace what is not known to be committed here, once all are here.
    pub fn on_sync_data(&mut self, env: &mut Env, from: MemberId, data: SyncPiece) {
        let SyncPiece { pe, at, piece, pieces, writes } = data;
        if !self.obeys(env, from, pe) || !self.log.is_member(env) {
            return;
        }
        let part = self.log.number;
        if self.log.replica.last.pe == pe {
            if self.log.replica.durable.pe == pe {
                let seq = self.log.replica.durable.seq;
                env.send(from.number, Message::Ack { part, pe, seq });
            }
            return;
        }
        let syncing = Syncing { at, taken: 0, writes: Vec::new() };
        let mut syncing = self.log.syncing.take().filter(|it| it.at == at).unwrap_or(syncing);
        if piece == syncing.taken {
            syncing.taken += 1;
            syncing.writes.extend(writes.iter().cloned());
        }
        if syncing.taken < pieces {
            env.send(from.number, Message::SyncApplied { part, pe, taken: syncing.taken });
            self.log.syncing = Some(syncing);
            return;
        }
        if !self.log.replica.tail.entries.is_empty() {
            env.note(Transition::SuffixReplaced, Some(self.log.number));
        }
        self.log.replica.drop_tail();
        self.log.append(env, Entry::new(at, syncing.writes, None));
    }

    /// Bodies have come: at a copy, entries that name them may be sent now. Chunks and pieces are
    /// sent again anyway.
    pub fn on_bodies_fetched(&self, env: &mut Env) {
        let (part, pe, last) = (self.log.number, self.log.replica.pe, self.log.replica.last);
        let owner =
            self.log.entry(env).filter(|it| it.pe == pe && last.pe == pe).map(|it| it.owner);
        if let Some(owner) = owner.filter(|_| self.leader().is_none()) {
            env.send(owner, Message::Nack { part, pe, seq: last.seq });
        }
    }
}
