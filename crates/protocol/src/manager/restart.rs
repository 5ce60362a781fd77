//! What a manager takes up from its disk.

use crate::log::env::Env;
use crate::partition::partitions::Partitions;
use crate::partition::state::Partition;
use rota_messages::Disk;
use rota_model::SlotId;
use rota_model::node_msg::SlotRange;
use std::collections::BTreeMap;

/// The partitions on a disk. Slots belong to the first partition at or after them.
pub(crate) fn parts_of(env: &mut Env, disk: &Disk) -> Partitions {
    let mut parts = BTreeMap::new();
    for (number, meta) in &disk.parts {
        // The range follows from the View; until then only the number counts.
        let range = SlotRange { first: SlotId(number.0), last: SlotId(number.0) };
        let mut part = Partition::new(*number, range);
        part.log.replica.pe = meta.pe;
        part.log.replica.last = meta.last;
        part.log.replica.durable = meta.last;
        // A disk is taken up either as the only copy (then all of it counts) or as the base of a
        // snapshot: nothing above a committed position needs to be told apart.
        part.log.replica.committed = meta.last;
        part.log.replica.base = meta.last;
        part.log.replica.whole = meta.whole;
        part.log.replica.found_from = meta.found_from;
        part.log.replica.raise_water(meta.forgotten);
        env.stamps.forgotten = env.stamps.forgotten.max(meta.forgotten);
        parts.insert(*number, part);
    }
    for (key, doc) in &disk.docs {
        if let Some(number) = rota_ring::place::home(&parts, key.slot)
            && let Some(part) = parts.get_mut(&number)
        {
            part.log.replica.set(key, Some(doc.clone()));
        }
    }
    parts.into_values().collect()
}
