//! A manager's disk: batches, and how long it takes to sync them.

use crate::counters::Fault;
use crate::event::Event;
use crate::invariant::{Violation, bodies_beside};
use crate::site::AtManager;
use rota_protocol::{DiskWrite, Input};

impl AtManager<'_> {
    /// Gives a batch to the disk.
    pub(crate) fn write_batch(&mut self, lsn: u64, writes: Vec<DiskWrite>) {
        let (now_us, number) = (self.ground.now_us(), self.number);
        let line = || format!("writes lsn {lsn}: {}", crate::packet::brief_writes(&writes));
        self.ground.trace.line(now_us, self.place(), line);
        let verdict = bodies_beside::check(number, &writes, &self.host.blob_store);
        self.ground.checker.judge(now_us, verdict);
        match self.host.disk.write(lsn, writes) {
            Ok(true) => self.begin_sync(),
            Ok(false) => {}
            Err(error) => {
                let text = format!("M{number} gave its disk {error:?}");
                self.ground.checker.judge(now_us, Err(Violation::new("disk order", text)));
            }
        }
    }

    fn begin_sync(&mut self) {
        let now_us = self.ground.now_us();
        let host = &mut *self.host;
        if host.disk.begin_sync().is_some() {
            let mut delay_us = self.ground.rng.skewed(100, self.ground.setup.sync_us_max);
            if host.slow_disk_until_us > now_us {
                delay_us += self.ground.rng.within(20_000, 400_000);
            }
            let slowed = host.slow_disk_until_us > now_us && !host.slow_disk_felt;
            host.slow_disk_felt |= slowed;
            self.ground.queue.after(delay_us, Event::Synced(self.number, host.run));
            if slowed {
                self.ground.took_effect(Fault::SlowDisk);
            }
        }
    }

    /// A disk finished a sync.
    pub fn on_synced(&mut self) {
        if self.host.process.is_none() {
            return;
        }
        let Some((lsn, done)) = self.host.disk.end_sync() else { return };
        self.ground.checker.ledger.disks.on_durable(self.number, &done);
        self.begin_sync();
        self.tell(Input::Persisted { lsn });
    }
}
