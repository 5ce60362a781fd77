//! A refusal that says that nothing changed is true: a request whose tries were all refused so is
//! remembered in no record of the settled cluster, and no life that it began ran on after the last of these
//! refusals. (What an owner wrote and could not commit is nothing.)

use super::{Verdict, Violation};
use crate::ledger::{Asked, Instance, Ledger};
use rota_model::{Changed, RequestId, SessionKey};
use std::collections::BTreeSet;

/// Requests that the records remember.
pub type Remembered = BTreeSet<(SessionKey, RequestId)>;

/// Checks a run.
///
/// # Errors
/// A request that was said to have changed nothing, and stands in a record, or left a life that ran.
pub fn check(ledger: &Ledger, remembered: &Remembered) -> Verdict {
    let denied = || ledger.asked.iter().filter(|it| all_denied(it));
    if let Some((asked, left)) = denied().find_map(|it| Some((it, left_of(ledger, it)?))) {
        let (id, key) = (&asked.request, &asked.key);
        let text = format!(
            "a life that request {id} for {key} began ran on after it was refused as having changed \
             nothing: {left:?}"
        );
        return Err(Violation::new("unchanged", text));
    }
    let mut untrue =
        denied().filter(|it| remembered.contains(&(it.key.clone(), it.request.clone())));
    match untrue.next() {
        None => Ok(()),
        Some(asked) => {
            let (wish, id, key) = (&asked.wish, &asked.request, &asked.key);
            let answers = asked.answers();
            let text = format!(
                "{wish:?} of {key} (request {id}) stands in a record, and was refused as having \
                 changed nothing: {:?}",
                answers.last().map(|it| it.2)
            );
            Err(Violation::new("unchanged", text))
        }
    }
}

/// What ran after the last answer, of a life that the request began.
fn left_of<'a>(ledger: &'a Ledger, asked: &Asked) -> Option<&'a Instance> {
    let told_us = asked.attempts.iter().filter_map(|it| Some(it.answer.as_ref()?.0)).max()?;
    let lives = ledger.lives.get(&asked.key)?.values();
    let begun: Vec<_> = lives.filter(|it| it.creators.contains(&asked.request)).collect();
    ledger.instances.iter().find(|instance| {
        let is_its = instance.key == asked.key
            && begun.iter().any(|life| life.tokens.contains(&instance.token));
        is_its && instance.to.as_ref().is_none_or(|(to_us, _)| *to_us > told_us)
    })
}

/// Every try was answered, and each with a refusal that says so.
fn all_denied(asked: &Asked) -> bool {
    !asked.attempts.is_empty()
        && asked.attempts.iter().all(|attempt| {
            let refusal = attempt.answer.as_ref().and_then(|(_, result)| result.as_ref().err());
            refusal.is_some_and(|refusal| refusal.changed == Changed::No)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, instance, key, life, token};
    use crate::ledger::Wish;
    use crate::life::LifeFacts;
    use rota_model::{Refusal, RefusalKind, Retry};

    #[test]
    fn a_refusal_that_hides_a_change_is_found() {
        let (kind, retry) = (RefusalKind::NotServing, Retry::Now);
        let refusals = [Refusal::new(kind, retry, ""), Refusal::unknown_outcome(kind, retry, "")];
        let mut ledger = Ledger::default();
        let remembered = Remembered::from([(key("y"), RequestId::parse("r").unwrap())]);
        for (refusal, right) in refusals.into_iter().zip([false, true]) {
            ledger.asked = vec![asked("y", Wish::Open, "r", &[(0, 10, Err(refusal))])];
            assert_eq!(check(&ledger, &remembered).is_ok(), right);
        }
        ledger.asked[0].attempts.clear();
        assert_eq!(check(&ledger, &remembered), Ok(()));
    }

    #[test]
    fn a_life_that_runs_on_after_it_was_said_that_nothing_is_left_is_found() {
        let refusal = Refusal::new(RefusalKind::NoCapacity, Retry::Now, "");
        let request = asked("y", Wish::Open, "r", &[(0, 10, Err(refusal))]);
        let mut ledger = Ledger { asked: vec![request], ..Ledger::default() };
        let mut facts = LifeFacts::new(1);
        facts.tokens.insert(token(1, 1));
        facts.creators.insert(RequestId::parse("r").unwrap());
        ledger.lives.entry(key("y")).or_default().insert(life(1), facts);
        for (to_us, right) in [(Some(9), true), (Some(11), false), (None, false)] {
            ledger.instances = vec![instance("y", "n0", token(1, 1), 2, to_us)];
            assert_eq!(check(&ledger, &Remembered::new()).is_ok(), right, "{to_us:?}");
        }
    }
}
