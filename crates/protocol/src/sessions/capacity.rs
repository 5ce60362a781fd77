//! Opens that wait for a node with room, and what they are told.

use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::nodes::calls::NodesWanted;
use crate::nodes::registry::NoNode;
use crate::partition::state::Partition;
use rota_messages::{Message, Op};
use rota_model::{ClassName, OpenOp, PoolName, Refusal, RefusalKind, Retry, SessionSpec};
use rota_ring::slot_of_pool;
use std::collections::{BTreeMap, BTreeSet};

/// Advice where there is no room for records: about as often those of ended sessions go.
const RECORDS_MS: u64 = 10_000;

impl Partition {
    /// There is no room for the record of one more life.
    pub(crate) fn refuses_for_room(&self, env: &mut Env, op: &OpenOp) -> Option<Refusal> {
        let limit = env.config.sizes.session_bytes;
        let asked = Op::Open(op.clone()).bytes() as u64;
        let grown = env.session_bytes.saturating_add(asked);
        if grown <= limit {
            // Until it is counted anew.
            env.session_bytes = grown;
            return None;
        }
        let text = format!(
            "records of sessions at manager {} fill {} of {limit} bytes, those of ended ones for ten minutes",
            env.config.id, env.session_bytes
        );
        Some(Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(RECORDS_MS), text))
    }
}

/// Between attempts of opens that wait for room.
pub(crate) const ROOM_MS: u64 = 250;

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
        let Some(leading) = self.leading.as_mut().filter(|it| it.lead.is_open()) else {
            return;
        };
        let due = now >= leading.residents.sessions.capacity.next_ms
            || news != leading.residents.sessions.capacity.news;
        if leading.residents.sessions.capacity.waiting.is_empty() || !due {
            return;
        }
        leading.residents.sessions.capacity.news = news;
        leading.residents.sessions.capacity.next_ms = now + ROOM_MS;
        for origin in std::mem::take(&mut leading.residents.sessions.capacity.waiting) {
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
        let waiting = leading
            .residents
            .sessions
            .capacity
            .waiting
            .iter()
            .filter_map(|it| leading.inbox.live.get(it));
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
        env.store.refresh |= !missing.is_empty();
        for (pool, waiting) in missing {
            let index = env.nodes.index;
            let owner = env.view().owner_of(slot_of_pool(&pool, env.view().m));
            if owner == env.me.number {
                env.fleet.wanted.push(NodesWanted { pool, waiting, index, from: owner });
            } else {
                env.send(owner, Message::NodeWanted { pool, waiting, index });
            }
        }
    }

    /// The registry here may be some milliseconds old: before an open is refused for it, it is
    /// read again and the open waits a moment.
    pub(crate) fn wait_for_news(&mut self, env: &mut Env, origin: Origin) -> bool {
        let now = env.now.mono_ms;
        let Some(leading) = &mut self.leading else { return false };
        let waits = leading.inbox.live.get(&origin).is_some_and(|it| now < it.arrived_ms + ROOM_MS);
        if waits {
            env.store.refresh = true;
            leading.residents.sessions.capacity.waiting.push_back(origin);
        }
        waits
    }

    pub(crate) fn wait_for_room(
        &mut self,
        env: &mut Env,
        origin: Origin,
        op: &OpenOp,
        full: NoNode,
    ) {
        if let Some(full) = full_for_good(env, &op.spec.pool, full) {
            return self.reply(env, origin, Err(full));
        }
        if let Some(leading) = &mut self.leading {
            leading.residents.sessions.capacity.waiting.push_back(origin);
        }
    }
}
