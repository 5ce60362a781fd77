//! Nodes as a manager knows them: the registry, and loads. The choice of a node stands in `choice`.

use rota_model::{
    BootId, ClassName, LoadLimit, NodeContact, NodeId, NodeLoad, NodeState, OpenOp, PoolName,
    PoolSettings, PoolsByName, Resources, Token,
};
use rota_ring::{Dropped, NodeReg, Spares};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a place counts as asked for when the node never says what became of it.
const ASKED_MS: u64 = 10_000;

/// How long a node may leave everything unanswered before it is avoided. Starting a program takes
/// less, and to be avoided wrongly costs nothing while others have room.
const SILENT_MS: u64 = 1_500;

/// For how long it is avoided the first time; twice as long each time after, up to 32 times.
const AVOID_MS: u64 = 2_000;

/// After this long a renewal of a node was missed that renews every `renew_ms`: one that a busy machine sends
/// late is not.
fn missed_after(renew_ms: u64) -> u64 {
    renew_ms.saturating_mul(3) / 2
}

/// For how long a node is not chosen that takes nothing although its load would let it. Mostly its
/// lease has run out: a renewal comes back within that time, or the boot is lost soon.
const UNABLE_MS: u64 = 1_000;

/// A node's load as far as this manager knows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Known {
    pub boot: Option<BootId>,
    pub used: Resources,
    /// How many of its sessions scale-in must not end.
    pub kept: u32,
    /// What this manager asked for and has no answer about yet.
    asked: Asked,
    pub silence: Silence,
    pub contact: Contact,
    /// It takes nothing: it is not chosen until then.
    unable_until_ms: u64,
}

/// What was asked of a node and is not answered: until when it counts, and what it takes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Asked {
    by_token: BTreeMap<Token, (u64, Resources)>,
    sum: Resources,
}

impl Asked {
    fn add(&mut self, token: Token, until_ms: u64, takes: Resources) {
        self.remove(token);
        self.by_token.insert(token, (until_ms, takes));
        self.sum = self.sum.plus(takes);
    }

    fn remove(&mut self, token: Token) {
        if let Some((_, takes)) = self.by_token.remove(&token) {
            self.sum = self.sum.minus(takes);
        }
    }

    fn forget(&mut self, now_ms: u64) {
        self.by_token.retain(|_, (until_ms, _)| *until_ms > now_ms);
        self.sum =
            self.by_token.values().fold(Resources::default(), |sum, (_, takes)| sum.plus(*takes));
    }
}

/// When a node was heard, by a renewal (every manager gets those), a report or an answer; and whether its port
/// takes connections.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Contact {
    /// When this manager heard it last; before that, when this manager saw the boot in the registry.
    since_ms: u64,
    /// It was heard since.
    heard: bool,
    /// No connection to it could be opened when that was tried last.
    refused: bool,
}

/// Whether a node answers this manager. Its lease says nothing of that: it is renewed elsewhere.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Silence {
    /// The first call since its last answer.
    since_ms: Option<u64>,
    /// How often it was found silent since its last answer.
    times: u32,
    /// Others are chosen before it until then.
    avoided_until_ms: u64,
}

impl Silence {
    pub(crate) fn on_tick(&mut self, now_ms: u64) {
        if self.since_ms.is_some_and(|since| now_ms >= since + SILENT_MS) {
            self.since_ms = None;
            self.avoided_until_ms = now_ms + (AVOID_MS << self.times.min(5));
            self.times += 1;
        }
    }
}

/// Nodes as a manager knows them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Nodes {
    /// The registry.
    pub reg: BTreeMap<NodeId, NodeReg>,
    /// What is left of those that were dropped from it.
    pub dropped: Dropped,
    /// Pools, as the follower learned them.
    pub pools: PoolsByName,
    /// Where opens of a class go that name no pool, if its text says so.
    goes: BTreeMap<ClassName, PoolName>,
    /// Classes whose sessions are opened by whoever is on the way to them.
    pub on_demand: Arc<BTreeSet<ClassName>>,
    /// T of pools that say none.
    load_limit: LoadLimit,
    pub known: BTreeMap<NodeId, Known>,
    /// Index of the newest state of the config store that was adopted.
    pub index: u64,
    /// Index of the first state in which each node stood with its boot, as far as it was seen.
    pub seen: BTreeMap<NodeId, u64>,
    /// Grows with everything that may make room somewhere.
    pub news: u64,
    /// By pool, the last order of nodes if it failed.
    pub failed_orders: BTreeMap<PoolName, FailedOrder>,
    /// How often a node renews that does not say it.
    renew_ms: u64,
}

