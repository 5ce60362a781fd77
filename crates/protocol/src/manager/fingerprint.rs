//! What makes two managers the same: for a search over all states, which must know what it has
//! seen, and must not tell apart what behaves alike.

use crate::log::env::Env;
use crate::manager::inputs::Manager;
use std::hash::{Hash, Hasher};

impl Manager {
    /// Feeds everything that decides what this manager does next. Between a
    /// [`flush`](Manager::flush) and the next input only: what waits to be flushed is no part of it.
    ///
    /// Left out are the configuration, which never changes, what follows from the View, and what only
    /// makes names: two managers
    /// whose outstanding names are equal go on alike, whatever their next name is. Namespaces and
    /// cached copies of documents are not in it beyond whether they are known, so a search must not
    /// change them.
    pub fn fingerprint(&self, into: &mut impl Hasher) {
        let Self {
            env,
            parts,
            router,
            membership,
            changes,
            detector,
            following,
            orders,
            progress,
            next_tick_ms,
        } = self;
        env.fingerprint(into);
        (parts, router, membership, changes, following, orders, progress, next_tick_ms).hash(into);
        detector.fingerprint(into);
    }

    /// Index of the newest state of the config store that this manager knows.
    pub fn config_index(&self) -> u64 {
        self.changes.index
    }

    /// Feeds what [`fingerprint`](Self::fingerprint) leaves out since it only makes names. Two managers
    /// that agree in both are equal.
    pub fn fingerprint_names(&self, into: &mut impl Hasher) {
        self.env.fresh_names().hash(into);
    }
}

impl Env {
    fn fingerprint(&self, into: &mut impl Hasher) {
        (self.me, &self.view, &self.nodes).hash(into);
        (self.desks.knows_spaces, &self.desks.spaces, self.stamps.forgotten).hash(into);
        (
            &self.fleet.calls,
            self.store.refresh,
            self.store.is_away,
            &self.store.suspects,
            &self.fleet.condemned,
        )
            .hash(into);
        (&self.store.reads_wanted, &self.fleet.wanted, &self.fleet.orders, self.unwritten())
            .hash(into);
    }
}
