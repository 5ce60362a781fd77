//! Segments: the files that batches are appended to, and how they are read again.

use super::batch::{self, ALIGNMENT, Kind, MAGIC};
use super::head::{HEAD_BYTES, Head, Role, new_salt};
use super::window::Window;
use crate::disk::{Disk, DiskFile};
use crate::error::EngineError;
use crate::folder::Folder;
use crate::layout::{SPARE, segment_name};
use crate::record::{self, Fault};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment, open.
#[derive(Debug)]
pub(super) struct Segment {
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
    pub head: Head,
}

/// Where a record lies.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub segment: Arc<Segment>,
    pub offset: u64,
    pub bytes: usize,
}

/// Where reading a segment has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    /// Where the next batch begins.
    pub offset: u64,
    /// Its sequence number.
    pub seq: u64,
    /// Where the batch before it begins, and its kind; `None` at the segment's first.
    pub last: Option<(u64, Kind)>,
}

/// What reading a segment ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The log goes on in the next segment.
    Sealed,
    /// The next batch goes here.
    Open {
        /// A batch was begun here and is not whole.
        torn: bool,
    },
}

impl Segment {
    /// Makes the segment `number` durable under its name, in blocks of a spare where there is one.
    pub fn make(folder: &Folder, number: u64, seq: u64, fresh: usize) -> Result<Self, EngineError> {
        let disk = &*folder.disk;
        let path = folder.file(&segment_name(number));
        let new = path.with_extension("new");
        let (file, recycled) =
            open_blocks(disk, &folder.file(SPARE), &new).map_err(EngineError::io("make", &path))?;
        let label = folder.label.sum();
        let head = Head { role: Role::Segment, number, seq, salt: new_salt(), label, recycled };
        let mut bytes = head.bytes().to_vec();
        if !recycled {
            bytes.resize(HEAD_BYTES + fresh, 0);
        }
        let written = file.write_at(0, &bytes).and_then(|()| file.sync());
        written.map_err(EngineError::io("write", &new))?;
        disk.rename(&new, &path).map_err(EngineError::io("rename", &new))?;
        let folder = &folder.path;
        disk.sync_folder(folder).map_err(EngineError::io("sync the folder", folder))?;
        Ok(Self { file, path, head })
    }

