//! Sync: a new owner asks every copy what it has, and overwrites what may differ.
//!
//! ```text
//!  owner: SyncAsk ──▶ copy: SyncReport ──▶ owner: SyncData 0, 1, ... ──▶ copy: SyncApplied, at last Ack
//! ```
//! The difference travels in pieces, a few under way at a time. The copy keeps them aside and takes
//! them all at once: half a difference would be neither the old log nor the new one.

use crate::log::copies::{Difference, Report, SyncState};
use crate::log::env::Env;
use crate::log::lead::{Lead, Next, Phase};
use crate::log::progress::Pieces;
use crate::log::state::Log;
use crate::settings::sizes::Sizes;
use rota_messages::{Entry, Message, Write};
use rota_model::{Epoch, Incarnation, LogPos, ManagerNumber, MemberId, Seq};
use rota_ring::PartitionState;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A piece as it arrived.
pub(crate) struct SyncPiece {
    pub pe: Epoch,
    pub at: LogPos,
    pub piece: u64,
    pub pieces: u64,
    pub writes: Arc<Vec<Write>>,
}

/// What a new epoch begins with.
pub(crate) struct SyncStart {
    /// Its first position.
    pub at: LogPos,
    /// What the scan of the nodes found.
    pub found: Vec<Write>,
    pub reports: BTreeMap<ManagerNumber, Report>,
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

impl Lead {
    /// Asks the copies that have not reported; says what the new epoch begins with when all have.
    pub fn reports_are_in(&mut self, env: &mut Env, log: &Log) -> Option<SyncStart> {
        let Phase::Sync(sync) = &mut self.phase else { return None };
        if sync.at.is_some() {
            return None;
        }
        let asking = self.copies.keys().filter(|copy| !sync.reports.contains_key(copy));
        let asking: Vec<ManagerNumber> = asking.copied().collect();
        if !asking.is_empty() {
            let now = env.now.mono_ms;
            // Who is heard and does not report cannot: it may reach no config store, and know nothing of
            // this epoch. So it is behind from the first question on. One that never ran is waited for.
            for (number, copy) in &mut self.copies {
                if asking.contains(number) && copy.member.incarnation > Incarnation(0) {
                    copy.behind_ms.get_or_insert(now);
                }
            }
            if now >= sync.asked_ms + env.config.timing.resend_ms || sync.asked_ms == 0 {
                sync.asked_ms = now.max(1);
                for copy in asking {
                    env.send(copy, Message::SyncAsk { part: log.number, pe: self.pe });
                }
            }
            return None;
        }
        let newest = sync.reports.values().map(|report| report.last.seq).max().unwrap_or_default();
        let seq = Seq(newest.max(log.replica.last.seq).0 + 1);
        let at = LogPos::new(self.pe, seq);
        sync.at = Some(at);
        let found = std::mem::take(&mut sync.found);
        Some(SyncStart { at, found, reports: sync.reports.clone() })
    }

    /// Writes the first entry of the epoch, and begins to send each copy what it lacks.
    pub fn begin_epoch(
        &mut self,
        env: &mut Env,
        log: &mut Log,
        (at, writes): (LogPos, Vec<Write>),
        reports: BTreeMap<ManagerNumber, Report>,
    ) {
        log.append(env, Entry::new(at, writes, None));
        for (copy, report) in reports {
            self.send_difference(env, log, copy, &report, at);
        }
    }

    /// Works out what a copy lacks, and begins to send it.
    fn send_difference(
        &mut self,
        env: &mut Env,
        log: &Log,
        copy: ManagerNumber,
        report: &Report,
        at: LogPos,
    ) {
        let (now, sizes) = (env.now.mono_ms, env.config.sizes);
        let difference = log.replica.difference(report.committed, &report.touched);
        let Some(state) = self.copies.get_mut(&copy) else {
            return;
        };
        state.flow.sent = at;
        state.behind_ms = Some(now);
        match difference {
            Some(writes) => {
                let contents = split(writes, &sizes).into_iter().map(Arc::new).collect();
                let progress = Pieces::new(now);
                state.difference = Some(Difference { contents, progress });
                self.send_pieces(env, log, copy, sizes.chunks_in_flight);
            }
            None => state.too_old = true,
        }
    }

    fn send_pieces(&mut self, env: &mut Env, log: &Log, copy: ManagerNumber, most: usize) {
        let part = log.number;
        let Phase::Sync(SyncState { at: Some(at), .. }) = &self.phase else {
            return;
        };
        let (pe, at) = (self.pe, *at);
        let Some(state) = self.copies.get_mut(&copy) else {
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
    pub fn resend_pieces(&mut self, env: &mut Env, log: &Log) {
        let (now, resend_ms) = (env.now.mono_ms, env.config.timing.resend_ms);
        let pe = self.pe;
        let mut silent = Vec::new();
        for (number, copy) in self.copies.iter_mut().filter(|(_, it)| it.flow.acked.pe < pe) {
            if copy.difference.as_mut().is_some_and(|it| it.progress.rewind(now, resend_ms)) {
                silent.push(*number);
            }
        }
        for copy in silent {
            self.send_pieces(env, log, copy, 1);
        }
    }

    /// A copy has so many pieces, and lacks others.
    pub fn on_sync_applied(
        &mut self,
        env: &mut Env,
        log: &Log,
        from: MemberId,
        pe: Epoch,
        taken: u64,
    ) {
        let (now, most) = (env.now.mono_ms, env.config.sizes.chunks_in_flight);
        if self.pe != pe {
            return;
        }
        let copy = self.copies.get_mut(&from.number).filter(|it| it.member == from);
        let Some(copy) = copy.filter(|it| it.flow.acked.pe < pe) else {
            return;
        };
        if copy.difference.as_mut().is_some_and(|it| it.progress.on_taken(taken, now)) {
            copy.behind_ms = Some(now);
            self.send_pieces(env, log, from.number, most);
        }
    }

    pub fn on_sync_report(&mut self, log: &Log, from: MemberId, pe: Epoch, report: Report) -> Next {
        if self.pe != pe || self.on_copy_offered(log, from, &report) {
            return Next::Nothing;
        }
        if self.copies.get(&from.number).is_none_or(|copy| copy.member != from) {
            return Next::Nothing;
        }
        let Phase::Sync(sync) = &mut self.phase else { return Next::Nothing };
        // A report that comes again says nothing new: the pieces are on their way.
        if sync.at.is_some() {
            return Next::Nothing;
        }
        sync.reports.insert(from.number, report);
        Next::Sync
    }
}

impl Log {
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
            self.offer().filter(|_| part.state == PartitionState::Recovering)
        };
        let Some(Report { last, committed, touched }) = report else { return };
        let part = self.number;
        let report = Message::SyncReport { part, pe, last, committed, touched };
        env.send(owner, report);
    }
}
