//! J1, J3: a partition is cut in two by its owner alone and at rest: every copy has on its disk all
//! that the owner ever wrote to the log. Both halves keep owner and copies, and begin a new epoch.
//! And one newcomer joins at a time, until it has arrived, is out, or has come no further for long.

use super::{Verdict, Violation};
use rota_model::{LogPos, ManagerNumber};
use rota_protocol::Disk;
use rota_ring::View;
use std::collections::BTreeMap;

/// What the observer knows when somebody writes a View.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Who writes.
    pub author: ManagerNumber,
    /// Last entries that runs of the author gave to its disk, by manager and partition.
    pub owner_last: &'a BTreeMap<(ManagerNumber, ManagerNumber), LogPos>,
    /// Every manager's disk.
    pub disks: &'a BTreeMap<ManagerNumber, &'a Disk>,
    /// Nothing changed for so long that a newcomer may be given up.
    pub is_stale: bool,
}

/// Checks one write of the View.
///
/// # Errors
/// A split that was not at rest, or changed more than the range; a transition that overlaps another
/// or ends too early.
pub fn check(before: &View, after: &View, moment: &Moment<'_>) -> Verdict {
    for number in after.parts.keys().filter(|it| !before.parts.contains_key(it)) {
        if let Some(text) = wrong_split(before, after, *number, moment) {
            return Err(Violation::new("split", format!("partition {number}: {text}")));
        }
    }
    let Some(was) = before.transition else { return Ok(()) };
    let number = was.number();
    let is_out = !after.is_up(number);
    let may_end = before.has_arrived(number) || is_out || moment.is_stale;
    if after.transition == Some(was) || (after.transition.is_none() && may_end) {
        return Ok(());
    }
    let text = format!("{was} became {:?}", after.transition);
    Err(Violation::new("one transition", text))
}

fn wrong_split(
    before: &View,
    after: &View,
    number: ManagerNumber,
    moment: &Moment<'_>,
) -> Option<String> {
    let from = after.splits.get(&number).map(|it| it.from)?;
    let (part, rest) = (after.parts.get(&number)?, after.parts.get(&from)?);
    let Some(was) = before.parts.get(&from) else {
        return Some(format!("it comes from {from}, which is new itself"));
    };
    if was.owner != moment.author {
        return Some(format!("M{} cut it out of partition {from}: {was:?}", moment.author));
    }
    let fenced = part.pe == after.epoch && rest.pe == after.epoch;
    let same = part.isr == was.isr && rest.isr == was.isr && rest.owner == was.owner;
    if !fenced || !same || part.state != was.state || part.base_pe != was.base_pe {
        return Some(format!("{was:?} became {part:?} and {rest:?}"));
    }
    let last = moment.owner_last.get(&(moment.author, from)).copied().unwrap_or_default();
    let mut behind = was.isr.iter().filter(|it| {
        let meta = moment.disks.get(&it.number).and_then(|disk| disk.parts.get(&from));
        meta.is_none_or(|meta| meta.last < last)
    });
    behind.next().map(|it| format!("the disk of M{} lacks entries up to {last}", it.number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::{Epoch, Incarnation, ManagerId, ManagerStatus, Nonce, Seq};
    use rota_protocol::PartMeta;
    use rota_ring::Claim;

    const NEW: ManagerNumber = ManagerNumber(15);
    const HOLDER: ManagerNumber = ManagerNumber(20);

    fn joined() -> View {
        let claim = Claim {
            number: NEW,
            id: ManagerId::parse("c").unwrap(),
            grpc: String::new(),
            http: String::new(),
            held: Vec::new(),
            taken: None,
            nonce: Nonce(7),
            disk: BTreeMap::new(),
            times: rota_protocol::Timing::default().of_cluster(),
        };
        view().joined(&claim).unwrap()
    }

    fn disk(seq: u64) -> Disk {
        let last = LogPos::new(Epoch(1), Seq(seq));
        let meta = PartMeta { pe: Epoch(1), last, whole: true, ..PartMeta::default() };
        Disk { parts: BTreeMap::from([(HOLDER, meta)]), ..Disk::default() }
    }

    fn verdict(author: ManagerNumber, after: &View, seqs: [u64; 2]) -> Verdict {
        let owner_last = BTreeMap::from([((HOLDER, HOLDER), LogPos::new(Epoch(1), Seq(seqs[0])))]);
        let (one, two) = (disk(seqs[0]), disk(seqs[1]));
        let disks = BTreeMap::from([(HOLDER, &one), (ManagerNumber(10), &two)]);
        let moment = Moment { author, owner_last: &owner_last, disks: &disks, is_stale: false };
        check(&joined(), after, &moment)
    }

    #[test]
    fn a_split_while_a_copy_lacks_an_entry_is_found() {
        let after = joined().split(NEW).unwrap();
        assert_eq!(verdict(HOLDER, &after, [7, 7]), Ok(()));
        assert!(verdict(HOLDER, &after, [7, 6]).unwrap_err().text.contains("lacks"));
    }

    #[test]
    fn a_split_by_another_without_a_new_epoch_or_with_another_owner_is_found() {
        let after = joined().split(NEW).unwrap();
        assert!(verdict(ManagerNumber(10), &after, [7, 7]).is_err());
        let mut unfenced = after.clone();
        unfenced.parts.get_mut(&HOLDER).unwrap().pe = Epoch(1);
        assert!(verdict(HOLDER, &unfenced, [7, 7]).is_err());
        let mut moved = after;
        moved.parts.get_mut(&NEW).unwrap().isr.truncate(1);
        assert!(verdict(HOLDER, &moved, [7, 7]).is_err());
    }

    #[test]
    fn a_transition_that_ends_before_the_newcomer_has_arrived_is_found() {
        let ended = joined().released().unwrap();
        assert_eq!(verdict(NEW, &ended, [7, 7]).unwrap_err().rule, "one transition");
        let mut out = ended;
        let entry = out.managers.get_mut(&NEW).unwrap();
        (entry.status, entry.incarnation) = (ManagerStatus::Down, Incarnation(1));
        assert_eq!(verdict(NEW, &out, [7, 7]), Ok(()));
    }
}
