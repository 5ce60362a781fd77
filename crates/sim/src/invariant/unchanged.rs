//! A refusal that says that nothing changed is true: a request whose tries were all refused so is
//! remembered in no record of the settled cluster. (What an owner wrote and could not commit is
//! nothing.)

use super::{Verdict, Violation};
use crate::ledger::{Asked, Ledger};
use rota_model::{Changed, RequestId, SessionKey};
use std::collections::BTreeSet;

/// Requests that the records remember.
pub type Remembered = BTreeSet<(SessionKey, RequestId)>;

/// Checks a run.
///
/// # Errors
/// A request that was said to have changed nothing, and stands in a record.
pub fn check(ledger: &Ledger, remembered: &Remembered) -> Verdict {
    let denied = ledger.asked.iter().filter(|it| all_denied(it));
    let mut untrue = denied.filter(|it| remembered.contains(&(it.key.clone(), it.request.clone())));
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

/// Every try was answered, and each with a refusal that says so.
fn all_denied(asked: &Asked) -> bool {
    !asked.attempts.is_empty()
        && asked.attempts.iter().all(|it| {
            let refusal = it.answer.as_ref().and_then(|(_, result)| result.as_ref().err());
            refusal.is_some_and(|refusal| refusal.changed == Changed::No)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, key};
    use crate::ledger::Wish;
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
}
