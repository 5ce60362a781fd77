//! What operators see of a manager; where its sessions are is decided in [`crate::sessions::placements`].

use crate::log::env::Env;
use crate::manager::inputs::Manager;
use crate::partition::leading::Phase;
use crate::partition::state::Partition;
use rota_messages::PartStats;
use rota_messages::placements::{Placements, PlacementsAsk};

impl Manager {
    /// Where sessions of a partition are; `None` when this manager does not serve it. What it says was
    /// committed, and is not confirmed with the copies.
    pub fn placements(&self, ask: &PlacementsAsk) -> Option<Placements> {
        self.parts.get(&ask.part)?.placements(self, &ask.which)
    }
}

/// What an operator sees of a partition.
pub(crate) fn of_part(env: &Env, part: &Partition) -> PartStats {
    let view = env.view.as_ref();
    let member =
        view.and_then(|it| it.parts.get(&part.number)).is_some_and(|it| it.has(env.me.number));
    let last = part.replica.last;
    let behind = |acked: rota_model::LogPos| last.seq.0.saturating_sub(acked.seq.0);
    let lag = part.leading.iter().flat_map(|it| it.lead.copies.iter());
    let role = match part.leading.as_ref().map(|it| &it.lead.phase) {
        Some(Phase::Scan(_)) => "scanning",
        Some(Phase::Recover(_)) => "recovering",
        Some(Phase::Sync(_)) => "syncing",
        Some(Phase::Serving) => "serving",
        Some(Phase::Wedged { .. }) => "wedged",
        None if part.learning.is_some() => "learning",
        None if member => "copy",
        None if !part.replica.docs.is_empty() => "former copy",
        None => "idle",
    };
    PartStats {
        part: part.number,
        role,
        last,
        committed: part.replica.committed,
        sessions: part.replica.counts.census.by_state().clone(),
        documents: part.replica.docs.len() as u64,
        lag: lag.map(|(number, copy)| (*number, behind(copy.flow.acked))).collect(),
        digest: part.replica.digest,
        marks: part.replica.marks.iter().copied().collect(),
        on_nodes: part.sessions_on_nodes(),
    }
}
