//! Documents as records: their keys, and what else stands in the folder.
//!
//! ```text
//! 'd' | slot: u32, big-endian | namespace NUL class NUL docid      a document, or an ended life's trace
//! 'h'                                                              the high-water mark: u64, big-endian
//! ```
//! Keys order by slot, then by name, so the documents of a range of slots are one range of keys. The
//! value of a document is [`Document::to_bytes`]. Every document says its version, so the mark is
//! written only where documents go without a trace.

use crate::engine::KvWrite;
use rota_docstore::{DocName, Document, FieldError, SlotId, Stamp, Territory, Write};

const DOCUMENT: u8 = b'd';
/// Key of the high-water mark.
pub(super) const HIGH_WATER: &[u8] = b"h";
/// Letter and slot.
const HEAD_BYTES: usize = 5;

/// Key of a document: the letter `d`, its slot, and its name as a text.
pub fn document_key(slot: SlotId, name: &DocName) -> Vec<u8> {
    let text = name.as_text().as_bytes();
    let mut key = Vec::with_capacity(HEAD_BYTES + text.len());
    key.push(DOCUMENT);
    key.extend_from_slice(&slot.0.to_be_bytes());
    key.extend_from_slice(text);
    key
}

/// Slot and name in a [`document_key`]; field `key` when it is none.
pub fn read_document_key(key: &[u8]) -> Result<(SlotId, DocName), FieldError> {
    let wrong = || FieldError::new("key", "is not that of a document");
    let (letter, rest) = key.split_first().ok_or_else(wrong)?;
    let (slot, name) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
    if *letter != DOCUMENT {
        return Err(wrong());
    }
    let name = std::str::from_utf8(name).map_err(|_| wrong())?;
    Ok((SlotId(u32::from_be_bytes(*slot)), DocName::from_text(name)?))
}

/// What a record is.
pub(super) enum Record {
    Document(SlotId, Document),
    HighWater(Stamp),
}

/// Reads a record. A document must stand under its own name.
pub(super) fn read(key: &[u8], value: &[u8]) -> Result<Record, FieldError> {
    if key == HIGH_WATER {
        let wrong = |_| FieldError::new("high water", "is not 8 bytes long");
        let number = u64::from_be_bytes(value.try_into().map_err(wrong)?);
        return Ok(Record::HighWater(Stamp::parse(number)?));
    }
    let (slot, name) = read_document_key(key)?;
    let document = Document::from_bytes(value)?;
    if *document.name() != name {
        return Err(FieldError::new(
            "key",
            format!("is that of {name}, not of {}", document.name()),
        ));
    }
    Ok(Record::Document(slot, document))
}

/// Writes of the store as writes of the engine.
pub(super) fn encode(territory: &dyn Territory, writes: &[Write]) -> Vec<KvWrite> {
    let encode = |write: &Write| {
        let key = document_key(territory.slot_of(&write.name), &write.name);
        match &write.after {
            Some(document) => KvWrite::put(key, document.to_bytes()),
            None => KvWrite::delete(key),
        }
    };
    writes.iter().map(encode).collect()
}

/// The high-water mark as a write.
pub(super) fn encode_high_water(mark: Stamp) -> KvWrite {
    KvWrite::put(HIGH_WATER, mark.as_u64().to_be_bytes())
}
