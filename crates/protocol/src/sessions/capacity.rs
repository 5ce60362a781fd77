//! Opens that wait for a node with room, and what they are told.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::inbox::Inbox;
use crate::log::origin::Origin;
use crate::nodes::calls::NodesWanted;
use crate::nodes::choice::{NoNode, NoRoom, Unfit};
use rota_messages::{Message, Op, WAITING_KINDS_MAX};
use rota_model::{
    FieldError, Needs, OpenOp, PoolName, Refusal, RefusalKind, Resources, Retry, SessionSpec,
    label_text,
};
use rota_ring::slot_of_pool;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Advice where there is no room for records: about as often those of ended sessions go.
const RECORDS_MS: u64 = 10_000;

/// There is no room for the record of one more life.
pub(crate) fn refuses_for_room(led: &mut At<'_>, op: &OpenOp) -> Option<Refusal> {
    let limit = led.env.config.sizes.session_bytes;
    let asked = Op::Open(op.clone()).bytes() as u64;
    let grown = led.env.held.session_bytes.saturating_add(asked);
    if grown <= limit {
        // Until it is counted anew.
        led.env.held.session_bytes = grown;
        return None;
    }
    let text = format!(
        "records of sessions at manager {} fill {} of {limit} bytes, those of ended ones for ten minutes",
        led.env.config.id, led.env.held.session_bytes
    );
    Some(Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(RECORDS_MS), text))
}

/// An owner that has just started does not know the pools yet, nor where classes go.
pub(crate) fn refused_unheard(env: &Env) -> Option<Refusal> {
    let text = "the owner has just started, and does not know the pools yet";
    let retry = Retry::AfterMs(env.config.timing.retry_ms);
    let refusal = || Refusal::new(RefusalKind::NotServing, retry, text);
    (!env.documents_env.knows_spaces).then(refusal)
}

/// The pool is not for sessions of that namespace, or the class stays in another pool.
pub(crate) fn refused_by_pool(env: &Env, op: &OpenOp) -> Option<Refusal> {
    let (pool, namespace) = (&op.spec.pool, &op.key.namespace);
    let changes = |problem: String| {
        let refusal = Refusal::invalid(vec![FieldError::new("pool", problem)]);
        Some(Refusal { retry: Retry::WhenChanged, ..refusal })
    };
    if let Some(only) = env.nodes.only_pool_of(&op.spec.class).filter(|it| *it != pool) {
        let class = &op.spec.class;
        return changes(format!(
            "is {pool}; class {class} says other_pools = false, so name {only} or none"
        ));
    }
    let settings = env.nodes.settings(pool).filter(|it| !it.admits(namespace))?;
    let names = settings.namespaces.iter().map(|it| it.as_str()).collect();
    let problem = format!(
        "is {pool}, which is for sessions of namespace {} only (ringctl pool set changes that)",
        listed(&names)
    );
    changes(problem)
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
    let nodes = env.nodes.of_pool(pool);
    let offered: BTreeSet<&str> = nodes.flat_map(|it| &it.classes).map(|it| it.as_str()).collect();
    let offered = match listed(&offered) {
        none if none.is_empty() => "no class".to_owned(),
        some => some,
    };
    let text = format!("no node of pool {pool:?} offers class {class:?}; they offer {offered}");
    Refusal::new(RefusalKind::UnknownClass, Retry::WhenChanged, text)
}

/// No node of the pool could take the session if it were empty, and no new one will.
pub(crate) fn unfit(env: &Env, spec: &SessionSpec, why: &Unfit) -> Refusal {
    let SessionSpec { class, pool, .. } = spec;
    let grows = env.nodes.settings(pool).is_some_and(|it| it.provisioner.is_some());
    let advice = |flag: &str| match grows {
        true => format!(" (ringctl pool set {pool} {flag} gives it to new nodes)"),
        false => String::new(),
    };
    let text = match why.offers {
        None => format!(
            "class {class:?} needs a node with the labels {}, and no node of pool {pool:?} has them all{}",
            labels_text(&why.needs),
            advice("--label")
        ),
        Some(offers) => format!(
            "a session of class {class:?} needs more than any node of pool {pool:?} has: {}{}",
            amounts_beyond(why.needs.takes(), offers),
            advice("--places, --cpu-millis or --memory-mib")
        ),
    };
    let retry = match why.may_return {
        true => Retry::AfterMs(env.config.timing.retry_ms * 5),
        false => Retry::WhenChanged,
    };
    Refusal::new(RefusalKind::NoCapacity, retry, text)
}

