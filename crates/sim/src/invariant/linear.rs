//! Per-id linearizability of what clients saw.
//!
//! The lives of one id follow each other, and each goes one way: absent, opening, live, ended. So
//! the states of an id form a line, and a linearization is nothing but the moments at which it
//! steps from one state to the next. The usual search over orders of operations therefore needs no
//! backtracking: place every step as early as the facts allow, then look whether every
//! observation still finds a moment inside its own interval. That is complete.
//!
//! Earliest moments are known from the observer's book: a life is not before its first record, not
//! live before its program ran, and a life that was seen live does not end before a close was sent,
//! its node was drained, or the program ended without a manager's asking. Requests of unknown outcome stay open: they
//! only make steps possible, never necessary.

use super::{Verdict, Violation};
use crate::ledger::{Asked, EndCause, Instance, Ledger, Wish};
use rota_model::{RefusalKind, SessionKey, SessionRecord, SessionState, Stamp};
use rota_protocol::Answer;
use std::collections::{BTreeMap, BTreeSet};

/// What one observation says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Nothing of that id, not even a tombstone.
    Absent,
    /// That life was being opened.
    Opening(Stamp),
    /// That life was being opened or live.
    Begun(Stamp),
    /// That life was live.
    Live(Stamp),
    /// That life was being closed, or had ended.
    Ended(Stamp),
}

/// One observation of an id: at some moment of the interval it was so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observation {
    /// When it was asked.
    pub sent_us: u64,
    /// When it was answered.
    pub came_us: u64,
    /// What was seen.
    pub seen: Seen,
}

/// What bounds the steps of one life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// Not opening before.
    pub opening_us: u64,
    /// Not live before.
    pub live_us: u64,
    /// Not ended before, if it was seen live; `None`: nothing could end it.
    pub ended_us: Option<u64>,
}

/// Checks one id.
///
/// # Errors
/// An observation for which there is no moment.
pub fn check_id(
    lives: &BTreeMap<Stamp, Bounds>,
    observations: &[Observation],
) -> Result<(), String> {
    let place = |life: Stamp| lives.keys().take_while(|it| **it < life).count() * 3;
    let range = |seen: Seen| match seen {
        Seen::Absent => (0, 0),
        Seen::Opening(life) => (place(life) + 1, place(life) + 1),
        Seen::Begun(life) => (place(life) + 1, place(life) + 2),
        Seen::Live(life) => (place(life) + 2, place(life) + 2),
        Seen::Ended(life) => (place(life) + 3, place(life) + 3),
    };
    let steps = lives.len() * 3 + 1;
    let mut earliest = vec![(0, String::from("the start")); steps + 1];
    for (index, (life, bounds)) in lives.iter().enumerate() {
        let was_live = observations.iter().any(|it| it.seen == Seen::Live(*life));
        earliest[index * 3 + 1] = (bounds.opening_us, format!("first record of life {life}"));
        if was_live {
            earliest[index * 3 + 2] = (bounds.live_us, format!("first run of life {life}"));
            let ended_us = bounds.ended_us.unwrap_or(u64::MAX);
            earliest[index * 3 + 3] = (ended_us, format!("first cause to end life {life}"));
        }
    }
    for it in observations {
        let after = &mut earliest[range(it.seen).1 + 1];
        if after.0 < it.sent_us {
            *after = (it.sent_us, format!("{it:?}"));
        }
    }
    for step in 1..earliest.len() {
        if earliest[step].0 < earliest[step - 1].0 {
            earliest[step] = earliest[step - 1].clone();
        }
    }
    for it in observations {
        let (at_us, why) = &earliest[range(it.seen).0];
        if *at_us > it.came_us {
            return Err(format!("no moment fits {it:?}: not before {at_us} us, because of {why}"));
        }
    }
    Ok(())
}

