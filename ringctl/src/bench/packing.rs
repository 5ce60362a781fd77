//! How well placement packs: random arrivals, placed by owners that each know only part of what nodes hold,
//! beside a best fit that knows all. Nothing is started: it is a calculation.
//!
//! Owners hear of a node's load when it answers them, and with its renewals. The node has the last word. The
//! best fit takes the fullest node that has room, by true loads. Both start a node when none has room, and
//! retire one that is empty for a while. The offline best fit places what lives at a moment anew, the largest first.

use super::report::rounded;
use crate::failure::UsageMistake;
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
    /// Places that a session takes: each amount from A to B is as likely.
    #[arg(long, value_name = "A..B", default_value = "1..1", value_parser = weights)]
    weights: Weights,
    /// How many owners place sessions.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Decides the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The least and the most places that a session takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Weights(u32, u32);

fn weights(text: &str) -> Result<Weights, String> {
    let form = || format!("it is {text:?}; it must be A..B, as in 1..8");
    let (least, most) = text.split_once("..").ok_or_else(form)?;
    let number = |it: &str| it.parse::<u32>().map_err(|_| form());
    match (number(least)?, number(most)?) {
        (least, most) if least >= 1 && least <= most => Ok(Weights(least, most)),
        _ => Err(format!("{}, from 1 on, and A not above B", form())),
    }
}

#[derive(Serialize, PartialEq, Debug)]
struct Packing {
    sessions: u32,
    managers: u32,
    /// The least and the most places that a session takes.
    weights: [u32; 2],
    /// Node-seconds of Rota's placement, divided by those of the best fit.
    ratio_to_best_fit: f64,
    /// The same, divided by those of a best fit that places the sessions of each moment anew.
    ratio_to_offline_best_fit: f64,
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
    offline: u32,
    fewest: u32,
}

/// What happens to a session, in order of time.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Event {
    at_s: f64,
    session: u32,
    begins: bool,
    /// Places that it takes.
    weight: u32,
}

/// Arrivals and ends.
fn trace(it: &PackingArguments) -> Vec<Event> {
    let mut chance = ChaCha8Rng::seed_from_u64(it.seed);
    // Of its own, so that arrivals are the same whatever sessions take.
    let mut weighed = ChaCha8Rng::seed_from_u64(it.seed.wrapping_add(1));
    let mut exponential = |mean: f64| -mean * (1.0 - chance.random::<f64>()).ln();
    let between = f64::from(it.lifetime) / f64::from(it.alive);
    let (mut now, mut events) = (0.0, Vec::new());
    for session in 0..it.sessions {
        now += exponential(between);
        let ends = now + exponential(f64::from(it.lifetime));
        let weight = weighed.random_range(it.weights.0..=it.weights.1);
        events.push(Event { at_s: now, session, begins: true, weight });
        events.push(Event { at_s: ends, session, begins: false, weight });
    }
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    events
}

/// Nodes with sessions.
struct Fleet {
    places: u32,
    limit: LoadLimit,
    /// By number: how many of its places are taken, and since when it is empty.
    nodes: BTreeMap<u32, (u32, f64)>,
    started: u32,
    /// By session, its node, and what it takes there.
    at: BTreeMap<u32, (u32, u32)>,
}

impl Fleet {
    fn new(it: &PackingArguments) -> Self {
        let limit = LoadLimit::parse(0.8).expect("within bounds");
        Self { places: it.places, limit, nodes: BTreeMap::new(), started: 0, at: BTreeMap::new() }
    }

    fn load(&self, used: u32) -> NodeLoad {
        NodeLoad::of_places(used, self.places)
    }

    fn has_room(&self, node: u32, weight: u32) -> bool {
        let takes = Resources::of_places(weight);
        let node = self.nodes.get(&node);
        node.is_some_and(|(used, _)| self.load(*used).has_room(self.limit, takes))
    }

    fn used(&self, node: u32) -> u32 {
        self.nodes.get(&node).map_or(0, |(used, _)| *used)
    }

    /// The fullest node with room, by what is believed of each, after so many have refused.
    fn choose(&self, weight: u32, refusals: usize, used: impl Fn(u32, u32) -> u32) -> Option<u32> {
        let candidates = self.nodes.iter().map(|(node, (truly, _))| {
            let load = self.load(used(*node, *truly));
            let takes = Resources::of_places(weight);
            Candidate { node: *node, load, takes, is_doubtful: false }
        });
        choose((Policy::Pack, self.limit), refusals, candidates)
    }

    fn start(&mut self, now: f64) -> u32 {
        self.started += 1;
        self.nodes.insert(self.started, (0, now));
        self.started
    }

