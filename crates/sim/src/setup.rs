//! What one seed decides about its cluster before it starts.

use crate::network::NetworkProfile;
use crate::rng::SeededRng;
use crate::writing::PROGRAM;
use rota_model::{
    ClassDigest, ClassFacts, ClassName, ClassText, ClusterName, Disturb, LoadLimit, ManagerId,
    ManagerNumber, Namespace, NodeId, PoolSettings, ProvisionerName, SessionId, SessionKey,
};
use rota_node::{NodeBounds, NodeConfig, NodeTiming};
use rota_protocol::{
    DocumentsConfig, ManagerConfig, Patience, QueueSettings, Sizes, TasksConfig, Timing,
};
use rota_ring::RingShape;
use std::collections::{BTreeMap, BTreeSet};

/// The life cycle whose events have actions.
pub const ACTS: &str = "act";

/// Name of the class that nodes know.
pub const CLASS: &str = "builtin";

/// Longest deadline of a client in the simulation, in milliseconds.
pub const CLIENT_DEADLINE_MS_MAX: u64 = 2_500;

/// How long destroyed items stay known: writers' copies are often away for longer.
const DESTROYED_MS: u64 = 1_000;

/// How long an operation may work beside the decisions, in milliseconds, and how many of them may at one
/// manager: so few that others wait for them.
pub const WORK_MS: u64 = 400;
const WORKS_MAX: usize = 2;

/// How many managers there are at the start, one drawn for each seed: mostly few, in which everything
/// happens sooner, and which take less time to run.
const MANAGERS: [usize; 20] = [3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 6, 7, 8, 9];

/// A cluster's shape.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Slots.
    pub m: u32,
    /// Copies beside the owner.
    pub r: u32,
    /// Reserved numbers.
    pub numbers: Vec<(ManagerNumber, ManagerId)>,
    /// Managers that come into the ring later, if a disturbance says so.
    pub newcomers: Vec<(ManagerNumber, ManagerId)>,
    /// Nodes at the start.
    pub nodes: usize,
    /// Most nodes.
    pub nodes_max: u32,
    /// Places of a node.
    pub places: u32,
    /// Clients.
    pub clients: usize,
    /// The ids that clients fight over.
    pub keys: Vec<SessionKey>,
    /// Times.
    pub timing: Timing,
    /// Sizes.
    pub sizes: Sizes,
    /// The network on a good day.
    pub network_profile: NetworkProfile,
    /// Longest sync of a disk, in microseconds.
    pub sync_us_max: u64,
    /// How many of a thousand sessions end on their own.
    pub ends_permille: u64,
    /// Whether sessions whose node is lost are opened again.
    pub reopens: bool,
    /// Which orders may end a session.
    pub disturb: Disturb,
    /// How many of a thousand starts fail.
    pub start_fails_permille: u64,
    /// Longest that a single disturbance lasts, in milliseconds.
    pub fault_ms_max: u64,
    /// Longest between the starts of two disturbances, in milliseconds.
    pub calm_ms_max: u64,
    /// Whether wall clocks step.
    pub clocks_step: bool,
}

impl Setup {
    /// What a seed decides.
    pub fn draw(rng: &mut SeededRng) -> Self {
        let m = 64;
        let count = *rng.pick(&MANAGERS);
        let mut numbers = BTreeMap::new();
        while numbers.len() < count {
            numbers.extend([draw_manager(rng, m)]);
        }
        let (timing, (fault_ms_max, calm_ms_max), clocks_step) = draw_timing(rng);
        let ids = rng.within(5, 16);
        let newcomers = (0..*rng.pick(&[0, 1, 1, 2, 2])).map(|_| draw_manager(rng, m));
        let newcomers: BTreeMap<_, _> =
            newcomers.filter(|(number, _)| !numbers.contains_key(number)).collect();
        let mut setup = Self {
            m: u32::try_from(m).unwrap_or(64),
            r: *rng.pick(&[0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]),
            numbers: numbers.into_iter().collect(),
            newcomers: newcomers.into_iter().collect(),
            nodes: usize::try_from(rng.within(1, 4)).unwrap_or(1),
            nodes_max: 6,
            places: u32::try_from(rng.within(3, 12)).unwrap_or(4),
            clients: usize::try_from(rng.within(4, 8)).unwrap_or(4),
            keys: (0..ids).map(session_key).collect(),
            timing,
            sizes: draw_sizes(rng),
            network_profile: NetworkProfile {
                delay_us: rng.within(100, 2_000),
                jitter_us: rng.within(200, 8_000),
                loss_permille: rng.within(0, 15),
                repeat_permille: rng.within(0, 30),
            },
            sync_us_max: rng.within(500, 12_000),
            ends_permille: rng.within(0, 200),
            reopens: false,
            disturb: Disturb::OnUpgrade,
            start_fails_permille: rng.within(0, 80),
            fault_ms_max,
            calm_ms_max,
            clocks_step,
        };
        // Not drawn: a draw more would give every seed another run.
        setup.reopens = setup.ends_permille.is_multiple_of(3);
        setup.disturb = match setup.ends_permille % 5 {
            0 => Disturb::Never,
            1 | 2 => Disturb::Always,
            _ => Disturb::OnUpgrade,
        };
        setup
    }

