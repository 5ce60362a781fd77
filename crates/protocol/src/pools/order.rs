//! Pools that grow: decided by the owner of the pool's slot only, and written into the pool's record of orders,
//! so that a later owner does not order twice. What schedules set is worked out at every look, so nothing of it is
//! written down: an owner looks each 100 ms at least, and so at the moment of a schedule.

use crate::log::at::At;
use crate::log::env::{Env, NameOf};
use crate::log::lead::Phase;
use crate::log::resident::{Resident, Turn};
use crate::nodes::calls::NodesWanted;
use crate::pools::ending::{newest_decision, successors};
use crate::pools::state::Pools;
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use rota_messages::documents::orders_name;
use rota_messages::{Doc, DocKey, Message, Write};
use rota_model::items::{Orders, POOL_CLASS};
use rota_model::{NewNodes, NodeId, PoolName, PoolSettings, ProvisionerName, Stamp};
use rota_placement::{PoolNodes, nodes_to_start};
use rota_ring::slot_of_pool;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many times `provision_ms` after an order has lapsed its nodes are given up. Until then one that
/// comes all the same has its place in the pool's maximum.
const GIVEN_UP_AFTER: u64 = 6;

/// Most names of nodes that are still to be cleared away; of more, the oldest are forgotten.
const TO_CLEAR_MAX: usize = 1_000;

/// Most changes of its provisioner that a pool remembers; nodes of older ones count as the oldest one's.
const PROVISIONERS_MAX: usize = 16;

/// Why a pool is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// Somebody found no room.
    Asked,
    /// Time passed.
    Time,
}

/// How names of nodes begin that one decision orders.
fn prefix(pool: &PoolName, decision: u64) -> String {
    format!("{pool}-{decision}-")
}

/// What may still come for a pool. Its time counts from when a provisioner was done with it, if that was later than
/// the decision and here: a program may take long, and a long queue longer.
pub(crate) fn expected(led: &At<'_>, pools: &Pools, pool: &PoolName) -> (Option<Arc<Doc>>, Orders) {
    let (doc, orders) = ordered(led, pool);
    let (now, reg) = (led.env.now.wall_ms, &led.env.nodes.reg);
    let done_ms = match is_at_work(led, pool) {
        true => now,
        false => pools.provisioned_ms.get(pool).copied().unwrap_or(0),
    };
    let provision_ms = led.env.config.timing.provision_ms;
    let late_ms = done_ms.saturating_add(provision_ms).saturating_sub(orders.lapses_wall_ms);
    let orders = orders.as_of(now.saturating_sub(late_ms), |it| reg.contains_key(it));
    (doc, orders)
}

/// Whether a provisioner starts nodes of a pool for this owner now.
fn is_at_work(led: &At<'_>, pool: &PoolName) -> bool {
    led.env.fleet.orders.values().any(|it| it == pool)
}

fn orders_key(led: &At<'_>, pool: &PoolName) -> DocKey {
    DocKey::new(slot_of_pool(pool, led.env.view().m), orders_name(pool))
}

/// What was ordered for a pool, as it lies here.
pub(crate) fn ordered(led: &At<'_>, pool: &PoolName) -> (Option<Arc<Doc>>, Orders) {
    let doc = led.log.replica.get(&orders_key(led, pool)).cloned();
    let orders = doc.as_ref().and_then(|doc| doc.orders()).cloned().unwrap_or_default();
    (doc, orders)
}

/// The settings of a pool with the minimum and the warm buffer that its schedules set by now.
pub(crate) fn in_force(env: &Env, pool: &PoolName) -> Option<PoolSettings> {
    Some(env.nodes.settings(pool)?.as_of(Stamp::from_epoch_ms(env.now.wall_ms)))
}

fn count(nodes: impl Iterator) -> u32 {
    u32::try_from(nodes.count()).unwrap_or(u32::MAX)
}

/// Pools of this partition that are described.
pub(crate) fn pools_here(led: &At<'_>) -> Vec<PoolName> {
    here(led, |_| true)
}

