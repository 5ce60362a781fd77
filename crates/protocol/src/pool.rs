//! Pools that grow: decided by the owner of the pool's slot only, one order in flight per pool,
//! written into the pool's record so that a later owner does not order twice.

use crate::env::{Env, NameOf, NodesWanted};
use crate::io::{Effect, Transition};
use crate::nodes::NoNode;
use crate::partition::Partition;
use rota_messages::documents::pool_name;
use rota_messages::{Doc, DocKey, Message, Op, Write};
use rota_model::items::Orders;
use rota_model::{
    ClassName, NodeId, OpenOp, PoolName, Refusal, RefusalKind, Retry, SessionSpec, Stamp,
};
use rota_ring::slot_of_pool;
use std::collections::{BTreeMap, BTreeSet};

/// Between attempts of opens that wait for room.
pub(crate) const ROOM_MS: u64 = 250;

/// How many times `provision_ms` after an order has lapsed its nodes are given up. Until then one that
/// comes all the same has its place in the pool's maximum.
const GIVEN_UP_AFTER: u64 = 6;

/// Most names that a refusal lists, and most bytes of them: a status has room for no more.
const LISTED_MAX: (usize, usize) = (16, 400);

/// Names with commas between them; of too many, how many more there are.
fn listed(names: &BTreeSet<&str>) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        if index >= LISTED_MAX.0 || text.len() + name.len() > LISTED_MAX.1 {
            return format!("{text} and {} more", names.len() - index);
        }
        let comma = if index > 0 { ", " } else { "" };
        text.push_str(&format!("{comma}{name}"));
    }
    text
}

/// Nodes of the pool run, and none offers the class.
pub(crate) fn unknown_class(env: &Env, spec: &SessionSpec) -> Refusal {
    let SessionSpec { class, pool, .. } = spec;
    let nodes = env.nodes.reg.values().filter(|it| it.pool == *pool && !it.state.is_gone());
    let offered: BTreeSet<&str> = nodes.flat_map(|it| &it.classes).map(|it| it.as_str()).collect();
    let offered = match listed(&offered) {
        none if none.is_empty() => "no class".to_owned(),
        some => some,
    };
    let text = format!("no node of pool {pool:?} offers class {class:?}; they offer {offered}");
    Refusal::new(RefusalKind::UnknownClass, Retry::WhenChanged, text)
}

/// No node was ever in that pool, as far as the registry knows, and managers start none there.
fn unknown_pool(env: &Env, pool: &PoolName) -> Refusal {
    let nodes = env.nodes.reg.values().map(|it| it.pool.as_str());
    let pools: BTreeSet<&str> =
        nodes.chain(env.config.pools.iter().map(|it| it.name.as_str())).collect();
    let pools = match listed(&pools) {
        none if none.is_empty() => "there are no nodes".to_owned(),
        some => format!("there are nodes in {some}"),
    };
    let text = format!("pool {pool:?} has no node, and managers start none there; {pools}");
    Refusal::new(RefusalKind::NoCapacity, Retry::WhenChanged, text)
}

/// Why an open finds no room in a pool whose nodes are all full; `None` while it may get more.
pub(crate) fn full_for_good(env: &Env, pool: &PoolName, full: NoNode) -> Option<Refusal> {
    let NoNode::NoRoom { nodes, cordoned } = full else { return None };
    let config = env.config.pools.iter().find(|it| it.name == *pool);
    if config.is_some_and(|it| nodes < it.nodes_max) {
        return None;
    }
    if config.is_none() && env.nodes.reg.values().all(|it| it.pool != *pool) {
        return Some(unknown_pool(env, pool));
    }
    let permille = env.config.load_limit_permille;
    let limit = format!("(load limit {} of its places)", f64::from(permille) / 1000.0);
    let out = "cordoned or drained (ringctl uncordon ends that)";
    let text = match nodes {
        0 => format!("pool {pool:?} has no node, and may not grow"),
        1 if cordoned == 1 => {
            format!("the only node of pool {pool:?} is {out}, and it may not grow")
        }
        more if cordoned == more => {
            format!("each of the {more} nodes of pool {pool:?} is {out}, and it may not grow")
        }
        more if cordoned > 0 => {
            format!(
                "of the {more} nodes of pool {pool:?} {cordoned} are {out} and the others full \
                 {limit}, and it may not grow"
            )
        }
        1 => format!("the only node of pool {pool:?} is full {limit}, and it may not grow"),
        more => {
            format!(
                "each of the {more} nodes of pool {pool:?} is full {limit}, and it may not grow"
            )
        }
    };
    let retry = Retry::AfterMs(env.config.timing.retry_ms * 5);
    Some(Refusal::new(RefusalKind::NoCapacity, retry, text))
}

