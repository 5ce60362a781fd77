//! A batch in a segment: what one group commit wrote.
//!
//! ```text
//! magic u32 | kind u32 | seq u64 | bytes of records u64 | checksum of these u64 | records | zeros
//! ```
//! A batch begins at a multiple of eight bytes. Each record carries its own checksum; the batch
//! counts only when all of them match, so that it is there as a whole or not at all.

use crate::engine::KvWrite;
use crate::record::{self, Fault};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes before the records.
pub(super) const HEAD_BYTES: usize = 32;
/// Where batches may begin.
pub(super) const ALIGNMENT: usize = 8;
/// First word of a batch.
pub(super) const MAGIC: u32 = 0x5242_a70d;

/// What a batch says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Records follow.
    Writes,
    /// The log goes on in the next segment, which is there.
    Sealed,
    /// The engine was closed in good order: everything before this was synced.
    Closed,
}

impl Kind {
    fn word(self) -> u32 {
        match self {
            Self::Writes => 1,
            Self::Sealed => 2,
            Self::Closed => 3,
        }
    }
}

/// The fixed part of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub kind: Kind,
    pub seq: u64,
    pub records_bytes: usize,
}

impl Head {
    fn bytes(&self, salt: u64) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.kind.word().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..24].copy_from_slice(&(self.records_bytes as u64).to_le_bytes());
        let sum = xxh3_64_with_seed(&bytes[..24], salt);
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// A head at the beginning of `bytes`, if there is one.
    pub fn parse(bytes: &[u8], salt: u64) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEAD_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside"));
        let long = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside"));
        if word(0) != MAGIC || long(24) != xxh3_64_with_seed(&bytes[..24], salt) {
            return None;
        }
        let kind =
            [Kind::Writes, Kind::Sealed, Kind::Closed].into_iter().find(|k| k.word() == word(4))?;
        let records_bytes = usize::try_from(long(16)).ok()?;
        Some(Self { kind, seq: long(8), records_bytes })
    }

    /// Bytes up to the next batch.
    pub fn batch_bytes(&self) -> usize {
        (HEAD_BYTES + self.records_bytes).next_multiple_of(ALIGNMENT)
    }
}

/// Writes a batch into `buffer`, which is emptied first.
pub(super) fn encode(buffer: &mut Vec<u8>, salt: u64, kind: Kind, seq: u64, writes: &[KvWrite]) {
    buffer.clear();
    buffer.resize(HEAD_BYTES, 0);
    for write in writes {
        record::push(buffer, salt, write.key(), write.value());
    }
    let records_bytes = buffer.len() - HEAD_BYTES;
    buffer[..HEAD_BYTES].copy_from_slice(&Head { kind, seq, records_bytes }.bytes(salt));
    buffer.resize(buffer.len().next_multiple_of(ALIGNMENT), 0);
}

/// Verifies all records of a batch, given the bytes after its head. An error comes with the place
/// of the bad record in them.
pub(super) fn verify(records: &[u8], salt: u64) -> Result<(), (usize, Fault)> {
    let mut at = 0;
    while at < records.len() {
        at += record::parse(salt, &records[at..]).map_err(|fault| (at, fault))?.bytes;
    }
    Ok(())
}
