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