/// Those of them whose nodes somebody starts.
pub(crate) fn growing_here(led: &At<'_>) -> Vec<PoolName> {
    here(led, |it| it.provisioner.is_some())
}

fn here(led: &At<'_>, which: impl Fn(&PoolSettings) -> bool) -> Vec<PoolName> {
    let pools = led.env.nodes.pools.iter();
    let pools = pools.filter(|(_, it)| it.settings.as_ref().is_some_and(&which));
    pools.map(|(pool, _)| pool).filter(|it| is_here(led, it)).cloned().collect()
}

fn is_here(led: &At<'_>, pool: &PoolName) -> bool {
    let view = led.env.view();
    view.home(slot_of_pool(pool, view.m)) == led.log.number
}

/// Pools of this partition that are described or of which a node is registered: what has gone of a deleted one may
/// have left something.
pub(crate) fn pools_with_nodes_here(led: &At<'_>) -> BTreeSet<PoolName> {
    let of_nodes: BTreeSet<&PoolName> = led.env.nodes.reg.values().map(|it| &it.pool).collect();
    let of_nodes = of_nodes.into_iter().filter(|it| is_here(led, it)).cloned();
    pools_here(led).into_iter().chain(of_nodes).collect()
}

impl Resident for Pools {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self::default()
    }

    fn committed(&mut self, led: &mut At<'_>, key: &DocKey) {
        let doc = led.log.replica.docs.get(key).filter(|doc| doc.orders().is_some());
        if key.name.class() == POOL_CLASS {
            // Its classes may have gone with it.
            self.texts_index = 0;
        }
        if let Some(Ok(pool)) = doc.map(|doc| PoolName::parse(doc.name().docid())) {
            self.on_pool_committed(led, &pool);
        }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        if turn != Turn::Rest || !led.may_begin() {
            return;
        }
        self.forget_wanted(led.env.now.mono_ms);
        self.keep_texts(led);
        let growing = growing_here(led);
        self.see_short_lived(led, &growing);
        self.see_late(led, &growing);
        self.clear(led);
        let here = pools_here(led);
        self.count_anew(led, &here);
        self.forget_failures(led, &here);
        for pool in growing {
            // Nobody is to wait for what failed a moment ago. What is late may come yet.
            let failed = led.env.nodes.why_none_started(&pool, led.env.now.mono_ms).is_some();
            if !failed || ordered(led, &pool).1.is_late {
                self.order(led, &pool, Cause::Time);
            }
        }
    }
}

impl Pools {
    /// At the pool's owner: somebody found no node with room.
    pub fn on_node_wanted(&mut self, led: &mut At<'_>, wanted: &NodesWanted) {
        let NodesWanted { pool, waiting, index, from } = wanted;
        if led.env.nodes.settings(pool).is_none() || !led.may_begin() {
            return;
        }
        let now = led.env.now.mono_ms;
        let growing = growing_here(led);
        self.see_short_lived(led, &growing);
        self.see_late(led, &growing);
        if let Some(why) = self.short_lived.why_none(led, pool) {
            led.env.on_order_failed(pool, &why);
        }
        if let Some(why) = led.env.nodes.why_none_started(pool, now)
            && *from != led.env.me.number
        {
            let message = Message::NodesFailed { pool: pool.clone(), why: why.to_owned() };
            led.env.send(*from, message);
        }
        self.note_wanted(pool, *from, (waiting.clone(), *index), now);
        self.order(led, pool, Cause::Asked);
    }

