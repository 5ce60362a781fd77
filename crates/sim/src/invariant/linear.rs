//! Per-id linearizability of what clients saw ([`crate::history`]), by the observer's book.
//!
//! Earliest moments are known from there: a life is not before its first record, not
//! live before its program ran, and a life that was seen live does not end before a close was sent,
//! its node was drained, or the program ended without a manager's asking.

use super::{Verdict, Violation};
use crate::history::{Bounds, History, Observation, Seen};
use crate::ledger::{Asked, EndCause, Instance, Ledger, Wish};
use rota_model::{RefusalKind, SessionKey, SessionRecord, Stamp};
use rota_protocol::Answer;
use std::collections::{BTreeMap, BTreeSet};

/// Checks every id of a run. `tombstone_us` is how long an ended life is remembered at least.
///
/// # Errors
/// An id whose history has no linearization.
pub fn check(ledger: &Ledger, tombstone_us: u64) -> Verdict {
    for (key, observations) in observations(ledger) {
        let lives = bounds(ledger, &key, &observations);
        if let Err(text) = (History { observations, lives }).check(tombstone_us) {
            return Err(Violation::new("linear", format!("{key}: {text}")));
        }
    }
    Ok(())
}

fn observations(ledger: &Ledger) -> BTreeMap<SessionKey, Vec<Observation>> {
    let mut all: BTreeMap<SessionKey, Vec<Observation>> = BTreeMap::new();
    for asked in &ledger.asked {
        all.entry(asked.key.clone()).or_default().extend(of_asked(asked));
    }
    for shown in &ledger.listed {
        let seen = match of_record(&shown.record) {
            // READY rides on the batch after the answer, and lists show committed writes only.
            Seen::Opening(life) => Seen::Begun(life),
            seen @ (Seen::Absent | Seen::Begun(_) | Seen::Live(_) | Seen::Ended(_)) => seen,
        };
        let (sent_us, came_us) = (shown.sent_us, shown.came_us);
        let list = all.entry(shown.record.key.clone()).or_default();
        list.push(Observation { sent_us, came_us, seen });
    }
    all
}

fn of_record(record: &SessionRecord) -> Seen {
    Seen::of(record.life, record.state)
}

/// The observations in one request: the first answer of an open or close speaks for all tries up
/// to it, later ones only repeat it; every answer of a get speaks for its own try.
fn of_asked(asked: &Asked) -> Vec<Observation> {
    let mut list = Vec::new();
    let Some(first_us) = asked.attempts.first().map(|it| it.sent_us) else { return list };
    // An answer that need not be confirmed may be as old as it likes.
    if asked.wish == Wish::Get(true) {
        return list;
    }
    for (attempt, came_us, result) in asked.answers() {
        let (sent_us, seen, last) = match result {
            Ok(Answer::Opened { session, .. }) => (first_us, Seen::Live(session.record.life), true),
            Ok(Answer::Closed { session, .. }) => {
                (first_us, Seen::Ended(session.record.life), true)
            }
            Ok(Answer::Got { stale: true, .. }) => continue,
            Ok(Answer::Got { session, .. }) => (attempt.sent_us, of_record(&session.record), false),
            Ok(
                Answer::KeptAlive { .. }
                | Answer::Listed(_)
                | Answer::Pulled(_)
                | Answer::Reported
                | Answer::Mended(_)
                | Answer::Numbers(_)
                | Answer::Tasks(_)
                | Answer::Lives(_)
                | Answer::Found(_)
                | Answer::Documents(_),
            ) => {
                continue;
            }
            Err(refusal) if refusal.kind == RefusalKind::NotFound => {
                (attempt.sent_us, Seen::Absent, false)
            }
            Err(_) => continue,
        };
        list.push(Observation { sent_us, came_us, seen });
        if last {
            break;
        }
    }
    list
}

fn bounds(
    ledger: &Ledger,
    key: &SessionKey,
    observations: &[Observation],
) -> BTreeMap<Stamp, Bounds> {
    let observed: BTreeSet<Stamp> = observations.iter().filter_map(|it| it.seen.life()).collect();
    observed.into_iter().map(|life| (life, bounds_of(ledger, key, life))).collect()
}

fn bounds_of(ledger: &Ledger, key: &SessionKey, life: Stamp) -> Bounds {
    let facts = ledger.lives.get(key).and_then(|it| it.get(&life));
    let Some(facts) = facts else {
        // Nobody ever wrote that life: no moment fits it.
        let (never, ended_us) = (u64::MAX, Some(u64::MAX));
        return Bounds { opening_us: never, live_us: never, ended_us, unplaced: false };
    };
    let ran = |it: &&Instance| it.key == *key && facts.tokens.contains(&it.token);
    let live_us = ledger.instances.iter().filter(ran).map(|it| it.from_us).min();
    let by_itself =
        ledger.instances.iter().filter(ran).filter_map(|instance| match instance.to? {
            (_, EndCause::Destroyed) => None,
            (
                at_us,
                EndCause::Own
                | EndCause::StartTimeout
                | EndCause::Lease
                | EndCause::BootDied
                | EndCause::Drained,
            ) => Some(at_us),
        });
    let drains = ledger.instances.iter().filter(ran).filter_map(|it| ledger.drained_us(it));
    let closes = ledger.asked.iter().filter(|asked| match asked.wish {
        Wish::Close(named) => asked.key == *key && named.is_none_or(|named| named == life),
        Wish::Open | Wish::Get(_) => false,
    });
    let closes = closes.filter_map(|it| it.attempts.first().map(|it| it.sent_us));
    Bounds {
        opening_us: facts.written_us,
        live_us: live_us.unwrap_or(u64::MAX),
        ended_us: by_itself.chain(closes).chain(drains).chain(facts.expired_us).min(),
        unplaced: facts.unplaced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, instance, key, life, opened, token};
    use crate::life::LifeFacts;
    use rota_model::Outcome;

    #[test]
    fn a_life_that_nobody_wrote_is_found() {
        let request =
            asked("y", Wish::Open, "r", &[(0, 30, opened("y", life(1), Outcome::Created))]);
        let mut ledger = Ledger { asked: vec![request], ..Ledger::default() };
        assert_eq!(check(&ledger, 1_000_000).unwrap_err().rule, "linear");
        let mut facts = LifeFacts::new(10);
        facts.tokens.insert(token(1, 1));
        ledger.lives.entry(key("y")).or_default().insert(life(1), facts);
        ledger.instances.push(instance("y", "n0", token(1, 1), 20, None));
        assert_eq!(check(&ledger, 1_000_000), Ok(()));
    }
}
