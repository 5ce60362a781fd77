//! I8 and I10: an owner answers only after every other member of the ISR answered its Sync under
//! that `pe`; a lone copy that took over from its own disk only after it scanned every registered
//! node; a partition that recovers answers nobody.

use super::{Verdict, Violation};
use rota_model::{BootId, Epoch, ManagerNumber, NodeId};
use rota_ring::{PartitionEntry, PartitionState};
use std::collections::{BTreeMap, BTreeSet};

/// One run of an owner under one epoch of a partition.
pub type Reign = (ManagerNumber, u64, ManagerNumber, Epoch);

/// What each owner heard.
#[derive(Clone, Debug, Default)]
pub struct SyncedFirst {
    members: BTreeMap<Reign, BTreeSet<ManagerNumber>>,
    scanned: BTreeMap<(ManagerNumber, u64, ManagerNumber), BTreeSet<(NodeId, BootId)>>,
}

impl SyncedFirst {
    /// A member's acknowledgement or report under exactly that `pe` reached the owner.
    pub fn on_member(&mut self, reign: Reign, member: ManagerNumber) {
        self.members.entry(reign).or_default().insert(member);
    }

    /// A node's last page of a scan for a partition reached its owner.
    pub fn on_scanned(
        &mut self,
        (owner, run, part): (ManagerNumber, u64, ManagerNumber),
        node: NodeId,
        boot: BootId,
    ) {
        self.scanned.entry((owner, run, part)).or_default().insert((node, boot));
    }

    /// The owner answers. `to_scan` are the nodes that a lone take-over had to ask, without those
    /// that are gone; empty when this epoch was no lone take-over.
    ///
    /// # Errors
    /// A member or a node that it did not hear of.
    pub fn check(
        &self,
        reign: Reign,
        part: &PartitionEntry,
        to_scan: &[(NodeId, BootId)],
    ) -> Verdict {
        let (owner, run, number, pe) = reign;
        let what = format!("M{owner} answers for partition {number} under pe {pe}");
        if part.state == PartitionState::Recovering {
            return Err(Violation::new("I10", format!("{what}, which is being recovered")));
        }
        let heard = self.members.get(&reign);
        for member in part.isr.iter().filter(|it| it.number != owner) {
            if !heard.is_some_and(|it| it.contains(&member.number)) {
                let text = format!("{what} without having heard of M{}", member.number);
                return Err(Violation::new("I8", text));
            }
        }
        let scanned = self.scanned.get(&(owner, run, number));
        for node in to_scan {
            if !scanned.is_some_and(|it| it.contains(node)) {
                let text = format!("{what} from its own disk without a scan of {node:?}");
                return Err(Violation::new("I8", text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{node, view};

    const PART: ManagerNumber = ManagerNumber(10);
    const REIGN: Reign = (PART, 1, PART, Epoch(1));

    #[test]
    fn an_answer_before_every_member_synced_is_found() {
        let part = view().parts.get(&PART).unwrap().clone();
        let mut book = SyncedFirst::default();
        assert_eq!(book.check(REIGN, &part, &[]).unwrap_err().rule, "I8");
        book.on_member((PART, 1, PART, Epoch(2)), ManagerNumber(20));
        assert!(book.check(REIGN, &part, &[]).is_err());
        book.on_member(REIGN, ManagerNumber(20));
        assert_eq!(book.check(REIGN, &part, &[]), Ok(()));
    }

    #[test]
    fn an_answer_of_a_lone_disk_before_its_scan_is_found() {
        let mut part = view().parts.get(&PART).unwrap().clone();
        part.isr.retain(|it| it.number == PART);
        let mut book = SyncedFirst::default();
        let nodes = [(node("n0"), BootId(1))];
        assert_eq!(book.check(REIGN, &part, &nodes).unwrap_err().rule, "I8");
        book.on_scanned((PART, 1, PART), node("n0"), BootId(1));
        assert_eq!(book.check(REIGN, &part, &nodes), Ok(()));
    }

    #[test]
    fn an_answer_while_recovering_is_found() {
        let mut part = view().parts.get(&PART).unwrap().clone();
        part.isr.retain(|it| it.number == PART);
        part.state = PartitionState::Recovering;
        assert_eq!(SyncedFirst::default().check(REIGN, &part, &[]).unwrap_err().rule, "I10");
    }
}
