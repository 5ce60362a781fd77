//! The owner's side of a partition: Sync, the log, commits, and who is behind.
//!
//! ```text
//!  Idle ──▶ (Scan ──▶) Sync ──▶ Serving ──▶ Wedged ──▶ Sync (under a new epoch, with the newcomer)
//! ```
//! Everything that an answer promises is committed first; [`Partition::keep_promises`] is the one
//! place where that is decided.

use crate::drain::Draining;
use crate::entry::{Asked, Ending, Origin};
use crate::env::Env;
use crate::flow::Flow;
use crate::io::Transition;
use crate::judge::Judged;
use crate::learn::Learner;
use crate::operate::Runs;
use crate::partition::Partition;
use crate::promised::Promised;
use crate::reads::Reads;
use crate::recover::Recovery;
use crate::requests::Requests;
use crate::scan::Scan;
use crate::sizes::Sizes;
use crate::sync::{Difference, SyncState};
use crate::work::Work;
use rota_messages::api::Holdings;
use rota_messages::{DocKey, Entry, Op, OpResult, Write};
use rota_model::node_msg::Renewed;
use rota_model::{
    Changed, Epoch, Incarnation, LogPos, ManagerNumber, MemberId, NodeId, OpenOp, PoolName,
    Refusal, RefusalKind, RequestFate, RequestId, Retry, SessionKey, Stamp,
};
use rota_ring::View;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most requests that wait at one partition's owner. 64 callers per client and some hundred
/// clients fit; beyond it callers are told to come back. What they hold together is bounded by
/// [`crate::Sizes::request_bytes`].
pub(crate) const REQUESTS_MAX: usize = 20_000;

/// How long an entry that nobody waits for may stay unsent. Low, and a lone client pays two
/// writes to disk for each open; high, and watchers of an idle partition hear late of it.
const UNHURRIED_MS: u64 = 5;

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

/// Another member of the ISR, as the owner sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CopyState {
    pub member: MemberId,
    pub flow: Flow,
    /// Since when something is unacknowledged.
    pub behind_ms: Option<u64>,
    /// While the partition synchronises: what it must take.
    pub difference: Option<Difference>,
    /// It needs full content: it must leave the ISR and learn.
    pub too_old: bool,
}