    /// Gives how many places are taken then.
    fn take(&mut self, node: u32, (session, weight): (u32, u32)) -> u32 {
        self.at.insert(session, (node, weight));
        self.nodes.get_mut(&node).map_or(0, |(used, _)| {
            *used += weight;
            *used
        })
    }

    fn end(&mut self, session: u32, now: f64) {
        let Some((node, weight)) = self.at.remove(&session) else { return };
        if let Some((used, since)) = self.nodes.get_mut(&node) {
            (*used, *since) = (used.saturating_sub(weight), now);
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

    fn place(&mut self, fleet: &mut Fleet, (session, weight): (u32, u32), now: f64) {
        let owner = session as usize % self.believed.len();
        let Some(believed) = self.believed.get_mut(owner) else { return };
        for refusals in 0.. {
            // A node that came since the last renewals is in the registry, and empty as far as is known.
            let chosen =
                fleet.choose(weight, refusals, |node, _| believed.get(&node).copied().unwrap_or(0));
            let node = chosen.unwrap_or_else(|| fleet.start(now));
            if fleet.has_room(node, weight) {
                believed.insert(node, fleet.take(node, (session, weight)));
                return;
            }
            self.refused += 1;
            believed.insert(node, fleet.used(node));
        }
    }
}

fn place_best(fleet: &mut Fleet, (session, weight): (u32, u32), now: f64) {
    let node = fleet.choose(weight, 0, |_, truly| truly).unwrap_or_else(|| fleet.start(now));
    fleet.take(node, (session, weight));
}

/// What lives at a moment: by weight, how many sessions.
#[derive(Default)]
struct Alive(BTreeMap<u32, u32>);

impl Alive {
    fn on(&mut self, event: Event) {
        let count = self.0.entry(event.weight).or_default();
        *count = if event.begins { *count + 1 } else { count.saturating_sub(1) };
    }

    /// Nodes that a best fit needs for all of them, the largest first.
    fn offline(&self, it: &Fleet) -> u32 {
        // By places that are taken, how many nodes.
        let mut nodes: BTreeMap<u32, u32> = BTreeMap::new();
        for (weight, count) in self.0.iter().rev() {
            let mut left = *count;
            while left > 0 {
                let takes = |used: u32| it.load(used).room(it.limit, Resources::of_places(*weight));
                let fullest = nodes.iter().rev().map(|(used, _)| *used).find(|it| takes(*it) > 0);
                let used = fullest.unwrap_or(0);
                if fullest.is_none() {
                    nodes.insert(0, left.div_ceil(takes(0).max(1)));
                }
                // Each of these is filled before the next one.
                let each = takes(used).max(1);
                let (there, filled) = (nodes.get(&used).copied().unwrap_or(1), left / each);
                let (some, more) = if filled > 0 { (filled.min(there), each) } else { (1, left) };
                left -= some * more;
                nodes.insert(used, there - some);
                nodes.retain(|_, count| *count > 0);
                *nodes.entry(used + more * weight).or_default() += some;
            }
        }
        nodes.values().sum()
    }

    /// Nodes without which there are too few places: the last session of a node may go beyond the limit.
    fn fewest(&self, it: &Fleet) -> u32 {
        let all = self.0.iter().map(|(weight, count)| weight * count).sum::<u32>();
        let largest = self.0.iter().filter(|(_, count)| **count > 0).map(|it| *it.0).max();
        let beyond = largest.unwrap_or(1) - 1;
        all.div_ceil((it.limit.room(it.places) + beyond).clamp(1, it.places))
    }
}

fn packed(it: &PackingArguments) -> Packing {
    let events = trace(it);
    let (mut fleet, mut best) = (Fleet::new(it), Fleet::new(it));
    let mut living = Alive::default();
    let believed = vec![BTreeMap::new(); it.managers as usize];
    let mut owners = Owners { believed, renewed_s: 0.0, refused: 0 };
    // Arrivals stop at the last one: what follows is no traffic.
    let last = events.iter().rfind(|event| event.begins).map_or(0.0, |event| event.at_s);
    let (mut sums, mut before) = ([0.0; 4], Moment::default());
    let mut over_time = Vec::new();
    for event in events.iter().take_while(|event| event.at_s <= last) {
        let now = event.at_s;
        let counts = [before.nodes, before.best_fit, before.offline, before.fewest];
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += f64::from(count) * (now - before.at_s);
        }
        owners.hear(&fleet, now);
        living.on(*event);
        if event.begins {
            owners.place(&mut fleet, (event.session, event.weight), now);
            place_best(&mut best, (event.session, event.weight), now);
        } else {
            fleet.end(event.session, now);
            best.end(event.session, now);
        }
        fleet.retire(now);
        best.retire(now);
        let alive = u32::try_from(fleet.at.len()).unwrap_or(u32::MAX);
        let (nodes, best_fit) = (fleet.count(), best.count());
        let (offline, fewest) = (living.offline(&fleet), living.fewest(&fleet));
        before = Moment { at_s: now, alive, nodes, best_fit, offline, fewest };
        let shown = u32::try_from(over_time.len()).unwrap_or(SHOWN);
        if now >= last * f64::from(shown + 1) / f64::from(SHOWN) {
            over_time.push(Moment { at_s: rounded(now, 1), ..before });
        }
    }
    let [nodes, best_fit, offline, fewest] = sums;
    Packing {
        sessions: it.sessions,
        managers: it.managers,
        weights: [it.weights.0, it.weights.1],
        ratio_to_best_fit: rounded(nodes / best_fit.max(f64::MIN_POSITIVE), 4),
        ratio_to_offline_best_fit: rounded(nodes / offline.max(f64::MIN_POSITIVE), 4),
        ratio_to_fewest: rounded(nodes / fewest.max(f64::MIN_POSITIVE), 4),
        refused: owners.refused,
        over_time,
    }
}

/// `bench packing`.
pub fn run(it: &PackingArguments, out: &mut Out) -> anyhow::Result<()> {
    if it.weights.1 > it.places {
        let Weights(least, most) = it.weights;
        let text = format!("--weights is {least}..{most}; a node has {} --places", it.places);
        anyhow::bail!(UsageMistake(text));
    }
    let packing = packed(it);
    if out.format() == Format::Json {
        return Ok(out.json(&packing)?);
    }
    let mut table = plain_table(["SECONDS", "SESSIONS", "NODES", "BEST FIT", "OFFLINE", "FEWEST"]);
    for moment in &packing.over_time {
        let Moment { at_s, alive, nodes, best_fit, offline, fewest } = moment;
        let counts = [alive, nodes, best_fit, offline, fewest].map(u32::to_string);
        table.add_row(std::iter::once(format!("{at_s:.0}")).chain(counts));
    }
    out.table(&table)?;
    out.text(&format!(
        "\n{:.3} times the nodes of a best fit that knows all, {:.3} times those of one offline, {:.3} times the \
         fewest; {} refusals of nodes\n",
        packing.ratio_to_best_fit,
        packing.ratio_to_offline_best_fit,
        packing.ratio_to_fewest,
        packing.refused
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
            weights: Weights(1, 1),
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
                owners.place(&mut fleet, (event.session, event.weight), event.at_s);
            } else {
                fleet.end(event.session, event.at_s);
            }
            assert!(fleet.nodes.values().all(|(used, _)| *used <= 8));
        }
        assert!(fleet.at.is_empty());
    }

