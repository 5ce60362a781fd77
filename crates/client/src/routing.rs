//! Which manager owns a slot, by a View that was fetched from any manager.

use rota_model::{ManagerNumber, SlotId};
use rota_proto::v1;
use rota_ring::place;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A View is not fetched again sooner than this after the last time, whatever went wrong: a ring
/// in trouble must not be asked by every call at once.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// The part of a View that routing needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Routes {
    m: u32,
    owners: BTreeMap<ManagerNumber, ManagerNumber>,
    addresses: BTreeMap<ManagerNumber, Arc<str>>,
}

impl Routes {
    pub(crate) fn of(view: &v1::View) -> Self {
        let owner = |part: &v1::Part| (ManagerNumber(part.number), ManagerNumber(part.owner));
        let address = |it: &v1::ManagerEntry| (ManagerNumber(it.number), it.grpc.as_str().into());
        Self {
            m: view.m,
            owners: view.parts.iter().map(owner).collect(),
            addresses: view.managers.iter().map(address).collect(),
        }
    }

    pub(crate) fn m(&self) -> u32 {
        self.m
    }

    /// Where the owner of a slot serves; `None` when the View does not say.
    pub(crate) fn owner_address(&self, slot: SlotId) -> Option<Arc<str>> {
        let home = place::home(&self.owners, slot)?;
        let address = self.addresses.get(self.owners.get(&home)?)?;
        (!address.is_empty()).then(|| address.clone())
    }
}

/// The cached View and when it must be fetched anew.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    /// A lock because all calls share it; held for a look only, never over a wait.
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    routes: Option<Arc<Routes>>,
    stale: bool,
    fetch_began: Option<Instant>,
}

impl RouteCache {
    fn state(&self) -> std::sync::MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn routes(&self) -> Option<Arc<Routes>> {
        self.state().routes.clone()
    }

    pub(crate) fn mark_stale(&self) {
        self.state().stale = true;
    }

    /// True for one caller at a time: that one fetches and calls [`RouteCache::put`].
    pub(crate) fn should_fetch(&self, now: Instant) -> bool {
        let mut state = self.state();
        let wanted = state.stale || state.routes.is_none();
        let rested = state.fetch_began.is_none_or(|began| now >= began + REFRESH_PAUSE);
        if wanted && rested {
            state.fetch_began = Some(now);
        }
        wanted && rested
    }

    pub(crate) fn put(&self, routes: Routes) {
        let mut state = self.state();
        state.routes = Some(Arc::new(routes));
        state.stale = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> v1::View {
        let manager = |number: u32, grpc: &str| v1::ManagerEntry {
            number,
            grpc: grpc.to_owned(),
            ..Default::default()
        };
        let part = |number, owner| v1::Part { number, owner, ..Default::default() };
        v1::View {
            m: 1024,
            managers: vec![manager(300, "a:1"), manager(700, "b:1"), manager(1000, "")],
            parts: vec![part(300, 700), part(700, 700), part(1000, 1000)],
            ..Default::default()
        }
    }

    #[test]
    fn a_slot_goes_to_the_owner_of_its_partition_not_to_its_home() {
        let routes = Routes::of(&view());
        for slot in [300, 301, 700, 1001] {
            assert_eq!(routes.owner_address(SlotId(slot)).as_deref(), Some("b:1"), "{slot}");
        }
    }

    #[test]
    fn an_owner_without_an_address_gives_no_route() {
        assert_eq!(Routes::of(&view()).owner_address(SlotId(701)), None);
        assert_eq!(Routes::default().owner_address(SlotId(1)), None);
    }

    #[test]
    fn a_view_is_fetched_by_one_caller_and_again_only_when_stale_and_rested() {
        let cache = RouteCache::default();
        let start = Instant::now();
        assert!(cache.should_fetch(start));
        assert!(!cache.should_fetch(start));
        cache.put(Routes::of(&view()));
        assert!(!cache.should_fetch(start + REFRESH_PAUSE));
        cache.mark_stale();
        assert!(cache.should_fetch(start + REFRESH_PAUSE));
    }
}
