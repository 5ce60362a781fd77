//! One thread that owns an engine and commits in groups.
//!
//! ```text
//!  driver ── try_submit(lsn, writes) ──▶ queue ──▶ thread: take all, one commit
//!     ▲                                                       │
//!     └────────────── on_committed(highest lsn) ◀─────────────┘
//! ```
//!
//! While one commit syncs, the next batch collects, and after a large one for a little longer if
//! [`Pace`] says so. There is one call back per commit, not one per submission, so that a runtime is
//! woken once. **A commit that fails ends the process**: nothing may be acknowledged after it, and only
//! a new start can tell what is on disk.

use crate::counters::Counters;
use crate::engine::{Engine, KvWrite};
use crate::error::{EngineError, with_causes};
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes that may wait in the queue. A batch of this size keeps a slow disk busy for about a
/// second; waiting for longer than that helps nobody.
pub const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Writes in a commit from which on the thread rests: fewer callers than that wait for it alone.
const REST_WRITES: usize = 16;
/// How many times as long as the commit took it rests at most.
const REST_FACTOR: u32 = 4;

/// Status of a process that ended because its disk failed (`EX_SOFTWARE` of sysexits.h).
pub const EXIT_STATUS: i32 = 70;

/// How much may wait, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Most submissions that wait. Too low: callers are refused while one commit is under way; too
    /// high: the last of them waits long.
    pub queue_max: NonZeroUsize,
    /// Longest time for which the next batch collects after a large commit that was fast. Zero:
    /// every commit begins as soon as the one before is over, which is best where the disk is what
    /// limits. Where the processor does, commits without a pause take it from those who make the
    /// writes, and are small.
    pub rest_max: Duration,
}

impl From<NonZeroUsize> for Pace {
    /// Without a rest.
    fn from(queue_max: NonZeroUsize) -> Self {
        Self { queue_max, rest_max: Duration::ZERO }
    }
}

/// Why the writer gives up.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The engine could not commit.
    #[error("a commit failed; nothing after it can be acknowledged")]
    Commit(#[from] EngineError),
    /// The engine or the call back panicked.
    #[error("the thread that commits panicked")]
    Panic,
}

/// A submission that was not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotQueued {
    /// The queue is full. At least one commit is under way or about to begin: try again when
    /// `on_committed` is called next. The writes come back.
    #[error("the queue is full")]
    Full(Vec<KvWrite>),
    /// The writer was shut down or failed. The writes come back.
    #[error("the writer has ended")]
    Ended(Vec<KvWrite>),
}

/// The deadline passed before everything queued was on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the disk did not finish in time")]
pub struct StillWriting;

#[derive(Default)]
struct Queue {
    /// Writes of all submissions, one after the other: the engine is handed this very vector.
    writes: Vec<KvWrite>,
    submissions: usize,
    bytes: usize,
    /// Of the newest submission.
    lsn: u64,
    /// The thread sleeps and must be notified; while it commits, nobody pays for a system call.
    idle: bool,
    closed: bool,
    ended: bool,
}

