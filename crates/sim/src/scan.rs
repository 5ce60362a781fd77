//! The last look at a settled cluster: what every manager reads and lists, and what watchers know.

use crate::calls::CallFor;
use crate::invariant::acknowledged_open::{self, Found};
use crate::invariant::complete_list::{self, Expected};
use crate::invariant::{Verdict, Violation};
use crate::run::Trial;
use crate::users::filter_of;
use crate::users::last_readings::{read_copies, read_documents, read_session};
use crate::writing::SPACE;
use rota_model::{RefusalKind, SessionRecord};
use rota_protocol::operate::slot_of;
use rota_protocol::{Answer, Doc};
use std::collections::BTreeMap;
use std::sync::Arc;

/// By how much clocks that stepped are behind, at most.
const LATE_CLOCKS_US: u64 = 200_000_000;

/// Longer than an owner waits between tries to open lost sessions again.
const OPENED_AGAIN_US: u64 = 1_500_000;

/// How long the watcher of documents may take to catch up on a healed cluster, in microseconds.
const FOLLOWED_US: u64 = 60_000_000;

impl Trial {
    /// Every id is read through every manager, every session is listed through every manager, and
    /// the watcher catches up.
    ///
    /// # Errors
    /// What is read, listed or watched is not what it should be.
    pub fn scan(&mut self) -> Verdict {
        // What happens by itself must not happen between two looks.
        if let Some(rest_us) = self.world.ground.setup.lives_rest_us() {
            self.world.run_until(self.world.ground.now_us() + rest_us);
            // A clock that is behind brings some of it later.
            let until_us = self.world.ground.now_us() + LATE_CLOCKS_US;
            while self.events_come() && self.world.ground.now_us() < until_us {
                self.world.run_until(self.world.ground.now_us() + 500_000);
            }
            self.converge()?;
        }
        if self.some_are_opened_again() {
            self.world.run_until(self.world.ground.now_us() + OPENED_AGAIN_US);
            self.converge()?;
        }
        self.note_tasks_done();
        let keys = self.world.ground.setup.keys.clone();
        let before = self.world.ground.checker.ledger.asked.len();
        for key in &keys {
            for (number, _) in self.world.ground.setup.numbers.clone() {
                read_session(&mut self.world.ground, number, key.clone());
            }
        }
        for (number, _) in self.world.ground.setup.numbers.clone() {
            self.world.users.last_lists.begin(&mut self.world.ground, number);
            read_documents(&mut self.world.ground, number);
            read_copies(&mut self.world.ground, number);
        }
        let until_us = self.world.ground.now_us() + 3_000_000;
        while self.world.ground.checker.violations.is_empty()
            && self.world.ground.now_us() < until_us
        {
            self.world.run_until(self.world.ground.now_us() + 100_000);
            let is_poll = |it: &&CallFor| matches!(it, CallFor::Pull(_) | CallFor::Documents(_));
            let pulls = self.world.ground.calls.values().filter(is_poll).count();
            if pulls == self.world.ground.calls.len() {
                break;
            }
        }
        // One more round of the watcher's pulls, also of those that went to a manager which was just
        // starting; and if the cluster forgot something meanwhile, and the watcher's position is too old
        // for the short tails here, its snapshot to the end.
        let quiet_us = self.world.ground.now_us();
        self.world.run_until(quiet_us + 400_000);
        let until_us = self.world.ground.now_us() + 3_000_000;
        while self.world.ground.checker.violations.is_empty()
            && self.world.ground.now_us() < until_us
            && !self.world.users.watcher.has_caught_up(quiet_us)
        {
            self.world.run_until(self.world.ground.now_us() + 10_000);
        }
        if !self.world.ground.checker.violations.is_empty() {
            return Ok(());
        }
        let found = self.found(before)?;
        acknowledged_open::check(&self.world.ground.checker.ledger, &found)?;
        self.check_lists(&found)?;
        self.check_watcher(&found)?;
        self.documents_are_followed(quiet_us)
    }

