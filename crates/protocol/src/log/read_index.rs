//! Reads that wait until the copies have said that nobody else owns the partition; their rounds stand in
//! [`crate::partition::rounds`].

use crate::log::origin::Origin;
use rota_model::{LogPos, ManagerNumber};
use std::collections::BTreeSet;

/// Reads that wait for a confirm round.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Rounds {
    /// Wait for the next round.
    pub next: Vec<Origin>,
    /// Wait for the round that is under way.
    pub now: Vec<Origin>,
    /// That round, and who has not answered. Empty for a read of the config store.
    pub round: Option<(u64, BTreeSet<ManagerNumber>)>,
    pub sent_ms: u64,
    /// What was committed when it began.
    pub proves: LogPos,
    /// Since when the config store could not be read for answers that wait for it.
    pub unread_since_ms: Option<u64>,
    /// Not before this it is read for them again.
    pub again_ms: u64,
}

impl Rounds {
    /// Lets go of everything that waits for somebody who is gone.
    pub fn forget(&mut self, is_there: impl Fn(&Origin) -> bool) {
        self.next.retain(&is_there);
        self.now.retain(&is_there);
    }

    /// A round that stays unanswered is asked for again. Gives the peers to ask.
    pub fn repeat(&mut self, now_ms: u64, resend_ms: u64) -> Option<(u64, Vec<ManagerNumber>)> {
        let due = now_ms >= self.sent_ms + resend_ms;
        let (round, missing) = self.round.as_ref().filter(|_| due)?;
        let again = (*round, missing.iter().copied().collect());
        self.sent_ms = now_ms;
        Some(again)
    }
}
