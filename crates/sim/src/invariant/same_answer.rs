//! A repeated request id gets the same outcome, life and address, through whichever manager; and
//! one life is answered CREATED to one request only.

use super::Violation;
use crate::ledger::{Asked, Ledger, Wish};
use rota_model::{Outcome, REQUESTS_REMEMBERED_MAX, RefusalKind, RequestId, SessionKey, Stamp};
use rota_protocol::{Answer, OpResult};
use std::collections::BTreeMap;

/// The part of an answer that must not change: outcome, life, class, address. A refusal other than that a
/// life did not start says how things stand at the moment, and may change.
fn essence(result: &OpResult) -> Option<(String, Stamp, String, String)> {
    if let Err(refusal) = result
        && refusal.kind == RefusalKind::StartFailed
    {
        let none = String::new();
        return Some((refusal.kind.as_str().into(), Stamp::MIN, none.clone(), none));
    }
    let (what, session) = match result {
        Ok(Answer::Opened { outcome, session, .. }) => (outcome.as_str(), session),
        Ok(Answer::Closed { session, .. }) => ("CLOSED", session),
        Ok(
            Answer::Got { .. }
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
        | Err(_) => return None,
    };
    let address = match result {
        Ok(Answer::Opened { .. }) => session.record.placement.as_ref().map(|it| &it.address),
        Ok(_) | Err(_) => None,
    };
    let class = session.record.spec.class.to_string();
    Some((what.into(), session.record.life, class, address.cloned().unwrap_or_default()))
}

/// A record remembers that many requests; what lies further back may be forgotten. A few less than
/// it holds, because tries are counted here by when clients sent them.
const OTHERS_MAX: usize = REQUESTS_REMEMBERED_MAX - 16;

/// How many other requests of that id had any try sent between two moments.
fn others(asked: &[Asked], request: &Asked, from_us: u64, to_us: u64) -> usize {
    let of_id = asked.iter().filter(|it| it.key == request.key && it.request != request.request);
    let between = |other: &&Asked| {
        other.attempts.iter().any(|attempt| {
            let (sent_us, came_us) =
                (attempt.sent_us, attempt.answer.as_ref().map_or(u64::MAX, |it| it.0));
            sent_us <= to_us && came_us >= from_us
        })
    };
    of_id.filter(|it| !matches!(it.wish, Wish::Get(_))).filter(between).count()
}

/// What a repeated request may be answered differently for.
fn may_differ(ledger: &Ledger, first: &OpResult) -> bool {
    match first {
        // READY, and with it the memory of the answer, rides on the batch after the answer. When
        // the owner changes before that batch is everywhere and the life ends before the next
        // owner sees it ready, nobody knows any more that it was answered.
        Ok(Answer::Opened { outcome: Outcome::Created, session, .. }) => {
            !ledger.ready_everywhere(session)
                && ledger.ran_and_ended(&session.record.key, session.record.life)
        }
        Ok(_) | Err(_) => false,
    }
}

/// Checks all requests of a run. A repetition later than `memory_us` after the request was first sent may
/// have been forgotten: it was carried out no earlier, and nobody promises anew what he repeats. Gives how
/// many CREATED answers were forgotten in the one way that is allowed.
///
/// # Errors
/// A repetition with another answer, or a life that was CREATED twice.
pub fn check(ledger: &Ledger, memory_us: u64) -> Result<u64, Violation> {
    let mut created: BTreeMap<(&SessionKey, Stamp), &RequestId> = BTreeMap::new();
    let mut forgotten = 0;
    for request in &ledger.asked {
        let mut first = None;
        let sent_us = request.attempts.iter().map(|it| it.sent_us).min().unwrap_or(0);
        for (attempt, came_us, result) in request.answers() {
            let Some(now) = essence(result) else { continue };
            if let Ok(Answer::Opened { outcome: Outcome::Created, session, .. }) = result {
                let life = (&request.key, session.record.life);
                let by = *created.entry(life).or_insert(&request.request);
                if *by != request.request {
                    let (key, other) = (&request.key, &request.request);
                    let text = format!("life {} of {key} was CREATED for {by} and {other}", life.1);
                    return Err(Violation::new("repeat", text));
                }
            }
            let Some((first_us, before, first_result)) = &first else {
                first = Some((came_us, now, result));
                continue;
            };
            let since_us = first_us.saturating_sub(memory_us);
            let late = attempt.sent_us > sent_us + memory_us;
            if *before == now
                || late
                || others(&ledger.asked, request, since_us, came_us) >= OTHERS_MAX
            {
                continue;
            }
            if may_differ(ledger, first_result) || may_differ(ledger, result) {
                forgotten += 1;
                continue;
            }
            let (key, id) = (&request.key, &request.request);
            let text = format!(
                "request {id} for {key} was answered {before:?} and, asked again at {} us through \
                 M{}, {now:?}",
                attempt.sent_us, attempt.manager
            );
            return Err(Violation::new("repeat", text));
        }
    }
    Ok(forgotten)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, instance, key, life, opened, token, view};
    use crate::ledger::Attempt;
    use crate::life::LifeFacts;
    use rota_model::{Epoch, ManagerNumber, Refusal, Retry};
    use std::sync::Arc;

    fn book(asked: Vec<Asked>) -> Ledger {
        Ledger { asked, ..Ledger::default() }
    }

    #[test]
    fn a_repeated_request_that_creates_another_life_is_found() {
        let tries = [
            (0, 10, opened("y", life(1), Outcome::Created)),
            (20, 30, opened("y", life(2), Outcome::Created)),
        ];
        let mut ledger = book(vec![asked("y", Wish::Open, "r", &tries)]);
        assert_eq!(check(&ledger, 1_000).unwrap_err().rule, "repeat");
        assert_eq!(check(&ledger, 5), Ok(0));
        // Nothing else than an end before READY was everywhere excuses it.
        let mut facts = LifeFacts::new(0);
        facts.tokens.insert(token(1, 1));
        ledger.lives.entry(key("y")).or_default().insert(life(1), facts);
        ledger.instances.push(instance("y", "n0", token(1, 1), 1, Some(15)));
        assert_eq!(check(&ledger, 1_000), Ok(1));
        ledger.views.insert(Epoch(1), Arc::new(view()));
        for member in [ManagerNumber(10), ManagerNumber(20)] {
            assert_eq!(check(&ledger, 1_000), Ok(1));
            ledger.disks.ready.insert((member, key("y"), life(1)));
        }
        assert!(check(&ledger, 1_000).is_err());
    }

    #[test]
    fn a_repetition_does_not_prolong_what_is_remembered() {
        let created = |from, to, n| (from, to, opened("y", life(n), Outcome::Created));
        let mut request =
            asked("y", Wish::Open, "r", &[created(600, 610, 1), created(900, 910, 2)]);
        assert!(check(&book(vec![request.clone()]), 400).is_err());
        // An earlier try, whose answer was lost: from then on it counts.
        let lost = Attempt { answer: None, sent_us: 499, ..request.attempts[0].clone() };
        request.attempts.insert(0, lost);
        assert_eq!(check(&book(vec![request]), 400), Ok(0));
    }

    #[test]
    fn an_open_that_did_not_start_and_is_repeated_starts_nothing() {
        let refusal = Refusal::unknown_outcome(RefusalKind::StartFailed, Retry::Never, "no");
        let failed = || (0, 10, Err(refusal.clone()));
        let created = (20, 30, opened("y", life(2), Outcome::Created));
        let repeated = book(vec![asked("y", Wish::Open, "r", &[failed(), created])]);
        assert_eq!(check(&repeated, 1_000).unwrap_err().rule, "repeat");
        let again = asked("y", Wish::Open, "r", &[failed(), (20, 30, Err(refusal.clone()))]);
        assert_eq!(check(&book(vec![again]), 1_000), Ok(0));
    }

    #[test]
    fn one_life_created_for_two_requests_is_found() {
        let result = opened("y", life(1), Outcome::Created);
        let one = asked("y", Wish::Open, "r", &[(0, 10, result.clone())]);
        let two = asked("y", Wish::Open, "q", &[(0, 10, result)]);
        assert!(check(&book(vec![one, two]), 1_000).is_err());
    }
}
