//! What a pool's owner has beside its log.

use rota_model::{LogPos, PoolName};
use std::collections::BTreeMap;

/// What a pool's owner has beside its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Pools {
    /// Orders of new nodes that wait for their commit.
    pub ordering: BTreeMap<PoolName, LogPos>,
}
