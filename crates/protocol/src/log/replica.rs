//! One copy of a partition: its committed documents, the entries above them, and a window of
//! committed entries for Watch and Sync. A plain value.
//!
//! ```text
//!    window (bounded)          tail
//!  ├─────────────────────┼──────────────┤
//!  base              committed         last
//!  docs = everything through `committed`;  latest = what the tail writes over it
//! ```

use crate::contents::counts::Counts;
use crate::contents::events::{tells, told};
use crate::contents::fills;
use crate::contents::fills::{bytes, of_application};
use crate::contents::session_counts::is_under_way;
use crate::settings::sizes::Sizes;
use rota_docstore::Usage;
use rota_messages::documents::Brief;
use rota_messages::events::Event;
use rota_messages::{Doc, DocKey, Entry, Write};
use rota_model::{BootId, Epoch, LogPos, NodeId, Seq, SessionRecord, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Entries of a log that follow each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Run {
    /// Oldest first.
    pub entries: VecDeque<Entry>,
    /// About how many bytes they hold.
    pub bytes: usize,
    /// How much of that is of applications' documents; counted for the tail only.
    pub fills: u64,
}

impl Replica {
    /// What documents of applications fill here. What is not known to be committed (at a copy that is
    /// the last entry, until the next one comes) counts whole, beside what it replaces.
    pub fn filled(&self) -> u64 {
        let committed = bytes(self.counts.usages.all()).saturating_add(self.counts.beside);
        committed.saturating_add(self.tail.fills)
    }

    /// What records of sessions fill here, at most: all that is not known to be committed counts as such.
    pub fn session_bytes(&self) -> u64 {
        self.counts.sessions.saturating_add(self.tail.bytes as u64)
    }
}

/// Most digests that are kept: with the usual distance between them, those of some 4,000 entries, which
/// is longer than copies are behind each other.
const MARKS_MAX: usize = 64;

/// One copy of a partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Replica {
    /// Newest epoch known; nothing below it is obeyed or acknowledged.
    pub pe: Epoch,
    /// Committed documents. Changed by [`Replica::set`] only.
    pub docs: BTreeMap<DocKey, Arc<Doc>>,
    /// What its committed documents come to.
    pub counts: Counts,
    /// A digest of all committed documents that does not depend on their order.
    pub digest: u64,
    /// Digests as they were at some committed positions of this epoch, so that copies can be compared
    /// that are asked at different moments. Only what a member of the ISR has counts.
    pub marks: VecDeque<(LogPos, u64)>,
    /// Highest version of a document that was ever here, of those that were removed too.
    pub high_water: Stamp,
    /// The same of committed ones only: no later owner lacks these.
    pub settled_water: Stamp,
    /// The window holds every entry after this position.
    pub base: LogPos,
    /// Committed entries, oldest first.
    pub window: Run,
    /// Entries that are not known to be committed.
    pub tail: Run,
    /// What the tail wrote last to each document.
    pub latest: BTreeMap<DocKey, (LogPos, Option<Arc<Doc>>)>,
    /// Last entry here.
    pub last: LogPos,
    /// Everything through here is at the whole ISR.
    pub committed: LogPos,
    /// Everything through here is on this disk.
    pub durable: LogPos,
    /// False while a snapshot is being received.
    pub whole: bool,
    /// While the partition is found again and something of that is written: a whole copy through there
    /// was here before, zero for none.
    pub found_from: Option<LogPos>,
}

impl Replica {
    /// A document with everything that was appended.
    pub fn get(&self, key: &DocKey) -> Option<&Arc<Doc>> {
        match self.latest.get(key) {
            Some((_, doc)) => doc.as_ref(),
            None => self.docs.get(key),
        }
    }

    /// A version was committed here, or elsewhere and forgotten since.
    pub fn raise_water(&mut self, version: Stamp) {
        self.high_water = self.high_water.max(version);
        self.settled_water = self.settled_water.max(version);
    }

    /// A session's record with everything that was appended.
    pub fn session(&self, key: &DocKey) -> Option<&SessionRecord> {
        self.get(key)?.session().map(|record| &**record)
    }

