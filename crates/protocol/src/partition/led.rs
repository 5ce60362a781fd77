//! What the owner does when its log moves: commits, and what they set going.

use crate::log::at::At;
use crate::log::lead::{Next, Phase};
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::log::resident::{Late, Turn};
use crate::log::sync::SyncStart;
use crate::partition::residents::Residents;
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use rota_messages::{DocKey, OpResult};
use rota_model::{Refusal, RefusalKind, Retry};
use std::collections::BTreeSet;

/// A partition that this manager owns, with everything of it that changes apart.
pub(crate) struct Led<'a, R = Residents> {
    /// The log, and the requests that wait for it.
    pub at: At<'a>,
    pub residents: &'a mut R,
}

impl<R: RequestHandler> Led<'_, R> {
    /// Goes on with what the log asks for when a message or time has moved it.
    pub fn go_on(&mut self, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Advance => self.advance_commit(),
            Next::Wedge => self.drive_wedge(),
            Next::Sync => self.drive_sync(),
        }
    }

    /// Commits what the whole ISR, this manager's disk included, has acknowledged; then answers
    /// what was promised for it.
    pub fn advance_commit(&mut self) {
        let At { env, log, lead, .. } = &mut self.at;
        let Some(at) = lead.committable(log) else { return };
        // What is found again is acted on when the View says that it is all.
        if let Phase::Recover(_) = lead.phase {
            log.replica.commit_to(at, &env.config.sizes);
            return lead.write_more(env, log);
        }
        let events = log.replica.events_through(at, env.clock());
        let done = log.replica.commit_to(at, &env.config.sizes);
        if !events.is_empty() {
            env.effects.push(Effect::Events(events));
        }
        for reply in self.at.take_committed(at) {
            self.release(reply);
        }
        if self.at.lead.is_synced(at) {
            self.start_serving();
        }
        let writes = done.iter().flat_map(|entry| entry.writes.iter());
        let keys: BTreeSet<&DocKey> = writes.map(|write| &write.key).collect();
        for key in keys {
            self.residents.committed(&mut self.at, key);
        }
        self.residents.advanced(&mut self.at);
        self.drive_wedge();
    }

    fn start_serving(&mut self) {
        let At { env, log, lead, .. } = &mut self.at;
        lead.serve(env.now.mono_ms);
        env.note(Transition::Serving, Some(log.number));
        self.residents.serve(&mut self.at);
        self.drain_queue();
    }

    /// Runs everything that waited for the partition to serve.
    pub fn drain_queue(&mut self) {
        for origin in std::mem::take(&mut self.at.inbox.queue) {
            self.residents.run(&mut self.at, origin);
        }
    }

    /// Goes on with a Sync as far as the reports allow.
    pub fn drive_sync(&mut self) {
        let At { env, log, lead, .. } = &mut self.at;
        let Some(start) = lead.reports_are_in(env, log) else { return };
        let SyncStart { at, found: mut writes, reports } = start;
        writes.extend(self.residents.first_writes(env, log, &writes));
        lead.begin_epoch(env, log, (at, writes), reports);
        self.advance_commit();
    }

    /// Wedges when a learner is close; gives a wedge up that leads nowhere.
    pub fn drive_wedge(&mut self) {
        let At { env, log, lead, .. } = &mut self.at;
        if lead.drive_wedge(env, log) {
            self.residents.unwedged(&mut self.at);
            self.drain_queue();
        }
    }

    /// What was wanted of the View certainly did not happen and never will.
    pub fn on_desire_failed(&mut self) {
        if self.at.lead.on_desire_failed(self.at.env.now.mono_ms) {
            self.on_nobody_added();
        }
        self.drive_wedge();
    }

    /// Goes on with finding out what must be known before the log may begin.
    pub fn find_out(&mut self) {
        let next = self.residents.find_out(&mut self.at);
        self.go_on(next);
    }

    /// Time passed, and deadlines were looked at.
    pub fn tick(&mut self) {
        let At { env, log, lead, .. } = &mut self.at;
        lead.tick_copies(env, log);
        self.drive_sync();
        let At { env, log, lead, .. } = &mut self.at;
        lead.tick_learners(env, log);
        self.drive_wedge();
        self.residents.tick(&mut self.at, Turn::Ask);
        self.residents.tick(&mut self.at, Turn::Rest);
        if !self.at.inbox.queue.is_empty() && self.at.may_begin() {
            self.drain_queue();
        }
        self.residents.tick(&mut self.at, Turn::Last);
    }

    /// Requests whose deadline passed are told how far they got. All of them in one pass over
    /// everything that waits: there may be very many.
    pub fn expire(&mut self) {
        let now = self.at.env.now.mono_ms;
        let late = self.at.inbox.live.iter().filter(|(_, asked)| now >= asked.deadline_ms);
        let all: BTreeSet<Origin> = late.map(|(origin, _)| *origin).collect();
        if !all.is_empty() {
            let queued = self.at.inbox.queue.iter().filter(|origin| all.contains(origin));
            let queued = queued.copied().collect();
            for (origin, result) in self.unfinished(&Late { all, queued }) {
                self.residents.reply(&mut self.at, origin, result);
            }
            let live = &self.at.inbox.live;
            let is_there = |origin: &Origin| live.contains_key(origin);
            self.at.inbox.queue.retain(is_there);
            self.at.inbox.pending_replies.retain(|reply| is_there(&reply.origin));
            self.residents.retain(&is_there);
        }
        let live = &self.at.inbox.live;
        self.at.rounds.forget(|origin| live.contains_key(origin));
        self.residents.tick(&mut self.at, Turn::Expired);
    }

    /// What the requests are told whose deadline passed.
    fn unfinished(&self, late: &Late) -> Vec<(Origin, OpResult)> {
        if self.at.lead.reads() {
            let mut told = self.residents.unfinished(&self.at, late);
            let unknown = || Err(self.at.too_late("nobody knows what it waits for"));
            return late
                .all
                .iter()
                .map(|it| (*it, told.remove(it).unwrap_or_else(unknown)))
                .collect();
        }
        let text = format!("partition {} is not serving yet", self.at.log.number);
        let retry = Retry::AfterMs(self.at.env.config.timing.retry_ms);
        // An earlier phase may have begun it already.
        let refusal = Refusal::unknown_outcome(RefusalKind::NotServing, retry, text);
        late.all.iter().map(|origin| (*origin, Err(refusal.clone()))).collect()
    }
}