fn labels_text(needs: &Needs) -> String {
    let labels: Vec<String> = needs.labels.iter().map(label_text).collect();
    listed(&labels.iter().map(String::as_str).collect())
}

/// Each amount of which more is needed than the most that a node has.
fn amounts_beyond(takes: Resources, offers: Resources) -> String {
    let amounts = [
        ("places", takes.places, offers.places, true),
        ("thousandths of a processor", takes.cpu_millis, offers.cpu_millis, false),
        ("MiB of memory", takes.memory_mib, offers.memory_mib, false),
    ];
    let beyond = amounts
        .into_iter()
        .filter(|(_, takes, offers, is_always)| takes > offers && (*offers > 0 || *is_always));
    let texts: Vec<String> = beyond
        .map(|(name, takes, offers, _)| format!("{takes} {name}, and the largest has {offers}"))
        .collect();
    if texts.is_empty() { "no single one has all of it".to_owned() } else { texts.join("; ") }
}

/// What a session needs beyond one place, for people.
fn needs_text(needs: &Needs) -> String {
    let takes = needs.takes();
    let amounts = [
        (takes.places, 1, "places"),
        (takes.cpu_millis, 0, "thousandths of a processor"),
        (takes.memory_mib, 0, "MiB of memory"),
    ];
    let amounts = amounts.into_iter().filter(|(amount, usual, _)| amount > usual);
    let mut all: Vec<String> =
        amounts.map(|(amount, _, unit)| format!("{amount} {unit}")).collect();
    if !needs.labels.is_empty() {
        all.push(format!("labels {}", labels_text(needs)));
    }
    all.join(", ")
}

/// No node was ever in that pool, as far as the registry knows, and nobody described it.
fn unknown_pool(env: &Env, pool: &PoolName) -> Refusal {
    let nodes = env.nodes.reg.values().map(|it| it.pool.as_str());
    let pools: BTreeSet<&str> = nodes.chain(env.nodes.pools.keys().map(PoolName::as_str)).collect();
    let pools = match listed(&pools) {
        none if none.is_empty() => "there are no pools".to_owned(),
        some => format!("the pools are {some}"),
    };
    let text = format!("there is no pool {pool:?} (ringctl pool create describes one); {pools}");
    Refusal::new(RefusalKind::NoCapacity, Retry::WhenChanged, text)
}

/// Why an open finds no room in a pool whose nodes are all full; `None` while it may get one that would take it.
pub(crate) fn full_for_good(env: &Env, spec: &SessionSpec, full: &NoNode) -> Option<Refusal> {
    let NoNode::NoRoom(full) = *full else { return None };
    let NoRoom { nodes, new_fits, .. } = full;
    let pool = &spec.pool;
    let settings = env.nodes.settings(pool).filter(|it| it.provisioner.is_some());
    if new_fits && settings.is_some_and(|it| nodes < it.max_nodes) {
        return None;
    }
    let is_known = env.nodes.pools.contains_key(pool);
    if !is_known && env.nodes.reg.values().all(|it| it.pool != *pool) {
        return Some(unknown_pool(env, pool));
    }
    let grows = match settings {
        Some(_) if !new_fits => "and a new node would not take it".to_owned(),
        Some(it) => format!(
            "and its max_nodes is {} (ringctl pool set {pool} --max-nodes raises it)",
            it.max_nodes
        ),
        None => "and it may not grow".to_owned(),
    };
    let text = format!("{}, {grows}", full_text(env, spec, full));
    let retry = Retry::AfterMs(env.config.timing.retry_ms * 5);
    Some(Refusal::new(RefusalKind::NoCapacity, retry, text))
}

