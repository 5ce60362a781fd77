//! The only ways a View changes. Each function gives the next View: epoch one higher, and `pe` of
//! every partition whose owner, ISR, state or range changed set to it.

use crate::claim::{Claim, ClaimRefused};
use crate::view::{
    FoundAgain, IsrMember, Loss, ManagerEntry, PartitionEntry, PartitionState, Recovered,
    VIEW_FORMAT, VIEW_FORMAT_LOSS, View,
};
use rota_model::{
    ClusterName, Epoch, FieldError, Incarnation, ManagerId, ManagerNumber, ManagerStatus, MemberId,
    Nonce, times_out_of_order,
};
use std::collections::BTreeMap;

impl View {
    /// The first View of a cluster: every number reserved, none started, every copy empty. A copy
    /// that never ran has acknowledged nothing, so an empty disk is all that it must hold.
    pub fn found(
        cluster: ClusterName,
        m: u32,
        r: u32,
        managers_max: u32,
        numbers: &[(ManagerNumber, ManagerId)],
    ) -> Result<View, Vec<FieldError>> {
        check_ring(m, managers_max, numbers)?;
        let entry = |id: &ManagerId| ManagerEntry {
            id: id.clone(),
            grpc: String::new(),
            http: String::new(),
            incarnation: Incarnation(0),
            nonce: Nonce(0),
            status: ManagerStatus::Joining,
            peer_times: None,
        };
        let epoch = Epoch(1);
        let managers: BTreeMap<_, _> = numbers.iter().map(|(n, id)| (*n, entry(id))).collect();
        let mut view = View {
            format: VIEW_FORMAT,
            cluster,
            epoch,
            m,
            r,
            managers_max,
            times: None,
            managers,
            parts: BTreeMap::new(),
            transition: None,
            splits: BTreeMap::new(),
        };
        for (n, _) in numbers {
            let isr = view.ring_from(*n).take(r as usize + 1);
            let isr = isr.map(|number| IsrMember { number, since: epoch }).collect();
            let state = PartitionState::Active;
            let (pe, base_pe, owner) = (epoch, epoch, *n);
            let (loss, recovered, stamps_above) = (None, None, None);
            let part =
                PartitionEntry { pe, owner, isr, base_pe, state, loss, recovered, stamps_above };
            view.parts.insert(*n, part);
        }
        Ok(view)
    }

    /// A manager takes its number with the next incarnation. It leaves every ISR that has another
    /// member that runs (its disk may lack what the others committed meanwhile). Where there is none,
    /// and its disk is new enough, it takes over: members that are DOWN go, and come back by learning,
    /// and so do those that never ran, since nothing was committed without them. If its disk is not, it
    /// leaves the ISR to those that are DOWN; where there are none, the partition is to be recovered.
    ///
    /// A first run changes no ISR, except that members that are DOWN, which stayed only because
    /// nobody else had run, go.
    pub fn claimed(&self, claim: &Claim) -> Result<View, ClaimRefused> {
        let entry = self.check_claim(claim)?.clone();
        let first_run = entry.incarnation == Incarnation(0);
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        next.times = Some(claim.times);
        for (n, part) in &mut next.parts {
            if !part.has(claim.number) {
                continue;
            }
            if first_run {
                let goes = |number| number != claim.number && is_down(&self.managers, number);
                if part.isr.iter().any(|it| goes(it.number)) {
                    part.isr.retain(|it| !goes(it.number));
                    part.owner = first_in_ring(&next.managers, *n, &part.isr);
                    part.pe = next.epoch;
                }
                continue;
            }
            part.pe = next.epoch;
            let is_exact = claim.is_exact(*n, part);
            let may_leave = may_leave(&self.managers, part, claim.number);
            if may_leave && !(is_exact && is_left_to(&self.managers, part, &[claim.number])) {
                part.isr.retain(|it| it.number != claim.number);
                part.owner = first_in_ring(&next.managers, *n, &part.isr);
            } else {
                part.isr = vec![IsrMember { number: claim.number, since: next.epoch }];
                part.owner = claim.number;
                part.base_pe = next.epoch;
                if !is_exact {
                    part.lose(if claim.disk.contains_key(n) { Loss::Behind } else { Loss::Gone });
                }
            }
        }
        // Who was leaving goes on with it.
        let leaves = entry.status == ManagerStatus::Leaving;
        let status = if leaves { ManagerStatus::Leaving } else { ManagerStatus::Active };
        next.managers.insert(claim.number, entry.taken_by(claim, status));
        Ok(next)
    }

