//! An end that a client asked for wins: of a life that was closed no other one follows, though its class has lost
//! sessions opened again.

use super::{Verdict, Violation};
use crate::ledger::{Asked, Attempt, Wish};
use rota_model::{Reason, SessionRecord, Stamp};
use rota_protocol::Answer;

/// Checks a record that a manager writes. `before` is the life before it.
///
/// # Errors
/// It is a life that follows a lost one, and a client closed that one, and nobody opened the session since.
pub fn check(asked: &[Asked], record: &SessionRecord, before: Option<Stamp>) -> Verdict {
    // Its reason goes when it answers; until then it stands in each record.
    let again = [Some(Reason::Reopening), Some(Reason::Restarting)];
    if !again.contains(&record.reason) || record.state.is_ended() {
        return Ok(());
    }
    let of_key = || asked.iter().filter(|it| it.key == record.key);
    // An open that was under way when the close came may have begun what was lost then. One without a name, or that was
    // not answered well, may do so at any time.
    let open_until_us = |request: &Asked| {
        let well = |attempt: &Attempt| match &attempt.answer {
            Some((came_us, Ok(Answer::Opened { .. }))) => Some(*came_us),
            Some(_) | None => None,
        };
        let all: Option<Vec<u64>> = request.attempts.iter().map(well).collect();
        let last = all.and_then(|it| it.into_iter().max());
        last.filter(|_| !request.once).unwrap_or(u64::MAX)
    };
    let opens = of_key().filter(|it| it.wish == Wish::Open);
    let opened_us = opens.map(open_until_us).max().unwrap_or_default();
    for close in of_key().filter(|it| matches!(it.wish, Wish::Close(_))) {
        for attempt in &close.attempts {
            let Some((_, Ok(Answer::Closed { session, .. }))) = &attempt.answer else { continue };
            if Some(session.record.life) == before && attempt.sent_us > opened_us {
                let SessionRecord { key, life, .. } = record;
                let closed = session.record.life;
                let text =
                    format!("life {life} of {key} begins by itself after life {closed} was closed");
                return Err(Violation::new("closed for good", text));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, closed, life, opened, record};
    use rota_model::{Outcome, SessionState};

    #[test]
    fn a_life_that_begins_by_itself_after_a_close_is_found() {
        let mut begun = record("y", life(5), SessionState::Pending);
        begun.reason = Some(Reason::Reopening);
        let open = |request: &str, from_us, at| {
            let answer = (from_us, from_us + 10, opened("y", life(at), Outcome::Created));
            asked("y", Wish::Open, request, &[answer])
        };
        let close = asked("y", Wish::Close(None), "r2", &[(30, 40, closed("y", life(1)))]);
        let list = vec![open("r1", 10, 1), close, open("r3", 50, 3)];
        assert_eq!(check(&list[..2], &begun, Some(life(1))).unwrap_err().rule, "closed for good");
        assert_eq!(check(&list, &begun, Some(life(3))), Ok(()), "a client opened it since");
        assert_eq!(check(&list[..1], &begun, Some(life(1))), Ok(()), "nobody closed it");
        begun.reason = None;
        assert_eq!(check(&list[..2], &begun, Some(life(1))), Ok(()));
    }
}
