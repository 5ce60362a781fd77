//! Places for bodies on their way in. Each holds an open file, so there are few.
//!
//! ```text
//!  take ── one is free ─────────────────────────────────────────────▶ Place
//!    └──── none: whose sender was waited for the longest loses his ──▶ Place, once he has left it
//!          nobody was waited for long ───────────────────────────────▶ OVERLOADED, come again soon
//! ```
//! A sender that brings nothing, or next to nothing, keeps a place only while nobody else wants it.
//! What this manager itself takes its time for (its disk, other copies) is held against no sender.

use super::{STALL, refused, status_of};
use bytes::Bytes;
use rota_model::RefusalKind;
use rota_storage::attachments::AttachmentError;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// What a sender must bring before he counts as waited for anew: a byte now and then is not enough.
const ENOUGH_BYTES: usize = 64 * 1024;

/// How long a sender may be waited for, in all, until he has brought that much: with less, he loses
/// his place as soon as somebody else wants it. Longer than another copy may hold up who sends to
/// several at a time, which is not his fault.
const IDLE: Duration = STALL.saturating_add(Duration::from_secs(1));

/// How long a place is waited for that somebody is about to leave: its file is removed meanwhile.
const LEFT_WITHIN: Duration = Duration::from_secs(2);

/// The places of a manager.
#[derive(Clone, Debug)]
pub(super) struct Places {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    most: usize,
    // A lock, because every body on its way has its own task. LaneBytes for one look at all places.
    taken: Mutex<Taken>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    places: BTreeMap<u64, Standing>,
}

/// How the sender of one body does.
#[derive(Debug, Default)]
struct Standing {
    /// How long he was waited for since he last brought enough.
    waited: Duration,
    bytes: usize,
    /// Since when he is waited for now.
    since: Option<Instant>,
    lost: CancellationToken,
}

impl Standing {
    /// For how long he has been waited for, if he is now and may be told that he lost his place.
    fn idle(&self, now: Instant) -> Option<Duration> {
        let since = self.since.filter(|_| !self.lost.is_cancelled())?;
        Some(self.waited + now.duration_since(since))
    }

    fn came(&mut self, bytes: usize, now: Instant) {
        self.waited += self.since.take().map_or(Duration::ZERO, |since| now.duration_since(since));
        self.bytes += bytes;
        if self.bytes >= ENOUGH_BYTES {
            (self.waited, self.bytes) = (Duration::ZERO, 0);
        }
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics under this lock.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// At most so many at a time.
    pub fn new(most: usize) -> Self {
        let (taken, left) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { most, taken, left }) }
    }

    /// A place; somebody else's who does not use it when none is free.
    pub async fn take(&self) -> Result<Place, Status> {
        let deadline = Instant::now() + LEFT_WITHIN;
        let busy = || status_of(&AttachmentError::Busy { limit: self.shared.most });
        loop {
            // Hears of whoever leaves from here on.
            let left = self.shared.left.notified();
            if let Some(place) = self.take_free() {
                return Ok(place);
            }
            if !self.end_one() {
                return Err(busy());
            }
            timeout_at(deadline, left).await.map_err(|_| busy())?;
        }
    }

    fn take_free(&self) -> Option<Place> {
        let mut taken = self.shared.taken();
        if taken.places.len() >= self.shared.most {
            return None;
        }
        let (id, standing) = (taken.next, Standing::default());
        let lost = standing.lost.clone();
        taken.next += 1;
        taken.places.insert(id, standing);
        Some(Place { shared: Arc::clone(&self.shared), id, lost })
    }

    /// Tells whoever was waited for the longest that he lost his place. False: nobody was for long,
    /// and nobody is about to leave.
    fn end_one(&self) -> bool {
        let (now, taken) = (Instant::now(), self.shared.taken());
        let idle = taken.places.values().filter_map(|it| Some((it.idle(now)?, it)));
        let longest = idle.filter(|(idle, _)| *idle >= IDLE).max_by_key(|(idle, _)| *idle);
        if let Some((_, standing)) = longest {
            standing.lost.cancel();
            return true;
        }
        taken.places.values().any(|it| it.lost.is_cancelled())
    }
}

