//! I4: who knows a partition's `pe` never acknowledges, confirms or reports below it.

use super::{Verdict, Violation};
use rota_model::{Epoch, ManagerNumber};
use rota_ring::View;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What each run of a manager was told.
#[derive(Clone, Debug, Default)]
pub struct AckFloor {
    known: BTreeMap<(ManagerNumber, u64, ManagerNumber), Epoch>,
    /// Views that a run was told since it last gave its effects. What it gives next may have been
    /// decided before: to the rest of the world that is the same as a slow message.
    told: Vec<((ManagerNumber, u64), Arc<View>)>,
    /// The newest index and epoch that each run was shown.
    newest: BTreeMap<(ManagerNumber, u64), (u64, Epoch)>,
}

impl AckFloor {
    /// A run of a manager was shown what the config store has. Whether that is news to it.
    pub fn on_shown(&mut self, run: (ManagerNumber, u64), index: u64, view: &Arc<View>) -> bool {
        // What went back is none, though it comes later, or under an index that was seen in between.
        let newest = self.newest.entry(run).or_default();
        if index >= newest.0 && view.epoch < newest.1 {
            return false;
        }
        *newest = (index.max(newest.0), view.epoch.max(newest.1));
        self.told.push((run, view.clone()));
        true
    }

    /// A run gave all effects of what it was told so far.
    pub fn on_flushed(&mut self, run: (ManagerNumber, u64)) {
        let told: Vec<_> = self.told.extract_if(.., |(to, _)| *to == run).collect();
        for (_, view) in told {
            self.on_view(run.0, run.1, &view);
        }
    }

    /// A run of a manager was given a View.
    fn on_view(&mut self, who: ManagerNumber, run: u64, view: &View) {
        for (part, entry) in &view.parts {
            let known = self.known.entry((who, run, *part)).or_default();
            *known = (*known).max(entry.pe);
        }
    }

    /// It acknowledges something under a `pe`.
    ///
    /// # Errors
    /// It knows a higher one.
    pub fn check(
        &self,
        who: ManagerNumber,
        run: u64,
        part: ManagerNumber,
        pe: Epoch,
        what: &str,
    ) -> Verdict {
        let known = self.known.get(&(who, run, part)).copied().unwrap_or_default();
        if pe >= known {
            return Ok(());
        }
        let text =
            format!("M{who} knows pe {known} of partition {part} and sends {what} for pe {pe}");
        Err(Violation::new("I4", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;

    #[test]
    fn an_acknowledgement_below_a_known_epoch_is_found() {
        let part = ManagerNumber(10);
        let mut floor = AckFloor::default();
        let mut newer = view();
        newer.parts.get_mut(&part).unwrap().pe = Epoch(3);
        floor.on_view(part, 1, &newer);
        floor.on_view(part, 1, &view());
        assert_eq!(floor.check(part, 1, part, Epoch(3), "ack"), Ok(()));
        assert_eq!(floor.check(part, 1, part, Epoch(2), "ack").unwrap_err().rule, "I4");
        assert_eq!(floor.check(part, 2, part, Epoch(2), "ack"), Ok(()));
    }
}
