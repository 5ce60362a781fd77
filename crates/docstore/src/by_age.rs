//! What is remembered for a while, in order of age: how much there is, and what goes first. Whoever keeps
//! documents keeps this beside its memories; they themselves are found by their names.

use rota_model::Stamp;
use std::collections::BTreeSet;

/// Names of memories in order of age.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ByAge<K> {
    all: BTreeSet<(Stamp, K)>,
}

impl<K> Default for ByAge<K> {
    fn default() -> Self {
        Self { all: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> ByAge<K> {
    /// A memory changed: since when it is remembered, before and now. `None`: it was not there, or is not
    /// any more.
    pub fn change(&mut self, key: &K, before: Option<Stamp>, after: Option<Stamp>) {
        if before == after {
            return;
        }
        if let Some(since) = before {
            self.all.remove(&(since, key.clone()));
        }
        if let Some(since) = after {
            self.all.insert((since, key.clone()));
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Since when the oldest is remembered.
    pub fn oldest(&self) -> Option<Stamp> {
        self.all.first().map(|(since, _)| *since)
    }

    /// Those from before that time, the oldest first.
    pub fn before(&self, time: Stamp) -> impl Iterator<Item = &K> {
        self.all.iter().take_while(move |(since, _)| *since < time).map(|(_, key)| key)
    }
}
