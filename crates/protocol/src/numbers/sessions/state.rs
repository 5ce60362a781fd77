//! What a partition has beside its log, for stable numbers of sessions: who is to be told of its own, and which
//! documents of numbers it keeps.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::internal::{Internal, InternalRequest};
use crate::log::lead::Phase;
use crate::log::origin::Origin;
use crate::log::resident::{Late, RequestHandler, Resident, Turn};
use crate::numbers::sessions::look::Look;
use rota_ids::{Group, Name};
use rota_messages::{DocKey, Op, OpResult};
use rota_model::items::{SESSION_CLASS, SESSION_NUMBERS_CLASS};
use rota_model::{NodeId, NumbersOp, PoolName, SESSION_NUMBERS_MAX, SessionKey, SessionsThere};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Between two steps: what changes meanwhile on a node is told together. Longer, and a new session is shown without
/// a number for longer. Shorter, and each open costs a report.
const STEP_MS: u64 = 200;

/// Between two reports of one node. Each may write all of its numbers, some ten KiB: with many opens a second, that
/// is what numbers cost.
const REST_MS: u64 = 1_000;

/// All nodes are reported so often, whatever changed: it puts right what a lost report left.
const ALL_MS: u64 = 300_000;

/// Between two looks for numbers that are outdated, or whose node is gone.
const SWEEP_MS: u64 = 5_000;

/// How long a new owner waits before it takes a node for gone that its registry does not name.
const FIRST_SWEEP_MS: u64 = 60_000;

/// Most nodes that one look is about, and most reports that wait for an answer.
const NODES_MAX: usize = 16;

/// How long a report may take. After that the node is reported anew.
const DEADLINE_MS: u64 = 4_000;

/// What a partition is about to tell of its own sessions, and which numbers it keeps. Empty where sessions get none.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct SessionNumbering {
    /// Nodes of whose sessions something changed.
    changed: BTreeSet<NodeId>,
    look: Option<Look>,
    /// Nodes whose report is not answered.
    asked: BTreeSet<NodeId>,
    /// Nodes that were reported, and when they may be again.
    resting: BTreeMap<NodeId, u64>,
    /// The documents of numbers that lie here.
    pub(super) kept: BTreeMap<DocKey, Kept>,
    /// No step, no report of all and no sweep before.
    next_ms: u64,
    all_ms: u64,
    sweep_ms: u64,
    /// It looked through the partition, and so knows the documents that lie here.
    has_looked: bool,
}

/// A document of numbers that lies here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Kept {
    pub pool: PoolName,
    pub node: NodeId,
    /// When the next of its entries is outdated, in milliseconds since 1970.
    pub outdated_wall_ms: Option<u64>,
    /// Some of it says that a session runs there.
    pub is_valid: bool,
}

impl SessionNumbering {
    fn is_on(env: &Env) -> bool {
        env.config.numbers.is_some_and(|it| it.sessions)
    }

    /// Looks through the partition for what runs on nodes of which something changed, a part in each step, and
    /// tells of it.
    fn look_on(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        if now >= self.all_ms {
            self.all_ms = now + ALL_MS;
            let nodes = led.env.nodes.reg.values().filter(|it| !it.is_forgotten());
            self.changed.extend(nodes.map(|it| it.node.clone()));
        }
        let Some(mut look) = self.look.take().or_else(|| self.next_look(now)) else { return };
        for key in look.step(&led.log.replica) {
            self.learn(led, &key);
        }
        match look.ended() {
            Ok(found) => found.into_iter().for_each(|(node, there)| self.report(led, node, there)),
            Err(look) => self.look = Some(look),
        }
    }

    fn next_look(&mut self, now_ms: u64) -> Option<Look> {
        self.resting.retain(|_, until_ms| *until_ms > now_ms);
        let room = NODES_MAX.saturating_sub(self.asked.len());
        let is_free = |it: &&NodeId| !self.asked.contains(*it) && !self.resting.contains_key(*it);
        let free = self.changed.iter().filter(is_free).take(room);
        let nodes: Vec<NodeId> = free.cloned().collect();
        self.changed.retain(|it| !nodes.contains(it));
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        (is_first || !nodes.is_empty()).then(|| Look::at(nodes))
    }