/// Checks every id of a run. `tombstone_us` is how long an ended life is remembered at least.
///
/// # Errors
/// An id whose history has no linearization.
pub fn check(ledger: &Ledger, tombstone_us: u64) -> Verdict {
    for (key, mut observations) in observations(ledger) {
        let lives = bounds(ledger, &key, &observations);
        let purged_us = lives.values().map(|it| it.opening_us.saturating_add(tombstone_us)).min();
        observations.retain(|it| {
            it.seen != Seen::Absent || purged_us.is_none_or(|purged_us| it.came_us < purged_us)
        });
        if let Err(text) = check_id(&lives, &observations) {
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
    match record.state {
        SessionState::Pending | SessionState::Starting => Seen::Opening(record.life),
        SessionState::Ready => Seen::Live(record.life),
        SessionState::Closing
        | SessionState::Closed
        | SessionState::Failed
        | SessionState::Lost => Seen::Ended(record.life),
    }
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
            Ok(Answer::Listed(_) | Answer::Pulled(_) | Answer::Reported | Answer::Documents(_)) => {
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
    let life = |it: &Observation| match it.seen {
        Seen::Absent => None,
        Seen::Opening(life) | Seen::Begun(life) | Seen::Live(life) | Seen::Ended(life) => {
            Some(life)
        }
    };
    let observed: BTreeSet<Stamp> = observations.iter().filter_map(life).collect();
    observed.into_iter().map(|life| (life, bounds_of(ledger, key, life))).collect()
}

fn bounds_of(ledger: &Ledger, key: &SessionKey, life: Stamp) -> Bounds {
    let facts = ledger.lives.get(key).and_then(|it| it.get(&life));
    let Some(facts) = facts else {
        // Nobody ever wrote that life: no moment fits it.
        return Bounds { opening_us: u64::MAX, live_us: u64::MAX, ended_us: Some(u64::MAX) };
    };
    let ran = |it: &&Instance| it.key == *key && facts.tokens.contains(&it.token);
    let live_us = ledger.instances.iter().filter(ran).map(|it| it.from_us).min();
    let by_itself = ledger.instances.iter().filter(ran).filter_map(|it| match it.to? {
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
    let closes = ledger.asked.iter().filter(|it| match it.wish {
        Wish::Close(named) => it.key == *key && named.is_none_or(|named| named == life),
        Wish::Open | Wish::Get(_) => false,
    });
    let closes = closes.filter_map(|it| it.attempts.first().map(|it| it.sent_us));
    Bounds {
        opening_us: facts.written_us,
        live_us: live_us.unwrap_or(u64::MAX),
        ended_us: by_itself.chain(closes).chain(drains).min(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{asked, instance, key, life, opened, token};
    use crate::life::LifeFacts;
    use rota_model::Outcome;

    fn seen(sent_us: u64, came_us: u64, seen: Seen) -> Observation {
        Observation { sent_us, came_us, seen }
    }

    fn lives(ended_us: Option<u64>) -> BTreeMap<Stamp, Bounds> {
        BTreeMap::from([(life(1), Bounds { opening_us: 10, live_us: 20, ended_us })])
    }

    #[test]
    fn a_read_that_misses_an_acknowledged_open_has_no_moment() {
        let history = [seen(0, 30, Seen::Live(life(1))), seen(40, 50, Seen::Absent)];
        let error = check_id(&lives(None), &history).unwrap_err();
        assert!(error.contains("no moment fits"), "{error}");
    }

    #[test]
    fn a_session_that_ends_without_a_cause_has_no_moment() {
        let history = [seen(0, 30, Seen::Live(life(1))), seen(40, 50, Seen::Ended(life(1)))];
        assert!(check_id(&lives(None), &history).is_err());
        assert!(check_id(&lives(Some(60)), &history).is_err());
        assert_eq!(check_id(&lives(Some(45)), &history), Ok(()));
    }

    #[test]
    fn a_read_that_shows_a_closed_life_live_again_has_no_moment() {
        let history = [
            seen(0, 30, Seen::Live(life(1))),
            seen(40, 50, Seen::Ended(life(1))),
            seen(60, 70, Seen::Live(life(1))),
        ];
        assert!(check_id(&lives(Some(35)), &history).is_err());
    }

    #[test]
    fn overlapping_operations_may_take_effect_in_either_order() {
        let history = [
            seen(0, 100, Seen::Live(life(1))),
            seen(30, 90, Seen::Ended(life(1))),
            seen(20, 80, Seen::Live(life(1))),
            seen(5, 95, Seen::Absent),
        ];
        assert_eq!(check_id(&lives(Some(30)), &history), Ok(()));
    }

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
