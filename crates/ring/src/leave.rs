//! How a number leaves the ring, how that or a join is taken back, and how the number returns.
//!
//! ```text
//!  leaving ──▶ with_members, once for each partition that it holds ──▶ left
//!     │        (the owners: who leaves goes once enough others hold it)
//!     └──▶ stayed                    joined ── cancelled ──▶ leaving
//! ```
//! * [`View::leaving`] takes the one transition. From then on the number counts as no place for copies:
//!   the next managers are wanted in its stead, and learn as they do when somebody is gone. It goes on
//!   serving what it owns and acknowledging what it copies.
//! * [`View::with_members`] lets it go from a partition, and another owns that from then on.
//! * [`View::left`] ends it: the number is LEFT and stays reserved, its partition lives on with others.
//!   The same happens in [`View::without`] when it dies and no partition needs it.
//! * [`View::stayed`] takes a leave back; [`View::cancelled`] turns a join into a leave, so that there is
//!   one way out of the ring.
//! * [`View::returned`] lets a number that has left come into the ring again, as a newcomer.

use crate::claim::{Claim, ClaimRefused};
use crate::view::{PartitionEntry, RingTransition, VIEW_FORMAT_SPLIT, View};
use rota_model::{ManagerNumber, ManagerStatus};

/// Why a number cannot leave.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeaveRefused {
    /// Nobody has it.
    #[error("number {0} is not reserved in this ring (reserved: {1})")]
    Unknown(ManagerNumber, String),
    /// It is out for good already.
    #[error("number {0} has left this ring already")]
    AlreadyLeft(ManagerNumber),
    /// Its manager may yet start, with the empty copies that it was founded with.
    #[error("number {0} was never started in this ring, so it has nothing to hand on")]
    NeverStarted(ManagerNumber),
    /// Nobody would be left.
    #[error("number {0} is the last manager of this ring that is up, and cannot leave it")]
    LastManager(ManagerNumber),
    /// It is down, and what only its disk holds cannot be copied.
    #[error(
        "number {number} is down and holds the last copy of partition {part}: start its manager first"
    )]
    LastCopy {
        /// The number.
        number: ManagerNumber,
        /// The first such partition.
        part: ManagerNumber,
    },
    /// The ring changes in another way just now.
    #[error("number {number} cannot leave now: {under_way} is under way, and one goes at a time")]
    InTransition {
        /// Who was to leave.
        number: ManagerNumber,
        /// What is under way.
        under_way: RingTransition,
    },
}

/// Why nothing is taken back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CancelRefused {
    /// There is nothing.
    #[error("nothing is under way: no number joins or leaves this ring")]
    Nothing,
    /// It is another number's.
    #[error("{under_way} is under way, and nothing of number {number}")]
    Another {
        /// What was to be cancelled.
        number: ManagerNumber,
        /// What is under way.
        under_way: RingTransition,
    },
    /// The newcomer is the last that is up.
    #[error("number {0} is the last manager of this ring that is up: its join cannot be cancelled")]
    LastManager(ManagerNumber),
}

impl View {
    /// The number that leaves just now.
    pub fn leaver(&self) -> Option<ManagerNumber> {
        match self.transition {
            Some(RingTransition::Leave { number, .. }) => Some(number),
            Some(RingTransition::Join { .. }) | None => None,
        }
    }

    /// How many copies of each partition, the owner's included, the ring can have without `n`.
    pub fn copies_without(&self, n: ManagerNumber) -> usize {
        let others = self.up_count() - usize::from(self.is_up(n));
        (self.r as usize + 1).min(others)
    }

    /// Number `n` begins to leave. One that is down and holds the last copy of nothing has left at once.
    ///
    /// # Errors
    /// Nobody has the number, it has left, was never started, is the last that is up, or is down with
    /// the last copy of a partition; or another transition is under way.
    pub fn leaving(&self, n: ManagerNumber) -> Result<View, LeaveRefused> {
        let Some(entry) = self.managers.get(&n) else {
            let list: Vec<String> = self.managers.keys().map(ToString::to_string).collect();
            return Err(LeaveRefused::Unknown(n, list.join(", ")));
        };
        if entry.status == ManagerStatus::Left {
            return Err(LeaveRefused::AlreadyLeft(n));
        }
        if let Some(under_way) = self.transition {
            return Err(LeaveRefused::InTransition { number: n, under_way });
        }
        let is_down = match entry.status {
            ManagerStatus::Joining => return Err(LeaveRefused::NeverStarted(n)),
            ManagerStatus::Down => true,
            ManagerStatus::Syncing
            | ManagerStatus::Active
            | ManagerStatus::Leaving
            | ManagerStatus::Left => false,
        };
        let held = self.parts.iter().find(|(_, part)| part.has(n)).map(|it| *it.0);
        if let (true, Some(part)) = (is_down, held) {
            return Err(LeaveRefused::LastCopy { number: n, part });
        }
        if is_down {
            return Ok(self.with_status(n, ManagerStatus::Left));
        }
        if self.copies_without(n) == 0 {
            return Err(LeaveRefused::LastManager(n));
        }
        Ok(self.begin_leave(n))
    }

