//! A person at a terminal is told when an answer takes long, and why.

use rota_client::{CallError, Client, EndpointsError, Options};
use std::future::Future;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After this time without an answer.
const SILENCE: Duration = Duration::from_secs(2);

/// Whether a reason to wait was told. One for the process, as its stderr is.
static TOLD: AtomicBool = AtomicBool::new(false);

/// A client of the managers at these addresses. While it waits, a person is told why.
pub fn client(endpoint: &str) -> Result<Client, EndpointsError> {
    let mut options = Options::default();
    if std::io::stderr().is_terminal() {
        options.on_wait = Some(|error| {
            TOLD.store(true, Ordering::Relaxed);
            eprintln!("{}", reason_to_wait(error));
        });
    }
    Client::with_options(endpoint, options)
}

fn reason_to_wait(error: &CallError) -> String {
    format!("{}: {error}; waiting on, as long as --timeout allows", error.reason())
}

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
    if !TOLD.load(Ordering::Relaxed) {
        eprintln!("no answer from {endpoint} yet; waiting on, as long as --timeout allows");
    }
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Refusal, RefusalKind, Retry};

    #[test]
    fn whoever_waits_is_told_the_reason() {
        let retry = Retry::AfterMs(500);
        let refusal = Refusal::new(RefusalKind::NoCapacity, retry, "the only node is full");
        let refusal = Box::new(refusal);
        let refused = CallError::Refused { refusal, endpoint: "a:1".to_owned(), attempts: 1 };
        let text = reason_to_wait(&refused);
        assert!(text.starts_with("NO_CAPACITY: the only node is full; waiting on"), "{text}");
    }
}
