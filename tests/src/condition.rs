//! Waiting for a condition.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a condition may take on a busy machine when nothing slower is meant: it only ends
/// what hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks until the condition holds, and gives what the look gave. Fails at the deadline with what
/// was waited for and why the last look was not content.
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + within;
    loop {
        match look().await {
            Ok(seen) => return seen,
            Err(why) if Instant::now() >= deadline => {
                panic!("not within {within:?}: {what}; the last look: {why}")
            }
            Err(_) => sleep(LOOK_EVERY).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_is_looked_at_until_it_holds() {
        let mut looks = 0;
        let seen = eventually("three looks", PATIENCE, async || {
            looks += 1;
            if looks < 3 { Err(format!("only {looks}")) } else { Ok(looks) }
        });
        assert_eq!(seen.await, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "not within 1ms: the impossible; the last look: never")]
    async fn a_condition_that_never_holds_fails_with_its_reason() {
        let look = async || Err::<(), _>("never".to_owned());
        eventually("the impossible", Duration::from_millis(1), look).await;
    }
}
