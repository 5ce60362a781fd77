//! What a pool's owner has beside its log.

use rota_model::{LogPos, ManagerNumber, PoolName};
use std::collections::BTreeMap;

/// How long it counts that an owner of sessions found no room. It asks again every 250 ms. Longer: what has found
/// a place meanwhile counts still, and a node too many is started. Shorter: owners do not count together.
const WANTED_MS: u64 = 400;

/// What an owner of sessions wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Wanted {
    /// Sessions that wait for a place.
    waiting: u32,
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
    /// By pool, which owners found no room.
    wanted: BTreeMap<PoolName, BTreeMap<ManagerNumber, Wanted>>,
}

impl Pools {
    /// An owner found no room for so many sessions.
    pub fn note_wanted(
        &mut self,
        pool: &PoolName,
        from: ManagerNumber,
        (waiting, index): (u32, u64),
        at_ms: u64,
    ) {
        let wanted = Wanted { waiting, index, at_ms };
        self.wanted.entry(pool.clone()).or_default().insert(from, wanted);
    }

    /// How many sessions wait for a place in a pool. Who asks does so again and again, and does not know of
    /// nodes that have come meanwhile: it is heard only when it has seen all that are known here, since it
    /// then found no room in them either.
    pub fn waiting(&self, pool: &PoolName, seen_all: u64, now_ms: u64) -> u32 {
        let wanted = self.wanted.get(pool).into_iter().flat_map(BTreeMap::values);
        let heard = wanted.filter(|it| it.index >= seen_all && now_ms < it.at_ms + WANTED_MS);
        heard.map(|it| it.waiting).fold(0, u32::saturating_add)
    }

    /// Forgets who wants nothing any more.
    pub fn forget_wanted(&mut self, now_ms: u64) {
        self.wanted.retain(|_, by| {
            by.retain(|_, it| now_ms < it.at_ms + WANTED_MS);
            !by.is_empty()
        });
    }
}
