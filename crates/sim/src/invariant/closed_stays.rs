//! S3: an acknowledged close stays closed: that life is never seen open again, and when the close
//! was answered as finished, nothing of it runs any more.

use super::{Verdict, Violation};
use crate::ledger::Ledger;
use rota_model::{SessionKey, SessionRecord, SessionState, Stamp};
use rota_protocol::Answer;
use std::collections::BTreeMap;

/// Checks a run.
///
/// # Errors
/// A life that was seen open by a request sent after its close was acknowledged, or that ran
/// after its close was answered as finished.
pub fn check(ledger: &Ledger) -> Verdict {
    let closed = acknowledged(ledger, false);
    for (sent_us, record, opens) in sightings(ledger) {
        let over = record.state.is_ended() || record.state == SessionState::Closing;
        let Some(closed_us) = closed.get(&(&record.key, record.life)) else { continue };
        if (opens || !over) && sent_us > *closed_us {
            let (key, life, state) = (&record.key, record.life, record.state);
            let text = format!(
                "life {life} of {key}, closed at {closed_us} us, was seen {state} by a request \
                 sent at {sent_us} us"
            );
            return Err(Violation::new("S3", text));
        }
    }
    ran_on(ledger)
}

/// The part of it that holds even for what managers have forgotten.
///
/// # Errors
/// A life that ran after its close was answered as finished.
pub fn ran_on(ledger: &Ledger) -> Verdict {
    let finished = acknowledged(ledger, true);
    for instance in &ledger.instances {
        let Some(life) = ledger.life_of(&instance.key, instance.token) else { continue };
        let Some(closed_us) = finished.get(&(&instance.key, life)) else { continue };
        if instance.to.is_none_or(|(to_us, _)| to_us > *closed_us) {
            let text = format!("life {life} was closed at {closed_us} us and ran on: {instance:?}");
            return Err(Violation::new("S3", text));
        }
    }
    Ok(())
}

/// Acknowledged closes by life: the time of the first acknowledgement.
fn acknowledged(ledger: &Ledger, only_finished: bool) -> BTreeMap<(&SessionKey, Stamp), u64> {
    let mut closed = BTreeMap::new();
    for attempt in ledger.asked.iter().flat_map(|it| &it.attempts) {
        if let Some((came_us, Ok(Answer::Closed { finished, session }))) = &attempt.answer
            && (*finished || !only_finished)
        {
            let at_us =
                closed.entry((&session.record.key, session.record.life)).or_insert(*came_us);
            *at_us = (*at_us).min(*came_us);
        }
    }
    closed
}

/// Everything that was shown of sessions: when asked, the record, and whether the answer itself
/// says that the session is open. Deliberate repetitions of an answered request say nothing new.
fn sightings(ledger: &Ledger) -> Vec<(u64, &SessionRecord, bool)> {
    let mut list = Vec::new();
    for asked in &ledger.asked {
        let first_us = asked.attempts.first().map_or(0, |it| it.sent_us);
        for attempt in &asked.attempts {
            match &attempt.answer {
                Some((_, Ok(Answer::Opened { session, .. }))) => {
                    list.push((first_us, &*session.record, true));
                    break;
                }
                Some((_, Ok(Answer::Got { session, stale: false }))) => {
                    list.push((attempt.sent_us, &*session.record, false));
                }
                Some(_) | None => {}
            }
        }
    }
    list.extend(ledger.listed.iter().map(|it| (it.sent_us, &*it.record, false)));
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, closed, got, instance, key, life, token};
    use crate::ledger::Wish;
    use crate::life::LifeFacts;

    #[test]
    fn a_closed_life_that_is_seen_open_again_is_found() {
        let close = asked("y", Wish::Close(None), "r", &[(0, 10, closed("y", life(1)))]);
        let read = got("y", life(1), SessionState::Ready);
        let late = asked("y", Wish::Get(false), "q", &[(11, 20, read.clone())]);
        let overlapping = asked("y", Wish::Get(false), "q", &[(9, 20, read)]);
        let ledger = |read| Ledger { asked: vec![close.clone(), read], ..Ledger::default() };
        assert_eq!(check(&ledger(late)).unwrap_err().rule, "S3");
        assert_eq!(check(&ledger(overlapping)), Ok(()));
    }

    #[test]
    fn a_program_that_runs_on_after_its_finished_close_is_found() {
        let close = asked("y", Wish::Close(None), "r", &[(0, 10, closed("y", life(1)))]);
        let mut ledger = Ledger { asked: vec![close], ..Ledger::default() };
        let mut facts = LifeFacts::new(0);
        facts.tokens.insert(token(1, 1));
        ledger.lives.entry(key("y")).or_default().insert(life(1), facts);
        ledger.instances.push(instance("y", "n0", token(1, 1), 1, Some(10)));
        assert_eq!(check(&ledger), Ok(()));
        ledger.instances[0].to = None;
        assert_eq!(check(&ledger).unwrap_err().rule, "S3");
    }
}
