//! One partition at one manager: its copy of the log, and which part it plays.

use crate::log::answered::Answered;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::inbox::Inbox;
use crate::log::lead::Lead;
use crate::log::learner::Learning;
use crate::log::origin::Origin;
use crate::log::read_index::Rounds;
use crate::log::requests::{Asked, PendingReply};
use crate::log::state::Log;
use crate::partition::led::Led;
use crate::partition::residents::Residents;
use rota_model::ManagerNumber;
use rota_model::node_msg::SlotRange;
use std::collections::BTreeMap;

/// A partition at a manager.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Partition<R = Residents> {
    pub log: Log,
    pub role: Role<R>,
    /// Requests from the partition that this one was just cut out of, until this manager leads it; with
    /// the answer, if it was carried out there: its entry is in this log, too.
    pub inherited: BTreeMap<Origin, (Asked, Option<PendingReply>)>,
    /// Refusals that were given, for repetitions that are still under way.
    pub answered: Answered,
    /// Why the partition cannot be served from this disk, though the View does not say so yet.
    pub halted: Option<String>,
}

/// The part that a manager plays in a partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Role<R = Residents> {
    /// It copies the log, or holds what is left of a copy.
    Follower,
    /// It is being given a copy.
    Learner(Learning),
    /// It owns the partition.
    Leader(Box<Leader<R>>),
}

/// What an owner has beside its copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leader<R = Residents> {
    /// The owner's side of the log.
    pub lead: Lead,
    /// Requests that wait here, and answers that wait for a commit.
    pub inbox: Inbox,
    /// Reads that wait for the copies.
    pub rounds: Rounds,
    /// What lives here beside the log.
    pub residents: R,
}

impl<R> Leader<R> {
    /// It begins, and nobody has asked for anything.
    pub fn new(lead: Lead, residents: R) -> Self {
        Self { lead, inbox: Inbox::default(), rounds: Rounds::default(), residents }
    }
}

impl<R> Partition<R> {
    pub fn new(number: ManagerNumber, range: SlotRange) -> Self {
        Self {
            log: Log::new(number, range),
            role: Role::Follower,
            inherited: BTreeMap::new(),
            answered: Answered::default(),
            halted: None,
        }
    }

    /// What only an owner does.
    pub fn led<'a>(&'a mut self, env: &'a mut Env) -> Option<Led<'a, R>> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let Leader { lead, inbox, rounds, residents } = &mut **leader;
        let at = At { env, log: &mut self.log, lead, inbox, rounds, answered: &mut self.answered };
        Some(Led { at, residents })
    }

    /// The owner's side, to look at.
    pub fn leader(&self) -> Option<&Leader<R>> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower | Role::Learner(_) => None,
        }
    }

    /// The owner's side, to change it without an effect.
    pub fn leader_mut(&mut self) -> Option<&mut Leader<R>> {
        match &mut self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower | Role::Learner(_) => None,
        }
    }

    /// How far the snapshot is that this manager is given.
    pub fn learning(&self) -> Option<&Learning> {
        match &self.role {
            Role::Learner(learning) => Some(learning),
            Role::Follower | Role::Leader(_) => None,
        }
    }

    pub fn is_follower(&self) -> bool {
        matches!(self.role, Role::Follower)
    }

    pub fn is_learning(&self) -> bool {
        matches!(self.role, Role::Learner(_))
    }

    /// It is given no snapshot any more.
    pub fn stop_learning(&mut self) {
        if self.is_learning() {
            self.role = Role::Follower;
        }
    }

    /// Takes the owner's side out.
    pub fn take_leader(&mut self) -> Option<Box<Leader<R>>> {
        self.leader()?;
        match std::mem::replace(&mut self.role, Role::Follower) {
            Role::Leader(leader) => Some(leader),
            Role::Follower | Role::Learner(_) => None,
        }
    }

    /// Whether no time, no write to disk and no node brings it anything to do: only a View or a message
    /// about it does.
    pub(crate) fn is_idle(&self) -> bool {
        // What a halted one waits for is looked at when a View comes.
        let Self { log, role, inherited, answered, halted: _ } = self;
        matches!(role, Role::Follower)
            && log.is_idle()
            && inherited.is_empty()
            && answered.is_empty()
    }

    /// Takes out the partition of an arc.
    pub(crate) fn cut(&mut self, number: ManagerNumber, arc: SlotRange) -> Self {
        let replica = self.log.replica.cut(arc);
        let mut taken = Partition::new(number, arc);
        taken.log.replica = replica;
        taken.log.durable_due = self.log.durable_due.clone();
        taken.answered = self.answered.clone();
        taken
    }
}
