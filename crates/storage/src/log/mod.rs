//! [`Engine`] as an append-only log with a checkpoint behind it.
//!
//! ```text
//!  commit ──▶ …02.segment ──▶ …03.segment      one batch per commit, one fdatasync per batch
//!                  │ sealed
//!                  ▼ fold, on a thread of its own
//!             records.checkpoint               everything before, in order of keys
//! ```
//!
//! * A commit appends one batch and syncs. It keeps nothing in memory: what reading needs is read
//!   from the segments when somebody reads.
//! * When the segment has grown to `checkpoint_bytes` (or to the size of the checkpoint, when that
//!   is larger: so each byte is rewritten about twice), the next segment is made durable, the old
//!   one is sealed, and its records are merged with the checkpoint into a new one. Only when that
//!   is durable do the old segment's blocks become the spare that the next segment is made of.
//! * A start reads the checkpoint's head and replays the segments from the one that it names.
//!   Sequence numbers and seals leave no gap unnoticed. At most one batch, the last, is ever
//!   unsynced: a bad batch with nothing after it is a torn write and is cut off with a line in the
//!   log; one with a whole batch after it is damage, and the folder is refused. (After a kill, damage
//!   to the very last batch cannot be told from a torn write; after a close in good order the file
//!   `CLOSED` says where the log must end.)
//! * The last batch is written and synced once more at a start: after a failed sync the kernel may
//!   show bytes that are not on the disk, and another sync does not write them.

mod batch;
mod checkpoint;
mod closing;
mod fold;
mod head;
mod segment;
mod window;

use self::batch::Kind;
use self::checkpoint::{Checkpoint, CheckpointWriter};
use self::fold::{Changes, Fold, merge, note};
use self::segment::{Cursor, End, Segment};
use crate::disk::Disk;
use crate::engine::{Engine, EngineKind, KvWrite, Visit, check};
use crate::error::EngineError;
use crate::folder::{Folder, Label, State};
use crate::layout::{CLOSED, number_in, segment_name};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How [`LogEngine`] works.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// Bytes of log after which it is folded into the checkpoint; at least the checkpoint's own
    /// size counts. Too low: the disk is busy with folding; too high: a start replays for longer
    /// (about a second per gigabyte).
    pub checkpoint_bytes: u64,
    /// Bytes by which a segment without recycled blocks grows ahead of its batches. Too low: each
    /// sync writes metadata too; too high: the commit that grows it takes longer.
    pub grow_bytes: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { checkpoint_bytes: 64 * 1024 * 1024, grow_bytes: 256 * 1024 }
    }
}

/// Memory kept from one batch to the next. A larger batch gives its memory back.
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// An engine over an append-only log.
#[derive(Debug)]
pub struct LogEngine {
    settings: LogSettings,
    checkpoint: Arc<Checkpoint>,
    /// Sealed and not in the checkpoint, in order.
    sealed: Vec<Arc<Segment>>,
    active: Active,
    fold: Option<Fold>,
    reading: Option<Reading>,
    buffer: Vec<u8>,
    /// What the last commit waited for its syncs: one, and one more where it sealed a segment.
    synced_in: Duration,
    failed: bool,
    // Last, so that the lock is given up last.
    folder: Arc<Folder>,
}

/// The segment that is appended to.
#[derive(Debug)]
struct Active {
    segment: Arc<Segment>,
    cursor: Cursor,
    /// Length of the file.
    allocated: u64,
}

/// What reading needs to know of the segments.
#[derive(Debug)]
struct Reading {
    changes: Changes,
    segment: u64,
    cursor: Cursor,
}

