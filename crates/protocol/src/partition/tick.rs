//! The tick of a partition.

use crate::log::env::Env;
use crate::partition::leading::Phase;
use crate::partition::state::Partition;

impl Partition {
    /// Whether something here waits for time to pass, or goes on with each tick.
    pub fn is_busy(&self, env: &Env) -> bool {
        let Some(it) = &self.leading else { return self.is_to_be_dropped(env) };
        // Who follows the namespaces always waits, and for nothing that time brings.
        it.inbox.live.len() > it.residents.documents.follows.len()
            || !it.residents.sessions.work.is_empty()
            || !it.lead.newcomers.learners.is_empty()
            || !it.lead.newcomers.missing.is_empty()
            || it.residents.sessions.drain.after.is_some()
            || !matches!(it.lead.phase, Phase::Serving)
    }

    /// Time passed.
    pub fn tick(&mut self, env: &mut Env) {
        self.settled.forget(env.now.mono_ms);
        if self.leading.is_none() {
            self.drop_former_copy(env);
            return;
        }
        self.expire(env);
        self.drive_scan(env);
        self.tick_copies(env);
        self.tick_learners(env);
        self.tick_work(env);
        self.call_silent_nodes(env);
        self.tick_drain(env);
        self.tick_room(env);
        self.expire_pulls(env);
        self.serve_follows(env);
        self.tick_runs(env);
        let Some(leading) = &self.leading else { return };
        if !leading.inbox.queue.is_empty() && self.may_begin(env) {
            self.drain_queue(env);
        }
        self.forget_old(env);
    }
}