    /// What the ring never changes.
    pub fn ring(&self) -> RingShape {
        let cluster = ClusterName::parse("sim").expect("a short name");
        RingShape { cluster, m: self.m, r: self.r }
    }

    /// What a manager is told at its start.
    pub fn manager_config(&self, number: ManagerNumber, id: &ManagerId) -> ManagerConfig {
        ManagerConfig {
            number,
            id: id.clone(),
            ring: self.ring(),
            grpc: manager_address(number),
            http: format!("manager-{number}:7600"),
            load_limit: LoadLimit::of_permille(800).expect("within bounds"),
            timing: self.timing.clone(),
            sizes: self.sizes,
            documents: DocumentsConfig {
                destroyed_ms: DESTROYED_MS,
                works_max: WORKS_MAX,
                work_ms: WORK_MS,
                ..Default::default()
            },
            numbers: None,
            tasks: tasks(),
        }
    }

    /// What operators say of the only pool.
    pub fn pool(&self) -> PoolSettings {
        PoolSettings {
            provisioner: Some(ProvisionerName::parse("sim").expect("a short name")),
            places: self.places,
            max_nodes: self.nodes_max,
            ..PoolSettings::default()
        }
    }

    /// What a node is told at its start.
    pub fn node_config(&self, node: &NodeId, boot: rota_model::BootId) -> NodeConfig {
        let timing = &self.timing;
        let facts = ClassFacts {
            reopens: self.reopens,
            disturb: self.disturb,
            life: Box::new(self.life()),
            ..ClassFacts::default()
        };
        NodeConfig {
            ended_boots: Vec::new(),
            node: node.clone(),
            boot,
            offers: rota_model::Resources::of_places(self.places),
            labels: rota_model::Labels::new(),
            load_limit: LoadLimit::USUAL,
            classes: BTreeMap::from([(
                ClassName::parse(CLASS).expect("a short name"),
                ClassText { digest: ClassDigest(1), facts },
            )]),
            timing: NodeTiming {
                renew_ms: timing.renew_ms,
                lease_term_ms: timing.lease_term_ms,
                lease_kill_ms: timing.lease_kill_ms,
                tombstone_ms: timing.tombstone_ms,
                renew_retry_ms: (timing.renew_ms / 10).max(1),
                report_resend_ms: timing.renew_ms / 3,
                report_resend_ms_max: timing.renew_ms * 3,
            },
            bounds: NodeBounds::default(),
        }
    }
}

fn draw_manager(rng: &mut SeededRng, m: u64) -> (ManagerNumber, ManagerId) {
    let number = ManagerNumber(u32::try_from(rng.within(0, m - 1)).unwrap_or(0));
    (number, ManagerId::parse(&format!("manager-{number}")).expect("a short name"))
}

/// Where a manager serves.
pub fn manager_address(number: ManagerNumber) -> String {
    format!("manager-{number}:7400")
}

/// Where a node serves.
pub fn node_address(node: &NodeId) -> String {
    format!("{node}:7500")
}

/// The namespace of every fourth session.
pub fn other_space() -> Namespace {
    Namespace::parse("other").expect("a short name")
}

fn session_key(index: u64) -> SessionKey {
    let is_other = index.is_multiple_of(4);
    let namespace = if is_other { other_space() } else { Namespace::default_space() };
    SessionKey::new(namespace, SessionId::parse(&format!("id-{index}")).expect("a short name"))
}

