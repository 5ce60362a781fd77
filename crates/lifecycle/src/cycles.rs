//! Life cycles that wait for each other.

use crate::item::{LifeItem, Word};
use crate::managed::{Held, Managed};
use crate::name::Name;
use std::collections::{BTreeMap, BTreeSet};

/// Which life cycles the stuck ones wait for.
type Waits<'a> = BTreeMap<&'a Name, BTreeSet<&'a Name>>;

impl Managed {
    /// Life cycles that wait for each other and of which none can fire by itself, each group in order. Somebody
    /// must add, remove or finish something. Tell it as a warning with the update.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let waits = self.stuck_waits();
        let reached: BTreeMap<&Name, BTreeSet<&Name>> =
            waits.keys().map(|from| (*from, reached_from(&waits, from))).collect();
        let mut cycles = BTreeSet::new();
        for (from, to) in &reached {
            // Those that it waits for by any way and that wait for it.
            let both = to.iter().filter(|it| reached.get(**it).is_some_and(|it| it.contains(from)));
            let cycle: Vec<String> = both.map(|it| it.to_string()).collect();
            if !cycle.is_empty() {
                cycles.insert(cycle);
            }
        }
        cycles.into_iter().collect()
    }

    /// Waits that stay even when all times pass and all actions succeed.
    fn stuck_waits(&self) -> Waits<'_> {
        let mut stuck: BTreeMap<&LifeItem, (&Name, &Name)> = BTreeMap::new();
        for (item, held) in &self.items {
            if let Word::Wait { life_cycle, event } = item.last()
                && !self.is_free(held, life_cycle, event)
            {
                stuck.insert(item, (life_cycle, event));
            }
        }
        // What is not stuck for good frees others.
        loop {
            let is_over = |name: &Name| {
                let mut items = self.items_of(name);
                items.all(|(item, _)| item.last().can_fire() && !stuck.contains_key(item))
            };
            let free: Vec<&LifeItem> = stuck
                .iter()
                .filter(|(_, (name, _))| is_over(name))
                .map(|(item, _)| *item)
                .collect();
            if free.is_empty() {
                break;
            }
            stuck.retain(|item, _| !free.contains(item));
        }
        let mut waits = Waits::new();
        for (item, (life_cycle, _)) in stuck {
            waits.entry(item.life_cycle()).or_default().insert(life_cycle);
        }
        waits
    }

    /// Whether a wait fired, or will, whatever happens to other waits.
    fn is_free(&self, held: &Held, life_cycle: &Name, event: &Name) -> bool {
        let will_be_reached = || {
            self.items_of(life_cycle).any(|(item, _)| match item.last() {
                Word::At { event: own, .. } => own == event,
                Word::Mark(_) | Word::Wait { .. } => false,
            })
        };
        held.fired.is_some()
            || held.ready
            || self.is_fulfilled(life_cycle, event)
            || will_be_reached()
    }
}

fn reached_from<'a>(waits: &Waits<'a>, from: &'a Name) -> BTreeSet<&'a Name> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(name) = open.pop() {
        let next = waits.get(name).into_iter().flatten();
        open.extend(next.copied().filter(|it| reached.insert(*it)));
    }
    reached
}
