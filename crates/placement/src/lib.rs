//! Which node takes a session, and how many nodes a pool needs. Pure: whoever asks says what it knows of the nodes.
//!
//! ```text
//!  nodes with room ── choose ──▶ the node        pool, its nodes, places that are missing ── nodes_to_start ──▶ how many
//! ```
//! **Invariant:** no node is chosen whose load has reached the limit.

use rota_model::node_msg::NodeLoad;
use rota_model::{LoadLimit, Policy, PoolSettings};

/// A node that might take a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate<N> {
    /// The node.
    pub node: N,
    /// Its load, with what was asked of it and is not answered.
    pub load: NodeLoad,
    /// Chosen only when there is no other: it is out of reach, or leaves calls unanswered.
    pub is_doubtful: bool,
}

/// Whether a node takes one more session: while its load is below the limit, and it has a place.
pub fn has_room(load: NodeLoad, limit: LoadLimit) -> bool {
    load.used < limit.room(load.places)
}

/// Load in thousandths of the places.
pub fn load_permille(load: NodeLoad) -> u64 {
    u64::from(load.used) * 1_000 / u64::from(load.places.max(1))
}

/// The node that a policy chooses among those with room: one that is not doubtful first, and of equal ones
/// the first.
pub fn choose<N>(
    policy: Policy,
    limit: LoadLimit,
    candidates: impl IntoIterator<Item = Candidate<N>>,
) -> Option<N> {
    let mut best: Option<((bool, i128), N)> = None;
    for Candidate { node, load, is_doubtful } in candidates {
        if !has_room(load, limit) {
            continue;
        }
        let load = i128::from(load_permille(load));
        let rank = match policy {
            Policy::Pack => (!is_doubtful, load),
            Policy::Spread => (!is_doubtful, -load),
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
    /// How many more sessions those that are there take.
    pub free: u32,
    /// Sessions that wait for a place.
    pub waiting: u32,
}

/// How many nodes are to be started: for sessions that wait, for places that are to be kept free, and for the
/// minimum; never more than the maximum allows. `limit`: where the pool says none.
pub fn nodes_to_start(pool: &PoolSettings, limit: LoadLimit, nodes: PoolNodes) -> u32 {
    if pool.provisioner.is_none() {
        return 0;
    }
    let room = pool.load_limit.unwrap_or(limit).room(pool.places).max(1);
    let may_be = nodes.there.saturating_add(nodes.ordered).saturating_add(nodes.overdue);
    let places = |nodes: u32| nodes.saturating_mul(room);
    let missing = if nodes.waiting > 0 {
        // Who waits found no room in any node that is there, and does not count on those that are overdue.
        nodes.waiting.saturating_add(pool.warm_places).saturating_sub(places(nodes.ordered))
    } else {
        let coming = places(nodes.ordered.saturating_add(nodes.overdue));
        pool.warm_places.saturating_sub(nodes.free.saturating_add(coming))
    };
    let for_minimum = pool.min_nodes.saturating_sub(may_be);
    missing.div_ceil(room).max(for_minimum).min(pool.max_nodes.saturating_sub(may_be))
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
        Candidate { node, load: NodeLoad { used, places }, is_doubtful: false }
    }

    fn pool(places: u32, max_nodes: u32) -> PoolSettings {
        let provisioner = Some(ProvisionerName::parse("process").unwrap());
        PoolSettings { provisioner, places, max_nodes, ..PoolSettings::default() }
    }

    fn started(pool: &PoolSettings, nodes: PoolNodes) -> u32 {
        nodes_to_start(pool, limit(800), nodes)
    }

    #[test]
    fn the_most_loaded_below_the_limit_is_chosen_and_by_spread_the_least_loaded() {
        let nodes = || [candidate(0, 2, 10), candidate(1, 7, 10), candidate(2, 8, 10)];
        assert_eq!(choose(Policy::Pack, limit(800), nodes()), Some(1));
        assert_eq!(choose(Policy::Spread, limit(800), nodes()), Some(0));
        assert_eq!(choose(Policy::Pack, limit(1_000), nodes()), Some(2));
        assert_eq!(choose(Policy::Pack, limit(100), nodes()), None);
    }

    #[test]
    fn a_doubtful_node_is_the_last_choice_and_of_equal_ones_the_first_is_taken() {
        let mut nodes = [candidate(0, 7, 10), candidate(1, 1, 10), candidate(2, 1, 10)];
        nodes[0].is_doubtful = true;
        assert_eq!(choose(Policy::Pack, limit(800), nodes), Some(1));
        assert_eq!(choose(Policy::Pack, limit(800), [nodes[0]]), Some(0));
        assert_eq!(choose(Policy::Spread, limit(800), [nodes[1], nodes[2]]), Some(1));
    }

    #[test]
    fn a_burst_on_an_empty_pool_starts_the_nodes_that_it_needs() {
        let waiting = |waiting| PoolNodes { waiting, ..PoolNodes::default() };
        assert_eq!(started(&pool(10, 1_000), waiting(1_000)), 125);
        assert_eq!(started(&pool(10, 100), waiting(1_000)), 100);
        assert_eq!(started(&pool(10, 1_000), waiting(1)), 1);
        let ordered = PoolNodes { ordered: 100, ..waiting(1_000) };
        assert_eq!(started(&pool(10, 1_000), ordered), 25);
        let overdue = PoolNodes { overdue: 100, ..waiting(1_000) };
        assert_eq!(started(&pool(10, 200), overdue), 100);
        assert_eq!(started(&PoolSettings::default(), waiting(1)), 0);
    }

    #[test]
    fn the_minimum_and_free_places_are_kept() {
        let kept = PoolSettings { min_nodes: 3, warm_places: 10, ..pool(10, 5) };
        assert_eq!(started(&kept, PoolNodes::default()), 3);
        assert_eq!(started(&kept, PoolNodes { there: 3, free: 24, ..Default::default() }), 0);
        assert_eq!(started(&kept, PoolNodes { there: 3, free: 9, ..Default::default() }), 1);
        let comes = PoolNodes { there: 3, ordered: 1, free: 9, ..Default::default() };
        assert_eq!(started(&kept, comes), 0);
        assert_eq!(started(&kept, PoolNodes { there: 5, ..Default::default() }), 0);
        // Who waits must not use up what is kept free.
        let waits = PoolNodes { there: 1, waiting: 8, ..Default::default() };
        assert_eq!(started(&kept, waits), 3);
        assert_eq!(started(&kept, PoolNodes { ordered: 3, ..waits }), 0);
        // A node that takes long is not ordered again for what nobody waits for.
        assert_eq!(started(&kept, PoolNodes { overdue: 3, ..Default::default() }), 0);
    }

    proptest! {
        #[test]
        fn what_is_chosen_has_room_and_somebody_is_chosen_while_any_has(
            nodes in proptest::collection::vec((0u32..20, 0u32..20, any::<bool>()), 0..8),
            permille in 1u32..=1_000,
            spread in any::<bool>(),
        ) {
            let policy = if spread { Policy::Spread } else { Policy::Pack };
            let nodes: Vec<_> = nodes.into_iter().enumerate().map(|(node, (used, places, is_doubtful))| {
                Candidate { is_doubtful, ..candidate(node, used, places) }
            }).collect();
            let any = nodes.iter().any(|it| has_room(it.load, limit(permille)));
            let chosen = choose(policy, limit(permille), nodes.clone());
            prop_assert_eq!(chosen.is_some(), any);
            if let Some(chosen) = chosen {
                let load = nodes[chosen].load;
                prop_assert!(load.used < load.places);
                prop_assert!(load_permille(load) < u64::from(permille));
            }
        }

        #[test]
        fn what_was_ordered_is_enough_unless_the_maximum_is_reached(
            (places, max, min, warm) in (1u32..50, 0u32..50, 0u32..50, 0u32..1_000),
            (there, free, waiting) in (0u32..60, 0u32..200, 0u32..2_000),
        ) {
            let pool = PoolSettings { min_nodes: min, warm_places: warm, ..pool(places, max) };
            let nodes = PoolNodes { there, free, waiting, ..PoolNodes::default() };
            let ordered = started(&pool, nodes);
            prop_assert_eq!(started(&pool, PoolNodes { ordered, ..nodes }), 0);
        }

        #[test]
        fn never_more_nodes_than_the_maximum(
            (places, max, min, warm) in (0u32..50, 0u32..50, 0u32..50, any::<u32>()),
            (there, ordered, overdue) in (0u32..60, 0u32..60, 0u32..60),
            (free, waiting) in any::<(u32, u32)>(),
        ) {
            let pool = PoolSettings { min_nodes: min, warm_places: warm, ..pool(places, max) };
            let nodes = PoolNodes { there, ordered, overdue, free, waiting };
            prop_assert!(started(&pool, nodes) <= max.saturating_sub(there + ordered + overdue));
        }
    }
}
