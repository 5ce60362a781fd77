//! Sync: a new owner asks every copy what it has, and overwrites what may differ.
//!
//! ```text
//!  owner: SyncAsk ──▶ copy: SyncReport ──▶ owner: SyncData 0, 1, ... ──▶ copy: SyncTaken, at last Ack
//! ```
//! The difference travels in pieces, a few under way at a time. The copy keeps them aside and takes
//! them all at once: half a difference would be neither the old log nor the new one.

use crate::log::copies::{Difference, Report, SyncState, Syncing};
use crate::log::env::Env;
use crate::log::progress::Pieces;
use crate::partition::leading::Phase;
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::settings::sizes::Sizes;
use rota_messages::{Entry, Message, Write};
use rota_model::{Epoch, Incarnation, LogPos, ManagerNumber, MemberId, Seq};
use rota_ring::PartState;
use std::sync::Arc;

/// A piece as it arrived.
pub(crate) struct SyncPiece {
    pub pe: Epoch,
    pub at: LogPos,
    pub piece: u64,
    pub pieces: u64,
    pub writes: Arc<Vec<Write>>,
}

/// Splits writes into pieces that fit into a message each; one at least.
pub(crate) fn split(writes: Vec<Write>, sizes: &Sizes) -> Vec<Vec<Write>> {
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for write in writes {
        if piece.len() >= sizes.chunk_docs || bytes >= sizes.message_bytes {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += write.bytes();
        piece.push(write);
    }
    pieces.push(piece);
    pieces
}

impl Partition {
    /// Goes on with a Sync as far as the reports allow.
    pub fn drive_sync(&mut self, env: &mut Env) {
        let number = self.number;
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Phase::Sync(sync) = &mut leading.lead.phase else {
            return;
        };
        if sync.at.is_some() {
            return;
        }
        let asking: Vec<ManagerNumber> = leading
            .lead
            .copies
            .keys()
            .filter(|it| !sync.reports.contains_key(it))
            .copied()
            .collect();
        if !asking.is_empty() {
            let now = env.now.mono_ms;
            // Who is heard and does not report cannot: it may reach no config store, and know nothing of
            // this epoch. So it is behind from the first question on. One that never ran is waited for.
            for (number, copy) in &mut leading.lead.copies {
                if asking.contains(number) && copy.member.incarnation > Incarnation(0) {
                    copy.behind_ms.get_or_insert(now);
                }
            }
            if now >= sync.asked_ms + env.config.timing.resend_ms || sync.asked_ms == 0 {
                sync.asked_ms = now.max(1);
                for copy in asking {
                    env.send(copy, Message::SyncAsk { part: number, pe: leading.lead.pe });
                }
            }
            return;
        }
        let newest = sync.reports.values().map(|it| it.last.seq).max().unwrap_or_default();
        let seq = Seq(newest.max(self.replica.last.seq).0 + 1);
        let at = LogPos::new(leading.lead.pe, seq);
        sync.at = Some(at);
        let mut writes = std::mem::take(&mut sync.found);
        let reports = sync.reports.clone();
        let lost = self.write_off_lost(env, &writes);
        writes.extend(lost);
        self.append(env, Entry::new(at, writes, None));
        for (copy, report) in reports {
            self.send_difference(env, copy, &report, at);
        }
        self.advance_commit(env);
    }

    /// Works out what a copy lacks, and begins to send it.
    fn send_difference(&mut self, env: &mut Env, copy: ManagerNumber, report: &Report, at: LogPos) {
        let (now, sizes) = (env.now.mono_ms, env.config.sizes);
        let difference = self.replica.difference(report.committed, &report.touched);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Some(state) = leading.lead.copies.get_mut(&copy) else {
            return;
        };
        state.flow.sent = at;
        state.behind_ms = Some(now);
        match difference {
            Some(writes) => {
                let contents = split(writes, &sizes).into_iter().map(Arc::new).collect();
                let progress = Pieces::new(now);
                state.difference = Some(Difference { contents, progress });
                self.send_pieces(env, copy, sizes.chunks_in_flight);
            }
            None => state.too_old = true,
        }
    }

    fn send_pieces(&mut self, env: &mut Env, copy: ManagerNumber, most: usize) {
        let part = self.number;
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Phase::Sync(SyncState { at: Some(at), .. }) = &leading.lead.phase else {
            return;
        };
        let (pe, at) = (leading.lead.pe, *at);
        let Some(state) = leading.lead.copies.get_mut(&copy) else {
            return;
        };
        let Some(difference) = &mut state.difference else {
            return;
        };
        let pieces = u64::try_from(difference.contents.len()).unwrap_or(u64::MAX);
        while let Some(piece) = difference.progress.send(most, pieces) {
            let index = usize::try_from(piece).unwrap_or(usize::MAX);
            let Some(writes) = difference.contents.get(index).cloned() else {
                return;
            };
            env.send(copy, Message::SyncData { part, pe, at, piece, pieces, writes });
        }
    }

    /// Sends the first piece again that a silent copy lacks.
    pub fn resend_pieces(&mut self, env: &mut Env) {
        let (now, resend_ms) = (env.now.mono_ms, env.config.timing.resend_ms);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let pe = leading.lead.pe;
        let mut silent = Vec::new();
        for (number, copy) in leading.lead.copies.iter_mut().filter(|(_, it)| it.flow.acked.pe < pe)
        {
            if copy.difference.as_mut().is_some_and(|it| it.progress.rewind(now, resend_ms)) {
                silent.push(*number);
            }
        }
        for copy in silent {
            self.send_pieces(env, copy, 1);
        }
    }

    /// A copy has so many pieces, and lacks others.
    pub fn on_sync_taken(&mut self, env: &mut Env, from: MemberId, pe: Epoch, taken: u64) {
        let (now, most) = (env.now.mono_ms, env.config.sizes.chunks_in_flight);
        let Some(leading) = self.leading.as_mut().filter(|it| it.lead.pe == pe) else {
            return;
        };
        let copy = leading.lead.copies.get_mut(&from.number).filter(|it| it.member == from);
        let Some(copy) = copy.filter(|it| it.flow.acked.pe < pe) else {
            return;
        };
        if copy.difference.as_mut().is_some_and(|it| it.progress.on_taken(taken, now)) {
            copy.behind_ms = Some(now);
            self.send_pieces(env, from.number, most);
        }
    }

    pub fn on_sync_report(&mut self, env: &mut Env, from: MemberId, pe: Epoch, report: Report) {
        if pe > self.replica.pe {
            env.store.refresh = true;
        }
        let is_mine = self.leading.as_ref().is_some_and(|it| it.lead.pe == pe);
        if is_mine && self.on_copy_offered(from, &report) {
            return;
        }
        let Some(leading) = self.leading.as_mut().filter(|it| it.lead.pe == pe) else {
            return;
        };
        if leading.lead.copies.get(&from.number).is_none_or(|it| it.member != from) {
            return;
        }
        let Phase::Sync(sync) = &mut leading.lead.phase else {
            return;
        };
        // A report that comes again says nothing new: the pieces are on their way.
        if sync.at.is_none() {
            sync.reports.insert(from.number, report);
            self.drive_sync(env);
        }
    }

    /// Tells the owner what this copy has.
    pub fn send_sync_report(&self, env: &mut Env) {
        let Some(part) = self.entry(env) else { return };
        let (owner, pe) = (part.owner, part.pe);
        if owner == env.me.number || pe != self.replica.pe {
            return;
        }
        let report = if part.has(env.me.number) {
            let (last, committed) = (self.replica.last, self.replica.committed);
            Some(Report { last, committed, touched: self.replica.touched() })
        } else {
            // While a partition is found again, whoever was a copy may hold more than who looks.
            self.offer().filter(|_| part.state == PartState::Recovering)
        };
        let Some(Report { last, committed, touched }) = report else { return };
        let part = self.number;
        let report = Message::SyncReport { part, pe, last, committed, touched };
        env.send(owner, report);
    }

    pub fn on_sync_ask(&mut self, env: &mut Env, from: MemberId, pe: Epoch) {
        if self.obeys(env, from, pe) {
            self.send_sync_report(env);
        }
    }

    /// The owner's contents replace what is not known to be committed here, once all are here.
    pub fn on_sync_data(&mut self, env: &mut Env, from: MemberId, data: SyncPiece) {
        let SyncPiece { pe, at, piece, pieces, writes } = data;
        if !self.obeys(env, from, pe) || !self.is_member(env) {
            return;
        }
        let part = self.number;
        if self.replica.last.pe == pe {
            if self.replica.durable.pe == pe {
                let seq = self.replica.durable.seq;
                env.send(from.number, Message::Ack { part, pe, seq });
            }
            return;
        }
        let syncing = Syncing { at, taken: 0, writes: Vec::new() };
        let mut syncing = self.syncing.take().filter(|it| it.at == at).unwrap_or(syncing);
        if piece == syncing.taken {
            syncing.taken += 1;
            syncing.writes.extend(writes.iter().cloned());
        }
        if syncing.taken < pieces {
            env.send(from.number, Message::SyncTaken { part, pe, taken: syncing.taken });
            self.syncing = Some(syncing);
            return;
        }
        if !self.replica.tail.entries.is_empty() {
            env.note(Transition::SuffixReplaced, Some(self.number));
        }
        self.replica.drop_tail();
        self.append(env, Entry::new(at, syncing.writes, None));
    }
}
