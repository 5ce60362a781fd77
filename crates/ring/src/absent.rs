//! Which others a manager that takes its number again has to write DOWN itself.
//!
//! A claim leaves every ISR in which the View calls another member running. After a power cut the View
//! says that of everybody, because nobody was left to write otherwise: the last machine of each ISR would
//! be waited for, although complete copies lie on the disks of those that came back. So a claimer whose
//! disk is good asks the others first ([`View::others`]), and who is gone goes out in the same
//! compare-and-set ([`View::claimed_beside`]). That is [`View::without`] of all of them and of the claimer's
//! earlier run, as any living manager may write it, and [`View::claimed`] right after it: nobody sees the
//! View in between.

use crate::claim::{Claim, ClaimRefused};
use crate::view::{ManagerEntry, PartitionEntry, PartitionState, View};
use rota_model::{ManagerNumber, MemberId};
use std::collections::BTreeSet;

/// What a claim needs to know of the others, or what it comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Others {
    /// These are to be asked first whether they run.
    Ask(Vec<MemberId>),
    /// These are gone, and go out with the claim; nobody when no partition needs it.
    Gone(Vec<MemberId>),
}

impl View {
    /// Who is to go out with a claim. `runs` says what is known of a run: that it runs, that it is gone,
    /// or nothing yet.
    ///
    /// Nobody goes out unless a partition of which the claimer's disk holds a complete copy would be left
    /// to members that are all gone. Then whoever shares an ISR with one of these goes out as well, if
    /// nobody of that ISR runs: so it stays whole ([`View::without`]), for whoever comes back first.
    ///
    /// # Errors
    /// When one that runs would not hear the claimer in time, or not be heard by it. Of one that is gone that
    /// says nothing: whoever stops all managers may start them with other times.
    pub fn others(
        &self,
        claim: &Claim,
        runs: &dyn Fn(MemberId) -> Option<bool>,
    ) -> Result<Others, ClaimRefused> {
        let unheard: Vec<_> =
            self.unheard(claim).filter(|(it, _)| runs(*it) != Some(false)).collect();
        if let Some((_, why)) = unheard.iter().find(|(it, _)| runs(*it).is_some()) {
            return Err(ClaimRefused::OtherTimes(why.clone()));
        }
        if !unheard.is_empty() {
            return Ok(Others::Ask(unheard.into_iter().map(|(it, _)| it).collect()));
        }
        Ok(Beside { view: self, claim, runs }.needed())
    }

    /// Takes the number back, and these out, which are gone.
    ///
    /// # Errors
    /// As those of [`View::claimed`].
    pub fn claimed_beside(&self, claim: &Claim, gone: &[MemberId]) -> Result<View, ClaimRefused> {
        let without = self.without_beside(gone, Some(claim.number));
        let without = without.map(|next| View { epoch: self.epoch, ..next });
        let mut next = without.as_ref().unwrap_or(self).claimed(claim)?;
        let is_gone = |it: &ManagerNumber| gone.iter().any(|run| run.number == *it);
        if let Some(leaver) = self.leaver().filter(is_gone).filter(|it| !next.is_up(*it)) {
            next.out_while_leaving(leaver);
        }
        Ok(next)
    }
}

/// What a claim finds in a View, and what its manager knows of the runs of the others.
struct Beside<'a> {
    view: &'a View,
    claim: &'a Claim,
    runs: &'a dyn Fn(MemberId) -> Option<bool>,
}

impl Beside<'_> {
    /// Who is to go out with the claim, or who is to be asked first.
    fn needed(&self) -> Others {
        let mut gone: BTreeSet<MemberId> = BTreeSet::new();
        let is_inside = |it: &ManagerEntry| it.serves() && it.has_run();
        if !self.view.check_claim(self.claim).is_ok_and(is_inside) {
            return Others::Gone(Vec::new());
        }
        let held = self.view.parts.iter().filter(|(n, part)| self.holds(**n, part));
        for part in held.map(|(_, part)| part) {
            match self.left_to(part) {
                Some(others) => gone.extend(others),
                None => return self.ask(),
            }
        }
        loop {
            let before = gone.len();
            for part in self.view.parts.values().filter(|it| it.state == PartitionState::Active) {
                if !gone.iter().any(|it| part.has(it.number)) {
                    continue;
                }
                match self.left_to(part) {
                    Some(others) => gone.extend(others),
                    None => return self.ask(),
                }
            }
            if gone.len() == before {
                return Others::Gone(gone.into_iter().collect());
            }
        }
    }

    /// The members of a partition that are gone, if nobody but the claimer is there; nobody, if one runs.
    /// `None` while that is unknown.
    fn left_to(&self, part: &PartitionEntry) -> Option<Vec<MemberId>> {
        let others: Vec<MemberId> =
            part.isr.iter().filter_map(|it| self.running(it.number)).collect();
        if others.iter().any(|it| (self.runs)(*it) == Some(true)) {
            return Some(Vec::new());
        }
        others.iter().all(|it| (self.runs)(*it) == Some(false)).then_some(others)
    }

    /// Everybody of whom nothing is known: one round of questions is enough then.
    fn ask(&self) -> Others {
        let all = self.view.managers.keys().filter_map(|it| self.running(*it));
        Others::Ask(all.filter(|it| (self.runs)(*it).is_none()).collect())
    }

    /// The run of another manager that the View calls running.
    fn running(&self, number: ManagerNumber) -> Option<MemberId> {
        let entry = self.view.managers.get(&number).filter(|_| number != self.claim.number)?;
        (entry.serves() && entry.has_run()).then_some(self.view.member(number)?)
    }

    /// Whether the claimer's disk holds all that this partition's ISR holds.
    fn holds(&self, n: ManagerNumber, part: &PartitionEntry) -> bool {
        part.state == PartitionState::Active && self.claim.is_exact(n, part)
    }
}
