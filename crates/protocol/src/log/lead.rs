//! The owner writes into the log: at once or unhurried, whether it may, and who the other copies are. Commits
//! stand in [`crate::partition::lead`].

use crate::log::copies::CopyState;
use crate::log::env::Env;
use crate::partition::state::Partition;
use rota_messages::{Entry, Write};
use rota_model::{Incarnation, LogPos, ManagerNumber, RequestId};
use rota_ring::View;
use std::collections::BTreeMap;

/// How long an entry that nobody waits for may stay unsent. Low, and a lone client pays two
/// writes to disk for each open; high, and watchers of an idle partition hear late of it.
const UNHURRIED_MS: u64 = 5;

impl Partition {
    /// Copies that never ran have started. That alone changes no epoch: they had nothing to lose.
    pub fn on_first_starts(&mut self, view: &View) {
        let Some(leading) = &mut self.leading else { return };
        for (number, copy) in &mut leading.lead.copies {
            if copy.member.incarnation == Incarnation(0) {
                copy.member = view.member(*number).unwrap_or(copy.member);
            }
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
            self.leading.as_ref().is_some_and(|it| it.lead.is_open()),
            "partition {} writes, and does not serve",
            self.number
        );
        let pe = self.leading.as_ref().map_or(self.replica.pe, |it| it.lead.pe);
        let at = self.replica.next_pos(pe);
        self.append(env, Entry::new(at, writes, request));
        let now = env.now.mono_ms;
        if let Some(leading) = &mut self.leading {
            leading.lead.unsent.dirty = true;
            for copy in leading.lead.copies.values_mut() {
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
        let persist_now = env.disk.persist_now;
        let dirty = self.leading.as_ref().is_some_and(|it| it.lead.unsent.dirty);
        let at = self.write(env, writes, request);
        env.disk.persist_now = persist_now;
        if let Some(leading) = &mut self.leading {
            leading.lead.unsent.dirty = dirty;
            leading.lead.unsent.due_ms.get_or_insert(env.now.mono_ms + UNHURRIED_MS);
        }
        at
    }

    /// Whether a new operation may be written: this partition serves, and is not wedged, and not too
    /// much is about to go to the disk. Who was read for before that, and is to be written for now, waits
    /// until it is over.
    pub fn may_begin(&self, env: &Env) -> bool {
        let is_open = self.leading.as_ref().is_some_and(|it| it.lead.is_open());
        is_open && self.has_copies(env) && !env.is_batch_full()
    }

    /// Whether enough Up managers hold a copy for a new operation.
    pub fn has_copies(&self, env: &Env) -> bool {
        let Some(leading) = &self.leading else {
            return false;
        };
        let view = env.view();
        let (copies, wanted) = (leading.lead.copies.len() + 1, view.r as usize + 1);
        if copies >= wanted {
            return true;
        }
        let overdue = leading.lead.newcomers.missing.values();
        let deadline = env.config.timing.copy_deadline_ms;
        let overdue = overdue.filter(|since| env.now.mono_ms >= **since + deadline).count();
        copies >= wanted.min(view.up_count().saturating_sub(overdue))
    }

    /// The other members of the ISR, of which nothing is known yet.
    pub fn other_copies(&self, env: &Env) -> BTreeMap<ManagerNumber, CopyState> {
        let isr = self.entry(env).map(|part| part.isr.clone()).unwrap_or_default();
        let others = isr.iter().map(|it| it.number).filter(|it| *it != env.me.number);
        let member = |it| Some((it, CopyState::new(env.view().member(it)?, env.now.mono_ms)));
        others.filter_map(member).collect()
    }
}