/// What an open is told that waited for room, or for news of nodes, until its deadline.
pub(crate) fn no_room_yet(env: &Env, open: &OpenOp) -> Refusal {
    let (pool, class) = (&open.spec.pool, &open.spec.class);
    let limit = env.config.load_limit_permille;
    let retry = Retry::AfterMs(env.config.timing.retry_ms * 5);
    match env.nodes.choose(pool, class, limit, &[], env.now.mono_ms) {
        Err(full @ NoNode::NoRoom { .. }) => full_for_good(env, pool, full),
        Err(NoNode::Unable) => {
            let text = format!("the nodes of pool {pool:?} that have room take nothing just now");
            Some(Refusal::new(RefusalKind::NoCapacity, retry, text))
        }
        Err(NoNode::UnknownClass) | Ok(_) => None,
    }
    .unwrap_or_else(|| {
        let news = match env.nodes.why_none_started(pool, env.now.mono_ms) {
            Some(why) => format!("an order of new nodes failed: {why}"),
            None => "a new one may be on its way".to_owned(),
        };
        let text = format!("no node with room was found in time; {news}");
        Refusal::new(RefusalKind::Provisioning, retry, text)
    })
}

/// How names of nodes begin that one decision orders.
fn prefix(pool: &PoolName, decision: u64) -> String {
    format!("{pool}-{decision}-")
}

fn open_in(op: &Op) -> Option<&OpenOp> {
    match op {
        Op::Open(open) => Some(open),
        Op::Close(_)
        | Op::Get(_)
        | Op::List(_)
        | Op::Pull(_)
        | Op::Report(_)
        | Op::Documents(_) => None,
    }
}

impl Partition {
    /// Opens that wait for room try again when nodes or loads changed, and tell the pool's owner.
    pub fn tick_room(&mut self, env: &mut Env) {
        let (now, news) = (env.now.mono_ms, env.nodes.news);
        let Some(leading) = self.leading.as_mut().filter(|it| it.is_open()) else {
            return;
        };
        let due = now >= leading.next_room_ms || news != leading.room_news;
        if leading.room.is_empty() || !due {
            return;
        }
        leading.room_news = news;
        leading.next_room_ms = now + ROOM_MS;
        for origin in std::mem::take(&mut leading.room) {
            self.run(env, origin);
        }
        self.tell_pool_owners(env);
    }

    fn tell_pool_owners(&mut self, env: &mut Env) {
        let Some(leading) = &self.leading else { return };
        let limit = env.config.load_limit_permille;
        // What waits for anything else than room is nothing that a new node would end.
        let mut lacks: BTreeMap<(&PoolName, &ClassName), bool> = BTreeMap::new();
        let mut missing: BTreeMap<PoolName, u32> = BTreeMap::new();
        let waiting = leading.room.iter().filter_map(|it| leading.live.get(it));
        for OpenOp { spec, .. } in waiting.filter_map(|it| open_in(&it.op)) {
            let nodes = &env.nodes;
            let lacks_room = lacks.entry((&spec.pool, &spec.class)).or_insert_with(|| {
                let choice = nodes.choose(&spec.pool, &spec.class, limit, &[], env.now.mono_ms);
                matches!(choice, Err(NoNode::NoRoom { .. }))
            });
            if *lacks_room {
                *missing.entry(spec.pool.clone()).or_default() += 1;
            }
        }
        // Whoever has not seen the newest nodes is not heard.
        env.refresh |= !missing.is_empty();
        for (pool, waiting) in missing {
            let index = env.nodes.index;
            let owner = env.view().owner_of(slot_of_pool(&pool, env.view().m));
            if owner == env.me.number {
                env.wanted.push(NodesWanted { pool, waiting, index, from: owner });
            } else {
                env.send(owner, Message::NodeWanted { pool, waiting, index });
            }
        }
    }

