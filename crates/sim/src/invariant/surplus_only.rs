//! A copy that runs is let go only where r+1 others stay: whoever is nearer in the ring is added first.
//! It may go for other reasons: it was taken out, took its number again, leaves the ring, or needs
//! full content under the epoch of an owner that is about to serve.

use super::{Verdict, Violation};
use rota_model::ManagerNumber;
use rota_protocol::Disk;
use rota_ring::{PartitionEntry, PartitionState, View};
use std::collections::BTreeMap;

/// Checks one write of the View.
///
/// # Errors
/// A copy that was let go too early.
pub fn check(before: &View, after: &View, disks: &BTreeMap<ManagerNumber, &Disk>) -> Verdict {
    let wanted = before.r as usize + 1;
    for (number, was) in &before.parts {
        let Some(part) = after.parts.get(number).filter(|it| it.isr.len() < wanted) else {
            continue;
        };
        // What is found again has one copy; and somebody else may hold more of it.
        if was.state == PartitionState::Recovering || part.state == PartitionState::Recovering {
            continue;
        }
        let gone = was.isr.iter().map(|it| it.number).filter(|it| !part.has(*it));
        let runs_on = |manager: &ManagerNumber| {
            before.is_up(*manager)
                && after.is_up(*manager)
                && before.member(*manager) == after.member(*manager)
        };
        let mut early = gone.filter(runs_on).filter(|it| !is_too_old(*number, was, *it, disks));
        if let Some(early) = early.next() {
            let text = format!(
                "M{early} runs, and is no copy of partition {number} any more: {was:?} became {part:?}"
            );
            return Err(Violation::new("surplus", text));
        }
    }
    Ok(())
}

/// Whether its disk has not seen the owner's epoch: then the owner does not serve yet.
fn is_too_old(
    number: ManagerNumber,
    was: &PartitionEntry,
    member: ManagerNumber,
    disks: &BTreeMap<ManagerNumber, &Disk>,
) -> bool {
    let meta = disks.get(&member).and_then(|disk| disk.parts.get(&number));
    was.owner != member && meta.is_none_or(|meta| meta.last.pe < was.pe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::{Epoch, LogPos, ManagerStatus, Seq};
    use rota_protocol::PartitionMeta;

    const PART: ManagerNumber = ManagerNumber(10);
    const OTHER: ManagerNumber = ManagerNumber(20);

    #[test]
    fn a_copy_that_goes_while_there_are_too_few_is_found() {
        let mut before = view();
        before.managers.values_mut().for_each(|it| it.status = ManagerStatus::Active);
        let mut after = before.clone();
        after.epoch = before.epoch.next();
        let part = after.parts.get_mut(&PART).unwrap();
        (part.pe, part.owner) = (Epoch(2), PART);
        part.isr.retain(|it| it.number == PART);
        let verdict = |after: &View, pe| {
            let last = LogPos::new(Epoch(pe), Seq(7));
            let meta =
                PartitionMeta { pe: Epoch(1), last, whole: true, ..PartitionMeta::default() };
            let disk = Disk { parts: BTreeMap::from([(PART, meta)]), ..Disk::default() };
            check(&before, after, &BTreeMap::from([(OTHER, &disk)]))
        };
        assert_eq!(verdict(&after, 1).unwrap_err().rule, "surplus");
        assert_eq!(verdict(&after, 0), Ok(()), "it needed full content");
        after.managers.get_mut(&OTHER).unwrap().status = ManagerStatus::Down;
        assert_eq!(verdict(&after, 1), Ok(()), "it was taken out");
    }
}
