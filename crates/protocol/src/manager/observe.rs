//! What is seen of a manager from outside: by operators, by its driver, and by a search over all states, which must
//! know what it has seen and must not tell apart what behaves alike.

use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::manager::inputs::Manager;
use crate::membership::standing::Standing;
use crate::partition::state::{Leader, Partition};
use crate::ports::number_keys::{of_manager, of_node};
use crate::ports::wait::Wait;
use crate::sessions::drain::sessions_on_nodes;
use crate::sessions::placements::placements;
use rota_docstore::Spaces;
use rota_ids::{Key, Told};
use rota_messages::placements::{Placements, PlacementsAsk};
use rota_messages::{Numbered, PartitionStats, Stats, TASK_LATE_MS, TaskStats};
use rota_model::{ClassName, MemberId, NodeId, NodeLoad, PoolName, Stamp};
use rota_ring::{ClaimRefused, NodeReg, View};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

impl Manager {
    /// Where sessions of a partition are; `None` when this manager does not serve it. What it says was
    /// committed, and is not confirmed with the copies.
    pub fn placements(&self, ask: &PlacementsAsk) -> Option<Placements> {
        let part = self.parts.get(&ask.part)?;
        placements(&self.env, &part.log, &part.leader()?.lead, &ask.which)
    }

    /// What an operator sees of this manager.
    pub fn stats(&self) -> Stats {
        let shown = self.env.nodes.reg.values().filter(|it| !it.is_forgotten());
        let nodes = shown.map(|reg| {
            // What was last heard of a boot that is over says nothing.
            let load = self.env.nodes.load(reg);
            let is_gone = reg.state.is_gone();
            let (used, kept) = if is_gone { Default::default() } else { (load.used, load.kept) };
            let state = self.env.nodes.state(reg, self.env.now.mono_ms);
            (NodeReg { state, ..reg.clone() }, NodeLoad { used, kept, ..load })
        });
        let mut parts: Vec<_> = self.parts.all().map(|part| of_part(&self.env, part)).collect();
        parts.sort_by_key(|it| it.part);
        let (works, works_overdue) = self.env.documents_env.works.count();
        let requests_waiting = self.router.len();
        let nodes: Vec<_> = nodes.collect();
        let node_numbers = nodes.iter().filter_map(|(reg, _)| {
            Some((reg.node.clone(), self.numbered(&of_node(&reg.pool, &reg.node))?))
        });
        let managers = self.env.view.iter().flat_map(|it| &it.managers);
        let manager_numbers = managers
            .filter_map(|(number, it)| Some((*number, self.numbered(&of_manager(&it.id))?)));
        let leaders = self.parts.all().filter_map(Partition::leader);
        Stats {
            parts,
            node_numbers: node_numbers.collect(),
            manager_numbers: manager_numbers.collect(),
            nodes,
            requests_waiting,
            works,
            works_overdue,
            indexes: leaders.map(|it| it.residents.searches.held()).sum(),
        }
    }

    /// The stable number of a resource, if it has one.
    fn numbered(&self, key: &Key) -> Option<Numbered> {
        let number = self.env.numbers.told.number(key)?;
        Some(Numbered { number, uuid: key.uuid.to_string() })
    }

    /// The nodes that it knows, by which state of the config store: its index.
    pub fn nodes(&self) -> (u64, &BTreeMap<NodeId, NodeReg>) {
        (self.env.nodes.index, &self.env.nodes.reg)
    }

    /// The classes whose sessions are opened by whoever is on the way to them.
    pub fn classes_on_demand(&self) -> &Arc<BTreeSet<ClassName>> {
        &self.env.nodes.on_demand
    }

    /// The stable numbers that it knows.
    pub fn stable_numbers(&self) -> &Arc<Told> {
        &self.env.numbers.told
    }

    /// The stable numbers of sessions that it assigns.
    pub fn session_numbers(&self) -> &Arc<Told> {
        &self.env.numbers.of_sessions
    }

    /// This run; incarnation 0 before the number was claimed.
    pub fn member(&self) -> MemberId {
        self.env.me
    }

    /// Whether this manager has its number.
    pub fn is_claimed(&self) -> bool {
        self.membership.standing == Standing::Inside
    }

    /// Why this manager cannot take its number, if so. It never serves then.
    pub fn refused(&self) -> Option<&ClaimRefused> {
        match &self.membership.standing {
            Standing::Refused(why) => Some(why),
            Standing::Outside { .. }
            | Standing::Probing { .. }
            | Standing::Intending { .. }
            | Standing::Asking { .. }
            | Standing::Inside
            | Standing::Left => None,
        }
    }

    /// What is known here of namespaces.
    pub fn spaces(&self) -> &Spaces {
        &self.env.documents_env.spaces
    }

    /// When the next [`crate::Input::Tick`] is due, on the monotonic clock.
    pub fn wake_at(&self) -> Option<u64> {
        let unhurried = self.parts.awake().filter_map(|it| it.leader()?.lead.unsent.due_ms);
        unhurried.chain([self.next_tick_ms]).min()
    }

