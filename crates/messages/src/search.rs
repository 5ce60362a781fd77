//! Searches of the documents of a partition, and what they find.

use crate::api::Reader;
use rota_model::items::SESSION_CLASS;
use rota_model::{Namespace, SessionView, SlotId, Stamp};
use rota_search::{Page, Position, Query};
use std::sync::Arc;

/// A page of what a search finds in the partition that holds `slot`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SearchOp {
    /// Who reads; `None`: an operator, or a manager, who may read all.
    pub reader: Option<Arc<Reader>>,
    /// A slot of the partition.
    pub slot: SlotId,
    /// What is searched.
    pub query: Query,
    /// Behind this place; `None`: from the first result on.
    pub after: Option<Position>,
    /// What ages are reckoned from: one moment for all partitions.
    pub now: Stamp,
    /// Most results.
    pub limit: u32,
    /// Of sessions: they themselves come with the page.
    pub with_sessions: bool,
}

impl SearchOp {
    /// The namespace that its callers must not search when that is switched off. Who searches sessions has no account:
    /// there it is that of the search, as a list's is.
    pub(crate) fn clients_space(&self) -> Option<&Namespace> {
        match &self.reader {
            Some(reader) => Some(&reader.space),
            None => self.query.space.as_ref().filter(|_| self.query.class == SESSION_CLASS),
        }
    }
}

/// The answer to a [`SearchOp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Found {
    /// The slots of the partition, from the first to the last of each piece: two where it goes around the end of the ring.
    pub slots: Vec<(SlotId, SlotId)>,
    /// What was found.
    pub page: Page,
    /// Of a search for sessions: they themselves, in the order of the page.
    pub sessions: Vec<SessionView>,
    /// It is of a special search. A manager of an earlier version does not know that it was asked for one.
    pub is_special: bool,
}
