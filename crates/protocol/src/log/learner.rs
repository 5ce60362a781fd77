//! A snapshot under way: as the owner sees its receiver, and as the receiver sees itself.

use crate::log::progress::{Flow, Pieces};
use crate::settings::sizes::Sizes;
use rota_messages::{DocKey, Message};
use rota_model::{LogPos, MemberId};
use std::collections::{BTreeMap, VecDeque};

/// A wedge that gets no further is given up after this time, if nothing was asked yet.
pub(crate) const WEDGE_MS: u64 = 1_000;

/// A learner, as the owner sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Learner {
    pub member: MemberId,
    pub learn: u64,
    pub start: LogPos,
    pub flow: Flow,
    /// It has the first chunk: before that, entries mean nothing to it.
    pub begun: bool,
    /// Where the next chunk begins; nothing is left when `all_sent`.
    pub cursor: Option<DocKey>,
    pub all_sent: bool,
    pub next_chunk: u64,
    /// Chunks that are not acknowledged, oldest first.
    pub in_flight: VecDeque<Message>,
    pub progress: Pieces,
}

impl Learner {
    /// Little enough is missing, in entries and in bytes, to wait for it with a wedge.
    pub fn is_close(&self, last: LogPos, sizes: &Sizes) -> bool {
        self.all_sent
            && self.in_flight.is_empty()
            && self.flow.has_room(sizes)
            && self.flow.acked.pe == last.pe
            && self.flow.acked.seq.0 + sizes.close_entries >= last.seq.0
    }

    pub(crate) fn is_complete(&self, last: LogPos) -> bool {
        self.all_sent && self.in_flight.is_empty() && self.flow.acked == last
    }
}

/// A learner's side of a snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Learning {
    pub learn: u64,
    /// The chunk that comes next.
    pub next_chunk: u64,
    /// Last position at which an entry wrote each document since the start.
    pub touched: BTreeMap<DocKey, LogPos>,
}
