//! What runs on a node that is to be empty is closed, by the owner of each session. What its class says is not to be
//! disturbed is only waited for.
//!
//! Nothing is remembered of a drain but the node's entry in the registry: a new owner finds the
//! sessions in its records, and goes on. An owner looks through them in bounded steps, and only while
//! it has sessions of such a node; what it closes is what a client's close would close, so a node that
//! is silent, or a program that does not end, is dealt with in the same way. What is being opened there
//! is left alone until it runs: its caller is answered first.

use crate::log::at::At;
use crate::log::state::Log;
use rota_messages::DocKey;
use rota_model::{Disturb, NodeId, SessionSpec, SessionState};
use rota_ring::Spares;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Between two steps: what clients ask comes in between.
const STEP_MS: u64 = 20;

/// Between two looks for something to do, and between two rounds through the documents.
const ROUND_MS: u64 = 200;

/// After a whole round that found nothing to close, as long as nodes and their drains are the same: what is only waited
/// for may run for weeks.
const QUIET_MS: u64 = 1_000;

/// Most sessions that one step begins to close: about a millisecond.
const STEP_CLOSES_MAX: usize = 64;

/// How far an owner is with closing what runs on nodes that are drained.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Draining {
    pub(crate) next_ms: u64,
    /// The document after which looking goes on.
    pub after: Option<DocKey>,
    /// Sessions that it closes just now. Their number is bounded, so that a drain comes between what
    /// clients ask, and a node has no more to end at once.
    pub(crate) closing: BTreeSet<DocKey>,
    /// The nodes of this round, and what is spared there.
    nodes: BTreeMap<NodeId, Spares>,
    /// This round has found something to close.
    found: bool,
    /// Nothing is read until then.
    quiet_until_ms: u64,
}

impl Draining {
    /// The sessions that are to be closed in the next step, if it is time for one.
    pub fn next(&mut self, led: &At<'_>) -> Vec<DocKey> {
        let now = led.env.now.mono_ms;
        if !led.lead.is_open() || now < self.next_ms {
            return Vec::new();
        }
        self.next_ms = now + ROUND_MS;
        let nodes = led.env.nodes.to_close(led.env.now.wall_ms);
        if !nodes.keys().any(|it| led.log.replica.counts.session_counts.is_on(it)) {
            *self = Draining { next_ms: now + ROUND_MS, ..Draining::default() };
            return Vec::new();
        }
        if nodes != self.nodes {
            (self.nodes, self.quiet_until_ms) = (nodes.clone(), 0);
        }
        if now < self.quiet_until_ms {
            return Vec::new();
        }
        let replica = &led.log.replica;
        self.closing.retain(|key| {
            let brief = replica.get(key).and_then(|doc| doc.brief());
            brief.is_some_and(|it| it.state == SessionState::Closing)
        });
        self.next_ms = now + STEP_MS;
        let under_way = self.closing.len();
        let room = led.env.config.sizes.drain_closes.saturating_sub(under_way).min(STEP_CLOSES_MAX);
        if room == 0 || !led.may_begin() || led.backlog().is_some() {
            return Vec::new();
        }
        let (found, rest) = to_close_after(led, self.after.as_ref(), &nodes, room);
        self.closing.extend(found.iter().cloned());
        self.found |= !found.is_empty();
        if rest.is_none() {
            self.next_ms = now + ROUND_MS;
            let is_quiet = !std::mem::take(&mut self.found) && self.closing.is_empty();
            self.quiet_until_ms = if is_quiet { now + QUIET_MS } else { 0 };
        }
        self.after = rest;
        found
    }
}

/// Sessions that run on these nodes, of the documents that come next; and where to go on, unless
/// those were the last ones.
fn to_close_after(
    led: &At<'_>,
    after: Option<&DocKey>,
    nodes: &BTreeMap<NodeId, Spares>,
    most: usize,
) -> (Vec<DocKey>, Option<DocKey>) {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let docs = led.log.replica.docs.range::<DocKey, _>((from, Bound::Unbounded));
    let mut found = Vec::new();
    for (looked_at, (key, doc)) in docs.enumerate() {
        if doc.brief().is_some() {
            let brief = led.log.replica.get(key).and_then(|doc| doc.brief());
            let runs = brief.filter(|it| it.state == SessionState::Ready);
            let at = runs.and_then(|it| it.at.as_ref());
            let spares = at.and_then(|(node, _)| Some((node, *nodes.get(node)?)));
            let closes = spares.is_some_and(|(node, it)| !it.spares(disturb(led, key, node)));
            found.extend(closes.then(|| key.clone()));
        }
        if found.len() >= most || looked_at + 1 >= led.env.config.sizes.drain_docs {
            return (found, Some(key.clone()));
        }
    }
    (found, None)
}

/// Which orders may end a session that runs on a node.
fn disturb(led: &At<'_>, key: &DocKey, node: &NodeId) -> Disturb {
    let Some(record) = led.log.replica.session(key) else { return Disturb::default() };
    let SessionSpec { pool, class, .. } = &record.spec;
    let nodes = &led.env.nodes;
    if !nodes.knows_class(node, pool, class) {
        // Its text is gone. Who does not know asks first: `--force`, or a deadline.
        return Disturb::Never;
    }
    nodes.facts_there(node, pool, class).map(|it| it.disturb).unwrap_or_default()
}

/// Sessions that have not ended, by the node where they run or are to run, with everything that was
/// appended.
pub(crate) fn sessions_on_nodes(log: &Log) -> BTreeMap<NodeId, u64> {
    let mut counts = log.replica.counts.session_counts.by_node();
    for (key, (_, doc)) in &log.replica.latest {
        let before = log.replica.docs.get(key).and_then(|it| it.runs_on());
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
