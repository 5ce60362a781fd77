//! Copying a partition to a manager that should hold it, and adding it to the ISR.
//!
//! The learner gets chunks of the contents and, from the start on, every Prepare (its
//! acknowledgements count for nothing yet). When it is close, the owner takes no new entries
//! (wedges), waits until everything is committed and the learner has it all, and adds it by
//! compare-and-set on the run that acknowledged. While the outcome of that is unknown, the owner
//! never writes again under this epoch.

use crate::env::Env;
use crate::io::Transition;
use crate::leading::Phase;
use crate::message::{DocKey, Message};
use crate::partition::Partition;
use rota_model::{Epoch, LogPos, ManagerNumber, MemberId};
use std::collections::VecDeque;

/// Documents in one chunk: about 300 KB of usual records.
const CHUNK_DOCS: usize = 512;

/// Chunks that may be unacknowledged at once.
const CHUNKS_IN_FLIGHT: usize = 4;

/// A learner this close is caught up by wedging.
const CLOSE_ENTRIES: u64 = 256;

/// A wedge that gets no further is given up after this time, if nothing was asked yet.
const WEDGE_MS: u64 = 1_000;

/// A learner, as the owner sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Learner {
    pub member: MemberId,
    pub learn: u64,
    pub start: LogPos,
    pub sent: LogPos,
    pub acked: LogPos,
    pub sent_ms: u64,
    pub behind_ms: Option<u64>,
    /// Where the next chunk begins; nothing is left when `all_sent`.
    pub cursor: Option<DocKey>,
    pub all_sent: bool,
    pub next_chunk: u64,
    /// Chunks that are not acknowledged, oldest first, with their numbers.
    pub in_flight: VecDeque<(u64, Message)>,
    pub chunk_sent_ms: u64,
}

impl Learner {
    fn is_close(&self, last: LogPos) -> bool {
        self.all_sent
            && self.in_flight.is_empty()
            && self.acked.pe == last.pe
            && self.acked.seq.0 + CLOSE_ENTRIES >= last.seq.0
    }

    fn is_complete(&self, last: LogPos) -> bool {
        self.all_sent && self.in_flight.is_empty() && self.acked == last
    }
}

/// What a partition's owner wants changed in the View.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Desire {
    Add(Vec<MemberId>),
    Shrink(MemberId),
    Bump,
}

impl Partition {
    /// Begins, goes on with, or gives up copying, as the View wants it.
    pub fn tick_learners(&mut self, env: &mut Env) {
        let (number, me, now) = (self.number, env.me.number, env.now.mono_ms);
        let view = env.view.clone();
        let (Some(view), Some(leading)) = (view, &mut self.leading) else {
            return;
        };
        let wanted = view.wanted(number);
        let absent: Vec<ManagerNumber> =
            wanted.into_iter().filter(|it| *it != me && !leading.copies.contains_key(it)).collect();
        leading.missing.retain(|it, _| absent.contains(it));
        leading
            .learners
            .retain(|it, learner| absent.contains(it) && view.member(*it) == Some(learner.member));
        for it in absent {
            leading.missing.entry(it).or_insert(now);
            if leading.is_open() && !leading.learners.contains_key(&it) {
                let Some(member) = view.member(it) else {
                    continue;
                };
                env.note(Transition::LearnStarted, Some(number));
                let learner = Learner {
                    member,
                    learn: env.next_id(),
                    start: self.replica.committed,
                    sent: self.replica.committed,
                    acked: LogPos::ZERO,
                    sent_ms: now,
                    behind_ms: None,
                    cursor: None,
                    all_sent: false,
                    next_chunk: 0,
                    in_flight: VecDeque::new(),
                    chunk_sent_ms: now,
                };
                leading.learners.insert(it, learner);
            }
        }
        self.resend_to_learners(env);
        self.send_chunks(env);
        self.drive_wedge(env);
    }

    fn resend_to_learners(&mut self, env: &mut Env) {
        let (now, resend_ms) = (env.now.mono_ms, env.config.timing.resend_ms * 2);
        let last = self.replica.last;
        let base = self.replica.base;
        let Some(leading) = &mut self.leading else {
            return;
        };
        // What the window no longer reaches is begun anew.
        leading.learners.retain(|_, it| it.acked.max(it.start) >= base);
        for (to, learner) in &mut leading.learners {
            if now >= learner.chunk_sent_ms + resend_ms {
                learner.chunk_sent_ms = now;
                for (_, message) in &learner.in_flight {
                    env.send(*to, message.clone());
                }
            }
            // Before the first chunk is taken, entries mean nothing to the learner.
            let begun = learner.next_chunk > learner.in_flight.len() as u64;
            let known = learner.acked.max(learner.start);
            if begun && known < last && now >= learner.sent_ms + resend_ms {
                learner.sent = known;
                leading.dirty = true;
            } else if begun && learner.acked < learner.start && now >= learner.sent_ms + resend_ms {
                // Nothing was written since the start: an empty Prepare asks for the first Ack.
                learner.sent_ms = now;
                let (part, pe, committed) = (self.number, leading.pe, self.replica.committed);
                let after = learner.start;
                let entries = Vec::new();
                env.send(*to, Message::Prepare { part, pe, committed, after, entries });
            }
        }
    }

