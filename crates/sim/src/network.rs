//! The network: delay, loss, repetition, reordering and cuts between any two places.

use crate::counters::Fault;
use crate::rng::SeededRng;
use rota_model::ManagerNumber;
use std::collections::BTreeSet;
use std::fmt;

/// Nothing arrives later than this after it was sent, in microseconds.
pub const STRAGGLER_US_MAX: u64 = 3_000_000;

/// A process that can send and receive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// A manager, by its reserved number.
    Manager(ManagerNumber),
    /// A node, by its index.
    Node(usize),
    /// The config store.
    Store,
    /// A client, by its index.
    Client(usize),
}

impl Place {
    /// The observer and its watchers: a client that no manager distinguishes.
    pub const OBSERVER: Self = Self::Client(usize::MAX);
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Manager(number) => write!(f, "M{number}"),
            Place::Node(index) => write!(f, "N{index}"),
            Place::Store => f.write_str("store"),
            Place::Client(index) => write!(f, "c{index}"),
        }
    }
}

/// How messages fare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetworkProfile {
    /// Shortest way, in microseconds.
    pub delay_us: u64,
    /// Up to this is added, so that messages overtake each other.
    pub jitter_us: u64,
    /// How many of a thousand are lost.
    pub loss_permille: u64,
    /// How many of a thousand arrive twice.
    pub repeat_permille: u64,
}

/// A disturbance of the ways from some places to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disturbance {
    /// Its name, to end it.
    pub id: u64,
    /// Its kind.
    pub fault: Fault,
    /// A message has suffered from it: only then it counts.
    pub felt: bool,
    /// Senders.
    pub from: BTreeSet<Place>,
    /// Receivers.
    pub to: BTreeSet<Place>,
    /// Also the other way.
    pub both_ways: bool,
    /// Nothing passes; else `network_profile` is added.
    pub cut: bool,
    /// What is added.
    pub network_profile: NetworkProfile,
}

impl Disturbance {
    fn touches(&self, from: Place, to: Place) -> bool {
        (self.from.contains(&from) && self.to.contains(&to))
            || (self.both_ways && self.from.contains(&to) && self.to.contains(&from))
    }
}

/// What becomes of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passage {
    /// It arrives after this many microseconds, if it arrives.
    pub arrives_us: Option<u64>,
    /// It arrives once more after this many.
    pub again_us: Option<u64>,
}

/// The network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// What holds everywhere.
    pub base: NetworkProfile,
    /// Whether a repeated message may come very late.
    pub stragglers: bool,
    disturbances: Vec<Disturbance>,
}

impl Network {
    /// Begins a disturbance.
    pub fn disturb(&mut self, disturbance: Disturbance) {
        self.disturbances.push(disturbance);
    }

    /// Ends it; gives it back.
    pub fn calm(&mut self, id: u64) -> Option<Disturbance> {
        let at = self.disturbances.iter().position(|it| it.id == id)?;
        Some(self.disturbances.remove(at))
    }

    /// Ends them all.
    pub fn calm_all(&mut self) {
        self.disturbances.clear();
    }

    /// Whether nothing passes from one place to another.
    pub fn is_cut(&self, from: Place, to: Place) -> bool {
        self.disturbances.iter().any(|it| it.cut && it.touches(from, to))
    }

    /// Somebody sends to somebody who is there. Gives the kinds of the disturbances that nothing has
    /// suffered from before; what is cut off suffers from nothing else.
    pub fn feel(&mut self, from: Place, to: Place) -> Vec<Fault> {
        let cut = self.is_cut(from, to);
        let fresh = self.disturbances.iter_mut().filter(|it| !it.felt && it.touches(from, to));
        let fresh = fresh.filter(|it| it.cut == cut);
        let felt = fresh.map(|disturbance| {
            disturbance.felt = true;
            disturbance.fault
        });
        felt.collect()
    }

    /// Decides about one message. `may_repeat` is false where the transport never repeats.
    pub fn pass(&self, from: Place, to: Place, may_repeat: bool, rng: &mut SeededRng) -> Passage {
        if self.is_cut(from, to) {
            return Passage::default();
        }
        let mut network_profile = self.base;
        for more in self.disturbances.iter().filter(|it| it.touches(from, to)) {
            network_profile.delay_us += more.network_profile.delay_us;
            network_profile.jitter_us += more.network_profile.jitter_us;
            network_profile.loss_permille += more.network_profile.loss_permille;
            network_profile.repeat_permille += more.network_profile.repeat_permille;
        }
        let delay = |rng: &mut SeededRng| {
            network_profile.delay_us + rng.within(0, network_profile.jitter_us)
        };
        let arrives = !rng.permille(network_profile.loss_permille);
        let again = may_repeat && rng.permille(network_profile.repeat_permille);
        Passage {
            arrives_us: arrives.then(|| delay(rng)),
            again_us: again.then(|| {
                let late_us = if self.stragglers && rng.permille(150) {
                    rng.within(0, STRAGGLER_US_MAX)
                } else {
                    delay(rng) + delay(rng) * rng.within(0, 40)
                };
                late_us.min(STRAGGLER_US_MAX)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(both_ways: bool) -> Network {
        let mut network = Network::default();
        network.disturb(Disturbance {
            id: 1,
            fault: Fault::Partition,
            felt: false,
            from: BTreeSet::from([Place::Store]),
            to: BTreeSet::from([Place::Node(0)]),
            both_ways,
            cut: true,
            network_profile: NetworkProfile::default(),
        });
        network
    }

    #[test]
    fn a_one_way_cut_lets_the_other_way_pass() {
        let mut network = cut(false);
        assert!(network.is_cut(Place::Store, Place::Node(0)));
        assert!(!network.is_cut(Place::Node(0), Place::Store));
        assert!(!network.is_cut(Place::Store, Place::Node(1)));
        network.calm(1);
        assert!(!network.is_cut(Place::Store, Place::Node(0)));
    }

    #[test]
    fn a_cut_is_felt_once_and_only_on_its_way() {
        let mut network = cut(false);
        assert_eq!(network.feel(Place::Node(0), Place::Store), vec![]);
        assert_eq!(network.feel(Place::Store, Place::Node(0)), vec![Fault::Partition]);
        assert_eq!(network.feel(Place::Store, Place::Node(0)), vec![]);
    }

    #[test]
    fn a_two_way_cut_lets_nothing_pass() {
        let network = cut(true);
        let mut rng = SeededRng::new(1);
        for (from, to) in [(Place::Store, Place::Node(0)), (Place::Node(0), Place::Store)] {
            assert_eq!(network.pass(from, to, true, &mut rng), Passage::default());
        }
    }
}
