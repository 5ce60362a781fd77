//! What the store knows of each body. It decides and touches no file.

use super::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// How a body's file is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// There is none.
    Absent,
    /// It is whole, as far as is known.
    Whole { size: u64 },
    /// It is there and is not what was written.
    Damaged { what: String },
}

#[derive(Clone, Debug)]
struct Entry {
    state: State,
    references: u64,
    /// Exports that read it now.
    pins: u32,
    /// Since when no item names it; means nothing while one does.
    free_since_ms: u64,
}

impl Entry {
    /// Bytes of a whole body that no item names.
    fn free_bytes(&self) -> u64 {
        match self.state {
            State::Whole { size } if self.references == 0 => size,
            State::Whole { .. } | State::Absent | State::Damaged { .. } => 0,
        }
    }
}

/// How much there is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Volumes {
    /// Bodies that are stored.
    pub bodies: u64,
    /// Their bytes, each body once: what the disk holds, without a thousandth for checksums.
    pub stored_bytes: u64,
    /// Items that name a stored body.
    pub references: u64,
    /// Their bytes, each body as often as it is named: attachment bytes, which the source calls V2.
    pub referenced_bytes: u64,
    /// Stored bodies that no item names and whose time of grace runs.
    pub free_bodies: u64,
    /// Their bytes.
    pub free_bytes: u64,
    /// Bodies that are named and not here, or damaged.
    pub unreadable: u64,
}

/// A body that was collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collected {
    /// Its name.
    pub sha256: Digest,
    /// Its bytes; 0 when its file was damaged.
    pub size: u64,
}

/// All bodies, by name.
#[derive(Clone, Default, Debug)]
pub(super) struct Index {
    entries: BTreeMap<Digest, Entry>,
    references_known: bool,
    /// Bytes of whole bodies that no item names.
    free_bytes: u64,
    /// Bytes of the bodies that are on their way in.
    coming_bytes: u64,
    /// How many of these are not written yet.
    unwritten_bytes: u64,
}

/// Why a body may not come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooMany {
    /// No item names so many bytes then.
    Free(u64),
    /// The same, if all that is on its way in becomes whole.
    Coming(u64),
}

impl Index {
    fn entry(&mut self, sha256: Digest, now_ms: u64) -> &mut Entry {
        let new = Entry { state: State::Absent, references: 0, pins: 0, free_since_ms: now_ms };
        self.entries.entry(sha256).or_insert(new)
    }

    /// Changes what is known of a body, and keeps the sum.
    fn change(&mut self, sha256: &Digest, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(sha256) {
            let before = entry.free_bytes();
            change(entry);
            self.free_bytes = self.free_bytes.saturating_sub(before) + entry.free_bytes();
        }
    }

    /// A body is on its way in, until [`Index::over`], unless that is above the limit.
    pub fn coming(&mut self, sha256: &Digest, size: u64, limit: u64) -> Result<(), TooMany> {
        let is_new = self.size(sha256).is_none();
        let free = self.free_bytes.saturating_add(size);
        let coming = free.saturating_add(self.coming_bytes);
        if is_new && free > limit {
            return Err(TooMany::Free(free));
        }
        if is_new && coming > limit {
            return Err(TooMany::Coming(coming));
        }
        self.coming_bytes = self.coming_bytes.saturating_add(size);
        self.unwritten_bytes = self.unwritten_bytes.saturating_add(size);
        Ok(())
    }

    /// So many bytes of a body that is on its way in are written: the disk counts them.
    pub fn written(&mut self, bytes: u64) {
        self.unwritten_bytes = self.unwritten_bytes.saturating_sub(bytes);
    }

    /// Ends what [`Index::coming`] began, of which so much is not written.
    pub fn over(&mut self, size: u64, unwritten: u64) {
        self.coming_bytes = self.coming_bytes.saturating_sub(size);
        self.written(unwritten);
    }

