//! Managers that should hold a copy of a partition and do not, as its owner sees them.

use crate::log::learner::Learner;
use rota_model::ManagerNumber;
use std::collections::BTreeMap;

/// Managers that should hold a copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Newcomers {
    pub learners: BTreeMap<ManagerNumber, Learner>,
    /// Up managers that should hold a copy and do not, and since when.
    pub missing: BTreeMap<ManagerNumber, u64>,
    /// Managers to which copying was begun, and since when nobody wants that any more. They keep what
    /// they have as long as this epoch lasts, since they might have been added.
    pub begun: BTreeMap<ManagerNumber, Option<u64>>,
    /// That is long enough ago for one of them: a new epoch is due.
    pub drops_abandoned: bool,
}

impl Newcomers {
    /// Notes who is missing. Gives how many have been for that long: somebody else holds a copy for each.
    pub fn on_missing(&mut self, missing: &[ManagerNumber], now_ms: u64, repair_ms: u64) -> usize {
        self.missing.retain(|it, _| missing.contains(it));
        for it in missing {
            self.missing.entry(*it).or_insert(now_ms);
        }
        self.missing.values().filter(|since| now_ms >= **since + repair_ms).count()
    }

    /// Notes who is wanted no more. Whoever is down may come back, and who leaves may stay: they have what they
    /// got.
    pub fn on_wanted(&mut self, is_wanted: impl Fn(&ManagerNumber) -> bool, now_ms: u64) {
        for (it, unwanted) in &mut self.begun {
            *unwanted = if is_wanted(it) { None } else { unwanted.or(Some(now_ms)) };
        }
    }
}
