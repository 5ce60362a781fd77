//! What an owner has beside its copy.
//!
//! ```text
//!  Idle ──▶ (Scan ──▶) Sync ──▶ Serving ──▶ Wedged ──▶ Sync (under a new epoch, with the newcomer)
//! ```

use crate::documents::waiting::Documents;
use crate::log::copies::{CopyState, SyncState};
use crate::log::inbox::Inbox;
use crate::log::newcomers::Newcomers;
use crate::log::origin::Origin;
use crate::log::read_index::Rounds;
use crate::log::requests::Promised;
use crate::log::wedge::{Unsent, Wedge};
use crate::node_lease::state::NodeLeases;
use crate::pools::state::Pools;
use crate::sessions::scan_state::{Recovery, Scan};
use crate::sessions::state::Sessions;
use crate::settings::sizes::Sizes;
use rota_messages::DocKey;
use rota_model::{Epoch, LogPos, ManagerNumber, MemberId};
use std::collections::BTreeMap;

/// The owner's side of a partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leading {
    /// The owner's side of the log.
    pub lead: Lead,
    /// Requests that wait here, and answers that wait for a commit.
    pub inbox: Inbox,
    /// Reads that wait for the copies.
    pub rounds: Rounds,
    /// What lives here beside the log.
    pub residents: Residents,
}

/// What lives in a partition beside its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Residents {
    pub sessions: Sessions,
    pub documents: Documents,
    pub pools: Pools,
    pub leases: NodeLeases,
    /// How far looking for what is old has come.
    pub aging: Aging,
}

/// The owner's side of the log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lead {
    pub pe: Epoch,
    pub phase: Phase,
    /// Since when this manager leads under this epoch.
    pub since_ms: u64,
    /// The other members of the ISR.
    pub copies: BTreeMap<ManagerNumber, CopyState>,
    /// Managers that should hold a copy.
    pub newcomers: Newcomers,
    /// When the log comes to rest, and what for.
    pub wedge: Wedge,
    /// Entries that are not sent yet.
    pub unsent: Unsent,
}

/// What the owner is doing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    /// After a take-over from a lone disk: what do the nodes run?
    Scan(Scan),
    /// No copy is known to be complete: what do the nodes run?
    Recover(Box<Recovery>),
    /// Collecting reports, then waiting for everybody to take the difference.
    Sync(SyncState),
    Serving,
    /// No new entries: members are being added. `asked` once a compare-and-set may be on its way.
    Wedged {
        since_ms: u64,
        asked: bool,
    },
}

impl Phase {
    /// The scan that is under way.
    pub fn scan(&mut self) -> Option<&mut Scan> {
        match self {
            Phase::Scan(scan) => Some(scan),
            Phase::Recover(recovery) => recovery.scan(),
            Phase::Sync(_) | Phase::Serving | Phase::Wedged { .. } => None,
        }
    }
}

impl Leading {
    /// It begins, and nobody has asked for anything.
    pub fn new(
        pe: Epoch,
        phase: Phase,
        copies: BTreeMap<ManagerNumber, CopyState>,
        now_ms: u64,
    ) -> Self {
        Self {
            lead: Lead {
                pe,
                phase,
                since_ms: now_ms,
                copies,
                newcomers: Newcomers::default(),
                wedge: Wedge { next_ms: now_ms, ..Wedge::default() },
                unsent: Unsent::default(),
            },
            inbox: Inbox::default(),
            rounds: Rounds::default(),
            residents: Residents {
                sessions: Sessions::new(now_ms),
                documents: Documents::default(),
                pools: Pools::default(),
                leases: NodeLeases::default(),
                aging: Aging { next_ms: now_ms, after: None },
            },
        }
    }

    /// Whether answers are committed and wait for the config store.
    pub fn has_unproven(&self, committed: LogPos) -> bool {
        self.lead.copies.is_empty()
            && self.inbox.promised.front().is_some_and(|it| it.at <= committed)
    }

    /// Whether somebody waits for a confirm round, or for another read of the config store.
    pub fn wants_round(&self, committed: LogPos, now_ms: u64) -> bool {
        !self.rounds.next.is_empty()
            || !self.residents.leases.renewals_next.is_empty()
            || self.has_unproven(committed) && now_ms >= self.rounds.again_ms
    }

    /// Takes the answer to a request that waits elsewhere from now on.
    pub fn take_promise(&mut self, origin: Origin) -> Option<Promised> {
        let at = self.inbox.promised.iter().position(|it| it.origin == origin)?;
        self.inbox.promised.remove(at)
    }

    /// Takes the answers that may be let go when everything up to `at` is committed.
    pub(crate) fn take_promised(&mut self, at: LogPos) -> Vec<Promised> {
        let is_lone = self.lead.copies.is_empty();
        let upto = self.inbox.promised.partition_point(|it| it.at <= at);
        let committed = self.inbox.promised.drain(..upto);
        let (now, later): (Vec<_>, Vec<_>) = committed.partition(|it| it.is_fenced || !is_lone);
        for waits in later.into_iter().rev() {
            self.inbox.promised.push_front(waits);
        }
        now
    }
}

impl Lead {
    /// This process was stopped for a while: that is nobody's silence.
    pub fn on_gap(&mut self, gap_ms: u64, now_ms: u64) {
        for copy in self.copies.values_mut() {
            copy.behind_ms = copy.behind_ms.map(|since| now_ms.min(since + gap_ms));
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Whether somebody who learns is so close that the rest can be sent at rest.
    pub fn has_close_learner(&self, last: LogPos, sizes: &Sizes) -> bool {
        self.newcomers.learners.values().any(|it| it.is_close(last, sizes))
    }

    /// Whether the log should come to rest: a newcomer's arc is cut out then, too, and who leaves hands on
    /// what is at rest.
    pub fn wants_wedge(&self, last: LogPos, sizes: &Sizes) -> bool {
        self.has_close_learner(last, sizes) || self.wedge.to_split.is_some() || self.wedge.lets_go
    }

    /// Whether that is a copy, or may be one by now.
    pub fn has_or_adds(&self, member: MemberId) -> bool {
        let copy = self.copies.get(&member.number).map(|it| it.member);
        copy.or_else(|| self.wedge.adding.get(&member.number).copied()) == Some(member)
    }

    /// Whether reads may be answered.
    pub fn reads(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Wedged { .. })
    }
}

/// How far looking for what is old has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Aging {
    pub next_ms: u64,
    /// The document after which it goes on.
    pub after: Option<DocKey>,
}
