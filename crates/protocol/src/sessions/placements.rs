//! Where the sessions of a partition are, for operators who compare that with what nodes run.

use crate::manager::inputs::Manager;
use crate::partition::leading::Phase;
use crate::partition::state::Partition;
use rota_messages::placements::{Placed, Placements, Which};
use rota_messages::{Doc, DocKey};
use std::ops::Bound;

/// Most documents that one page looks at: about a millisecond.
const LOOKED_AT_MAX: usize = 10_000;

impl Partition {
    pub(crate) fn placements(&self, manager: &Manager, which: &Which) -> Option<Placements> {
        let leading = self.leading.as_ref()?;
        let pe = match leading.lead.phase {
            Phase::Serving | Phase::Wedged { .. } => leading.lead.pe,
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
