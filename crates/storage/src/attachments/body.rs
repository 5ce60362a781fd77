//! A body's file: how it is written and how it is read.
//!
//! ```text
//! the bytes | xxh3 of each piece of 64 KiB: u64* | trailer
//! trailer: magic | format | size | bytes of a piece | SHA-256 (32 bytes) | xxh3 of the trailer
//! ```
//! All numbers are 64 bits, little-endian. The checksums of the pieces let a range be read
//! without reading the rest, and still no changed byte goes unnoticed.

use super::digest::{Digesting, seed};
use super::{AttachmentError, Digest};
use crate::disk::DiskFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

/// Bytes under one checksum. A reader holds one piece; a range reads at most this much too much at
/// each end.
pub const PIECE_BYTES: usize = 64 * 1024;
const PIECE: u64 = PIECE_BYTES as u64;
/// Synced at once: a longer queue at the disk would hold up the commits beside it.
const SYNC_EVERY: u64 = 4 * 1024 * 1024;
const SUM_BYTES: u64 = size_of::<u64>() as u64;
const TRAILER_BYTES: usize = 72;
const MAGIC: u64 = u64::from_le_bytes(*b"ROTA-ATT");
/// Version of what stands in a body's file.
const FORMAT: u64 = 1;

/// Bytes of the whole file of a body of this size; `None` for a size that no file has.
fn file_bytes(size: u64) -> Option<u64> {
    size.checked_add(size.div_ceil(PIECE).checked_mul(SUM_BYTES)?)?
        .checked_add(TRAILER_BYTES as u64)
}

fn piece_seed(sha256: &Digest, piece: u64) -> u64 {
    seed(sha256) ^ piece
}

fn trailer(sha256: &Digest, size: u64) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip([MAGIC, FORMAT, size, PIECE]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes[32..64].copy_from_slice(&sha256.0);
    let sum = xxh3_64(&bytes[..64]);
    bytes[64..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads the trailer of a body's file. Returns the body's size.
pub(super) fn check_file(
    file: &dyn DiskFile,
    path: &Path,
    sha256: Digest,
) -> Result<u64, AttachmentError> {
    let damaged = |what: &str| AttachmentError::Damaged {
        sha256,
        file: path.to_owned(),
        what: what.to_owned(),
    };
    let length = file.len().map_err(AttachmentError::io("read", path))?;
    let at = length.checked_sub(TRAILER_BYTES as u64).ok_or_else(|| damaged("ends early"))?;
    let mut bytes = [0; TRAILER_BYTES];
    file.read_at(at, &mut bytes).map_err(AttachmentError::io("read", path))?;
    let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside"));
    if word(0) != MAGIC {
        return Err(damaged("does not end with a trailer"));
    }
    if word(8) != FORMAT {
        return Err(damaged(&format!("has format {}, and {FORMAT} is known", word(8))));
    }
    let size = word(16);
    if bytes != trailer(&sha256, size) {
        return Err(damaged("has another body's trailer, or a changed one"));
    }
    if file_bytes(size) != Some(length) {
        return Err(damaged(&format!("has {length} bytes, and not those of a body of {size}")));
    }
    Ok(size)
}

/// A body that is being written.
#[derive(Debug)]
pub(super) struct BodyWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    sha256: Digest,
    size: u64,
    written: u64,
    synced: u64,
    digest: Digesting,
    piece: Xxh3Of,
    /// Eight bytes per piece: of a body of 1 GiB, 128 KiB.
    sums: Vec<u8>,
}

/// The checksum of the piece that is being written.
struct Xxh3Of(Xxh3);

impl std::fmt::Debug for Xxh3Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Xxh3")
    }
}

impl BodyWriter {
    pub fn new(file: Arc<dyn DiskFile>, path: PathBuf, sha256: Digest, size: u64) -> Self {
        let piece = Xxh3Of(Xxh3::with_seed(piece_seed(&sha256, 0)));
        let (digest, sums) = (Digesting::default(), Vec::new());
        Self { file, path, sha256, size, written: 0, synced: 0, digest, piece, sums }
    }

