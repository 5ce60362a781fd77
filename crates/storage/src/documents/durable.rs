//! How far the disk is, and who waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Waiters for so many positions in a row share one place: a commit of a few hundred operations
/// wakes them with a few calls, and hardly anybody whose turn it is not.
const POSITIONS_PER_PLACE: u64 = 16;
/// More than positions that can be waited for at a time, by far: what falls onto one place twice is
/// woken once too often.
const PLACES: u64 = 256;

#[derive(Debug, Default)]
struct Place {
    // A lock, because callers wait on their own threads and the writer's wakes them. It is held to
    // compare two numbers.
    waiting: Mutex<usize>,
    wake: Condvar,
}

impl Place {
    fn waiting(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position up to which everything is on the disk.
#[derive(Debug)]
pub(super) struct Durable {
    position: AtomicU64,
    places: Box<[Place]>,
}

impl Durable {
    pub fn new() -> Self {
        let places = (0..PLACES).map(|_| Place::default()).collect();
        Self { position: AtomicU64::new(0), places }
    }

    /// The position.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    fn place(&self, index: u64) -> &Place {
        let at = usize::try_from(index % PLACES).expect("there are not so many places");
        &self.places[at]
    }

    /// Waits until `position` is reached; false when the deadline passes before.
    pub fn wait(&self, position: u64, deadline: Instant) -> bool {
        if self.position() >= position {
            return true;
        }
        let place = self.place(position / POSITIONS_PER_PLACE);
        let mut waiting = place.waiting();
        *waiting += 1;
        let mut is_reached = self.position() >= position;
        while !is_reached {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                break;
            };
            let waited = place.wake.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
            is_reached = self.position() >= position;
        }
        *waiting -= 1;
        is_reached
    }

    /// Everything up to `position` is on the disk: lets go who waits for it.
    pub fn advance(&self, position: u64) {
        let before = self.position.swap(position, Ordering::AcqRel);
        let first = (before + 1) / POSITIONS_PER_PLACE;
        let last = position / POSITIONS_PER_PLACE;
        for index in first..=last.min(first + PLACES) {
            let place = self.place(index);
            // Who came after the position moved on has seen it.
            if *place.waiting() > 0 {
                place.wake.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn whoever_waits_for_a_position_goes_on_when_it_is_reached_and_not_before() {
        let durable = Durable::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        assert!(durable.wait(0, deadline));
        assert!(!durable.wait(1, Instant::now()));
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (1..=1000)
                .map(|position| {
                    scope.spawn({
                        let durable = &durable;
                        move || durable.wait(position, deadline)
                    })
                })
                .collect();
            for position in [1, 15, 16, 17, 300, 301, 1000] {
                durable.advance(position);
            }
            assert!(waiters.into_iter().all(|it| it.join().expect("no panic")));
        });
        assert!(!durable.wait(1001, Instant::now()));
    }
}
