//! Who finds a partition again gives everybody `recover_after` to say that they hold more of it, and hands it
//! on to who does; only then is it served from what one disk held and the nodes run.

use super::{Verdict, Violation};
use rota_model::{Epoch, ManagerNumber};
use rota_protocol::{Disk, PartitionMeta};
use rota_ring::{PartitionState, View};
use std::collections::BTreeMap;

/// Checks one write of the View. `landed_us` is when Views were written.
///
/// # Errors
/// A partition that was found again before others had the time to be heard.
pub fn check(
    before: &View,
    after: &View,
    landed_us: &BTreeMap<Epoch, u64>,
    (now_us, recover_after_us): (u64, u64),
    disks: &BTreeMap<ManagerNumber, &Disk>,
) -> Verdict {
    for (number, was) in &before.parts {
        let Some(part) = after.parts.get(number) else { continue };
        if was.state != PartitionState::Recovering || part.state == PartitionState::Recovering {
            continue;
        }
        let since_us = landed_us.get(&was.pe).copied().unwrap_or_default();
        // Managers count whole milliseconds.
        if now_us + 1_000 < since_us + recover_after_us {
            let waited_us = now_us.saturating_sub(since_us);
            let others = disks.iter().filter(|(it, _)| **it != was.owner);
            let holds = |meta: &&PartitionMeta| meta.whole && meta.found_from.is_none();
            let metas = others.filter_map(|(_, disk)| disk.parts.get(number)).filter(holds);
            let most = metas.map(|meta| meta.last).max();
            let text = format!(
                "M{} found partition {number} again after {waited_us} us, of {recover_after_us}: \
                 {:?}; of other disks the newest ends at {most:?}",
                was.owner, part.recovered
            );
            return Err(Violation::new("awaited", text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::{Incarnation, ManagerStatus};
    use rota_ring::FoundAgain;

    #[test]
    fn a_partition_that_is_found_again_before_others_were_heard_is_found() {
        let number = ManagerNumber(10);
        let mut founded = view();
        for entry in founded.managers.values_mut() {
            (entry.status, entry.incarnation) = (ManagerStatus::Active, Incarnation(1));
        }
        let owner = founded.member(number).unwrap();
        let before = founded.given_up(number, owner).unwrap();
        let after = before.recovered(number, owner, FoundAgain::default()).unwrap();
        let landed = BTreeMap::from([(before.epoch, 10_000)]);
        let at = |now_us| check(&before, &after, &landed, (now_us, 5_000), &BTreeMap::new());
        assert_eq!(at(12_000).unwrap_err().rule, "awaited");
        assert_eq!(at(15_000), Ok(()));
        assert_eq!(check(&before, &before, &landed, (12_000, 5_000), &BTreeMap::new()), Ok(()));
    }
}
