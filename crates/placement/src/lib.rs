//! Which node takes a session, and how many nodes a pool needs. Pure: whoever asks says what it knows of the nodes.
//!
//! ```text
//!  nodes with room ── choose ──▶ the node        pool, its nodes, places that are missing ── nodes_to_start ──▶ how many
//! ```
//! **Invariant:** no node is chosen whose load has reached the limit.

use rota_model::{LoadLimit, NodeLoad, Policy, PoolSettings, Resources};
use std::cmp::Reverse;

/// A node that might take a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate<N> {
    /// The node.
    pub node: N,
    /// Its load, with what was asked of it and is not answered.
    pub load: NodeLoad,
    /// What the session takes there.
    pub takes: Resources,
    /// Chosen only when there is no other: it is out of reach, or leaves calls unanswered.
    pub is_doubtful: bool,
}

/// The node that a policy chooses among those with room: one that is not doubtful first, and of equal ones
/// the first. `refusals`: how many nodes have refused the session so far. Those were fuller than they were believed to be,
/// since other owners pack them, too: each refusal doubles the room that the next node should have by what is known.
pub fn choose<N>(
    (policy, limit): (Policy, LoadLimit),
    refusals: usize,
    candidates: impl IntoIterator<Item = Candidate<N>>,
) -> Option<N> {
    let room_min = u32::try_from(refusals).ok().and_then(|it| 1_u32.checked_shl(it));
    let room_min = room_min.unwrap_or(u32::MAX);
    let mut best: Option<((bool, bool, i128), N)> = None;
    for Candidate { node, load, takes, is_doubtful } in candidates {
        let room = load.room(limit, takes);
        if room == 0 {
            continue;
        }
        let (load, is_roomy) = (i128::from(load.permille()), room >= room_min);
        let rank = match policy {
            Policy::Pack if is_roomy => (!is_doubtful, true, load),
            Policy::Pack => (!is_doubtful, false, i128::from(room)),
            Policy::Spread => (!is_doubtful, true, -load),
        };
        if best.as_ref().is_none_or(|(before, _)| rank > *before) {
            best = Some((rank, node));
        }
    }
    best.map(|(_, node)| node)
}

/// What the owner of a pool knows of its nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolNodes {
    /// Nodes that are there, whatever they take.
    pub there: u32,
    /// Nodes that were ordered and are on their way.
    pub ordered: u32,
    /// Nodes that were ordered and are overdue. They may come all the same, so they have their place in the
    /// maximum; who waits does not count on them.
    pub overdue: u32,
    /// How many more sessions of one place those that are there take.
    pub free: u32,
}

/// Sessions that wait for room: what each of them takes, and how many there are.
pub type Waiting = [(Resources, u32)];

/// How many nodes are to be started: for sessions that wait, for places that are to be kept free, and for the
/// minimum; never more than the maximum allows. `pool`: with what its schedules have set by now. `limit`: where the pool says none; `offers`: what a new node has.
pub fn nodes_to_start(
    pool: &PoolSettings,
    limit: LoadLimit,
    offers: Resources,
    nodes: PoolNodes,
    waiting: &Waiting,
) -> u32 {
    if pool.provisioner.is_none() {
        return 0;
    }
    let limit = pool.load_limit.unwrap_or(limit);
    let warm = warm_places(pool, limit, offers);
    let may_be = nodes.there.saturating_add(nodes.ordered).saturating_add(nodes.overdue);
    let one_place = Resources::of_places(1);
    let missing = if waiting.iter().any(|(_, count)| *count > 0) {
        // Who waits found no room in any node that is there, and does not count on those that are overdue.
        let kept_free = [(one_place, warm.saturating_sub(nodes.free))];
        let all = [waiting, &kept_free].concat();
        empty_nodes_for(&all, limit, offers, pool.max_nodes).saturating_sub(nodes.ordered)
    } else {
        let room = limit.room(offers.places).max(1);
        let coming = nodes.ordered.saturating_add(nodes.overdue).saturating_mul(room);
        warm.saturating_sub(nodes.free.saturating_add(coming)).div_ceil(room)
    };
    let for_minimum = pool.min_nodes.saturating_sub(may_be);
    missing.max(for_minimum).min(pool.max_nodes.saturating_sub(may_be))
}

