//! An owner sends its log to copies and learners, takes acknowledgements, sends gaps again and suspects who is
//! silent. How much may be under way stands in [`crate::log::progress`].

use crate::log::env::Env;
use crate::log::lead::{Lead, Next};
use crate::log::state::Log;
use crate::ports::note::Transition;
use rota_messages::Message;
use rota_model::{Epoch, LogPos, MemberId, Seq};

impl Lead {
    /// A copy (or learner) has everything through `seq` on its disk.
    pub fn on_ack(&mut self, env: &Env, log: &Log, from: MemberId, pe: Epoch, seq: Seq) -> Next {
        let (last, now, sizes) = (log.replica.last, env.now.mono_ms, env.config.sizes);
        let at = LogPos::new(pe, seq);
        if self.pe != pe || at > last {
            return Next::Nothing;
        }
        if let Some(copy) = self.copies.get_mut(&from.number).filter(|it| it.member == from) {
            let held_up = !copy.flow.has_room(&sizes);
            if copy.flow.on_acked(at, now) {
                copy.behind_ms = (at < last).then_some(now);
                self.unsent.dirty |= held_up && copy.flow.sent < last;
            }
            Next::Advance
        } else if let Some(learner) = self.newcomers.learners.get_mut(&from.number) {
            let held_up = !learner.flow.has_room(&sizes);
            if learner.member == from && learner.flow.on_acked(at, now) {
                self.unsent.dirty |= held_up && learner.flow.sent < last;
            }
            Next::Wedge
        } else {
            Next::Nothing
        }
    }

    /// A copy misses entries after `seq`.
    pub fn on_missing(&mut self, env: &mut Env, log: &Log, from: MemberId, pe: Epoch, seq: Seq) {
        let (number, now, pause_ms) = (log.number, env.now.mono_ms, env.config.timing.resend_ms);
        if self.pe != pe || seq.0 == 0 {
            return;
        }
        let at = LogPos::new(pe, seq);
        let copy = self.copies.get_mut(&from.number).filter(|it| it.member == from);
        let learner = self.newcomers.learners.get_mut(&from.number);
        let learner = learner.filter(|it| it.member == from && at >= it.start);
        let flow = copy.map(|it| &mut it.flow).or(learner.map(|it| &mut it.flow));
        if flow.is_some_and(|it| it.rewind(at, now, pause_ms)) {
            self.unsent.dirty = true;
            env.note(Transition::GapResent, Some(number));
        }
    }

    /// Sends what was appended since the last flush, as far as each receiver has room.
    pub fn flush(&mut self, env: &mut Env, log: &Log) {
        let (number, now, sizes) = (log.number, env.now.mono_ms, env.config.sizes);
        if !self.unsent.dirty && self.unsent.due_ms.is_none_or(|due| now < due) {
            return;
        }
        self.unsent.dirty = false;
        self.unsent.due_ms = None;
        // This disk counts as a copy: it must not be the one that everybody waits for.
        env.disk.persist_now = true;
        let (committed, last) = (log.replica.committed, log.replica.last);
        let copies = self.copies.iter_mut().map(|(to, it)| (*to, &mut it.flow));
        let learners = self.newcomers.learners.iter_mut().filter(|(_, it)| it.begun);
        let learners = learners.map(|(to, it)| (*to, &mut it.flow));
        for (to, flow) in copies.chain(learners) {
            while flow.sent.pe == self.pe && flow.sent < last && flow.has_room(&sizes) {
                let Some((entries, bytes)) = log.replica.batch_after(flow.sent, &sizes) else {
                    break;
                };
                let Some(upto) = entries.last().map(|it| it.at) else {
                    break;
                };
                let (part, pe, after, count) = (number, self.pe, flow.sent, entries.len());
                env.send(to, Message::Prepare { part, pe, committed, after, entries });
                flow.on_sent(upto, count, bytes, now);
            }
        }
    }

    /// Asks who stays silent how far it is, and suspects it in the end. The question is a Prepare
    /// with no entries after the last one that was sent: the receiver answers what it misses, or
    /// what is on its disk.
    pub fn tick_copies(&mut self, env: &mut Env, log: &Log) {
        let now = env.now.mono_ms;
        let (resend_ms, suspect_ms) = (env.config.timing.resend_ms, env.config.timing.suspect_ms);
        let (part, committed) = (log.number, log.replica.committed);
        let pe = self.pe;
        for (number, copy) in &mut self.copies {
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
        self.resend_pieces(env, log);
    }
}
