//! J1, J3: a partition is cut in two by its owner alone and at rest: every copy has on its disk all
//! that the owner ever wrote to the log. Both halves keep owner and copies, and begin a new epoch.

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
}

impl Moment<'_> {
    /// Who of these lacks something on its disk that the author gave to its own, as owner of a
    /// partition; and the last entry that it gave.
    pub fn behind(
        &self,
        number: ManagerNumber,
        members: impl IntoIterator<Item = ManagerNumber>,
    ) -> Option<(ManagerNumber, LogPos)> {
        let last = self.owner_last.get(&(self.author, number)).copied().unwrap_or_default();
        let mut behind = members.into_iter().filter(|member| {
            let meta = self.disks.get(member).and_then(|disk| disk.parts.get(&number));
            meta.is_none_or(|meta| meta.last < last)
        });
        behind.next().map(|it| (it, last))
    }
}

/// Checks one write of the View.
///
/// # Errors
/// A split that was not at rest, or changed more than the range.
pub fn check(before: &View, after: &View, moment: &Moment<'_>) -> Verdict {
    for number in after.parts.keys().filter(|it| !before.parts.contains_key(it)) {
        if let Some(text) = wrong_split(before, after, *number, moment) {
            return Err(Violation::new("split", format!("partition {number}: {text}")));
        }
    }
    Ok(())
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
    let behind = moment.behind(from, was.isr.iter().map(|it| it.number));
    behind.map(|(who, last)| format!("the disk of M{who} lacks entries up to {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::{Epoch, ManagerId, Nonce, Seq};
    use rota_protocol::PartitionMeta;
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
            force_lost: false,
            times: rota_protocol::Timing::default().of_cluster(),
            peer_times: rota_protocol::Timing::default().of_peers(),
        };
        view().joined(&claim).unwrap()
    }

    fn disk(seq: u64) -> Disk {
        let last = LogPos::new(Epoch(1), Seq(seq));
        let meta = PartitionMeta { pe: Epoch(1), last, whole: true, ..PartitionMeta::default() };
        Disk { parts: BTreeMap::from([(HOLDER, meta)]), ..Disk::default() }
    }

    fn verdict(author: ManagerNumber, after: &View, seqs: [u64; 2]) -> Verdict {
        let owner_last = BTreeMap::from([((HOLDER, HOLDER), LogPos::new(Epoch(1), Seq(seqs[0])))]);
        let (one, two) = (disk(seqs[0]), disk(seqs[1]));
        let disks = BTreeMap::from([(HOLDER, &one), (ManagerNumber(10), &two)]);
        let moment = Moment { author, owner_last: &owner_last, disks: &disks };
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
}
