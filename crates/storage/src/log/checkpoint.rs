//! The checkpoint: all records as of one batch, in order of keys, in one file that never changes.
//!
//! ```text
//! head | records | sparse index: (length of key u32 | offset u64 | key)* | trailer
//! ```
//! A new one is written beside it, from it and the segments that follow it, synced and renamed.

use super::head::{HEAD_BYTES, Head, Role, new_salt};
use super::segment::read_head;
use super::window::Window;
use crate::disk::DiskFile;
use crate::engine::TryVisit;
use crate::error::EngineError;
use crate::folder::Folder;
use crate::layout::CHECKPOINT;
use crate::record;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The file's name.
/// Bytes of records between two entries of the index: what a lookup reads through.
const INDEX_EVERY: u64 = 32 * 1024;
/// Written at once.
const WRITE_BYTES: usize = 512 * 1024;
/// Synced at once: a longer queue at the disk would hold up the commits beside it.
const SYNC_EVERY: usize = 4 * 1024 * 1024;
const TRAILER_BYTES: usize = 48;
const TRAILER_MAGIC: u64 = u64::from_le_bytes(*b"ROTA-END");

/// A checkpoint, open for reading.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub head: Head,
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// Some of the keys, and where their records begin.
    index: Vec<(Vec<u8>, u64)>,
    records_end: u64,
    records: u64,
}

/// The last bytes of a checkpoint.
struct Trailer {
    index_offset: u64,
    index_bytes: u64,
    records: u64,
    index_sum: u64,
}

impl Trailer {
    fn bytes(&self, salt: u64) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        let words =
            [self.index_offset, self.index_bytes, self.records, self.index_sum, TRAILER_MAGIC];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64_with_seed(&bytes[..TRAILER_BYTES - 8], salt);
        bytes[TRAILER_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8], salt: u64) -> Option<Self> {
        let bytes = bytes.first_chunk::<TRAILER_BYTES>()?;
        let long = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside"));
        let sum = xxh3_64_with_seed(&bytes[..TRAILER_BYTES - 8], salt);
        (long(32) == TRAILER_MAGIC && long(40) == sum).then(|| Self {
            index_offset: long(0),
            index_bytes: long(8),
            records: long(16),
            index_sum: long(24),
        })
    }
}

impl Checkpoint {
    /// Opens the folder's checkpoint.
    pub fn open(folder: &Folder) -> Result<Self, EngineError> {
        let path = folder.file(CHECKPOINT);
        let file = folder.disk.open(&path).map_err(EngineError::io("open", &path))?;
        let head = read_head(&*file, &path, Role::Checkpoint, folder.label.sum())?;
        let length = file.len().map_err(EngineError::io("read", &path))?;
        let mut window = Window::new(&*file, &path, length);
        let damaged = |offset, what: &str| EngineError::damaged(&path, offset, what);
        let trailer_at = length
            .checked_sub(TRAILER_BYTES as u64)
            .ok_or_else(|| damaged(length, "it ends before its trailer"))?;
        let trailer = Trailer::parse(window.bytes(trailer_at, TRAILER_BYTES)?, head.salt)
            .ok_or_else(|| damaged(trailer_at, "it does not end with a trailer"))?;
        let index_bytes = usize::try_from(trailer.index_bytes).unwrap_or(usize::MAX);
        let bytes = window.bytes(trailer.index_offset, index_bytes)?;
        let bad_index = || damaged(trailer.index_offset, "its index does not match its checksum");
        if trailer.index_sum != xxh3_64_with_seed(bytes, head.salt) {
            return Err(bad_index());
        }
        let index = parse_index(bytes).ok_or_else(bad_index)?;
        let (records_end, records) = (trailer.index_offset, trailer.records);
        Ok(Self { head, file, path, index, records_end, records })
    }

    /// Bytes of records.
    pub fn bytes(&self) -> u64 {
        self.records_end
    }

