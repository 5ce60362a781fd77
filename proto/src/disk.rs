//! Keys and values of the storage engine, as bytes.
//!
//! ```text
//! key of a document = slot (u32, big-endian) · kind · name
//!     session:  kind 1, namespace NUL id      (no name contains NUL)
//!     pool:     kind 2, name
//! ```
//!
//! Bytes order as [`DocKey`] does: by slot, sessions before pools, then by name. So a partition's
//! documents are one range of keys (two when its slots wrap), and a page of a list is a scan.

use crate::record::forgotten_stamp;
use crate::v1;
use crate::wire::{WireError, convert, named};
use prost::Message;
use rota_model::{
    Epoch, Incarnation, ManagerNumber, Namespace, Nonce, PoolName, SessionId, SessionKey, SlotId,
};
use rota_protocol::{Doc, DocKey, DocName, Identity, PartMeta};

const KIND_SESSION: u8 = 1;
const KIND_POOL: u8 = 2;

/// Bytes of a document's key.
pub fn encode_key(key: &DocKey) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(&key.slot.0.to_be_bytes());
    match &key.name {
        DocName::Session(session) => {
            bytes.push(KIND_SESSION);
            bytes.extend_from_slice(session.namespace.as_str().as_bytes());
            bytes.push(0);
            bytes.extend_from_slice(session.id.as_str().as_bytes());
        }
        DocName::Pool(pool) => {
            bytes.push(KIND_POOL);
            bytes.extend_from_slice(pool.as_str().as_bytes());
        }
    }
    bytes
}

/// The lowest key that a slot's documents can have: scans of a slot start here and end before
/// the next slot's.
pub fn first_key_of(slot: SlotId) -> [u8; 4] {
    slot.0.to_be_bytes()
}

fn text<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, WireError> {
    std::str::from_utf8(bytes).map_err(|error| WireError::new(field, error.to_string()))
}

/// The document that a key names.
pub fn decode_key(bytes: &[u8]) -> Result<DocKey, WireError> {
    let Some((slot, [kind, name @ ..])) = bytes.split_first_chunk::<4>() else {
        let problem = format!("is {} bytes long; it has at least 5", bytes.len());
        return Err(WireError::new("key", problem));
    };
    let slot = SlotId(u32::from_be_bytes(*slot));
    let name = match *kind {
        KIND_SESSION => {
            let Some((namespace, id)) = text("key", name)?.split_once('\0') else {
                return Err(WireError::new("key", "of a session has no NUL"));
            };
            let namespace = named("key", Namespace::parse(namespace))?;
            DocName::Session(SessionKey::new(namespace, named("key", SessionId::parse(id))?))
        }
        KIND_POOL => DocName::Pool(named("key", PoolName::parse(text("key", name)?))?),
        other => {
            return Err(WireError::new("key", format!("has the unknown kind {other}")));
        }
    };
    Ok(DocKey { slot, name })
}

/// Bytes of a document.
pub fn encode_doc(doc: &Doc) -> Vec<u8> {
    v1::Doc::from(doc).encode_to_vec()
}

fn decode<M: Message + Default>(field: &'static str, bytes: &[u8]) -> Result<M, WireError> {
    M::decode(bytes).map_err(|error| WireError::new(field, error.to_string()))
}

/// A document from its bytes.
pub fn decode_doc(bytes: &[u8]) -> Result<Doc, WireError> {
    decode::<v1::Doc>("Doc", bytes)?.try_into()
}

/// Key of a partition's [`PartMeta`]; orders as the numbers do.
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
pub fn encode_part_meta(meta: PartMeta) -> Vec<u8> {
    let PartMeta { pe, last, whole, forgotten } = meta;
    v1::PartMeta { pe: pe.0, last: Some(last.into()), whole, forgotten: forgotten.as_u64() }
        .encode_to_vec()
}

/// What a manager knows of a partition, from its bytes.
pub fn decode_part_meta(bytes: &[u8]) -> Result<PartMeta, WireError> {
    let meta: v1::PartMeta = decode("PartMeta", bytes)?;
    let last = convert("PartMeta.last", meta.last)?;
    let forgotten = forgotten_stamp("PartMeta.forgotten", meta.forgotten)?;
    Ok(PartMeta { pe: Epoch(meta.pe), last, whole: meta.whole, forgotten })
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