    /// Tells whoever keeps the numbers of a node what runs there. One that nobody knows has no number, and its
    /// sessions have none.
    fn report(&mut self, led: &mut At<'_>, node: NodeId, mut sessions: Vec<SessionKey>) {
        let Some(reg) = led.env.nodes.reg.get(&node).filter(|it| !it.is_forgotten()) else {
            return;
        };
        let pool = reg.pool.clone();
        sessions.truncate(SESSION_NUMBERS_MAX);
        let (pe, range) = (led.lead.pe, led.log.range);
        let there = Some(SessionsThere { pe, range, sessions });
        let op = Op::Numbers(NumbersOp { pool, node: node.clone(), there });
        let deadline_ms = led.env.now.mono_ms + DEADLINE_MS;
        let inner = Internal::Numbers { part: led.log.number, node: node.clone() };
        led.env.router.asked.push(InternalRequest { inner, op, deadline_ms });
        self.resting.insert(node.clone(), led.env.now.mono_ms + REST_MS);
        self.asked.insert(node);
    }

    /// A report was answered. A refused one is made anew.
    pub fn on_reported(&mut self, node: &NodeId, result: &OpResult) {
        if self.asked.remove(node) && result.is_err() {
            self.changed.insert(node.clone());
        }
    }

    /// The numbers of whose sessions a document holds.
    pub(super) fn group_of(key: &DocKey) -> Option<Group> {
        match Name::parse(key.name.docid()) {
            Ok(Name::Entry(node)) => Some(crate::ports::number_keys::sessions_of(node.uuid)),
            Ok(Name::Last(_)) | Err(_) => None,
        }
    }
}

impl Resident for SessionNumbering {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self::default()
    }

    fn committed(&mut self, led: &mut At<'_>, key: &DocKey) {
        if !Self::is_on(led.env) {
            return;
        }
        if key.name.class() == SESSION_CLASS {
            let doc = led.log.replica.docs.get(key);
            let placement = doc.and_then(|it| it.session()?.placement.as_ref());
            self.changed.extend(placement.map(|it| it.node.clone()));
        } else if key.name.class() == SESSION_NUMBERS_CLASS {
            self.learn(led, key);
        }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        let now = led.env.now.mono_ms;
        if turn != Turn::Rest || !Self::is_on(led.env) || now < self.next_ms || !led.may_begin() {
            return;
        }
        self.next_ms = now + STEP_MS;
        self.look_on(led);
        if self.sweep_ms == 0 {
            // The registry here may be older than a node whose numbers lie here.
            self.sweep_ms = now + FIRST_SWEEP_MS;
        } else if now >= self.sweep_ms && !led.env.store.is_away {
            self.sweep_ms = now + SWEEP_MS;
            self.sweep(led);
        }
    }

    fn step_down(&mut self, env: &mut Env) {
        for group in self.kept.keys().filter_map(Self::group_of) {
            Arc::make_mut(&mut env.numbers.of_sessions).learn_group(&group, []);
        }
        *self = Self::default();
    }
}

impl RequestHandler for SessionNumbering {
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        let Op::Numbers(op) = op else { return };
        match &op.there {
            Some(there) if led.may_begin() => {
                self.on_report(led, origin, (&op.pool, &op.node), there)
            }
            None if led.lead.reads() => self.on_question(led, origin, (&op.pool, &op.node)),
            Some(_) | None => led.enqueue(origin),
        }
    }

    fn confirmed(&mut self, _: &mut At<'_>, _: Origin, _: Op) {}

    fn unfinished(&self, led: &At<'_>, late: &Late) -> BTreeMap<Origin, OpResult> {
        let is_mine = |origin: &&Origin| {
            let asked = led.inbox.live.get(origin);
            asked.is_some_and(|asked| matches!(asked.op, Op::Numbers(_)))
        };
        let told =
            || Err(led.too_late("the partition that keeps the numbers did not serve in time"));
        late.all.iter().filter(is_mine).map(|origin| (*origin, told())).collect()
    }

    fn reply(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult) {
        led.reply(origin, result);
    }
}