impl CopyState {
    /// One of which nothing is known yet.
    pub fn new(member: MemberId, now_ms: u64) -> Self {
        let flow = Flow::new(LogPos::ZERO, now_ms);
        Self { member, flow, behind_ms: None, difference: None, too_old: false }
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

    /// Of those that wait for an id, who opens it; and the others.
    pub fn opens_among(&self, waiters: Vec<Origin>) -> (Vec<(Origin, &OpenOp)>, Vec<Origin>) {
        let (mut opens, mut others) = (Vec::new(), Vec::new());
        for origin in waiters {
            let Some(asked) = self.live.get(&origin) else { continue };
            let Op::Open(op) = &asked.op else {
                others.push(origin);
                continue;
            };
            opens.push((origin, op));
        }
        (opens, others)
    }

    /// Nodes whose renewals wait for a round that will never end ask again at once.
    fn give_up_renewals(mut self: Box<Self>, env: &mut Env) -> Box<Self> {
        let now = std::mem::take(&mut self.reads.renewals_now);
        let next = std::mem::take(&mut self.reads.renewals_next);
        for renewal in now.into_iter().chain(next) {
            crate::judge::answer(env, renewal.call, Renewed::NotServing);
        }
        self
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
}

impl Partition {
    /// The View says that this manager owns the partition under `pe`.
    pub fn lead(&mut self, env: &mut Env, pe: Epoch) {
        let Some(part) = self.entry(env) else { return };
        let lone_take_over = part.base_pe == pe && part.is_lone(env.me.number);
        let copies = self.other_copies(env);
        let before = self.leading.take();
        // Requests stay; everything that was known about the ring or the nodes may be outdated.
        let (mut live, mut promised) = before
            .map(|before| before.give_up_renewals(env))
            .map_or_else(Default::default, |it| (it.live, it.promised));
        for (origin, (asked, promise)) in std::mem::take(&mut self.inherited) {
            live.insert(origin, asked);
            // The arc was cut out while the log was at rest, so all of them lie below its first entry.
            promised.extend(promise);
        }
        // Operations that were appended are not begun again: their entries are in this log, and
        // are committed with the first one of this epoch.
        let is_operation =
            |origin: &Origin| live.get(origin).is_some_and(|it| matches!(it.op, Op::Documents(_)));
        let promised: VecDeque<_> =
            promised.into_iter().filter(|it| is_operation(&it.origin)).collect();
        let kept: BTreeSet<Origin> = promised.iter().map(|it| it.origin).collect();
        let phase = if lone_take_over && pe.0 > 1 {
            env.note(Transition::LoneTakeOver, Some(self.number));
            Phase::Scan(Scan::new(&env.nodes.reg))
        } else {
            env.note(Transition::SyncStarted, Some(self.number));
            Phase::Sync(SyncState::default())
        };
        env.found(self.replica.high_water);
        self.leading = Some(Box::new(Leading {
            queue: live.keys().filter(|it| !kept.contains(it)).copied().collect(),
            live,
            promised,
            ..Leading::new(pe, phase, copies, env.now.mono_ms)
        }));
        self.drive_scan(env);
        self.drive_sync(env);
    }

    /// Copies that never ran have started. That alone changes no epoch: they had nothing to lose.
    pub fn on_first_starts(&mut self, view: &View) {
        let Some(leading) = &mut self.leading else { return };
        for (number, copy) in &mut leading.copies {
            if copy.member.incarnation == Incarnation(0) {
                copy.member = view.member(*number).unwrap_or(copy.member);
            }
        }
    }

    /// The View says that another manager owns it.
    pub fn step_down(&mut self, env: &mut Env) {
        let Some(leading) = self.leading.take() else {
            return;
        };
        env.note(Transition::SteppedDown, Some(self.number));
        // Entries that nobody waited for are on no list any more.
        env.persist_now = true;
        let leading = leading.give_up_renewals(env);
        let epoch = env.epoch();
        let appended: BTreeSet<Origin> = leading.promised.iter().map(|it| it.origin).collect();
        for (origin, asked) in leading.live {
            let text = format!("partition {} has another owner now", self.number);
            let (kind, retry) = (RefusalKind::NotOwner, Retry::AtOwner(epoch));
            let mut refusal = Refusal::new(kind, retry, text);
            // What was begun here may be gone, or may be finished by the next owner.
            let is_begun = !matches!(asked.op, Op::Documents(_)) || appended.contains(&origin);
            if is_begun {
                refusal.changed = Changed::Unknown;
            }
            let result = Err(refusal);
            self.settled.insert(env, origin, &asked.op, &result);
            env.answer(origin, result);
        }
    }

    /// Commits what the whole ISR, this manager's disk included, has acknowledged; then answers
    /// what was promised for it.
    pub fn advance_commit(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let mut at = self.replica.durable;
        for copy in leading.copies.values() {
            at = at.min(copy.flow.acked);
        }
        if at.pe != leading.pe || at <= self.replica.committed {
            return;
        }
        let done = self.replica.commit_to(at, &env.config.sizes);
        // What is found again is acted on when the View says that it is all.
        if let Phase::Recover(_) = leading.phase {
            return self.write_more(env);
        }
        self.keep_promises(env, at);
        let Some(leading) = &mut self.leading else { return };
        let synced =
            matches!(&leading.phase, Phase::Sync(sync) if sync.at.is_some_and(|it| it <= at));
        if synced {
            self.start_serving(env);
        }
        let keys: BTreeSet<&DocKey> =
            done.iter().flat_map(|entry| entry.writes.iter().map(|write| &write.key)).collect();
        for key in keys {
            self.on_committed(env, key);
        }
        self.serve_pulls(env);
        self.serve_follows(env);
        self.drive_wedge(env);
    }

    fn start_serving(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        leading.phase = Phase::Serving;
        leading.since_ms = env.now.mono_ms;
        // Whatever an earlier owner told is not above what it had.
        leading.told = self.replica.high_water;
        for copy in leading.copies.values_mut() {
            (copy.behind_ms, copy.difference) = (None, None);
        }
        env.note(Transition::Serving, Some(self.number));
        self.start_judging(env);
        self.redrive(env);
        self.drain_queue(env);
    }

    /// Runs everything that waited for the partition to serve.
    pub fn drain_queue(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let waiting = std::mem::take(&mut leading.queue);
        for origin in waiting {
            self.run(env, origin);
        }
    }

    /// Writes an entry. Only while serving.
    pub fn write(
        &mut self,
        env: &mut Env,
        writes: Vec<Write>,
        request: Option<RequestId>,
    ) -> LogPos {
        debug_assert!(
            self.leading.as_ref().is_some_and(|it| it.is_open()),
            "partition {} writes, and does not serve",
            self.number
        );
        let pe = self.leading.as_ref().map_or(self.replica.pe, |it| it.pe);
        let at = self.replica.next_pos(pe);
        self.append(env, Entry::new(at, writes, request));
        let now = env.now.mono_ms;
        if let Some(leading) = &mut self.leading {
            leading.dirty = true;
            for copy in leading.copies.values_mut() {
                copy.behind_ms.get_or_insert(now);
            }
        }
        at
    }

    /// Writes an entry that nobody waits for. It travels with the next one that somebody waits
    /// for, or after [`UNHURRIED_MS`]: it costs no message and no write to disk of its own.
    pub fn write_unhurried(
        &mut self,
        env: &mut Env,
        writes: Vec<Write>,
        request: Option<RequestId>,
    ) -> LogPos {
        let persist_now = env.persist_now;
        let dirty = self.leading.as_ref().is_some_and(|it| it.dirty);
        let at = self.write(env, writes, request);
        env.persist_now = persist_now;
        if let Some(leading) = &mut self.leading {
            leading.dirty = dirty;
            leading.unhurried_ms.get_or_insert(env.now.mono_ms + UNHURRIED_MS);
        }
        at
    }

    /// Answers a request that waits here.
    pub fn reply(&mut self, env: &mut Env, origin: Origin, mut result: OpResult) {
        let Some(asked) = self.leading.as_mut().and_then(|it| it.live.remove(&origin)) else {
            return;
        };
        if let Some(leading) = &mut self.leading {
            leading.runs.remove(&origin);
        }
        // Whose request id names something else has begun nothing: what stands there is the other.
        if let Err(refusal) = &mut result
            && refusal.kind != RefusalKind::RequestIdReused
            && (asked.ending == Some(Ending::Unplaced) || self.has_begun(env, &asked.op))
        {
            refusal.changed = Changed::Unknown;
        }
        self.settled.insert(env, origin, &asked.op, &result);
        env.answer(origin, result);
    }

    /// Whether a request stands in its session's record: then it changed something, whatever it
    /// came to.
    fn has_begun(&self, env: &Env, op: &Op) -> bool {
        let (session, request, opens) = match op {
            Op::Open(open) => (&open.key, &open.request, true),
            Op::Close(close) => (&close.key, &close.request, false),
            Op::Get(_) | Op::List(_) | Op::Pull(_) | Op::Report(_) | Op::Documents(_) => {
                return false;
            }
        };
        let entry = self.replica.request(&Self::key_of(env, session), request);
        entry.is_some_and(|it| match it.fate {
            RequestFate::Opening | RequestFate::Opened { .. } | RequestFate::Failed { .. } => opens,
            RequestFate::Closed { .. } => true,
        })
    }

    /// Whether a new operation may be written: this partition serves, and is not wedged, and not too
    /// much is about to go to the disk. Who was read for before that, and is to be written for now, waits
    /// until it is over.
    pub fn may_begin(&self, env: &Env) -> bool {
        let is_open = self.leading.as_ref().is_some_and(|it| it.is_open());
        is_open && self.has_copies(env) && !env.is_batch_full()
    }

    /// Whether enough Up managers hold a copy for a new operation.
    pub fn has_copies(&self, env: &Env) -> bool {
        let Some(leading) = &self.leading else {
            return false;
        };
        let view = env.view();
        let (copies, wanted) = (leading.copies.len() + 1, view.r as usize + 1);
        if copies >= wanted {
            return true;
        }
        let overdue = leading.missing.values();
        let deadline = env.config.timing.copy_deadline_ms;
        let overdue = overdue.filter(|since| env.now.mono_ms >= **since + deadline).count();
        copies >= wanted.min(view.up_count().saturating_sub(overdue))
    }
}
