//! What the lock guards: the documents, what of them is on its way to the disk, and the way there.

use super::layout::{self, encode, encode_high_water};
use crate::attachments::{AttachmentError, Attachments, Digest};
use crate::engine::KvWrite;
use crate::writer::{NotQueued, QUEUE_BYTES_MAX, Writer};
use rota_docstore::{
    Attempt, Cache, Commit, DocName, Document, Documents as _, Exception, FieldError, Phase, Rules,
    SlotId, Stamp, Store, WRITTEN_BYTES_MAX, Write, beyond, codes, validate,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

// What one operation may write goes to the writer as one.
const _: () = assert!(WRITTEN_BYTES_MAX <= QUEUE_BYTES_MAX as u64);
/// Documents that one step of a purge looks at, at most, and their bytes in memory: nobody else
/// works meanwhile.
const PURGE_DOCUMENTS_MAX: usize = 1_000;
const PURGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A commit that may not be on the disk yet.
#[derive(Debug)]
struct Flight {
    position: u64,
    /// Of the documents that it changed.
    version: Stamp,
    bytes: usize,
    /// Bodies that items name no more, once it is on the disk: before that, a crash brings the
    /// items back.
    lost: Vec<Digest>,
    /// Of some documents it leaves no trace.
    removes: bool,
}

/// The documents and their way to the disk.
#[derive(Debug)]
pub(super) struct Books {
    pub store: Store,
    pub cache: Cache,
    by_slot: BTreeMap<SlotId, BTreeSet<DocName>>,
    /// In order of positions, and of versions.
    flights: VecDeque<Flight>,
    flight_bytes: usize,
    /// Of the newest commit.
    pub position: u64,
    /// Writes of the commits that were taken over under this hold of the lock. They go to the writer
    /// together, before the lock is given up.
    outgoing: Vec<KvWrite>,
    /// `None`: closed.
    pub writer: Option<Writer>,
    purge_from: Option<DocName>,
}

/// Why a valid attempt was not taken over.
#[derive(Debug)]
pub(super) enum Untaken {
    /// The caller is told.
    Refused(Exception),
    /// So many bytes must have room on the way to the disk first.
    NoRoom(usize),
}

impl From<Exception> for Untaken {
    fn from(exception: Exception) -> Self {
        Self::Refused(exception.at(Phase::Validation))
    }
}

/// What a step of a purge came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PurgeStep {
    /// Documents that were made smaller: they forgot items that were destroyed long ago.
    pub shortened: u64,
    /// Traces of ended lives that went.
    pub removed: u64,
    /// Bodies of attachments that went, since no item has named them for the time of grace.
    pub bodies: u64,
    /// Every document was looked at since the purge last began with the first.
    pub is_round: bool,
}

impl Books {
    pub fn new(store: Store, cache: Cache, by_slot: BTreeMap<SlotId, BTreeSet<DocName>>) -> Self {
        Self {
            store,
            cache,
            by_slot,
            flights: VecDeque::new(),
            flight_bytes: 0,
            position: 0,
            outgoing: Vec::new(),
            writer: None,
            purge_from: None,
        }
    }

    /// Forgets commits that are on the disk.
    pub fn settle(&mut self, durable: u64, attachments: &Attachments, now_ms: u64) {
        while self.flights.front().is_some_and(|it| it.position <= durable) {
            let Some(flight) = self.flights.pop_front() else { return };
            self.flight_bytes -= flight.bytes;
            if let Err(error) = attachments.release(&flight.lost, now_ms) {
                tracing::error!(%error, "references of attachments are not counted right");
            }
        }
    }

    /// A position that must be on the disk before so many more bytes may be on their way.
    pub fn must_wait_for(&self, bytes: usize, flights_max: usize) -> Option<u64> {
        let front = self.flights.front()?;
        let is_full = self.flights.len() >= flights_max
            || self.flight_bytes.saturating_add(bytes) > QUEUE_BYTES_MAX;
        is_full.then_some(front.position)
    }

    /// The position that must be on the disk before anybody is shown this document, or that there is
    /// none; 0: it is.
    pub fn position_of(&self, document: Option<&Arc<Document>>) -> u64 {
        let Some(version) = document.map(|it| it.version()) else {
            // It may have gone with these.
            let last = self.flights.iter().rev().find(|it| it.removes);
            return last.map_or(0, |it| it.position);
        };
        // Several operations may share a version: the last of them is on the disk after the others.
        let after = self.flights.partition_point(|it| it.version <= version);
        let last = after.checked_sub(1).and_then(|at| self.flights.get(at));
        last.filter(|it| it.version == version).map_or(0, |it| it.position)
    }

