//! The documents of one partition, as an operation sees them at its owner.

use super::holdings::Beside;
use super::registry::CONFIGURATION;
use crate::replica::Replica;
use rota_docstore::attempt::Remembered;
use rota_docstore::space::SPACE_CLASS;
use rota_docstore::{DocName, Document, Documents, Spaces, Territory, Usage};
use rota_messages::DocKey;
use rota_model::items::POOL_CLASS;
use rota_model::node_msg::SlotRange;
use rota_model::{Namespace, PoolName, SlotId, Stamp};
use rota_ring::{slot_of_document, slot_of_pool};
use std::sync::Arc;

/// In whose slot all descriptions of namespaces lie: one partition has them all.
pub const SPACES_DOCID: &str = "spaces";

/// The slot of a document: that of its id, whatever its class, so that documents can be put beside
/// each other and beside sessions; a memory lies where its document does. Only pools lie where they
/// have always been, and descriptions of namespaces lie together.
pub fn slot_of(name: &DocName, m: u32) -> SlotId {
    let space = Namespace::parse(name.space()).expect("it is part of a name");
    if space.as_str() == CONFIGURATION {
        match (name.class(), PoolName::parse(name.docid())) {
            (POOL_CLASS, Ok(pool)) => return slot_of_pool(&pool, m),
            (SPACE_CLASS, _) => return slot_of_spaces(m),
            (_, _) => {}
        }
    }
    slot_of_document(&space, name.place(), m)
}

/// The slot in which all descriptions of namespaces lie.
pub fn slot_of_spaces(m: u32) -> SlotId {
    let z = Namespace::parse(CONFIGURATION).expect("z is a name");
    slot_of_document(&z, SPACES_DOCID, m)
}

/// The slots of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub m: u32,
    pub range: SlotRange,
}

impl Territory for Slots {
    fn slot_of(&self, name: &DocName) -> SlotId {
        slot_of(name, self.m)
    }

    fn holds(&self, slot: SlotId) -> bool {
        self.range.intervals(self.m).iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// The slots of one partition, for an operation at one of them. Which other slots are here depends on
/// how many managers there are, so it changes no document of theirs, and none is brought up to date
/// after it: a client would be refused on one day and not on the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtSlot {
    pub slots: Slots,
    pub slot: SlotId,
}

impl Territory for AtSlot {
    fn slot_of(&self, name: &DocName) -> SlotId {
        self.slots.slot_of(name)
    }

    fn holds(&self, slot: SlotId) -> bool {
        self.slots.holds(slot)
    }

    fn serves(&self, slot: SlotId) -> bool {
        slot == self.slot
    }
}

/// The documents of a partition with everything that was appended.
pub(crate) struct Here<'a> {
    pub replica: &'a Replica,
    pub spaces: &'a Spaces,
    /// What other partitions hold.
    pub beside: Beside<'a>,
    pub m: u32,
    /// No version below this is given out.
    pub floor: Stamp,
    /// A time that has come: see [`Documents::clock`].
    pub clock: Stamp,
}

impl Documents for Here<'_> {
    fn get(&self, name: &DocName) -> Option<Arc<Document>> {
        let key = DocKey::new(slot_of(name, self.m), name.clone());
        self.replica.get(&key).map(|doc| doc.document().clone())
    }

    fn high_water(&self) -> Stamp {
        self.floor
    }

    fn clock(&self) -> Stamp {
        self.clock
    }

    fn spaces(&self) -> &Spaces {
        self.spaces
    }

    fn usage(&self, space: &str) -> Usage {
        self.replica.usage(space).plus(self.beside.usage(space))
    }

    fn remembered(&self) -> Remembered {
        self.replica.remembered()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(space: &str, class: &str, docid: &str) -> DocName {
        DocName::new(&Namespace::parse(space).unwrap(), class, docid).unwrap()
    }

    #[test]
    fn descriptions_of_namespaces_lie_together_and_pools_where_they_were() {
        let m = 16_384;
        assert_eq!(slot_of(&name("z", "Space", "shop"), m), slot_of_spaces(m));
        assert_eq!(slot_of(&name("z", "Space", "{a}b"), m), slot_of_spaces(m));
        assert_ne!(slot_of(&name("y", "Space", "shop"), m), slot_of_spaces(m));
        let pool = PoolName::parse("p").unwrap();
        assert_eq!(slot_of(&name("z", "pool", "p"), m), slot_of_pool(&pool, m));
        let cart = slot_of(&name("shop", "Cart", "{room-1}c"), m);
        assert_eq!(cart, slot_of(&name("shop", "session", "room-1"), m));
    }

    #[test]
    fn a_partition_holds_its_slots_also_around_the_end_of_the_ring() {
        let slots = |first, last| Slots {
            m: 100,
            range: SlotRange { first: SlotId(first), last: SlotId(last) },
        };
        let held = |it: Slots| [0, 9, 10, 20, 21, 90, 99].map(|slot| it.holds(SlotId(slot)));
        assert_eq!(held(slots(10, 20)), [false, false, true, true, false, false, false]);
        assert_eq!(held(slots(90, 9)), [true, true, false, false, false, true, true]);
    }
}
