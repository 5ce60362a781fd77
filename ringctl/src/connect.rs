//! Whoever reads stderr is told when an answer takes long, and why.

use crate::output::Format;
use rota_client::{CallError, Client, EndpointsError, OnWait, Options};
use std::future::Future;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// After this time without an answer.
const SILENCE: Duration = Duration::from_secs(1);

/// Who reads stderr.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Audience {
    /// Somebody at a terminal: told every reason to wait.
    Person,
    /// A file or another program that keeps it: told only that no manager is there.
    Log,
    /// A program that reads the error document there: nothing else may stand beside it.
    Parser,
}

// One of each for the process, as its stderr is.
static AUDIENCE: OnceLock<Audience> = OnceLock::new();
/// Whether a reason to wait was told.
static TOLD: AtomicBool = AtomicBool::new(false);
/// Why the last attempt reached no manager.
static GONE: Mutex<Option<String>> = Mutex::new(None);

/// A client of the managers at these addresses. While it waits, whoever reads stderr is told why.
pub fn client(endpoint: &str, format: Format) -> Result<Client, EndpointsError> {
    let on_wait: Option<OnWait> = match audience(format) {
        Audience::Person => Some(|error| {
            TOLD.store(true, Ordering::Relaxed);
            eprintln!("{}", reason_to_wait(error));
        }),
        Audience::Log => Some(|error| {
            *GONE.lock().unwrap_or_else(PoisonError::into_inner) = why_gone(error);
        }),
        Audience::Parser => None,
    };
    Client::with_options(endpoint, Options { on_wait, ..Options::default() })
}

fn audience(format: Format) -> Audience {
    *AUDIENCE.get_or_init(|| match format {
        Format::Table | Format::Json if std::io::stderr().is_terminal() => Audience::Person,
        Format::Table => Audience::Log,
        Format::Json => Audience::Parser,
    })
}

fn reason_to_wait(error: &CallError) -> String {
    format!("{}: {error}; waiting on", error.reason())
}

/// What to say of an attempt that reached nobody; `None` of every other one.
fn why_gone(error: &CallError) -> Option<String> {
    match error {
        CallError::Broken { .. } | CallError::TimedOut { .. } => Some(error.to_string()),
        CallError::Refused { .. }
        | CallError::Raised { .. }
        | CallError::Incomplete { .. }
        | CallError::Unreadable { .. }
        | CallError::Source(_)
        | CallError::Address(_) => None,
    }
}

/// Does some work that ends with an answer, and says on stderr that it waits when that takes long.
pub async fn told<T>(endpoint: &str, work: impl Future<Output = T>) -> T {
    after_silence(Some(endpoint), work).await
}

/// Does some work that may well take long, and says on stderr when no manager is there for it.
pub async fn told_when_gone<T>(work: impl Future<Output = T>) -> T {
    after_silence(None, work).await
}

/// Gives an order that a manager writes into the config store before it answers, and says on stderr that it
/// waits when that takes long.
pub async fn told_of_order<T>(format: Format, wait: Duration, work: impl Future<Output = T>) -> T {
    saying(work, |is_told, gone| overdue_order(audience(format), is_told, gone, wait)).await
}

async fn after_silence<T>(endpoint: Option<&str>, work: impl Future<Output = T>) -> T {
    let text = |is_told, gone| overdue(*AUDIENCE.get()?, endpoint, is_told, gone);
    saying(work, text).await
}

/// Does some work. After a silence says on stderr what `text` makes of whether a reason to wait was told,
/// and of why nobody was reached.
async fn saying<T>(
    work: impl Future<Output = T>,
    text: impl FnOnce(bool, Option<String>) -> Option<String>,
) -> T {
    let mut work = Box::pin(work);
    if let Ok(done) = timeout(SILENCE, &mut work).await {
        return done;
    }
    let gone = GONE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(text) = text(TOLD.load(Ordering::Relaxed), gone) {
        eprintln!("{text}");
    }
    work.await
}

/// What to say of an order that is overdue.
fn overdue_order(
    audience: Audience,
    is_told: bool,
    gone: Option<String>,
    wait: Duration,
) -> Option<String> {
    let is_read = match audience {
        Audience::Person => !is_told,
        Audience::Log => true,
        Audience::Parser => false,
    };
    let why = gone.map_or_else(
        || "no answer yet: the config store may be away, to which it is written first".to_owned(),
        |gone| format!("no manager answers: {gone}"),
    );
    is_read.then(|| format!("{why}; waiting on, for {} in all", humantime::format_duration(wait)))
}

/// What to say of an answer that is overdue.
fn overdue(
    audience: Audience,
    endpoint: Option<&str>,
    is_told: bool,
    gone: Option<String>,
) -> Option<String> {
    match audience {
        Audience::Person => endpoint.filter(|_| !is_told).map(|endpoint| {
            format!("no answer from {endpoint} yet; waiting on, as long as --timeout allows")
        }),
        Audience::Log => gone.map(|why| format!("no manager answers: {why}; trying on")),
        Audience::Parser => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Changed, Refusal, RefusalKind, Retry};

    fn full() -> CallError {
        let retry = Retry::AfterMs(500);
        let refusal = Refusal::new(RefusalKind::NoCapacity, retry, "the only node is full");
        let refusal = Box::new(refusal);
        CallError::Refused { refusal, endpoint: "a:1".to_owned(), attempts: 1 }
    }

    #[test]
    fn whoever_waits_is_told_the_reason() {
        let text = reason_to_wait(&full());
        assert!(text.starts_with("NO_CAPACITY: the only node is full; waiting on"), "{text}");
    }

    #[test]
    fn a_log_is_told_that_nobody_is_there_and_a_parser_nothing() {
        let endpoint = "a:1".to_owned();
        let waited = Duration::from_secs(1);
        let silent =
            CallError::TimedOut { endpoint, waited, attempts: 1, changed: Changed::Unknown };
        let gone = why_gone(&silent);
        assert!(gone.is_some() && why_gone(&full()).is_none());
        let text = overdue(Audience::Log, Some("a:1"), false, gone.clone()).unwrap();
        assert!(text.starts_with("no manager answers: no answer from a:1"), "{text}");
        assert_eq!(overdue(Audience::Log, Some("a:1"), false, None), None);
        assert_eq!(overdue(Audience::Parser, Some("a:1"), false, gone), None);
    }

    #[test]
    fn an_order_that_is_not_answered_is_told_with_what_it_waits_for() {
        let wait = Duration::from_secs(15);
        let told = |audience, is_told| overdue_order(audience, is_told, None, wait);
        for text in [told(Audience::Person, false), told(Audience::Log, true)] {
            let text = text.unwrap();
            assert!(text.contains("config store") && text.ends_with("for 15s in all"), "{text}");
        }
        assert_eq!((told(Audience::Person, true), told(Audience::Parser, false)), (None, None));
        let gone = Some("a:1 refuses".to_owned());
        let text = overdue_order(Audience::Log, false, gone, wait).unwrap();
        assert!(text.contains("a:1 refuses") && !text.contains("config store"), "{text}");
    }

    #[test]
    fn a_person_is_told_of_silence_once_and_not_of_work_that_takes_long() {
        let told = |endpoint, is_told| overdue(Audience::Person, endpoint, is_told, None);
        assert!(told(Some("a:1"), false).unwrap().starts_with("no answer from a:1 yet"));
        assert_eq!((told(Some("a:1"), true), told(None, false)), (None, None));
    }
}
