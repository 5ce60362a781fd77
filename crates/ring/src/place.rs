//! Hashing and the arithmetic of the ring.

use rota_model::node_msg::SlotRange;
use rota_model::{ManagerNumber, Namespace, NodeId, PoolName, SessionKey, SlotId};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

fn slot(hash: u64, m: u32) -> SlotId {
    let slot = hash % u64::from(m.max(1));
    SlotId(u32::try_from(slot).expect("a remainder of a u32 fits a u32"))
}

/// Slot of a session: that of its document.
pub fn slot_of_session(key: &SessionKey, m: u32) -> SlotId {
    slot_of_document(&key.namespace, key.id.as_str(), m)
}

/// Slot of every document of that id, whatever its class: of its namespace and id, separated by
/// NUL (which neither can contain); if the id has a part in braces, as in `{room-1}seat-4`, of
/// that part instead, so that documents that change together can be put together. Of several such
/// parts the first one counts; an empty one is none.
pub fn slot_of_document(namespace: &Namespace, docid: &str, m: u32) -> SlotId {
    let mut hasher = Xxh3::new();
    hasher.update(namespace.as_str().as_bytes());
    hasher.update(&[0]);
    hasher.update(together(docid).as_bytes());
    slot(hasher.digest(), m)
}

/// The part of an id that decides its slot.
pub fn together(docid: &str) -> &str {
    let inside = docid.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    inside.map_or(docid, |(part, _)| if part.is_empty() { docid } else { part })
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