    /// Whether the watcher knows the sessions that were found.
    fn check_watcher(&self, found: &Found) -> Verdict {
        for (part, following) in &self.world.users.watcher.parts {
            let filter = filter_of(*part);
            let records = found.values().flatten().filter(|record| filter.passes(record));
            let records = records.filter(|record| {
                let slot = rota_ring::slot_of_session(&record.key, self.world.ground.setup.m);
                let view = self.world.store.state().view.as_ref();
                let is_here = view.is_some_and(|view| view.home(slot) == *part);
                // What was forgotten after the reads is in no later snapshot.
                is_here && (following.watched.knows(&record.key) || !self.may_vanish(record))
            });
            following.watched.check(&records.cloned().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Waits until the watcher of documents has caught up with that moment, and checks what it knows. Pages that look
    /// at a document or two take long to a snapshot's end.
    fn documents_are_followed(&mut self, since_us: u64) -> Verdict {
        let until_us = self.world.ground.now_us() + FOLLOWED_US;
        while self.world.ground.checker.violations.is_empty()
            && !self.world.users.document_watcher.has_caught_up(since_us)
        {
            if self.world.ground.now_us() >= until_us {
                let text = format!("a watch does not catch up within {FOLLOWED_US} us");
                return Err(Violation::new("document watch", text));
            }
            self.world.run_until(self.world.ground.now_us() + 50_000);
        }
        if self.world.ground.checker.violations.is_empty() {
            self.check_document_watcher()
        } else {
            Ok(())
        }
    }

    /// Whether the watcher of documents knows what the owners have.
    fn check_document_watcher(&self) -> Verdict {
        let Some(view) = self.world.store.state().view.as_ref() else { return Ok(()) };
        for (part, following) in &self.world.users.document_watcher.parts {
            let Some(owner) =
                view.parts.get(part).and_then(|it| self.world.managers.get(&it.owner))
            else {
                continue;
            };
            let is_here = |doc: &&Arc<Doc>| {
                let name = doc.name();
                let is_meant = name.space() == SPACE && !name.is_memory();
                is_meant && view.home(slot_of(name, self.world.ground.setup.m)) == *part
            };
            let here = owner.disk.durable().docs.values().filter(is_here);
            following.check(&here.map(|it| it.document().clone()).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Whether lost sessions wait for a node that has room: whoever reads them now may find another life later.
    fn some_are_opened_again(&self) -> bool {
        let docs = self.world.managers.values().flat_map(|it| it.disk.durable().docs.values());
        let mut records = docs.filter_map(|doc| doc.session());
        records.any(|record| record.is_reopened())
    }

    /// What the scan's reads found. All managers must agree.
    fn found(&self, before: usize) -> Result<Found, Violation> {
        let mut found = Found::new();
        for asked in self.world.ground.checker.ledger.asked.iter().skip(before) {
            let Some(attempt) = asked.attempts.first() else { continue };
            let record = match &attempt.answer {
                Some((_, Ok(Answer::Got { session, .. }))) => Some(session.record.clone()),
                Some((_, Err(refusal))) if refusal.kind == RefusalKind::NotFound => None,
                other => {
                    let text = format!(
                        "the last read of {} through M{} came to {other:?}",
                        asked.key, attempt.manager
                    );
                    return Err(Violation::new("served", text));
                }
            };
            let known = found.entry(asked.key.clone()).or_insert_with(|| record.clone());
            let tombstones = [&*known, &record].into_iter().flatten().all(|it| self.may_vanish(it));
            if *known != record && !tombstones {
                let text = format!(
                    "{} is {record:?} through M{} and {known:?} through another",
                    asked.key, attempt.manager
                );
                return Err(Violation::new("linear", text));
            }
        }
        Ok(found)
    }

    /// Whether a record is a tombstone of a cluster that forgets quickly, or of a kind that goes soon.
    fn may_vanish(&self, record: &SessionRecord) -> bool {
        let forgets = self.world.ground.setup.timing.tombstone_ms < 60_000;
        record.is_unplaced() || (record.state.is_ended() && forgets)
    }

    fn check_lists(&self, found: &Found) -> Verdict {
        let expected = found.iter().filter_map(|(key, record)| {
            let record = record.as_ref()?;
            let (life, may_vanish) = (record.life, self.may_vanish(record));
            Some((key.clone(), Expected { life, may_vanish }))
        });
        let expected: BTreeMap<_, _> = expected.collect();
        for (through, list) in &self.world.users.last_lists.lists {
            if list.next.is_some() {
                let text = format!("the last list through M{through} does not end");
                return Err(Violation::new("list", text));
            }
            complete_list::check(*through, &list.shown, &expected)?;
        }
        Ok(())
    }
}
