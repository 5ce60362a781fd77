//! Fences: the highest partition epoch seen for each slot.

use rota_model::node_msg::SlotRange;
use rota_model::{Epoch, SlotId};
use std::collections::BTreeMap;

/// The fence of every slot in `[0, m)`, as runs of slots with one epoch. Two values with the same
/// fences are equal: neighbouring runs never have the same epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Fences {
    m: u32,
    /// First slot of each run; the first run starts at 0.
    runs: BTreeMap<SlotId, Epoch>,
}

impl Fences {
    /// No slot is fenced.
    pub(crate) fn new(m: u32) -> Self {
        Self { m: m.max(1), runs: BTreeMap::from([(SlotId(0), Epoch(0))]) }
    }

    pub(crate) fn at(&self, slot: SlotId) -> Epoch {
        self.runs.range(..=slot).next_back().map_or(Epoch(0), |(_, pe)| *pe)
    }

    /// The highest fence of a range.
    pub(crate) fn highest(&self, range: SlotRange) -> Epoch {
        let highest = self.intervals(range).into_iter().map(|(first, last)| {
            let inside = self.runs.range(first..=last).map(|(_, pe)| *pe).max();
            self.at(first).max(inside.unwrap_or_default())
        });
        highest.max().unwrap_or_default()
    }

    /// Raises the fences of a range to `pe`; higher ones stay.
    pub(crate) fn raise(&mut self, range: SlotRange, pe: Epoch) {
        for (first, last) in self.intervals(range) {
            self.raise_interval(first, last, pe);
        }
    }

    fn raise_interval(&mut self, first: SlotId, last: SlotId, pe: Epoch) {
        // The common case, an owner that is known already, changes nothing.
        let known = self.runs.range(first..=last).all(|(_, it)| *it >= pe);
        if known && self.at(first) >= pe {
            return;
        }
        let behind = SlotId(last.0 + 1);
        self.runs.insert(first, self.at(first));
        if behind.0 < self.m {
            self.runs.insert(behind, self.at(behind));
        }
        for (_, fence) in self.runs.range_mut(first..=last) {
            *fence = pe.max(*fence);
        }
        let mut before = None;
        self.runs.retain(|_, fence| before.replace(*fence) != Some(*fence));
    }

    /// The range as non-wrapping intervals. What lies outside the ring counts as its last slot: a
    /// sender that is wrong about the ring's size must not slip past a fence.
    fn intervals(&self, range: SlotRange) -> Vec<(SlotId, SlotId)> {
        let last_slot = SlotId(self.m - 1);
        let range =
            SlotRange { first: range.first.min(last_slot), last: range.last.min(last_slot) };
        range.intervals(self.m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(first: u32, last: u32) -> SlotRange {
        SlotRange { first: SlotId(first), last: SlotId(last) }
    }

    #[test]
    fn a_wrapping_range_is_raised_at_both_ends() {
        let mut fences = Fences::new(10);
        fences.raise(range(8, 1), Epoch(5));
        let all: Vec<u64> = (0..10).map(|it| fences.at(SlotId(it)).0).collect();
        assert_eq!(all, [5, 5, 0, 0, 0, 0, 0, 0, 5, 5]);
        assert_eq!(fences.highest(range(2, 7)), Epoch(0));
        assert_eq!(fences.highest(range(1, 7)), Epoch(5));
    }

    #[test]
    fn a_range_outside_the_ring_meets_the_last_slots_fence() {
        let mut fences = Fences::new(10);
        fences.raise(range(9, 9), Epoch(5));
        assert_eq!(fences.highest(range(40, 50)), Epoch(5));
    }

    proptest! {
        #[test]
        fn runs_and_a_plain_table_always_agree(
            m in 1_u32..12,
            raises in prop::collection::vec((0_u32..12, 0_u32..12, 0_u64..6), 0..12),
        ) {
            let mut fences = Fences::new(m);
            let mut table = vec![Epoch(0); m as usize];
            for (first, last, pe) in raises {
                let (range, pe) = (range(first % m, last % m), Epoch(pe));
                fences.raise(range, pe);
                for slot in (0..m).filter(|it| range.contains(SlotId(*it))) {
                    table[slot as usize] = table[slot as usize].max(pe);
                }
                let inside = (0..m).filter(|it| range.contains(SlotId(*it)));
                let highest = inside.map(|it| table[it as usize]).max().unwrap();
                prop_assert_eq!(fences.highest(range), highest);
            }
            let read: Vec<Epoch> = (0..m).map(|it| fences.at(SlotId(it))).collect();
            prop_assert_eq!(read, table);
            let neighbours: Vec<Epoch> = fences.runs.values().copied().collect();
            prop_assert!(neighbours.windows(2).all(|it| it[0] != it[1]));
        }
    }
}