impl LogEngine {
    /// Opens a folder, made when it is not there.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        label: &Label,
        settings: LogSettings,
    ) -> Result<Self, EngineError> {
        let kind = EngineKind::Log;
        Self::open_folder(Folder::open(disk, path, label, Some(kind), kind)?, settings)
    }

    pub(crate) fn open_folder(
        mut folder: Folder,
        settings: LogSettings,
    ) -> Result<Self, EngineError> {
        if folder.state == State::New {
            Segment::make(&folder, 1, 1, settings.grow_bytes)?;
            CheckpointWriter::begin(&folder, 0, 1)?.finish(&folder)?;
            folder.made()?;
        }
        let checkpoint = Checkpoint::open(&folder)?;
        let mut recovered = recover(&folder, &checkpoint)?;
        // What an earlier run renamed may not be durable yet, and files are removed next.
        let path = &folder.path;
        folder.disk.sync_folder(path).map_err(EngineError::io("sync the folder", path))?;
        for file in &recovered.surplus {
            let file = folder.file(file);
            folder.disk.remove(&file).map_err(EngineError::io("remove", &file))?;
        }
        if recovered.closed {
            closing::remove(&folder)?;
        }
        // A segment that was made too early must not come back beside a longer log.
        folder.disk.sync_folder(path).map_err(EngineError::io("sync the folder", path))?;
        recovered.mend()?;
        let reading = Reading {
            changes: recovered.changes,
            segment: recovered.active.segment.head.number,
            cursor: recovered.active.cursor,
        };
        Ok(Self {
            settings,
            checkpoint: Arc::new(checkpoint),
            sealed: recovered.sealed,
            active: recovered.active,
            fold: None,
            reading: Some(reading),
            buffer: Vec::new(),
            synced_in: Duration::ZERO,
            failed: false,
            folder: Arc::new(folder),
        })
    }

    fn try_commit(&mut self, batch: &[KvWrite]) -> Result<(), EngineError> {
        self.synced_in = Duration::ZERO;
        self.take_fold()?;
        self.fold_if_due()?;
        self.append(Kind::Writes, batch)
    }

    fn append(&mut self, kind: Kind, writes: &[KvWrite]) -> Result<(), EngineError> {
        let Active { segment, cursor, allocated } = &mut self.active;
        batch::encode(&mut self.buffer, segment.head.salt, kind, cursor.seq, writes);
        let end = cursor.offset + self.buffer.len() as u64;
        if end > *allocated {
            self.buffer.resize(self.buffer.len() + self.settings.grow_bytes, 0);
            *allocated = end + self.settings.grow_bytes as u64;
        }
        let write = segment.file.write_at(cursor.offset, &self.buffer);
        write.map_err(EngineError::io("write", &segment.path))?;
        let began = Instant::now();
        segment.file.sync().map_err(EngineError::io("sync", &segment.path))?;
        self.synced_in += began.elapsed();
        let last = Some((cursor.offset, kind));
        *cursor = Cursor { offset: end, seq: cursor.seq + 1, last };
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Ok(())
    }

    /// Takes over a checkpoint that is finished.
    fn take_fold(&mut self) -> Result<(), EngineError> {
        let Some(result) = self.fold.as_mut().and_then(|fold| fold.poll(&self.folder)) else {
            return Ok(());
        };
        self.fold = None;
        self.checkpoint = Arc::new(result?);
        self.sealed.clear();
        // It speaks of segments whose blocks are about to be used again.
        self.reading = None;
        Ok(())
    }

    fn fold_if_due(&mut self) -> Result<(), EngineError> {
        if self.fold.is_some() {
            return Ok(());
        }
        let enough = self.settings.checkpoint_bytes.max(self.checkpoint.bytes());
        if self.active.cursor.offset >= enough {
            self.begin_segment()?;
        }
        if !self.sealed.is_empty() {
            let (folder, checkpoint) = (self.folder.clone(), self.checkpoint.clone());
            self.fold = Some(Fold::begin(folder, checkpoint, self.sealed.clone())?);
        }
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<(), EngineError> {
        let Active { segment, cursor, .. } = &self.active;
        // The seal itself takes one sequence number.
        let (number, seq) = (segment.head.number + 1, cursor.seq + 1);
        let next = Segment::make(&self.folder, number, seq, self.settings.grow_bytes)?;
        self.append(Kind::Sealed, &[])?;
        let allocated = next.file.len().map_err(EngineError::io("read", &next.path))?;
        let active = Active { cursor: next.start(), segment: Arc::new(next), allocated };
        let before = std::mem::replace(&mut self.active, active);
        self.sealed.push(before.segment);
        Ok(())
    }

    /// The changes since the checkpoint, read on to the newest batch.
    fn changes(&mut self) -> Result<&Changes, EngineError> {
        if self.failed {
            return Err(EngineError::GivenUp { folder: self.folder.path.clone() });
        }
        let live = self.sealed.iter().chain([&self.active.segment]);
        let first = self.sealed.first().unwrap_or(&self.active.segment);
        let reading = self.reading.get_or_insert_with(|| Reading {
            changes: Changes::new(),
            segment: first.head.number,
            cursor: first.start(),
        });
        for segment in live {
            let number = segment.head.number;
            if number < reading.segment {
                continue;
            }
            if number > reading.segment {
                reading.segment = number;
                reading.cursor = segment.start();
            }
            let is_active = number == self.active.segment.head.number;
            let limit = is_active.then_some(self.active.cursor.offset);
            let changes = &mut reading.changes;
            // A segment that was sealed while it was read has nothing after its seal.
            if !matches!(reading.cursor.last, Some((_, Kind::Sealed))) {
                let visit = &mut |key: &[u8], place| note(changes, key, place);
                segment.replay(&mut reading.cursor, limit, visit)?;
            }
        }
        Ok(&reading.changes)
    }
}

impl Engine for LogEngine {
    fn commit(&mut self, batch: &[KvWrite]) -> Result<(), EngineError> {
        if self.failed {
            return Err(EngineError::GivenUp { folder: self.folder.path.clone() });
        }
        check(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let result = self.try_commit(batch);
        self.failed = result.is_err();
        result
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match self.changes()?.get(key) {
            Some(Some(place)) => Ok(Some(place.read(key, &mut Vec::new())?.to_vec())),
            Some(None) => Ok(None),
            None => self.checkpoint.get(key),
        }
    }

    fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        let checkpoint = self.checkpoint.clone();
        merge(&checkpoint, self.changes()?, from, to, &mut |key, value| Ok(visit(key, value)))
    }

