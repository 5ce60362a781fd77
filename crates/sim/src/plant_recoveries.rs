//! Planted bugs of partitions that are found again: what is done to the compare-and-sets by which they are
//! given up, and to the scans of nodes.

use crate::plant::head_mut;
use crate::world::World;
use rota_model::node_msg::ToNode;
use rota_model::{Epoch, SlotId};
use rota_ring::{Change, PartState, View};

impl World {
    /// What is to be found again is served at once.
    pub(crate) fn skip_recovery(&self, change: &mut Change) {
        if let Some((before, view)) = self.store.state().view.as_ref().zip(change.view.as_mut()) {
            skip_recovery(before, view);
        }
    }
}

/// A View that gives partitions up has them active instead.
pub(crate) fn skip_recovery(before: &View, view: &mut View) {
    for number in crate::invariant::given_up::newly(before, view) {
        if let Some(part) = view.parts.get_mut(&number) {
            (part.state, part.loss) = (PartState::Active, None);
        }
    }
}

/// A scan raises no fence: it comes under the highest epoch that the node obeys there already.
pub(crate) fn lower_epoch(message: &mut ToNode, m: u32, fence: impl Fn(SlotId) -> Epoch) {
    let range = message.head().range;
    let known = (0..m).map(SlotId).filter(|it| range.contains(*it)).map(fence).max();
    let head = head_mut(message);
    head.pe = known.unwrap_or(head.pe).min(head.pe);
}