    pub(crate) fn check_claim(&self, claim: &Claim) -> Result<&ManagerEntry, ClaimRefused> {
        let entry = self.check_owner(claim)?;
        if entry.status == ManagerStatus::Left {
            return Err(ClaimRefused::HasLeft(claim.number));
        }
        self.check_disk(entry, claim)?;
        Ok(entry)
    }

    /// The entry of a number that is reserved for that manager, or that has left and is nobody's.
    pub(crate) fn check_owner(&self, claim: &Claim) -> Result<&ManagerEntry, ClaimRefused> {
        let Some(entry) = self.managers.get(&claim.number) else {
            let list: Vec<String> = self.managers.keys().map(ToString::to_string).collect();
            return Err(ClaimRefused::NotReserved(claim.number, list.join(", ")));
        };
        if entry.id != claim.id && entry.status != ManagerStatus::Left {
            return Err(ClaimRefused::Taken {
                number: claim.number,
                id: entry.id.clone(),
                grpc: entry.grpc.clone(),
            });
        }
        Ok(entry)
    }

    /// The times are the cluster's, and the disk is that of the number, or empty where that will do.
    pub(crate) fn check_disk(
        &self,
        entry: &ManagerEntry,
        claim: &Claim,
    ) -> Result<(), ClaimRefused> {
        self.check_times(claim)?;
        let held = claim.held.contains(&(entry.incarnation, entry.nonce));
        // A folder that certainly held a later incarnation knows more than this config store.
        if let Some(taken) = claim.taken.filter(|it| *it > entry.incarnation) {
            let (number, incarnation) = (claim.number, entry.incarnation);
            return Err(ClaimRefused::StoreIsOlder { number, taken, incarnation });
        }
        // The next epoch may stand on the disk before its View is written.
        let is_ahead = |(_, pe): &(&ManagerNumber, &Epoch)| **pe > self.epoch.next();
        if let Some((part, pe)) = claim.disk.iter().find(is_ahead) {
            let (part, pe, epoch) = (*part, *pe, self.epoch);
            return Err(ClaimRefused::StoreIsBehind { part, pe, epoch });
        }
        // What is only meant to be taken was never taken: such a disk is as good as an empty one.
        let only_meant = claim.held.iter().all(|(it, _)| *it > entry.incarnation);
        let is_out = matches!(
            entry.status,
            ManagerStatus::Joining | ManagerStatus::Down | ManagerStatus::Left
        );
        let empty_may_take = only_meant && is_out;
        if !held && !empty_may_take {
            return Err(ClaimRefused::NotThisDisk {
                number: claim.number,
                status: entry.status,
                incarnation: entry.incarnation,
            });
        }
        let parts = self.last_copies(claim.number);
        if !held && !claim.force_lost && entry.status == ManagerStatus::Down && !parts.is_empty() {
            return Err(ClaimRefused::LastCopy { number: claim.number, parts });
        }
        Ok(())
    }

    /// The partitions of which this number's disk may hold the last copy: everybody else of the ISR that
    /// ran is DOWN, and may be as lost. One that is being found again anyway is none of them, and a manager
    /// that never ran has no copy of any.
    pub fn last_copies(&self, number: ManagerNumber) -> Vec<ManagerNumber> {
        let ran = self.managers.get(&number).is_some_and(ManagerEntry::has_run);
        let is_last = |part: &PartitionEntry| {
            ran && part.state == PartitionState::Active
                && part.has(number)
                && is_left_to(&self.managers, part, &[number])
        };
        self.parts.iter().filter(|(_, part)| is_last(part)).map(|(n, _)| *n).collect()
    }