/// Mostly a quick cluster, so that everything happens in seconds of simulated time; sometimes one
/// that forgets quickly, so that tombstones are removed; sometimes the shipped times.
fn draw_timing(rng: &mut SeededRng) -> (Timing, (u64, u64), bool) {
    let quick = Timing {
        heartbeat_ms: 100,
        suspect_ms: 400,
        resend_ms: 50,
        node_resend_ms: 150,
        create_deadline_ms: 1_200,
        copy_deadline_ms: 1_500,
        repair_ms: 1_200,
        abandon_ms: 600,
        join_ms: 1_500,
        recover_after_ms: 800,
        renew_ms: 500,
        lease_term_ms: 1_300,
        lease_kill_ms: 1_900,
        node_lost_ms: 3_000,
        provision_ms: 3_000,
        request_ms: CLIENT_DEADLINE_MS_MAX,
        retry_ms: 40,
        ..Timing::default()
    };
    match rng.within(0, 9) {
        0 => (
            Timing { join_ms: 20_000, recover_after_ms: 3_000, ..Timing::default() },
            (6_000, 4_000),
            true,
        ),
        1..=3 => (Timing { tombstone_ms: 9_000, ..quick }, (2_500, 700), false),
        _ => (quick, (4_500, 900), true),
    }
}

/// Mostly so small that a handful of sessions fills chunks, pages and windows.
fn draw_sizes(rng: &mut SeededRng) -> Sizes {
    if rng.permille(200) {
        return Sizes::default();
    }
    let is_batch_small = rng.permille(400);
    let mut count = |low, high| usize::try_from(rng.within(low, high)).unwrap_or(1);
    let window_entries = count(4, 40);
    Sizes {
        window_entries,
        // A record takes about 300 bytes, an entry some 100 more.
        window_bytes: count(1_000, 40_000),
        tail_entries: count(3, 60),
        tail_bytes: count(1_500, 60_000),
        // A record or two fill the small ones, so that the next one waits for the disk to be given them.
        batch_bytes: if is_batch_small { count(1, 2_000) } else { Sizes::default().batch_bytes },
        // Not drawn: clients here ask for little at a time.
        request_bytes: Sizes::default().request_bytes,
        message_bytes: count(1, 1_500),
        flight_entries: count(1, 20),
        flight_bytes: count(400, 8_000),
        prepare_entries: count(1, 4),
        chunk_docs: count(1, 3),
        chunks_in_flight: count(1, 3),
        close_entries: u64::try_from(count(1, 8).min(window_entries)).unwrap_or(1),
        scan_page: u32::try_from(count(1, 3)).unwrap_or(1),
        page_sessions: u32::try_from(count(1, 4)).unwrap_or(1),
        purge_docs: count(1, 3),
        // Not drawn: a further draw would give every seed another history.
        page_looked_at: window_entries / 3,
        requests_kept: 1 + window_entries % 3,
        requests_max: Sizes::default().requests_max,
        // Not drawn: once all is healed, every open is to be served.
        session_bytes: Sizes::default().session_bytes,
        mark_every: u64::try_from(count(1, 5)).unwrap_or(1),
        traces_max: window_entries % 3,
        traces_ms: 0,
        drain_docs: count(1, 6),
        drain_closes: count(1, 3),
    }
}

/// Tasks are repeated soon, and given up soon.
fn tasks() -> TasksConfig {
    TasksConfig {
        queues: QueueSettings { queues: [(0, 3), (1, 1)].into(), lost_ms: 5_000 },
        queue_of: [("sim.late_work".to_owned(), 1)].into(),
        patience: Patience { first_ms: 200, most_ms: 1_000, retries: 3 },
        quota_ms: 3_000,
        programs: [PROGRAM.to_owned()].into(),
        targets: BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_seeds_have_clusters_of_three_to_nine_managers_and_some_with_small_batches() {
        let drawn: Vec<Setup> =
            (1..500).map(|seed| Setup::draw(&mut SeededRng::new(seed))).collect();
        for managers in 3..=9 {
            let of_that_size = drawn.iter().filter(|it| it.numbers.len() == managers).count();
            assert!(of_that_size >= 10, "{of_that_size} clusters of {managers}");
        }
        let small = drawn.iter().filter(|it| it.sizes.batch_bytes <= 2_000).count();
        assert!((100..300).contains(&small), "{small} with small batches");
    }

    #[test]
    fn every_drawn_cluster_keeps_the_order_of_its_times() {
        for seed in 0..200 {
            let setup = Setup::draw(&mut SeededRng::new(seed));
            assert_eq!(setup.timing.mistakes(&str::to_owned), vec![], "seed {seed}");
            assert_eq!(setup.sizes.mistakes(), vec![], "seed {seed}");
            let node = NodeId::parse("n").unwrap();
            let config = setup.node_config(&node, rota_model::BootId(1));
            assert_eq!(config.mistakes(), vec![], "seed {seed}");
        }
    }
}
