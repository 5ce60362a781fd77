//! How well placement packs: random arrivals, placed by owners that each know only part of what nodes hold,
//! beside a best fit that knows all. Nothing is started: it is a calculation.
//!
//! Owners hear of a node's load when it answers them, and with its renewals. The node has the last word. The
//! best fit takes the fullest node that has room, by true loads. Both start a node when none has room, and
//! retire one that is empty for a while.

use super::report::rounded;
use crate::output::{Format, Out, plain_table};
use clap::Args;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_model::{LoadLimit, NodeLoad, Policy, Resources};
use rota_placement::{Candidate, choose};
use serde::Serialize;
use std::collections::BTreeMap;

/// Nodes say their load to every manager so often, in seconds.
const RENEW_S: f64 = 3.0;

/// A node that is empty for so long is retired, in seconds.
const EMPTY_S: f64 = 60.0;

/// Moments that are printed.
const SHOWN: u32 = 12;

/// `bench packing`.
#[derive(Args, Debug)]
pub struct PackingArguments {
    /// How many sessions arrive.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: u32,
    /// How many of them live at the same time, on average.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    alive: u32,
    /// How long a session lives, on average, in seconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    lifetime: u32,
    /// Places of each node.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    places: u32,
    /// How many owners place sessions.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Decides the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize, PartialEq, Debug)]
struct Packing {
    sessions: u32,
    managers: u32,
    /// Node-seconds of Rota's placement, divided by those of the best fit.
    ratio_to_best_fit: f64,
    /// The same, divided by those of as few nodes as the sessions of each moment need.
    ratio_to_fewest: f64,
    /// Times that a node refused what an owner believed it had room for.
    refused: u64,
    over_time: Vec<Moment>,
}

/// How many nodes there are at one moment.
#[derive(Serialize, Clone, Copy, PartialEq, Debug, Default)]
struct Moment {
    at_s: f64,
    alive: u32,
    nodes: u32,
    best_fit: u32,
    fewest: u32,
}

/// What happens to a session, in order of time.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Event {
    at_s: f64,
    session: u32,
    begins: bool,
}

/// Arrivals and ends.
fn trace(it: &PackingArguments) -> Vec<Event> {
    let mut chance = ChaCha8Rng::seed_from_u64(it.seed);
    let mut exponential = |mean: f64| -mean * (1.0 - chance.random::<f64>()).ln();
    let between = f64::from(it.lifetime) / f64::from(it.alive);
    let (mut now, mut events) = (0.0, Vec::new());
    for session in 0..it.sessions {
        now += exponential(between);
        let ends = now + exponential(f64::from(it.lifetime));
        events.push(Event { at_s: now, session, begins: true });
        events.push(Event { at_s: ends, session, begins: false });
    }
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    events
}

/// Nodes with sessions.
struct Fleet {
    places: u32,
    limit: LoadLimit,
    /// By number: how many sessions it holds, and since when it is empty.
    nodes: BTreeMap<u32, (u32, f64)>,
    started: u32,
    at: BTreeMap<u32, u32>,
}

impl Fleet {
    fn new(it: &PackingArguments) -> Self {
        let limit = LoadLimit::parse(0.8).expect("within bounds");
        Self { places: it.places, limit, nodes: BTreeMap::new(), started: 0, at: BTreeMap::new() }
    }

    fn load(&self, used: u32) -> NodeLoad {
        NodeLoad::of_places(used, self.places)
    }

    fn has_room(&self, node: u32) -> bool {
        self.nodes
            .get(&node)
            .is_some_and(|(used, _)| self.load(*used).has_room(self.limit, Resources::of_places(1)))
    }

    /// The fullest node with room, by what is believed of each.
    fn choose(&self, used: impl Fn(u32, u32) -> u32) -> Option<u32> {
        let candidates = self.nodes.iter().map(|(node, (truly, _))| {
            let load = self.load(used(*node, *truly));
            let takes = Resources::of_places(1);
            Candidate { node: *node, load, takes, is_doubtful: false }
        });
        choose(Policy::Pack, self.limit, candidates)
    }

    fn start(&mut self, now: f64) -> u32 {
        self.started += 1;
        self.nodes.insert(self.started, (0, now));
        self.started
    }

    /// Gives how many it holds then.
    fn take(&mut self, node: u32, session: u32) -> u32 {
        self.at.insert(session, node);
        self.nodes.get_mut(&node).map_or(0, |(used, _)| {
            *used += 1;
            *used
        })
    }

    fn end(&mut self, session: u32, now: f64) {
        let node = self.at.remove(&session).and_then(|node| self.nodes.get_mut(&node));
        if let Some((used, since)) = node {
            (*used, *since) = (*used - 1, now);
        }
    }

    fn retire(&mut self, now: f64) {
        self.nodes.retain(|_, (used, since)| *used > 0 || now < *since + EMPTY_S);
    }

    fn count(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }
}

/// Owners, and what each believes of the nodes.
struct Owners {
    believed: Vec<BTreeMap<u32, u32>>,
    renewed_s: f64,
    refused: u64,
}

impl Owners {
    /// Nodes renew: every owner hears what they hold.
    fn hear(&mut self, fleet: &Fleet, now: f64) {
        if now < self.renewed_s + RENEW_S {
            return;
        }
        self.renewed_s = now;
        let truly: BTreeMap<u32, u32> =
            fleet.nodes.iter().map(|(node, (used, _))| (*node, *used)).collect();
        self.believed.iter_mut().for_each(|it| it.clone_from(&truly));
    }

