//! Hashing and the arithmetic of the ring.

use rota_model::{ManagerNumber, NodeId, PoolName, SessionKey, SlotId, node_msg::SlotRange};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

fn slot(hash: u64, m: u32) -> SlotId {
    let slot = hash % u64::from(m.max(1));
    SlotId(u32::try_from(slot).expect("a remainder of a u32 fits a u32"))
}

/// Slot of a key inside a namespace, separated by NUL (which neither can contain).
fn slot_of_key(namespace: &str, key: &str, m: u32) -> SlotId {
    let mut hasher = Xxh3::new();
    hasher.update(namespace.as_bytes());
    hasher.update(&[0]);
    hasher.update(key.as_bytes());
    slot(hasher.digest(), m)
}

/// Slot of a session: of its namespace and id.
pub fn slot_of_session(key: &SessionKey, m: u32) -> SlotId {
    slot_of_key(key.namespace.as_str(), key.id.as_str(), m)
}

/// Slot of a document: of its namespace and id, whatever its class. If the id has a part in braces,
/// as in `{room-1}seat-4`, that part stands for the id: documents with the same part lie beside each
/// other, and beside the session of that id.
///
/// A session's id counts as a whole; pools lie where [`slot_of_pool`] says; and all documents of
/// class `Space` of a namespace, which describe namespaces, lie in one slot, so that one
/// partition has them all.
pub fn slot_of_document(namespace: &str, class: &str, docid: &str, m: u32) -> SlotId {
    match class {
        "session" => slot_of_key(namespace, docid, m),
        "pool" => slot(xxh3_64(docid.as_bytes()), m),
        "Space" => slot_of_key(namespace, "spaces", m),
        _ => slot_of_key(namespace, tag(docid).unwrap_or(docid), m),
    }
}

/// The part in the first pair of braces, if it is not empty.
fn tag(docid: &str) -> Option<&str> {
    let (_, rest) = docid.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// Slot of a node: its owner judges the node.
pub fn slot_of_node(node: &NodeId, m: u32) -> SlotId {
    slot(xxh3_64(node.as_str().as_bytes()), m)
}

/// Slot of a pool: its owner decides about new nodes.
pub fn slot_of_pool(pool: &PoolName, m: u32) -> SlotId {
    slot(xxh3_64(pool.as_str().as_bytes()), m)
}

/// The home of a slot among reserved numbers: the first at or after it, wrapping.
pub fn home<T>(numbers: &BTreeMap<ManagerNumber, T>, slot: SlotId) -> Option<ManagerNumber> {
    let at_or_after = numbers.range(ManagerNumber(slot.0)..).next();
    at_or_after.or_else(|| numbers.iter().next()).map(|(number, _)| *number)
}

/// All numbers in ring order, beginning with `from` (or the first after it), each once.
pub fn ring_from<T>(
    numbers: &BTreeMap<ManagerNumber, T>,
    from: ManagerNumber,
) -> impl Iterator<Item = ManagerNumber> {
    numbers.range(from..).chain(numbers.range(..from)).map(|(number, _)| *number)
}

/// The slots of the partition that ends at `n`: after the previous reserved number, through `n`.
pub fn range<T>(numbers: &BTreeMap<ManagerNumber, T>, n: ManagerNumber, m: u32) -> SlotRange {
    let before = numbers.range(..n).next_back().or_else(|| numbers.iter().next_back());
    let previous = before.map_or(n, |(number, _)| *number);
    SlotRange { first: SlotId((previous.0 + 1) % m.max(1)), last: SlotId(n.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Namespace, SessionId};

    const M: u32 = 16_384;

    fn slot(docid: &str) -> SlotId {
        slot_of_document("shop", "Cart", docid, M)
    }

    #[test]
    fn a_document_lies_beside_the_session_of_its_id() {
        let key = |id: &str| {
            SessionKey::new(Namespace::parse("shop").unwrap(), SessionId::parse(id).unwrap())
        };
        assert_eq!(slot("room-1"), slot_of_session(&key("room-1"), M));
        assert_eq!(
            slot_of_document("shop", "session", "{a}b", M),
            slot_of_session(&key("{a}b"), M)
        );
        let pool = PoolName::parse("p{a}").unwrap();
        assert_eq!(slot_of_document("z", "pool", "p{a}", M), slot_of_pool(&pool, M));
    }

    #[test]
    fn a_part_in_braces_stands_for_the_id() {
        assert_eq!(slot("{room-1}seat-4"), slot("room-1"));
        assert_eq!(slot("seat-5{room-1}x{other}"), slot("room-1"));
        let whole = ["{}seat", "seat{", "}seat{", "{room-1"];
        for docid in whole {
            assert_eq!(slot(docid), slot_of_key("shop", docid, M), "{docid}");
        }
    }

    #[test]
    fn all_descriptions_of_namespaces_lie_in_one_slot() {
        let one = slot_of_document("z", "Space", "shop", M);
        assert_eq!(one, slot_of_document("z", "Space", "{a}other", M));
        assert_ne!(one, slot_of_document("y", "Space", "shop", M));
    }

    #[test]
    fn a_namespace_has_its_own_places() {
        let elsewhere = slot_of_document("y", "Cart", "room-1", M);
        assert_ne!(elsewhere, slot("room-1"));
    }
}
