//! What to do after an attempt failed: pure, one table.

use rota_docstore::{Effect, Exception};
use rota_model::{Changed, Refusal, RefusalKind, Retry};
use std::time::Duration;
use tonic::Code;

/// First pause after an advice to repeat at once was followed in vain.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// Longest pause that is not advised by a server.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How an attempt failed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Failure {
    /// Rota refused.
    Refused(Box<Refusal>),
    /// An operation, or a store of documents, said no.
    Raised(Box<Exception>),
    /// Something else. `is_unsent`: there was no connection, so nobody has got the call.
    Broken { code: Code, message: String, is_unsent: bool },
}

impl Failure {
    /// Whether the call may have changed something.
    pub(crate) fn changed(&self) -> Changed {
        match self {
            Failure::Refused(refusal) => refusal.changed,
            Failure::Raised(exception) => match exception.phase().effect() {
                Effect::Nothing => Changed::No,
                Effect::Committed => Changed::Unknown,
            },
            Failure::Broken { is_unsent: true, .. } => Changed::No,
            Failure::Broken { is_unsent: false, .. } => Changed::Unknown,
        }
    }
}

/// What is known of all attempts of a call together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attempts {
    may_change: bool,
    changed: Changed,
}

impl Attempts {
    /// None yet. `may_change`: whether the call changes anything when it succeeds.
    pub(crate) fn new(may_change: bool) -> Self {
        Self { may_change, changed: Changed::No }
    }

    /// One more failed, of which this is known by itself.
    pub(crate) fn add(&mut self, changed: Changed) {
        if self.may_change && changed == Changed::Unknown {
            self.changed = Changed::Unknown;
        }
    }

    /// Whether one of them may have changed something.
    pub(crate) fn changed(self) -> Changed {
        self.changed
    }
}

/// The next step of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Give the failure to the caller.
    Stop,
    /// Send it again.
    Again {
        /// After this pause.
        pause: Duration,
        /// To the next endpoint rather than to the same.
        elsewhere: bool,
        /// The cached View is out of date.
        refresh: bool,
    },
}

/// Whether a status without Rota's details says that sending again could help.
fn may_heal(code: Code) -> bool {
    match code {
        Code::Unavailable
        | Code::Unknown
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Internal
        | Code::Aborted
        | Code::DataLoss
        | Code::ResourceExhausted => true,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => false,
    }
}

/// The pause that grows with every attempt: none after the first, then 5 ms, 10 ms, … 500 ms.
pub(crate) fn growing_pause(attempts: u32) -> Duration {
    match attempts {
        0 | 1 => Duration::ZERO,
        more => PAUSE_FIRST.saturating_mul(1 << (more - 2).min(10)).min(PAUSE_MAX),
    }
}

/// Decides after the attempt number `attempts` (from 1) at one of `endpoints` endpoints.
pub(crate) fn after(failure: &Failure, attempts: u32, endpoints: usize) -> Step {
    match failure {
        Failure::Broken { code, .. } if !may_heal(*code) => Step::Stop,
        Failure::Broken { .. } => {
            // One full circle at once, then slower.
            let circles = attempts / u32::try_from(endpoints.max(1)).unwrap_or(u32::MAX);
            let pause = growing_pause(circles + 1);
            Step::Again { pause, elsewhere: true, refresh: true }
        }
        Failure::Refused(refusal) => {
            let moved = matches!(refusal.kind, RefusalKind::NotOwner | RefusalKind::NotServing);
            follow(refusal.retry, moved, attempts)
        }
        Failure::Raised(exception) => follow(exception.retry(), false, attempts),
    }
}

/// Follows an advice. `moved`: the owner may be another one by now.
fn follow(advice: Retry, moved: bool, attempts: u32) -> Step {
    match advice {
        Retry::Never | Retry::WhenChanged => Step::Stop,
        Retry::Now => {
            // Who serves nothing now stops, or leaves: another one takes it.
            let pause = growing_pause(attempts);
            Step::Again { pause, elsewhere: moved || attempts > 2, refresh: moved }
        }
        Retry::AfterMs(ms) => {
            // Who says so twice may say so for ever: a manager that is cut off from the others does.
            let pause = Duration::from_millis(ms.max(1));
            Step::Again { pause, elsewhere: attempts > 1, refresh: moved }
        }
        Retry::AtOwner(_) => {
            Step::Again { pause: growing_pause(attempts), elsewhere: true, refresh: true }
        }
    }
}