    /// Validates an attempt, sends its writes on their way and takes them over.
    pub fn take_over(
        &mut self,
        rules: &Rules,
        attachments: &Attachments,
        attempt: Attempt,
        now: Stamp,
    ) -> Result<Commit, Untaken> {
        self.store.saw(now);
        let commit = validate(rules, &self.store, attempt, now)?;
        if commit.writes.is_empty() {
            return Ok(commit);
        }
        if self.writer.is_none() {
            return Err(closed().into());
        }
        let writes = encode(&*rules.territory, &commit.writes);
        let bytes = writes.iter().map(KvWrite::bytes).sum::<usize>();
        if !self.flights.is_empty() && self.flight_bytes.saturating_add(bytes) > QUEUE_BYTES_MAX {
            return Err(Untaken::NoRoom(bytes));
        }
        let (gained, lost) = bodies_changed(&commit.writes, attachments)?;
        attachments.refer(&gained).map_err(|error| no_body(&error))?;
        self.take_off(commit.version, writes, bytes, lost);
        self.store.apply(&commit.writes, commit.high_water);
        self.list(rules, &commit.writes);
        Ok(commit)
    }

    fn take_off(
        &mut self,
        version: Stamp,
        mut writes: Vec<KvWrite>,
        bytes: usize,
        lost: Vec<Digest>,
    ) {
        self.position += 1;
        self.flight_bytes += bytes;
        let (position, removes) = (self.position, false);
        self.flights.push_back(Flight { position, version, bytes, lost, removes });
        self.outgoing.append(&mut writes);
    }

    /// Hands everything that was taken over to the writer, as one submission. Its queue has room:
    /// what is in flight is counted here, too, and is never more.
    fn send(&mut self) {
        if self.outgoing.is_empty() {
            return;
        }
        let writes = std::mem::take(&mut self.outgoing);
        let sent = self.writer.as_ref().map(|it| it.try_submit(self.position, writes));
        match sent {
            Some(Ok(())) => {}
            None | Some(Err(NotQueued::Ended(_) | NotQueued::Full(_))) => {
                // The writer ends by itself only when a commit failed, and then the process ends.
                // Nobody is told of what is not on the disk: who waits for it waits in vain.
                tracing::error!("the writer takes nothing more");
                self.writer = None;
            }
        }
    }

    fn list(&mut self, rules: &Rules, writes: &[Write]) {
        for Write { name, before, after } in writes {
            if before.is_some() == after.is_some() {
                continue;
            }
            let slot = rules.territory.slot_of(name);
            let names = self.by_slot.entry(slot).or_default();
            if after.is_some() {
                names.insert(name.clone());
            } else {
                names.remove(name);
                if names.is_empty() {
                    self.by_slot.remove(&slot);
                }
            }
        }
    }

    /// Documents from `from` on whose slot is at most `last`, in order of slots and names, at most
    /// `most`; and the position that must be on the disk before they are shown.
    pub fn page(
        &self,
        (slot, after): (SlotId, Option<&DocName>),
        last: SlotId,
        most: usize,
    ) -> (Vec<(SlotId, Arc<Document>)>, u64) {
        use std::ops::Bound::{Excluded, Unbounded};
        let (mut page, mut position) = (Vec::with_capacity(most), 0);
        if slot > last {
            return (page, position);
        }
        for (&at, names) in self.by_slot.range(slot..=last) {
            let after = after.filter(|_| at == slot).map_or(Unbounded, Excluded);
            for name in names.range::<DocName, _>((after, Unbounded)) {
                if page.len() == most {
                    return (page, position);
                }
                if let Some(document) = self.store.peek(name) {
                    position = position.max(self.position_of(Some(document)));
                    page.push((at, Arc::clone(document)));
                }
            }
        }
        (page, position)
    }

    /// One step of a purge: forgets what is older than the rules keep it.
    pub fn purge(&mut self, rules: &Rules, now: Stamp) -> Result<PurgeStep, Exception> {
        if self.writer.is_none() {
            return Err(closed());
        }
        let mut bytes = 0;
        let is_in_step = |document: &&Arc<Document>| {
            bytes += document.memory_bytes();
            bytes <= PURGE_BYTES_MAX
        };
        let from = self.purge_from.take();
        let in_step = self.store.starting_at(from.as_ref()).take(PURGE_DOCUMENTS_MAX);
        let limit = in_step.take_while(is_in_step).count().max(1);
        let purged = self.store.purge(rules, now, from.as_ref(), limit);
        let removed = purged.writes.iter().filter(|it| it.after.is_none()).count() as u64;
        let is_round = purged.next.is_none();
        self.purge_from = purged.next;
        self.list(rules, &purged.writes);
        if !purged.writes.is_empty() {
            let mut writes = encode(&*rules.territory, &purged.writes);
            if removed > 0 {
                writes.push(encode_high_water(self.store.high_water()));
            }
            let bytes = writes.iter().map(KvWrite::bytes).sum();
            self.take_off(self.store.high_water(), writes, bytes, Vec::new());
            if let Some(flight) = self.flights.back_mut() {
                flight.removes = removed > 0;
            }
        }
        let shortened = purged.writes.len() as u64 - removed;
        Ok(PurgeStep { shortened, removed, bodies: 0, is_round })
    }
}

