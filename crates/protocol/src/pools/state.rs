//! What a pool's owner has beside its log.

use crate::pools::clearing::Clearing;
use crate::pools::short_lived::ShortLived;
use rota_model::{LogPos, ManagerNumber, NodeId, PoolName, PoolSettings, Resources};
use std::collections::BTreeMap;

/// How long it counts that an owner of sessions found no room. It asks again every 250 ms. Longer: what has found
/// a place meanwhile counts still, and a node too many is started. Shorter: owners do not count together.
const WANTED_MS: u64 = 400;

/// What an owner of sessions wants.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Wanted {
    /// Sessions that found no room: what each takes, and how many there are.
    waiting: Vec<(Resources, u32)>,
    /// Index of the newest state of the config store that it knew when it counted them.
    index: u64,
    at_ms: u64,
}

/// What a pool's owner has beside its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Pools {
    /// Orders of new nodes that wait for their commit.
    pub ordering: BTreeMap<PoolName, LogPos>,
    /// Index of the config store's state whose texts of classes are kept.
    pub texts_index: u64,
    /// Since when each node of this owner's pools was spare.
    pub spare_since: BTreeMap<NodeId, u64>,
    /// When it looks next whether a node is to be ended.
    pub look_ms: u64,
    /// By pool, when a provisioner was done with an order of this owner last, by the wall clock.
    pub provisioned_ms: BTreeMap<PoolName, u64>,
    /// How pools were described at the last look.
    pub described: BTreeMap<PoolName, PoolSettings>,
    /// What is done about nodes of which something may be left.
    pub clearing: Clearing,
    /// Nodes that end soon after they came.
    pub short_lived: ShortLived,
    /// By pool, which owners found no room.
    wanted: BTreeMap<PoolName, BTreeMap<ManagerNumber, Wanted>>,
}

impl Pools {
    /// An owner found no room for so many sessions.
    pub fn note_wanted(
        &mut self,
        pool: &PoolName,
        from: ManagerNumber,
        (waiting, index): (Vec<(Resources, u32)>, u64),
        at_ms: u64,
    ) {
        let wanted = Wanted { waiting, index, at_ms };
        self.wanted.entry(pool.clone()).or_default().insert(from, wanted);
    }

    /// Which sessions wait for room in a pool: what each takes, and how many there are. Who asks does so again and
    /// again, and does not know of nodes that have come meanwhile: it is heard only when it has seen all that are known
    /// here, since it then found no room in them either.
    pub fn waiting(&self, pool: &PoolName, seen_all: u64, now_ms: u64) -> Vec<(Resources, u32)> {
        let wanted = self.wanted.get(pool).into_iter().flat_map(BTreeMap::values);
        let heard = wanted.filter(|it| it.index >= seen_all && now_ms < it.at_ms + WANTED_MS);
        let mut all: BTreeMap<Resources, u32> = BTreeMap::new();
        for (takes, count) in heard.flat_map(|it| &it.waiting) {
            let sum = all.entry(*takes).or_default();
            *sum = sum.saturating_add(*count);
        }
        all.into_iter().collect()
    }

    /// Forgets who wants nothing any more.
    pub fn forget_wanted(&mut self, now_ms: u64) {
        self.wanted.retain(|_, by| {
            by.retain(|_, it| now_ms < it.at_ms + WANTED_MS);
            !by.is_empty()
        });
    }
}
