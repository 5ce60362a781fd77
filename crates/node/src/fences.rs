//! Fences: the partition epoch below which the node obeys nobody, for each slot.

use crate::slot_runs::SlotRuns;
use rota_model::node_msg::SlotRange;
use rota_model::{Epoch, SlotId};

/// The fences of one boot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Fences {
    /// `None` before the registration: no call is obeyed.
    runs: Option<SlotRuns<Epoch>>,
    /// They were raised since [`Self::take_moved`].
    moved: bool,
}

impl Fences {
    /// Those that an earlier agent wrote down.
    pub(crate) fn resumed(runs: SlotRuns<Epoch>) -> Self {
        Self { runs: Some(runs), moved: false }
    }

    /// The fence of every slot. `None` before the registration.
    pub(crate) fn runs(&self) -> Option<&SlotRuns<Epoch>> {
        self.runs.as_ref()
    }

    /// The fence of a slot; 0 before the registration.
    pub(crate) fn at(&self, slot: SlotId) -> Epoch {
        self.runs().map_or(Epoch(0), |it| it.at(slot))
    }

    /// The answer to a registration names the owners. True at the first one.
    pub(crate) fn learn(&mut self, m: u32, owners: &[(SlotRange, Epoch)]) -> bool {
        let is_first = self.runs.is_none();
        let runs = self.runs.get_or_insert_with(|| SlotRuns::new(m));
        for (range, pe) in owners {
            self.moved |= runs.raise(*range, *pe);
        }
        self.moved |= is_first;
        is_first
    }

    /// The fence that stops a call of that epoch, if one does. A call that passes raises the fences of its
    /// range and its slot.
    pub(crate) fn stop(
        &mut self,
        pe: Epoch,
        range: SlotRange,
        slot: Option<SlotId>,
    ) -> Option<Epoch> {
        let runs = self.runs.as_mut()?;
        // The slot lies in the range, if the sender is right about itself. If not, its own fence
        // counts as well.
        let slot = slot.map(|it| SlotRange { first: it, last: it });
        let ranges = [Some(range), slot].into_iter().flatten();
        let fence = ranges.clone().map(|it| runs.highest(it)).max().unwrap_or_default();
        if pe < fence {
            return Some(fence);
        }
        for range in ranges {
            self.moved |= runs.raise(range, pe);
        }
        None
    }

    /// Whether they were raised since this was asked last.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
}