    fn place(&mut self, fleet: &mut Fleet, session: u32, now: f64) {
        let owner = session as usize % self.believed.len();
        let Some(believed) = self.believed.get_mut(owner) else { return };
        loop {
            // A node that came since the last renewals is in the registry, and empty as far as is known.
            let chosen = fleet.choose(|node, _| believed.get(&node).copied().unwrap_or(0));
            let node = chosen.unwrap_or_else(|| fleet.start(now));
            if fleet.has_room(node) {
                believed.insert(node, fleet.take(node, session));
                return;
            }
            self.refused += 1;
            believed.insert(node, fleet.places);
        }
    }
}

fn place_best(fleet: &mut Fleet, session: u32, now: f64) {
    let node = fleet.choose(|_, truly| truly).unwrap_or_else(|| fleet.start(now));
    fleet.take(node, session);
}

fn packed(it: &PackingArguments) -> Packing {
    let events = trace(it);
    let (mut fleet, mut best) = (Fleet::new(it), Fleet::new(it));
    let room = fleet.limit.room(it.places).max(1);
    let believed = vec![BTreeMap::new(); it.managers as usize];
    let mut owners = Owners { believed, renewed_s: 0.0, refused: 0 };
    // Arrivals stop at the last one: what follows is no traffic.
    let last = events.iter().rfind(|event| event.begins).map_or(0.0, |event| event.at_s);
    let (mut sums, mut before) = ([0.0; 3], Moment::default());
    let mut over_time = Vec::new();
    for event in events.iter().take_while(|event| event.at_s <= last) {
        let now = event.at_s;
        let counts = [before.nodes, before.best_fit, before.fewest];
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += f64::from(count) * (now - before.at_s);
        }
        owners.hear(&fleet, now);
        if event.begins {
            owners.place(&mut fleet, event.session, now);
            place_best(&mut best, event.session, now);
        } else {
            fleet.end(event.session, now);
            best.end(event.session, now);
        }
        fleet.retire(now);
        best.retire(now);
        let alive = u32::try_from(fleet.at.len()).unwrap_or(u32::MAX);
        let (nodes, best_fit) = (fleet.count(), best.count());
        before = Moment { at_s: now, alive, nodes, best_fit, fewest: alive.div_ceil(room) };
        let shown = u32::try_from(over_time.len()).unwrap_or(SHOWN);
        if now >= last * f64::from(shown + 1) / f64::from(SHOWN) {
            over_time.push(Moment { at_s: rounded(now, 1), ..before });
        }
    }
    let [nodes, best_fit, fewest] = sums;
    Packing {
        sessions: it.sessions,
        managers: it.managers,
        ratio_to_best_fit: rounded(nodes / best_fit.max(f64::MIN_POSITIVE), 4),
        ratio_to_fewest: rounded(nodes / fewest.max(f64::MIN_POSITIVE), 4),
        refused: owners.refused,
        over_time,
    }
}

/// `bench packing`.
pub fn run(it: &PackingArguments, out: &mut Out) -> anyhow::Result<()> {
    let packing = packed(it);
    if out.format() == Format::Json {
        return Ok(out.json(&packing)?);
    }
    let mut table = plain_table(["SECONDS", "SESSIONS", "NODES", "BEST FIT", "FEWEST"]);
    for moment in &packing.over_time {
        let Moment { at_s, alive, nodes, best_fit, fewest } = moment;
        let counts = [alive, nodes, best_fit, fewest].map(u32::to_string);
        table.add_row(std::iter::once(format!("{at_s:.0}")).chain(counts));
    }
    out.table(&table)?;
    out.text(&format!(
        "\n{:.3} times the nodes of a best fit that knows all, {:.3} times the fewest; {} refusals of nodes\n",
        packing.ratio_to_best_fit, packing.ratio_to_fewest, packing.refused
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(managers: u32) -> PackingArguments {
        PackingArguments {
            sessions: 3_000,
            alive: 300,
            lifetime: 600,
            places: 10,
            managers,
            seed: 7,
        }
    }

    #[test]
    fn one_owner_that_hears_everything_packs_nearly_as_a_best_fit() {
        let packing = packed(&arguments(1));
        assert!((0.9..1.1).contains(&packing.ratio_to_best_fit), "{packing:?}");
        assert!(packing.ratio_to_fewest >= 1.0, "{packing:?}");
        assert_eq!(packing.over_time.len(), SHOWN as usize);
    }

    #[test]
    fn no_session_is_lost_and_no_node_holds_more_than_its_limit() {
        let it = arguments(5);
        let mut fleet = Fleet::new(&it);
        let mut owners = Owners { believed: vec![BTreeMap::new(); 5], renewed_s: 0.0, refused: 0 };
        for event in trace(&it) {
            owners.hear(&fleet, event.at_s);
            if event.begins {
                owners.place(&mut fleet, event.session, event.at_s);
            } else {
                fleet.end(event.session, event.at_s);
            }
            assert!(fleet.nodes.values().all(|(used, _)| *used <= 8));
        }
        assert!(fleet.at.is_empty());
    }
}
