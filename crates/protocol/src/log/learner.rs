//! A snapshot under way: as the owner sees its receiver, and as the receiver sees itself.

use crate::log::env::Env;
use crate::log::progress::{Flow, Pieces};
use crate::log::state::Log;
use crate::settings::sizes::Sizes;
use rota_messages::{Chunk, Doc, DocKey, Entry, Message};
use rota_model::{LogPos, MemberId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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

impl Learning {
    /// An entry arrives while the snapshot is under way: what it writes is newer than any chunk.
    pub(crate) fn note(&mut self, entry: &Entry) {
        let keys = entry.writes.iter().map(|write| &write.key);
        self.touched.extend(keys.map(|key| (key.clone(), entry.at)));
    }
}

impl Log {
    /// A snapshot begins. Gives what was written since, which is newer than its chunks.
    pub(crate) fn begin_learning(&mut self, start: LogPos) -> BTreeMap<DocKey, LogPos> {
        let replica = &mut self.replica;
        let mut touched = BTreeMap::new();
        if replica.last.pe == start.pe && replica.last >= start {
            // The same owner's log is here already: positions never go back within an epoch, since
            // acknowledgements of it may be on their way.
            for entry in replica.window.entries.iter().chain(&replica.tail.entries) {
                touched.extend(entry.writes.iter().map(|write| (write.key.clone(), entry.at)));
            }
        } else {
            replica.restart_at(start);
        }
        replica.whole = false;
        replica.found_from = None;
        touched
    }

    pub(crate) fn take_chunk(&mut self, env: &mut Env, learning: &Learning, chunk: &Chunk) {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let newer = |key: &DocKey| learning.touched.get(key).is_some_and(|at| *at > chunk.upto);
        let from = chunk.after.as_ref().map_or(Unbounded, Excluded);
        let to = chunk.through.as_ref().map_or(Unbounded, Included);
        let keep: BTreeMap<&DocKey, &Arc<Doc>> = chunk.docs.iter().map(|(k, d)| (k, d)).collect();
        let old = self.replica.docs.range::<DocKey, _>((from, to)).map(|(key, _)| key);
        let gone: Vec<DocKey> =
            old.filter(|key| !keep.contains_key(key) && !newer(key)).cloned().collect();
        for key in gone {
            self.replica.set(&key, None);
            env.persist_doc(key, None);
        }
        for (key, doc) in &chunk.docs {
            if !newer(key) && self.replica.docs.get(key) != Some(doc) {
                self.replica.set(key, Some(doc.clone()));
                env.persist_doc(key.clone(), Some(doc.clone()));
            }
        }
        if chunk.through.is_none() {
            self.replica.whole = true;
        }
    }
}