/// Which nodes of a pool do not take a session, and why.
fn full_text(env: &Env, spec: &SessionSpec, full: NoRoom) -> String {
    let NoRoom { nodes, cordoned, unfit, .. } = full;
    let SessionSpec { class, pool, .. } = spec;
    let needs = needs_text(&env.nodes.needs(pool, class));
    let limit = env.nodes.limit(pool);
    let limit = match needs.is_empty() {
        true => format!("(load limit {limit} of its places)"),
        false => format!("(load limit {limit}; a session of class {class:?} needs {needs})"),
    };
    let out = "cordoned or drained (ringctl node uncordon ends that)";
    let mut parts = Vec::new();
    if cordoned > 0 {
        parts.push(format!("{cordoned} are {out}"));
    }
    if unfit > 0 {
        parts.push(format!("{unfit} could not take it if they were empty"));
    }
    match nodes {
        0 => format!("pool {pool:?} has no node"),
        1 if cordoned == 1 => format!("the only node of pool {pool:?} is {out}"),
        all if cordoned == all => format!("each of the {all} nodes of pool {pool:?} is {out}"),
        1 => format!("the only node of pool {pool:?} is full {limit}"),
        all if parts.is_empty() => {
            format!("each of the {all} nodes of pool {pool:?} is full {limit}")
        }
        all => format!(
            "of the {all} nodes of pool {pool:?} {} and the others full {limit}",
            parts.join(", ")
        ),
    }
}

/// What an open is told that waited for room, or for news of nodes, until its deadline.
pub(crate) fn no_room_yet(env: &Env, open: &OpenOp) -> Refusal {
    let spec = spec_of(env, open);
    let pool = &spec.pool;
    let retry = Retry::AfterMs(env.config.timing.retry_ms * 5);
    match env.nodes.choose(&spec, &[], env.now.mono_ms) {
        Err(full @ NoNode::NoRoom(_)) => full_for_good(env, &spec, &full),
        Err(NoNode::Unable) => {
            let text = format!("the nodes of pool {pool:?} that have room take nothing just now");
            Some(Refusal::new(RefusalKind::NoCapacity, retry, text))
        }
        Err(NoNode::Unfit(why)) => Some(unfit(env, &spec, &why)),
        Err(NoNode::UnknownClass) | Ok(_) => None,
    }
    .unwrap_or_else(|| {
        let news = match env.nodes.why_none_started(pool, env.now.mono_ms) {
            Some(why) => format!("an order of new nodes failed: {why}"),
            None => "a new one may be on its way".to_owned(),
        };
        let text = format!("no node of pool {pool:?} with room was found in time; {news}");
        Refusal::new(RefusalKind::Provisioning, retry, text)
    })
}

/// What an open asks for, in the pool where it goes.
fn spec_of(env: &Env, open: &OpenOp) -> SessionSpec {
    SessionSpec { pool: env.nodes.pool_of(open), ..open.spec.clone() }
}

fn open_in(op: &Op) -> Option<&OpenOp> {
    if let Op::Open(open) = op { Some(open) } else { None }
}

/// Opens that wait for a node with room.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct AwaitingCapacity {
    pub waiting: VecDeque<Origin>,
    /// The news of nodes under which they were tried last, and when they are tried again.
    pub news: u64,
    pub next_ms: u64,
    /// Pools whose owners were told last that somebody waits there.
    pub told: BTreeSet<PoolName>,
}

impl AwaitingCapacity {
    /// Opens that try again, if nodes or loads changed.
    pub fn due(&mut self, led: &At<'_>) -> VecDeque<Origin> {
        let (now, news) = (led.env.now.mono_ms, led.env.nodes.news);
        let due = now >= self.next_ms || news != self.news;
        if !led.lead.is_open() || self.waiting.is_empty() || !due {
            return VecDeque::new();
        }
        self.news = news;
        self.next_ms = now + ROOM_MS;
        std::mem::take(&mut self.waiting)
    }

