//! Nodes that a pool ordered and that end by themselves soon after they came: a program that crashes, a machine that
//! is taken away again and again. More of them are ordered ever later, and people are told.
//!
//! Orders are counted, not nodes: what takes ten new nodes at once counts once. Each owner of the pool counts anew, and
//! what was there when it began counts for old. Other settings of the pool end the wait.

use crate::log::at::At;
use rota_model::items::decision_of;
use rota_model::{NodeId, NodeState, PoolName, PoolSettings};
use rota_ring::NodeReg;
use std::collections::BTreeMap;

/// A node that was there for less has ended soon. Longer, and nodes that crash now and then count for a loop. Shorter,
/// and a program that fails with its first sessions is started without end.
const SHORT_LIFE_MS: u64 = 60_000;

/// So many orders in a row may come to such an end before the next one waits.
const IN_A_ROW: u32 = 2;

/// The wait doubles with each order up to this. Longer, and a pool whose nodes last again stays without them. Shorter,
/// and machines are paid for that do nothing.
const WAIT_MS_MAX: u64 = 640_000;

/// Orders in a row whose nodes ended soon.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Row {
    orders: u32,
    /// The newest of these orders, and a node of it.
    decision: u64,
    node: NodeId,
    /// When that node was found gone.
    ended_ms: u64,
    /// No order goes out before.
    until_ms: u64,
    /// How the pool was described then.
    settings: PoolSettings,
}

/// What an owner of pools knows of nodes that do not last.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct ShortLived {
    /// Index of the config store's state that was looked at.
    index: Option<u64>,
    /// By pool, when each node that it ordered came, while it is there. `None`: it was there already.
    came: BTreeMap<PoolName, BTreeMap<NodeId, Option<u64>>>,
    rows: BTreeMap<PoolName, Row>,
}

impl ShortLived {
    /// Sees which nodes of these pools came and went. Gives the pools whose next order has to wait from now on.
    pub fn look(&mut self, led: &At<'_>, growing: &[PoolName]) -> Vec<PoolName> {
        if growing.is_empty() {
            *self = Self::default();
            return Vec::new();
        }
        let index = led.env.nodes.index;
        if self.index == Some(index) {
            return Vec::new();
        }
        self.index = Some(index);
        self.came.retain(|pool, _| growing.contains(pool));
        self.rows.retain(|pool, _| growing.contains(pool));
        let waits = growing.iter().filter(|pool| self.look_at(led, pool));
        waits.cloned().collect()
    }

    /// Whether the next order of the pool has to wait, and had not to for that reason.
    fn look_at(&mut self, led: &At<'_>, pool: &PoolName) -> bool {
        let came = self.came.remove(pool);
        let since = came.is_some().then_some(led.env.now.mono_ms);
        let (mut came, mut ended) = (came.unwrap_or_default(), Vec::new());
        for reg in led.env.nodes.reg.values().filter(|it| it.pool == *pool) {
            let Some(decision) = decision_of(pool, &reg.node) else { continue };
            if !reg.state.is_gone() {
                came.entry(reg.node.clone()).or_insert(since);
            } else if let Some(since) = came.remove(&reg.node).filter(|_| reg.wish.is_none()) {
                ended.push((reg, since, decision));
            }
        }
        self.came.insert(pool.clone(), came);
        let mut waits = false;
        for (reg, since, decision) in ended {
            waits |= self.count(led, reg, since, decision);
        }
        waits
    }

    /// A node has ended, and nobody had wished so.
    fn count(&mut self, led: &At<'_>, reg: &NodeReg, since: Option<u64>, decision: u64) -> bool {
        let (now, timing) = (led.env.now.mono_ms, &led.env.config.timing);
        // One that falls silent is found out after that time.
        let silent_ms = if reg.state == NodeState::Lost { timing.node_lost_ms } else { 0 };
        let short_ms = SHORT_LIFE_MS + silent_ms;
        if since.is_none_or(|it| now >= it + short_ms) {
            return false;
        }
        let Some(settings) = led.env.nodes.settings(&reg.pool).cloned() else { return false };
        let before = self.rows.get(&reg.pool);
        if before.is_some_and(|it| it.decision >= decision) {
            return false;
        }
        let lasts = |row: &Row| {
            let mut came = self.came.get(&reg.pool).into_iter().flat_map(BTreeMap::values);
            came.any(|it| it.is_some_and(|it| it >= row.ended_ms && now >= it + SHORT_LIFE_MS))
        };
        let before = before.filter(|it| it.settings == settings && !lasts(it));
        let orders = before.map_or(0, |it| it.orders).saturating_add(1);
        let waits = orders >= IN_A_ROW;
        let doubled = timing.provision_ms.saturating_mul(1 << (orders - 1).min(10)) / 2;
        let until_ms = if waits { now + doubled.min(WAIT_MS_MAX) } else { now };
        let node = reg.node.clone();
        let row = Row { orders, decision, node, ended_ms: now, until_ms, settings };
        self.rows.insert(reg.pool.clone(), row);
        waits
    }

    /// Why no nodes of a pool are ordered now, for people; `None`: they may be.
    pub fn why_none(&self, led: &At<'_>, pool: &PoolName) -> Option<String> {
        let now = led.env.now.mono_ms;
        let settings = led.env.nodes.settings(pool);
        let row = self.rows.get(pool).filter(|it| now < it.until_ms)?;
        if settings != Some(&row.settings) {
            return None;
        }
        let Row { orders, node, ended_ms, until_ms, .. } = row;
        let wait_s = (until_ms - ended_ms).div_ceil(1_000);
        Some(format!(
            "nodes of the last {orders} orders ended within a minute of their coming, node {node} as the last one; \
             more are ordered {wait_s} s after that. See what that node logged"
        ))
    }
}
