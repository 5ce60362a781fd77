//! What the owner of all descriptions has beside its log, for stable numbers.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::resident::{Resident, Turn};
use crate::ports::slots::CONFIGURATION;
use rota_messages::DocKey;
use rota_model::Epoch;
use rota_model::items::POOL_CLASS;

/// Between two steps: what comes and goes meanwhile is written together. Longer, and a new node is shown without a
/// number for longer. Shorter, and nodes that register one after the other cost an entry of the log each.
pub(crate) const STEP_MS: u64 = 200;

/// Which assigning of numbers is due. Whatever outlives an epoch stands in documents.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct StableNumbers {
    /// The index of the config store's state and the epoch of the View for which all numbers are assigned;
    /// `None`: there is something to be looked at.
    pub settled: Option<(u64, Epoch)>,
    /// When the next entry is outdated, in milliseconds since 1970.
    pub outdated_wall_ms: Option<u64>,
    /// No step before.
    pub next_ms: u64,
}

impl Resident for StableNumbers {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self { settled: None, outdated_wall_ms: None, next_ms: 0 }
    }

    fn committed(&mut self, _: &mut At<'_>, key: &DocKey) {
        if key.name.class() == POOL_CLASS && key.name.space() == CONFIGURATION {
            self.settled = None;
        }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        if turn == Turn::Rest {
            self.assign(led);
        }
    }
}
