//! The flow of a partition's log to one other manager: what was sent, what is on its disk, and how
//! much may be under way at once.
//!
//! What is under way waits in a bounded outbox on its way. Without a bound here, the resending
//! after a gap or a break would fill that outbox, which then drops, which is the next gap.

use crate::env::Env;
use crate::io::Transition;
use crate::partition::Partition;
use crate::sizes::Sizes;
use rota_messages::Message;
use rota_model::{Epoch, LogPos, MemberId, Seq};
use std::collections::VecDeque;

/// The log's flow to one other manager.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Flow {
    /// Last entry that was sent.
    pub sent: LogPos,
    /// Last entry that is on its disk.
    pub acked: LogPos,
    under_way: VecDeque<UnderWay>,
    entries: usize,
    bytes: usize,
    pub patience: Patience,
    /// Where sending last went back to, and when.
    rewound: Option<(LogPos, u64)>,
}

/// A Prepare that is not acknowledged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct UnderWay {
    upto: LogPos,
    entries: usize,
    bytes: usize,
}

impl Flow {
    /// A flow that goes on after `sent`; nothing is acknowledged yet.
    pub fn new(sent: LogPos, now_ms: u64) -> Self {
        Self {
            sent,
            acked: LogPos::ZERO,
            under_way: VecDeque::new(),
            entries: 0,
            bytes: 0,
            patience: Patience::new(now_ms),
            rewound: None,
        }
    }

    /// Whether another Prepare may be sent.
    pub fn has_room(&self, sizes: &Sizes) -> bool {
        self.entries < sizes.flight_entries && self.bytes < sizes.flight_bytes
    }

    /// So many entries were sent, the last of them at `upto`.
    pub fn on_sent(&mut self, upto: LogPos, entries: usize, bytes: usize, now_ms: u64) {
        self.under_way.push_back(UnderWay { upto, entries, bytes });
        self.entries += entries;
        self.bytes += bytes;
        self.sent = upto;
        self.patience.moved_ms = now_ms;
    }

    /// Everything through `at` is on the receiver's disk. False when that was known.
    pub fn on_acked(&mut self, at: LogPos, now_ms: u64) -> bool {
        if at <= self.acked {
            return false;
        }
        while self.under_way.front().is_some_and(|it| it.upto <= at) {
            let done = self.under_way.pop_front();
            self.entries -= done.as_ref().map_or(0, |it| it.entries);
            self.bytes -= done.as_ref().map_or(0, |it| it.bytes);
        }
        self.acked = at;
        // It may have been sent before sending went back.
        self.sent = self.sent.max(at);
        self.patience.on_progress(now_ms);
        true
    }

    /// The receiver has nothing after `at`: send again from there. Every Prepare behind a gap
    /// reports that gap; only one report in `pause_ms` is heard, or each would cost a resending.
    pub fn rewind(&mut self, at: LogPos, now_ms: u64, pause_ms: u64) -> bool {
        let heard = self.rewound.is_some_and(|(to, ms)| to == at && now_ms < ms + pause_ms);
        if at < self.acked || at >= self.sent || heard {
            return false;
        }
        while let Some(lost) = self.under_way.pop_back_if(|it| it.upto > at) {
            self.entries -= lost.entries;
            self.bytes -= lost.bytes;
        }
        self.sent = at;
        self.rewound = Some((at, now_ms));
        true
    }
}

/// When a silent receiver is asked again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Patience {
    /// When something was sent or acknowledged last.
    moved_ms: u64,
    /// How often the receiver was asked since the last progress.
    asked: u32,
}

impl Patience {
    pub fn new(now_ms: u64) -> Self {
        Self { moved_ms: now_ms, asked: 0 }
    }

    pub fn on_progress(&mut self, now_ms: u64) {
        *self = Self::new(now_ms);
    }

    /// Whether to ask now. The pause doubles up to eight times.
    pub fn is_over(&mut self, now_ms: u64, pause_ms: u64) -> bool {
        let over = now_ms >= self.moved_ms + (pause_ms << self.asked.min(3));
        if over {
            (self.moved_ms, self.asked) = (now_ms, self.asked + 1);
        }
        over
    }
}