    /// The same, to be kept while other things change.
    pub fn record(&self, key: &DocKey) -> Option<Arc<SessionRecord>> {
        self.get(key)?.session().cloned()
    }

    /// Sets or removes a committed document, and keeps the counts.
    pub fn set(&mut self, key: &DocKey, doc: Option<Arc<Doc>>) {
        if let Some(doc) = &doc {
            self.digest = self.digest.wrapping_add(doc.digest(key));
            self.raise_water(doc.version());
        }
        let after = doc.clone();
        let before = match doc {
            Some(doc) => self.docs.insert(key.clone(), doc),
            None => self.docs.remove(key),
        };
        let documents = [&before, &after].map(|it| it.as_deref().and_then(of_application));
        self.counts.usages.count(key.name.space(), documents[0], documents[1]);
        let [gone, come] = [&before, &after].map(|it| it.as_deref().map_or(0, fills::beside));
        self.counts.beside = self.counts.beside.saturating_sub(gone).saturating_add(come);
        let [gone, come] = [&before, &after].map(|it| it.as_deref().map_or(0, fills::of_session));
        self.counts.sessions = self.counts.sessions.saturating_sub(gone).saturating_add(come);
        let [was, is] = [&before, &after].map(|it| it.as_deref().and_then(Doc::brief));
        self.counts.session_counts.change(key, was, is);
        self.counts.memories.change(key, before.as_deref(), after.as_deref());
        self.counts.tasks.change(key, before.as_deref(), after.as_deref());
        self.counts.lives.change(key, after.as_deref());
        if let Some(doc) = before {
            self.digest = self.digest.wrapping_sub(doc.digest(key));
        }
    }

    /// Appends an entry.
    pub fn append(&mut self, entry: Entry) {
        for write in entry.writes.iter() {
            if let Some(doc) = &write.doc {
                self.high_water = self.high_water.max(doc.version());
            }
            self.latest.insert(write.key.clone(), (entry.at, write.doc.clone()));
        }
        self.last = entry.at;
        self.tail.bytes += entry.bytes();
        self.tail.fills += fills::fills(&entry);
        self.tail.entries.push_back(entry);
    }

    /// Lets go of everything that is not known to be committed.
    pub fn drop_tail(&mut self) {
        // Nobody was told of these versions.
        self.high_water = self.settled_water;
        self.tail.entries.clear();
        (self.tail.bytes, self.tail.fills) = (0, 0);
        self.latest.clear();
    }

    /// What happens when everything through `at` is committed, at that time.
    pub fn events_through(&self, at: LogPos, now: Stamp) -> Vec<Event> {
        let entries = self.tail.entries.iter().take_while(|entry| entry.at <= at);
        let mut written: BTreeMap<&DocKey, Option<&Arc<Doc>>> = BTreeMap::new();
        let mut events = Vec::new();
        for write in entries.flat_map(|entry| entry.writes.iter()) {
            if !tells(&write.key) {
                continue;
            }
            let before = written.get(&write.key).copied();
            let before = before.unwrap_or_else(|| self.docs.get(&write.key));
            let after = write.doc.as_ref();
            events.extend(told(&write.key, before.map(|it| &**it), after.map(|it| &**it), now));
            written.insert(&write.key, after);
        }
        events
    }

    /// Commits everything through `at`; gives what was committed by it.
    pub fn commit_to(&mut self, at: LogPos, sizes: &Sizes) -> Vec<Entry> {
        let mut done = Vec::new();
        while self.tail.entries.front().is_some_and(|entry| entry.at <= at) {
            let Some(entry) = self.tail.entries.pop_front() else {
                break;
            };
            self.tail.bytes = self.tail.bytes.saturating_sub(entry.bytes());
            self.tail.fills = self.tail.fills.saturating_sub(fills::fills(&entry));
            for write in entry.writes.iter() {
                self.set(&write.key, write.doc.clone());
                if self.latest.get(&write.key).is_some_and(|(pos, _)| *pos == entry.at) {
                    self.latest.remove(&write.key);
                }
            }
            self.committed = entry.at;
            self.mark(sizes);
            self.window.bytes += entry.bytes();
            self.window.entries.push_back(entry.clone());
            done.push(entry);
            while self.window.entries.len() > sizes.window_entries
                || self.window.bytes > sizes.window_bytes
            {
                let Some(oldest) = self.window.entries.pop_front() else {
                    break;
                };
                self.window.bytes -= oldest.bytes();
                self.base = oldest.at;
            }
        }
        done
    }