/// Nodes that were ordered and did not start.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FailedOrder {
    /// What went wrong, for people.
    pub why: String,
    /// Nobody is told after that.
    pub until_ms: u64,
}

impl Nodes {
    /// No node yet. Those that do not say how often they renew do so every `renew_ms`; a node of a pool that
    /// says no limit takes sessions below this one.
    pub fn new(renew_ms: u64, load_limit: LoadLimit) -> Self {
        Self {
            reg: BTreeMap::new(),
            dropped: Dropped::default(),
            pools: PoolsByName::new(),
            goes: BTreeMap::new(),
            on_demand: Arc::default(),
            load_limit,
            known: BTreeMap::new(),
            index: 0,
            seen: BTreeMap::new(),
            news: 0,
            failed_orders: BTreeMap::new(),
            renew_ms,
        }
    }

    /// What operators said of a pool.
    pub fn settings(&self, pool: &PoolName) -> Option<&PoolSettings> {
        self.pools.get(pool).and_then(|it| it.settings.as_ref())
    }

    /// The pool of an open: the one that it names, or that its class names, or `default`.
    pub fn pool_of(&self, op: &OpenOp) -> PoolName {
        let goes = self.goes.get(&op.spec.class).filter(|_| !op.pool_named);
        goes.unwrap_or(&op.spec.pool).clone()
    }

    /// Finds out anew where classes go, when pools or nodes changed. Several pools may know a class: those with
    /// nodes that have it count before those where it was once, then those that its text names, then the first.
    /// What single nodes say counts for classes that no pool knows yet.
    pub fn find_pools_of_classes(&mut self) {
        let alive = || self.reg.values().filter(|it| !it.state.is_gone());
        let by_pools = self.pools.values().flat_map(|known| &known.texts);
        let by_pools = by_pools.map(|(class, text)| (class, &text.facts));
        let named = by_pools.chain(alive().flat_map(|it| &it.facts));
        let named: BTreeSet<_> =
            named.filter(|(_, facts)| facts.pool.is_some()).map(|(class, _)| class).collect();
        // Mostly no class names its pool, and then nothing is to be compared.
        let live: BTreeSet<_> = alive()
            .flat_map(|reg| reg.classes.iter().map(|it| (&reg.pool, it)))
            .filter(|(_, class)| named.contains(class))
            .collect();
        let kept = self.pools.iter().flat_map(|(pool, known)| {
            known.texts.iter().map(move |(class, text)| (pool, class, text.facts.pool.as_ref()))
        });
        let told = alive().flat_map(|reg| {
            reg.facts.iter().map(|(class, facts)| (&reg.pool, class, facts.pool.as_ref()))
        });
        let ranked = kept.map(|it| (it, true)).chain(told.map(|it| (it, false)));
        let ranked = ranked.filter(|((_, class, _), _)| named.contains(class));
        let mut best = BTreeMap::new();
        for ((pool, class, names), is_kept) in ranked {
            let rank = (is_kept, live.contains(&(pool, class)), names == Some(pool));
            let before = best.get(class);
            if before.is_none_or(|(before, _)| rank > *before) {
                best.insert(class, (rank, names));
            }
        }
        let goes =
            best.into_iter().filter_map(|(class, (_, pool))| Some((class.clone(), pool?.clone())));
        self.goes = goes.collect();
        self.find_classes_on_demand();
    }

    /// Finds out anew which classes are opened on demand: by the text that counts in the pool where such an open
    /// goes, which names none.
    fn find_classes_on_demand(&mut self) {
        let kept = self.pools.values().flat_map(|known| &known.texts);
        let kept = kept.map(|(class, text)| (class, &text.facts));
        let told = self.reg.values().filter(|it| !it.state.is_gone()).flat_map(|it| &it.facts);
        let some = kept.chain(told).filter(|(_, facts)| facts.opens_on_demand);
        let default = PoolName::default_pool();
        let counts = |class: &&ClassName| {
            let pool = self.goes.get(*class).unwrap_or(&default);
            self.facts(pool, class).is_some_and(|it| it.opens_on_demand)
        };
        let classes = some.map(|(class, _)| class).filter(counts).cloned().collect();
        if *self.on_demand != classes {
            self.on_demand = Arc::new(classes);
        }
    }