struct Shared {
    // A lock, because submissions come from the driver's thread and are taken by the writer's. It
    // is held to move a few vectors and never over a commit.
    queue: Mutex<Queue>,
    wake: Condvar,
    done: Condvar,
    counters: Arc<Counters>,
    pace: Pace,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code under the lock can leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the thread. Dropping it closes the queue and waits for nothing; the thread commits
/// what it has and ends. [`Writer::shutdown`] waits.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("counters", &self.shared.counters).finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the thread. At most `pace.queue_max` submissions (and [`QUEUE_BYTES_MAX`] bytes) wait.
    /// `on_committed` is called on the thread, once per commit, with the highest LSN that is on
    /// disk; it must not block. A failure ends the process: see [`end_process`].
    pub fn spawn<E: Engine + 'static>(
        engine: E,
        pace: impl Into<Pace>,
        on_committed: impl FnMut(u64) + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn_with_fatal(engine, pace, on_committed, |failure| end_process(failure))
    }

    /// Like [`Writer::spawn`], but says what to do with a failure. When `fatal` returns, the
    /// thread ends; submissions that were not acknowledged by then never are.
    pub fn spawn_with_fatal<E: Engine + 'static>(
        mut engine: E,
        pace: impl Into<Pace>,
        mut on_committed: impl FnMut(u64) + Send + 'static,
        fatal: impl FnOnce(&Failure) + Send + 'static,
    ) -> io::Result<Self> {
        let pace = pace.into();
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            wake: Condvar::new(),
            done: Condvar::new(),
            counters: Arc::new(Counters::default()),
            pace,
        });
        let inside = shared.clone();
        let thread = thread::Builder::new().name("rota-writer".into()).spawn(move || {
            let run = AssertUnwindSafe(|| {
                engine.reading_is_over();
                let result = commit_until_closed(&mut engine, &inside, &mut on_committed);
                // Gives up the folder's lock before `shutdown` returns.
                drop(engine);
                result
            });
            let failure = match catch_unwind(run) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(Failure::Commit(error)),
                Err(_panic) => Some(Failure::Panic),
            };
            if let Some(failure) = failure {
                fatal(&failure);
            }
            let mut queue = inside.queue();
            queue.closed = true;
            queue.ended = true;
            inside.done.notify_all();
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Queues writes that are committed together, and never blocks on the disk. `lsn` must grow
    /// from call to call. Without writes it is acknowledged with whatever was queued before it.
    pub fn try_submit(&self, lsn: u64, mut writes: Vec<KvWrite>) -> Result<(), NotQueued> {
        let bytes = writes.iter().map(KvWrite::bytes).sum::<usize>();
        let mut queue = self.shared.queue();
        if queue.closed {
            return Err(NotQueued::Ended(writes));
        }
        // An empty queue takes anything: what is refused now must fit later.
        let full = queue.submissions >= self.shared.pace.queue_max.get()
            || queue.bytes.saturating_add(bytes) > QUEUE_BYTES_MAX;
        if full && queue.submissions > 0 {
            drop(queue);
            self.shared.counters.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return Err(NotQueued::Full(writes));
        }
        debug_assert!(lsn > queue.lsn, "LSN {lsn} after {}", queue.lsn);
        queue.writes.append(&mut writes);
        queue.submissions += 1;
        queue.bytes += bytes;
        queue.lsn = lsn;
        let idle = std::mem::take(&mut queue.idle);
        drop(queue);
        if idle {
            self.shared.wake.notify_one();
        }
        Ok(())
    }

    /// Submissions that wait for the next commit.
    pub fn queued(&self) -> usize {
        self.shared.queue().submissions
    }

    /// How long the last commit took, sync included.
    pub fn last_commit_time(&self) -> Duration {
        self.shared.counters.last_commit_time()
    }

    /// The counters. They outlive the writer.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }

    /// Commits everything queued, closes the engine and ends the thread. Gives up waiting after
    /// `patience`; the thread then goes on for as long as the disk lets it.
    pub fn shutdown(mut self, patience: Duration) -> Result<(), StillWriting> {
        self.close();
        let queue = self.shared.queue();
        let waited = self.shared.done.wait_timeout_while(queue, patience, |queue| !queue.ended);
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let ended = queue.ended;
        drop(queue);
        if !ended {
            return Err(StillWriting);
        }
        if let Some(thread) = self.thread.take() {
            // It has nothing left to do, and its panics were caught.
            let _ = thread.join();
        }
        Ok(())
    }

    fn close(&self) {
        self.shared.queue().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// How long the next batch may collect after a commit of so many writes.
fn rest_after(writes: usize, took: Duration, rest_max: Duration) -> Duration {
    if writes < REST_WRITES { Duration::ZERO } else { (took * REST_FACTOR).min(rest_max) }
}

fn commit_until_closed<E: Engine>(
    engine: &mut E,
    shared: &Shared,
    on_committed: &mut impl FnMut(u64),
) -> Result<(), EngineError> {
    // Changes places with the queue's vector, so that neither is allocated again.
    let mut writes = Vec::new();
    let mut rest = Duration::ZERO;
    loop {
        let mut queue = shared.queue();
        while queue.submissions == 0 && !queue.closed {
            queue.idle = true;
            queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.idle = false;
        if !rest.is_zero() {
            let rested = shared.wake.wait_timeout_while(queue, rest, |queue| !queue.closed);
            (queue, _) = rested.unwrap_or_else(PoisonError::into_inner);
        }
        if queue.submissions == 0 {
            return Ok(());
        }
        std::mem::swap(&mut queue.writes, &mut writes);
        let submissions = std::mem::take(&mut queue.submissions) as u64;
        let bytes = std::mem::take(&mut queue.bytes) as u64;
        let lsn = queue.lsn;
        drop(queue);
        let began = Instant::now();
        engine.commit(&writes)?;
        let took = began.elapsed();
        shared.counters.synced(engine.last_sync_time());
        shared.counters.committed(submissions, writes.len() as u64, bytes, took);
        rest = rest_after(writes.len(), took, shared.pace.rest_max);
        on_committed(lsn);
        writes.clear();
    }
}

/// Says why on the log (on standard error where no log is installed) and ends the process with
/// [`EXIT_STATUS`].
pub fn end_process(failure: &Failure) -> ! {
    let why = with_causes(failure);
    if tracing::dispatcher::has_been_set() {
        tracing::error!("{why}; this process ends");
    } else {
        eprintln!("rota-storage: {why}; this process ends");
    }
    std::process::exit(EXIT_STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_rests_after_large_commits_only_and_never_longer_than_it_may() {
        let (ms, most) = (Duration::from_millis(1), Duration::from_millis(2));
        assert_eq!(rest_after(REST_WRITES - 1, ms, most), Duration::ZERO);
        assert_eq!(rest_after(REST_WRITES, ms / 10, most), ms * 4 / 10);
        assert_eq!(rest_after(1_000, ms, most), most);
        assert_eq!(rest_after(1_000, ms, Duration::ZERO), Duration::ZERO);
    }
}
