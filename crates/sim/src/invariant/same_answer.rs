//! A repeated request id gets the same outcome, life and address, through whichever manager; and
//! one life is answered CREATED to one request only.

use super::{Verdict, Violation};
use crate::ledger::{Asked, Wish};
use rota_model::{
    Answer, OpResult, Outcome, REQUESTS_REMEMBERED_MAX, RequestId, SessionKey, Stamp,
};
use std::collections::BTreeMap;

/// The part of an answer that must not change: outcome, life, address.
fn essence(result: &OpResult) -> Option<(String, Stamp, String)> {
    let (what, session) = match result {
        Ok(Answer::Opened { outcome, session }) => (outcome.as_str(), session),
        Ok(Answer::Closed { session, .. }) => ("CLOSED", session),
        Ok(Answer::Got { .. } | Answer::Listed(_) | Answer::Pulled(_) | Answer::Reported)
        | Err(_) => return None,
    };
    let address = match result {
        Ok(Answer::Opened { .. }) => session.record.placement.as_ref().map(|it| &it.address),
        Ok(_) | Err(_) => None,
    };
    Some((what.into(), session.record.life, address.cloned().unwrap_or_default()))
}

/// A record remembers that many requests; what lies further back may be forgotten. A few less than
/// it holds, because tries are counted here by when clients sent them.
const OTHERS_MAX: usize = REQUESTS_REMEMBERED_MAX - 16;

/// How many other requests of that id had any try sent between two moments.
fn others(asked: &[Asked], request: &Asked, from_us: u64, to_us: u64) -> usize {
    let of_id = asked.iter().filter(|it| it.key == request.key && it.request != request.request);
    let between = |it: &&Asked| {
        it.attempts.iter().any(|it| {
            let (sent_us, came_us) = (it.sent_us, it.answer.as_ref().map_or(u64::MAX, |it| it.0));
            sent_us <= to_us && came_us >= from_us
        })
    };
    of_id.filter(|it| !matches!(it.wish, Wish::Get(_))).filter(between).count()
}

/// Checks all requests of a run. A repetition later than `memory_us` after the first answer may
/// have been forgotten.
///
/// # Errors
/// A repetition with another answer, or a life that was CREATED twice.
pub fn check(asked: &[Asked], memory_us: u64) -> Verdict {
    let mut created: BTreeMap<(&SessionKey, Stamp), &RequestId> = BTreeMap::new();
    for request in asked {
        let mut first = None;
        for attempt in &request.attempts {
            let Some((came_us, result)) = &attempt.answer else { continue };
            let Some(now) = essence(result) else { continue };
            if let Ok(Answer::Opened { outcome: Outcome::Created, session }) = result {
                let life = (&request.key, session.record.life);
                let by = *created.entry(life).or_insert(&request.request);
                if *by != request.request {
                    let (key, other) = (&request.key, &request.request);
                    let text = format!("life {} of {key} was CREATED for {by} and {other}", life.1);
                    return Err(Violation::new("repeat", text));
                }
            }
            match &first {
                None => first = Some((*came_us, now)),
                Some((first_us, _)) if attempt.sent_us > first_us + memory_us => {}
                Some((first_us, before))
                    if *before != now
                        && others(asked, request, first_us.saturating_sub(memory_us), *came_us)
                            < OTHERS_MAX =>
                {
                    let (key, id) = (&request.key, &request.request);
                    let text = format!(
                        "request {id} for {key} was answered {before:?} and, asked again at {} us \
                         through M{}, {now:?}",
                        attempt.sent_us, attempt.manager
                    );
                    return Err(Violation::new("repeat", text));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, life, opened};

    #[test]
    fn a_repeated_request_that_creates_another_life_is_found() {
        let tries = [
            (0, 10, opened("y", life(1), Outcome::Created)),
            (20, 30, opened("y", life(2), Outcome::Created)),
        ];
        let request = asked("y", Wish::Open, "r", &tries);
        assert_eq!(check(std::slice::from_ref(&request), 1_000).unwrap_err().rule, "repeat");
        assert_eq!(check(&[request], 5), Ok(()));
    }

    #[test]
    fn one_life_created_for_two_requests_is_found() {
        let result = opened("y", life(1), Outcome::Created);
        let one = asked("y", Wish::Open, "r", &[(0, 10, result.clone())]);
        let two = asked("y", Wish::Open, "q", &[(0, 10, result)]);
        assert!(check(&[one, two], 1_000).is_err());
    }
}
