//! How bodies of attachments come to managers: from who puts them, and from each other.

use crate::network::Place;
use crate::world::World;
use rota_docstore::Digest;
use rota_model::ManagerNumber;
use rota_protocol::Input;

impl World {
    /// The bodies that users have put come to the managers that get them.
    pub fn bring_bodies(&mut self) {
        for (number, sha256) in self.ground.take_bodies() {
            if let Some(host) = self.managers.get(&number) {
                host.blob_store.put(sha256);
            }
        }
    }

    /// They have come, as far as somebody has them who can be reached now.
    pub fn on_fetched(
        &mut self,
        (number, run): (ManagerNumber, u64),
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
            self.tell_run((number, run), Input::BodiesFetched { part });
        }
    }
}
