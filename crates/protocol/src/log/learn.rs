//! Copying a partition to a manager that should hold it, and adding it to the ISR.
//!
//! The learner gets chunks of the contents and, from the start on, every Prepare (its
//! acknowledgements count for nothing yet). When it is close, the owner takes no new entries
//! (wedges), waits until everything is committed and the learner has it all, and adds it by
//! compare-and-set on the run that acknowledged. While the outcome of that is unknown, the owner
//! never writes again under this epoch.

use crate::log::desire::Desire;
use crate::log::env::{Env, NameOf, ReadFor};
use crate::log::lead::{Lead, Next, Phase};
use crate::log::learner::{Learner, WEDGE_MS};
use crate::log::progress::{Flow, Pieces};
use crate::log::state::Log;
use crate::ports::note::Transition;
use rota_messages::{Chunk, Message};
use rota_model::{Epoch, ManagerNumber, MemberId};
use std::collections::VecDeque;

/// How long after that no other wedge begins, so that requests get their turn.
const WEDGE_PAUSE_MS: u64 = 2_000;

impl Lead {
    /// Begins, goes on with, or gives up copying, as the View wants it.
    pub fn tick_learners(&mut self, env: &mut Env, log: &Log) {
        let (number, me, now) = (log.number, env.me.number, env.now.mono_ms);
        let Some(view) = env.view.clone() else { return };
        self.wedge.to_split = view.unsplit(number);
        self.wedge.releases = view.may_release(number);
        let is_absent =
            |it: &ManagerNumber| *it != me && !self.copies.contains_key(it) && view.is_up(*it);
        let wanted = view.wanted(number);
        let missing: Vec<ManagerNumber> =
            wanted.iter().copied().filter(|it| is_absent(it)).collect();
        let overdue = self.newcomers.on_missing(&missing, now, env.config.timing.repair_ms);
        let others = view.ring_from(number).filter(|it| view.is_up(*it) && !wanted.contains(it));
        let stand_ins: Vec<ManagerNumber> =
            others.take(overdue).filter(|it| is_absent(it)).collect();
        let absent: Vec<ManagerNumber> =
            missing.into_iter().chain(stand_ins.iter().copied()).collect();
        self.newcomers
            .learners
            .retain(|it, learner| absent.contains(it) && view.member(*it) == Some(learner.member));
        let copies = &self.copies;
        let is_wanted = |it: &ManagerNumber| absent.contains(it) || copies.contains_key(it);
        self.newcomers.on_wanted(is_wanted, now);
        let abandon_ms = env.config.timing.abandon_ms;
        let mut unwanted = self.newcomers.begun.values().flatten();
        self.newcomers.drops_abandoned =
            self.is_open() && unwanted.any(|since| now >= *since + abandon_ms);
        for it in absent {
            if self.is_open() && !self.newcomers.learners.contains_key(&it) {
                let Some(member) = view.member(it) else {
                    continue;
                };
                env.note(Transition::LearnStarted, Some(number));
                if stand_ins.contains(&it) {
                    env.note(Transition::StandInStarted, Some(number));
                }
                let learner = Learner {
                    member,
                    learn: env.next_id(NameOf::Copying),
                    start: log.replica.committed,
                    flow: Flow::new(log.replica.committed, now),
                    begun: false,
                    cursor: None,
                    all_sent: false,
                    next_chunk: 0,
                    in_flight: VecDeque::new(),
                    progress: Pieces::new(now),
                };
                self.newcomers.learners.insert(it, learner);
                self.newcomers.begun.insert(it, None);
            }
        }
        self.resend_to_learners(env, log);
        let fresh = self.newcomers.learners.iter();
        let fresh = fresh.filter(|(_, it)| it.next_chunk == 0).map(|(to, _)| *to);
        for to in fresh.collect::<Vec<_>>() {
            self.send_chunks(env, log, to, env.config.sizes.chunks_in_flight);
        }
    }