    /// At the pool's owner: somebody found no node with room.
    ///
    /// Who asks does so again and again, and does not know of nodes that have come meanwhile: it is
    /// heard only when it has seen all that are known here, since it then found no room in them
    /// either. Otherwise a node would be ordered twice for one open.
    pub fn on_node_wanted(&mut self, env: &mut Env, wanted: &NodesWanted) {
        let NodesWanted { pool, waiting, index, from } = wanted;
        let Some(config) = env.config.pools.iter().find(|it| it.name == *pool).cloned() else {
            return;
        };
        if !self.may_begin(env) {
            return;
        }
        if let Some(why) = env.nodes.why_none_started(pool, env.now.mono_ms)
            && *from != env.me.number
        {
            let message = Message::NodesFailed { pool: pool.clone(), why: why.to_owned() };
            env.send(*from, message);
        }
        if *index < env.nodes.seen_all(pool) {
            return;
        }
        let slot = slot_of_pool(pool, env.view().m);
        let before = self.replica.get(&DocKey::new(slot, pool_name(pool)));
        let orders = before.and_then(|doc| doc.orders()).cloned().unwrap_or_default();
        let missing = orders.ordered.iter().filter(|node| !env.nodes.reg.contains_key(*node));
        let mut late: Vec<NodeId> = missing.cloned().collect();
        if !late.is_empty() && env.now.wall_ms < orders.lapses_wall_ms {
            return;
        }
        let given_up_ms = orders.lapses_wall_ms + GIVEN_UP_AFTER * env.config.timing.provision_ms;
        let failed = env.nodes.why_none_started(pool, env.now.mono_ms).is_some();
        if failed || env.now.wall_ms >= given_up_ms {
            late.clear();
        }
        let alive = env.nodes.reg.values().filter(|it| it.pool == *pool && !it.state.is_gone());
        let there = u32::try_from(alive.count() + late.len()).unwrap_or(u32::MAX);
        let may = config.nodes_max.saturating_sub(there);
        // A node takes sessions while its load is below T, so not all of its places.
        let limit = u64::from(env.config.load_limit_permille);
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
                return env.note_text(Transition::OrderFailed, Some(self.number), text);
            }
        };
        let lapses_wall_ms = env.now.wall_ms + env.config.timing.provision_ms;
        let orders = Orders { decisions, ordered, lapses_wall_ms };
        let now = Stamp::from_epoch_ms(env.now.wall_ms);
        let doc = Doc::pool_after(before.map(|it| &**it), pool, orders, now);
        let at = self.write(env, vec![Write::of(slot, doc)], None);
        if let Some(leading) = &mut self.leading {
            leading.ordering.insert(pool.clone(), at);
        }
    }

    /// A pool's record was committed: carry the order out, if it is this owner's own.
    pub fn on_pool_committed(&mut self, env: &mut Env, pool: &PoolName) {
        let committed = self.replica.committed;
        let Some(leading) = &mut self.leading else {
            return;
        };
        if leading.ordering.get(pool).is_none_or(|at| *at > committed) {
            return;
        }
        leading.ordering.remove(pool);
        let slot = slot_of_pool(pool, env.view().m);
        let key = DocKey::new(slot, pool_name(pool));
        let Some(orders) = self.replica.get(&key).and_then(|doc| doc.orders()) else {
            return;
        };
        let now = prefix(pool, orders.decisions);
        let nodes = orders.ordered.iter().filter(|it| it.as_str().starts_with(&now));
        let nodes: Vec<NodeId> = nodes.cloned().collect();
        env.note_text(
            Transition::NodesOrdered,
            Some(self.number),
            format!("pool {pool} orders {} nodes", nodes.len()),
        );
        let order = env.next_id(NameOf::Order);
        env.orders.insert(order, pool.clone());
        env.effects.push(Effect::Provision { order, pool: pool.clone(), nodes });
    }
}
