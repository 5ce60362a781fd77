//! The journal: what the next agent of the same boot must know of this one.
//!
//! A boot belongs to the run of the machine, not to one process of the agent. What an agent promised binds the next
//! one: fences, tokens that live or are dead, and news that nobody has acknowledged. So every change of these is
//! written down before anything that follows from it is done or answered. The lease is not among them: keepers
//! have it in a file, and obey that.

use crate::dead::DeadChange;
use crate::fences::Fences;
use crate::live::Live;
use rota_model::node_msg::{ReportEvent, SlotRange};
use rota_model::{BootId, Epoch, SessionKey, Token};
use serde::{Deserialize, Serialize};

/// One change of what the next agent must know. What is inside is the node's own; drivers write and read it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Entry(pub(crate) Change);

/// What an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// The boot, and what its folder proved.
    Boot,
    /// The lowest epochs that are obeyed.
    Fences,
    /// A session that lives, or no longer does.
    Session,
    /// A token that never runs again.
    Dead,
    /// News that no manager has acknowledged, or that one has.
    News,
    /// The boot was declared lost.
    Lost,
}

/// See [`Entry`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Change {
    /// Which boot this is, and those before it that its folder proved to be over.
    Boot { boot: BootId, ended: Vec<BootId> },
    /// All fences of a ring of `m` slots.
    Fences { m: u32, runs: Vec<(SlotRange, Epoch)> },
    /// A session lives, like this.
    Live { key: SessionKey, live: Box<Live> },
    /// No attempt of it lives.
    Gone { key: SessionKey },
    /// A dead token.
    Dead(DeadChange),
    /// All news of a session; none when there is none any more.
    News { key: SessionKey, news: Option<(Token, Vec<ReportEvent>)> },
    /// The boot was declared lost.
    Lost,
}

impl Change {
    /// All fences. `None` before the registration.
    pub(crate) fn fences(fences: &Fences) -> Option<Self> {
        let runs = fences.runs()?;
        Some(Change::Fences { m: runs.slots(), runs: runs.runs().collect() })
    }
}

impl Entry {
    /// What it is about.
    pub fn kind(&self) -> EntryKind {
        match &self.0 {
            Change::Boot { .. } => EntryKind::Boot,
            Change::Fences { .. } => EntryKind::Fences,
            Change::Live { .. } | Change::Gone { .. } => EntryKind::Session,
            Change::Dead(_) => EntryKind::Dead,
            Change::News { .. } => EntryKind::News,
            Change::Lost => EntryKind::Lost,
        }
    }

    /// The boot, if the entry names it: the first one of a journal does.
    pub fn boot(&self) -> Option<(BootId, &[BootId])> {
        match &self.0 {
            Change::Boot { boot, ended } => Some((*boot, ended)),
            Change::Fences { .. }
            | Change::Live { .. }
            | Change::Gone { .. }
            | Change::Dead(_)
            | Change::News { .. }
            | Change::Lost => None,
        }
    }
}

/// Why a boot cannot go on: everything of it must be ended, and the next boot begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotResumed {
    /// The first entry does not name the boot.
    #[error("its journal does not begin with a boot")]
    NoBoot,
    /// Nothing was ever started.
    #[error("the boot was never registered")]
    NeverRegistered,
    /// A verdict stands.
    #[error("the boot was declared lost")]
    Lost,
    /// Something lives in a slot without a lease.
    #[error("a session lives in a slot of which the lease file says nothing")]
    NoLease,
}
