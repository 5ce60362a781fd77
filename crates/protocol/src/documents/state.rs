//! What an owner has about documents beside its log.

use crate::documents::waiting::Runs;
use crate::documents::watch::DocumentWatches;
use crate::log::origin::Origin;
use rota_messages::api::CountedUsage;
use rota_model::{ManagerNumber, Stamp};
use std::collections::{BTreeMap, VecDeque};

/// What an owner has about documents.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Documents {
    /// Operations that wait.
    pub runs: Runs,
    /// Managers that wait for news of namespaces.
    pub follows: VecDeque<Origin>,
    /// Clients that wait for changes.
    pub watches: DocumentWatches,
    /// What they said that their partitions hold of namespaces with limits.
    pub counted_usage: BTreeMap<ManagerNumber, CountedUsage>,
    /// Nobody was told of anything later that it does not exist.
    pub told: Stamp,
}

impl Default for Documents {
    fn default() -> Self {
        Self {
            runs: Runs::new(),
            follows: VecDeque::new(),
            watches: DocumentWatches::default(),
            counted_usage: BTreeMap::new(),
            told: Stamp::MAX,
        }
    }
}
