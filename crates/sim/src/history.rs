//! What is known of the sessions of a run, from whatever observed it: the simulator's book, or the
//! recorded calls of clients of real processes and the logs of their nodes. And whether it can be.
//!
//! The lives of one id follow each other, and each goes one way: absent, opening, live, ended. So
//! the states of an id form a line, and a linearization is nothing but the moments at which it
//! steps from one state to the next. The usual search over orders of operations therefore needs no
//! backtracking: place every step as early as the facts allow, then look whether every
//! observation still finds a moment inside its own interval. That is complete.
//!
//! Requests of unknown outcome stay open: they only make steps possible ([`Bounds`]), never necessary.
//!
//! That no two executions of an id overlap is [`crate::invariant::one_instance`]'s, for both kinds of
//! run.

use rota_model::{SessionState, Stamp};
use std::collections::BTreeMap;

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

impl Seen {
    /// That life in that state.
    pub fn of(life: Stamp, state: SessionState) -> Self {
        match state {
            SessionState::Pending | SessionState::Starting => Seen::Opening(life),
            SessionState::Ready => Seen::Live(life),
            SessionState::Closing
            | SessionState::Closed
            | SessionState::Failed
            | SessionState::Lost => Seen::Ended(life),
        }
    }

    /// The life that was seen.
    pub fn life(self) -> Option<Stamp> {
        match self {
            Seen::Absent => None,
            Seen::Opening(life) | Seen::Begun(life) | Seen::Live(life) | Seen::Ended(life) => {
                Some(life)
            }
        }
    }
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
    /// No node took it: it is forgotten soon.
    pub unplaced: bool,
}

/// Everything that is known of one id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// What was seen of it.
    pub observations: Vec<Observation>,
    /// Its lives.
    pub lives: BTreeMap<Stamp, Bounds>,
}

impl History {
    /// Checks it. `tombstone_us` is how long an ended life is remembered at least: whoever saw nothing
    /// later than that says nothing. Who saw nothing may also have come after lives that no node took,
    /// as long as none that a node took had begun.
    ///
    /// # Errors
    /// An observation for which there is no moment.
    pub fn check(&self, tombstone_us: u64) -> Result<(), String> {
        let purged_us =
            self.lives.values().map(|it| it.opening_us.saturating_add(tombstone_us)).min();
        let counts = |observation: &&Observation| {
            let is_early = purged_us.is_none_or(|purged_us| observation.came_us < purged_us);
            observation.seen != Seen::Absent || is_early
        };
        let observations: Vec<Observation> =
            self.observations.iter().filter(counts).copied().collect();
        check_id(&self.lives, &observations)
    }
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
    let forgotten = lives.values().take_while(|it| it.unplaced).count() * 3;
    let range = |seen: Seen| match seen {
        Seen::Absent => (0, forgotten),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::life;

    fn seen(sent_us: u64, came_us: u64, seen: Seen) -> Observation {
        Observation { sent_us, came_us, seen }
    }

    fn lives(ended_us: Option<u64>) -> BTreeMap<Stamp, Bounds> {
        let bounds = Bounds { opening_us: 10, live_us: 20, ended_us, unplaced: false };
        BTreeMap::from([(life(1), bounds)])
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
    fn an_id_may_be_unknown_again_once_its_tombstone_may_be_gone() {
        let observations = vec![
            seen(0, 30, Seen::Live(life(1))),
            seen(40, 50, Seen::Ended(life(1))),
            seen(500, 510, Seen::Absent),
        ];
        let history = History { observations, lives: lives(Some(35)) };
        assert!(history.check(1_000).is_err());
        assert_eq!(history.check(400), Ok(()));
    }

    #[test]
    fn a_life_that_no_node_took_may_be_unknown_soon_and_no_other_may() {
        let observations = vec![seen(20, 30, Seen::Ended(life(1))), seen(40, 50, Seen::Absent)];
        let mut history = History { observations, lives: lives(None) };
        assert!(history.check(1_000).is_err());
        history.lives.get_mut(&life(1)).unwrap().unplaced = true;
        assert_eq!(history.check(1_000), Ok(()));
        // The next life may be written while a read still sees that nothing is there.
        let next = Bounds { opening_us: 35, live_us: 60, ended_us: None, unplaced: false };
        let mut followed = history.clone();
        followed.lives.insert(life(2), next);
        assert_eq!(followed.check(1_000), Ok(()));
        // But nobody may have seen that life already.
        followed.observations.insert(0, seen(35, 39, Seen::Opening(life(2))));
        assert!(followed.check(1_000).is_err());
        // A record that remembers an earlier life stays as long as any other.
        let earlier = Bounds { opening_us: 1, live_us: 2, ended_us: Some(3), unplaced: false };
        history.lives.insert(life(0), earlier);
        history.observations.insert(0, seen(1, 5, Seen::Live(life(0))));
        assert!(history.check(1_000).is_err());
    }
}