    fn reading_is_over(&mut self) {
        self.reading = None;
    }

    fn last_sync_time(&self) -> Duration {
        self.synced_in
    }
}

impl Drop for LogEngine {
    fn drop(&mut self) {
        self.fold = None;
        let closed = matches!(self.active.cursor.last, None | Some((_, Kind::Closed)));
        if self.failed {
            return;
        }
        let appended = if closed { Ok(()) } else { self.append(Kind::Closed, &[]) };
        let Active { segment, cursor, .. } = &self.active;
        let written = appended.and_then(|()| closing::write(&self.folder, segment, *cursor));
        if let Err(error) = written {
            tracing::warn!(folder = %self.folder.path.display(), %error, "not closed in good order");
        }
    }
}

/// What a start found.
struct Recovered {
    sealed: Vec<Arc<Segment>>,
    active: Active,
    torn: bool,
    /// It was closed in good order.
    closed: bool,
    /// The newest whole batch.
    last_batch: Option<(Arc<Segment>, Range<u64>)>,
    changes: Changes,
    /// Names of files that nothing needs.
    surplus: Vec<String>,
}

/// Reads the segments that follow a checkpoint. Changes nothing on the disk.
fn recover(folder: &Folder, checkpoint: &Checkpoint) -> Result<Recovered, EngineError> {
    let path = &folder.path;
    let names = folder.disk.list(path).map_err(EngineError::io("list", path))?;
    let numbers: BTreeSet<u64> = names.iter().filter_map(|name| number_in(name)).collect();
    let mut changes = Changes::new();
    let mut sealed = Vec::new();
    let mut last_batch = None;
    let (mut number, mut seq) = (checkpoint.head.number, checkpoint.head.seq + 1);
    let (active, torn) = loop {
        let segment = Arc::new(Segment::open(folder, number, seq)?);
        let mut cursor = segment.start();
        let end =
            segment.replay(&mut cursor, None, &mut |key, place| note(&mut changes, key, place))?;
        if let Some((offset, _)) = cursor.last {
            last_batch = Some((segment.clone(), offset..cursor.offset));
        }
        match end {
            End::Sealed => {
                (number, seq) = (number + 1, cursor.seq);
                sealed.push(segment);
            }
            End::Open { torn } => {
                let allocated =
                    segment.file.len().map_err(EngineError::io("read", &segment.path))?;
                break (Active { segment, cursor, allocated }, torn);
            }
        }
    };
    let mut surplus: Vec<String> =
        numbers.range(..checkpoint.head.number).map(|&old| segment_name(old)).collect();
    for &later in numbers.range(number + 1..) {
        // The next segment is made before this one is sealed: it may be there, and empty.
        if later > number + 1 || !is_unused(folder, later, active.cursor.seq + 1)? {
            let what = format!("the log ends here, but {} goes on", segment_name(later));
            return Err(EngineError::damaged(&active.segment.path, active.cursor.offset, what));
        }
        surplus.push(segment_name(later));
    }
    let closed = names.iter().any(|name| name == CLOSED);
    if closed {
        closing::check(folder, &active.segment, active.cursor)?;
    }
    surplus.extend(names.into_iter().filter(|name| name.ends_with(".new")));
    Ok(Recovered { sealed, active, torn, closed, last_batch, changes, surplus })
}

fn is_unused(folder: &Folder, number: u64, seq: u64) -> Result<bool, EngineError> {
    let segment = Arc::new(Segment::open(folder, number, seq)?);
    let mut cursor = segment.start();
    segment.replay(&mut cursor, None, &mut |_, _| {})?;
    Ok(cursor == segment.start())
}

impl Recovered {
    /// Makes the end of the log what it seems to be: cuts off a torn batch, and writes the last
    /// whole one once more.
    fn mend(&mut self) -> Result<(), EngineError> {
        let Active { segment, cursor, allocated } = &mut self.active;
        if self.torn {
            tracing::warn!(
                file = %segment.path.display(),
                offset = cursor.offset,
                "cut off a batch that was not written to its end; it was never acknowledged"
            );
            let cut = segment.file.set_len(cursor.offset).and_then(|()| segment.file.sync());
            cut.map_err(EngineError::io("cut", &segment.path))?;
            *allocated = cursor.offset;
        }
        // In a new segment there may be none: then it is the seal of the one before.
        let Some((segment, range)) = &self.last_batch else { return Ok(()) };
        let (file, path) = (&segment.file, &segment.path);
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        file.read_at(range.start, &mut bytes).map_err(EngineError::io("read", path))?;
        file.write_at(range.start, &bytes).map_err(EngineError::io("write", path))?;
        file.sync().map_err(EngineError::io("sync", path))
    }
}
