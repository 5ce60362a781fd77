//! I9: after a restart a manager says nothing as a copy or an owner before the config store gave it
//! a new incarnation, with which it is out of every ISR that has another member. A claim that an
//! earlier run sent and never used may serve: what counts is that no two runs speak as one
//! incarnation.

use super::{Verdict, Violation};
use rota_model::{Epoch, Incarnation, ManagerNumber};
use std::collections::BTreeMap;

/// Incarnations that were taken in the config store, with the View's epoch, and who spoke as them.
#[derive(Clone, Debug, Default)]
pub struct FreshRun {
    taken: BTreeMap<(ManagerNumber, Incarnation), Epoch>,
    spoke: BTreeMap<(ManagerNumber, Incarnation), u64>,
}

impl FreshRun {
    /// A claim was written.
    pub fn on_claimed(&mut self, who: ManagerNumber, taken: Incarnation, epoch: Epoch) {
        self.taken.insert((who, taken), epoch);
    }

    /// A run speaks as a copy or an owner, under an incarnation and with a View of `epoch`.
    ///
    /// # Errors
    /// Nobody took that incarnation, the View is from before it was taken, or another run spoke
    /// under it.
    pub fn check(
        &mut self,
        who: ManagerNumber,
        run: u64,
        incarnation: Incarnation,
        epoch: Epoch,
        what: &str,
    ) -> Verdict {
        let since = self.taken.get(&(who, incarnation)).copied();
        let speaker = *self.spoke.entry((who, incarnation)).or_insert(run);
        if since.is_some_and(|since| since <= epoch) && speaker == run {
            return Ok(());
        }
        let text = format!(
            "M{who} (run {run}) sends {what} as incarnation {incarnation} in epoch {epoch}; it was \
             taken in epoch {since:?} and first used by run {speaker}"
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
        let (one, two) = (Incarnation(1), Incarnation(2));
        runs.on_claimed(who, one, Epoch(2));
        assert_eq!(runs.check(who, 1, one, Epoch(2), "ack"), Ok(()));
        assert_eq!(runs.check(who, 2, one, Epoch(2), "ack").unwrap_err().rule, "I9");
        runs.on_claimed(who, two, Epoch(5));
        assert!(runs.check(who, 2, two, Epoch(4), "ack").is_err());
        assert_eq!(runs.check(who, 2, two, Epoch(5), "ack"), Ok(()));
        assert!(runs.check(who, 2, Incarnation(3), Epoch(9), "ack").is_err());
    }

    #[test]
    fn a_claim_of_an_earlier_run_that_never_used_it_may_serve() {
        let who = ManagerNumber(10);
        let mut runs = FreshRun::default();
        runs.on_claimed(who, Incarnation(1), Epoch(2));
        assert_eq!(runs.check(who, 2, Incarnation(1), Epoch(2), "ack"), Ok(()));
        assert!(runs.check(who, 1, Incarnation(1), Epoch(2), "ack").is_err());
    }
}
