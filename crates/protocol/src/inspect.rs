//! What operators see of a manager, and where the sessions of a partition are: they compare that with what
//! nodes run.

use crate::env::Env;
use crate::leading::Phase;
use crate::manager::Manager;
use crate::partition::Partition;
use rota_messages::placements::{Placed, Placements, PlacementsAsk, Which};
use rota_messages::{Doc, DocKey, PartStats};
use std::ops::Bound;

/// Most documents that one page looks at: about a millisecond.
const LOOKED_AT_MAX: usize = 10_000;

impl Manager {
    /// Where sessions of a partition are; `None` when this manager does not serve it. What it says was
    /// committed, and is not confirmed with the copies.
    pub fn placements(&self, ask: &PlacementsAsk) -> Option<Placements> {
        self.parts.get(&ask.part)?.placements(self, &ask.which)
    }
}

impl Partition {
    fn placements(&self, manager: &Manager, which: &Which) -> Option<Placements> {
        let leading = self.leading.as_ref()?;
        let pe = match leading.phase {
            Phase::Serving | Phase::Wedged { .. } => leading.pe,
            Phase::Scan(_) | Phase::Recover(_) | Phase::Sync(_) => return None,
        };
        let (mut sessions, mut next) = (Vec::new(), None);
        match which {
            Which::Named(keys) => {
                for session in keys {
                    let key = Self::key_of(&manager.env, session);
                    sessions.extend(self.replica.docs.get(&key).and_then(|doc| placed(doc)));
                }
            }
            Which::After { after, limit } => {
                let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let docs = self.replica.docs.range::<DocKey, _>((from, Bound::Unbounded));
                for (looked_at, (key, doc)) in docs.enumerate() {
                    if doc.brief().is_some_and(|it| !it.state.is_ended()) {
                        sessions.extend(placed(doc));
                    }
                    if sessions.len() >= *limit || looked_at + 1 >= LOOKED_AT_MAX {
                        next = Some(key.clone());
                        break;
                    }
                }
            }
        }
        Some(Placements { pe, sessions, next })
    }
}

fn placed(doc: &Doc) -> Option<Placed> {
    let record = doc.session()?;
    let (key, state, placement) = (record.key.clone(), record.state, record.placement.clone());
    Some(Placed { key, state, placement })
}

/// What an operator sees of a partition.
pub(crate) fn of_part(env: &Env, part: &Partition) -> PartStats {
    let view = env.view.as_ref();
    let member =
        view.and_then(|it| it.parts.get(&part.number)).is_some_and(|it| it.has(env.me.number));
    let last = part.replica.last;
    let behind = |acked: rota_model::LogPos| last.seq.0.saturating_sub(acked.seq.0);
    let lag = part.leading.iter().flat_map(|it| it.copies.iter());
    let role = match part.leading.as_ref().map(|it| &it.phase) {
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
        sessions: part.replica.census.by_state().clone(),
        documents: part.replica.docs.len() as u64,
        lag: lag.map(|(number, copy)| (*number, behind(copy.flow.acked))).collect(),
        digest: part.replica.digest,
        marks: part.replica.marks.iter().copied().collect(),
        on_nodes: part.sessions_on_nodes(),
    }
}