    /// Orders the nodes that a pool needs. Who waits counts when somebody asks: as time passes, they find room.
    fn order(&mut self, led: &mut At<'_>, pool: &PoolName, cause: Cause) {
        let Some(settings) = in_force(led.env, pool) else { return };
        if self.ordering.contains_key(pool) || self.short_lived.why_none(led, pool).is_some() {
            return;
        }
        let (before, orders) = expected(led, self, pool);
        let seen_all = led.env.nodes.seen_all(pool);
        let nodes = PoolNodes {
            there: count(led.env.nodes.of_pool(pool)),
            ordered: count(orders.ordered.iter()),
            overdue: count(orders.overdue.iter()),
            free: led.env.nodes.free(pool),
        };
        let waiting = match cause {
            Cause::Asked => self.waiting(pool, seen_all, led.env.now.mono_ms),
            Cause::Time => Vec::new(),
        };
        let offers = led.env.nodes.offers_of_new(pool, &settings);
        let limit = led.env.nodes.limit(pool);
        let mut successors = successors(led, pool, &orders);
        let alone: Vec<NodeId> =
            successors.extract_if(.., |_, it| it.is_none()).map(|it| it.0).collect();
        // A node that comes for another one takes who waits, too.
        let count =
            nodes_to_start(&settings, limit, offers, nodes, &waiting).max(count(alone.iter()));
        if count == 0 {
            return;
        }
        // A name is given once, also when the orders were lost.
        let decisions = orders.decisions.max(newest_decision(led, pool)) + 1;
        let name = |it| NodeId::parse(&format!("{}{it}", prefix(pool, decisions)));
        let new: Result<Vec<NodeId>, _> = (0..count).map(name).collect();
        let new = match new {
            Ok(new) => new,
            Err(mistake) => {
                let text = format!("pool {pool} orders no nodes: the name of a new one {mistake}");
                return led.env.note_text(Transition::OrderFailed, Some(led.log.number), text);
            }
        };
        let known = successors.into_iter().filter_map(|(node, by)| Some((node, by?)));
        let successors = known.chain(alone.into_iter().zip(new.iter().cloned())).collect();
        let lapses_wall_ms = led.env.now.wall_ms + led.env.config.timing.provision_ms;
        let ordered = [orders.ordered, new].concat();
        let given_up_wall_ms = lapses_wall_ms + patience_ms(led);
        // Of nodes that are overdue, an order that follows says nothing.
        let is_late = orders.is_late;
        let failure = if is_late { orders.failure } else { String::new() };
        let mut to_clear = orders.to_clear;
        to_clear.drain(..to_clear.len().saturating_sub(TO_CLEAR_MAX));
        let provisioners = provisioners(orders.provisioners, &settings, decisions);
        let orders = Orders {
            decisions,
            ordered,
            lapses_wall_ms,
            overdue: orders.overdue,
            given_up_wall_ms,
            failure,
            end_failure: orders.end_failure,
            failed: Vec::new(),
            none_begun: false,
            is_late,
            to_clear,
            successors,
            provisioners,
        };
        let at = write(led, pool, before.as_deref(), orders);
        self.ordering.insert(pool.clone(), at);
    }

    /// No order lapses so late as some do once the clock was put back. Their time counts from now: nobody waits until the
    /// clock has caught up.
    fn count_anew(&mut self, led: &mut At<'_>, here: &[PoolName]) {
        let (now, provision_ms) = (led.env.now.wall_ms, led.env.config.timing.provision_ms);
        for pool in here {
            let key = orders_key(led, pool);
            let known = led.log.replica.get(&key).and_then(|doc| doc.orders());
            let is_from_later =
                known.is_some_and(|it| it.lapses_wall_ms > now.saturating_add(2 * provision_ms));
            if !is_from_later || is_at_work(led, pool) || self.ordering.contains_key(pool) {
                continue;
            }
            let (before, orders) = ordered(led, pool);
            // What a provisioner of this owner has started may be about to come.
            let was_done = self.provisioned_ms.remove(pool).is_some();
            let lapses_wall_ms = if was_done { now + provision_ms } else { now };
            let given_up_wall_ms = lapses_wall_ms + patience_ms(led);
            let orders = Orders { lapses_wall_ms, given_up_wall_ms, ..orders };
            write(led, pool, before.as_deref(), orders);
        }
    }