/// A place for one body, left when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    id: u64,
    lost: CancellationToken,
}

impl Place {
    /// What the sender brings next, unless he has lost his place.
    pub async fn wait_for(
        &self,
        next: impl Future<Output = Result<Option<Bytes>, Status>>,
    ) -> Result<Option<Bytes>, Status> {
        self.standing(|it| it.since = Some(Instant::now()));
        let came = tokio::select! {
            came = next => came,
            () = self.lost.cancelled() => Ok(None),
        };
        let bytes = came.as_ref().map_or(0, |it| it.as_ref().map_or(0, Bytes::len));
        self.standing(|it| it.came(bytes, Instant::now()));
        if self.lost.is_cancelled() {
            return Err(lost());
        }
        came
    }

    fn standing(&self, change: impl FnOnce(&mut Standing)) {
        if let Some(standing) = self.shared.taken().places.get_mut(&self.id) {
            change(standing);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.taken().places.remove(&self.id);
        self.shared.left.notify_waiters();
    }
}

fn lost() -> Status {
    let text = format!(
        "the sender of this body was waited for {} s and longer for less than {ENOUGH_BYTES} bytes, and \
         others wanted its place; begin again",
        IDLE.as_secs()
    );
    refused(RefusalKind::Overloaded, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::task::JoinHandle;
    use tokio::time::{advance, sleep};

    async fn some(bytes: usize) -> Result<Option<Bytes>, Status> {
        Ok(Some(vec![7; bytes].into()))
    }

    /// Waits for a sender that never brings anything, and leaves when it is told to.
    fn idle(place: Place) -> JoinHandle<Status> {
        tokio::spawn(async move { place.wait_for(pending()).await.unwrap_err() })
    }

    async fn busy(places: &Places) -> bool {
        let taken = places.take().await;
        taken.is_err_and(|it| it.message().contains("come again soon"))
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_waited_for_the_longest_loses_his_place_to_who_finds_none() {
        let places = Places::new(2);
        let first = idle(places.take().await.unwrap());
        sleep(IDLE / 2).await;
        let second = idle(places.take().await.unwrap());
        sleep(IDLE / 2 - Duration::from_millis(100)).await;
        assert!(busy(&places).await, "nobody was waited for long");
        sleep(Duration::from_millis(200)).await;
        let third = places.take().await.unwrap();
        let told = first.await.unwrap();
        assert!(told.message().contains("waited for 4 s and longer"), "{told}");
        assert!(busy(&places).await, "the second was not waited for long");
        assert!(!second.is_finished());
        drop(third);
        drop(places.take().await.unwrap());
        second.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_not_enough_to_keep_a_place_and_much_is() {
        let places = Places::new(2);
        let [slow, fast] = [places.take().await.unwrap(), places.take().await.unwrap()];
        for _ in 0..9 {
            for (place, bytes) in [(&slow, 1), (&fast, ENOUGH_BYTES)] {
                let next = async {
                    advance(Duration::from_millis(500)).await;
                    some(bytes).await
                };
                assert_eq!(place.wait_for(next).await.unwrap().unwrap().len(), bytes);
            }
        }
        let [slow, fast] = [idle(slow), idle(fast)];
        tokio::task::yield_now().await;
        let taken = places.take().await.unwrap();
        assert!(slow.await.unwrap().message().contains("begin again"));
        assert!(!fast.is_finished());
        fast.abort();
        drop(taken);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_the_manager_takes_itself_is_held_against_no_sender() {
        let places = Places::new(1);
        let place = places.take().await.unwrap();
        place.wait_for(some(1)).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(busy(&places).await, "nobody waits for the sender");
        assert!(place.wait_for(ready(Ok(None))).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_leave_a_lost_place_in_time_keeps_others_waiting_no_longer_than_that() {
        let places = Places::new(1);
        let place = places.take().await.unwrap();
        // Waited for, and then never looked at again.
        let mut waiting = Box::pin(place.wait_for(pending()));
        assert!(futures_now(&mut waiting).is_none());
        sleep(IDLE).await;
        let began = Instant::now();
        assert!(busy(&places).await);
        assert_eq!(began.elapsed(), LEFT_WITHIN);
    }

    fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::Pin::new(future).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
