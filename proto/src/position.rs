//! Page tokens and watch positions: opaque to clients, versioned and checksummed, so that a
//! garbled one is refused instead of leaving sessions out.
//!
//! ```text
//! page token     = hex(version 1 · cursor · checksum over both and what the list asks for)
//! watch position = version 2 · cluster u64 · (partition u32 · pe u64 · seq u64)* · checksum
//! ```
//! Numbers are big-endian; a checksum is 8 bytes of xxh3 with a seed of its own for each kind. The
//! cluster is xxh3 of its name: places in one log say nothing of another cluster's.

use crate::v1;
use bytes::Bytes;
use prost::Message;
use rota_model::{ClusterName, Epoch, FieldError, Filter, ListCursor, LogPos, ManagerNumber, Seq};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const VERSION: u8 = 1;
const WATCH_VERSION: u8 = 2;
const CHECKSUM_BYTES: usize = 8;
const ENTRY_BYTES: usize = 20;
const PAGE_SEED: u64 = 0x7061_6765;
const SEARCH_SEED: u64 = 0x7365_6172;
const DOCUMENTS_SEED: u64 = 0x646f_6373;
const WATCH_SEED: u64 = 0x7761_7463;

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |it: u8| char::from(DIGITS[usize::from(it & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// What a page token continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    /// A list of sessions.
    Sessions,
    /// A list of sessions by a search.
    SessionSearch,
    /// A list of documents.
    Documents,
}

impl TokenKind {
    /// Seeds keep a token of one kind from passing as another.
    fn seed(self) -> u64 {
        match self {
            TokenKind::Sessions => PAGE_SEED,
            TokenKind::SessionSearch => SEARCH_SEED,
            TokenKind::Documents => DOCUMENTS_SEED,
        }
    }

    fn checksum(self, versioned: &[u8], list: &[u8]) -> [u8; CHECKSUM_BYTES] {
        xxh3_64_with_seed(&[versioned, list].concat(), self.seed()).to_be_bytes()
    }
}

/// A page token from a cursor's bytes. The sum covers what the list asks for, too.
pub(crate) fn seal_token(kind: TokenKind, cursor: &[u8], list: &[u8]) -> String {
    let mut bytes = [&[VERSION], cursor].concat();
    let checksum = kind.checksum(&bytes, list);
    bytes.extend_from_slice(&checksum);
    to_hex(&bytes)
}

/// The cursor's bytes in a page token. Refuses, naming `page_token`, what was not sealed for the
/// same list.
pub(crate) fn open_token(kind: TokenKind, token: &str, list: &[u8]) -> Result<Vec<u8>, FieldError> {
    let refused = |problem: &str| FieldError::new("page_token", problem);
    let garbled = || refused("is garbled, or comes from another list");
    let bytes = from_hex(token).ok_or_else(garbled)?;
    let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(garbled)?;
    if *checksum != kind.checksum(body, list) {
        return Err(garbled());
    }
    let [VERSION, cursor @ ..] = body else {
        return Err(refused("was made by another version; start the list again"));
    };
    Ok(cursor.to_vec())
}

/// The page token that continues a list with this filter at a cursor.
pub fn page_token(cursor: &ListCursor, filter: &Filter) -> String {
    let cursor = v1::ListCursor::from(cursor).encode_to_vec();
    seal_token(TokenKind::Sessions, &cursor, &v1::FilterOp::from(filter).encode_to_vec())
}

/// The cursor in a page token. Refuses, naming `page_token`, what was not made by [`page_token`]
/// for the same filter.
pub fn parse_page_token(token: &str, filter: &Filter) -> Result<ListCursor, FieldError> {
    let list = v1::FilterOp::from(filter).encode_to_vec();
    let cursor = open_token(TokenKind::Sessions, token, &list)?;
    let garbled = || FieldError::new("page_token", "is garbled");
    let cursor = v1::ListCursor::decode(&*cursor).map_err(|_| garbled())?;
    ListCursor::try_from(cursor).map_err(|_| garbled())
}

/// How far a watch has come in each partition. Everything up to there was delivered; a partition
/// that is missing has not finished its first snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// Hash of the cluster's name.
    pub cluster: u64,
    /// By partition.
    pub parts: BTreeMap<ManagerNumber, LogPos>,
}

impl Position {
    /// The position of a watch in this cluster that was told nothing yet.
    pub fn start(cluster: &ClusterName) -> Self {
        Self { cluster: xxh3_64(cluster.as_str().as_bytes()), parts: BTreeMap::new() }
    }

    /// Refuses, naming `position`, one that another cluster gave.
    pub fn check_cluster(&self, cluster: &ClusterName) -> Result<(), FieldError> {
        if self.cluster == Self::start(cluster).cluster {
            return Ok(());
        }
        let problem = format!("is of another cluster than {cluster}; watch again without one");
        Err(FieldError::new("position", problem))
    }

    /// The opaque form. Never empty, so that it differs from "no position".
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(9 + self.parts.len() * ENTRY_BYTES + CHECKSUM_BYTES);
        bytes.push(WATCH_VERSION);
        bytes.extend_from_slice(&self.cluster.to_be_bytes());
        for (part, at) in &self.parts {
            bytes.extend_from_slice(&part.0.to_be_bytes());
            bytes.extend_from_slice(&at.pe.0.to_be_bytes());
            bytes.extend_from_slice(&at.seq.0.to_be_bytes());
        }
        let checksum = xxh3_64_with_seed(&bytes, WATCH_SEED);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        bytes.into()
    }

    /// From the opaque form. Refuses, naming `position`, what [`Position::to_bytes`] did not make.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        let refused = |problem: &str| FieldError::new("position", problem);
        let garbled = || refused("is garbled; it must be the position of an earlier answer");
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(garbled)?;
        if u64::from_be_bytes(*checksum) != xxh3_64_with_seed(body, WATCH_SEED) {
            return Err(garbled());
        }
        let [WATCH_VERSION, rest @ ..] = body else {
            return Err(refused("was made by another version; watch again without one"));
        };
        let (cluster, entries) = rest.split_first_chunk().ok_or_else(garbled)?;
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        let parts: BTreeMap<_, _> = entries.iter().filter_map(entry).collect();
        if !rest.is_empty() || parts.len() != entries.len() {
            return Err(garbled());
        }
        Ok(Self { cluster: u64::from_be_bytes(*cluster), parts })
    }
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Option<(ManagerNumber, LogPos)> {
    let (part, rest) = bytes.split_first_chunk::<4>()?;
    let (pe, seq) = rest.split_first_chunk::<8>()?;
    let seq = Seq(u64::from_be_bytes(seq.try_into().ok()?));
    let at = LogPos::new(Epoch(u64::from_be_bytes(*pe)), seq);
    Some((ManagerNumber(u32::from_be_bytes(*part)), at))
}
