//! A manager's disk: writes become durable in order, some time after they were given; a crash
//! keeps a prefix of what was not yet durable.
//!
//! A batch that a crash tears equals one that is lost: an engine commits a batch whole or not at all, and
//! finds it so when it opens (`crates/storage/tests` tears the last one in many places). A crash comes
//! therefore between any two batches, or in the middle of one, which is then not there, and whose end nobody
//! was told.

use crate::rng::SeededRng;
use rota_protocol::{Disk, DiskWrite, Doc};
use std::collections::VecDeque;
use std::sync::Arc;

/// A simulated disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    durable: Disk,
    waiting: VecDeque<(u64, Vec<DiskWrite>)>,
    newest: u64,
    syncing: Option<u64>,
}

/// What a crash did to the batches that were not durable yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Crashed {
    /// What reached the disk. The process did not hear of it.
    pub kept: Vec<DiskWrite>,
    /// Batches that did not.
    pub lost: usize,
    /// The first of those was being written.
    pub is_torn: bool,
}

/// A write number that does not follow the one before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutOfOrder {
    /// What came.
    pub lsn: u64,
    /// What came before it.
    pub before: u64,
}

impl SimDisk {
    /// What a restart would find.
    pub fn durable(&self) -> &Disk {
        &self.durable
    }

    /// Whether no manager's run was ever this disk's: what one that was not let in wrote counts for nothing.
    pub fn is_empty(&self) -> bool {
        self.durable.identity.taken.is_none() && self.durable.docs.is_empty()
    }

    /// The same, as a process reads it at its start: from bytes, which must say what was written.
    pub fn read(&self) -> Disk {
        let mut disk = self.durable.clone();
        for doc in disk.docs.values_mut() {
            let read = Doc::from_bytes(&doc.to_bytes()).expect("managers write what they can read");
            assert_eq!(read.session(), doc.session(), "{}", doc.name());
            *doc = Arc::new(read);
        }
        disk
    }

    /// Puts other content under it, as a restored backup does.
    pub fn replace(&mut self, disk: Disk) {
        self.durable = disk;
    }

    /// Takes a write. Gives the number up to which a sync must now be begun, if none runs.
    pub fn write(&mut self, lsn: u64, writes: Vec<DiskWrite>) -> Result<bool, OutOfOrder> {
        if self.newest != 0 && lsn != self.newest + 1 {
            return Err(OutOfOrder { lsn, before: self.newest });
        }
        self.newest = lsn;
        self.waiting.push_back((lsn, writes));
        Ok(self.syncing.is_none())
    }

    /// Begins a sync of everything that waits; `None` when nothing does.
    pub fn begin_sync(&mut self) -> Option<u64> {
        self.syncing = self.waiting.back().map(|(lsn, _)| *lsn);
        self.syncing
    }

    /// Ends the sync; gives its number and what became durable.
    pub fn end_sync(&mut self) -> Option<(u64, Vec<DiskWrite>)> {
        let upto = self.syncing.take()?;
        let mut done = Vec::new();
        while self.waiting.front().is_some_and(|(lsn, _)| *lsn <= upto) {
            if let Some((_, writes)) = self.waiting.pop_front() {
                done.extend(writes);
            }
        }
        for write in &done {
            self.durable.apply(write);
        }
        Some((upto, done))
    }

    /// The process dies: a prefix of what waits reaches the disk.
    pub fn crash(&mut self, rng: &mut SeededRng) -> Crashed {
        let count = if self.waiting.is_empty() { 0 } else { rng.index(self.waiting.len() + 1) };
        let kept: Vec<DiskWrite> = self.waiting.drain(..count).flat_map(|it| it.1).collect();
        for write in &kept {
            self.durable.apply(write);
        }
        let first_lost = self.waiting.front().map(|(lsn, _)| *lsn);
        let is_torn = first_lost.is_some_and(|lsn| self.syncing.is_some_and(|upto| lsn <= upto));
        let lost = self.waiting.len();
        self.waiting.clear();
        self.syncing = None;
        self.newest = 0;
        Crashed { kept, lost, is_torn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Epoch, LogPos, ManagerNumber, Seq};
    use rota_protocol::PartitionMeta;

    fn entry(seq: u64) -> Vec<DiskWrite> {
        let last = LogPos::new(Epoch(1), Seq(seq));
        let meta = PartitionMeta { pe: Epoch(1), last, whole: true, ..PartitionMeta::default() };
        vec![DiskWrite::Part { part: ManagerNumber(1), meta }]
    }

    fn last_seq(disk: &SimDisk) -> u64 {
        disk.durable().parts.get(&ManagerNumber(1)).map_or(0, |it| it.last.seq.0)
    }

    #[test]
    fn a_crash_keeps_a_prefix_of_what_was_not_synced() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let mut disk = SimDisk::default();
            assert_eq!(disk.write(1, entry(1)), Ok(true));
            disk.begin_sync();
            assert_eq!(disk.write(2, entry(2)), Ok(false));
            disk.end_sync();
            assert_eq!(disk.write(3, entry(3)), Ok(true));
            assert_eq!(last_seq(&disk), 1);
            disk.crash(&mut SeededRng::new(seed));
            seen.insert(last_seq(&disk));
        }
        assert_eq!(seen, std::collections::BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn a_crash_comes_between_two_batches_or_in_the_middle_of_one_that_is_being_written() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let mut disk = SimDisk::default();
            assert_eq!(disk.write(1, entry(1)), Ok(true));
            assert_eq!(disk.write(2, entry(2)), Ok(true));
            disk.begin_sync();
            assert_eq!(disk.write(3, entry(3)), Ok(false));
            let crashed = disk.crash(&mut SeededRng::new(seed));
            seen.insert((crashed.kept.len(), crashed.lost, crashed.is_torn));
        }
        let expected = [(0, 3, true), (1, 2, true), (2, 1, false), (3, 0, false)];
        assert_eq!(seen, std::collections::BTreeSet::from(expected));
    }

    #[test]
    fn a_gap_in_the_write_numbers_is_noticed() {
        let mut disk = SimDisk::default();
        assert_eq!(disk.write(7, entry(1)), Ok(true));
        assert_eq!(disk.write(9, entry(2)), Err(OutOfOrder { lsn: 9, before: 7 }));
    }
}
