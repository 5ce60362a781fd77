//! Linearizable reads: a confirm round with the other copies, shared by all that wait; a lone copy
//! reads the config store. Only committed documents are shown, and a READY that may be told early
//! ([`crate::sessions::version`]): by a read, a list, the snapshot of a watch.

use crate::log::at::At;
use crate::log::backlog::LOST_AFTER;
use crate::log::env::ReadFor;
use crate::log::lead::Phase;
use crate::log::origin::Origin;
use crate::log::requests::PendingReply;
use crate::log::resident::RequestHandler;
use crate::log::resident::RoundEnd;
use crate::partition::led::Led;
use crate::ports::note::Transition;
use rota_model::{Changed, ManagerNumber, Refusal, RefusalKind, Retry};
use std::collections::BTreeSet;

impl<R: RequestHandler> Led<'_, R> {
    /// Whether a confirm round should begin.
    pub fn wants_round(&self) -> bool {
        let At { env, rounds, .. } = &self.at;
        let is_due = env.now.mono_ms >= rounds.again_ms;
        rounds.round.is_none()
            && (!rounds.next.is_empty()
                || self.residents.wants_round()
                || is_due && self.at.has_unproven(self.at.log.replica.committed))
    }

    /// Begins a round when somebody waits and none is under way. Gives the peers to ask.
    pub fn begin_round(&mut self, round: u64) -> Vec<ManagerNumber> {
        if !self.wants_round() {
            return Vec::new();
        }
        let At { env, log, lead, rounds, .. } = &mut self.at;
        rounds.proves = log.replica.committed;
        rounds.unread_since_ms.take_if(|_| !env.store.is_away);
        let mut peers: BTreeSet<ManagerNumber> = lead.copies.keys().copied().collect();
        // Whoever gives a partition up may be out already, and its copies with it.
        if matches!(lead.phase, Phase::Recover(_)) {
            peers.clear();
        }
        // Without copies the config store is read, which names whoever was added.
        if !peers.is_empty() {
            peers.extend(lead.wedge.adding.keys());
        }
        rounds.now = std::mem::take(&mut rounds.next);
        self.residents.round_begins();
        rounds.sent_ms = env.now.mono_ms;
        if peers.is_empty() {
            env.store.reads_wanted.push((log.number, ReadFor::Round(round)));
        }
        let asked = peers.iter().copied().collect();
        rounds.round = Some((round, peers));
        asked
    }

    /// A copy knows this partition under this epoch.
    pub fn on_confirmed(&mut self, from: ManagerNumber, round: u64) {
        let Some((under_way, missing)) = &mut self.at.rounds.round else { return };
        if *under_way == round && missing.remove(&from) && missing.is_empty() {
            self.finish_round();
        }
    }

    /// The config store was read after that round began, and still names this epoch. A read that began
    /// before another round says nothing of what waits for that.
    pub fn on_config_read(&mut self, round: u64, reached: bool) {
        let under_way = self.at.rounds.round.as_ref();
        if !under_way.is_some_and(|(it, missing)| *it == round && missing.is_empty()) {
            return;
        }
        if reached {
            return self.finish_round();
        }
        self.at.rounds.round = None;
        let waiting = std::mem::take(&mut self.at.rounds.now);
        self.on_unread();
        self.residents.round_ended(&mut self.at, RoundEnd::Unread);
        for origin in waiting {
            let retry = Retry::AfterMs(self.at.env.config.timing.retry_ms);
            let text = "the only copy must read the config store first, and cannot reach it";
            let refusal = Refusal::new(RefusalKind::ConfigStoreAway, retry, text);
            self.residents.reply(&mut self.at, origin, Err(refusal));
        }
    }

    /// Who was to be added was not: a round needs no word of theirs any more.
    pub fn on_nobody_added(&mut self) {
        let At { lead, rounds, .. } = &mut self.at;
        lead.wedge.adding.clear();
        let Some((_, missing)) = &mut rounds.round else { return };
        let waited = !missing.is_empty();
        missing.retain(|number| lead.copies.contains_key(number));
        if waited && missing.is_empty() {
            self.finish_round();
        }
    }

    fn finish_round(&mut self) {
        self.at.rounds.round = None;
        let (reads, proves) = (self.at.lead.reads(), self.at.rounds.proves);
        let waiting = std::mem::take(&mut self.at.rounds.now);
        // The config store was read since everything up to there was committed, and names this owner.
        for reply in self.at.take_unproven(proves) {
            self.release(reply);
        }
        self.residents.round_ended(&mut self.at, RoundEnd::Confirmed);
        for origin in waiting.into_iter().filter(|_| reads) {
            self.on_read_confirmed(origin);
        }
    }

    /// A read may be answered: nobody else owned the partition when it arrived.
    fn on_read_confirmed(&mut self, origin: Origin) {
        let Some(op) = self.at.inbox.live.get(&origin).map(|asked| asked.op.clone()) else {
            return;
        };
        self.at.env.note(Transition::ReadConfirmed, Some(self.at.log.number));
        self.residents.confirmed(&mut self.at, origin, op);
    }

    /// The config store could not be read. It may be back in a moment, so answers wait a little: for as
    /// long as new work does where a copy is lost.
    fn on_unread(&mut self) {
        let At { env, rounds, .. } = &mut self.at;
        let (now, timing) = (env.now.mono_ms, &env.config.timing);
        let (retry_ms, patience_ms) = (timing.retry_ms, timing.suspect_ms * LOST_AFTER);
        // Where nothing was asked of it for so long, it may have been back in between.
        let is_over = now >= rounds.again_ms + patience_ms;
        rounds.unread_since_ms.take_if(|_| is_over);
        rounds.again_ms = now + retry_ms;
        let since = *rounds.unread_since_ms.get_or_insert(now);
        let proves = rounds.proves;
        if now < since + patience_ms {
            return;
        }
        for mut reply in self.at.take_unproven(proves) {
            let retry = Retry::AfterMs(retry_ms);
            let text = "it is written, but the only copy must read the config store before it says so, and \
                        cannot reach it";
            let refusal = Refusal::new(RefusalKind::ConfigStoreAway, retry, text);
            reply.result = Err(Refusal { changed: Changed::Unknown, ..refusal });
            self.release(reply);
        }
    }

    /// A promise is kept.
    pub(crate) fn release(&mut self, reply: PendingReply) {
        let PendingReply { origin, result, .. } = reply;
        self.residents.forget(&origin);
        self.at.reply(origin, result);
    }
}
