//! How a new number comes into the ring: one compare-and-set each, and the owners copy in between.
//!
//! ```text
//!  joined ──▶ split ──▶ with_members, once for each partition that it is to hold ──▶ released
//!  (its own)  (owner of the arc)  (the owners; the last one of its arc hands that over)
//! ```
//! * [`View::joined`] puts the newcomer in and takes the one transition that a View has room for.
//! * [`View::split`] cuts its arc out of the partition that holds it. Owner, ISR and contents stay;
//!   both halves get a new epoch. Only an owner with nothing uncommitted may do it, so that no entry
//!   is ever half committed. From then on the newcomer is wanted like one that came back.
//! * [`View::released`] gives the transition back. The same happens in [`View::without`] when the
//!   newcomer is taken out: its number stays reserved and is DOWN, its arc stays with the owners, and
//!   it may come back like any other manager.

use crate::claim::{Claim, ClaimRefused};
use crate::view::{ManagerEntry, PartitionEntry, RingTransition, Split, VIEW_FORMAT_SPLIT, View};
use rota_model::node_msg::SlotRange;
use rota_model::{Incarnation, ManagerNumber, ManagerStatus, SlotId};
use std::collections::BTreeSet;

impl View {
    /// A manager that nobody reserved a number for comes into the ring. It owns and copies nothing
    /// yet.
    ///
    /// # Errors
    /// The number is reserved or lies outside the ring, the name has another number, the ring is
    /// full, the times are not the cluster's, another transition is under way, or the folder has
    /// been in a ring already.
    pub fn joined(&self, claim: &Claim) -> Result<View, ClaimRefused> {
        self.check_join(claim)?;
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        next.format = next.format.max(VIEW_FORMAT_SPLIT);
        let entry = ManagerEntry {
            id: claim.id.clone(),
            grpc: claim.grpc.clone(),
            http: claim.http.clone(),
            incarnation: Incarnation(0).next(),
            nonce: claim.nonce,
            status: ManagerStatus::Active,
            peer_times: Some(claim.peer_times),
        };
        next.managers.insert(claim.number, entry);
        next.times = Some(claim.times);
        next.transition = Some(RingTransition::Join { number: claim.number, since: next.epoch });
        Ok(next)
    }

    /// Takes a number that is reserved for this manager, or else comes into the ring with it, for the
    /// first time or again.
    ///
    /// # Errors
    /// As those of [`View::claimed`], [`View::joined`] and [`View::returned`].
    pub fn claimed_or_joined(&self, claim: &Claim) -> Result<View, ClaimRefused> {
        match self.claimed(claim) {
            Err(ClaimRefused::NotReserved(..)) => self.joined(claim),
            Err(ClaimRefused::HasLeft(_)) => self.returned(claim),
            claimed => claimed,
        }
    }

    fn check_join(&self, claim: &Claim) -> Result<(), ClaimRefused> {
        let number = claim.number;
        if let Some(entry) = self.managers.get(&number) {
            let (id, grpc) = (entry.id.clone(), entry.grpc.clone());
            return Err(ClaimRefused::Taken { number, id, grpc });
        }
        if claim.taken.is_some() {
            // This folder was in a ring, and this ring has never heard of it.
            let list: Vec<String> = self.managers.keys().map(ToString::to_string).collect();
            return Err(ClaimRefused::NotReserved(number, list.join(", ")));
        }
        if number.0 >= self.m {
            return Err(ClaimRefused::OutsideRing { number, m: self.m });
        }
        if let Some((other, _)) = self.managers.iter().find(|(_, it)| it.id == claim.id) {
            return Err(ClaimRefused::NameTaken { id: claim.id.clone(), number: *other });
        }
        self.check_room()?;
        let limit = self.managers_max;
        if let Some(left) = self.arcs().left_if_full() {
            return Err(ClaimRefused::NumbersFull { limit, left });
        }
        self.check_times(claim)?;
        match self.transition {
            Some(under_way) => Err(ClaimRefused::InTransition { number, under_way }),
            None => Ok(()),
        }
    }