    /// Whoever judges a node must wait as long as every other, or a verdict might come before the
    /// node has ended what it runs.
    pub(crate) fn check_times(&self, claim: &Claim) -> Result<(), ClaimRefused> {
        let differences = self.times.map(|it| claim.times.differences(&it)).unwrap_or_default();
        let text = |(name, here, there)| format!("{name} is {here}, but the View has {there}");
        let list: Vec<String> = differences.into_iter().map(text).collect();
        if list.is_empty() { Ok(()) } else { Err(ClaimRefused::OtherTimes(list.join("; "))) }
    }

    /// Other managers that would not hear the claimer in time, or whom it would not, and why: who says
    /// too rarely that it is there is taken out again and again by those that are less patient.
    pub(crate) fn unheard(&self, claim: &Claim) -> impl Iterator<Item = (MemberId, String)> {
        let others = self.managers.iter().filter(|(n, it)| **n != claim.number && it.serves());
        others.filter_map(|(n, other)| {
            let (mine, times) = (claim.peer_times, other.peer_times?);
            let names = ["heartbeat_ms", "suspect_ms"].map(|it| format!("manager {n}'s {it}"));
            let order = [
                mine.heard_by(times, ["heartbeat_ms", &names[1]]),
                times.heard_by(mine, [&names[0], "suspect_ms"]),
            ];
            let mistake = times_out_of_order(&order, &str::to_owned).into_iter().next()?;
            Some((self.member(*n)?, mistake.to_string()))
        })
    }

    /// Takes suspects out: DOWN, and out of every ISR that keeps another member that runs. An ISR of
    /// which nobody is left stays as it is: each of its disks may hold all that was committed, and who
    /// comes back first takes over ([`View::claimed`]).
    /// A newcomer among them gives the transition back ([`crate::join`]), and so does who was leaving:
    /// it is LEFT when nothing needs it, and else stays ([`crate::leave`]). `None` when none of them
    /// serves under that incarnation any more.
    pub fn without(&self, suspects: &[MemberId]) -> Option<View> {
        self.without_beside(suspects, None)
    }

    /// As [`View::without`], where `claimer` does not run either: it is only about to.
    pub(crate) fn without_beside(
        &self,
        suspects: &[MemberId],
        claimer: Option<ManagerNumber>,
    ) -> Option<View> {
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        let mut any = false;
        let suspected = suspects.iter().filter(|it| self.may_run(**it)).map(|it| it.number);
        let going: Vec<ManagerNumber> = suspected.chain(claimer).collect();
        for suspect in suspects {
            if !next.may_run(*suspect) {
                continue;
            }
            let Some(entry) = next.managers.get_mut(&suspect.number) else {
                continue;
            };
            any = true;
            let leaves = entry.status == ManagerStatus::Leaving;
            entry.status = ManagerStatus::Down;
            next.transition = next.transition.filter(|it| it.number() != suspect.number);
            for (n, part) in &mut next.parts {
                if part.has(suspect.number) && !is_left_to(&self.managers, part, &going) {
                    part.isr.retain(|it| it.number != suspect.number);
                    part.owner = first_in_ring(&next.managers, *n, &part.isr);
                    part.pe = next.epoch;
                }
            }
            if leaves {
                next.out_while_leaving(suspect.number);
            }
        }
        any.then_some(next)
    }

    /// Who was leaving when it went out has left, if nothing needs its disk.
    pub(crate) fn out_while_leaving(&mut self, leaver: ManagerNumber) {
        let is_needed = self.parts.values().any(|part| part.has(leaver));
        if let Some(entry) = self.managers.get_mut(&leaver).filter(|_| !is_needed) {
            entry.status = ManagerStatus::Left;
        }
    }

