//! One number joins or leaves at a time: a join goes on until the newcomer has arrived, is out, or has
//! come no further for long; a leave until the number holds nothing, is out, or has come no further for
//! long. Only an operator turns a join into a leave, or ends a leave early.

use super::{Verdict, Violation};
use rota_model::ManagerStatus;
use rota_ring::{RingTransition, View};

/// How a join or a leave goes on.
#[derive(Clone, Debug)]
pub struct Progress {
    /// How much there was to be done of it, and when: from its beginning on.
    steps_left: Vec<(u64, usize)>,
    join_us: u64,
    cancel_until_us: u64,
}

impl Progress {
    /// Nothing is under way. One that comes no nearer to its end for so long may be given up.
    pub fn new(join_ms: u64) -> Self {
        Self { steps_left: Vec::new(), join_us: join_ms * 1000, cancel_until_us: 0 }
    }

    /// An operator takes back what is under way: that may happen until then.
    pub fn on_cancel_ordered(&mut self, until_us: u64) {
        self.cancel_until_us = self.cancel_until_us.max(until_us);
    }

    /// Checks one write of the View.
    ///
    /// # Errors
    /// As [`check`].
    pub fn on_written(&mut self, now_us: u64, before: &View, after: &View) -> Verdict {
        // Managers count whole milliseconds.
        let is_no_nearer = |(at, left): &(u64, usize)| {
            now_us + 1_000 > at + self.join_us && *left <= before.steps_left()
        };
        let is_stale = self.steps_left.iter().any(is_no_nearer);
        if before.transition != after.transition {
            self.steps_left.clear();
        }
        if after.transition.is_some() {
            self.steps_left.push((now_us, after.steps_left()));
        }
        check(before, after, is_stale, now_us <= self.cancel_until_us)
    }
}

/// Checks one write of the View. `is_stale`: it is no nearer to its end than it was so long ago that it may be
/// given up. `is_cancelled`: an operator has taken one back a moment ago.
///
/// # Errors
/// A transition that overlaps another, or ends too early.
pub fn check(before: &View, after: &View, is_stale: bool, is_cancelled: bool) -> Verdict {
    let Some(was) = before.transition else { return Ok(()) };
    if after.transition == Some(was) {
        return Ok(());
    }
    let number = was.number();
    let status = after.managers.get(&number).map(|it| it.status);
    let turned = RingTransition::Leave { number, since: after.epoch };
    let may_be = match (was, after.transition) {
        (RingTransition::Join { .. }, None) => {
            before.has_arrived(number) || !after.is_up(number) || is_stale
        }
        (RingTransition::Join { .. }, Some(next)) => next == turned && is_cancelled,
        (RingTransition::Leave { .. }, None) => match status {
            Some(ManagerStatus::Left) => true,
            Some(ManagerStatus::Down) => after.parts.values().any(|part| part.has(number)),
            Some(ManagerStatus::Active) => is_stale || is_cancelled,
            Some(ManagerStatus::Joining | ManagerStatus::Syncing | ManagerStatus::Leaving)
            | None => false,
        },
        (RingTransition::Leave { .. }, Some(_)) => false,
    };
    if may_be {
        return Ok(());
    }
    let text = format!("{was} became {:?}, with {status:?}", after.transition);
    Err(Violation::new("one transition", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::{Incarnation, ManagerNumber};

    const LEAVER: ManagerNumber = ManagerNumber(20);

    /// Two managers that run.
    fn active() -> View {
        let mut view = view();
        for entry in view.managers.values_mut() {
            (entry.status, entry.incarnation) = (ManagerStatus::Active, Incarnation(1));
        }
        view
    }

    fn joined() -> View {
        let mut view = active();
        let since = view.epoch;
        view.parts.get_mut(&LEAVER).unwrap().owner = ManagerNumber(10);
        view.transition = Some(RingTransition::Join { number: LEAVER, since });
        view
    }

    #[test]
    fn a_join_that_ends_before_the_newcomer_has_arrived_is_found() {
        let before = joined();
        let ended = before.released().unwrap();
        assert_eq!(check(&before, &ended, false, false).unwrap_err().rule, "one transition");
        assert_eq!(check(&before, &ended, true, false), Ok(()));
        let member = before.member(LEAVER).unwrap();
        assert_eq!(check(&before, &before.without(&[member]).unwrap(), false, false), Ok(()));
    }

    #[test]
    fn a_leave_that_ends_before_everything_is_handed_on_is_found() {
        let before = active().leaving(LEAVER).unwrap();
        let stayed = before.stayed().unwrap();
        assert!(check(&before, &stayed, false, false).is_err());
        assert_eq!(check(&before, &stayed, true, false), Ok(()));
        assert_eq!(check(&before, &stayed, false, true), Ok(()));
        let mut next = stayed.leaving(ManagerNumber(10)).unwrap();
        assert!(check(&before, &next, true, true).is_err(), "another one overlaps it");
        next.transition = None;
        assert!(check(&before, &next, true, false).is_ok());
    }

    #[test]
    fn a_join_that_becomes_a_leave_without_an_order_is_found() {
        let before = joined();
        let turned = before.cancelled(None).unwrap();
        assert!(check(&before, &turned, true, false).is_err());
        assert_eq!(check(&before, &turned, false, true), Ok(()));
    }
}
