//! Copying a partition to a manager that should hold it, and adding it to the ISR.
//!
//! The learner gets chunks of the contents and, from the start on, every Prepare (its
//! acknowledgements count for nothing yet). When it is close, the owner takes no new entries
//! (wedges), waits until everything is committed and the learner has it all, and adds it by
//! compare-and-set on the run that acknowledged. While the outcome of that is unknown, the owner
//! never writes again under this epoch.

use crate::log::desire::Desire;
use crate::log::env::{Env, NameOf, ReadFor};
use crate::log::learner::{Learner, WEDGE_MS};
use crate::log::progress::{Flow, Pieces};
use crate::partition::leading::Phase;
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use rota_messages::{Chunk, Message};
use rota_model::{Epoch, ManagerNumber, MemberId};
use std::collections::VecDeque;

/// How long after that no other wedge begins, so that requests get their turn.
const WEDGE_PAUSE_MS: u64 = 2_000;

impl Partition {
    /// Begins, goes on with, or gives up copying, as the View wants it.
    pub fn tick_learners(&mut self, env: &mut Env) {
        let (number, me, now) = (self.number, env.me.number, env.now.mono_ms);
        let view = env.view.clone();
        let (Some(view), Some(leading)) = (view, &mut self.leading) else {
            return;
        };
        leading.lead.wedge.to_split = view.unsplit(number);
        leading.lead.wedge.lets_go = view.may_let_go(number);
        let is_absent = |it: &ManagerNumber| {
            *it != me && !leading.lead.copies.contains_key(it) && view.is_up(*it)
        };
        let wanted = view.wanted(number);
        let missing: Vec<ManagerNumber> =
            wanted.iter().copied().filter(|it| is_absent(it)).collect();
        let overdue = leading.lead.newcomers.on_missing(&missing, now, env.config.timing.repair_ms);
        let others = view.ring_from(number).filter(|it| view.is_up(*it) && !wanted.contains(it));
        let stand_ins: Vec<ManagerNumber> =
            others.take(overdue).filter(|it| is_absent(it)).collect();
        let absent: Vec<ManagerNumber> =
            missing.into_iter().chain(stand_ins.iter().copied()).collect();
        leading
            .lead
            .newcomers
            .learners
            .retain(|it, learner| absent.contains(it) && view.member(*it) == Some(learner.member));
        let copies = &leading.lead.copies;
        let is_wanted = |it: &ManagerNumber| absent.contains(it) || copies.contains_key(it);
        leading.lead.newcomers.on_wanted(is_wanted, now);
        let abandon_ms = env.config.timing.abandon_ms;
        let mut unwanted = leading.lead.newcomers.begun.values().flatten();
        leading.lead.newcomers.drops_abandoned =
            leading.lead.is_open() && unwanted.any(|since| now >= *since + abandon_ms);
        for it in absent {
            if leading.lead.is_open() && !leading.lead.newcomers.learners.contains_key(&it) {
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
                    start: self.replica.committed,
                    flow: Flow::new(self.replica.committed, now),
                    begun: false,
                    cursor: None,
                    all_sent: false,
                    next_chunk: 0,
                    in_flight: VecDeque::new(),
                    progress: Pieces::new(now),
                };
                leading.lead.newcomers.learners.insert(it, learner);
                leading.lead.newcomers.begun.insert(it, None);
            }
        }
        self.resend_to_learners(env);
        let fresh = self.leading.iter().flat_map(|it| it.lead.newcomers.learners.iter());
        let fresh = fresh.filter(|(_, it)| it.next_chunk == 0).map(|(to, _)| *to);
        for to in fresh.collect::<Vec<_>>() {
            self.send_chunks(env, to, env.config.sizes.chunks_in_flight);
        }
        self.drive_wedge(env);
    }

    fn resend_to_learners(&mut self, env: &mut Env) {
        let (now, resend_ms) = (env.now.mono_ms, env.config.timing.resend_ms * 2);
        let (part, base) = (self.number, self.replica.base);
        let committed = self.replica.committed;
        let Some(leading) = &mut self.leading else {
            return;
        };
        // What the window no longer reaches is begun anew.
        let before = leading.lead.newcomers.learners.len();
        leading.lead.newcomers.learners.retain(|_, it| it.flow.acked.max(it.start) >= base);
        for _ in leading.lead.newcomers.learners.len()..before {
            env.note(Transition::LearnRestarted, Some(part));
        }
        let pe = leading.lead.pe;
        let mut silent = Vec::new();
        for (to, learner) in &mut leading.lead.newcomers.learners {
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
            self.send_chunks(env, to, 1);
        }
    }

    /// Sends chunks to a learner, as long as fewer than `most` are under way.
    fn send_chunks(&mut self, env: &mut Env, to: ManagerNumber, most: usize) {
        let (part, upto, sizes) = (self.number, self.replica.last, env.config.sizes);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let (pe, forgotten) = (leading.lead.pe, env.stamps.forgotten);
        let Some(learner) = leading.lead.newcomers.learners.get_mut(&to) else {
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
            let (docs, through) = self.replica.page(after.as_ref(), &sizes);
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
        from: MemberId,
        pe: Epoch,
        learn: u64,
        chunk: u64,
    ) {
        let (part, now) = (self.number, env.now.mono_ms);
        let committed = self.replica.committed;
        let Some(leading) = self.leading.as_mut().filter(|it| it.lead.pe == pe) else {
            return;
        };
        let learner = leading.lead.newcomers.learners.get_mut(&from.number);
        let Some(learner) = learner.filter(|it| it.member == from && it.learn == learn) else {
            return;
        };
        let taken = chunk.saturating_add(1).min(learner.next_chunk);
        let known = learner.progress.taken;
        if !learner.progress.on_taken(taken, now) {
            return;
        }
        for _ in known..taken {
            learner.in_flight.pop_front();
        }
        if !learner.begun {
            // The learner's log has begun: send what was written since. If that is nothing, an
            // empty Prepare asks for the first acknowledgement.
            learner.begun = true;
            leading.lead.unsent.dirty = true;
            let (after, entries) = (learner.start, Vec::new());
            env.send(from.number, Message::Prepare { part, pe, committed, after, entries });
        }
        self.send_chunks(env, from.number, env.config.sizes.chunks_in_flight);
        self.drive_wedge(env);
    }

    /// The config store was asked for, or did not answer, before a wedge: only a compare-and-set ends one
    /// well, and with the store away all writes would wait for that.
    pub fn on_wedge_read(&mut self, env: &mut Env, reached: bool) {
        let (now, last) = (env.now.mono_ms, self.replica.last);
        let Some(leading) = &mut self.leading else {
            return;
        };
        if !std::mem::take(&mut leading.lead.wedge.asks) {
            return;
        }
        if !reached {
            leading.lead.wedge.next_ms = now + WEDGE_PAUSE_MS;
        } else if leading.lead.phase == Phase::Serving
            && leading.lead.wants_wedge(last, &env.config.sizes)
        {
            leading.lead.phase = Phase::Wedged { since_ms: now, asked: false };
            env.note(Transition::Wedged, Some(self.number));
        }
    }

    /// Wedges when a learner is close; gives a wedge up that leads nowhere.
    pub fn drive_wedge(&mut self, env: &mut Env) {
        let (number, now, last) = (self.number, env.now.mono_ms, self.replica.last);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let close = leading.lead.has_close_learner(last, &env.config.sizes);
        let wanted = leading.lead.wants_wedge(last, &env.config.sizes);
        match leading.lead.phase {
            Phase::Serving if wanted && now >= leading.lead.wedge.next_ms => {
                if !std::mem::replace(&mut leading.lead.wedge.asks, true) {
                    env.store.reads_wanted.push((number, ReadFor::Wedge));
                }
            }
            Phase::Wedged { since_ms, asked: false } if !wanted || now > since_ms + WEDGE_MS => {
                leading.lead.phase = Phase::Serving;
                if close {
                    // It stays close and yet does not get there: begin anew, and not at once. Who
                    // has everything waits for a slow copy, and keeps what it has.
                    leading.lead.newcomers.learners.retain(|_, it| it.is_complete(last));
                }
                if wanted {
                    leading.lead.wedge.next_ms = now + WEDGE_PAUSE_MS;
                }
                // What nodes answered meanwhile was not taken: they are asked once more.
                leading
                    .residents
                    .sessions
                    .work
                    .values_mut()
                    .for_each(|it| it.ask_ms = it.ask_ms.min(now));
                // What the registry said meanwhile could not be written.
                self.sweep_lost(env);
                self.tick_work(env);
                self.drain_queue(env);
            }
            Phase::Scan(_)
            | Phase::Recover(_)
            | Phase::Sync(_)
            | Phase::Serving
            | Phase::Wedged { .. } => {}
        }
    }

    /// What the owner wants changed in the View now.
    pub fn desire(&self, me: MemberId) -> Option<Desire> {
        let leading = self.leading.as_ref()?;
        if let Phase::Recover(recovery) = &leading.lead.phase {
            return recovery.desire(me, self.replica.committed);
        }
        if let Some(copy) = leading.lead.copies.values().find(|it| it.too_old) {
            return Some(Desire::Shrink(copy.member));
        }
        let Phase::Wedged { asked, .. } = leading.lead.phase else {
            // Only a new epoch lets them drop what they have.
            return leading.lead.newcomers.drops_abandoned.then_some(Desire::Bump);
        };
        let last = self.replica.last;
        if !self.replica.tail.entries.is_empty() {
            return None;
        }
        if let Some(newcomer) = leading.lead.wedge.to_split {
            return Some(Desire::Split(newcomer));
        }
        let complete = leading.lead.newcomers.learners.values().filter(|it| it.is_complete(last));
        let complete: Vec<MemberId> = complete.map(|it| it.member).collect();
        if !complete.is_empty() {
            return Some(Desire::Add(complete));
        }
        if leading.lead.wedge.lets_go {
            return Some(Desire::LetGo);
        }
        asked.then_some(Desire::Bump)
    }

    /// A compare-and-set for this partition is on its way: never write again under this epoch,
    /// unless it is known to have failed. The copies are told once more what is committed: a
    /// newcomer keeps no entries from before its snapshot, and if it is the next owner, a copy that
    /// knew of less could only be dropped and copied anew.
    pub fn on_desire_asked(&mut self, env: &mut Env) {
        let (told, last) = ((self.number, self.replica.committed), self.replica.last);
        if let Some(leading) = &mut self.leading
            && let Phase::Wedged { since_ms, .. } = leading.lead.phase
        {
            leading.lead.phase = Phase::Wedged { since_ms, asked: true };
            let added =
                leading.lead.newcomers.learners.iter().filter(|(_, it)| it.is_complete(last));
            leading.lead.wedge.adding.extend(added.map(|(number, it)| (*number, it.member)));
            for to in leading.lead.copies.keys().chain(leading.lead.newcomers.learners.keys()) {
                env.send(*to, Message::Heartbeat { committed: vec![told] });
            }
        }
    }

    /// It certainly did not happen and never will.
    pub fn on_desire_failed(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        if let Some(leading) = &mut self.leading
            && matches!(leading.lead.phase, Phase::Wedged { asked: true, .. })
        {
            leading.lead.phase = Phase::Wedged { since_ms: now, asked: false };
            self.on_nobody_added(env);
        }
        self.drive_wedge(env);
    }
}