    /// The failure of an order says nothing of a pool that is described otherwise by now. What fails of one that is deleted
    /// says nothing of the next one with its name.
    fn forget_failures(&mut self, led: &mut At<'_>, here: &[PoolName]) {
        let is_same = |it: &PoolName| self.described.get(it) == led.env.nodes.settings(it);
        if here.len() == self.described.len() && here.iter().all(is_same) {
            return;
        }
        let settings = |it: &PoolName| Some((it.clone(), led.env.nodes.settings(it)?.clone()));
        let now = here.iter().filter_map(settings).collect();
        for (pool, then) in std::mem::replace(&mut self.described, now) {
            let now = led.env.nodes.settings(&pool);
            if now == Some(&then) || !is_here(led, &pool) {
                continue;
            }
            if self.ordering.contains_key(&pool) {
                // Looked at again when that is committed.
                self.described.insert(pool, then);
                continue;
            }
            let is_gone = now.is_none();
            let (before, orders) = ordered(led, &pool);
            let end_failure = if is_gone { String::new() } else { orders.end_failure.clone() };
            // What is late was ordered for the pool as it was, and has its place all the same.
            let is_late = orders.is_late && !is_gone;
            let failure = if is_late { orders.failure.clone() } else { String::new() };
            let cleared = Orders { failure, is_late, end_failure, ..orders.clone() };
            if cleared != orders {
                write(led, &pool, before.as_deref(), cleared);
            }
        }
    }

    /// A pool's orders were committed: carry the last one out, if it is this owner's own.
    fn on_pool_committed(&mut self, led: &mut At<'_>, pool: &PoolName) {
        let committed = led.log.replica.committed;
        if self.ordering.get(pool).is_none_or(|at| *at > committed) {
            return;
        }
        self.ordering.remove(pool);
        let (_, orders) = ordered(led, pool);
        let now = prefix(pool, orders.decisions);
        let nodes = orders.ordered.iter().filter(|it| it.as_str().starts_with(&now));
        let nodes: Vec<NodeId> = nodes.cloned().collect();
        let Some(new) = led.env.nodes.settings(pool).and_then(|it| told(led.env, pool, it)) else {
            return;
        };
        led.env.note_text(
            Transition::NodesOrdered,
            Some(led.log.number),
            format!("pool {pool} orders {} nodes", nodes.len()),
        );
        let order = led.env.next_id(NameOf::Order);
        led.env.fleet.orders.insert(order, pool.clone());
        led.env.effects.push(Effect::Provision { order, nodes, new });
    }

    /// At the pool's owner: the provisioner is done with an order. Operators see why nodes did not start, and which.
    pub fn on_provisioned(
        &mut self,
        led: &mut At<'_>,
        pool: &PoolName,
        (begun, failed): (bool, &[NodeId]),
    ) {
        self.provisioned_ms.insert(pool.clone(), led.env.now.wall_ms);
        let Some(why) = led.env.nodes.why_none_started(pool, led.env.now.mono_ms) else { return };
        let why = why.to_owned();
        self.write_failure(led, pool, why, |orders| {
            let failed = if failed.is_empty() { orders.ordered.clone() } else { failed.to_vec() };
            (failed, !begun)
        });
    }

    /// Where nodes of a pool do not last, operators and opens that wait see so.
    fn see_short_lived(&mut self, led: &mut At<'_>, growing: &[PoolName]) {
        for pool in self.short_lived.look(led, growing) {
            let Some(why) = self.short_lived.why_none(led, &pool) else { continue };
            led.env.on_order_failed(&pool, &why);
            let text = format!("pool {pool}: {why}");
            led.env.note_text(Transition::OrderFailed, Some(led.log.number), text);
            self.write_failure(led, &pool, why, |orders| {
                (orders.failed.clone(), orders.none_begun)
            });
        }
    }