    /// The only pool in which a class is opened, if the text says so that counts there.
    pub fn only_pool_of(&self, class: &ClassName) -> Option<&PoolName> {
        let pool = self.goes.get(class)?;
        self.facts(pool, class).filter(|it| it.only_its_pool).map(|_| pool)
    }

    /// T of a pool.
    pub fn limit(&self, pool: &PoolName) -> LoadLimit {
        self.settings(pool).and_then(|it| it.load_limit).unwrap_or(self.load_limit)
    }

    /// Nodes of a pool that are not gone.
    pub fn of_pool<'a>(&'a self, pool: &'a PoolName) -> impl Iterator<Item = &'a NodeReg> {
        self.reg.values().filter(move |reg| reg.pool == *pool && !reg.state.is_gone())
    }

    /// A node's load as far as this manager knows.
    pub fn load(&self, reg: &NodeReg) -> NodeLoad {
        let kept = self.known.get(&reg.node).map_or(0, |it| it.kept);
        NodeLoad { used: self.used(&reg.node), offered: reg.offers, kept }
    }

    /// How many more sessions of one place the nodes of a pool take. One that is out of reach counts until it is declared
    /// lost: a network that fails must not fill the pool with nodes.
    pub fn free(&self, pool: &PoolName) -> u32 {
        let limit = self.limit(pool);
        let rooms = self
            .of_pool(pool)
            .filter(|reg| reg.state == NodeState::Ready)
            .map(|reg| self.load(reg).room(limit, Resources::of_places(1)));
        rooms.fold(0, u32::saturating_add)
    }

    /// A boot of a node stands in the registry that did not before.
    pub fn on_boot(&mut self, node: &NodeId, now_ms: u64) {
        let contact = Contact { since_ms: now_ms, heard: false, refused: false };
        self.known.insert(node.clone(), Known { contact, ..Known::default() });
    }

    /// That boot of a node was heard.
    pub fn on_heard(&mut self, node: &NodeId, boot: BootId, now_ms: u64) {
        if self.reg.get(node).is_some_and(|it| it.boot == boot) {
            let contact = &mut self.known.entry(node.clone()).or_default().contact;
            (contact.since_ms, contact.heard) = (now_ms, true);
        }
    }

    /// A connection to a node was opened, or none could be.
    pub fn on_connection(&mut self, node: &NodeId, refused: bool) {
        if self.reg.contains_key(node) {
            self.known.entry(node.clone()).or_default().contact.refused = refused;
        }
    }

    /// Whether a node is out of reach: its port takes no connection, or it missed a renewal.
    pub fn is_unreachable(&self, node: &NodeId, now_ms: u64) -> bool {
        let Some(Known { contact, .. }) = self.known.get(node) else { return false };
        let told = self.reg.get(node).map_or(0, |it| it.renew_ms);
        let renew_ms = if told > 0 { told } else { self.renew_ms };
        contact.refused || now_ms >= contact.since_ms + missed_after(renew_ms)
    }

    /// Whether a node was not heard for so long, since this manager first saw its boot or heard it last.
    pub fn is_unheard_for(&self, node: &NodeId, ms: u64, now_ms: u64) -> bool {
        self.known.get(node).is_some_and(|it| now_ms >= it.contact.since_ms.saturating_add(ms))
    }

    /// The state of a node as this manager sees it. What operators want of it is told before that it is out
    /// of reach.
    pub fn state(&self, reg: &NodeReg, now_ms: u64) -> NodeState {
        let is_out = reg.state == NodeState::Ready && self.is_unreachable(&reg.node, now_ms);
        if is_out { NodeState::Unreachable } else { reg.state }
    }

    /// How an owner since `owns_ms` stands with the node that runs that boot; `None` when the registry has
    /// none, or another boot.
    pub fn contact(
        &self,
        node: &NodeId,
        boot: BootId,
        owns_ms: u64,
        now_ms: u64,
    ) -> Option<NodeContact> {
        let reg = self.reg.get(node).filter(|it| it.boot == boot)?;
        let contact = self.known.get(node).map(|it| &it.contact);
        let heard = contact.filter(|it| it.heard && it.since_ms >= owns_ms);
        let unheard_ms = heard.map(|it| now_ms.saturating_sub(it.since_ms));
        let is_out = !reg.state.is_gone() && self.is_unreachable(node, now_ms);
        let state = if is_out { NodeState::Unreachable } else { reg.state };
        Some(NodeContact { state, unheard_ms })
    }