/// Bodies that items name from now on and did not name before, and the other way round, each as
/// often as items do. Refuses an item that says another size than its body has.
fn bodies_changed(
    writes: &[Write],
    attachments: &Attachments,
) -> Result<(Vec<Digest>, Vec<Digest>), Exception> {
    let (mut gained, mut lost) = (Vec::new(), Vec::new());
    for write in writes {
        for (key, attachment) in write.after.iter().flat_map(|it| it.attachments()) {
            let sha256 = attachment.sha256();
            if let Some(size) = attachments.size(&sha256).filter(|it| *it != attachment.size()) {
                let (name, said) = (&write.name, attachment.size());
                let key = key.escape_debug();
                let problem = format!("of {name}, P[{key}] is {said}; its body has {size} bytes");
                return Err(FieldError::new("size", problem).into());
            }
        }
        let before = || write.before.iter().flat_map(|it| it.bodies());
        let after = || write.after.iter().flat_map(|it| it.bodies());
        gained.extend(beyond(after(), before()));
        lost.extend(beyond(before(), after()));
    }
    Ok((gained, lost))
}

fn no_body(error: &AttachmentError) -> Untaken {
    let is_damaged = matches!(error, AttachmentError::Damaged { .. });
    let (code, advice) =
        if is_damaged { (codes::DAMAGED, "put it again") } else { (codes::BODY, "put it first") };
    let field = FieldError::new("body", format!("{error}; {advice}"));
    Exception::of_field(code, field).into()
}

/// The store takes nothing more.
pub(super) fn closed() -> Exception {
    Exception::new(codes::CLOSED, "the store is closed").at(Phase::Before)
}

/// Everything in an engine, read at the start.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub store: Store,
    pub by_slot: BTreeMap<SlotId, BTreeSet<DocName>>,
    /// How often items name each body.
    pub bodies: BTreeMap<Digest, u64>,
}

impl Loaded {
    /// Takes over a record; refuses one that does not belong here.
    pub fn take(&mut self, rules: &Rules, key: &[u8], value: &[u8]) -> Result<(), FieldError> {
        let (slot, document) = match layout::read(key, value)? {
            layout::Record::Document(slot, document) => (slot, document),
            layout::Record::HighWater(mark) => {
                self.store.raise(mark);
                return Ok(());
            }
        };
        let name = document.name().clone();
        let own = rules.territory.slot_of(&name);
        if own != slot {
            let problem = format!("has slot {slot}, and {name} lies in slot {own}");
            return Err(FieldError::new("key", problem));
        }
        rules.schema.check_class(name.class())?;
        for (item, content) in document.existing() {
            rules.schema.check_item(name.class(), item, content)?;
        }
        use rota_docstore::Documents as _;
        self.store.spaces().check_description(&document)?;
        for sha256 in document.bodies() {
            *self.bodies.entry(sha256).or_default() += 1;
        }
        self.by_slot.entry(slot).or_default().insert(name.clone());
        self.store.set(&name, Some(Arc::new(document)));
        Ok(())
    }
}

/// The books in the hands of one thread.
pub(super) struct Hold<'a> {
    books: MutexGuard<'a, Books>,
    /// When it last sent, or began.
    since: Instant,
}

impl<'a> Hold<'a> {
    pub fn new(books: MutexGuard<'a, Books>) -> Self {
        Self { books, since: Instant::now() }
    }

    /// Sends before all the work is done, once that takes longer than a commit does: then the disk
    /// and the rest of the work go on beside each other. Sooner, it would cost a commit more than it
    /// saves.
    pub fn send_if_due(&mut self) {
        let Some(writer) = &self.books.writer else { return };
        let now = Instant::now();
        if now - self.since >= writer.last_commit_time() {
            self.books.send();
            self.since = now;
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.books.send();
    }
}

impl Deref for Hold<'_> {
    type Target = Books;
    fn deref(&self) -> &Books {
        &self.books
    }
}

impl DerefMut for Hold<'_> {
    fn deref_mut(&mut self) -> &mut Books {
        &mut self.books
    }
}