    fn resend_to_learners(&mut self, env: &mut Env, log: &Log) {
        let (now, resend_ms) = (env.now.mono_ms, env.config.timing.resend_ms * 2);
        let (part, base) = (log.number, log.replica.base);
        let committed = log.replica.committed;
        // What the window no longer reaches is begun anew.
        let before = self.newcomers.learners.len();
        self.newcomers.learners.retain(|_, it| it.flow.acked.max(it.start) >= base);
        for _ in self.newcomers.learners.len()..before {
            env.note(Transition::LearnRestarted, Some(part));
        }
        let pe = self.pe;
        let mut silent = Vec::new();
        for (to, learner) in &mut self.newcomers.learners {
            if !learner.in_flight.is_empty() && learner.progress.rewind(now, resend_ms) {
                silent.push(*to);
            }
            let flow = &mut learner.flow;
            if learner.begun && flow.acked < flow.sent && flow.patience.is_over(now, resend_ms) {
                // It answers what it misses, or what is on its disk.
                let (after, entries) = (flow.sent, Vec::new());
                env.send(*to, Message::Prepare { part, pe, committed, after, entries });
            }
        }
        for to in silent {
            self.send_chunks(env, log, to, 1);
        }
    }

    /// Sends chunks to a learner, as long as fewer than `most` are under way.
    fn send_chunks(&mut self, env: &mut Env, log: &Log, to: ManagerNumber, most: usize) {
        let (part, upto, sizes) = (log.number, log.replica.last, env.config.sizes);
        let (pe, forgotten) = (self.pe, env.stamps.forgotten);
        let Some(learner) = self.newcomers.learners.get_mut(&to) else {
            return;
        };
        loop {
            while let Some(number) = learner.progress.send(most, learner.next_chunk) {
                let index = usize::try_from(number - learner.progress.taken).unwrap_or(usize::MAX);
                let Some(message) = learner.in_flight.get(index) else {
                    return;
                };
                env.send(to, message.clone());
            }
            if learner.all_sent || learner.in_flight.len() >= most {
                return;
            }
            let after = learner.cursor.clone();
            let (docs, through) = log.replica.page(after.as_ref(), &sizes);
            learner.all_sent = through.is_none();
            learner.cursor.clone_from(&through);
            let (learn, number, start) = (learner.learn, learner.next_chunk, learner.start);
            learner.next_chunk += 1;
            let chunk = Chunk { pe, learn, number, start, upto, after, through, docs, forgotten };
            learner.in_flight.push_back(Message::SnapshotChunk { part, chunk });
        }
    }

    /// The learner has a chunk, and all before it, on its disk.
    pub fn on_snapshot_ack(
        &mut self,
        env: &mut Env,
        log: &Log,
        from: MemberId,
        pe: Epoch,
        learn: u64,
        chunk: u64,
    ) -> Next {
        let (part, now) = (log.number, env.now.mono_ms);
        let committed = log.replica.committed;
        if self.pe != pe {
            return Next::Nothing;
        }
        let learner = self.newcomers.learners.get_mut(&from.number);
        let Some(learner) = learner.filter(|it| it.member == from && it.learn == learn) else {
            return Next::Nothing;
        };
        let taken = chunk.saturating_add(1).min(learner.next_chunk);
        let known = learner.progress.taken;
        if !learner.progress.on_taken(taken, now) {
            return Next::Nothing;
        }
        for _ in known..taken {
            learner.in_flight.pop_front();
        }
        if !learner.begun {
            // The learner's log has begun: send what was written since. If that is nothing, an
            // empty Prepare asks for the first acknowledgement.
            learner.begun = true;
            self.unsent.dirty = true;
            let (after, entries) = (learner.start, Vec::new());
            env.send(from.number, Message::Prepare { part, pe, committed, after, entries });
        }
        self.send_chunks(env, log, from.number, env.config.sizes.chunks_in_flight);
        Next::Wedge
    }

    /// The config store was asked for, or did not answer, before a wedge: only a compare-and-set ends one
    /// well, and with the store away all writes would wait for that.
    pub fn on_wedge_read(&mut self, env: &mut Env, log: &Log, reached: bool) {
        let (now, last) = (env.now.mono_ms, log.replica.last);
        if !std::mem::take(&mut self.wedge.asks) {
            return;
        }
        if !reached {
            self.wedge.next_ms = now + WEDGE_PAUSE_MS;
        } else if self.phase == Phase::Serving && self.wants_wedge(last, &env.config.sizes) {
            self.phase = Phase::Wedged { since_ms: now, asked: false };
            env.note(Transition::Wedged, Some(log.number));
        }
    }

