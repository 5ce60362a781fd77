//! Everything that waits in a manager, and until when. Each entry has a deadline; an observer (the
//! simulator) checks that none is passed for long.

use crate::log::env::Env;
use crate::partition::leading::{Leading, Phase};
use crate::partition::state::Partition;
use crate::ports::wait::Wait;

impl Partition {
    pub(crate) fn waits(&self, env: &Env, now_ms: u64) -> Vec<Wait> {
        let mut waits = vec![Wait::new("settled refusals", now_ms, self.settled.deadlines())];
        let Some(leading) = &self.leading else {
            return waits;
        };
        waits.push(Wait::new(
            "requests at the owner",
            now_ms,
            leading.inbox.live.values().map(|it| it.deadline_ms),
        ));
        waits.push(Wait::new("renewals", now_ms, leading.residents.leases.deadlines()));
        // A wait of a request ends with the request: one that is gone should wait nowhere.
        let nowhere = |table, origins: Vec<&crate::log::origin::Origin>| {
            let left = origins.into_iter().filter(|it| !leading.inbox.live.contains_key(it));
            Wait::new(table, now_ms, left.map(|_| 0))
        };
        waits.push(nowhere("queue", leading.inbox.queue.iter().collect()));
        waits.push(nowhere("room", leading.residents.sessions.capacity.waiting.iter().collect()));
        waits.push(nowhere(
            "promises",
            leading.inbox.promised.iter().map(|it| &it.origin).collect(),
        ));
        let reads = &leading.rounds;
        waits.push(nowhere("reads", reads.next.iter().chain(&reads.now).collect()));
        waits.push(nowhere("pulls", leading.residents.sessions.pulls.iter().collect()));
        waits.push(nowhere("follows", leading.residents.documents.follows.iter().collect()));
        waits.push(nowhere("operations", leading.residents.documents.runs.keys().collect()));
        let outside = leading
            .residents
            .documents
            .runs
            .values()
            .filter_map(crate::documents::state::Waiting::until_ms);
        waits.push(Wait::new("operations at work", now_ms, outside));
        let waiters = leading.residents.sessions.work.values().flat_map(|it| &it.waiters);
        waits.push(nowhere("waiters of ids", waiters.collect()));
        if leading.lead.is_open() {
            // What is not committed waits for its copies: the node is asked after that.
            let work = leading.residents.sessions.work.iter();
            let work = work
                .filter(|(it, _)| !self.replica.latest.contains_key(&Partition::key_of(env, it)));
            let asked = work.map(|(_, it)| it.ask_ms.max(leading.lead.since_ms));
            waits.push(Wait::new("ids in progress", now_ms, asked));
        }
        waits.extend(wedge(leading, now_ms));
        waits
    }
}

/// A wedge ends, unless a compare-and-set may still land.
fn wedge(leading: &Leading, now_ms: u64) -> Option<Wait> {
    let Phase::Wedged { since_ms, asked: false } = leading.lead.phase else {
        return None;
    };
    Some(Wait::new("wedge", now_ms, std::iter::once(since_ms + crate::log::learner::WEDGE_MS)))
}
