//! In which slot a document lies, and what a request is about.

use crate::ports::number_keys::of_node;
use rota_docstore::space::SPACE_CLASS;
use rota_docstore::{DocName, Territory};
use rota_messages::api::Place;
use rota_messages::documents::session_numbers_name;
use rota_messages::{DocumentOp, Op};
use rota_model::items::{NUMBER_CLASS, ORDERS_CLASS, POOL_CLASS};
use rota_model::node_msg::SlotRange;
use rota_model::{Namespace, NodeId, PoolName, SlotId};
use rota_ring::{slot_of_document, slot_of_pool, slot_of_session};

/// The slot that a request is about.
pub(crate) fn slot_of_request(op: &Op, m: u32) -> SlotId {
    match op.place() {
        Place::Session(session) => slot_of_session(session, m),
        Place::Node(pool, node) => slot_of(&session_numbers_of(pool, node), m),
        Place::Slot(slot) => SlotId(slot.0.min(m.saturating_sub(1))),
        Place::Documents(op) => slot_of_op(op, m),
    }
}

/// The document of the numbers of a node's sessions. It lies by the node's entry, so that the work is spread.
pub(crate) fn session_numbers_of(pool: &PoolName, node: &NodeId) -> DocName {
    session_numbers_name(&of_node(pool, node).to_string()).expect("names of entries are ids")
}

/// In whose slot all descriptions of namespaces and pools lie, and all stable numbers: one partition has them
/// all.
pub const SPACES_DOCID: &str = "spaces";

/// The slot of a document: that of its id, whatever its class, so that documents can be put beside
/// each other and beside sessions; a memory lies where its document does. Only orders of a pool lie with the
/// pool's owner, and descriptions of namespaces and pools lie together, with all stable numbers.
pub fn slot_of(name: &DocName, m: u32) -> SlotId {
    let space = Namespace::parse(name.space()).expect("it is part of a name");
    if space.as_str() == CONFIGURATION {
        match (name.class(), PoolName::parse(name.docid())) {
            (ORDERS_CLASS, Ok(pool)) => return slot_of_pool(&pool, m),
            (SPACE_CLASS | POOL_CLASS | NUMBER_CLASS, _) => return slot_of_spaces(m),
            (_, _) => {}
        }
    }
    slot_of_document(&space, name.place(), m)
}

/// The slot in which all descriptions of namespaces and pools lie.
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

/// The slot that a request about documents is about.
pub(crate) fn slot_of_op(op: &DocumentOp, m: u32) -> SlotId {
    let inside = |slot: SlotId| SlotId(slot.0.min(m.saturating_sub(1)));
    match op {
        DocumentOp::Operate(operate) => slot_of_document(&operate.request.space, &operate.docid, m),
        DocumentOp::Sync(sync) => inside(sync.slot),
        DocumentOp::Page(page) => inside(page.from.slot),
        DocumentOp::Clear(clear) => inside(clear.from.slot),
        DocumentOp::Import(import) => slot_of(import.document.name(), m),
        DocumentOp::Copy(copy) => slot_of(&copy.name, m),
        DocumentOp::Follow(_) => slot_of_spaces(m),
        DocumentOp::Watch(op) => op.slot,
    }
}

/// The namespace for configuration.
pub const CONFIGURATION: &str = "z";

#[cfg(test)]
mod tests {
    use super::*;

    fn name(space: &str, class: &str, docid: &str) -> DocName {
        DocName::new(&Namespace::parse(space).unwrap(), class, docid).unwrap()
    }

    #[test]
    fn descriptions_lie_together_and_orders_of_a_pool_with_its_owner() {
        let m = 16_384;
        assert_eq!(slot_of(&name("z", "Space", "shop"), m), slot_of_spaces(m));
        assert_eq!(slot_of(&name("z", "Space", "{a}b"), m), slot_of_spaces(m));
        assert_ne!(slot_of(&name("y", "Space", "shop"), m), slot_of_spaces(m));
        assert_eq!(slot_of(&name("z", "Pool", "p"), m), slot_of_spaces(m));
        assert_eq!(slot_of(&name("z", "stable-number", "Pool.last"), m), slot_of_spaces(m));
        let pool = PoolName::parse("p").unwrap();
        assert_eq!(slot_of(&name("z", "orders", "p"), m), slot_of_pool(&pool, m));
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