    /// Why the nodes of a pool that were ordered last did not start.
    pub fn why_none_started(&self, pool: &PoolName, now_ms: u64) -> Option<&str> {
        let failed = self.failed_orders.get(pool).filter(|it| now_ms < it.until_ms)?;
        Some(&failed.why)
    }

    /// Takes what a node said of its load.
    pub fn on_load(&mut self, node: &NodeId, boot: BootId, load: NodeLoad) {
        let known = self.known.entry(node.clone()).or_default();
        if known.boot.is_some_and(|it| it != boot) {
            *known = Known { contact: std::mem::take(&mut known.contact), ..Known::default() };
        }
        // What was asked for before the first news of that boot stays asked for.
        known.boot = Some(boot);
        // Something has ended.
        if known.used.minus(load.used) != Resources::default() {
            self.news += 1;
        }
        (known.used, known.kept) = (load.used, load.kept);
    }

    /// A call is sent to a node.
    pub fn on_call(&mut self, node: &NodeId, now_ms: u64) {
        let known = self.known.entry(node.clone()).or_default();
        known.silence.since_ms.get_or_insert(now_ms);
    }

    /// A node answered a call.
    pub fn on_answer(&mut self, node: &NodeId) {
        if let Some(known) = self.known.get_mut(node) {
            known.silence = Silence::default();
            known.contact.refused = false;
        }
    }

    /// A node took nothing, for reasons of its own.
    pub fn on_unable(&mut self, node: &NodeId, now_ms: u64) {
        let known = self.known.entry(node.clone()).or_default();
        known.unable_until_ms = now_ms + UNABLE_MS;
    }

    pub(crate) fn is_unable(&self, node: &NodeId, now_ms: u64) -> bool {
        self.known.get(node).is_some_and(|it| now_ms < it.unable_until_ms)
    }

    pub(crate) fn is_avoided(&self, node: &NodeId, now_ms: u64) -> bool {
        self.known.get(node).is_some_and(|it| now_ms < it.silence.avoided_until_ms)
    }

    /// Until when each place counts as asked for.
    pub fn asked_until(&self) -> impl Iterator<Item = u64> {
        self.known.values().flat_map(|it| it.asked.by_token.values().map(|(until, _)| *until))
    }

    /// Counts what a session of a class takes as asked for.
    pub fn ask(&mut self, node: &NodeId, class: &ClassName, token: Token, now_ms: u64) {
        let takes = self.reg.get(node).map_or(Resources::of_places(1), |it| it.takes(class));
        let known = self.known.entry(node.clone()).or_default();
        known.asked.add(token, now_ms + ASKED_MS, takes);
    }

    /// The node answered about a place that was asked for.
    pub fn asked_done(&mut self, node: &NodeId, token: Token) {
        if let Some(known) = self.known.get_mut(node) {
            known.asked.remove(token);
        }
    }

    /// Forgets what was asked for too long ago.
    pub fn on_tick(&mut self, now_ms: u64) {
        for known in self.known.values_mut() {
            known.asked.forget(now_ms);
            known.silence.on_tick(now_ms);
        }
    }

    /// Index of a state that holds every node of the pool that runs here in the registry.
    pub fn seen_all(&self, pool: &PoolName) -> u64 {
        self.of_pool(pool).filter_map(|it| self.seen.get(&it.node).copied()).max().unwrap_or(0)
    }

    /// What is in use of a node, and what was asked for.
    pub fn used(&self, node: &NodeId) -> Resources {
        self.known.get(node).map_or(Resources::default(), |it| it.used.plus(it.asked.sum))
    }

    /// Nodes of which what runs there is to be closed, and which of it is only waited for.
    pub fn to_close(&self, wall_ms: u64) -> BTreeMap<NodeId, Spares> {
        let due = self.reg.values().filter_map(|it| Some((it.node.clone(), it.closes(wall_ms)?)));
        due.collect()
    }

    /// Whether that boot of a node is shut out. Something of it may run for as long as its owners granted.
    pub fn is_over(&self, node: &NodeId, boot: BootId) -> bool {
        self.reg.get(node).map_or(self.dropped.is_over(boot), |reg| reg.is_over(boot))
    }

    /// Whether it is certain that nothing of that boot runs any more.
    pub fn is_proved_over(&self, node: &NodeId, boot: BootId) -> bool {
        let reg = self.reg.get(node);
        reg.map_or(self.dropped.is_proved_over(boot), |reg| reg.is_proved_over(boot))
    }
}