    #[test]
    fn sessions_of_different_weight_are_compared_with_a_best_fit_of_the_largest_first() {
        let even = packed(&arguments(1));
        assert_eq!(
            even.ratio_to_offline_best_fit, even.ratio_to_fewest,
            "of one weight it is the fewest"
        );
        let packing = packed(&PackingArguments { weights: Weights(1, 8), ..arguments(1) });
        assert!(packing.ratio_to_offline_best_fit >= 1.0, "{packing:?}");
        assert!(packing.ratio_to_fewest >= packing.ratio_to_offline_best_fit, "{packing:?}");
        assert_eq!(packing.weights, [1, 8]);
    }

    #[test]
    fn the_largest_come_first_and_the_fullest_node_takes_the_next() {
        let fleet = Fleet::new(&arguments(1));
        let of = |all: &[(u32, u32)]| Alive(all.iter().copied().collect()).offline(&fleet);
        assert_eq!((of(&[]), of(&[(1, 8)]), of(&[(1, 9)])), (0, 1, 2));
        // Of ten places a node takes nothing more once eight are taken: 8 | 8 | 5+5 | 5+3 | 1.
        assert_eq!(of(&[(8, 2), (5, 3), (3, 1), (1, 1)]), 5);
        assert_eq!(of(&[(6, 2), (4, 2)]), 2);
    }

    #[test]
    fn weights_are_a_range_from_one_on() {
        assert_eq!(weights("1..8"), Ok(Weights(1, 8)));
        for wrong in ["8", "0..3", "5..2", "a..b"] {
            assert!(weights(wrong).unwrap_err().contains("A..B"), "{wrong}");
        }
    }
}