    /// Adds caught-up members to a partition's ISR and settles it: the first member in ring order
    /// owns; who leaves the ring goes when enough others are Up, members outside the wanted group go
    /// while more than r+1 are left. `None` when nothing changes or a newcomer is not Up under that
    /// incarnation.
    pub fn with_members(&self, n: ManagerNumber, newcomers: &[MemberId]) -> Option<View> {
        let wanted = self.wanted(n);
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        let part = next.parts.get_mut(&n)?;
        let acked_under = part.pe;
        for newcomer in newcomers {
            if !self.is_up(newcomer.number) || self.member(newcomer.number) != Some(*newcomer) {
                return None;
            }
            if !part.has(newcomer.number) {
                // It acknowledged everything under the epoch before: its disk is exact from then on,
                // even if it never hears of this change.
                part.isr.push(IsrMember { number: newcomer.number, since: acked_under });
            }
        }
        let leaver = self.leaver().filter(|it| part.has(*it));
        if let Some(leaver) = leaver.filter(|it| self.has_enough_without(n, part, *it)) {
            part.isr.retain(|it| it.number != leaver);
        }
        let keep = self.r as usize + 1;
        let order: Vec<ManagerNumber> = self.ring_from(n).collect();
        let surplus = |it: &&ManagerNumber| !wanted.contains(it) && leaver != Some(**it);
        for far in order.iter().rev().filter(surplus) {
            if part.isr.len() > keep {
                part.isr.retain(|it| it.number != *far);
            }
        }
        part.owner = first_in_ring(&next.managers, n, &part.isr);
        part.pe = next.epoch;
        let before = self.parts.get(&n)?;
        (part.isr != before.isr || part.owner != before.owner).then_some(next)
    }
}

impl View {
    /// Takes a member out of one partition's ISR, because it needs full content. `None` when it is
    /// no member, or the only one.
    pub fn shrunk(&self, n: ManagerNumber, member: MemberId) -> Option<View> {
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        let part = next.parts.get_mut(&n)?;
        let is_that_run = self.member(member.number) == Some(member);
        if !is_that_run || !part.has(member.number) || part.isr.len() == 1 {
            return None;
        }
        part.isr.retain(|it| it.number != member.number);
        part.owner = first_in_ring(&next.managers, n, &part.isr);
        part.pe = next.epoch;
        Some(next)
    }

    /// Gives a partition a new epoch and changes nothing else: an owner that does not know what
    /// became of its compare-and-set makes sure that it can never happen any more.
    pub fn bumped(&self, n: ManagerNumber) -> Option<View> {
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        next.parts.get_mut(&n)?.pe = next.epoch;
        Some(next)
    }

    /// A node knows of more than the only owner that there may be: the partition is to be found again from
    /// the nodes, by `owner`, from what its disk holds. Or that is under way already, and `owner` holds more.
    /// `None` when that run does not serve, or recovers it already.
    pub fn given_up(&self, n: ManagerNumber, owner: MemberId) -> Option<View> {
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        let part = next.parts.get_mut(&n)?;
        let serves = self.managers.get(&owner.number).is_some_and(ManagerEntry::serves);
        let is_done = part.state == PartitionState::Recovering && part.owner == owner.number;
        if !serves || is_done || self.member(owner.number) != Some(owner) {
            return None;
        }
        part.isr = vec![IsrMember { number: owner.number, since: next.epoch }];
        part.owner = owner.number;
        (part.pe, part.base_pe) = (next.epoch, next.epoch);
        part.lose(Loss::NodeKnewMore);
        Some(next)
    }

    /// The owner of a partition that was recovering has all of it on its disk that could be found.
    /// `None` when it is not that run which recovers it.
    pub fn recovered(&self, n: ManagerNumber, owner: MemberId, found: FoundAgain) -> Option<View> {
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        let part = next.parts.get_mut(&n)?;
        let is_lone = part.is_lone(owner.number) && self.member(owner.number) == Some(owner);
        if part.state != PartitionState::Recovering || !is_lone {
            return None;
        }
        // Its disk is exact from the epoch on under which it found everything.
        part.isr = vec![IsrMember { number: owner.number, since: part.pe }];
        (part.pe, part.base_pe) = (next.epoch, next.epoch);
        part.state = PartitionState::Active;
        let loss = part.loss.take().unwrap_or_default();
        let FoundAgain { sessions, held, stamps_above } = found;
        part.recovered = Some(Recovered { epoch: next.epoch, sessions, held, loss });
        part.stamps_above = part.stamps_above.max(Some(stamps_above));
        next.format = VIEW_FORMAT_LOSS;
        Some(next)
    }
}