/// Numbered messages that a receiver takes in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pieces {
    /// It has all before this one.
    pub taken: u64,
    /// The next to send.
    pub next: u64,
    pub patience: Patience,
}

impl Pieces {
    pub fn new(now_ms: u64) -> Self {
        Self { taken: 0, next: 0, patience: Patience::new(now_ms) }
    }

    /// The number to send now, if `most` may be under way and `made` exist.
    pub fn send(&mut self, most: usize, made: u64) -> Option<u64> {
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let due = self.next < made && self.next < self.taken.saturating_add(most);
        let number = self.next;
        self.next += u64::from(due);
        due.then_some(number)
    }

    /// It has all before `taken`. False when that was known.
    pub fn on_taken(&mut self, taken: u64, now_ms: u64) -> bool {
        if taken <= self.taken {
            return false;
        }
        self.taken = taken;
        self.next = self.next.max(taken);
        self.patience.on_progress(now_ms);
        true
    }

    /// Nothing moved for so long: send again from the first that it lacks. One piece, and the
    /// others when it is there: the receiver may be slow, and not have lost anything.
    pub fn rewind(&mut self, now_ms: u64, pause_ms: u64) -> bool {
        let over = self.patience.is_over(now_ms, pause_ms);
        if over {
            self.next = self.taken;
        }
        over
    }
}

impl Partition {
    /// A copy (or learner) has everything through `seq` on its disk.
    pub fn on_ack(&mut self, env: &mut Env, from: MemberId, pe: Epoch, seq: Seq) {
        let (last, now, sizes) = (self.replica.last, env.now.mono_ms, env.config.sizes);
        let Some(leading) = self.leading.as_mut().filter(|it| it.pe == pe) else {
            return;
        };
        let at = LogPos::new(pe, seq);
        if at > last {
            return;
        }
        if let Some(copy) = leading.copies.get_mut(&from.number).filter(|it| it.member == from) {
            let held_up = !copy.flow.has_room(&sizes);
            if copy.flow.on_acked(at, now) {
                copy.behind_ms = (at < last).then_some(now);
                leading.dirty |= held_up && copy.flow.sent < last;
            }
            self.advance_commit(env);
        } else if let Some(learner) = leading.learners.get_mut(&from.number) {
            let held_up = !learner.flow.has_room(&sizes);
            if learner.member == from && learner.flow.on_acked(at, now) {
                leading.dirty |= held_up && learner.flow.sent < last;
            }
            self.drive_wedge(env);
        }
    }

    /// A copy misses entries after `seq`.
    pub fn on_missing(&mut self, env: &mut Env, from: MemberId, pe: Epoch, seq: Seq) {
        let (number, now, pause_ms) = (self.number, env.now.mono_ms, env.config.timing.resend_ms);
        let Some(leading) = self.leading.as_mut().filter(|it| it.pe == pe && seq.0 > 0) else {
            return;
        };
        let at = LogPos::new(pe, seq);
        let copy = leading.copies.get_mut(&from.number).filter(|it| it.member == from);
        let learner = leading.learners.get_mut(&from.number);
        let learner = learner.filter(|it| it.member == from && at >= it.start);
        let flow = copy.map(|it| &mut it.flow).or(learner.map(|it| &mut it.flow));
        if flow.is_some_and(|it| it.rewind(at, now, pause_ms)) {
            leading.dirty = true;
            env.note(Transition::GapResent, Some(number));
        }
    }

