//! What a seed decides of lives: how long they may last, and which life cycles opens bring.

use crate::event::WALL_START_MS;
use crate::ledger::Asked;
use crate::setup::{ACTS, Setup};
use rota_model::{Handler, LifeFacts, LifeOptions, Restarts, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

impl Setup {
    /// Whether opens bring life cycles.
    pub fn has_life_cycles(&self) -> bool {
        // Not drawn: a draw more would give every seed another run.
        self.ends_permille % 3 == 1
    }

    /// Whether clients take items of life cycles back.
    pub fn takes_back(&self) -> bool {
        self.ends_permille % 6 == 4
    }

    /// What the class says of lives.
    pub fn life(&self) -> LifeFacts {
        let rule = Restarts { times: 3, delay_ms: 200, delay_max_ms: 1_000, steady_ms: 20_000 };
        let action = Handler::Action { events: BTreeSet::new(), retries: 3, timeout_ms: 4_000 };
        let cycles = [("note", Handler::Mark), ("after", Handler::Mark), (ACTS, action)];
        let life_cycles = cycles.map(|(name, it)| (name.to_owned(), it)).into();
        LifeFacts {
            max_life_ms: (self.ends_permille % 5 == 2).then_some(15_000),
            idle_ms: (self.ends_permille % 7 == 3).then_some(20_000),
            restarts: (self.ends_permille % 4 == 1).then_some(rule),
            life_cycles: if self.has_life_cycles() { life_cycles } else { BTreeMap::new() },
            ..LifeFacts::default()
        }
    }

    /// After that time without clients nothing happens by itself in sessions any more.
    pub fn lives_rest_us(&self) -> Option<u64> {
        let LifeFacts { idle_ms, max_life_ms, restarts, life_cycles, .. } = self.life();
        let over_ms = idle_ms.max(max_life_ms).map(|it| it + 2_000);
        let fired_ms = (restarts.is_some() || !life_cycles.is_empty()).then_some(10_000);
        Some(over_ms.max(fired_ms)? * 1_000)
    }

    /// What an open brings.
    pub fn life_of(&self, asked: &Asked) -> Option<Arc<LifeOptions>> {
        let first_us = asked.attempts.first()?.sent_us;
        let hash = xxh3_64(asked.request.as_str().as_bytes());
        if !self.has_life_cycles() || hash.is_multiple_of(4) {
            return None;
        }
        let at = |after_ms: u64| Stamp::from_epoch_ms(WALL_START_MS + first_us / 1000 + after_ms);
        let (soon, later) = (hash % 1_500, 500 + hash / 7 % 6_000);
        let items = [
            format!("note n@{}", at(soon)),
            format!("{ACTS} a@{}", at(later)),
            format!("{ACTS} b@{}", at(soon)),
            format!("after {ACTS}?a"),
        ];
        let managed_state = items.into_iter().collect();
        Some(Arc::new(LifeOptions { managed_state, ..LifeOptions::default() }))
    }
}
