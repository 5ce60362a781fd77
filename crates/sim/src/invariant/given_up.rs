//! S2, the other way round: a partition is given up only when the disk of its last copy was really lost.

use super::{Verdict, Violation};
use rota_model::{Epoch, ManagerNumber};
use rota_ring::{PartitionState, View};
use std::collections::BTreeMap;

/// Partitions that a write of the View gives up.
pub fn newly(was: &View, view: &View) -> Vec<ManagerNumber> {
    let is_new = |number: &ManagerNumber| {
        was.parts.get(number).is_none_or(|it| it.state == PartitionState::Active)
    };
    let parts = view.parts.iter().filter(|(_, part)| part.state == PartitionState::Recovering);
    parts.map(|(number, _)| *number).filter(is_new).collect()
}

/// Checks one write. `lost_us` is when disks were lost, `landed_us` when Views were written; a write may
/// land `late_us` after what it is about.
///
/// # Errors
/// A partition is given up although its last copy had its disk since it became one.
pub fn check(
    was: &View,
    view: &View,
    lost_us: &BTreeMap<ManagerNumber, u64>,
    landed_us: &BTreeMap<Epoch, u64>,
    late_us: u64,
) -> Verdict {
    for number in newly(was, view) {
        let (before, after) = (was.parts.get(&number), view.parts.get(&number));
        let (Some(before), Some(after)) = (before, after) else { continue };
        let member = before.isr.iter().find(|it| it.number == after.owner);
        let since_us = member.and_then(|it| landed_us.get(&it.since)).copied().unwrap_or_default();
        let lost = lost_us.get(&after.owner).is_some_and(|it| it + late_us >= since_us);
        if !lost {
            let text = format!(
                "partition {number} is given up by M{}, which lost no disk since it is a copy: \
                 {before:?}",
                after.owner
            );
            return Err(Violation::new("given up", text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;

    #[test]
    fn a_partition_that_is_given_up_with_its_last_disk_at_hand_is_found() {
        let (was, number) = (view(), ManagerNumber(10));
        let owner = was.member(number).unwrap();
        let given_up = was.given_up(number, owner);
        let mut after = was.clone();
        after.epoch = was.epoch.next();
        after.parts.get_mut(&number).unwrap().state = PartitionState::Recovering;
        let after = given_up.unwrap_or(after);
        let landed = BTreeMap::from([(Epoch(1), 500)]);
        let check = |lost: &BTreeMap<_, _>| check(&was, &after, lost, &landed, 0);
        assert_eq!(check(&BTreeMap::new()).unwrap_err().rule, "given up");
        assert!(check(&BTreeMap::from([(number, 400)])).is_err(), "it was learned again since");
        assert_eq!(check(&BTreeMap::from([(number, 600)])), Ok(()));
    }
}