impl PartitionEntry {
    /// It is to be found again; when it is already, why it was lost at first counts.
    fn lose(&mut self, loss: Loss) {
        if self.state == PartitionState::Active {
            (self.state, self.loss) = (PartitionState::Recovering, Some(loss));
        }
    }
}

impl ManagerEntry {
    /// The entry of the next run.
    pub(crate) fn taken_by(&self, claim: &Claim, status: ManagerStatus) -> ManagerEntry {
        ManagerEntry {
            id: claim.id.clone(),
            grpc: claim.grpc.clone(),
            http: claim.http.clone(),
            incarnation: self.incarnation.next(),
            nonce: claim.nonce,
            status,
            peer_times: Some(claim.peer_times),
        }
    }
}

/// Whether an ISR keeps somebody who ran when `leaver` goes. One that never ran is exact (nothing is
/// committed without it) but may never come: a partition that is left to it serves nobody.
fn may_leave(
    managers: &BTreeMap<ManagerNumber, ManagerEntry>,
    part: &PartitionEntry,
    leaver: ManagerNumber,
) -> bool {
    let ran = |number| managers.get(&number).is_some_and(ManagerEntry::has_run);
    part.isr.iter().any(|it| it.number != leaver && ran(it.number))
}

/// Whether all of an ISR that ran are these or DOWN.
fn is_left_to(
    managers: &BTreeMap<ManagerNumber, ManagerEntry>,
    part: &PartitionEntry,
    going: &[ManagerNumber],
) -> bool {
    let is_out = |number: ManagerNumber| going.contains(&number) || is_down(managers, number);
    let ran = |number| managers.get(&number).is_some_and(ManagerEntry::has_run);
    part.isr.iter().all(|it| is_out(it.number) || !ran(it.number))
}

fn is_down(managers: &BTreeMap<ManagerNumber, ManagerEntry>, number: ManagerNumber) -> bool {
    managers.get(&number).is_some_and(|it| it.status == ManagerStatus::Down)
}

pub(crate) fn first_in_ring(
    managers: &BTreeMap<ManagerNumber, ManagerEntry>,
    n: ManagerNumber,
    isr: &[IsrMember],
) -> ManagerNumber {
    let mut order = crate::place::ring_from(managers, n);
    order.find(|number| isr.iter().any(|it| it.number == *number)).unwrap_or(n)
}

fn check_ring(
    m: u32,
    managers_max: u32,
    numbers: &[(ManagerNumber, ManagerId)],
) -> Result<(), Vec<FieldError>> {
    let mut mistakes = Vec::new();
    if m == 0 || m > 65_536 {
        mistakes.push(FieldError::new("m", format!("is {m}; it must lie in [1, 65536]")));
    }
    if numbers.is_empty() {
        mistakes.push(FieldError::new("numbers", "must name at least one manager"));
    }
    if numbers.len() > managers_max as usize {
        let count = numbers.len();
        let text = format!("are {count}; the limit is {managers_max}");
        mistakes.push(FieldError::new("numbers", text));
    }
    for (index, (n, id)) in numbers.iter().enumerate() {
        if n.0 >= m {
            mistakes.push(FieldError::new("numbers", format!("has {n}, outside [0, {m})")));
        }
        if numbers.iter().take(index).any(|(other, _)| other == n) {
            mistakes.push(FieldError::new("numbers", format!("has {n} twice")));
        }
        if numbers.iter().take(index).any(|(_, other)| other == id) {
            mistakes.push(FieldError::new("numbers", format!("has manager {id:?} twice")));
        }
    }
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}
