//! What answers of calls fill until their last byte is sent.
//!
//! ```text
//!  call ─▶ Share of what it may need ─▶ service ─▶ Sending ─▶ pieces ─▶ HTTP/2 ─▶ socket
//!            │ none is free: waits,                  each piece gives its part back
//!            ▼ is refused after 10 s                  when it is sent or thrown away
//! ```
//! A connection has [`ONE_BYTES`], all of a listener together what [`super::Places`] says. What an answer
//! has beyond its share is taken all the same, and the calls after it wait for that, too. A connection
//! of which nothing moves, or that holds far more than it may, is ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// What the answers of one connection may fill before its next calls wait.
pub const ONE_BYTES: usize = 8 * 1024 * 1024;

/// What they may fill at most: calls that had begun may exceed their shares.
const ONE_BYTES_MAX: usize = 8 * ONE_BYTES;

/// A call that needs no more goes by a lane of its own, so that calls with large answers keep none of them out:
/// opens, say, while many reads wait for a partition.
const SMALL_BYTES: usize = 32 * 1024;

/// Which part of a budget that lane has beside it.
const SMALL_PART: usize = 4;

/// How long a call waits for a share.
const WAIT: Duration = Duration::from_secs(10);

/// How long answers of a connection may stand still, all of them.
const STILL: Duration = Duration::from_secs(30);

/// How long one of them may, while others are sent.
const ONE_STILL: Duration = Duration::from_secs(300);

/// How often a connection with answers that are not sent is looked at.
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// What a call takes a share of before it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Bytes.
    pub bytes: usize,
    /// Until its last byte is sent: a stream that keeps messages ready. Otherwise until its first message is
    /// there, which then counts as it is.
    pub lasts: bool,
}

impl Need {
    /// That of calls whose answers are small.
    pub fn small(_path: &str) -> Self {
        Self { bytes: 1_024, lasts: false }
    }
}

/// Bytes that are shared. Who finds none waits in turn.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    free: Semaphore,
    /// Taken beyond what there was.
    owed: Mutex<usize>,
    /// That of calls with small answers.
    small: Option<Arc<Budget>>,
}

impl Budget {
    /// With a lane for small answers beside it.
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        let small = Self::without_lane(bytes_max / SMALL_PART, None);
        Self::without_lane(bytes_max, Some(small))
    }

    fn without_lane(bytes_max: usize, small: Option<Arc<Self>>) -> Arc<Self> {
        let bytes_max = bytes_max.min(u32::MAX as usize);
        let (free, owed) = (Semaphore::new(bytes_max), Mutex::default());
        Arc::new(Self { bytes_max, free, owed, small })
    }

    /// Where a call that needs so much takes its share.
    fn lane(self: &Arc<Self>, bytes: usize) -> &Arc<Self> {
        self.small.as_ref().filter(|_| bytes <= SMALL_BYTES).unwrap_or(self)
    }

    /// What is taken.
    pub(super) fn taken(&self) -> usize {
        let own = self.bytes_max - self.free.available_permits() + *self.owed();
        own + self.small.as_ref().map_or(0, |it| it.taken())
    }

    fn owed(&self) -> MutexGuard<'_, usize> {
        // A number stays right whoever panicked.
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is taken of a budget, until it is dropped.
#[derive(Debug)]
struct Taken {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Taken {
    /// Waits for so many bytes, or for all that there ever are.
    async fn wait(budget: &Arc<Budget>, bytes: usize) -> Self {
        let bytes = bytes.min(budget.bytes_max);
        if bytes == 0 {
            return Self { budget: budget.clone(), bytes };
        }
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        // It is never closed.
        if let Ok(taken) = budget.free.acquire_many(permits).await {
            taken.forget();
        }
        Self { budget: budget.clone(), bytes }
    }

    /// Takes so many more, also what is not there.
    fn take(&mut self, bytes: usize) {
        let mut owed = self.budget.owed();
        let found = self.budget.free.forget_permits(bytes);
        *owed += bytes - found;
        self.bytes += bytes;
    }

    fn give(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut owed = self.budget.owed();
        let paid = bytes.min(*owed);
        *owed -= paid;
        self.budget.free.add_permits(bytes - paid);
    }

    fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

/// A part of what the connection and its listener may have, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    one: Taken,
    all: Taken,
}

impl Share {
    /// Has exactly so many bytes.
    pub(super) fn become_bytes(&mut self, bytes: usize) {
        for taken in [&mut self.one, &mut self.all] {
            match bytes.checked_sub(taken.bytes) {
                Some(more) => taken.take(more),
                None => taken.give(taken.bytes - bytes),
            }
        }
    }

    /// Parts with so many of them.
    pub(super) fn split(&mut self, bytes: usize) -> Self {
        Self { one: self.one.split(bytes), all: self.all.split(bytes) }
    }
}

/// The answers of one connection.
#[derive(Debug)]
pub(super) struct Answers {
    one: Arc<Budget>,
    all: Arc<Budget>,
    unsent: AtomicUsize,
    ledger: Mutex<Ledger>,
}

#[derive(Debug)]
struct Ledger {
    newest: u64,
    /// Bytes of each answer that are not sent, and when some were last, or came.
    answers: BTreeMap<u64, (usize, Instant)>,
    /// When any were last sent, or came when there were none.
    moved: Instant,
}

impl Answers {
    pub(super) fn new(all: Arc<Budget>) -> Arc<Self> {
        let ledger = Ledger { newest: 0, answers: BTreeMap::new(), moved: Instant::now() };
        let (one, ledger) = (Budget::new(ONE_BYTES), Mutex::new(ledger));
        Arc::new(Self { one, all, unsent: AtomicUsize::new(0), ledger })
    }

