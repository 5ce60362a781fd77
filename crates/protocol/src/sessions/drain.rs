//! What runs on a node that is to be empty is closed, by the owner of each session.
//!
//! Nothing is remembered of a drain but the node's entry in the registry: a new owner finds the
//! sessions in its records, and goes on. An owner looks through them in bounded steps, and only while
//! it has sessions of such a node; what it closes is what a client's close would close, so a node that
//! is silent, or a program that does not end, is dealt with in the same way. What is being opened there
//! is left alone until it runs: its caller is answered first.

use crate::log::env::Env;
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::sessions::request_ids::fail_opens;
use crate::sessions::state::Draining;
use rota_messages::DocKey;
use rota_model::{NodeId, Reason, SessionState};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Between two steps: what clients ask comes in between.
const STEP_MS: u64 = 20;

/// Between two looks for something to do, and between two rounds through the documents.
const ROUND_MS: u64 = 200;

/// Most sessions that one step begins to close: about a millisecond.
const STEP_CLOSES_MAX: usize = 64;

impl Partition {
    /// The next step, if it is time for one.
    pub fn tick_drain(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        let due = |it: &&mut Box<crate::partition::leading::Leading>| {
            it.lead.is_open() && now >= it.residents.sessions.drain.next_ms
        };
        let Some(leading) = self.leading.as_mut().filter(due) else { return };
        leading.residents.sessions.drain.next_ms = now + ROUND_MS;
        let nodes = env.nodes.to_close(env.now.wall_ms);
        if !nodes.iter().any(|it| self.replica.counts.census.is_on(it)) {
            leading.residents.sessions.drain =
                Draining { next_ms: now + ROUND_MS, ..Draining::default() };
            return;
        }
        let replica = &self.replica;
        leading.residents.sessions.drain.closing.retain(|key| {
            let brief = replica.get(key).and_then(|doc| doc.brief());
            brief.is_some_and(|it| it.state == SessionState::Closing)
        });
        leading.residents.sessions.drain.next_ms = now + STEP_MS;
        let under_way = leading.residents.sessions.drain.closing.len();
        let room = env.config.sizes.drain_closes.saturating_sub(under_way).min(STEP_CLOSES_MAX);
        if room == 0 || !self.may_begin(env) || self.backlog(env).is_some() {
            return;
        }
        let (found, rest) = self.to_close_after(env, &nodes, room);
        for key in &found {
            self.close_drained(env, key);
        }
        if let Some(leading) = &mut self.leading {
            leading.residents.sessions.drain.closing.extend(found);
            if rest.is_none() {
                leading.residents.sessions.drain.next_ms = now + ROUND_MS;
            }
            leading.residents.sessions.drain.after = rest;
        }
    }

    /// Sessions that run on these nodes, of the documents that come next; and where to go on, unless
    /// those were the last ones.
    fn to_close_after(
        &self,
        env: &Env,
        nodes: &BTreeSet<NodeId>,
        most: usize,
    ) -> (Vec<DocKey>, Option<DocKey>) {
        let after = self.leading.as_ref().and_then(|it| it.residents.sessions.drain.after.as_ref());
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let docs = self.replica.docs.range::<DocKey, _>((from, Bound::Unbounded));
        let mut found = Vec::new();
        for (looked_at, (key, doc)) in docs.enumerate() {
            if doc.brief().is_some() {
                let brief = self.replica.get(key).and_then(|doc| doc.brief());
                let runs = brief.filter(|it| it.state == SessionState::Ready);
                let at = runs.and_then(|it| it.at.as_ref());
                found.extend(at.filter(|(node, _)| nodes.contains(node)).map(|_| key.clone()));
            }
            if found.len() >= most || looked_at + 1 >= env.config.sizes.drain_docs {
                return (found, Some(key.clone()));
            }
        }
        (found, None)
    }

    fn close_drained(&mut self, env: &mut Env, key: &DocKey) {
        let Some(mut record) = self.replica.session(key).cloned() else { return };
        let node = record.placement.as_ref().map(|it| it.node.to_string()).unwrap_or_default();
        record.version = self.version_after(env, &record);
        record.state = SessionState::Closing;
        record.reason = Some(Reason::Drained);
        record.detail = format!("node {node} is drained");
        fail_opens(&mut record);
        env.note(Transition::SessionDrained, Some(self.number));
        let session = record.key.clone();
        self.write_session(env, key, record, None);
        if let Some(leading) = &mut self.leading {
            let work = leading.residents.sessions.work.entry(session).or_default();
            (work.ask_ms, work.asked) = (0, 0);
        }
    }

    /// Sessions that have not ended, by the node where they run or are to run, with everything that was
    /// appended.
    pub fn sessions_on_nodes(&self) -> BTreeMap<NodeId, u64> {
        let mut counts = self.replica.counts.census.by_node();
        for (key, (_, doc)) in &self.replica.latest {
            let before = self.replica.docs.get(key).and_then(|it| it.runs_on());
            let after = doc.as_ref().and_then(|it| it.runs_on());
            if let Some(count) = before.and_then(|it| counts.get_mut(it)) {
                *count = count.saturating_sub(1);
            }
            if let Some(node) = after {
                *counts.entry(node.clone()).or_default() += 1;
            }
        }
        counts.retain(|_, count| *count > 0);
        counts
    }
}