    /// Appends bytes of the body.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), AttachmentError> {
        let after = self.written.saturating_add(bytes.len() as u64);
        if after > self.size {
            return Err(self.wrong_size(after));
        }
        let written = self.file.write_at(self.written, bytes);
        written.map_err(AttachmentError::io("write", &self.path))?;
        self.digest.update(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = PIECE - self.written % PIECE;
            let (now, later) = rest.split_at(rest.len().min(usize::try_from(left).unwrap_or(0)));
            self.piece.0.update(now);
            self.written += now.len() as u64;
            if self.written.is_multiple_of(PIECE) {
                self.end_piece();
            }
            rest = later;
        }
        if self.written - self.synced >= SYNC_EVERY {
            self.synced = self.written;
            self.file.sync().map_err(AttachmentError::io("sync", &self.path))?;
        }
        Ok(())
    }

    fn end_piece(&mut self) {
        self.sums.extend_from_slice(&self.piece.0.digest().to_le_bytes());
        let next = piece_seed(&self.sha256, self.written / PIECE);
        self.piece = Xxh3Of(Xxh3::with_seed(next));
    }

    fn wrong_size(&self, found: u64) -> AttachmentError {
        AttachmentError::WrongSize { sha256: self.sha256, expected: self.size, found }
    }

    /// Checks size and digest and makes the file durable under its present name.
    pub fn finish(mut self) -> Result<(), AttachmentError> {
        if self.written != self.size {
            return Err(self.wrong_size(self.written));
        }
        if !self.written.is_multiple_of(PIECE) {
            self.end_piece();
        }
        let found = self.digest.finish();
        if found != self.sha256 {
            return Err(AttachmentError::WrongDigest { expected: self.sha256, found });
        }
        self.sums.extend_from_slice(&trailer(&self.sha256, self.size));
        let written = self.file.write_at(self.size, &self.sums);
        written.map_err(AttachmentError::io("write", &self.path))?;
        self.file.sync().map_err(AttachmentError::io("sync", &self.path))
    }
}

/// Part of a body's file, read piece by piece.
#[derive(Debug)]
pub(super) struct PieceReader {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    sha256: Digest,
    size: u64,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// When all of the body is read.
    digest: Option<Digesting>,
}

impl PieceReader {
    /// Reads the bytes from `from` and before `to`, which must lie in the body.
    pub fn new(
        file: Arc<dyn DiskFile>,
        path: PathBuf,
        (sha256, size): (Digest, u64),
        from: u64,
        to: u64,
    ) -> Self {
        let digest = (from == 0 && to == size).then(Digesting::default);
        Self { file, path, sha256, size, position: from, end: to, buffer: Vec::new(), digest }
    }

    /// Bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.end - self.position
    }

    /// The next bytes, verified; empty at the end.
    pub fn next(&mut self) -> Result<&[u8], AttachmentError> {
        let Self { file, path, sha256, size, position, end, buffer, digest } = self;
        if *position == *end {
            return Ok(&[]);
        }
        let damaged =
            |what: String| AttachmentError::Damaged { sha256: *sha256, file: path.clone(), what };
        let piece = *position / PIECE;
        let begin = piece * PIECE;
        let length = usize::try_from((*size - begin).min(PIECE)).unwrap_or(PIECE_BYTES);
        let mut sum = [0; size_of::<u64>()];
        buffer.resize(length, 0);
        let read = file
            .read_at(begin, buffer)
            .and_then(|()| file.read_at(*size + piece * SUM_BYTES, &mut sum));
        read.map_err(|source| {
            if source.kind() == std::io::ErrorKind::UnexpectedEof {
                return damaged("ends early".into());
            }
            AttachmentError::Io { doing: "read", file: path.clone(), source }
        })?;
        if xxh3_64_with_seed(buffer, piece_seed(sha256, piece)) != u64::from_le_bytes(sum) {
            let last = begin + length as u64;
            return Err(damaged(format!("has changed between bytes {begin} and {last}")));
        }
        let until = (begin + length as u64).min(*end);
        let inside = |at: u64| usize::try_from(at - begin).unwrap_or(PIECE_BYTES);
        let bytes = &buffer[inside(*position)..inside(until)];
        if let Some(mut running) = digest.take() {
            running.update(bytes);
            // Before the last bytes are handed out: who has all of them has the right ones.
            if until < *end {
                *digest = Some(running);
            } else {
                let found = running.finish();
                if found != *sha256 {
                    return Err(damaged(format!("has bytes of SHA-256 {found}")));
                }
            }
        }
        *position = until;
        Ok(bytes)
    }
}
