//! A copy of a partition: what it appends, persists and obeys.

use crate::log::copies::Report;
use crate::log::env::Env;
use crate::log::learner::Learning;
use crate::partition::state::Partition;
use crate::sessions::scan_state::Holding;
use rota_messages::{Chunk, Doc, DocKey, Entry, Message, PartMeta};
use rota_model::{Epoch, LogPos, MemberId, Seq, Stamp};
use rota_ring::Part;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Partition {
    /// This partition's entry in the View.
    pub fn entry<'a>(&self, env: &'a Env) -> Option<&'a Part> {
        env.view().parts.get(&self.number)
    }

    /// Below this lie stamps that may have been given out before a loss ([`rota_ring::Part`]).
    pub fn stamps_above(&self, env: &Env) -> Stamp {
        self.entry(env).and_then(|it| it.stamps_above).unwrap_or_default()
    }

    pub fn meta(&self, env: &Env) -> PartMeta {
        let (pe, last, whole) = (self.replica.pe, self.replica.last, self.replica.whole);
        let found_from = self.replica.found_from;
        PartMeta { pe, last, whole, forgotten: env.stamps.forgotten, found_from }
    }

    /// Persists the meta data with this batch; the batch makes everything through `last` durable.
    pub fn persist_meta(&mut self, env: &mut Env) {
        let lsn = env.persist_part(self.number, self.meta(env));
        // Batches are numbered upwards: only the last can be this one.
        self.durable_due.pop_back_if(|(due, _)| *due == lsn);
        self.durable_due.push_back((lsn, self.replica.last));
    }

    /// Appends an entry here, and persists it.
    pub fn append(&mut self, env: &mut Env, entry: Entry) {
        if cfg!(debug_assertions) {
            let keys: BTreeSet<&DocKey> = entry.writes.iter().map(|it| &it.key).collect();
            assert_eq!(keys.len(), entry.writes.len(), "one entry writes a document twice");
        }
        for write in entry.writes.iter() {
            if write.doc.is_none()
                && let Some(doc) = self.replica.get(&write.key)
            {
                env.stamps.forgotten = env.stamps.forgotten.max(doc.version());
            }
            env.persist_doc(write.key.clone(), write.doc.clone());
            if let Some(learning) = &mut self.learning {
                learning.touched.insert(write.key.clone(), entry.at);
            }
        }
        self.replica.append(entry);
        self.persist_meta(env);
    }

    /// A View with a new epoch for this partition: never obey or acknowledge below it (I4).
    pub fn learn_epoch(&mut self, env: &mut Env, pe: Epoch) {
        if pe > self.replica.pe {
            self.replica.pe = pe;
            self.learning = None;
            self.syncing = None;
            self.persist_meta(env);
        }
    }

    /// Whether a message of `from` under `pe` may be obeyed. An older epoch is told the newer one
    /// by the header of any answer; a newer one makes this manager read the config store.
    pub fn obeys(&mut self, env: &mut Env, from: MemberId, pe: Epoch) -> bool {
        if pe < self.replica.pe {
            env.send(from.number, Message::Heartbeat { committed: Vec::new() });
            return false;
        }
        if pe > self.replica.pe {
            env.store.refresh = true;
            return false;
        }
        let owns = self.entry(env).is_some_and(|part| part.pe == pe && part.owner == from.number);
        owns && self.leading.is_none()
    }

    pub fn is_member(&self, env: &Env) -> bool {
        self.entry(env).is_some_and(|part| part.has(env.me.number))
    }

    pub fn on_prepare(
        &mut self,
        env: &mut Env,
        from: MemberId,
        pe: Epoch,
        committed: LogPos,
        after: LogPos,
        entries: Vec<Entry>,
    ) {
        if !self.obeys(env, from, pe) || !(self.is_member(env) || self.learning.is_some()) {
            return;
        }
        // Before the first Sync or snapshot under this epoch, the log here is another one.
        let begun = self.replica.last.pe == pe;
        if !begun || after > self.replica.last {
            let seq = if begun { self.replica.last.seq } else { Seq(0) };
            env.send(from.number, Message::Missing { part: self.number, pe, seq });
            return;
        }
        let before = self.replica.last;
        for entry in entries {
            if entry.at.seq.0 == self.replica.last.seq.0 + 1 && entry.at.pe == pe {
                self.append(env, entry);
            }
        }
        if self.replica.last == before && self.replica.durable.pe == pe {
            let seq = self.replica.durable.seq;
            env.send(from.number, Message::Ack { part: self.number, pe, seq });
        }
        self.commit_here(env, committed);
    }

    /// Commits what the owner announced, as far as it is here.
    pub fn commit_here(&mut self, env: &Env, committed: LogPos) {
        if committed.pe == self.replica.pe && self.replica.last.pe == committed.pe {
            self.replica.commit_to(committed, &env.config.sizes);
        }
    }

    /// A chunk of a snapshot. It may repeat; chunks are taken in order.
    pub fn on_chunk(&mut self, env: &mut Env, from: MemberId, chunk: Chunk) {
        if !self.obeys(env, from, chunk.pe) || self.is_member(env) {
            return;
        }
        // Copyings of one epoch are numbered upwards: a late chunk of an earlier one would bring
        // old contents back.
        if self.learning.as_ref().is_some_and(|it| it.learn > chunk.learn) {
            return;
        }
        let known = self.learning.as_ref().is_some_and(|it| it.learn == chunk.learn);
        if !known {
            if chunk.number != 0 {
                return;
            }
            self.begin_learning(chunk.learn, chunk.start);
        }
        let Some(learning) = &mut self.learning else {
            return;
        };
        if chunk.number == learning.next_chunk {
            learning.next_chunk += 1;
            self.take_chunk(env, &chunk);
        }
        let taken = self.learning.as_ref().map_or(0, |it| it.next_chunk);
        if let Some(newest) = taken.checked_sub(1).filter(|_| chunk.number < taken) {
            self.persist_meta(env);
            self.chunk_acks.push_back((env.disk.lsn, chunk.pe, chunk.learn, newest));
        }
    }

    fn begin_learning(&mut self, learn: u64, start: LogPos) {
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
        self.learning = Some(Learning { learn, next_chunk: 0, touched });
    }

    fn take_chunk(&mut self, env: &mut Env, chunk: &Chunk) {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let Some(learning) = &self.learning else {
            return;
        };
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

    /// A batch is on disk: what it carried is acknowledged.
    pub fn on_persisted(&mut self, env: &mut Env, lsn: u64) {
        let mut moved = false;
        while self.durable_due.front().is_some_and(|(due, _)| *due <= lsn) {
            if let Some((_, at)) = self.durable_due.pop_front() {
                self.replica.durable = at;
                moved = true;
            }
        }
        while self.chunk_acks.front().is_some_and(|(due, ..)| *due <= lsn) {
            let Some((_, pe, learn, chunk)) = self.chunk_acks.pop_front() else {
                break;
            };
            let current = self.entry(env).filter(|part| part.pe == pe).map(|part| part.owner);
            if let Some(owner) = current {
                let part = self.number;
                env.send(owner, Message::SnapshotAck { part, pe, learn, chunk });
            }
        }
        if !moved {
            return;
        }
        if self.leading.is_some() {
            self.advance_commit(env);
            return;
        }
        let (pe, durable) = (self.replica.pe, self.replica.durable);
        let Some(part) = self.entry(env) else { return };
        if durable.pe == pe && part.pe == pe && part.owner != env.me.number {
            let owner = part.owner;
            env.send(owner, Message::Ack { part: self.number, pe, seq: durable.seq });
        }
    }

    /// What an interrupted recovery wrote here says nothing of what was acknowledged.
    pub(crate) fn holding(&self) -> Holding {
        let last = self.replica.last;
        let whole = if self.replica.whole { last } else { LogPos::ZERO };
        self.replica.found_from.map_or((whole, last), |from| (from, from))
    }

    /// The View says that the partition is served, and that this copy is one: it counts as it stands.
    pub fn forget_base(&mut self, env: &mut Env) {
        if self.replica.found_from.take().is_some() {
            self.persist_meta(env);
        }
    }

    /// What a manager that looks for more is told, if there is anything.
    pub fn offer(&self) -> Option<Report> {
        let (committed, last) = self.holding();
        let is_empty = self.replica.docs.is_empty() && self.replica.latest.is_empty();
        (!is_empty).then_some(Report { last, committed, touched: Vec::new() })
    }
}