    /// Wedges when a learner is close; gives a wedge up that leads nowhere. True when one was given up.
    pub fn drive_wedge(&mut self, env: &mut Env, log: &Log) -> bool {
        let (number, now, last) = (log.number, env.now.mono_ms, log.replica.last);
        let close = self.has_close_learner(last, &env.config.sizes);
        let wanted = self.wants_wedge(last, &env.config.sizes);
        match self.phase {
            Phase::Serving if wanted && now >= self.wedge.next_ms => {
                if !std::mem::replace(&mut self.wedge.asks, true) {
                    env.store.reads_wanted.push((number, ReadFor::Wedge));
                }
                false
            }
            Phase::Wedged { since_ms, asked: false } if !wanted || now > since_ms + WEDGE_MS => {
                self.phase = Phase::Serving;
                if close {
                    // It stays close and yet does not get there: begin anew, and not at once. Who
                    // has everything waits for a slow copy, and keeps what it has.
                    self.newcomers.learners.retain(|_, learner| learner.is_complete(last));
                }
                if wanted {
                    self.wedge.next_ms = now + WEDGE_PAUSE_MS;
                }
                true
            }
            Phase::Scan
            | Phase::Recover(_)
            | Phase::Sync(_)
            | Phase::Serving
            | Phase::Wedged { .. } => false,
        }
    }

    /// What the owner wants changed in the View now.
    pub fn desire(&self, log: &Log, me: MemberId) -> Option<Desire> {
        if let Phase::Recover(recovery) = &self.phase {
            return recovery.desire(me, log.replica.committed);
        }
        if let Some(copy) = self.copies.values().find(|it| it.too_old) {
            return Some(Desire::Shrink(copy.member));
        }
        let Phase::Wedged { asked, .. } = self.phase else {
            // Only a new epoch lets them drop what they have.
            return self.newcomers.drops_abandoned.then_some(Desire::Bump);
        };
        let last = log.replica.last;
        if !log.replica.tail.entries.is_empty() {
            return None;
        }
        if let Some(newcomer) = self.wedge.to_split {
            return Some(Desire::Split(newcomer));
        }
        let complete = self.newcomers.learners.values().filter(|it| it.is_complete(last));
        let complete: Vec<MemberId> = complete.map(|it| it.member).collect();
        if !complete.is_empty() {
            return Some(Desire::Add(complete));
        }
        if self.wedge.releases {
            return Some(Desire::Release);
        }
        asked.then_some(Desire::Bump)
    }

    /// A compare-and-set for this partition is on its way: never write again under this epoch,
    /// unless it is known to have failed. The copies are told once more what is committed: a
    /// newcomer keeps no entries from before its snapshot, and if it is the next owner, a copy that
    /// knew of less could only be dropped and copied anew.
    pub fn on_desire_asked(&mut self, env: &mut Env, log: &Log) {
        let (told, last) = ((log.number, log.replica.committed), log.replica.last);
        let Phase::Wedged { since_ms, .. } = self.phase else { return };
        self.phase = Phase::Wedged { since_ms, asked: true };
        let learners = &self.newcomers.learners;
        let added = learners.iter().filter(|(_, learner)| learner.is_complete(last));
        self.wedge.adding.extend(added.map(|(number, learner)| (*number, learner.member)));
        for to in self.copies.keys().chain(learners.keys()) {
            env.send(*to, Message::Heartbeat { committed: vec![told] });
        }
    }

    /// It certainly did not happen and never will. True when nobody was added by it.
    pub fn on_desire_failed(&mut self, now_ms: u64) -> bool {
        if !matches!(self.phase, Phase::Wedged { asked: true, .. }) {
            return false;
        }
        self.phase = Phase::Wedged { since_ms: now_ms, asked: false };
        true
    }
}