    /// The pool of each open that waits.
    pub fn pools(&self, env: &Env, inbox: &Inbox) -> impl Iterator<Item = PoolName> {
        let asked = self.waiting.iter().filter_map(|it| inbox.live.get(it));
        asked.filter_map(|it| open_in(&it.op)).map(|it| env.nodes.pool_of(it))
    }

    /// The registry here may be some milliseconds old: before an open is refused for it, it is
    /// read again and the open waits a moment.
    pub(crate) fn wait_for_news(&mut self, led: &mut At<'_>, origin: Origin) -> bool {
        let now = led.env.now.mono_ms;
        let waits = led.inbox.live.get(&origin).is_some_and(|it| now < it.arrived_ms + ROOM_MS);
        if waits {
            led.env.store.refresh = true;
            self.waiting.push_back(origin);
        }
        waits
    }
}

/// The largest kinds. Those beyond the bound count as the smallest: too few nodes are ordered then, and more
/// a moment later.
fn kinds(waiting: BTreeMap<Resources, u32>) -> Vec<(Resources, u32)> {
    let mut kinds: Vec<(Resources, u32)> = waiting.into_iter().rev().collect();
    if let Some(smallest) = kinds.last().filter(|_| kinds.len() > WAITING_KINDS_MAX) {
        let smallest = smallest.0;
        let beyond = kinds.split_off(WAITING_KINDS_MAX - 1);
        kinds.push((smallest, beyond.iter().map(|(_, count)| count).sum()));
    }
    kinds
}

/// Tells the owners of pools how many opens wait there for a node, and lost sessions that are opened again. Those that
/// were told so before hear when nobody waits any more: who has found room would count for a while otherwise.
pub(crate) fn tell_pool_owners(
    led: &mut At<'_>,
    capacity: &mut AwaitingCapacity,
    reopening: Vec<SessionSpec>,
) {
    // What waits for anything else than room is nothing that a new node would end.
    let mut lacks = BTreeMap::new();
    let mut missing: BTreeMap<PoolName, BTreeMap<Resources, u32>> = BTreeMap::new();
    let waiting = capacity.waiting.iter().filter_map(|it| led.inbox.live.get(it));
    let opens = waiting.filter_map(|it| open_in(&it.op)).map(|it| spec_of(led.env, it));
    for spec in opens.chain(reopening) {
        let nodes = &led.env.nodes;
        let lacks_room =
            lacks.entry((spec.pool.clone(), spec.class.clone())).or_insert_with(|| {
                let choice = nodes.choose(&spec, &[], led.env.now.mono_ms);
                matches!(choice, Err(NoNode::NoRoom(NoRoom { new_fits: true, .. })))
            });
        if *lacks_room {
            let takes = nodes.needs(&spec.pool, &spec.class).takes();
            *missing.entry(spec.pool.clone()).or_default().entry(takes).or_default() += 1;
        }
    }
    // Whoever has not seen the newest nodes is not heard.
    led.env.store.refresh |= !missing.is_empty();
    let told = missing.keys().cloned().collect();
    for pool in std::mem::replace(&mut capacity.told, told) {
        missing.entry(pool).or_default();
    }
    for (pool, waiting) in missing {
        let waiting = kinds(waiting);
        let index = led.env.nodes.index;
        let owner = led.env.view().owner_of(slot_of_pool(&pool, led.env.view().m));
        if owner == led.env.me.number {
            led.env.fleet.wanted.push(NodesWanted { pool, waiting, index, from: owner });
        } else {
            led.env.send(owner, Message::NodeWanted { pool, waiting, index });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_bound_the_smallest_sessions_are_counted_together() {
        let places = |count: u32| Resources::of_places(count);
        let all: BTreeMap<Resources, u32> = (1..=40).map(|it| (places(it), it)).collect();
        let told = kinds(all.clone());
        assert_eq!(told.len(), WAITING_KINDS_MAX);
        assert_eq!((told[0], told[30]), ((places(40), 40), (places(10), 10)));
        assert_eq!(told[31], (places(1), (1..=9).sum()));
        let few: BTreeMap<Resources, u32> = all.into_iter().take(WAITING_KINDS_MAX).collect();
        assert_eq!(kinds(few).last(), Some(&(places(1), 1)));
    }
}
