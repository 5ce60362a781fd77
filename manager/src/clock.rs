//! The two clocks that decisions see, and how moments of tokio's clock compare to them.

use rota_model::{Now, Stamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The process's clocks. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Clock {
    /// A clock whose monotonic side begins at 1 ms now, so that 0 is always past.
    pub fn start() -> Self {
        Self { start: Instant::now() - Duration::from_millis(1) }
    }

    /// Both clocks now.
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_ms: whole_ms(self.start.elapsed()), wall_ms: whole_ms(wall) }
    }

    /// A moment as milliseconds of the monotonic clock, rounded down.
    pub fn mono_ms(&self, at: Instant) -> u64 {
        whole_ms(at.saturating_duration_since(self.start))
    }

    /// The first moment at which the monotonic clock shows `mono_ms`.
    pub fn instant(&self, mono_ms: u64) -> Instant {
        // A year bounds the sum; the driver looks again at the latest then.
        let year = 365 * 24 * 3_600_000;
        let latest = whole_ms(self.start.elapsed()) + year;
        self.start + Duration::from_millis(mono_ms.min(latest))
    }
}

/// What ages are reckoned from.
pub fn now() -> Stamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp::from_epoch_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moments_and_milliseconds_agree() {
        let clock = Clock::start();
        assert_eq!(clock.now().mono_ms, 1);
        tokio::time::advance(Duration::from_millis(40)).await;
        assert_eq!(clock.now().mono_ms, 41);
        assert_eq!(clock.mono_ms(clock.instant(41)), 41);
        assert_eq!(clock.instant(41), Instant::now());
        assert!(clock.instant(u64::MAX) > Instant::now());
    }
}
