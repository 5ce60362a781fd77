//! What waits to be sent to one receiver. The network takes batches of whatever has gathered;
//! when too much has gathered, the oldest goes: the protocol sends again what still matters. What
//! nobody waits for any more when its turn comes is not sent at all.

use metrics::Counter;
use rota_docstore::WRITTEN_BYTES_MAX;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio_stream::Stream;

/// How much may wait, and how much travels together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most items that wait.
    pub items_max: usize,
    /// Most bytes that wait.
    pub bytes_max: usize,
    /// Most items in one batch.
    pub batch_items_max: usize,
    /// Bytes after which a batch takes no further item.
    pub batch_bytes_max: usize,
}

impl Limits {
    /// 48 MiB or 16,384 items wait at most: the largest operation, and beside it some 200 ms of the
    /// heaviest load measured; longer silence is a suspicion anyway. Of a partition's log and snapshot never more than
    /// 4 MiB is unacknowledged (`Sizes` in `crates/protocol`), so that copying alone does not make
    /// this drop anything while two managers share fewer than four partitions. A batch ends at 256 KiB: it still fills few
    /// TCP segments at a time, and a receiver can begin to work on it soon.
    pub const LINK: Limits = Limits {
        items_max: 16_384,
        bytes_max: 48 * 1024 * 1024,
        batch_items_max: 1024,
        batch_bytes_max: 256 * 1024,
    };
}
const _: () = assert!(Limits::LINK.bytes_max as u64 > WRITTEN_BYTES_MAX);

struct Waiting<T> {
    item: T,
    bytes: usize,
    /// Of no use later.
    until: Option<Instant>,
}

struct Inner<T> {
    items: VecDeque<Waiting<T>>,
    bytes: usize,
    /// Who takes batches; a new connection makes the streams of earlier ones end.
    generation: u64,
    taker: Option<Waker>,
}

/// A bounded queue with one taker.
pub struct Outbox<T> {
    /// LaneBytes for a push or a take, never across an await. A lock, because the network's tasks and
    /// the driver's task both need it.
    inner: Mutex<Inner<T>>,
    limits: Limits,
    /// Counts what was not sent because its time had passed.
    late: Counter,
}

