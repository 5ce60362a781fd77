//! What clients are shown of one life never goes back: no confirmed answer has an older version, or
//! tells an older state of its machine, than an answer that came before it was asked for.

use super::{Verdict, Violation};
use crate::ledger::Ledger;
use rota_model::{SessionKey, SessionRecord, Stamp};
use rota_protocol::Answer;
use std::collections::BTreeMap;

/// One confirmed answer.
#[derive(Clone, Copy)]
struct Sight<'a> {
    sent_us: u64,
    came_us: u64,
    record: &'a SessionRecord,
    /// A repeated open repeats what was answered before.
    may_be_old: bool,
}

/// What was certainly shown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Known {
    version: Stamp,
    change: u64,
}

/// Checks a run.
///
/// # Errors
/// An answer that is older than one that was known when it was asked for.
pub fn check(ledger: &Ledger) -> Verdict {
    for mut sights in by_life(ledger).into_values() {
        let mut by_end = sights.clone();
        by_end.sort_by_key(|it| it.came_us);
        let mut ended = by_end.into_iter().peekable();
        let mut known = Known::default();
        sights.sort_by_key(|it| it.sent_us);
        for sight in &sights {
            while let Some(before) = ended.next_if(|it| it.came_us < sight.sent_us) {
                known.version = known.version.max(before.record.version);
                known.change = known.change.max(before.record.machine_change);
            }
            let record = sight.record;
            let older = record.version < known.version || record.machine_change < known.change;
            if older && !sight.may_be_old {
                return Err(gone_back(known, sight));
            }
        }
    }
    Ok(())
}

fn gone_back(known: Known, after: &Sight<'_>) -> Violation {
    let Sight { sent_us, record, .. } = after;
    let text = format!(
        "life {} of {}: an answer to a request of {sent_us} us has version {} and machine change \
         {}; {known:?} was shown before",
        record.life, record.key, record.version, record.machine_change,
    );
    Violation::new("forward", text)
}

/// Confirmed answers by life.
fn by_life(ledger: &Ledger) -> BTreeMap<(&SessionKey, Stamp), Vec<Sight<'_>>> {
    let mut lives: BTreeMap<_, Vec<Sight<'_>>> = BTreeMap::new();
    for attempt in ledger.asked.iter().flat_map(|it| &it.attempts) {
        let (session, may_be_old) = match &attempt.answer {
            Some((_, Ok(Answer::Got { session, stale: false }))) => (session, false),
            Some((_, Ok(Answer::Opened { session, .. }))) => (session, true),
            Some(_) | None => continue,
        };
        let came_us = attempt.answer.as_ref().map_or(0, |it| it.0);
        let (sent_us, record) = (attempt.sent_us, &*session.record);
        let sight = Sight { sent_us, came_us, record, may_be_old };
        lives.entry((&record.key, record.life)).or_default().push(sight);
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, got, life, opened};
    use crate::ledger::Wish;
    use rota_model::{Outcome, SessionState};
    use rota_protocol::OpResult;
    use std::sync::Arc;

    fn at_change(change: u64) -> OpResult {
        let mut result = got("y", life(1), SessionState::Ready);
        if let Ok(Answer::Got { session, .. }) = &mut result {
            Arc::make_mut(&mut session.record).machine_change = change;
        }
        result
    }

    #[test]
    fn a_machine_that_is_shown_in_an_older_state_is_found() {
        let read =
            |from, to, change| asked("y", Wish::Get(false), "q", &[(from, to, at_change(change))]);
        let mut ledger =
            Ledger { asked: vec![read(0, 10, 2), read(9, 20, 1)], ..Ledger::default() };
        assert_eq!(check(&ledger), Ok(()), "they overlap");
        ledger.asked.push(read(21, 30, 1));
        assert_eq!(check(&ledger).unwrap_err().rule, "forward");
    }

    #[test]
    fn a_version_below_the_one_that_an_open_told_is_found() {
        let mut told = opened("y", life(1), Outcome::Created);
        if let Ok(Answer::Opened { session, .. }) = &mut told {
            let record = Arc::make_mut(&mut session.record);
            record.version = record.version.next();
        }
        let open = asked("y", Wish::Open, "r", &[(0, 10, told)]);
        let old = opened("y", life(1), Outcome::Created);
        let repeated = asked("y", Wish::Open, "r", &[(11, 20, old)]);
        let mut ledger = Ledger { asked: vec![open, repeated], ..Ledger::default() };
        assert_eq!(check(&ledger), Ok(()), "a repeated answer is old");
        ledger.asked.push(asked("y", Wish::Get(false), "q", &[(11, 20, at_change(0))]));
        assert_eq!(check(&ledger).unwrap_err().rule, "forward");
    }
}
