//! Who leaves the ring is let go from a partition by its owner alone, at rest (every copy that stays
//! has on its disk all that the owner ever wrote to the log), and only when as many others as the ring
//! wants and can have are copies. It may be out earlier by a suspicion, by a claim of its own, or since
//! it needs full content under the epoch of an owner that is about to serve.

use super::split_at_rest::Moment;
use super::{Verdict, Violation};
use rota_model::ManagerNumber;
use rota_ring::{PartitionEntry, PartitionState, View};

/// Checks one write of the View.
///
/// # Errors
/// A partition that was handed on too early.
pub fn check(before: &View, after: &View, moment: &Moment<'_>) -> Verdict {
    let Some(leaver) = before.leaver().filter(|it| after.leaver() == Some(*it)) else {
        return Ok(());
    };
    if before.member(leaver) != after.member(leaver) {
        return Ok(());
    }
    for (number, was) in before.parts.iter().filter(|(_, part)| part.has(leaver)) {
        let Some(part) = after.parts.get(number).filter(|it| !it.has(leaver)) else { continue };
        // Somebody holds more of what is found again.
        if was.state == PartitionState::Recovering {
            continue;
        }
        if is_too_old(*number, was, leaver, moment) {
            continue;
        }
        if let Some(text) = wrong(before, (*number, was, part), moment) {
            return Err(Violation::new("leave", format!("partition {number}: {text}")));
        }
    }
    Ok(())
}

/// Whether its disk has not seen the owner's epoch: then the owner does not serve yet.
fn is_too_old(
    number: ManagerNumber,
    was: &PartitionEntry,
    leaver: ManagerNumber,
    at: &Moment<'_>,
) -> bool {
    let meta = at.disks.get(&leaver).and_then(|disk| disk.parts.get(&number));
    was.owner != leaver && meta.is_none_or(|meta| meta.last.pe < was.pe)
}

fn wrong(
    before: &View,
    (number, was, part): (ManagerNumber, &PartitionEntry, &PartitionEntry),
    moment: &Moment<'_>,
) -> Option<String> {
    if was.owner != moment.author {
        return Some(format!("M{} let it go: {was:?}", moment.author));
    }
    let up = part.isr.iter().filter(|it| before.is_up(it.number)).count();
    let wanted = before.wanted(number).len();
    if up < wanted.max(1) {
        return Some(format!("{up} copies stay of {wanted}: {was:?} became {part:?}"));
    }
    let stay = part.isr.iter().map(|it| it.number).filter(|it| before.is_up(*it));
    let behind = moment.behind(number, stay);
    behind.map(|(who, last)| format!("the disk of M{who} lacks entries up to {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::{Epoch, Incarnation, LogPos, ManagerStatus, Seq};
    use rota_protocol::{Disk, PartitionMeta};
    use std::collections::BTreeMap;

    const LEAVER: ManagerNumber = ManagerNumber(20);
    const OTHER: ManagerNumber = ManagerNumber(10);

    fn leaving() -> View {
        let mut view = view();
        for entry in view.managers.values_mut() {
            (entry.status, entry.incarnation) = (ManagerStatus::Active, Incarnation(1));
        }
        view.leaving(LEAVER).unwrap()
    }

    fn disk(seq: u64) -> Disk {
        let last = LogPos::new(Epoch(1), Seq(seq));
        let meta = PartitionMeta { pe: Epoch(1), last, whole: true, ..PartitionMeta::default() };
        Disk { parts: BTreeMap::from([(LEAVER, meta)]), ..Disk::default() }
    }

    fn verdict(before: &View, author: ManagerNumber, after: &View, seqs: [u64; 2]) -> Verdict {
        let owner_last = BTreeMap::from([((LEAVER, LEAVER), LogPos::new(Epoch(1), Seq(seqs[0])))]);
        let (one, two) = (disk(seqs[0]), disk(seqs[1]));
        let disks = BTreeMap::from([(LEAVER, &one), (OTHER, &two)]);
        check(before, after, &Moment { author, owner_last: &owner_last, disks: &disks })
    }

    #[test]
    fn a_hand_over_while_a_copy_lacks_an_entry_or_by_another_is_found() {
        let before = leaving();
        let after = before.with_members(LEAVER, &[]).unwrap();
        assert_eq!(verdict(&before, LEAVER, &after, [7, 7]), Ok(()));
        let late = verdict(&before, LEAVER, &after, [7, 6]).unwrap_err();
        assert!(late.rule == "leave" && late.text.contains("lacks"), "{late:?}");
        assert!(verdict(&before, OTHER, &after, [7, 7]).is_err());
    }

    #[test]
    fn a_leave_before_the_copies_are_complete_is_found() {
        let mut before = leaving();
        before.parts.get_mut(&LEAVER).unwrap().isr.retain(|it| it.number == LEAVER);
        let mut after = before.clone();
        after.epoch = before.epoch.next();
        let part = after.parts.get_mut(&LEAVER).unwrap();
        (part.isr, part.owner) = (Vec::new(), OTHER);
        let early = verdict(&before, LEAVER, &after, [7, 7]).unwrap_err();
        assert!(early.text.contains("0 copies stay of 1"), "{early:?}");
    }

    #[test]
    fn who_is_taken_out_while_it_leaves_needs_nobody_to_let_it_go() {
        let before = leaving();
        let after = before.without(&[before.member(LEAVER).unwrap()]).unwrap();
        assert_eq!(verdict(&before, OTHER, &after, [7, 6]), Ok(()));
    }
}