    /// Sends what was appended since the last flush, as far as each receiver has room.
    pub fn flush(&mut self, env: &mut Env) {
        let (number, now, sizes) = (self.number, env.now.mono_ms, env.config.sizes);
        let Some(leading) = &mut self.leading else {
            return;
        };
        if !leading.dirty && leading.unhurried_ms.is_none_or(|due| now < due) {
            return;
        }
        leading.dirty = false;
        leading.unhurried_ms = None;
        // This disk counts as a copy: it must not be the one that everybody waits for.
        env.persist_now = true;
        let (committed, last) = (self.replica.committed, self.replica.last);
        let copies = leading.copies.iter_mut().map(|(to, it)| (*to, &mut it.flow));
        let learners = leading.learners.iter_mut().filter(|(_, it)| it.begun);
        let learners = learners.map(|(to, it)| (*to, &mut it.flow));
        for (to, flow) in copies.chain(learners) {
            while flow.sent.pe == leading.pe && flow.sent < last && flow.has_room(&sizes) {
                let Some((entries, bytes)) = self.replica.batch_after(flow.sent, &sizes) else {
                    break;
                };
                let Some(upto) = entries.last().map(|it| it.at) else {
                    break;
                };
                let (part, pe, after, count) = (number, leading.pe, flow.sent, entries.len());
                env.send(to, Message::Prepare { part, pe, committed, after, entries });
                flow.on_sent(upto, count, bytes, now);
            }
        }
    }

    /// Asks who stays silent how far it is, and suspects it in the end. The question is a Prepare
    /// with no entries after the last one that was sent: the receiver answers what it misses, or
    /// what is on its disk.
    pub fn tick_copies(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        let (resend_ms, suspect_ms) = (env.config.timing.resend_ms, env.config.timing.suspect_ms);
        let (part, committed) = (self.number, self.replica.committed);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let pe = leading.pe;
        for (number, copy) in &mut leading.copies {
            let Some(since) = copy.behind_ms else {
                continue;
            };
            if now >= since + suspect_ms {
                env.suspect(copy.member);
            }
            let flow = &mut copy.flow;
            let silent = flow.acked.pe == pe && flow.acked < flow.sent;
            if silent && flow.patience.is_over(now, resend_ms) {
                let (after, entries) = (flow.sent, Vec::new());
                env.send(*number, Message::Prepare { part, pe, committed, after, entries });
            }
        }
        self.resend_pieces(env);
        self.drive_sync(env);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seq: u64) -> LogPos {
        LogPos::new(Epoch(3), Seq(seq))
    }

    fn small() -> Sizes {
        Sizes { flight_entries: 4, flight_bytes: 100, ..Sizes::default() }
    }

    #[test]
    fn no_more_is_under_way_than_the_sizes_allow_until_it_is_acknowledged() {
        let mut flow = Flow::new(at(1), 0);
        flow.on_sent(at(3), 2, 60, 0);
        assert!(flow.has_room(&small()));
        flow.on_sent(at(4), 1, 60, 0);
        assert!(!flow.has_room(&small()), "120 bytes are under way");
        assert!(flow.on_acked(at(3), 5));
        assert!(flow.has_room(&small()));
        flow.on_sent(at(7), 3, 1, 6);
        assert!(!flow.has_room(&small()), "4 entries are under way");
        assert!(!flow.on_acked(at(3), 7), "that was known");
    }

    #[test]
    fn a_gap_is_sent_again_once_however_often_it_is_reported() {
        let mut flow = Flow::new(at(1), 0);
        for seq in 2..=4 {
            flow.on_sent(at(seq), 1, 40, 0);
        }
        assert!(flow.rewind(at(2), 10, 100));
        assert_eq!((flow.sent, flow.has_room(&small())), (at(2), true));
        flow.on_sent(at(4), 2, 80, 10);
        assert!(!flow.rewind(at(2), 11, 100), "the same gap, reported by a later Prepare");
        assert!(flow.rewind(at(2), 110, 100), "it was lost again");
        assert!(flow.on_acked(at(4), 120), "an earlier sending arrived after all");
        assert_eq!(flow.sent, at(4));
        assert!(!flow.rewind(at(3), 300, 100), "old news");
    }

    #[test]
    fn a_silent_receiver_is_asked_after_doubling_pauses() {
        let mut flow = Flow::new(at(1), 0);
        flow.on_sent(at(2), 1, 1, 0);
        let asked: Vec<u64> = (0..2_000).filter(|ms| flow.patience.is_over(*ms, 100)).collect();
        assert_eq!(asked, [100, 300, 700, 1500]);
        assert!(flow.on_acked(at(2), 2_000));
        assert!(!flow.patience.is_over(2_099, 100) && flow.patience.is_over(2_100, 100));
    }
}
