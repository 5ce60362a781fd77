//! What clients are shown of one life never goes back: no confirmed answer tells an older state of
//! its machine than an answer that came before it was asked for.

use super::{Verdict, Violation};
use crate::ledger::Ledger;
use rota_model::{Answer, SessionKey, SessionRecord, Stamp};
use std::collections::BTreeMap;

/// One confirmed answer.
#[derive(Clone, Copy)]
struct Sight<'a> {
    sent_us: u64,
    came_us: u64,
    record: &'a SessionRecord,
}

/// Checks a run.
///
/// # Errors
/// An answer that is older than one that was known when it was asked for.
pub fn check(ledger: &Ledger) -> Verdict {
    for sights in by_life(ledger).into_values() {
        let mut by_end: Vec<&Sight<'_>> = sights.iter().collect();
        by_end.sort_by_key(|it| it.came_us);
        let mut ended = by_end.into_iter().peekable();
        let mut newest: Option<&Sight<'_>> = None;
        let mut by_start = sights.clone();
        by_start.sort_by_key(|it| it.sent_us);
        for sight in &by_start {
            while let Some(before) = ended.next_if(|it| it.came_us < sight.sent_us) {
                if newest.is_none_or(|it| it.record.machine_change < before.record.machine_change) {
                    newest = Some(before);
                }
            }
            let Some(before) = newest else { continue };
            if sight.record.machine_change < before.record.machine_change {
                return Err(gone_back(before, sight));
            }
        }
    }
    Ok(())
}

fn gone_back(before: &Sight<'_>, after: &Sight<'_>) -> Violation {
    let text = format!(
        "life {} of {}: asked at {} us, machine change {} was shown; an answer of {} us told change {}",
        after.record.life,
        after.record.key,
        after.sent_us,
        after.record.machine_change,
        before.came_us,
        before.record.machine_change
    );
    Violation::new("forward", text)
}

/// Confirmed answers by life. A repeated request repeats an old answer, so opens are left out.
fn by_life(ledger: &Ledger) -> BTreeMap<(&SessionKey, Stamp), Vec<Sight<'_>>> {
    let mut lives: BTreeMap<_, Vec<Sight<'_>>> = BTreeMap::new();
    for attempt in ledger.asked.iter().flat_map(|it| &it.attempts) {
        if let Some((came_us, Ok(Answer::Got { session, stale: false }))) = &attempt.answer {
            let (sent_us, came_us, record) = (attempt.sent_us, *came_us, &*session.record);
            let sight = Sight { sent_us, came_us, record };
            lives.entry((&record.key, record.life)).or_default().push(sight);
        }
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, got, life};
    use crate::ledger::Wish;
    use rota_model::{OpResult, SessionState};
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
}
