//! What an owner has beside its copy.
//!
//! ```text
//!  Idle ──▶ (Scan ──▶) Sync ──▶ Serving ──▶ Wedged ──▶ Sync (under a new epoch, with the newcomer)
//! ```

use crate::documents::state::Runs;
use crate::log::copies::{CopyState, SyncState};
use crate::log::learner::Learner;
use crate::log::origin::Origin;
use crate::log::read_index::Reads;
use crate::log::requests::{Asked, Promised, Requests};
use crate::node_lease::state::Judged;
use crate::sessions::scan_state::{Recovery, Scan};
use crate::sessions::state::{Draining, Work};
use crate::settings::sizes::Sizes;
use rota_messages::DocKey;
use rota_messages::api::Holdings;
use rota_model::{Epoch, LogPos, ManagerNumber, MemberId, NodeId, PoolName, SessionKey, Stamp};
use std::collections::{BTreeMap, VecDeque};

/// The owner's side of a partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leading {
    pub pe: Epoch,
    pub phase: Phase,
    /// Since when this manager leads under this epoch.
    pub since_ms: u64,
    /// The other members of the ISR.
    pub copies: BTreeMap<ManagerNumber, CopyState>,
    pub learners: BTreeMap<ManagerNumber, Learner>,
    /// Up managers that should hold a copy and do not, and since when.
    pub missing: BTreeMap<ManagerNumber, u64>,
    /// Managers to which copying was begun, and since when nobody wants that any more. They keep what
    /// they have as long as this epoch lasts, since they might have been added.
    pub begun: BTreeMap<ManagerNumber, Option<u64>>,
    /// Who may be a copy already: a compare-and-set that adds them was asked for, and it is not known that
    /// it failed. One of them may own the partition by now, and take out all that this owner knows of.
    pub adding: BTreeMap<ManagerNumber, MemberId>,
    /// That is long enough ago for one of them: a new epoch is due.
    pub drops_abandoned: bool,
    /// A newcomer whose arc is to be cut out of this partition.
    pub to_split: Option<ManagerNumber>,
    /// Who leaves the ring is a copy, or this owner, and enough others hold everything.
    pub lets_go: bool,
    /// Every request that waits here, with its operation and deadline.
    pub live: Requests<Origin, Asked>,
    /// Requests that wait until the partition serves, or until it has enough copies.
    pub queue: VecDeque<Origin>,
    /// Opens that wait for a node with room.
    pub room: VecDeque<Origin>,
    /// Ids in progress.
    pub work: BTreeMap<SessionKey, Work>,
    /// Answers that wait for a commit.
    pub promised: VecDeque<Promised>,
    pub reads: Reads,
    /// Operations that wait.
    pub runs: Runs,
    /// Managers that wait for news of namespaces.
    pub follows: VecDeque<Origin>,
    /// What they said that their partitions hold of namespaces with limits.
    pub holdings: BTreeMap<ManagerNumber, Holdings>,
    /// Nobody was told of anything later that it does not exist.
    pub told: Stamp,
    pub judged: BTreeMap<NodeId, Judged>,
    /// Orders of new nodes that wait for their commit.
    pub ordering: BTreeMap<PoolName, LogPos>,
    /// Entries were appended, or must be sent again.
    pub dirty: bool,
    /// When entries that nobody waits for must be sent, if some are unsent.
    pub unhurried_ms: Option<u64>,
    pub room_news: u64,
    /// No wedge begins before this.
    pub next_wedge_ms: u64,
    /// One begins when the config store has answered.
    pub asks_to_wedge: bool,
    pub next_purge_ms: u64,
    /// The document after which looking for what is old goes on.
    pub purge_after: Option<DocKey>,
    pub next_room_ms: u64,
    pub drain: Draining,
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
            pe,
            phase,
            since_ms: now_ms,
            copies,
            learners: BTreeMap::new(),
            missing: BTreeMap::new(),
            begun: BTreeMap::new(),
            adding: BTreeMap::new(),
            drops_abandoned: false,
            to_split: None,
            lets_go: false,
            queue: VecDeque::new(),
            live: Requests::default(),
            room: VecDeque::new(),
            work: BTreeMap::new(),
            promised: VecDeque::new(),
            reads: Reads::default(),
            runs: Runs::new(),
            follows: VecDeque::new(),
            holdings: BTreeMap::new(),
            told: Stamp::MAX,
            judged: BTreeMap::new(),
            ordering: BTreeMap::new(),
            dirty: false,
            unhurried_ms: None,
            room_news: 0,
            next_wedge_ms: now_ms,
            asks_to_wedge: false,
            next_purge_ms: now_ms,
            purge_after: None,
            next_room_ms: now_ms,
            drain: Draining::default(),
        }
    }

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
        self.learners.values().any(|it| it.is_close(last, sizes))
    }

    /// Whether the log should come to rest: a newcomer's arc is cut out then, too, and who leaves hands on
    /// what is at rest.
    pub fn wants_wedge(&self, last: LogPos, sizes: &Sizes) -> bool {
        self.has_close_learner(last, sizes) || self.to_split.is_some() || self.lets_go
    }

    /// Whether that is a copy, or may be one by now.
    pub fn has_or_adds(&self, member: MemberId) -> bool {
        let copy = self.copies.get(&member.number).map(|it| it.member);
        copy.or_else(|| self.adding.get(&member.number).copied()) == Some(member)
    }

    /// Whether reads may be answered.
    pub fn reads(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Wedged { .. })
    }

    /// Whether answers are committed and wait for the config store.
    pub fn has_unproven(&self, committed: LogPos) -> bool {
        self.copies.is_empty() && self.promised.front().is_some_and(|it| it.at <= committed)
    }

    /// Whether somebody waits for a confirm round, or for another read of the config store.
    pub fn wants_round(&self, committed: LogPos, now_ms: u64) -> bool {
        !self.reads.next.is_empty()
            || !self.reads.renewals_next.is_empty()
            || self.has_unproven(committed) && now_ms >= self.reads.again_ms
    }

    /// Takes the answer to a request that waits elsewhere from now on.
    pub fn take_promise(&mut self, origin: Origin) -> Option<Promised> {
        let at = self.promised.iter().position(|it| it.origin == origin)?;
        self.promised.remove(at)
    }

    /// Takes the answers that may be let go when everything up to `at` is committed.
    pub(crate) fn take_promised(&mut self, at: LogPos) -> Vec<Promised> {
        let is_lone = self.copies.is_empty();
        let upto = self.promised.partition_point(|it| it.at <= at);
        let committed = self.promised.drain(..upto);
        let (now, later): (Vec<_>, Vec<_>) = committed.partition(|it| it.is_fenced || !is_lone);
        for waits in later.into_iter().rev() {
            self.promised.push_front(waits);
        }
        now
    }
}