impl<T> Outbox<T> {
    /// An empty queue, which counts what comes too late in `late`.
    pub fn new(limits: Limits, late: Counter) -> Arc<Self> {
        let inner = Inner { items: VecDeque::new(), bytes: 0, generation: 0, taker: None };
        Arc::new(Self { inner: Mutex::new(inner), limits, late })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item of about `bytes`, which is not sent later than `until`. Gives how many older
    /// ones were dropped for it.
    pub fn push(&self, item: T, bytes: usize, until: Option<Instant>) -> usize {
        let (dropped, taker) = {
            let mut inner = self.lock();
            let mut dropped = 0;
            while inner.items.len() >= self.limits.items_max
                || (inner.bytes + bytes > self.limits.bytes_max && !inner.items.is_empty())
            {
                let oldest = inner.items.pop_front();
                inner.bytes -= oldest.map_or(0, |it| it.bytes);
                dropped += 1;
            }
            inner.items.push_back(Waiting { item, bytes, until });
            inner.bytes += bytes;
            (dropped, inner.taker.take())
        };
        if let Some(taker) = taker {
            taker.wake();
        }
        dropped
    }

    /// Drops everything that waits.
    pub fn clear(&self) {
        drop(self.take_back());
    }

    /// Takes back everything that waits. None of it was given to a connection, and none will be.
    pub fn take_back(&self) -> Vec<T> {
        let mut inner = self.lock();
        inner.bytes = 0;
        let waiting = std::mem::take(&mut inner.items);
        drop(inner);
        waiting.into_iter().map(|it| it.item).collect()
    }

    /// Ends the streams that were given: what waits stays here. Gives the generation of the next one.
    pub fn end_streams(&self) -> u64 {
        let (generation, taker) = {
            let mut inner = self.lock();
            inner.generation += 1;
            (inner.generation, inner.taker.take())
        };
        if let Some(taker) = taker {
            taker.wake();
        }
        generation
    }

    /// A stream of batches for a new connection. Streams given earlier end.
    pub fn batches<B>(self: &Arc<Self>, wrap: fn(Vec<T>) -> B) -> Batches<T, B> {
        let generation = self.end_streams();
        Batches { outbox: self.clone(), wrap, generation }
    }

    fn poll_take(&self, generation: u64, cx: &mut Context<'_>) -> Poll<Option<Vec<T>>> {
        let mut inner = self.lock();
        if inner.generation != generation {
            return Poll::Ready(None);
        }
        let (mut batch, mut bytes, now) = (Vec::new(), 0, Instant::now());
        while batch.len() < self.limits.batch_items_max && bytes < self.limits.batch_bytes_max {
            let Some(next) = inner.items.pop_front() else { break };
            inner.bytes -= next.bytes;
            if next.until.is_some_and(|until| until <= now) {
                self.late.increment(1);
                continue;
            }
            bytes += next.bytes;
            batch.push(next.item);
        }
        if batch.is_empty() {
            inner.taker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Some(batch))
    }
}

/// What one connection takes from an [`Outbox`].
pub struct Batches<T, B> {
    outbox: Arc<Outbox<T>>,
    wrap: fn(Vec<T>) -> B,
    generation: u64,
}

impl<T, B> Stream for Batches<T, B> {
    type Item = B;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<B>> {
        self.outbox.poll_take(self.generation, cx).map(|batch| batch.map(self.wrap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio_test::{assert_pending, assert_ready_eq, task};

    const SMALL: Limits =
        Limits { items_max: 4, bytes_max: 100, batch_items_max: 3, batch_bytes_max: 50 };

    fn same(batch: Vec<u32>) -> Vec<u32> {
        batch
    }

    #[test]
    fn what_gathered_travels_together() {
        let outbox = Outbox::new(SMALL, Counter::noop());
        let mut stream = task::spawn(outbox.batches(same));
        assert_pending!(stream.poll_next());
        assert_eq!(outbox.push(1, 1, None) + outbox.push(2, 1, None), 0);
        assert!(stream.is_woken());
        assert_ready_eq!(stream.poll_next(), Some(vec![1, 2]));
        assert_pending!(stream.poll_next());
    }

    #[test]
    fn a_batch_ends_at_its_count_and_at_its_bytes() {
        let outbox = Outbox::new(SMALL, Counter::noop());
        let mut stream = task::spawn(outbox.batches(same));
        (1..=4).for_each(|it| assert_eq!(outbox.push(it, 1, None), 0));
        assert_ready_eq!(stream.poll_next(), Some(vec![1, 2, 3]));
        assert_ready_eq!(stream.poll_next(), Some(vec![4]));
        outbox.push(5, 60, None);
        outbox.push(6, 1, None);
        assert_ready_eq!(stream.poll_next(), Some(vec![5]));
        assert_ready_eq!(stream.poll_next(), Some(vec![6]));
    }

    #[test]
    fn the_oldest_goes_when_too_much_waits() {
        let outbox = Outbox::new(SMALL, Counter::noop());
        let dropped: usize = (1..=6).map(|it| outbox.push(it, 1, None)).sum();
        assert_eq!(dropped, 2);
        assert_eq!(outbox.push(7, 98, None), 2);
        assert_eq!(outbox.push(8, 500, None), 3);
        let mut stream = task::spawn(outbox.batches(same));
        assert_ready_eq!(stream.poll_next(), Some(vec![8]));
    }

    #[test]
    fn a_new_connection_ends_the_stream_of_the_old_one() {
        let outbox = Outbox::new(SMALL, Counter::noop());
        let mut old = task::spawn(outbox.batches(same));
        assert_pending!(old.poll_next());
        let mut new = task::spawn(outbox.batches(same));
        assert!(old.is_woken());
        outbox.push(1, 1, None);
        assert_ready_eq!(old.poll_next(), None);
        assert_ready_eq!(new.poll_next(), Some(vec![1]));
    }

    #[test]
    fn what_is_taken_back_is_what_no_stream_took_and_none_takes_it_later() {
        let outbox = Outbox::new(SMALL, Counter::noop());
        let mut stream = task::spawn(outbox.batches(same));
        (1..=4).for_each(|it| assert_eq!(outbox.push(it, 20, None), 0));
        assert_ready_eq!(stream.poll_next(), Some(vec![1, 2, 3]));
        outbox.end_streams();
        outbox.push(5, 20, None);
        assert_ready_eq!(stream.poll_next(), None);
        assert_eq!(outbox.take_back(), [4, 5]);
        assert_eq!(outbox.take_back(), Vec::<u32>::new());
        let mut next = task::spawn(outbox.batches(same));
        assert_pending!(next.poll_next());
        assert_eq!(outbox.push(6, 80, None), 0, "there is room again");
        assert_ready_eq!(next.poll_next(), Some(vec![6]));
    }

    #[test]
    fn what_is_late_is_not_sent_and_makes_room() {
        let outbox = Outbox::new(SMALL, Counter::noop());
        let mut stream = task::spawn(outbox.batches(same));
        let (past, later) = (Instant::now(), Instant::now() + Duration::from_secs(600));
        outbox.push(1, 60, Some(past));
        assert_pending!(stream.poll_next());
        assert_eq!(outbox.push(2, 80, Some(later)), 0, "the late one takes no room any more");
        outbox.push(3, 5, Some(past));
        outbox.push(4, 5, None);
        assert_ready_eq!(stream.poll_next(), Some(vec![2]));
        assert_ready_eq!(stream.poll_next(), Some(vec![4]));
        assert_pending!(stream.poll_next());
    }
}