/// How many places a pool keeps free.
fn warm_places(pool: &PoolSettings, limit: LoadLimit, offers: Resources) -> u32 {
    pool.warm_places.max(pool.warm_nodes.saturating_mul(limit.room(offers.places).max(1)))
}

/// Whether a pool may do without a node, as far as its load tells: nothing runs there; or its load is below the pool's
/// floor, and all that runs there may be disturbed.
pub fn is_spare(pool: &PoolSettings, load: NodeLoad) -> bool {
    let is_below = match pool.scale_in_below {
        None => load.used == Resources::default(),
        Some(floor) => load.permille() < u64::from(floor.permille()),
    };
    pool.provisioner.is_some() && pool.scale_in_delay_s > 0 && load.kept == 0 && is_below
}

/// Which of the nodes that were spare for long enough is ended: the least loaded one. None while the pool would then
/// have less than its minimum, or less room than it keeps free and what comes back takes; nor where no other node has
/// room for all that runs there. `serving`: those that take sessions, these among them; and how many sessions of one
/// place come back to them already.
pub fn node_to_end<N: PartialEq>(
    pool: &PoolSettings,
    limit: LoadLimit,
    offers: Resources,
    (serving, coming_back): (&[(N, NodeLoad)], u32),
    spare: impl IntoIterator<Item = (N, NodeLoad)>,
) -> Option<N> {
    if u32::try_from(serving.len()).unwrap_or(u32::MAX) <= pool.min_nodes {
        return None;
    }
    let limit = pool.load_limit.unwrap_or(limit);
    let one_place = Resources::of_places(1);
    let (node, load) = spare.into_iter().min_by_key(|(_, load)| load.permille())?;
    let others = || serving.iter().filter(|(it, _)| *it != node).map(|(_, load)| load);
    let free = others().map(|it| it.room(limit, one_place)).fold(0, u32::saturating_add);
    let comes = coming_back.saturating_add(load.used.places);
    let kept_free = warm_places(pool, limit, offers).saturating_add(comes);
    let is_empty = load.used == Resources::default();
    let has_room = is_empty || others().any(|it| it.has_room(limit, load.used));
    (free >= kept_free && has_room).then_some(node)
}