    /// The View as this manager knows it.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.env.view.as_ref()
    }

    /// Why this manager does not follow what the config store showed last, if so.
    pub fn config_refused(&self) -> Option<&str> {
        self.changes.refused.as_deref()
    }

    /// Whether this manager's number has left the ring. It copies and owns nothing any more; what its
    /// clients asked for is still brought to the owners.
    pub fn has_left(&self) -> bool {
        self.membership.standing == Standing::Left
    }

    /// Whether this manager asks others whether they run, before it takes its number.
    pub fn asks_others(&self) -> bool {
        matches!(self.membership.standing, Standing::Probing { .. })
    }

    /// Every table in which something waits, at that time of the monotonic clock.
    pub fn waits(&self, now_ms: u64) -> Vec<Wait> {
        let mut waits = vec![
            Wait::new("client requests", now_ms, self.router.deadlines()),
            Wait::new("renewals", now_ms, self.env.leases.renewals.deadlines()),
            Wait::new("orders", now_ms, self.orders.order_deadlines()),
            Wait::new("orders about nodes", now_ms, self.orders.node_order_deadlines()),
            Wait::new(
                "calls to nodes",
                now_ms,
                self.env.fleet.calls.values().map(|it| it.until_ms),
            ),
            Wait::new("places asked for", now_ms, self.env.nodes.asked_until()),
        ];
        for part in self.parts.awake() {
            waits.push(Wait::new("refusals that were given", now_ms, part.answered.deadlines()));
            let leader = part.leader().into_iter();
            waits.extend(leader.flat_map(|it| it.waits(&self.env, &part.log, now_ms)));
        }
        waits
    }

    /// Feeds everything that decides what this manager does next. Between a
    /// [`flush`](Manager::flush) and the next input only: what waits to be flushed is no part of it.
    ///
    /// Left out are the configuration, which never changes, what follows from the View, and what only
    /// makes names: two managers
    /// whose outstanding names are equal go on alike, whatever their next name is. Namespaces and
    /// cached copies of documents are not in it beyond whether they are known, so a search must not
    /// change them.
    pub fn fingerprint(&self, into: &mut impl Hasher) {
        let Self {
            env,
            parts,
            router,
            membership,
            changes,
            detector,
            following,
            orders,
            progress,
            next_tick_ms,
        } = self;
        env.fingerprint(into);
        (parts, router, membership, changes, following, orders, progress, next_tick_ms).hash(into);
        detector.fingerprint(into);
    }

    /// Index of the newest state of the config store that this manager knows.
    pub fn config_index(&self) -> u64 {
        self.changes.index
    }

    /// Feeds what [`fingerprint`](Self::fingerprint) leaves out since it only makes names. Two managers
    /// that agree in both are equal.
    pub fn fingerprint_names(&self, into: &mut impl Hasher) {
        self.env.fresh_names().hash(into);
    }
}

/// What an operator sees of a partition.
pub(crate) fn of_part(env: &Env, part: &Partition) -> PartitionStats {
    let view = env.view.as_ref();
    let member =
        view.and_then(|it| it.parts.get(&part.log.number)).is_some_and(|it| it.has(env.me.number));
    let last = part.log.replica.last;
    let behind = |acked: rota_model::LogPos| last.seq.0.saturating_sub(acked.seq.0);
    let lag = part.leader().into_iter().flat_map(|it| it.lead.copies.iter());
    let role = match part.leader().map(|it| &it.lead.phase) {
        Some(Phase::Scan) => "scanning",
        Some(Phase::Recover(_)) => "recovering",
        Some(Phase::Sync(_)) => "syncing",
        Some(Phase::Serving) => "serving",
        Some(Phase::Wedged { .. }) => "wedged",
        None if part.is_learning() => "learning",
        None if member => "copy",
        None if !part.log.replica.docs.is_empty() => "former copy",
        None => "idle",
    };
    PartitionStats {
        part: part.log.number,
        role,
        last,
        committed: part.log.replica.committed,
        sessions: part.log.replica.counts.session_counts.by_state().clone(),
        documents: part.log.replica.docs.len() as u64,
        lag: lag.map(|(number, copy)| (*number, behind(copy.flow.acked))).collect(),
        digest: part.log.replica.digest,
        marks: part.log.replica.marks.iter().copied().collect(),
        on_nodes: sessions_on_nodes(&part.log),
        waiting: part.leader().map(|it| waiting(env, part, it)).unwrap_or_default(),
        tasks: part.leader().map(|_| tasks(env, part)).unwrap_or_default(),
        copy_lag_ms: part.leader().map(|_| copy_lag_ms(env, part)).unwrap_or_default(),
    }
}

/// Tasks by queue.
fn tasks(env: &Env, part: &Partition) -> BTreeMap<u8, TaskStats> {
    let index = &part.log.replica.counts.tasks.index;
    let at = Stamp::from_epoch_ms(env.now.wall_ms).minus_ms(TASK_LATE_MS);
    let stats = |(queue, counts)| (queue, TaskStats { counts, late: index.late(queue, at) });
    index.counts().map(stats).collect()
}

fn copy_lag_ms(env: &Env, part: &Partition) -> u64 {
    let since = part.log.replica.counts.tasks.index.copies_since();
    since.map_or(0, |it| env.now.wall_ms.saturating_sub(it.to_epoch_ms()))
}

/// Sessions that wait for a node, by pool.
fn waiting(env: &Env, part: &Partition, leader: &Leader) -> BTreeMap<PoolName, u64> {
    let sessions = &leader.residents.sessions;
    let opens = sessions.capacity.pools(env, &leader.inbox);
    let mut counts = BTreeMap::new();
    for pool in opens.chain(sessions.reopening.pools(&part.log)) {
        *counts.entry(pool).or_default() += 1;
    }
    counts
}

impl Env {
    fn fingerprint(&self, into: &mut impl Hasher) {
        (self.me, &self.view, &self.nodes).hash(into);
        (self.documents_env.knows_spaces, &self.documents_env.spaces, self.stamps.forgotten)
            .hash(into);
        self.numbers.hash(into);
        (
            &self.fleet.calls,
            self.store.refresh,
            self.store.is_away,
            &self.store.suspects,
            &self.leases,
        )
            .hash(into);
        (&self.store.reads_wanted, &self.fleet.wanted, &self.fleet.orders, self.unwritten())
            .hash(into);
    }
}