    /// Refuses one more than the ring has room for. Who has left is none of its managers any more.
    pub(crate) fn check_room(&self) -> Result<(), ClaimRefused> {
        let managers = self.managers.values().filter(|it| it.status != ManagerStatus::Left).count();
        match managers < self.managers_max as usize {
            true => Ok(()),
            false => Err(ClaimRefused::RingFull { limit: self.managers_max }),
        }
    }

    /// Up managers that have no partition yet.
    fn without_part(&self) -> impl Iterator<Item = ManagerNumber> {
        let up = self.managers.iter().filter(|(_, entry)| entry.is_up()).map(|(number, _)| *number);
        up.filter(|it| !self.parts.contains_key(it))
    }

    /// The first Up manager that has no partition yet and whose arc lies in partition `n`.
    pub fn unsplit(&self, n: ManagerNumber) -> Option<ManagerNumber> {
        self.parts.get(&n)?;
        let SlotRange { first, last } = self.range(n);
        let (first, last) = (ManagerNumber(first.0), ManagerNumber(last.0));
        let (low, high) = match first <= last {
            true => (self.managers.range(first..=last), None),
            false => (self.managers.range(..=last), Some(self.managers.range(first..))),
        };
        let mut others = low.chain(high.into_iter().flatten()).filter(|(it, _)| **it != n);
        others.find(|(_, entry)| entry.is_up()).map(|(number, _)| *number)
    }

    /// Cuts the arc of number `n` out of the partition that holds it. `None` when it is a partition
    /// already, or the number is not reserved.
    ///
    /// Only the owner of that partition may write this, and only while everything in its log is
    /// committed and nothing is added to it.
    pub fn split(&self, n: ManagerNumber) -> Option<View> {
        if self.parts.contains_key(&n) || !self.managers.contains_key(&n) {
            return None;
        }
        let from = self.home(SlotId(n.0));
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        next.format = next.format.max(VIEW_FORMAT_SPLIT);
        let rest = next.parts.get_mut(&from)?;
        rest.pe = next.epoch;
        let arc = rest.clone();
        let owner = crate::change::first_in_ring(&next.managers, n, &arc.isr);
        // What was found again was counted in both halves, and is told once.
        next.parts.insert(n, PartitionEntry { owner, recovered: None, ..arc });
        next.splits.insert(n, Split { from, epoch: next.epoch });
        Some(next)
    }

    /// Whether a newcomer owns its arc, holds every copy that it should, and nobody holds one in its
    /// stead.
    pub fn has_arrived(&self, n: ManagerNumber) -> bool {
        let owns = self.parts.get(&n).is_some_and(|part| part.owner == n);
        let keep = self.r as usize + 1;
        owns && self.parts.iter().all(|(number, part)| {
            let wanted = self.wanted(*number);
            let holds = !wanted.contains(&n) || part.has(n);
            let stands_in = part.isr.iter().any(|it| !wanted.contains(&it.number));
            holds && !(part.isr.len() > keep && stands_in)
        })
    }

    /// Gives the transition back. `None` when there is none.
    pub fn released(&self) -> Option<View> {
        self.transition?;
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        next.transition = None;
        Some(next)
    }

    /// Managers that must hear of each other: those that copy, or should copy, a partition together,
    /// and whoever copies the arc of a newcomer that has no partition yet.
    pub fn neighbours(&self, me: ManagerNumber) -> BTreeSet<ManagerNumber> {
        let mut all = BTreeSet::new();
        let new: Vec<_> = self.without_part().map(|it| (self.home(SlotId(it.0)), it)).collect();
        for (number, part) in &self.parts {
            let new = new.iter().filter(|(home, _)| home == number).map(|(_, it)| *it);
            let isr = part.isr.iter().map(|it| it.number);
            let group: Vec<ManagerNumber> = isr.chain(self.wanted(*number)).chain(new).collect();
            if group.contains(&me) {
                all.extend(group);
            }
        }
        all.remove(&me);
        all
    }
}
