//! What the writer counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters of one [`crate::Writer`], for metrics. Each is right by itself; two of them read one
/// after the other may be a commit apart.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) submissions: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) last_submissions: AtomicU64,
    pub(crate) last_nanos: AtomicU64,
    pub(crate) last_sync_nanos: AtomicU64,
    pub(crate) total_nanos: AtomicU64,
}

impl Counters {
    /// Group commits so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }
    /// Submissions that they held.
    pub fn submissions(&self) -> u64 {
        self.submissions.load(Relaxed)
    }
    /// Writes that they held.
    pub fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }
    /// Bytes of keys and values that they held.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
    /// Submissions that found the queue full.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
    /// Submissions in the last commit.
    pub fn last_batch(&self) -> u64 {
        self.last_submissions.load(Relaxed)
    }
    /// How long the last commit took, sync included.
    pub fn last_commit_time(&self) -> Duration {
        Duration::from_nanos(self.last_nanos.load(Relaxed))
    }
    /// How long the last commit waited for the disk to sync; zero with an engine that does not know.
    pub fn last_sync_time(&self) -> Duration {
        Duration::from_nanos(self.last_sync_nanos.load(Relaxed))
    }
    /// How long all commits took together.
    pub fn total_commit_time(&self) -> Duration {
        Duration::from_nanos(self.total_nanos.load(Relaxed))
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.last_sync_nanos.store(nanos(took), Relaxed);
    }

    pub(crate) fn committed(&self, submissions: u64, writes: u64, bytes: u64, took: Duration) {
        let nanos = nanos(took);
        self.submissions.fetch_add(submissions, Relaxed);
        self.writes.fetch_add(writes, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.last_submissions.store(submissions, Relaxed);
        self.last_nanos.store(nanos, Relaxed);
        self.total_nanos.fetch_add(nanos, Relaxed);
        self.commits.fetch_add(1, Relaxed);
    }
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}