    fn send_chunks(&mut self, env: &mut Env) {
        let (number, now, upto) = (self.number, env.now.mono_ms, self.replica.last);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let pe = leading.pe;
        for (to, learner) in &mut leading.learners {
            while !learner.all_sent && learner.in_flight.len() < CHUNKS_IN_FLIGHT {
                let after = learner.cursor.clone();
                let (docs, through) = self.replica.page(after.as_ref(), CHUNK_DOCS);
                learner.all_sent = through.is_none();
                learner.cursor = through.clone();
                let (learn, chunk, start) = (learner.learn, learner.next_chunk, learner.start);
                learner.next_chunk += 1;
                learner.chunk_sent_ms = now;
                let part = number;
                let message = Message::SnapshotChunk {
                    part,
                    pe,
                    learn,
                    chunk,
                    start,
                    upto,
                    after,
                    through,
                    docs,
                    forgotten: env.forgotten,
                };
                learner.in_flight.push_back((chunk, message.clone()));
                env.send(*to, message);
            }
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
        let Some(leading) = self.leading.as_mut().filter(|it| it.pe == pe) else {
            return;
        };
        let Some(learner) = leading.learners.get_mut(&from.number) else {
            return;
        };
        if learner.member != from || learner.learn != learn {
            return;
        }
        learner.in_flight.retain(|(number, _)| *number > chunk);
        if chunk == 0 {
            // The learner's log has begun: send what was written since.
            leading.dirty = true;
            let (part, pe, committed) = (self.number, leading.pe, self.replica.committed);
            let after = learner.start;
            env.send(
                from.number,
                Message::Prepare { part, pe, committed, after, entries: Vec::new() },
            );
        }
        self.send_chunks(env);
        self.drive_wedge(env);
    }

    /// Wedges when a learner is close; gives a wedge up that leads nowhere.
    pub fn drive_wedge(&mut self, env: &mut Env) {
        let (number, now, last) = (self.number, env.now.mono_ms, self.replica.last);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let close = leading.learners.values().any(|it| it.is_close(last));
        match leading.phase {
            Phase::Serving if close => {
                leading.phase = Phase::Wedged { since_ms: now, asked: false };
                env.note(Transition::Wedged, Some(number));
            }
            Phase::Wedged { since_ms, asked: false } if !close || now > since_ms + WEDGE_MS => {
                leading.phase = Phase::Serving;
                if close {
                    // It stays close and yet does not get there: begin anew.
                    leading.learners.clear();
                }
                // What the registry said meanwhile could not be written.
                self.sweep_lost(env);
                self.drain_queue(env);
            }
            Phase::Scan(_) | Phase::Sync(_) | Phase::Serving | Phase::Wedged { .. } => {}
        }
    }

    /// What the owner wants changed in the View now.
    pub fn desire(&self) -> Option<Desire> {
        let leading = self.leading.as_ref()?;
        if let Some(copy) = leading.copies.values().find(|it| it.too_old) {
            return Some(Desire::Shrink(copy.member));
        }
        let Phase::Wedged { asked, .. } = leading.phase else {
            return None;
        };
        let last = self.replica.last;
        if !self.replica.tail.is_empty() {
            return None;
        }
        let complete = leading.learners.values().filter(|it| it.is_complete(last));
        let complete: Vec<MemberId> = complete.map(|it| it.member).collect();
        if !complete.is_empty() {
            return Some(Desire::Add(complete));
        }
        asked.then_some(Desire::Bump)
    }

    /// A compare-and-set for this partition is on its way: never write again under this epoch,
    /// unless it is known to have failed.
    pub fn on_desire_asked(&mut self) {
        if let Some(leading) = &mut self.leading
            && let Phase::Wedged { since_ms, .. } = leading.phase
        {
            leading.phase = Phase::Wedged { since_ms, asked: true };
        }
    }

    /// It certainly did not happen and never will.
    pub fn on_desire_failed(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        if let Some(leading) = &mut self.leading
            && matches!(leading.phase, Phase::Wedged { asked: true, .. })
        {
            leading.phase = Phase::Wedged { since_ms: now, asked: false };
        }
        self.drive_wedge(env);
    }
}
