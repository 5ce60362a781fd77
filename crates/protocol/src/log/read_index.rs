//! Reads that wait until the copies have said that nobody else owns the partition.

use crate::log::origin::Origin;
use crate::node_lease::state::Renewal;
use rota_model::{LogPos, ManagerNumber};
use std::collections::{BTreeSet, VecDeque};

/// Reads that wait for a confirm round.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Reads {
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
    /// Renewals of nodes that wait for the next round, and for the one under way.
    pub renewals_next: Vec<Renewal>,
    pub renewals_now: Vec<Renewal>,
    /// Long polls that wait for a change.
    pub pulls: VecDeque<Origin>,
}

impl Reads {
    /// Lets go of everything that waits for somebody who is gone, and of renewals that nobody waits
    /// for any more.
    pub fn forget(&mut self, now_ms: u64, is_there: impl Fn(&Origin) -> bool) -> Vec<Renewal> {
        self.next.retain(&is_there);
        self.now.retain(&is_there);
        self.pulls.retain(&is_there);
        let late = |it: &mut Renewal| it.until_ms <= now_ms;
        let mut late_ones: Vec<Renewal> = self.renewals_next.extract_if(.., late).collect();
        late_ones.extend(self.renewals_now.extract_if(.., late));
        late_ones
    }

    /// Until when each renewal waits.
    pub fn renewal_deadlines(&self) -> impl Iterator<Item = u64> {
        self.renewals_next.iter().chain(&self.renewals_now).map(|it| it.until_ms)
    }
}
