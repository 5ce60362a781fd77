//! The lease file of a node: until when its programs may run without another sign of a manager.
//!
//! The agent replaces the file at each renewal; every keeper on the node re-reads it when the
//! deadline that it knows has passed. So a renewal costs one file, whatever the number of keepers.

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

impl Lease {
    /// The lease that the file holds.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(term_at_ms)), Some(Ok(kill_at_ms)), None) => {
                Ok(Self { term_at_ms, kill_at_ms })
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a lease file")),
        }
    }

    /// The same; one that goes on for more than `ms_max` is refused, since whoever wrote it was not this
    /// node.
    pub fn read_within(path: &Path, ms_max: u64) -> io::Result<Self> {
        let lease = Self::read(path)?;
        let until_ms = boottime_ms().saturating_add(ms_max);
        if lease.term_at_ms.max(lease.kill_at_ms) > until_ms {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a lease that no node has"));
        }
        Ok(lease)
    }

    /// Replaces the file in one step, so that no reader sees a part of it. It is not synced: a
    /// lease is worth nothing after the machine itself went down.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("new");
        fs::write(&fresh, format!("{} {}\n", self.term_at_ms, self.kill_at_ms))?;
        fs::rename(&fresh, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_goes_further_than_any_of_the_node_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        let now = boottime_ms();
        Lease { term_at_ms: now + 8_000, kill_at_ms: now + 12_000 }.write(&path).unwrap();
        assert!(Lease::read_within(&path, 12_000).is_ok());
        Lease { term_at_ms: 9_000_000_000_000, kill_at_ms: 9_000_000_000_000 }
            .write(&path)
            .unwrap();
        assert!(Lease::read_within(&path, 12_000).is_err());
    }

    #[test]
    fn a_lease_reads_back_and_a_broken_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        assert!(Lease::read(&path).is_err());
        let lease = Lease { term_at_ms: 17, kill_at_ms: 23 };
        lease.write(&path).unwrap();
        assert_eq!(Lease::read(&path).unwrap(), lease);
        for broken in ["", "17", "17 x", "17 23 5"] {
            fs::write(&path, broken).unwrap();
            assert!(Lease::read(&path).is_err(), "{broken:?}");
        }
    }
}
