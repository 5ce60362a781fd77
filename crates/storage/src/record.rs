//! Records as bytes, each with its checksum.
//!
//! ```text
//! length of key u32 | length of value u32, all ones for a delete | checksum u64 | key | value
//! ```
//! All numbers are little-endian.

use crate::engine::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes before the key.
pub(crate) const HEAD_BYTES: usize = 16;

const DELETED: u32 = u32::MAX;

/// Checksum of a record. It covers key and value and both lengths; `salt` ties it to one file.
/// Two runs of the hash instead of one over both parts, so that nothing has to be copied.
pub fn checksum(salt: u64, key: &[u8], value: Option<&[u8]>) -> u64 {
    let value_length = value.map_or(u64::from(DELETED), |value| value.len() as u64);
    let lengths = ((key.len() as u64) << 32) ^ value_length;
    let of_key = xxh3_64_with_seed(key, salt ^ lengths);
    xxh3_64_with_seed(value.unwrap_or_default(), of_key)
}

/// Appends a record. The lengths were checked against the engine's limits.
pub(crate) fn push(buffer: &mut Vec<u8>, salt: u64, key: &[u8], value: Option<&[u8]>) {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("the limits fit 32 bits");
    buffer.extend_from_slice(&length(key).to_le_bytes());
    buffer.extend_from_slice(&value.map_or(DELETED, length).to_le_bytes());
    buffer.extend_from_slice(&checksum(salt, key, value).to_le_bytes());
    buffer.extend_from_slice(key);
    buffer.extend_from_slice(value.unwrap_or_default());
}

/// Why bytes are no record.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Lengths that no record has, or more than there are bytes.
    Lengths,
    /// The checksum of a record with this key does not match.
    Checksum {
        /// The key as it stands there.
        key: Vec<u8>,
    },
}

impl Fault {
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Lengths => "there is no record of possible length",
            Self::Checksum { .. } => "its checksum does not match",
        }
    }

    pub(crate) fn key(self) -> Option<Vec<u8>> {
        match self {
            Self::Lengths => None,
            Self::Checksum { key } => Some(key),
        }
    }
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    key: usize,
    value: Option<usize>,
    checksum: u64,
}

impl Head {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        let (Some(key), Some(value)) =
            (word(0).map(u32::from_le_bytes), word(4).map(u32::from_le_bytes))
        else {
            return Err(Fault::Lengths);
        };
        let checksum = bytes.get(8..HEAD_BYTES).and_then(|sum| sum.try_into().ok());
        let checksum = u64::from_le_bytes(checksum.ok_or(Fault::Lengths)?);
        let key = key as usize;
        let value = (value != DELETED).then_some(value as usize);
        if key > KEY_BYTES_MAX || value.is_some_and(|value| value > VALUE_BYTES_MAX) {
            return Err(Fault::Lengths);
        }
        Ok(Self { key, value, checksum })
    }

    /// Bytes of the whole record.
    pub(crate) fn record_bytes(&self) -> usize {
        HEAD_BYTES + self.key + self.value.unwrap_or(0)
    }
}

/// A record inside a larger piece of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub key: &'a [u8],
    /// `None` deletes.
    pub value: Option<&'a [u8]>,
    /// Bytes of the whole record.
    pub bytes: usize,
}

/// The record at the beginning of `bytes`, its checksum verified.
pub(crate) fn parse(salt: u64, bytes: &[u8]) -> Result<Record<'_>, Fault> {
    let (head, record) = split(bytes)?;
    if head.checksum != checksum(salt, record.key, record.value) {
        return Err(Fault::Checksum { key: record.key.to_vec() });
    }
    Ok(record)
}

/// The record at the beginning of `bytes`, which were verified before.
pub(crate) fn parse_verified(bytes: &[u8]) -> Result<Record<'_>, Fault> {
    split(bytes).map(|(_, record)| record)
}

fn split(bytes: &[u8]) -> Result<(Head, Record<'_>), Fault> {
    let head = Head::parse(bytes)?;
    let whole = head.record_bytes();
    let body = bytes.get(HEAD_BYTES..whole).ok_or(Fault::Lengths)?;
    let (key, value) = body.split_at(head.key);
    Ok((head, Record { key, value: head.value.map(|_| value), bytes: whole }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for value in [None, Some(&b""[..]), Some(&b"value"[..])] {
            let mut bytes = Vec::new();
            push(&mut bytes, 7, b"key", value);
            bytes.extend_from_slice(b"what follows");
            let record = parse(7, &bytes).expect("it is whole");
            assert_eq!((record.key, record.value), (&b"key"[..], value));
        }
    }

    #[test]
    fn every_changed_bit_and_every_other_salt_is_noticed() {
        let mut bytes = Vec::new();
        push(&mut bytes, 7, b"key", Some(b"value"));
        assert!(matches!(parse(8, &bytes), Err(Fault::Checksum { key }) if key == b"key"));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert!(parse(7, &bytes).is_err(), "bit {bit} of byte {at}");
                bytes[at] ^= 1 << bit;
            }
        }
    }
}
