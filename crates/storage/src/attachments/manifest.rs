//! The first entry of an export: what it holds.

use super::{AttachmentError, Digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the first entry.
pub(super) const NAME: &str = "attachments.json";
/// Version of the exports.
pub(super) const FORMAT: u64 = 1;
/// Most attachments in one export: its list is the only part that is held in memory as a whole.
pub const ENTRIES_MAX: usize = 65_536;
/// Longest key, as for all items.
const KEY_BYTES_MAX: usize = 255;
/// Longest list: the most entries with the longest keys, where hardly a byte must be escaped.
const BYTES_MAX: u64 = 32 * 1024 * 1024;

/// An attachment of a document: which key names which body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Key of the item; at most 255 bytes, without NUL.
    pub key: String,
    /// The body.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
}

/// Whether a body travels in the export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Body {
    Sent,
    Held,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: String,
    sha256: String,
    size: u64,
    body: Body,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: u64,
    version: u64,
    attachments: Vec<Entry>,
}

/// What every format begins with.
#[derive(Deserialize)]
struct Beginning {
    format: u64,
}

/// Refuses a list that is too long.
pub(super) fn check_length(found: u64) -> Result<(), AttachmentError> {
    let (what, limit) = ("the length of the list of an export in bytes", BYTES_MAX);
    if found > limit {
        return Err(AttachmentError::TooLarge { what, found, limit });
    }
    Ok(())
}

/// A list that was checked: no key stands in it twice, and one body has one size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    /// Version of the document.
    pub version: u64,
    /// In order of keys.
    pub attachments: Vec<Named>,
    /// Bodies that travel, each once, with their sizes.
    pub sent: BTreeMap<Digest, u64>,
    /// Bodies that the receiver has.
    pub held: BTreeSet<Digest>,
}

impl Manifest {
    /// Checks a list; `is_held` says which bodies need not travel.
    pub fn new(
        version: u64,
        mut attachments: Vec<Named>,
        is_held: impl Fn(&Digest) -> bool,
    ) -> Result<Self, AttachmentError> {
        if attachments.len() > ENTRIES_MAX {
            let (found, limit) = (attachments.len() as u64, ENTRIES_MAX as u64);
            let what = "the number of attachments in an export";
            return Err(AttachmentError::TooLarge { what, found, limit });
        }
        attachments.sort_by(|a, b| a.key.cmp(&b.key));
        let (mut sent, mut held) = (BTreeMap::new(), BTreeSet::new());
        let mut sizes = BTreeMap::new();
        let mut before: Option<&str> = None;
        for Named { key, sha256, size } in &attachments {
            let refused = |what: &str| {
                Err(AttachmentError::bad_export(format!("key \"{}\"", key.escape_debug()), what))
            };
            if key.len() > KEY_BYTES_MAX {
                let (found, limit) = (key.len() as u64, KEY_BYTES_MAX as u64);
                let what = "the length of a key in bytes";
                return Err(AttachmentError::TooLarge { what, found, limit });
            }
            if key.contains('\0') {
                return refused("it holds a NUL");
            }
            if before == Some(key) {
                return refused("it stands there twice");
            }
            if *sizes.entry(*sha256).or_insert(*size) != *size {
                return refused("its body stands there with another size too");
            }
            if is_held(sha256) {
                held.insert(*sha256);
            } else {
                sent.insert(*sha256, *size);
            }
            before = Some(key);
        }
        Ok(Self { version, attachments, sent, held })
    }

    /// As JSON, unless it is longer than a receiver takes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, AttachmentError> {
        let entry = |named: &Named| Entry {
            key: named.key.clone(),
            sha256: named.sha256.to_string(),
            size: named.size,
            body: if self.held.contains(&named.sha256) { Body::Held } else { Body::Sent },
        };
        let attachments = self.attachments.iter().map(entry).collect();
        let text = Text { format: FORMAT, version: self.version, attachments };
        let bytes = serde_json::to_vec(&text).expect("texts and numbers become JSON");
        check_length(bytes.len() as u64)?;
        Ok(bytes)
    }

    /// Reads JSON that came from elsewhere.
    pub fn parse(bytes: &[u8]) -> Result<Self, AttachmentError> {
        let bad = |error: serde_json::Error| AttachmentError::bad_export(NAME, error.to_string());
        let Beginning { format } = serde_json::from_slice(bytes).map_err(bad)?;
        if format != FORMAT {
            return Err(AttachmentError::OtherExportFormat { found: format, wanted: FORMAT });
        }
        let text: Text = serde_json::from_slice(bytes).map_err(bad)?;
        let mut bodies = BTreeMap::new();
        let mut attachments = Vec::with_capacity(text.attachments.len());
        for Entry { key, sha256, size, body } in text.attachments {
            let refused = |what| {
                Err(AttachmentError::bad_export(format!("key \"{}\"", key.escape_debug()), what))
            };
            let Some(sha256) = sha256.parse::<Digest>().ok() else {
                return refused("its sha256 is not 64 lower-case hexadecimal digits");
            };
            if *bodies.entry(sha256).or_insert(body) != body {
                return refused("its body is said to be both sent and held");
            }
            attachments.push(Named { key, sha256, size });
        }
        let is_held = |sha256: &Digest| bodies.get(sha256) == Some(&Body::Held);
        Self::new(text.version, attachments, is_held)
    }
}
