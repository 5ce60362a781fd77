//! The first bytes of every file of the log engine.

use crate::error::EngineError;
use crate::layout::FORMAT;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a head. Batches and records follow at once.
pub(super) const HEAD_BYTES: usize = 64;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Segment,
    Checkpoint,
}

impl Role {
    fn magic(self) -> [u8; 8] {
        match self {
            Self::Segment => *b"ROTA-LOG",
            Self::Checkpoint => *b"ROTA-CKP",
        }
    }
}

/// A head: eight words, little-endian, the last a checksum of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub role: Role,
    /// Segment: its own number. Checkpoint: the segment that goes on where it ends.
    pub number: u64,
    /// Segment: sequence number of its first batch. Checkpoint: of the last batch in it.
    pub seq: u64,
    /// Seed of every checksum in the file, new for each. What an earlier use of the same blocks
    /// left behind, or what a client put into a value, never passes for a record or a batch.
    pub salt: u64,
    /// Sum of the folder's label.
    pub label: u64,
    /// Segment: its blocks were used before, so what follows the last batch is no sign of a tear.
    pub recycled: bool,
}

impl Head {
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let words = [
            u64::from_le_bytes(self.role.magic()),
            u64::from(FORMAT),
            self.number,
            self.seq,
            self.salt,
            self.label,
            u64::from(self.recycled),
        ];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&bytes[..HEAD_BYTES - 8]);
        bytes[HEAD_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a head, of a file that must have this role and belong to this label.
    pub fn parse(
        bytes: &[u8; HEAD_BYTES],
        role: Role,
        label: u64,
        file: &Path,
    ) -> Result<Self, EngineError> {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
        }
        let [magic, format, number, seq, salt, found, recycled, sum] = words;
        if magic != u64::from_le_bytes(role.magic()) {
            return Err(EngineError::damaged(file, 0, "it does not begin as such a file does"));
        }
        if format != u64::from(FORMAT) {
            let file = file.to_owned();
            return Err(EngineError::OtherFormat {
                file,
                found: format.to_string(),
                wanted: FORMAT,
            });
        }
        if sum != xxh3_64(&bytes[..HEAD_BYTES - 8]) {
            return Err(EngineError::damaged(file, 0, "the checksum of its head does not match"));
        }
        if found != label {
            return Err(EngineError::damaged(file, 0, "it was made for another folder"));
        }
        Ok(Self { role, number, seq, salt, label, recycled: recycled != 0 })
    }
}

/// A number that nobody can foresee. It decides nothing; it only keeps files apart.
pub(super) fn new_salt() -> u64 {
    RandomState::new().build_hasher().finish()
}
