//! The lease file of a node: until when its programs may run without another sign of the owner of their slot.
//!
//! The agent replaces the file when owners have granted something; every keeper on the node re-reads it when the
//! deadline that it knows has passed. So a renewal costs one file, whatever the number of keepers.

use rota_model::SlotId;
use rota_model::node_msg::SlotRange;
use rota_node::SlotLease;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::path::Path;

/// Milliseconds of `CLOCK_BOOTTIME`: it never steps and counts while the machine is suspended.
pub fn boottime_ms() -> u64 {
    boottime_us() / 1000
}

/// The same clock in microseconds.
pub fn boottime_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1000
}

/// Two deadlines on [`boottime_ms`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// From here on programs are ended politely.
    pub term_at_ms: u64,
    /// From here on programs are killed.
    pub kill_at_ms: u64,
}

/// The leases of all slots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leases {
    runs: Vec<(SlotRange, Lease)>,
}

impl Leases {
    /// As they were decided.
    pub fn new(slots: &[SlotLease]) -> Self {
        let run = |lease: &SlotLease| {
            let (term_at_ms, kill_at_ms) = (lease.term_at_mono_ms, lease.kill_at_mono_ms);
            (lease.slots, Lease { term_at_ms, kill_at_ms })
        };
        Self { runs: slots.iter().map(run).collect() }
    }

    /// None of them goes on for longer than that from now: whoever wrote more was another node, or had other times.
    pub fn within(mut self, term_ms: u64, kill_ms: u64) -> Self {
        let now_ms = boottime_ms();
        for (_, lease) in &mut self.runs {
            lease.term_at_ms = lease.term_at_ms.min(now_ms.saturating_add(term_ms));
            lease.kill_at_ms = lease.kill_at_ms.min(now_ms.saturating_add(kill_ms));
        }
        self
    }

    /// As they are decided about.
    pub fn slots(&self) -> Vec<SlotLease> {
        let run = |(slots, lease): &(SlotRange, Lease)| SlotLease {
            slots: *slots,
            term_at_mono_ms: lease.term_at_ms,
            kill_at_mono_ms: lease.kill_at_ms,
        };
        self.runs.iter().map(run).collect()
    }

    /// That of a slot, if an owner ever granted it.
    pub fn of(&self, slot: SlotId) -> Option<Lease> {
        self.runs.iter().find(|(slots, _)| slots.contains(slot)).map(|(_, lease)| *lease)
    }

    /// The last moment at which anything is ended politely, and killed.
    pub fn latest(&self) -> Option<Lease> {
        let term_at_ms = self.runs.iter().map(|(_, it)| it.term_at_ms).max()?;
        let kill_at_ms = self.runs.iter().map(|(_, it)| it.kill_at_ms).max()?;
        Some(Lease { term_at_ms, kill_at_ms })
    }

    /// What the file holds.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let runs: Option<Vec<_>> = text.lines().map(run_of).collect();
        let runs = runs.filter(|it| !it.is_empty()).ok_or_else(|| wrong("not a lease file"))?;
        Ok(Self { runs })
    }

    /// The same; one that goes on for more than `ms_max` is refused, since whoever wrote it was not this
    /// node.
    pub fn read_within(path: &Path, ms_max: u64) -> io::Result<Self> {
        let leases = Self::read(path)?;
        let until_ms = boottime_ms().saturating_add(ms_max);
        let latest = leases.latest().map_or(0, |it| it.term_at_ms.max(it.kill_at_ms));
        if latest > until_ms {
            return Err(wrong("a lease that no node has"));
        }
        Ok(leases)
    }

    /// Replaces the file in one step, so that no reader sees a part of it. It is not synced: a
    /// lease is worth nothing after the machine itself went down.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("new");
        let mut text = String::new();
        for (SlotRange { first, last }, Lease { term_at_ms, kill_at_ms }) in &self.runs {
            text.push_str(&format!("{first} {last} {term_at_ms} {kill_at_ms}\n"));
        }
        fs::write(&fresh, text)?;
        fs::rename(&fresh, path)
    }
}

impl Lease {
    /// That of a slot in the file, as [`Leases::read_within`].
    pub fn read_within(path: &Path, slot: SlotId, ms_max: u64) -> io::Result<Self> {
        let leases = Leases::read_within(path, ms_max)?;
        leases.of(slot).ok_or_else(|| wrong("no lease of that slot"))
    }
}

/// A line: first and last slot, and both deadlines.
fn run_of(line: &str) -> Option<(SlotRange, Lease)> {
    let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
    let &[first, last, term_at_ms, kill_at_ms] = &numbers.ok()?[..] else { return None };
    let slot = |it: u64| Some(SlotId(u32::try_from(it).ok()?));
    let slots = SlotRange { first: slot(first)?, last: slot(last)? };
    Some((slots, Lease { term_at_ms, kill_at_ms }))
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: SlotId = SlotId(1023);

    fn lease(first: u32, last: u32, term_at_mono_ms: u64, kill_at_mono_ms: u64) -> SlotLease {
        let slots = SlotRange { first: SlotId(first), last: SlotId(last) };
        SlotLease { slots, term_at_mono_ms, kill_at_mono_ms }
    }

    #[test]
    fn a_lease_that_goes_further_than_any_of_the_node_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        let now = boottime_ms();
        let sound = lease(0, 511, now + 8_000, now + 12_000);
        Leases::new(&[sound]).write(&path).unwrap();
        assert!(Lease::read_within(&path, SlotId(0), 12_000).is_ok());
        let far = lease(512, 1023, 9_000_000_000_000, 9_000_000_000_000);
        Leases::new(&[sound, far]).write(&path).unwrap();
        assert!(Lease::read_within(&path, SlotId(0), 12_000).is_err(), "not the node wrote that");
    }

    #[test]
    fn each_slot_has_its_own_lease_and_a_broken_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        assert!(Leases::read(&path).is_err());
        let leases = Leases::new(&[lease(0, 9, 17, 23), lease(20, 1023, 18, 25)]);
        leases.write(&path).unwrap();
        let read = Leases::read(&path).unwrap();
        assert_eq!(read, leases);
        assert_eq!(read.of(SlotId(9)), Some(Lease { term_at_ms: 17, kill_at_ms: 23 }));
        assert_eq!(read.of(LAST), Some(Lease { term_at_ms: 18, kill_at_ms: 25 }));
        assert_eq!(read.of(SlotId(10)), None);
        assert_eq!(read.latest(), Some(Lease { term_at_ms: 18, kill_at_ms: 25 }));
        assert!(Lease::read_within(&path, SlotId(10), u64::MAX).is_err());
        for broken in ["", "17", "17 x", "1 2 17", "1 2 17 23 5", "1 2 17 23\n1"] {
            fs::write(&path, broken).unwrap();
            assert!(Leases::read(&path).is_err(), "{broken:?}");
        }
    }
}
