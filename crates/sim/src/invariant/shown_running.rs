//! I10, from outside: whoever takes over from its own disk knows nothing of what happened meanwhile,
//! so it asks the nodes before it answers anybody. A read then shows nothing as READY that had ended
//! before that take-over.

use super::{Verdict, Violation};
use crate::ledger::{EndCause, Instance};
use rota_model::{SessionRecord, SessionState};

/// Checks what a read shows. The take-over was written at `since_us`.
///
/// # Errors
/// The record is READY, and what it names had ended by then.
pub fn check(instances: &[Instance], record: &SessionRecord, since_us: u64) -> Verdict {
    let token = record.token().filter(|_| record.state == SessionState::Ready);
    let Some(token) = token else { return Ok(()) };
    let of_record = |it: &&Instance| it.key == record.key && it.token == token;
    let end = instances.iter().find(of_record).and_then(|it| it.to);
    let Some((ended_us, cause)) = end.filter(|(ended_us, _)| *ended_us < since_us) else {
        return Ok(());
    };
    let known = match cause {
        EndCause::Own | EndCause::StartTimeout | EndCause::BootDied => true,
        // The agent hears of these ends a little later than they happen.
        EndCause::Destroyed | EndCause::Lease | EndCause::Drained => false,
    };
    if !known {
        return Ok(());
    }
    let text = format!(
        "{} is shown as READY with token {token}, which ended ({cause:?}) at {ended_us} us, before \
         its owner took over from its disk at {since_us} us",
        record.key
    );
    Err(Violation::new("I10", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{instance, life, record};

    #[test]
    fn a_read_that_shows_what_had_ended_before_the_take_over_is_found() {
        let mut shown = record("y", life(1), SessionState::Ready);
        let token = shown.token().unwrap();
        let ran = |to: Option<u64>| {
            let to = to.map(|it| (it, EndCause::Own));
            vec![Instance { to, ..instance("y", "n0", token, 100, None) }]
        };
        assert_eq!(check(&ran(Some(300)), &shown, 400).unwrap_err().rule, "I10");
        assert_eq!(check(&ran(Some(500)), &shown, 400), Ok(()), "it ended after the scan");
        assert_eq!(check(&ran(None), &shown, 400), Ok(()));
        shown.state = SessionState::Closed;
        assert_eq!(check(&ran(Some(300)), &shown, 400), Ok(()));
    }
}
