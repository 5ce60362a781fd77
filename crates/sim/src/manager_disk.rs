//! A manager's disk: batches, and how long it takes to sync them.

use crate::counters::Fault;
use crate::event::Event;
use crate::invariant::bodies_beside;
use crate::network::Place;
use crate::world::World;
use rota_model::ManagerNumber;
use rota_protocol::Input;

impl World {
    pub(crate) fn persist(
        &mut self,
        number: ManagerNumber,
        lsn: u64,
        writes: Vec<rota_protocol::DiskWrite>,
    ) {
        let now_us = self.ground.now_us();
        let line = || format!("writes lsn {lsn}: {}", crate::packet::brief_writes(&writes));
        self.ground.trace.line(now_us, Place::Manager(number), line);
        let Some(host) = self.managers.get_mut(&number) else { return };
        self.ground.checker.judge(now_us, bodies_beside::check(number, &writes, &host.blob_store));
        match host.disk.write(lsn, writes) {
            Ok(true) => self.begin_sync(number),
            Ok(false) => {}
            Err(error) => {
                let text = format!("M{number} gave its disk {error:?}");
                let violation = crate::invariant::Violation::new("disk order", text);
                self.ground.checker.judge(now_us, Err(violation));
            }
        }
    }

    fn begin_sync(&mut self, number: ManagerNumber) {
        let now_us = self.ground.now_us();
        let Some(host) = self.managers.get_mut(&number) else { return };
        if host.disk.begin_sync().is_some() {
            let mut delay_us = self.ground.rng.skewed(100, self.ground.setup.sync_us_max);
            if host.slow_disk_until_us > now_us {
                delay_us += self.ground.rng.within(20_000, 400_000);
            }
            let slowed = host.slow_disk_until_us > now_us && !host.slow_disk_felt;
            host.slow_disk_felt |= slowed;
            self.ground.queue.after(delay_us, Event::Synced(number, host.run));
            if slowed {
                self.ground.took_effect(Fault::SlowDisk);
            }
        }
    }

    /// A disk finished a sync.
    pub fn on_synced(&mut self, number: ManagerNumber, run: u64) {
        let Some(host) = self.managers.get_mut(&number) else { return };
        if host.run != run || host.process.is_none() {
            return;
        }
        let Some((lsn, done)) = host.disk.end_sync() else { return };
        self.ground.checker.ledger.on_durable(number, &done);
        self.begin_sync(number);
        self.tell_manager(number, run, Input::Persisted { lsn });
    }
}
