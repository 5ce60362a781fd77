//! Reading a file from front to back through one buffer.

use crate::disk::DiskFile;
use crate::error::EngineError;
use std::path::Path;

/// Read at once. Larger reads gain nothing, smaller ones cost system calls.
const READ_BYTES: usize = 256 * 1024;

/// A buffer over a part of a file.
pub(super) struct Window<'a> {
    file: &'a dyn DiskFile,
    path: &'a Path,
    limit: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> Window<'a> {
    /// Reads `file` up to `limit`, which must not be past its end.
    pub fn new(file: &'a dyn DiskFile, path: &'a Path, limit: u64) -> Self {
        Self { file, path, limit, start: 0, buffer: Vec::new() }
    }

    /// End of what is read.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes from `offset`; fewer than `length` only where the limit comes first.
    pub fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8], EngineError> {
        let left = usize::try_from(self.limit.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = length.min(left);
        let inside = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        if let Some(at) = inside
            && at.saturating_add(length) <= self.buffer.len()
        {
            return Ok(&self.buffer[at..at + length]);
        }
        self.buffer.resize(length.max(READ_BYTES.min(left)), 0);
        self.start = offset;
        self.file.read_at(offset, &mut self.buffer).map_err(EngineError::io("read", self.path))?;
        Ok(&self.buffer[..length])
    }
}