    /// A share for a call; `None` when none becomes free in time.
    pub(super) async fn share(&self, bytes: usize) -> Option<Share> {
        let share = async {
            // First what others of the connection may hold: nobody else waits for it.
            let one = Taken::wait(self.one.lane(bytes), bytes).await;
            let all = Taken::wait(self.all.lane(bytes), bytes).await;
            Share { one, all }
        };
        timeout(WAIT, share).await.ok()
    }

    /// Whether some bytes are not sent.
    pub(super) fn are_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > 0
    }

    /// Whether they are far more than there may be.
    pub(super) fn are_too_many(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > ONE_BYTES_MAX
    }

    /// Whether they stand still, or one of them does.
    pub(super) fn stand_still(&self) -> bool {
        let ledger = self.ledger();
        let mut answers = ledger.answers.values();
        let all_stand = !ledger.answers.is_empty() && ledger.moved.elapsed() >= STILL;
        all_stand || answers.any(|(_, moved)| moved.elapsed() >= ONE_STILL)
    }

    /// A name for an answer.
    pub(super) fn next(&self) -> u64 {
        let mut ledger = self.ledger();
        ledger.newest += 1;
        ledger.newest
    }

    /// So many bytes of an answer came.
    pub(super) fn came(&self, answer: u64, bytes: usize) {
        self.unsent.fetch_add(bytes, Ordering::Relaxed);
        let now = Instant::now();
        let mut ledger = self.ledger();
        if ledger.answers.is_empty() {
            ledger.moved = now;
        }
        ledger.answers.entry(answer).or_insert((0, now)).0 += bytes;
    }

    /// So many bytes of it were sent, or thrown away.
    pub(super) fn went(&self, answer: u64, bytes: usize) {
        self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        let now = Instant::now();
        let mut ledger = self.ledger();
        ledger.moved = now;
        if let Some((unsent, moved)) = ledger.answers.get_mut(&answer) {
            *unsent = unsent.saturating_sub(bytes);
            *moved = now;
            if *unsent == 0 {
                ledger.answers.remove(&answer);
            }
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Whoever panicked, what stands in it is only counted.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Of a listener without a lane for small ones.
    fn answers(all: usize) -> Arc<Answers> {
        Answers::new(Budget::without_lane(all, None))
    }

    async fn share(answers: &Answers, bytes: usize) -> Share {
        answers.share(bytes).await.expect("there is room")
    }

    #[tokio::test(start_paused = true)]
    async fn calls_with_large_answers_keep_small_ones_and_looks_at_health_from_nothing() {
        let answers = Answers::new(Budget::new(4 * ONE_BYTES));
        let _large = share(&answers, ONE_BYTES).await;
        assert!(answers.share(SMALL_BYTES + 1).await.is_none(), "the large ones have all");
        let _small = share(&answers, ONE_BYTES / SMALL_PART / 64).await;
        let _health = share(&answers, 0).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_what_others_hold_and_is_refused_when_nothing_becomes_free() {
        let (first, second) = (answers(100), answers(100));
        let held = share(&first, 90).await;
        assert!(first.share(20).await.is_none(), "10 bytes are left");
        let _elsewhere = share(&second, 100).await;
        let mut waiting = Box::pin(first.share(20));
        let early = timeout(Duration::from_secs(1), &mut waiting).await;
        assert!(early.is_err(), "it waits");
        drop(held);
        assert_eq!(waiting.await.unwrap().one.bytes, 20);
        assert_eq!(first.all.taken(), 0, "all is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_answer_has_beyond_its_share_is_owed_and_paid_first() {
        let one = answers(100);
        let mut large = share(&one, 10).await;
        large.become_bytes(250);
        assert_eq!(one.all.taken(), 250);
        let mut rest = large.split(100);
        drop(large);
        assert_eq!((one.all.taken(), rest.one.bytes), (100, 100));
        assert!(one.share(1).await.is_none());
        rest.become_bytes(40);
        assert_eq!(share(&one, 60).await.one.bytes, 60);
        drop(rest);
        assert_eq!((one.all.taken(), one.one.taken()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_there_ever_is_waits_for_all_of_it() {
        let one = answers(100);
        let all = share(&one, 1_000).await;
        assert_eq!((all.all.bytes, all.one.bytes), (100, 1_000));
    }

    #[test]
    fn answers_that_stand_still_or_are_far_too_many_end_their_connection() {
        let one = answers(100);
        let (first, second) = (one.next(), one.next());
        assert!(!one.are_unsent() && !one.stand_still());
        one.came(first, 10);
        one.came(second, 10);
        assert!(one.are_unsent() && !one.stand_still());
        let past = Instant::now().checked_sub(STILL).unwrap();
        one.ledger().moved = past;
        assert!(one.stand_still());
        one.went(first, 4);
        assert!(!one.stand_still(), "something moved");
        one.ledger().answers.get_mut(&second).unwrap().1 =
            Instant::now().checked_sub(ONE_STILL).unwrap();
        assert!(one.stand_still(), "one of them did not, for long");
        one.went(first, 6);
        one.went(second, 10);
        assert!(!one.are_unsent() && !one.stand_still() && !one.are_too_many());
        one.came(first, ONE_BYTES_MAX + 1);
        assert!(one.are_too_many());
    }
}