    fn mark(&mut self, sizes: &Sizes) {
        if self.committed.pe == self.pe && self.committed.seq.0.is_multiple_of(sizes.mark_every) {
            if self.marks.len() >= MARKS_MAX {
                self.marks.pop_front();
            }
            self.marks.push_back((self.committed, self.digest));
        }
    }

    /// Entries after `at`, committed or not; `None` when the window does not reach back.
    pub fn entries_after(&self, at: LogPos) -> Option<impl Iterator<Item = &Entry>> {
        if at < self.base {
            return None;
        }
        let from = self.window.entries.partition_point(|entry| entry.at <= at);
        let tail_from = self.tail.entries.partition_point(|entry| entry.at <= at);
        Some(self.window.entries.range(from..).chain(self.tail.entries.range(tail_from..)))
    }

    /// The entries after `at` that fit into one message, and their bytes; `None` when the window
    /// does not reach back.
    pub fn batch_after(&self, at: LogPos, sizes: &Sizes) -> Option<(Vec<Entry>, usize)> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for entry in self.entries_after(at)?.take(sizes.prepare_entries) {
            bytes += entry.bytes();
            entries.push(entry.clone());
            if bytes >= sizes.message_bytes {
                break;
            }
        }
        Some((entries, bytes))
    }

    /// Documents touched above what is committed.
    pub fn touched(&self) -> Vec<DocKey> {
        self.latest.keys().cloned().collect()
    }

    /// Contents of everything in which a copy that is exact through `committed`, and touched
    /// `touched` above that, may differ from this one. `None` when the window does not reach back.
    pub fn difference(&self, committed: LogPos, touched: &[DocKey]) -> Option<Vec<Write>> {
        let mut keys: BTreeSet<&DocKey> = touched.iter().collect();
        for entry in self.entries_after(committed)? {
            keys.extend(entry.writes.iter().map(|write| &write.key));
        }
        let write = |key: &DocKey| Write { key: key.clone(), doc: self.get(key).cloned() };
        Some(keys.into_iter().map(write).collect())
    }

    /// The documents after a key that fit into one chunk, in order, with everything that was
    /// appended; and the last key when more may follow.
    pub fn page(
        &self,
        after: Option<&DocKey>,
        sizes: &Sizes,
    ) -> (Vec<(DocKey, Arc<Doc>)>, Option<DocKey>) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut docs, mut bytes) = (Vec::new(), 0);
        for (key, doc) in self.newest_from(from) {
            let Some(doc) = doc else { continue };
            bytes += key.bytes() + doc.bytes();
            docs.push((key.clone(), doc.clone()));
            if docs.len() >= sizes.chunk_docs || bytes >= sizes.message_bytes {
                return (docs, Some(key.clone()));
            }
        }
        (docs, None)
    }

    /// The documents from a key on, in order, with everything that was appended; nothing for one
    /// that the tail removes.
    pub fn newest_from<'a>(
        &'a self,
        from: Bound<&DocKey>,
    ) -> impl Iterator<Item = (&'a DocKey, Option<&'a Arc<Doc>>)> + use<'a> {
        let range = (from, Bound::Unbounded);
        let mut committed = self.docs.range::<DocKey, _>(range).peekable();
        let mut latest = self.latest.range::<DocKey, _>(range).peekable();
        std::iter::from_fn(move || match (committed.peek(), latest.peek()) {
            (Some((key, _)), Some((other, _))) if key < other => committed.next().map(keep),
            (Some(_), None) => committed.next().map(keep),
            (of_both, Some((other, _))) => {
                if of_both.is_some_and(|(key, _)| key == other) {
                    committed.next();
                }
                latest.next().map(|(key, (_, doc))| (key, doc.as_ref()))
            }
            (None, None) => None,
        })
    }

    /// Every session in brief, with everything that was appended.
    pub fn sessions(&self) -> impl Iterator<Item = (&DocKey, &Brief)> {
        self.settled_sessions().chain(self.touched_sessions())
    }

    /// Those of which nothing was appended above what is committed.
    fn settled_sessions(&self) -> impl Iterator<Item = (&DocKey, &Brief)> {
        let settled = self.docs.iter().filter(|(key, _)| !self.latest.contains_key(*key));
        settled.filter_map(|(key, doc)| Some((key, doc.brief()?)))
    }

    /// Those above what is committed.
    fn touched_sessions(&self) -> impl Iterator<Item = (&DocKey, &Brief)> {
        self.latest.iter().filter_map(|(key, (_, doc))| Some((key, doc.as_ref()?.brief()?)))
    }

    /// Sessions of which a node is still to answer, with everything that was appended.
    pub fn sessions_under_way(&self) -> impl Iterator<Item = &DocKey> {
        let committed =
            self.counts.session_counts.under_way().filter(|key| !self.latest.contains_key(*key));
        let touched = self.touched_sessions().filter(|(_, brief)| is_under_way(brief.state));
        committed.chain(touched.map(|(key, _)| key))
    }

    /// Lost sessions that are to be opened again, as far as that is committed.
    pub fn sessions_reopening(&self) -> impl Iterator<Item = &DocKey> {
        self.counts.session_counts.reopening().filter(|key| !self.latest.contains_key(*key))
    }

    /// Sessions that have not ended on boots that are over, with everything that was appended. Each
    /// document is looked at only when there are any.
    pub fn sessions_over(&self, is_over: impl Fn(&NodeId, BootId) -> bool) -> Vec<DocKey> {
        let runs_there = |(_, brief): &(&DocKey, &Brief)| {
            brief.runs_at().is_some_and(|(node, boot)| is_over(node, *boot))
        };
        let any_settled =
            self.counts.session_counts.boots().any(|(node, boot)| is_over(node, boot));
        let settled = any_settled.then(|| self.settled_sessions()).into_iter().flatten();
        let sessions = settled.chain(self.touched_sessions());
        sessions.filter(runs_there).map(|(key, _)| key.clone()).collect()
    }

    /// Begins the log anew at `start`. What is here stays as the base of a snapshot, which
    /// replaces it range by range.
    pub fn restart_at(&mut self, start: LogPos) {
        let settled = self.settled_water;
        for (key, (_, doc)) in std::mem::take(&mut self.latest) {
            self.set(&key, doc);
        }
        self.settled_water = settled;
        self.drop_tail();
        self.window.entries.clear();
        self.window.bytes = 0;
        self.base = start;
        self.last = start;
        self.committed = start;
        self.durable = LogPos::ZERO;
    }

    /// What documents of applications fill here, with everything that was appended; not what other
    /// partitions hold.
    pub fn usage(&self, space: &str) -> Usage {
        let of = |doc: Option<&Arc<Doc>>| Usage::of(doc.and_then(|it| of_application(it)));
        let latest = self.latest.iter().filter(|(key, _)| key.name.space() == space);
        latest.fold(self.counts.usages.get(space), |usage, (key, (_, doc))| {
            usage.plus(of(doc.as_ref())).minus(of(self.docs.get(key)))
        })
    }

    /// The next position under `pe`.
    pub fn next_pos(&self, pe: Epoch) -> LogPos {
        LogPos::new(pe, Seq(self.last.seq.0 + 1))
    }
}

fn keep<'a>((key, doc): (&'a DocKey, &'a Arc<Doc>)) -> (&'a DocKey, Option<&'a Arc<Doc>>) {
    (key, Some(doc))
}
