//! The owner's side of the log: what it knows of the other copies, whether it may write, and what it writes.
//!
//! ```text
//!  Idle ──▶ (Scan ──▶) Sync ──▶ Serving ──▶ Wedged ──▶ Sync (under a new epoch, with the newcomer)
//! ```
//! What the log sets going beyond itself it says as [`Next`]; the owner does that ([`crate::partition::led`]).

use crate::log::copies::{CopyState, SyncState};
use crate::log::env::Env;
use crate::log::newcomers::Newcomers;
use crate::log::recovery::Recovery;
use crate::log::state::Log;
use crate::log::wedge::{Unsent, Wedge};
use crate::settings::sizes::Sizes;
use rota_messages::{Entry, Write};
use rota_model::{Epoch, Incarnation, LogPos, ManagerNumber, MemberId, RequestId};
use rota_ring::View;
use std::collections::BTreeMap;

/// How long an entry that nobody waits for may stay unsent. Low, and a lone client pays two
/// writes to disk for each open; high, and watchers of an idle partition hear late of it.
const UNHURRIED_MS: u64 = 5;

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
    /// A resident found that what is here is not all that was acknowledged, and why. Heeded after `find_out` and a
    /// node's answer, where residents may find that.
    pub halts: Option<String>,
}

/// What the owner is doing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    /// After a take-over from a lone disk: what do the nodes run?
    Scan,
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

/// What the log sets going when a message or time has moved it.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Nothing,
    /// More may be committed.
    Advance,
    /// A wedge may begin or end.
    Wedge,
    /// Reports may be complete.
    Sync,
}

impl Lead {
    /// It begins.
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
            newcomers: Newcomers::default(),
            wedge: Wedge { next_ms: now_ms, ..Wedge::default() },
            unsent: Unsent::default(),
            halts: None,
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

    /// Whether reads may be answered.
    pub fn reads(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Wedged { .. })
    }

    /// Whether this owner is the only copy.
    pub fn is_lone(&self) -> bool {
        self.copies.is_empty()
    }

    /// Whether somebody who learns is so close that the rest can be sent at rest.
    pub fn has_close_learner(&self, last: LogPos, sizes: &Sizes) -> bool {
        self.newcomers.learners.values().any(|it| it.is_close(last, sizes))
    }

    /// Whether the log should come to rest: a newcomer's arc is cut out then, too, and who leaves hands on
    /// what is at rest.
    pub fn wants_wedge(&self, last: LogPos, sizes: &Sizes) -> bool {
        self.has_close_learner(last, sizes) || self.wedge.to_split.is_some() || self.wedge.releases
    }

    /// Whether that is a copy, or may be one by now.
    pub fn has_or_adds(&self, member: MemberId) -> bool {
        let copy = self.copies.get(&member.number).map(|copy| copy.member);
        copy.or_else(|| self.wedge.adding.get(&member.number).copied()) == Some(member)
    }

    /// Copies that never ran have started. That alone changes no epoch: they had nothing to lose.
    pub fn on_first_starts(&mut self, view: &View) {
        for (number, copy) in &mut self.copies {
            if copy.member.incarnation == Incarnation(0) {
                copy.member = view.member(*number).unwrap_or(copy.member);
            }
        }
    }

    /// Writes an entry. Only while serving.
    pub fn write(
        &mut self,
        env: &mut Env,
        log: &mut Log,
        writes: Vec<Write>,
        request: Option<RequestId>,
    ) -> LogPos {
        debug_assert!(self.is_open(), "partition {} writes, and does not serve", log.number);
        let at = log.replica.next_pos(self.pe);
        log.append(env, Entry::new(at, writes, request));
        let now = env.now.mono_ms;
        self.unsent.dirty = true;
        for copy in self.copies.values_mut() {
            copy.behind_ms.get_or_insert(now);
        }
        at
    }

    /// Writes an entry that nobody waits for. It travels with the next one that somebody waits
    /// for, or after [`UNHURRIED_MS`]: it costs no message and no write to disk of its own.
    pub fn write_unhurried(
        &mut self,
        env: &mut Env,
        log: &mut Log,
        writes: Vec<Write>,
        request: Option<RequestId>,
    ) -> LogPos {
        let (persist_now, dirty) = (env.disk.persist_now, self.unsent.dirty);
        let at = self.write(env, log, writes, request);
        env.disk.persist_now = persist_now;
        self.unsent.dirty = dirty;
        self.unsent.due_ms.get_or_insert(env.now.mono_ms + UNHURRIED_MS);
        at
    }

    /// Whether enough Up managers hold a copy for a new operation.
    pub fn has_copies(&self, env: &Env) -> bool {
        let view = env.view();
        let (copies, wanted) = (self.copies.len() + 1, view.r as usize + 1);
        if copies >= wanted {
            return true;
        }
        let overdue = self.newcomers.missing.values();
        let deadline = env.config.timing.copy_deadline_ms;
        let overdue = overdue.filter(|since| env.now.mono_ms >= **since + deadline).count();
        copies >= wanted.min(view.up_count().saturating_sub(overdue))
    }

    /// What the whole ISR, this manager's disk included, has acknowledged, if that is news.
    pub(crate) fn committable(&self, log: &Log) -> Option<LogPos> {
        let acked = self.copies.values().map(|copy| copy.flow.acked);
        let at = acked.fold(log.replica.durable, LogPos::min);
        (at.pe == self.pe && at > log.replica.committed).then_some(at)
    }

    /// Whether everybody took the difference.
    pub(crate) fn is_synced(&self, committed: LogPos) -> bool {
        matches!(&self.phase, Phase::Sync(sync) if sync.at.is_some_and(|at| at <= committed))
    }

    /// The partition serves from now on.
    pub(crate) fn serve(&mut self, now_ms: u64) {
        self.phase = Phase::Serving;
        self.since_ms = now_ms;
        for copy in self.copies.values_mut() {
            (copy.behind_ms, copy.difference) = (None, None);
        }
    }
}