    /// Visits the records from `from`, before `to` where it is given, in order.
    pub fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut TryVisit<'_>,
    ) -> Result<(), EngineError> {
        let after = self.index.partition_point(|(key, _)| key.as_slice() <= from);
        let begin = after.checked_sub(1).map_or(HEAD_BYTES as u64, |at| self.index[at].1);
        let mut window = Window::new(&*self.file, &self.path, self.records_end);
        let mut offset = begin;
        let mut seen = 0;
        while offset < self.records_end {
            let damaged = |fault: record::Fault| EngineError::Damaged {
                file: self.path.clone(),
                offset: Some(offset),
                what: fault.what().into(),
                key: fault.key(),
            };
            let head = record::Head::parse(window.bytes(offset, record::HEAD_BYTES)?);
            let bytes = head.map_err(damaged)?.record_bytes();
            let record = record::parse(self.head.salt, window.bytes(offset, bytes)?);
            let record = record.map_err(damaged)?;
            if to.is_some_and(|to| record.key >= to) {
                return Ok(());
            }
            // Only a delete has no value, and a checkpoint has no deletes.
            let value = record.value.ok_or_else(|| damaged(record::Fault::Lengths))?;
            if record.key >= from && visit(record.key, value)?.is_break() {
                return Ok(());
            }
            seen += 1;
            offset += bytes as u64;
        }
        if begin == HEAD_BYTES as u64 && seen != self.records {
            let what = format!("it holds {seen} records of {}", self.records);
            return Err(EngineError::damaged(&self.path, offset, what));
        }
        Ok(())
    }

    /// The value at a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let mut found = None;
        self.scan(key, None, &mut |at, value| {
            found = (at == key).then(|| value.to_vec());
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

fn parse_index(mut bytes: &[u8]) -> Option<Vec<(Vec<u8>, u64)>> {
    let mut index = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        index.push((key.to_vec(), u64::from_le_bytes(*offset)));
        bytes = rest;
    }
    Some(index)
}

/// A checkpoint that is being written.
pub(super) struct CheckpointWriter {
    head: Head,
    file: Arc<dyn DiskFile>,
    /// Until it is finished.
    new: PathBuf,
    buffer: Vec<u8>,
    /// Bytes before the buffer.
    written: u64,
    unsynced: usize,
    index: Vec<u8>,
    index_next: u64,
    records: u64,
}

impl CheckpointWriter {
    /// Begins one that holds everything up to the batch `through`; the log goes on in the segment
    /// `next_segment`.
    pub fn begin(folder: &Folder, through: u64, next_segment: u64) -> Result<Self, EngineError> {
        let new = folder.file(CHECKPOINT).with_extension("new");
        let file = folder.disk.create(&new).map_err(EngineError::io("make", &new))?;
        let head = Head {
            role: Role::Checkpoint,
            number: next_segment,
            seq: through,
            salt: new_salt(),
            label: folder.label.sum(),
            recycled: false,
        };
        let buffer = head.bytes().to_vec();
        let (index, index_next) = (Vec::new(), HEAD_BYTES as u64);
        Ok(Self { head, file, new, buffer, written: 0, unsynced: 0, index, index_next, records: 0 })
    }

    /// Adds a record. Keys come in order.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let offset = self.written + self.buffer.len() as u64;
        if offset >= self.index_next {
            let length = u32::try_from(key.len()).expect("the limit of keys fits 32 bits");
            self.index.extend_from_slice(&length.to_le_bytes());
            self.index.extend_from_slice(&offset.to_le_bytes());
            self.index.extend_from_slice(key);
            self.index_next = offset + INDEX_EVERY;
        }
        record::push(&mut self.buffer, self.head.salt, key, Some(value));
        self.records += 1;
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        let write = self.file.write_at(self.written, &self.buffer);
        write.map_err(EngineError::io("write", &self.new))?;
        self.written += self.buffer.len() as u64;
        self.unsynced += self.buffer.len();
        self.buffer.clear();
        if self.unsynced >= SYNC_EVERY { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.unsynced = 0;
        self.file.sync().map_err(EngineError::io("sync", &self.new))
    }

    /// Makes it the folder's checkpoint, durably.
    pub fn finish(mut self, folder: &Folder) -> Result<(), EngineError> {
        let trailer = Trailer {
            index_offset: self.written + self.buffer.len() as u64,
            index_bytes: self.index.len() as u64,
            records: self.records,
            index_sum: xxh3_64_with_seed(&self.index, self.head.salt),
        };
        self.buffer.append(&mut self.index);
        self.buffer.extend_from_slice(&trailer.bytes(self.head.salt));
        self.flush()?;
        self.sync()?;
        let (disk, path) = (&folder.disk, &folder.path);
        disk.rename(&self.new, &folder.file(CHECKPOINT))
            .map_err(EngineError::io("rename", &self.new))?;
        disk.sync_folder(path).map_err(EngineError::io("sync the folder", path))
    }
}
