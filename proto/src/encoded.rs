//! Documents as bytes. A document goes to every copy and to every disk in the same bytes: its owner
//! makes them once, and a copy writes to its disk what it was sent.

use crate::wire::{WireError, named};
use bytes::Bytes;
use rota_messages::Doc;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The checksum that travels beside a document: its receiver does not look at all that is in it.
pub fn sum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The bytes of documents that are on their way. What is not known is encoded, so it may be
/// emptied at any time; while it is not, it keeps the documents alive.
#[derive(Clone, Debug, Default)]
pub struct DocBytes {
    /// By the document's place in memory, which is its own while it is kept here.
    known: BTreeMap<usize, (Arc<Doc>, Bytes)>,
}

impl DocBytes {
    /// A document's bytes.
    pub fn of(&mut self, doc: &Arc<Doc>) -> Bytes {
        let make = || (doc.clone(), Bytes::from(doc.to_bytes()));
        self.known.entry(Arc::as_ptr(doc).addr()).or_insert_with(make).1.clone()
    }

    /// The document in the bytes that another manager sent, with their [`sum`]; they are kept.
    pub fn read(&mut self, bytes: Bytes, sum: u64) -> Result<Arc<Doc>, WireError> {
        if self::sum(&bytes) != sum {
            let problem = format!("of {} bytes is not what was sent", bytes.len());
            return Err(WireError::new("Write.doc", problem));
        }
        let doc = Arc::new(named("Write.doc", Doc::from_manager(&bytes))?);
        self.known.insert(Arc::as_ptr(&doc).addr(), (doc.clone(), bytes));
        Ok(doc)
    }

    /// Takes over what another one knows.
    pub fn append(&mut self, other: &mut Self) {
        self.known.append(&mut other.known);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::items::Orders;
    use rota_model::{PoolName, Stamp};

    fn pool(decisions: u64) -> Arc<Doc> {
        let orders =
            Orders { decisions, ordered: Vec::new(), lapses_wall_ms: 9, ..Orders::default() };
        Arc::new(Doc::orders_after(None, &PoolName::default_pool(), orders, Stamp::MIN))
    }

    #[test]
    fn a_document_is_encoded_once_and_read_back_with_the_bytes_that_came() {
        let mut here = DocBytes::default();
        let doc = pool(1);
        let bytes = here.of(&doc);
        assert_eq!(here.of(&doc).as_ptr(), bytes.as_ptr());
        let mut there = DocBytes::default();
        let copy = there.read(bytes.clone(), sum(&bytes)).unwrap();
        assert_eq!(copy, doc);
        assert_eq!(there.of(&copy).as_ptr(), bytes.as_ptr());
        here.append(&mut there);
        assert_eq!(here.of(&copy).as_ptr(), bytes.as_ptr());
        here.clear();
        assert_ne!(here.of(&doc).as_ptr(), bytes.as_ptr());
        assert_eq!(here.of(&doc), bytes);
        assert!(there.read(Bytes::from_static(&[7]), sum(&[7])).is_err());
        let error = there.read(bytes.clone(), sum(&bytes) + 1).unwrap_err();
        let length = bytes.len();
        assert_eq!(error.to_string(), format!("Write.doc of {length} bytes is not what was sent"));
    }

    #[test]
    fn documents_that_differ_have_bytes_of_their_own() {
        let mut docs = DocBytes::default();
        let made: Vec<(Arc<Doc>, Bytes)> =
            (0..50).map(pool).map(|doc| (doc.clone(), docs.of(&doc))).collect();
        for (doc, bytes) in made {
            assert_eq!(Doc::from_bytes(&bytes).as_ref(), Ok(&*doc));
        }
    }
}
