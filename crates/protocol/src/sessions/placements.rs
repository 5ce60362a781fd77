//! Where the sessions of a partition are, for operators who compare that with what nodes run.

use crate::log::env::Env;
use crate::log::lead::Lead;
use crate::log::state::Log;
use crate::sessions::read::key_of;
use rota_messages::placements::{Placed, Placements, Which};
use rota_messages::{Doc, DocKey};
use std::ops::Bound;

/// Most documents that one page looks at: about a millisecond.
const LOOKED_AT_MAX: usize = 10_000;

/// Where the sessions of a partition are that this manager serves.
pub(crate) fn placements(env: &Env, log: &Log, lead: &Lead, which: &Which) -> Option<Placements> {
    if !lead.reads() {
        return None;
    }
    let (mut sessions, mut next) = (Vec::new(), None);
    match which {
        Which::Named(keys) => {
            for session in keys {
                let key = key_of(env, session);
                sessions.extend(log.replica.docs.get(&key).and_then(|doc| placed(doc)));
            }
        }
        Which::After { after, limit } => {
            let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let docs = log.replica.docs.range::<DocKey, _>((from, Bound::Unbounded));
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
    Some(Placements { pe: lead.pe, sessions, next })
}

fn placed(doc: &Doc) -> Option<Placed> {
    let record = doc.session()?;
    let (key, state, placement) = (record.key.clone(), record.state, record.placement.clone());
    Some(Placed { key, state, placement })
}
