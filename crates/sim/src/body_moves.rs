//! How bodies of attachments come to managers: from who puts them, and from each other.

use crate::event::Event;
use crate::mutants::Bug;
use crate::network::Place;
use crate::world::World;
use crate::writing::BODY_BYTES;
use rota_docstore::Digest;
use rota_model::ManagerNumber;
use rota_protocol::{Bodies, Input};
use std::sync::Arc;

/// For a planted bug: every body is said to be there.
#[derive(Clone, Copy, Debug)]
struct Boast;

impl Bodies for Boast {
    fn hold(&self, _: &Digest) -> Option<u64> {
        Some(BODY_BYTES)
    }
}

impl World {
    /// What a manager's process is told of its bodies.
    pub fn blobs_of(&self, number: ManagerNumber) -> Arc<dyn Bodies> {
        if self.plant.as_ref().is_some_and(|it| it.bug == Bug::BodyBoasted) {
            return Arc::new(Boast);
        }
        Arc::new(self.managers.get(&number).map(|it| it.blob_store.clone()).unwrap_or_default())
    }

    /// The bodies that users have put come to the managers that get them.
    pub fn bring_bodies(&mut self) {
        for (number, sha256) in self.ground.take_bodies() {
            if let Some(host) = self.managers.get(&number) {
                host.blob_store.put(sha256);
            }
        }
    }

    /// A manager wants bodies from others.
    pub fn fetch_bodies(
        &mut self,
        number: ManagerNumber,
        run: u64,
        part: ManagerNumber,
        bodies: Vec<Digest>,
    ) {
        let delay_us = self.ground.rng.skewed(1_000, 300_000);
        self.ground.queue.after(delay_us, Event::Fetched(number, run, part, bodies));
    }

    /// They have come, as far as somebody has them who can be reached now.
    pub fn on_fetched(
        &mut self,
        number: ManagerNumber,
        run: u64,
        part: ManagerNumber,
        bodies: &[Digest],
    ) {
        let Some(host) = self.managers.get(&number) else { return };
        let me = Place::Manager(number);
        let mut all = true;
        for sha256 in bodies {
            let has = self.managers.iter().any(|(other, manager)| {
                let cut = self.ground.network.is_cut(Place::Manager(*other), me);
                manager.process.is_some() && !cut && manager.blob_store.has(sha256)
            });
            if has {
                host.blob_store.put(*sha256);
            }
            all &= has;
        }
        if all {
            self.tell_manager(number, run, Input::BodiesFetched { part });
        }
    }
}