    /// Bytes of the bodies that are on their way in and not written yet.
    pub fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes
    }

    fn forget_if_empty(&mut self, sha256: &Digest) {
        let empty = |entry: &Entry| {
            entry.state == State::Absent && entry.references == 0 && entry.pins == 0
        };
        if self.entries.get(sha256).is_some_and(empty) {
            self.entries.remove(sha256);
        }
    }

    /// Size of a body that is whole.
    pub fn size(&self, sha256: &Digest) -> Option<u64> {
        match self.entries.get(sha256)?.state {
            State::Whole { size } => Some(size),
            State::Absent | State::Damaged { .. } => None,
        }
    }

    /// What is wrong with a body, when its file is damaged.
    pub fn damage(&self, sha256: &Digest) -> Option<&str> {
        match &self.entries.get(sha256)?.state {
            State::Damaged { what } => Some(what),
            State::Absent | State::Whole { .. } => None,
        }
    }

    /// A whole body is there. Its time of grace begins anew, so that whoever just put it has time
    /// to name it.
    pub fn stored(&mut self, sha256: Digest, size: u64, now_ms: u64) {
        self.entry(sha256, now_ms);
        self.change(&sha256, |entry| {
            entry.state = State::Whole { size };
            entry.free_since_ms = now_ms;
        });
    }

    /// A body's file is there and is not what was written.
    pub fn damaged(&mut self, sha256: Digest, what: String, now_ms: u64) {
        self.entry(sha256, now_ms);
        self.change(&sha256, |entry| entry.state = State::Damaged { what });
    }

    /// Marks a whole body as damaged. One that was taken away meanwhile stays away.
    pub fn found_damaged(&mut self, sha256: &Digest, what: &str) {
        if self.size(sha256).is_some() {
            self.change(sha256, |entry| entry.state = State::Damaged { what: what.to_owned() });
        }
    }

    /// References of one body.
    pub fn references(&self, sha256: &Digest) -> u64 {
        self.entries.get(sha256).map_or(0, |entry| entry.references)
    }

    /// Replaces all counts. Returns the bodies that are named and not whole.
    pub fn set_references(&mut self, counts: &BTreeMap<Digest, u64>, now_ms: u64) -> Vec<Digest> {
        for (sha256, entry) in &mut self.entries {
            let references = counts.get(sha256).copied().unwrap_or(0);
            if entry.references > 0 && references == 0 {
                entry.free_since_ms = now_ms;
            }
            entry.references = references;
        }
        for (&sha256, &references) in counts.iter().filter(|(_, count)| **count > 0) {
            self.entry(sha256, now_ms).references = references;
        }
        self.entries.retain(|_, entry| {
            entry.state != State::Absent || entry.references > 0 || entry.pins > 0
        });
        self.references_known = true;
        self.free_bytes = self.entries.values().map(Entry::free_bytes).sum();
        counts.keys().filter(|sha256| self.is_named_and_unreadable(sha256)).copied().collect()
    }

    fn is_named_and_unreadable(&self, sha256: &Digest) -> bool {
        self.references(sha256) > 0 && self.size(sha256).is_none()
    }

    /// Adds one reference for each occurrence, or none at all: `Err` names a body that is not
    /// whole.
    pub fn refer(&mut self, names: &[Digest]) -> Result<(), Digest> {
        if let Some(missing) = names.iter().find(|sha256| self.size(sha256).is_none()) {
            return Err(*missing);
        }
        for sha256 in names {
            self.change(sha256, |entry| entry.references = entry.references.saturating_add(1));
        }
        Ok(())
    }

    /// Adds one reference for each occurrence, whether or not the body is whole; returns those that
    /// are not.
    pub fn refer_all(&mut self, names: &[Digest], now_ms: u64) -> Vec<Digest> {
        for &sha256 in names {
            self.entry(sha256, now_ms);
            self.change(&sha256, |entry| entry.references = entry.references.saturating_add(1));
        }
        names.iter().filter(|sha256| self.size(sha256).is_none()).copied().collect()
    }

    /// Begins the time of grace of a whole body anew, and gives its size.
    pub fn renew(&mut self, sha256: &Digest, now_ms: u64) -> Option<u64> {
        let entry = self.entries.get_mut(sha256)?;
        let State::Whole { size } = entry.state else { return None };
        entry.free_since_ms = now_ms;
        Some(size)
    }

    /// Takes one reference away for each occurrence, or none at all: `Err` names a body that has
    /// not so many.
    pub fn release(&mut self, names: &[Digest], now_ms: u64) -> Result<(), Digest> {
        let mut counts = BTreeMap::<Digest, u64>::new();
        for &sha256 in names {
            *counts.entry(sha256).or_default() += 1;
        }
        if let Some((few, _)) = counts.iter().find(|(sha, count)| self.references(sha) < **count) {
            return Err(*few);
        }
        for (sha256, count) in counts {
            self.change(&sha256, |entry| {
                entry.references -= count;
                entry.free_since_ms = now_ms;
            });
            self.forget_if_empty(&sha256);
        }
        Ok(())
    }

    /// Keeps bodies from being collected. `Err` names one that is not whole; then none is kept.
    pub fn pin(&mut self, names: &BTreeSet<Digest>) -> Result<(), Digest> {
        if let Some(missing) = names.iter().find(|sha256| self.size(sha256).is_none()) {
            return Err(*missing);
        }
        for sha256 in names {
            if let Some(entry) = self.entries.get_mut(sha256) {
                entry.pins += 1;
            }
        }
        Ok(())
    }

    /// Ends what [`Index::pin`] began.
    pub fn unpin(&mut self, names: &BTreeSet<Digest>) {
        for sha256 in names {
            if let Some(entry) = self.entries.get_mut(sha256) {
                entry.pins = entry.pins.saturating_sub(1);
            }
            self.forget_if_empty(sha256);
        }
    }

    /// Takes away bodies that were free for the time of grace, at most `most` of them: from here on
    /// nobody can name them. `None` before the references are known.
    pub fn take_expired(
        &mut self,
        now_ms: u64,
        grace_ms: u64,
        most: usize,
    ) -> Option<Vec<Collected>> {
        if !self.references_known {
            return None;
        }
        let is_expired = |entry: &Entry| {
            entry.state != State::Absent
                && entry.references == 0
                && entry.pins == 0
                && now_ms.saturating_sub(entry.free_since_ms) >= grace_ms
        };
        let expired = self.entries.iter().filter(|(_, entry)| is_expired(entry)).take(most);
        let taken: Vec<_> = expired
            .map(|(&sha256, _)| Collected { sha256, size: self.size(&sha256).unwrap_or(0) })
            .collect();
        for Collected { sha256, size } in &taken {
            self.entries.remove(sha256);
            self.free_bytes = self.free_bytes.saturating_sub(*size);
        }
        Some(taken)
    }

    /// Whole bodies after `after`, in order, at most `most`, each with its size.
    pub fn list(&self, after: Option<&Digest>, most: usize) -> Vec<(Digest, u64)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range::<Digest, _>((from, Bound::Unbounded));
        entries.filter_map(|(sha, _)| Some((*sha, self.size(sha)?))).take(most).collect()
    }

    /// Bodies whose files are damaged, each with what is wrong.
    pub fn all_damaged(&self) -> Vec<(Digest, String)> {
        let damage = |sha: &Digest| Some((*sha, self.damage(sha)?.to_owned()));
        self.entries.keys().filter_map(damage).collect()
    }

    /// How much there is.
    pub fn volumes(&self) -> Volumes {
        let mut volumes = Volumes::default();
        for entry in self.entries.values() {
            let State::Whole { size } = entry.state else {
                volumes.unreadable += 1;
                continue;
            };
            volumes.bodies += 1;
            volumes.stored_bytes += size;
            volumes.references += entry.references;
            volumes.referenced_bytes =
                volumes.referenced_bytes.saturating_add(size.saturating_mul(entry.references));
            if entry.references == 0 {
                volumes.free_bodies += 1;
                volumes.free_bytes += size;
            }
        }
        volumes
    }
}