    /// Opens the segment `number`, whose first batch must have the sequence number `seq`.
    pub fn open(folder: &Folder, number: u64, seq: u64) -> Result<Self, EngineError> {
        let path = folder.file(&segment_name(number));
        let file = folder.disk.open(&path).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                return EngineError::missing(&path, "it is missing");
            }
            EngineError::Io { doing: "open", file: path.clone(), source }
        })?;
        let head = read_head(&*file, &path, Role::Segment, folder.label.sum())?;
        if (head.number, head.seq) != (number, seq) {
            let what = format!(
                "it is segment {} from batch {}, where segment {number} from batch {seq} should be",
                head.number, head.seq
            );
            return Err(EngineError::damaged(&path, 0, what));
        }
        Ok(Self { file, path, head })
    }

    /// Where its first batch is.
    pub fn start(&self) -> Cursor {
        Cursor { offset: HEAD_BYTES as u64, seq: self.head.seq, last: None }
    }

    /// Reads on from `cursor`, up to `limit` or the segment's end. Visits each record of each
    /// whole batch: key, then its place, or `None` where it is deleted.
    pub fn replay(
        self: &Arc<Self>,
        cursor: &mut Cursor,
        limit: Option<u64>,
        visit: &mut dyn FnMut(&[u8], Option<Place>),
    ) -> Result<End, EngineError> {
        let limit = match limit {
            Some(limit) => limit,
            None => self.file.len().map_err(EngineError::io("read", &self.path))?,
        };
        let mut window = Window::new(&*self.file, &self.path, limit);
        while cursor.offset < window.limit() {
            let salt = self.head.salt;
            let head = batch::Head::parse(window.bytes(cursor.offset, batch::HEAD_BYTES)?, salt);
            let Some(head) = head.filter(|head| head.seq == cursor.seq) else {
                return self.end_here(*cursor, &mut window, None);
            };
            let whole = head.batch_bytes();
            let bytes = window.bytes(cursor.offset, whole)?;
            let records = match bytes.get(batch::HEAD_BYTES..batch::HEAD_BYTES + head.records_bytes)
            {
                Some(records) => records,
                None => return self.end_here(*cursor, &mut window, Some((0, Fault::Lengths))),
            };
            if let Err(fault) = batch::verify(records, salt) {
                return self.end_here(*cursor, &mut window, Some(fault));
            }
            self.visit_records(cursor.offset, records, visit);
            let last = Some((cursor.offset, head.kind));
            *cursor = Cursor { offset: cursor.offset + whole as u64, seq: cursor.seq + 1, last };
            if head.kind == Kind::Sealed {
                return Ok(End::Sealed);
            }
        }
        Ok(End::Open { torn: false })
    }

    fn visit_records(
        self: &Arc<Self>,
        batch: u64,
        records: &[u8],
        visit: &mut dyn FnMut(&[u8], Option<Place>),
    ) {
        let mut at = 0;
        while let Ok(record) = record::parse_verified(&records[at..]) {
            let place = record.value.map(|_| Place {
                segment: self.clone(),
                offset: batch + (batch::HEAD_BYTES + at) as u64,
                bytes: record.bytes,
            });
            visit(record.key, place);
            at += record.bytes;
            if at == records.len() {
                break;
            }
        }
    }

    /// There is no whole batch at the cursor. Only one batch is ever unsynced, the last: when a
    /// later one is there, this one was synced and then damaged.
    fn end_here(
        &self,
        cursor: Cursor,
        window: &mut Window<'_>,
        fault: Option<(usize, Fault)>,
    ) -> Result<End, EngineError> {
        if let Some(later) = self.find_batch_after(cursor, window)? {
            let file = self.path.clone();
            let (what, key, at) = match fault {
                Some((at, fault)) => (fault.what(), fault.key(), (batch::HEAD_BYTES + at) as u64),
                None => ("there is no batch", None, 0),
            };
            let what = format!("{what}, and a later batch follows at byte {later}");
            return Err(EngineError::Damaged { file, offset: Some(cursor.offset + at), key, what });
        }
        let torn = match fault {
            Some(_) => true,
            // In new blocks there are zeros after the last batch; old blocks hold anything.
            None if self.head.recycled => false,
            None => window.bytes(cursor.offset, batch::HEAD_BYTES)?.iter().any(|&byte| byte != 0),
        };
        Ok(End::Open { torn })
    }

    fn find_batch_after(
        &self,
        cursor: Cursor,
        window: &mut Window<'_>,
    ) -> Result<Option<u64>, EngineError> {
        const STEP: usize = 64 * 1024;
        let mut offset = cursor.offset + ALIGNMENT as u64;
        while offset < window.limit() {
            // Reads on past the step, so that a head on its border is seen whole.
            let bytes = window.bytes(offset, STEP + batch::HEAD_BYTES)?;
            for at in (0..bytes.len().min(STEP)).step_by(ALIGNMENT) {
                let found = bytes[at..].starts_with(&MAGIC.to_le_bytes())
                    && batch::Head::parse(&bytes[at..], self.head.salt)
                        .is_some_and(|head| head.seq >= cursor.seq);
                if found {
                    return Ok(Some(offset + at as u64));
                }
            }
            offset += STEP as u64;
        }
        Ok(None)
    }
}

impl Place {
    /// Reads the value, verified, into `buffer`.
    pub fn read<'a>(&self, key: &[u8], buffer: &'a mut Vec<u8>) -> Result<&'a [u8], EngineError> {
        let Self { segment, offset, bytes } = self;
        buffer.resize(*bytes, 0);
        segment.file.read_at(*offset, buffer).map_err(EngineError::io("read", &segment.path))?;
        let damaged = |fault: Fault| EngineError::Damaged {
            file: segment.path.clone(),
            offset: Some(*offset),
            key: Some(key.to_vec()),
            what: fault.what().into(),
        };
        let record = record::parse(segment.head.salt, buffer).map_err(damaged)?;
        record.value.filter(|_| record.key == key).ok_or_else(|| damaged(Fault::Lengths))
    }
}

/// A file named `new` in the blocks of the spare, or an empty one. The flag says which.
fn open_blocks(disk: &dyn Disk, spare: &Path, new: &Path) -> io::Result<(Arc<dyn DiskFile>, bool)> {
    match disk.rename(spare, new) {
        Ok(()) => Ok((disk.open(new)?, true)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((disk.create(new)?, false)),
        Err(error) => Err(error),
    }
}

/// Reads and checks the head of a file.
pub(super) fn read_head(
    file: &dyn DiskFile,
    path: &Path,
    role: Role,
    label: u64,
) -> Result<Head, EngineError> {
    let mut bytes = [0; HEAD_BYTES];
    if file.len().map_err(EngineError::io("read", path))? < HEAD_BYTES as u64 {
        return Err(EngineError::damaged(path, 0, "it is shorter than its head"));
    }
    file.read_at(0, &mut bytes).map_err(EngineError::io("read", path))?;
    Head::parse(&bytes, role, label, path)
}
