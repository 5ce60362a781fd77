//! Where the sessions of a partition are, for operators who compare that with what nodes run.

use crate::documents::{Doc, DocKey};
use crate::leading::Phase;
use crate::manager::Manager;
use crate::partition::Partition;
use rota_model::{Epoch, ManagerNumber, Placement, SessionKey, SessionState};
use std::ops::Bound;

/// Most documents that one page looks at: about a millisecond.
const LOOKED_AT_MAX: usize = 10_000;

/// What somebody asks the owner of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementsAsk {
    /// The partition.
    pub part: ManagerNumber,
    /// Which of its sessions.
    pub which: Which,
}

/// Sessions of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// A page of those that have not ended: at most `limit` behind that document.
    After {
        /// [`Placements::next`] of the page before.
        after: Option<DocKey>,
        /// Most of them.
        limit: usize,
    },
    /// These, ended or not, as far as they are there.
    Named(Vec<SessionKey>),
}

/// A session, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Which.
    pub key: SessionKey,
    /// Its state.
    pub state: SessionState,
    /// Where it runs or ran; `None` for a life that found no node.
    pub placement: Option<Placement>,
}

/// Committed sessions of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placements {
    /// The partition's epoch under which this manager serves it.
    pub pe: Epoch,
    /// The sessions.
    pub sessions: Vec<Placed>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<DocKey>,
}

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
