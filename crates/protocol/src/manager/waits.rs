//! Everything that waits in a manager, and until when. Each entry has a deadline; an observer (the
//! simulator) checks that none is passed for long.

use crate::log::env::Env;
use crate::log::lead::{Lead, Phase};
use crate::log::state::Log;
use crate::partition::state::Leader;
use crate::ports::wait::Wait;
use crate::sessions::read::key_of;

impl Leader {
    pub(crate) fn waits(&self, env: &Env, log: &Log, now_ms: u64) -> Vec<Wait> {
        let deadlines = self.inbox.live.values().map(|asked| asked.deadline_ms);
        let mut waits = vec![Wait::new("requests at the owner", now_ms, deadlines)];
        // A wait of a request ends with the request: one that is gone should wait nowhere.
        let nowhere = |table, origins: Vec<&crate::log::origin::Origin>| {
            let left = origins.into_iter().filter(|it| !self.inbox.live.contains_key(it));
            Wait::new(table, now_ms, left.map(|_| 0))
        };
        waits.push(nowhere("queue", self.inbox.queue.iter().collect()));
        waits.push(nowhere("room", self.residents.sessions.capacity.waiting.iter().collect()));
        waits.push(nowhere(
            "promises",
            self.inbox.pending_replies.iter().map(|it| &it.origin).collect(),
        ));
        let reads = &self.rounds;
        waits.push(nowhere("reads", reads.next.iter().chain(&reads.now).collect()));
        waits.push(nowhere("pulls", self.residents.sessions.watches.pulls.iter().collect()));
        waits.push(nowhere("looks", self.residents.sessions.looks.origins().collect()));
        waits.push(nowhere("watches", self.residents.documents.watches.polls.iter().collect()));
        waits.push(nowhere("follows", self.residents.documents.follows.iter().collect()));
        waits.push(nowhere("searches", self.residents.searches.origins().collect()));
        waits.push(nowhere("operations", self.residents.documents.runs.keys().collect()));
        let outside = self
            .residents
            .documents
            .runs
            .values()
            .filter_map(crate::documents::waiting::Waiting::until_ms);
        waits.push(Wait::new("operations at work", now_ms, outside));
        let waiters = self.residents.sessions.work.ids.values().flat_map(|it| &it.waiters);
        waits.push(nowhere("waiters of ids", waiters.collect()));
        if self.lead.is_open() {
            // What is not committed waits for its copies: the node is asked after that.
            let work = self.residents.sessions.work.ids.iter();
            let work = work.filter(|(it, _)| !log.replica.latest.contains_key(&key_of(env, it)));
            let asked = work.map(|(_, it)| it.ask_ms.max(self.lead.since_ms));
            waits.push(Wait::new("ids in progress", now_ms, asked));
        }
        waits.extend(wedge(&self.lead, now_ms));
        waits
    }
}

/// A wedge ends, unless a compare-and-set may still land.
fn wedge(lead: &Lead, now_ms: u64) -> Option<Wait> {
    let Phase::Wedged { since_ms, asked: false } = lead.phase else {
        return None;
    };
    Some(Wait::new("wedge", now_ms, std::iter::once(since_ms + crate::log::learner::WEDGE_MS)))
}
