//! Managers' machines that are lost with their disks. Their numbers are taken by empty machines, once the
//! others have written them DOWN. When these were all that held a partition, it is found again from the
//! nodes: what had ended, requests and documents are gone then, and only then.
//!
//! Some are replaced with a backup of the log that is as old as the run: whatever the manager was made a copy of
//! since is lost with the machine, and the View says since when that is. (Bodies are files of their own.)

use crate::counters::Fault;
use crate::event::Event;
use crate::manager_host::ManagerHost;
use crate::world::World;
use rota_model::ManagerNumber;
use rota_protocol::Disk;
use rota_ring::View;

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

/// Some neighbours in the ring die, r + 1 at most and never all, and some of them with their disks.
pub(crate) fn lose_machines(world: &mut World, fault: Fault) {
    let Some(view) = world.store.state().view.clone() else { return };
    let first = world.ground.some_manager();
    let is_in =
        |number: &ManagerNumber| world.managers.get(number).is_some_and(ManagerHost::is_claimed);
    // Somebody must be left who writes the others DOWN, and who leaves may have left by then.
    let staying = view.managers.keys().filter(|it| view.is_up(**it) && is_in(it)).count();
    let most = (view.r as usize + 1).min(staying.saturating_sub(1));
    let group: Vec<ManagerNumber> = view.ring_from(first).filter(is_in).take(most).collect();
    // With no copies nobody misses anybody, and the number stays active for ever.
    if view.r == 0 || group.is_empty() {
        return;
    }
    let all = world.ground.rng.permille(600);
    for number in group {
        let is_lost = all || world.ground.rng.permille(500);
        let Some(mut at) = world.manager(number) else { continue };
        at.crash();
        let away_us = if is_lost {
            if at.host.lose_disk(number, &view) {
                at.ground.counters.fault(Fault::DiskWentBack);
            }
            let now_us = at.ground.now_us();
            at.ground.checker.ledger.disks.lost_us.insert(number, now_us);
            at.ground.took_effect(fault);
            at.ground.rng.within(200_000, 3_000_000)
        } else {
            at.ground.rng.within(20_000, 2_000_000)
        };
        at.ground.queue.after(away_us, Event::StartManager(number));
    }
}

impl ManagerHost {
    /// The disk is lost: what comes in its place is a backup, or empty. Whether it is a backup.
    fn lose_disk(&mut self, number: ManagerNumber, view: &View) -> bool {
        let lost = self.disk.durable().clone();
        let backup = self.past.backup.take().filter(|it| is_known_as_old(it, number, view));
        let went_back = backup.is_some();
        match backup {
            Some(backup) => self.disk.replace(backup),
            None => self.empty(),
        }
        self.past.lost = Some(lost);
        went_back
    }
}
