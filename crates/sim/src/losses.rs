//! Managers' machines that are lost with their disks. Their numbers are taken by empty machines, once the
//! others have written them DOWN. When these were all that held a partition, it is found again from the
//! nodes: what had ended, requests and documents are gone then, and only then.
//!
//! Some are replaced with a backup of the log that is as old as the run: whatever the manager was made a copy of
//! since is lost with the machine, and the View says since when that is. (Bodies are files of their own.)

use crate::blob_store::BlobStore;
use crate::counters::Fault;
use crate::disk::SimDisk;
use crate::event::Event;
use crate::world::World;
use rota_model::ManagerNumber;
use rota_protocol::{Disk, Manager};
use rota_ring::{ClaimRefused, View};

/// Whether a View says of everything that a manager is a copy of that it became one after that was its disk.
/// A disk that went back further than anybody can see breaks promises: what was acknowledged since is gone.
fn is_known_as_old(backup: &Disk, number: ManagerNumber, view: &View) -> bool {
    view.parts.iter().all(|(part, entry)| {
        let Some(mine) = entry.isr.iter().find(|it| it.number == number) else { return true };
        match backup.parts.get(part) {
            Some(known) => known.pe < mine.since,
            // An arc that was cut out since may be there under the other half's name.
            None => !view.splits.contains_key(part),
        }
    })
}

impl World {
    /// Some neighbours in the ring die, r + 1 at most and never all, and some of them with their disks.
    pub fn lose_machines(&mut self, fault: Fault) {
        let Some(view) = self.store.state().view.clone() else { return };
        let first = self.some_manager();
        let is_in = |number: &ManagerNumber| {
            let process = self.managers.get(number).and_then(|it| it.process.as_ref());
            process.is_some_and(Manager::is_claimed)
        };
        // Somebody must be left who writes the others DOWN, and who leaves may have left by then.
        let staying = view.managers.keys().filter(|it| view.is_up(**it) && is_in(it)).count();
        let most = (view.r as usize + 1).min(staying.saturating_sub(1));
        let group: Vec<ManagerNumber> = view.ring_from(first).filter(is_in).take(most).collect();
        // With no copies nobody misses anybody, and the number stays active for ever.
        if view.r == 0 || group.is_empty() {
            return;
        }
        let all = self.ground.rng.permille(600);
        for number in group {
            let is_lost = all || self.ground.rng.permille(500);
            self.crash_manager(number);
            let now_us = self.ground.now_us();
            let Some(host) = self.managers.get_mut(&number).filter(|_| is_lost) else {
                self.ground
                    .queue
                    .after(self.ground.rng.within(20_000, 2_000_000), Event::StartManager(number));
                continue;
            };
            let lost = host.disk.durable().clone();
            let backup = host.backup.take().filter(|it| is_known_as_old(it, number, &view));
            if let Some(backup) = backup {
                host.disk.replace(backup);
                self.ground.counters.fault(Fault::DiskWentBack);
            } else {
                host.disk = SimDisk::default();
                host.blob_store = BlobStore::default();
            }
            host.lost_disk = Some(lost);
            self.ground.checker.ledger.on_disk_lost(now_us, number);
            self.ground.took_effect(fault);
            let away_us = self.ground.rng.within(200_000, 3_000_000);
            self.ground.queue.after(away_us, Event::StartManager(number));
        }
    }

    /// An empty machine was refused since the others do not know yet that the one before is gone: it
    /// tries again. A backup was refused since it is of an earlier run: an empty machine takes its place.
    pub fn try_empty_machines_again(&mut self) {
        let early = self.managers.iter().filter_map(|(number, host)| {
            let Some(ClaimRefused::NotThisDisk { incarnation, .. }) =
                host.process.as_ref()?.refused()
            else {
                return None;
            };
            let intended = host.disk.durable().identity.intended;
            let is_next = intended.is_some_and(|it| it.0 > *incarnation);
            let is_lost = self.ground.checker.ledger.disks_lost.contains_key(number);
            is_lost.then_some((*number, is_next))
        });
        for (number, is_next) in early.collect::<Vec<_>>() {
            self.crash_manager(number);
            if !is_next && let Some(host) = self.managers.get_mut(&number) {
                (host.disk, host.blob_store) = (SimDisk::default(), BlobStore::default());
            }
            self.ground.queue.after(200_000, Event::StartManager(number));
        }
    }
}
