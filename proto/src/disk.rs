//! Keys and values of the storage engine, as bytes.
//!
//! ```text
//! key of a document   = slot (u32, big-endian) · namespace NUL class NUL id
//! value of a document = the document's bytes, which its owner sent to every copy
//! ```
//!
//! Bytes order as [`DocKey`] does: by slot, then by name. So a partition's documents are one range
//! of keys (two when its slots wrap), and a page of a list is a scan.

use crate::record::forgotten_stamp;
use crate::v1;
use crate::wire::{WireError, convert, named};
use prost::Message;
use rota_messages::{Doc, DocKey, DocName, Identity, PartitionMeta};
use rota_model::{Epoch, Incarnation, LogPos, ManagerNumber, Nonce, SlotId};

/// Bytes of a document's key.
pub fn encode_key(key: &DocKey) -> Vec<u8> {
    let name = key.name.as_text().as_bytes();
    let mut bytes = Vec::with_capacity(4 + name.len());
    bytes.extend_from_slice(&key.slot.0.to_be_bytes());
    bytes.extend_from_slice(name);
    bytes
}

/// The lowest key that a slot's documents can have: scans of a slot start here and end before
/// the next slot's.
pub fn first_key_of(slot: SlotId) -> [u8; 4] {
    slot.0.to_be_bytes()
}

/// The document that a key names.
pub fn decode_key(bytes: &[u8]) -> Result<DocKey, WireError> {
    let Some((slot, name)) = bytes.split_first_chunk::<4>() else {
        let problem = format!("is {} bytes long; it has at least 5", bytes.len());
        return Err(WireError::new("key", problem));
    };
    let slot = SlotId(u32::from_be_bytes(*slot));
    let name = std::str::from_utf8(name);
    let name = name.map_err(|error| WireError::new("key", error.to_string()))?;
    Ok(DocKey::new(slot, named("key", DocName::from_text(name))?))
}

/// A document from its key and its bytes; it must say the same name as the key.
pub fn decode_doc(key: &[u8], bytes: &[u8]) -> Result<(DocKey, Doc), WireError> {
    let key = decode_key(key)?;
    let doc = Doc::from_bytes(bytes);
    let doc = doc.map_err(|error| WireError::new("document", format!("{}: {error}", key.name)))?;
    if *doc.name() != key.name {
        let problem = format!("{} stands under the key of {}", doc.name(), key.name);
        return Err(WireError::new("document", problem));
    }
    // The name of the document itself: it is there only once.
    Ok((DocKey::new(key.slot, doc.name().clone()), doc))
}

fn decode<M: Message + Default>(field: &'static str, bytes: &[u8]) -> Result<M, WireError> {
    M::decode(bytes).map_err(|error| WireError::new(field, error.to_string()))
}

/// Key of a partition's [`PartitionMeta`]; orders as the numbers do.
pub fn encode_part_key(part: ManagerNumber) -> [u8; 4] {
    part.0.to_be_bytes()
}

/// The partition that a key names.
pub fn decode_part_key(bytes: &[u8]) -> Result<ManagerNumber, WireError> {
    let number = <[u8; 4]>::try_from(bytes)
        .map_err(|_| WireError::new("part key", format!("is {} bytes long, not 4", bytes.len())))?;
    Ok(ManagerNumber(u32::from_be_bytes(number)))
}

/// Bytes of what a manager knows of a partition.
pub fn encode_part_meta(meta: PartitionMeta) -> Vec<u8> {
    let PartitionMeta { pe, last, whole, forgotten, found_from } = meta;
    let (last, found_from) = (Some(last.into()), found_from.map(Into::into));
    v1::PartitionMeta { pe: pe.0, last, whole, forgotten: forgotten.as_u64(), found_from }
        .encode_to_vec()
}

/// What a manager knows of a partition, from its bytes.
pub fn decode_part_meta(bytes: &[u8]) -> Result<PartitionMeta, WireError> {
    let meta: v1::PartitionMeta = decode("PartitionMeta", bytes)?;
    let last = convert("PartitionMeta.last", meta.last)?;
    let forgotten = forgotten_stamp("PartitionMeta.forgotten", meta.forgotten)?;
    let found_from = meta.found_from.map(LogPos::from);
    Ok(PartitionMeta { pe: Epoch(meta.pe), last, whole: meta.whole, forgotten, found_from })
}

/// Bytes of who a manager is.
pub fn encode_identity(identity: &Identity) -> Vec<u8> {
    let claimed = |(incarnation, nonce): (Incarnation, Nonce)| v1::identity::Claimed {
        incarnation: incarnation.0,
        nonce: nonce.0,
    };
    let taken = identity.taken.map(claimed);
    v1::Identity { taken, intended: identity.intended.map(claimed) }.encode_to_vec()
}

/// Who a manager is, from its bytes.
pub fn decode_identity(bytes: &[u8]) -> Result<Identity, WireError> {
    let claimed = |it: v1::identity::Claimed| (Incarnation(it.incarnation), Nonce(it.nonce));
    let identity: v1::Identity = decode("Identity", bytes)?;
    Ok(Identity { taken: identity.taken.map(claimed), intended: identity.intended.map(claimed) })
}
