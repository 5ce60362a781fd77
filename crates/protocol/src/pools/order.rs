//! Pools that grow: decided by the owner of the pool's slot only, one order in flight per pool,
//! written into the pool's record so that a later owner does not order twice.

use crate::log::at::At;
use crate::log::env::{Env, NameOf};
use crate::log::lead::Phase;
use crate::log::resident::Resident;
use crate::nodes::calls::NodesWanted;
use crate::pools::state::Pools;
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use rota_messages::documents::pool_name;
use rota_messages::{Doc, DocKey, Message, Write};
use rota_model::items::Orders;
use rota_model::{NodeId, PoolName, Stamp};
use rota_ring::slot_of_pool;

/// How many times `provision_ms` after an order has lapsed its nodes are given up. Until then one that
/// comes all the same has its place in the pool's maximum.
const GIVEN_UP_AFTER: u64 = 6;

/// How names of nodes begin that one decision orders.
fn prefix(pool: &PoolName, decision: u64) -> String {
    format!("{pool}-{decision}-")
}

impl Resident for Pools {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self::default()
    }

    fn committed(&mut self, led: &mut At<'_>, key: &DocKey) {
        let doc = led.log.replica.docs.get(key).filter(|doc| doc.orders().is_some());
        if let Some(Ok(pool)) = doc.map(|doc| PoolName::parse(doc.name().docid())) {
            self.on_pool_committed(led, &pool);
        }
    }
}

impl Pools {
    /// At the pool's owner: somebody found no node with room.
    ///
    /// Who asks does so again and again, and does not know of nodes that have come meanwhile: it is
    /// heard only when it has seen all that are known here, since it then found no room in them
    /// either. Otherwise a node would be ordered twice for one open.
    pub fn on_node_wanted(&mut self, led: &mut At<'_>, wanted: &NodesWanted) {
        let NodesWanted { pool, waiting, index, from } = wanted;
        let Some(config) = led.env.config.pools.iter().find(|it| it.name == *pool).cloned() else {
            return;
        };
        if !led.may_begin() {
            return;
        }
        if let Some(why) = led.env.nodes.why_none_started(pool, led.env.now.mono_ms)
            && *from != led.env.me.number
        {
            let message = Message::NodesFailed { pool: pool.clone(), why: why.to_owned() };
            led.env.send(*from, message);
        }
        if *index < led.env.nodes.seen_all(pool) {
            return;
        }
        let slot = slot_of_pool(pool, led.env.view().m);
        let before = led.log.replica.get(&DocKey::new(slot, pool_name(pool)));
        let orders = before.and_then(|doc| doc.orders()).cloned().unwrap_or_default();
        let missing = orders.ordered.iter().filter(|node| !led.env.nodes.reg.contains_key(*node));
        let mut late: Vec<NodeId> = missing.cloned().collect();
        if !late.is_empty() && led.env.now.wall_ms < orders.lapses_wall_ms {
            return;
        }
        let given_up_ms =
            orders.lapses_wall_ms + GIVEN_UP_AFTER * led.env.config.timing.provision_ms;
        let failed = led.env.nodes.why_none_started(pool, led.env.now.mono_ms).is_some();
        if failed || led.env.now.wall_ms >= given_up_ms {
            late.clear();
        }
        let alive = led.env.nodes.reg.values().filter(|it| it.pool == *pool && !it.state.is_gone());
        let there = u32::try_from(alive.count() + late.len()).unwrap_or(u32::MAX);
        let may = config.nodes_max.saturating_sub(there);
        // A node takes sessions while its load is below T, so not all of its places.
        let limit = u64::from(led.env.config.load_limit_permille);
        let room = (u64::from(config.places) * limit).div_ceil(1000).max(1);
        let room = u32::try_from(room).unwrap_or(u32::MAX).min(config.places.max(1));
        let count = waiting.div_ceil(room).min(may);
        if count == 0 {
            return;
        }
        let decisions = orders.decisions + 1;
        let name = |it| NodeId::parse(&format!("{}{it}", prefix(pool, decisions)));
        let ordered: Result<Vec<NodeId>, _> = (0..count).map(name).collect();
        let ordered = match ordered {
            Ok(ordered) => [late, ordered].concat(),
            Err(mistake) => {
                let text = format!("pool {pool} orders no nodes: the name of a new one {mistake}");
                return led.env.note_text(Transition::OrderFailed, Some(led.log.number), text);
            }
        };
        let lapses_wall_ms = led.env.now.wall_ms + led.env.config.timing.provision_ms;
        let orders = Orders { decisions, ordered, lapses_wall_ms };
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let doc = Doc::pool_after(before.map(|it| &**it), pool, orders, now);
        let at = led.write(vec![Write::of(slot, doc)], None);
        self.ordering.insert(pool.clone(), at);
    }

    /// A pool's record was committed: carry the order out, if it is this owner's own.
    fn on_pool_committed(&mut self, led: &mut At<'_>, pool: &PoolName) {
        let committed = led.log.replica.committed;
        if self.ordering.get(pool).is_none_or(|at| *at > committed) {
            return;
        }
        self.ordering.remove(pool);
        let slot = slot_of_pool(pool, led.env.view().m);
        let key = DocKey::new(slot, pool_name(pool));
        let Some(orders) = led.log.replica.get(&key).and_then(|doc| doc.orders()) else {
            return;
        };
        let now = prefix(pool, orders.decisions);
        let nodes = orders.ordered.iter().filter(|it| it.as_str().starts_with(&now));
        let nodes: Vec<NodeId> = nodes.cloned().collect();
        led.env.note_text(
            Transition::NodesOrdered,
            Some(led.log.number),
            format!("pool {pool} orders {} nodes", nodes.len()),
        );
        let order = led.env.next_id(NameOf::Order);
        led.env.fleet.orders.insert(order, pool.clone());
        led.env.effects.push(Effect::Provision { order, pool: pool.clone(), nodes });
    }
}

impl Env {
    pub(crate) fn on_provisioned(&mut self, order: u64, failure: Option<String>) {
        let pool = self.fleet.orders.remove(&order);
        if let Some(pool) = &pool {
            self.nodes.failed_orders.remove(pool);
        }
        let Some(why) = failure else { return };
        if let Some(pool) = &pool {
            self.on_order_failed(pool, &why);
        }
        let text = format!("order {order} of new nodes failed: {why}");
        self.note_text(Transition::OrderFailed, None, text);
    }
}