/// Whether later calls should begin at another endpoint than the one that refused this call in the
/// end: it may be cut off from the other managers.
pub(crate) fn is_cut_off(kind: RefusalKind) -> bool {
    use RefusalKind::{ConfigStoreAway, DeadlineExceeded, NotServing};
    matches!(kind, ConfigStoreAway | DeadlineExceeded | NotServing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::Epoch;

    fn refused(kind: RefusalKind, retry: Retry) -> Failure {
        Failure::Refused(Box::new(Refusal::new(kind, retry, "no")))
    }

    fn broken(code: Code) -> Failure {
        Failure::Broken { code, message: String::new(), is_unsent: false }
    }

    #[test]
    fn a_final_refusal_is_not_repeated() {
        assert_eq!(after(&refused(RefusalKind::NotFound, Retry::WhenChanged), 1, 3), Step::Stop);
        assert_eq!(after(&refused(RefusalKind::LifeMismatch, Retry::Never), 1, 3), Step::Stop);
        assert_eq!(after(&broken(Code::Unimplemented), 1, 3), Step::Stop);
    }

    #[test]
    fn an_advised_wait_is_kept_and_stays_once_at_the_same_endpoint() {
        let refused = refused(RefusalKind::Provisioning, Retry::AfterMs(300));
        let pause = Duration::from_millis(300);
        for (attempts, elsewhere) in [(1, false), (2, true), (3, true)] {
            let step = after(&refused, attempts, 3);
            assert_eq!(step, Step::Again { pause, elsewhere, refresh: false });
        }
    }

    #[test]
    fn an_exception_is_followed_by_the_advice_of_the_one_table() {
        let raised = |it: Exception| Failure::Raised(Box::new(it));
        let off = Exception::new(rota_docstore::codes::OFF, "maintenance");
        let pause = Duration::from_secs(30);
        let expected = Step::Again { pause, elsewhere: false, refresh: false };
        assert_eq!(after(&raised(off), 1, 3), expected);
        let late = Exception::unexpected("LATE", "lost").at(rota_docstore::Phase::Sending);
        assert_eq!(raised(late.clone()).changed(), Changed::Unknown);
        assert_eq!(after(&raised(late), 1, 3), Step::Stop);
    }

    #[test]
    fn another_owner_makes_the_view_stale() {
        let step = after(&refused(RefusalKind::NotOwner, Retry::AtOwner(Epoch(7))), 1, 3);
        assert_eq!(step, Step::Again { pause: Duration::ZERO, elsewhere: true, refresh: true });
    }

    #[test]
    fn who_serves_nothing_any_more_is_left_at_once() {
        let step = after(&refused(RefusalKind::NotServing, Retry::Now), 1, 3);
        assert_eq!(step, Step::Again { pause: Duration::ZERO, elsewhere: true, refresh: true });
        let step = after(&refused(RefusalKind::Overloaded, Retry::Now), 1, 3);
        assert_eq!(step, Step::Again { pause: Duration::ZERO, elsewhere: false, refresh: false });
    }

    #[test]
    fn a_break_tries_every_endpoint_once_before_it_pauses() {
        let pause_of = |attempts| match after(&broken(Code::Unavailable), attempts, 3) {
            Step::Again { pause, elsewhere, .. } => {
                assert!(elsewhere);
                pause
            }
            Step::Stop => panic!("a break is not final"),
        };
        assert_eq!(pause_of(1), Duration::ZERO);
        assert_eq!(pause_of(2), Duration::ZERO);
        assert!(pause_of(3) > Duration::ZERO);
        assert_eq!(pause_of(1000), PAUSE_MAX);
    }
}
