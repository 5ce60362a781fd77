//! A person at a terminal is told when an answer takes long.

use std::future::Future;
use std::io::IsTerminal;
use std::time::Duration;

/// After this time without an answer.
const SILENCE: Duration = Duration::from_secs(2);

/// Does some work, and says on stderr that it waits when the work takes long.
pub async fn told<T>(endpoint: &str, work: impl Future<Output = T>) -> T {
    let mut work = Box::pin(work);
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(SILENCE) => {}
    }
    eprintln!("no answer from {endpoint} yet; waiting on, as long as --timeout allows");
    work.await
}
