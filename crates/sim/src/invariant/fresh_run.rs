//! I9: after a restart a manager says nothing as a copy or an owner before it took a new
//! incarnation, and with that it is out of every ISR that has another member.

use super::{Verdict, Violation};
use rota_model::{Epoch, Incarnation, ManagerNumber};
use std::collections::BTreeMap;

/// Incarnations that each run of a manager took in the config store, with the View's epoch.
#[derive(Clone, Debug, Default)]
pub struct FreshRun {
    taken: BTreeMap<(ManagerNumber, u64), BTreeMap<Incarnation, Epoch>>,
}

impl FreshRun {
    /// A run's claim was written.
    pub fn on_claimed(&mut self, who: ManagerNumber, run: u64, taken: Incarnation, epoch: Epoch) {
        self.taken.entry((who, run)).or_default().insert(taken, epoch);
    }

    /// A run speaks as a copy or an owner, under an incarnation and with a View of `epoch`.
    ///
    /// # Errors
    /// It never took that incarnation, or its View is from before it did.
    pub fn check(
        &self,
        who: ManagerNumber,
        run: u64,
        incarnation: Option<Incarnation>,
        epoch: Epoch,
        what: &str,
    ) -> Verdict {
        let taken = self.taken.get(&(who, run));
        let since = match incarnation {
            Some(incarnation) => taken.and_then(|it| it.get(&incarnation)),
            None => taken.and_then(|it| it.values().min()),
        };
        if since.is_some_and(|since| *since <= epoch) {
            return Ok(());
        }
        let text = format!(
            "M{who} (run {run}) sends {what} as incarnation {incarnation:?} in epoch {epoch}; it \
             took {taken:?}"
        );
        Err(Violation::new("I9", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_an_old_incarnation_after_a_restart_is_found() {
        let who = ManagerNumber(10);
        let mut runs = FreshRun::default();
        runs.on_claimed(who, 1, Incarnation(1), Epoch(2));
        let (one, two) = (Some(Incarnation(1)), Some(Incarnation(2)));
        assert_eq!(runs.check(who, 1, one, Epoch(2), "ack"), Ok(()));
        assert_eq!(runs.check(who, 2, one, Epoch(2), "ack").unwrap_err().rule, "I9");
        runs.on_claimed(who, 2, Incarnation(2), Epoch(5));
        assert!(runs.check(who, 2, two, Epoch(4), "ack").is_err());
        assert_eq!(runs.check(who, 2, None, Epoch(5), "ack"), Ok(()));
    }
}