    /// Writes down why nodes are missing. `failed`: which of those that were ordered did not start, and whether none of them
    /// was begun.
    fn write_failure(
        &mut self,
        led: &mut At<'_>,
        pool: &PoolName,
        failure: String,
        failed: impl FnOnce(&Orders) -> (Vec<NodeId>, bool),
    ) {
        let (before, orders) = ordered(led, pool);
        if led.may_begin() && !self.ordering.contains_key(pool) && orders.failure != failure {
            let (failed, none_begun) = failed(&orders);
            let orders = Orders { failure, failed, none_begun, is_late: false, ..orders };
            write(led, pool, before.as_deref(), orders);
        }
    }
}

impl Pools {
    /// Writes down why what is left of a pool's nodes is not ended.
    pub fn write_end_failure(&mut self, led: &mut At<'_>, pool: &PoolName, end_failure: String) {
        let (before, orders) = ordered(led, pool);
        if led.may_begin() && !self.ordering.contains_key(pool) && orders.end_failure != end_failure
        {
            write(led, pool, before.as_deref(), Orders { end_failure, ..orders });
        }
    }

    /// Writes down that nothing is left of nodes that never came. `all`: nor of any other node of the pool, so nothing
    /// fails any more.
    pub fn write_cleared(&mut self, led: &mut At<'_>, pool: &PoolName, all: bool) {
        let (before, mut orders) = expected(led, self, pool);
        let were = orders.to_clear.len();
        orders.to_clear.retain(|it| !self.clearing.has_cleared(it));
        let mended = all && !orders.end_failure.is_empty();
        if mended {
            orders.end_failure.clear();
        }
        let is_news = mended || orders.to_clear.len() < were;
        if is_news && led.may_begin() && !self.ordering.contains_key(pool) {
            write(led, pool, before.as_deref(), orders);
        }
    }
}

/// How long after an order has lapsed its nodes are given up.
fn patience_ms(led: &At<'_>) -> u64 {
    GIVEN_UP_AFTER * led.env.config.timing.provision_ms
}

/// Whose the nodes of each decision are, with a new one.
fn provisioners(
    mut before: BTreeMap<u64, ProvisionerName>,
    settings: &PoolSettings,
    decision: u64,
) -> BTreeMap<u64, ProvisionerName> {
    let newest = before.last_key_value().map(|it| it.1);
    if let Some(provisioner) = settings.provisioner.as_ref().filter(|it| newest != Some(it)) {
        before.insert(decision, provisioner.clone());
    }
    while before.len() > PROVISIONERS_MAX {
        before.pop_first();
    }
    before
}

pub(crate) fn write(
    led: &mut At<'_>,
    pool: &PoolName,
    before: Option<&Doc>,
    orders: Orders,
) -> rota_model::LogPos {
    let slot = slot_of_pool(pool, led.env.view().m);
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    led.write(vec![Write::of(slot, Doc::orders_after(before, pool, orders, now))], None)
}

/// What whoever starts nodes of a pool is told.
fn told(env: &Env, pool: &PoolName, settings: &PoolSettings) -> Option<NewNodes> {
    let provisioner = settings.provisioner.clone()?;
    // Not the pool's own limit, which may change: nodes hear of it with their renewals.
    let (places, load_limit) = (settings.places, env.config.load_limit);
    Some(NewNodes {
        pool: pool.clone(),
        provisioner,
        places,
        labels: settings.labels.clone(),
        cpu_millis: settings.cpu_millis,
        memory_mib: settings.memory_mib,
        load_limit,
    })
}

impl Env {
    /// Gives the pool that ordered the nodes.
    pub(crate) fn on_provisioned(
        &mut self,
        order: u64,
        failure: Option<String>,
    ) -> Option<PoolName> {
        let pool = self.fleet.orders.remove(&order);
        if let Some(pool) = &pool {
            self.nodes.failed_orders.remove(pool);
        }
        if let Some(why) = failure {
            if let Some(pool) = &pool {
                self.on_order_failed(pool, &why);
            }
            let of = pool.as_ref().map(|it| format!(" for pool {it}")).unwrap_or_default();
            let text = format!("order {order} of new nodes{of} failed: {why}");
            self.note_text(Transition::OrderFailed, None, text);
        }
        pool
    }
}
