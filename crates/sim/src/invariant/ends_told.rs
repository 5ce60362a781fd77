//! How an end is told: FAILED is what ended by itself and not well, or never became READY; what was asked
//! to end is CLOSED, however its program did.

use super::{Verdict, Violation};
use crate::ledger::Ledger;
use rota_model::{Exit, Reason, SessionRecord, SessionState};
use rota_protocol::Answer;

/// Checks a run.
///
/// # Errors
/// A session that was shown to have ended, in a state that its reason and exit do not give.
pub fn check(ledger: &Ledger) -> Verdict {
    let answers =
        ledger.asked.iter().flat_map(|it| &it.attempts).filter_map(|it| it.answer.as_ref());
    let shown = answers.filter_map(|(_, answer)| match answer {
        Ok(Answer::Got { session, .. } | Answer::Closed { session, .. }) => Some(&*session.record),
        Ok(
            Answer::Opened { .. }
            | Answer::Listed(_)
            | Answer::Pulled(_)
            | Answer::KeptAlive { .. }
            | Answer::Reported
            | Answer::Mended(_)
            | Answer::Numbers(_)
            | Answer::Tasks(_)
            | Answer::Lives(_)
            | Answer::Found(_)
            | Answer::Documents(_),
        )
        | Err(_) => None,
    });
    let listed = ledger.listed.iter().map(|it| &*it.record);
    shown.chain(listed).try_for_each(of_one)
}

fn of_one(record: &SessionRecord) -> Verdict {
    let (Some(reason), true) = (record.reason, record.state.is_ended()) else { return Ok(()) };
    let failed = record.state == SessionState::Failed;
    let fits = match (reason, &record.exit) {
        (Reason::Restarting | Reason::Unhealthy, _) => failed,
        (Reason::Exited, Some(Exit::Code(0)) | None) | (Reason::Internal, _) => true,
        (Reason::Exited, Some(Exit::FinalState(_))) => !failed,
        (Reason::Exited, Some(Exit::Code(_) | Exit::Signal(_)))
        | (Reason::StartTimeout | Reason::NoCapacity, _) => failed,
        (
            Reason::ClosedByClient
            | Reason::ClosedByOperator
            | Reason::IdleTimeout
            | Reason::MaxLifetime
            | Reason::NodeLost
            | Reason::Reopening
            | Reason::LeaseNotRenewed
            | Reason::Drained,
            _,
        ) => !failed,
    };
    if fits {
        return Ok(());
    }
    let SessionRecord { key, life, state, exit, .. } = record;
    let text =
        format!("life {life} of {key} is shown as {state} with reason {reason} and {exit:?}");
    Err(Violation::new("ends", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{life, record};

    #[test]
    fn a_crash_that_is_told_as_closed_is_found_and_so_is_a_close_that_is_told_as_failed() {
        let told = |state, reason, exit| {
            let reason = Some(reason);
            of_one(&SessionRecord { reason, exit, ..record("y", life(1), state) })
        };
        let (crash, well) = (Some(Exit::Signal(11)), Some(Exit::Code(0)));
        let (closed, failed) = (SessionState::Closed, SessionState::Failed);
        assert_eq!(told(closed, Reason::Exited, crash.clone()).unwrap_err().rule, "ends");
        assert_eq!(told(failed, Reason::Exited, crash.clone()), Ok(()));
        assert_eq!(told(closed, Reason::Exited, well), Ok(()));
        assert_eq!(told(failed, Reason::ClosedByClient, crash.clone()).unwrap_err().rule, "ends");
        assert_eq!(told(closed, Reason::ClosedByClient, crash), Ok(()));
        assert_eq!(told(closed, Reason::StartTimeout, None).unwrap_err().rule, "ends");
    }
}