/// How many empty nodes take these sessions, at most so many: each node is filled with the largest first. What fits
/// in no empty node counts for none.
fn empty_nodes_for(waiting: &Waiting, limit: LoadLimit, offered: Resources, most: u32) -> u32 {
    let empty = NodeLoad { used: Resources::default(), offered, kept: 0 };
    let fits = |it: &&(Resources, u32)| it.1 > 0 && empty.has_room(limit, it.0);
    let mut left: Vec<(Resources, u32)> = waiting.iter().filter(fits).copied().collect();
    left.sort_by_key(|(takes, _)| Reverse(*takes));
    let mut nodes = 0;
    while nodes < most && !left.is_empty() {
        nodes += 1;
        let mut load = empty;
        for (takes, count) in &mut left {
            let taken = load.room(limit, *takes).min(*count);
            load.used = load.used.plus(takes.times(taken));
            *count -= taken;
        }
        left.retain(|(_, count)| *count > 0);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rota_model::ProvisionerName;

    fn limit(permille: u32) -> LoadLimit {
        LoadLimit::of_permille(permille).unwrap()
    }

    fn candidate(node: usize, used: u32, places: u32) -> Candidate<usize> {
        let takes = Resources::of_places(1);
        Candidate { node, load: NodeLoad::of_places(used, places), takes, is_doubtful: false }
    }

    fn pool(places: u32, max_nodes: u32) -> PoolSettings {
        let provisioner = Some(ProvisionerName::parse("process").unwrap());
        PoolSettings { provisioner, places, max_nodes, ..PoolSettings::default() }
    }

    fn started(pool: &PoolSettings, nodes: PoolNodes, waiting: u32) -> u32 {
        let waiting = [(Resources::of_places(1), waiting)];
        nodes_to_start(pool, limit(800), Resources::of_places(pool.places), nodes, &waiting)
    }

    #[test]
    fn the_most_loaded_below_the_limit_is_chosen_and_by_spread_the_least_loaded() {
        let nodes = || [candidate(0, 2, 10), candidate(1, 7, 10), candidate(2, 8, 10)];
        assert_eq!(choose((Policy::Pack, limit(800)), 0, nodes()), Some(1));
        assert_eq!(choose((Policy::Spread, limit(800)), 0, nodes()), Some(0));
        assert_eq!(choose((Policy::Pack, limit(1_000)), 0, nodes()), Some(2));
        assert_eq!(choose((Policy::Pack, limit(100)), 0, nodes()), None);
    }

    #[test]
    fn each_refusal_doubles_the_room_that_the_next_node_should_have() {
        let nodes = || [candidate(0, 9, 10), candidate(1, 7, 10), candidate(2, 5, 10)];
        let chosen = |refusals| choose((Policy::Pack, limit(1_000)), refusals, nodes());
        assert_eq!([0, 1, 2, 3].map(chosen), [Some(0), Some(1), Some(2), Some(2)]);
        assert_eq!(chosen(64), Some(2), "the roomiest, where none has so much");
        assert_eq!(choose((Policy::Spread, limit(1_000)), 5, nodes()), Some(2));
    }

    #[test]
    fn a_doubtful_node_is_the_last_choice_and_of_equal_ones_the_first_is_taken() {
        let mut nodes = [candidate(0, 7, 10), candidate(1, 1, 10), candidate(2, 1, 10)];
        nodes[0].is_doubtful = true;
        assert_eq!(choose((Policy::Pack, limit(800)), 0, nodes), Some(1));
        assert_eq!(choose((Policy::Pack, limit(800)), 0, [nodes[0]]), Some(0));
        assert_eq!(choose((Policy::Spread, limit(800)), 0, [nodes[1], nodes[2]]), Some(1));
    }

    #[test]
    fn a_burst_on_an_empty_pool_starts_the_nodes_that_it_needs() {
        let none = PoolNodes::default();
        assert_eq!(started(&pool(10, 1_000), none, 1_000), 125);
        assert_eq!(started(&pool(10, 100), none, 1_000), 100);
        assert_eq!(started(&pool(10, 1_000), none, 1), 1);
        let ordered = PoolNodes { ordered: 100, ..none };
        assert_eq!(started(&pool(10, 1_000), ordered, 1_000), 25);
        let overdue = PoolNodes { overdue: 100, ..none };
        assert_eq!(started(&pool(10, 200), overdue, 1_000), 100);
        assert_eq!(started(&PoolSettings::default(), none, 1), 0);
    }

    #[test]
    fn a_node_is_spare_while_nothing_runs_there_or_little_that_may_be_disturbed() {
        let ends = PoolSettings { scale_in_delay_s: 60, ..pool(10, 100) };
        let load = |used, kept| NodeLoad { kept, ..NodeLoad::of_places(used, 10) };
        assert!(is_spare(&ends, load(0, 0)) && !is_spare(&ends, load(1, 0)));
        assert!(!is_spare(&pool(10, 100), load(0, 0)), "the pool never shrinks");
        let floor = PoolSettings { scale_in_below: LoadLimit::of_permille(300), ..ends };
        assert!(is_spare(&floor, load(2, 0)) && !is_spare(&floor, load(3, 0)));
        assert!(!is_spare(&floor, load(2, 1)), "one of them is not to be disturbed");
    }

    #[test]
    fn the_least_loaded_spare_node_is_ended_while_enough_is_left() {
        let ends = PoolSettings { min_nodes: 1, scale_in_delay_s: 60, ..pool(10, 100) };
        let load = |(node, used): &(u32, u32)| (*node, NodeLoad::of_places(*used, 10));
        let ended = |pool: &PoolSettings, serving: &[(u32, u32)], spare: &[(u32, u32)]| {
            let serving: Vec<_> = serving.iter().map(load).collect();
            let offers = Resources::of_places(10);
            node_to_end(pool, limit(800), offers, (&serving, 0), spare.iter().map(load))
        };
        let two = [(1, 2), (2, 1)];
        assert_eq!(ended(&ends, &two, &two), Some(2));
        assert_eq!(ended(&ends, &two, &[]), None);
        assert_eq!(ended(&ends, &two[1..], &two[1..]), None, "the minimum");
        let warm = PoolSettings { warm_places: 6, ..ends.clone() };
        // What is left takes six, and one of them is for what runs there.
        assert_eq!(ended(&warm, &two, &two[1..]), None);
        assert_eq!(ended(&warm, &[(1, 1), (2, 1)], &two[1..]), Some(2));
        let warm = PoolSettings { warm_nodes: 1, ..ends };
        assert_eq!(ended(&warm, &[(1, 1), (2, 0)], &[(2, 0)]), None);
        assert_eq!(ended(&warm, &[(1, 0), (2, 0)], &[(2, 0)]), Some(2));
    }

    #[test]
    fn a_node_stays_whose_sessions_would_fit_nowhere_or_that_have_to_share_with_others() {
        let ends = PoolSettings { scale_in_delay_s: 60, ..pool(10, 100) };
        let takes = |memory_mib, places| Resources { places, cpu_millis: 0, memory_mib };
        let load = |used| NodeLoad { used, offered: takes(1_000, 10), kept: 0 };
        let serving = |coming_back| {
            let both = [(1, load(takes(600, 1))), (2, load(takes(600, 1)))];
            let spare = [both[1]];
            node_to_end(&ends, limit(800), takes(1_000, 10), (&both, coming_back), spare)
        };
        assert_eq!(serving(0), None, "the other one has no memory for it");
        let both = |coming_back| {
            let both = [(1, load(takes(100, 1))), (2, load(takes(100, 1)))];
            node_to_end(&ends, limit(800), takes(1_000, 10), (&both, coming_back), [both[1]])
        };
        assert_eq!((both(6), both(7)), (Some(2), None), "seven are free");
    }

    #[test]
    fn room_of_empty_nodes_is_kept_free_and_comes_back_when_it_is_used() {
        let warm = PoolSettings { warm_nodes: 2, ..pool(10, 100) };
        let start = |free| started(&warm, PoolNodes { there: 3, free, ..PoolNodes::default() }, 0);
        assert_eq!([start(16), start(15), start(8), start(0)], [0, 1, 1, 2]);
    }

    #[test]
    fn heavy_sessions_get_the_nodes_into_which_they_fit_and_light_ones_fill_these() {
        let start = |offers, waiting: &[_]| {
            nodes_to_start(&pool(10, 100), limit(800), offers, PoolNodes::default(), waiting)
        };
        let (six, one) = (Resources::of_places(6), Resources::of_places(1));
        // A node takes one of six places, and two of one until its load reaches the limit.
        assert_eq!(start(Resources::of_places(10), &[(six, 3)]), 3);
        assert_eq!(start(Resources::of_places(10), &[(one, 6), (six, 3)]), 3);
        assert_eq!(start(Resources::of_places(10), &[(one, 7), (six, 3)]), 4);
        // What fits nowhere starts nothing.
        assert_eq!(start(Resources::of_places(10), &[(Resources::of_places(11), 3)]), 0);
        let offers = Resources { places: 10, cpu_millis: 4_000, memory_mib: 1_000 };
        let big = Resources { places: 1, cpu_millis: 500, memory_mib: 400 };
        assert_eq!(start(offers, &[(big, 4)]), 2);
    }

    #[test]
    fn the_minimum_and_free_places_are_kept() {
        let kept = PoolSettings { min_nodes: 3, warm_places: 10, ..pool(10, 5) };
        assert_eq!(started(&kept, PoolNodes::default(), 0), 3);
        assert_eq!(started(&kept, PoolNodes { there: 3, free: 24, ..Default::default() }, 0), 0);
        assert_eq!(started(&kept, PoolNodes { there: 3, free: 9, ..Default::default() }, 0), 1);
        let comes = PoolNodes { there: 3, ordered: 1, free: 9, ..Default::default() };
        assert_eq!(started(&kept, comes, 0), 0);
        assert_eq!(started(&kept, PoolNodes { there: 5, ..Default::default() }, 0), 0);
        // Who waits must not use up what is kept free.
        let waits = PoolNodes { there: 1, ..Default::default() };
        assert_eq!(started(&kept, waits, 8), 3);
        assert_eq!(started(&kept, PoolNodes { ordered: 3, ..waits }, 8), 0);
        // Places that are free in pieces, too small for who waits, are kept free all the same.
        let in_pieces = PoolNodes { there: 3, free: 10, ..Default::default() };
        assert_eq!(started(&kept, in_pieces, 8), 1);
        // A node that takes long is not ordered again for what nobody waits for.
        assert_eq!(started(&kept, PoolNodes { overdue: 3, ..Default::default() }, 0), 0);
    }

    proptest! {
        #[test]
        fn what_is_chosen_has_room_and_somebody_is_chosen_while_any_has(
            nodes in proptest::collection::vec((0u32..20, 0u32..20, any::<bool>()), 0..8),
            permille in 1u32..=1_000,
            spread in any::<bool>(),
            refusals in 0_usize..40,
        ) {
            let policy = if spread { Policy::Spread } else { Policy::Pack };
            let nodes: Vec<_> = nodes.into_iter().enumerate().map(|(node, (used, places, is_doubtful))| {
                Candidate { is_doubtful, ..candidate(node, used, places) }
            }).collect();
            let any = nodes.iter().any(|it| it.load.has_room(limit(permille), it.takes));
            let chosen = choose((policy, limit(permille)), refusals, nodes.clone());
            prop_assert_eq!(chosen.is_some(), any);
            if let Some(chosen) = chosen {
                let load = nodes[chosen].load;
                prop_assert!(load.used.places < load.offered.places);
                prop_assert!(load.permille() < u64::from(permille));
            }
        }

        #[test]
        fn what_was_ordered_is_enough_unless_the_maximum_is_reached(
            (places, max, min, warm) in (1u32..50, 0u32..50, 0u32..50, 0u32..1_000),
            (there, free, waiting) in (0u32..60, 0u32..200, 0u32..2_000),
        ) {
            let pool = PoolSettings { min_nodes: min, warm_places: warm, ..pool(places, max) };
            let nodes = PoolNodes { there, free, ..PoolNodes::default() };
            let ordered = started(&pool, nodes, waiting);
            prop_assert_eq!(started(&pool, PoolNodes { ordered, ..nodes }, waiting), 0);
        }

        #[test]
        fn never_more_nodes_than_the_maximum(
            (places, max, min, warm) in (0u32..50, 0u32..50, 0u32..50, any::<u32>()),
            (there, ordered, overdue) in (0u32..60, 0u32..60, 0u32..60),
            (free, waiting) in any::<(u32, u32)>(),
        ) {
            let pool = PoolSettings { min_nodes: min, warm_places: warm, ..pool(places, max) };
            let nodes = PoolNodes { there, ordered, overdue, free };
            let most = max.saturating_sub(there + ordered + overdue);
            prop_assert!(started(&pool, nodes, waiting) <= most);
        }
    }
}
