//! A value for each slot of the ring, kept as runs of slots with one value: fences, and leases.

use rota_model::SlotId;
use rota_model::node_msg::SlotRange;
use std::collections::BTreeMap;

/// The value of every slot in `[0, m)`. Values only rise. Two with equal values are equal: neighbouring runs never
/// have one value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SlotRuns<V> {
    m: u32,
    /// First slot of each run; the first run starts at 0.
    runs: BTreeMap<SlotId, V>,
}

impl<V: Copy + Ord + Default> SlotRuns<V> {
    /// The lowest value for every slot.
    pub(crate) fn new(m: u32) -> Self {
        Self { m: m.max(1), runs: BTreeMap::from([(SlotId(0), V::default())]) }
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> u32 {
        self.m
    }

    pub(crate) fn at(&self, slot: SlotId) -> V {
        self.runs.range(..=slot).next_back().map(|(_, it)| *it).unwrap_or_default()
    }

    /// The highest value in a range.
    pub(crate) fn highest(&self, range: SlotRange) -> V {
        self.parts(range).map(|(_, value)| value).max().unwrap_or_default()
    }

    /// Raises the values of a range to `value`; higher ones stay. True when that changed any.
    pub(crate) fn raise(&mut self, range: SlotRange, value: V) -> bool {
        let mut raised = false;
        for (first, last) in self.intervals(range) {
            raised |= self.raise_interval(first, last, value);
        }
        raised
    }

    /// All runs: their slots, and what these have.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (SlotRange, V)> + '_ {
        let lasts = self.runs.keys().skip(1).map(|it| it.0).chain([self.m]);
        let run = |((first, value), next): ((&SlotId, &V), u32)| {
            (SlotRange { first: *first, last: SlotId(next - 1) }, *value)
        };
        self.runs.iter().zip(lasts).map(run)
    }

    /// The parts of runs that lie in a range; none of them wraps.
    pub(crate) fn parts(&self, range: SlotRange) -> impl Iterator<Item = (SlotRange, V)> + '_ {
        self.intervals(range).into_iter().flat_map(move |(first, last)| {
            let begins = self.runs.range(..=first).next_back().map_or(first, |it| *it.0);
            let from = self.runs.range(begins..=last);
            let ends = self.runs.range(begins..).skip(1).map(|it| it.0.0).chain([self.m]);
            from.zip(ends).map(move |((run, value), next)| {
                let part = SlotRange { first: first.max(*run), last: last.min(SlotId(next - 1)) };
                (part, *value)
            })
        })
    }

    fn raise_interval(&mut self, first: SlotId, last: SlotId, value: V) -> bool {
        // The common case, an owner that is known already, changes nothing.
        let known = self.runs.range(first..=last).all(|(_, it)| *it >= value);
        if known && self.at(first) >= value {
            return false;
        }
        let behind = SlotId(last.0 + 1);
        self.runs.insert(first, self.at(first));
        if behind.0 < self.m {
            self.runs.insert(behind, self.at(behind));
        }
        for (_, it) in self.runs.range_mut(first..=last) {
            *it = value.max(*it);
        }
        let mut before = None;
        self.runs.retain(|_, it| before.replace(*it) != Some(*it));
        true
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
    use rota_model::Epoch;

    fn range(first: u32, last: u32) -> SlotRange {
        SlotRange { first: SlotId(first), last: SlotId(last) }
    }

    #[test]
    fn a_wrapping_range_is_raised_at_both_ends() {
        let mut fences = SlotRuns::new(10);
        fences.raise(range(8, 1), Epoch(5));
        let all: Vec<u64> = (0..10).map(|it| fences.at(SlotId(it)).0).collect();
        assert_eq!(all, [5, 5, 0, 0, 0, 0, 0, 0, 5, 5]);
        assert_eq!(fences.highest(range(2, 7)), Epoch(0));
        assert_eq!(fences.highest(range(1, 7)), Epoch(5));
        let parts: Vec<_> = fences.parts(range(9, 3)).collect();
        let expected = [(range(0, 1), Epoch(5)), (range(2, 3), Epoch(0)), (range(9, 9), Epoch(5))];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_range_outside_the_ring_meets_the_last_slots_fence() {
        let mut fences = SlotRuns::new(10);
        fences.raise(range(9, 9), Epoch(5));
        assert_eq!(fences.highest(range(40, 50)), Epoch(5));
    }

    proptest! {
        #[test]
        fn runs_and_a_plain_table_always_agree(
            m in 1_u32..12,
            raises in prop::collection::vec((0_u32..12, 0_u32..12, 0_u64..6), 0..12),
            asked in (0_u32..12, 0_u32..12),
        ) {
            let mut fences = SlotRuns::new(m);
            let mut table = vec![Epoch(0); m as usize];
            for (first, last, pe) in raises {
                let (range, pe) = (range(first % m, last % m), Epoch(pe));
                fences.raise(range, pe);
                for slot in (0..m).filter(|it| range.contains(SlotId(*it))) {
                    table[slot as usize] = table[slot as usize].max(pe);
                }
            }
            let range = range(asked.0 % m, asked.1 % m);
            let inside: Vec<u32> = (0..m).filter(|it| range.contains(SlotId(*it))).collect();
            let highest = inside.iter().map(|it| table[*it as usize]).max().unwrap();
            prop_assert_eq!(fences.highest(range), highest);
            let read: Vec<Epoch> = (0..m).map(|it| fences.at(SlotId(it))).collect();
            prop_assert_eq!(&read, &table);
            let slots = |it: SlotRange| it.first.0..=it.last.0;
            let spread = |(it, value)| slots(it).map(move |slot| (slot, value));
            let of_parts: Vec<_> = fences.parts(range).flat_map(spread).collect();
            let of_table: Vec<_> = inside.iter().map(|it| (*it, table[*it as usize])).collect();
            prop_assert_eq!(of_parts, of_table);
            let of_runs: Vec<_> = fences.runs().flat_map(spread).map(|it| it.1).collect();
            prop_assert_eq!(of_runs, table);
            let neighbours: Vec<Epoch> = fences.runs.values().copied().collect();
            prop_assert!(neighbours.windows(2).all(|it| it[0] != it[1]));
        }
    }
}
