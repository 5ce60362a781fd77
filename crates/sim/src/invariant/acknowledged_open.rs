//! S2: a session whose open was acknowledged is found again, unless it was closed, ended by
//! itself, or its node was drained or lost.

use super::{Verdict, Violation};
use crate::ledger::{EndCause, Ledger, Wish};
use rota_model::{SessionKey, SessionRecord, SessionState, Stamp};
use rota_protocol::Answer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the durability scan found of every id.
pub type Found = BTreeMap<SessionKey, Option<Arc<SessionRecord>>>;

/// Checks a run against its durability scan.
///
/// # Errors
/// An acknowledged life that is gone without a cause, or an address where nothing runs.
pub fn check(ledger: &Ledger, found: &Found) -> Verdict {
    for asked in &ledger.asked {
        for attempt in &asked.attempts {
            let Some((came_us, Ok(Answer::Opened { session, .. }))) = &attempt.answer else {
                continue;
            };
            let record = &session.record;
            if record.state != SessionState::Ready {
                let text = format!("an open of {} was answered {}", record.key, record.state);
                return Err(Violation::new("S2", text));
            }
            let Some(now) = found.get(&record.key) else { continue };
            let there = now.as_ref().is_some_and(|it| it.life == record.life && it.is_live());
            if !there && !has_cause(ledger, &record.key, record.life) {
                let now = now.as_ref().map(|it| (it.life, it.state, it.reason));
                let text = format!(
                    "life {} of {}, acknowledged at {came_us} us for request {}, is gone without a \
                     cause; the scan found {now:?}",
                    record.life, record.key, asked.request
                );
                return Err(Violation::new("S2", text));
            }
        }
    }
    found.values().flatten().filter(|it| it.is_live()).try_for_each(|it| runs(ledger, it))
}

/// Whether anything explains that a life is over.
fn has_cause(ledger: &Ledger, key: &SessionKey, life: Stamp) -> bool {
    let closed = ledger.asked.iter().any(|asked| match asked.wish {
        Wish::Close(named) => asked.key == *key && named.is_none_or(|named| named == life),
        Wish::Open | Wish::Get(_) => false,
    });
    let facts = ledger.lives.get(key).and_then(|it| it.get(&life));
    let ended = ledger.instances.iter().any(|instance| {
        let of_life = instance.key == *key
            && facts.is_some_and(|facts| facts.tokens.contains(&instance.token));
        let drained = |at_us| ledger.drained_us(instance).is_some_and(|from_us| from_us <= at_us);
        of_life
            && instance
                .to
                .is_some_and(|(at_us, cause)| cause != EndCause::Destroyed || drained(at_us))
    });
    // Nobody used it, or it lived long enough.
    let expired = facts.is_some_and(|it| it.expired_us.is_some());
    closed || ended || expired
}

/// An address is only told where something runs.
fn runs(ledger: &Ledger, record: &SessionRecord) -> Verdict {
    let Some(placement) = &record.placement else {
        return Err(Violation::new("S2", format!("{} is live nowhere", record.key)));
    };
    let there = ledger.instances.iter().any(|instance| {
        instance.key == record.key
            && (&instance.node, instance.boot, instance.token)
                == (&placement.node, placement.boot, placement.token)
            && instance.address == placement.address
            && instance.to.is_none()
    });
    if there {
        return Ok(());
    }
    let text = format!("{} is said to be live at {placement:?}, where nothing runs", record.key);
    Err(Violation::new("S2", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, instance, key, life, opened, record, token};
    use crate::life::LifeFacts;
    use rota_model::Outcome;

    #[test]
    fn an_acknowledged_session_that_is_not_found_again_is_noticed() {
        let request =
            asked("y", Wish::Open, "r", &[(0, 10, opened("y", life(1), Outcome::Created))]);
        let mut ledger = Ledger { asked: vec![request], ..Ledger::default() };
        let gone = Found::from([(key("y"), None)]);
        assert_eq!(check(&ledger, &gone).unwrap_err().rule, "S2");
        ledger.asked.push(asked("y", Wish::Close(None), "q", &[]));
        assert_eq!(check(&ledger, &gone), Ok(()));
    }

    #[test]
    fn a_session_that_was_ended_since_its_node_was_drained_is_not_missed() {
        let answer = opened("y", life(1), Outcome::Created);
        let Ok(Answer::Opened { session, .. }) = &answer else { unreachable!("it was opened") };
        let run = session.record.token().expect("it runs");
        let ended = instance("y", "n0", run, 1, Some(90));
        let node = ended.node.clone();
        let request = asked("y", Wish::Open, "r", &[(0, 10, answer.clone())]);
        let mut ledger =
            Ledger { asked: vec![request], instances: vec![ended], ..Ledger::default() };
        let mut facts = LifeFacts::new(0);
        facts.tokens.insert(run);
        ledger.lives.entry(key("y")).or_default().insert(life(1), facts);
        let gone = Found::from([(key("y"), None)]);
        assert_eq!(check(&ledger, &gone).unwrap_err().rule, "S2", "nobody asked for its end");
        ledger.drains.insert(node.clone(), vec![(95, None)]);
        assert!(check(&ledger, &gone).is_err(), "it had ended before");
        ledger.drains.insert(node, vec![(50, None)]);
        assert_eq!(check(&ledger, &gone), Ok(()));
    }

    #[test]
    fn an_address_where_nothing_runs_is_noticed() {
        let live = record("y", life(1), SessionState::Ready);
        let attempt = live.token().unwrap();
        let found = Found::from([(key("y"), Some(Arc::new(live)))]);
        let mut ledger = Ledger::default();
        assert_eq!(check(&ledger, &found).unwrap_err().rule, "S2");
        ledger.instances.push(instance("y", "n0", token(9, 9), 1, None));
        assert!(check(&ledger, &found).is_err());
        ledger.instances.push(instance("y", "n0", attempt, 1, None));
        assert_eq!(check(&ledger, &found), Ok(()));
    }
}