    fn begin_leave(&self, n: ManagerNumber) -> View {
        let mut next = self.with_status(n, ManagerStatus::Leaving);
        next.format = next.format.max(VIEW_FORMAT_SPLIT);
        next.transition = Some(RingTransition::Leave { number: n, since: next.epoch });
        next
    }

    fn with_status(&self, n: ManagerNumber, status: ManagerStatus) -> View {
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        if let Some(entry) = next.managers.get_mut(&n) {
            entry.status = status;
        }
        next
    }

    /// Whether a partition has enough copies without `leaver`: as many as the ring wants and can have.
    pub(crate) fn has_enough_without(
        &self,
        n: ManagerNumber,
        part: &PartitionEntry,
        leaver: ManagerNumber,
    ) -> bool {
        let others = part.isr.iter().map(|it| it.number);
        let others = others.filter(|it| *it != leaver && self.is_up(*it)).count();
        others >= self.wanted(n).len().max(1)
    }

    /// Whether the number that leaves can go from partition `n` now ([`View::with_members`] lets it).
    pub fn may_release(&self, n: ManagerNumber) -> bool {
        let held = self.leaver().zip(self.parts.get(&n)).filter(|(leaver, part)| part.has(*leaver));
        held.is_some_and(|(leaver, part)| self.has_enough_without(n, part, leaver))
    }

    /// Ends a leave: the number holds nothing any more, and is LEFT. `None` while it does, or when
    /// nobody leaves.
    pub fn left(&self) -> Option<View> {
        let leaver = self.leaver()?;
        if self.parts.values().any(|part| part.has(leaver)) {
            return None;
        }
        let next = self.with_status(leaver, ManagerStatus::Left);
        Some(View { transition: None, ..next })
    }

    /// Takes a leave back: the number is wanted again, and gets what it handed on as one that comes
    /// back does. `None` when nobody leaves.
    pub fn stayed(&self) -> Option<View> {
        let next = self.with_status(self.leaver()?, ManagerStatus::Active);
        Some(View { transition: None, ..next })
    }

    /// Takes back what is under way, if it is that of `number` where one is given: who leaves, stays;
    /// who joins, leaves.
    ///
    /// # Errors
    /// Nothing is under way, or something else; or it is the join of the only manager that is up.
    pub fn cancelled(&self, number: Option<ManagerNumber>) -> Result<View, CancelRefused> {
        let under_way = self.transition.ok_or(CancelRefused::Nothing)?;
        if let Some(number) = number.filter(|it| *it != under_way.number()) {
            return Err(CancelRefused::Another { number, under_way });
        }
        match under_way {
            RingTransition::Leave { .. } => self.stayed().ok_or(CancelRefused::Nothing),
            RingTransition::Join { number, .. } if self.copies_without(number) == 0 => {
                Err(CancelRefused::LastManager(number))
            }
            RingTransition::Join { number, .. } => Ok(self.begin_leave(number)),
        }
    }

    /// A number that has left comes into the ring again, with the manager that had it or with another
    /// one: the transition is a join from now on.
    ///
    /// # Errors
    /// The number has not left; that manager has another number, the ring is full, the times are not the
    /// cluster's, the disk is another's, or another transition is under way.
    pub fn returned(&self, claim: &Claim) -> Result<View, ClaimRefused> {
        let number = claim.number;
        let entry = self.check_owner(claim)?;
        let mut others = self.managers.iter().filter(|(other, _)| **other != number);
        if let Some((other, _)) = others.find(|(_, it)| it.id == claim.id) {
            return Err(ClaimRefused::NameTaken { id: claim.id.clone(), number: *other });
        }
        self.check_room()?;
        self.check_disk(entry, claim)?;
        if let Some(under_way) = self.transition {
            return Err(ClaimRefused::InTransition { number, under_way });
        }
        let taken = entry.taken_by(claim, ManagerStatus::Active);
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        next.format = next.format.max(VIEW_FORMAT_SPLIT);
        next.times = Some(claim.times);
        next.managers.insert(number, taken);
        next.transition = Some(RingTransition::Join { number, since: next.epoch });
        Ok(next)
    }
}
