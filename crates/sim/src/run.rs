//! One seed from start to end: chaos, heal, converge, serve, a power cut, durability scan, checks.

use crate::calls::CallFor;
use crate::counters::{Counters, Fault};
use crate::event::{Event, Phase};
use crate::invariant::acknowledged_open::Found;
use crate::invariant::complete_list::Expected;
use crate::invariant::converged::Moment;
use crate::invariant::{
    Verdict, Violation, acknowledged_open, actions_alone, closed_stays, complete_list, converged,
    copies_arrive, ends_told, linear, one_instance, same_answer, shown_forward, tasks_ran,
    unchanged, written_once,
};
use crate::ledger::Wish;
use crate::mutants::{Bug, Plant};
use crate::network::STRAGGLER_US_MAX;
use crate::world::World;
use rota_model::{ManagerNumber, RefusalKind, SessionKey, SessionRecord};
use rota_protocol::session_of;
use rota_protocol::{Answer, OpResult};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Client requests of the chaos phase, at least.
const REQUESTS_MIN: usize = 500;
/// Faults of the chaos phase, at least.
const FAULTS_MIN: u64 = 20;
/// Longer than an owner waits between tries to open lost sessions again.
const OPENED_AGAIN_US: u64 = 1_500_000;

/// Client requests of the serve phase.
const SERVED: usize = 40;
/// The chaos phase ends after this time even if clients got little done, and then fails.
const CHAOS_MAX_US: u64 = 600_000_000;

/// A message that brings one document of a copy, and its answer, take no longer.
const DOCUMENT_COPIED_US: u64 = 100_000;

/// What became of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Rules that were broken: when (simulated microseconds), which, how.
    pub violations: Vec<(u64, Violation)>,
    /// What happened, counted.
    pub counters: Counters,
    /// Client requests.
    pub requests: usize,
    /// Disturbances that took effect, beside what happens to single messages.
    pub disturbances: u64,
    /// Hash of everything that happened.
    pub trace_hash: u64,
    /// What happened, if it was to be kept.
    pub trace: Vec<String>,
}

/// Whether a healed cluster may leave it at that answer.
fn is_final(result: &OpResult) -> bool {
    let Err(refusal) = result else { return true };
    matches!(
        refusal.kind,
        RefusalKind::NotFound
            | RefusalKind::LifeMismatch
            | RefusalKind::VersionMismatch
            | RefusalKind::UnknownClass
            | RefusalKind::Provisioning
            | RefusalKind::NoCapacity
            | RefusalKind::StartFailed
            | RefusalKind::Closed
            | RefusalKind::Closing
            | RefusalKind::RequestIdReused
    )
}

/// Runs one seed.
pub fn run(seed: u64, keep_trace: bool, bug: Option<Bug>) -> Outcome {
    let mut world = World::new(seed, keep_trace, bug.map(Plant::new));
    world.store.careless = bug == Some(Bug::CarelessStore);
    world.store.drops_unsaid = bug == Some(Bug::DropsUnsaid);
    let phases = [
        World::chaos as fn(&mut World) -> Verdict,
        World::converge,
        World::serve,
        World::converge,
        World::restart_without_one,
        World::converge,
        World::scan,
        World::look_back,
    ];
    for phase in phases {
        let verdict = guarded(&mut world, phase);
        let now_us = world.ground.now_us();
        world.ground.checker.judge(now_us, verdict);
        if !world.ground.checker.violations.is_empty() {
            break;
        }
    }
    Outcome {
        seed,
        requests: world.ground.checker.ledger.asked.len(),
        disturbances: world.ground.disturbed,
        violations: world.ground.checker.violations,
        counters: world.ground.counters,
        trace_hash: world.ground.trace.hash(),
        trace: world.ground.trace.into_lines(),
    }
}

/// A phase. A panic in it is a broken rule like any other, so that it is told with its seed. Nothing
/// runs on after it: of the world only what it wrote down is looked at.
fn guarded(world: &mut World, phase: fn(&mut World) -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| phase(world))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Violation::new("panic", text.unwrap_or("it says nothing")))
    })
}

/// By how much clocks that stepped are behind, at most.
const LATE_CLOCKS_US: u64 = 200_000_000;

impl World {
    /// Clients work while things go wrong.
    fn chaos(&mut self) -> Verdict {
        while self.ground.checker.violations.is_empty() {
            let enough = self.ground.checker.ledger.asked.len() >= REQUESTS_MIN
                && self.ground.disturbed >= FAULTS_MIN;
            if enough || self.ground.now_us() > CHAOS_MAX_US {
                break;
            }
            self.run_until(self.ground.now_us() + 200_000);
        }
        let (asked, faults) = (self.ground.checker.ledger.asked.len(), self.ground.disturbed);
        if self.ground.checker.violations.is_empty()
            && (asked < REQUESTS_MIN || faults < FAULTS_MIN)
        {
            let text = format!(
                "clients made {asked} requests of at least {REQUESTS_MIN}, and {faults} faults of \
                 at least {FAULTS_MIN} happened in {CHAOS_MAX_US} us"
            );
            return Err(Violation::new("progress", text));
        }
        Ok(())
    }

    /// The longest that a healed cluster may take to settle.
    pub fn patience_us(&self) -> u64 {
        let timing = &self.ground.setup.timing;
        let joins_ms = timing.join_ms * 2 + timing.abandon_ms * 3;
        (timing.node_lost_ms * 2
            + timing.copy_deadline_ms * 2
            + timing.suspect_ms * 10
            + joins_ms
            + 12_000)
            * 1000
    }

    /// The longest that a copy of the largest partition takes, where the limits are such that each document
    /// is a message of its own.
    fn copies_us(&self) -> u64 {
        let processes = self.managers.values().filter_map(|it| it.process.as_ref());
        let documents = processes.flat_map(|it| it.stats().parts).map(|it| it.documents);
        documents.max().unwrap_or(0) * DOCUMENT_COPIED_US
    }

    /// Everything is healed and nobody asks: the cluster settles.
    fn converge(&mut self) -> Verdict {
        self.ground.phase = Phase::Quiet;
        // What is still under way may begin something: let it arrive first.
        let under_way_us = if self.ground.network.stragglers { STRAGGLER_US_MAX } else { 500_000 };
        self.heal();
        let until_us = self.ground.now_us() + self.patience_us() + self.copies_us();
        self.run_until(self.ground.now_us() + under_way_us);
        loop {
            self.run_until(self.ground.now_us() + 100_000);
            if !self.ground.checker.violations.is_empty() {
                return Ok(());
            }
            let busy = self.clients.iter().any(crate::client_host::ClientHost::is_busy)
                || self.writers.iter().any(crate::writer_host::WriterHost::is_busy);
            let verdict = self.settled();
            match verdict {
                Ok(()) if !busy => return Ok(()),
                Err(violation) if self.ground.now_us() > until_us => return Err(violation),
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn settled(&self) -> Verdict {
        let Some(view) = &self.store.state().view else {
            return Err(Violation::new("converged", "there is no View"));
        };
        if let Some(text) = self.outside() {
            return Err(Violation::new("converged", text));
        }
        if let Some(number) = self.unclaimed() {
            return Err(Violation::new("converged", format!("M{number} is not in the ring")));
        }
        if !self.admin.is_done {
            return Err(Violation::new("converged", "the pool is not described at last"));
        }
        if self.has_orders() {
            return Err(Violation::new("converged", "an order waits"));
        }
        if let Some(text) = self.event_waits() {
            return Err(Violation::new("converged", text));
        }
        if let Some(text) = self.task_waits() {
            return Err(Violation::new("converged", text));
        }
        if let Some(text) = self.restless() {
            return Err(Violation::new("converged", text));
        }
        // Who has left keeps what it likes.
        let is_in = |number| self.ground.setup.numbers.iter().any(|it| it.0 == number);
        let managers = self.managers.iter().filter(|it| is_in(*it.0));
        let managers = managers.filter_map(|(n, it)| Some((*n, it.process.as_ref()?.stats())));
        let disks = self.managers.iter().filter(|it| is_in(*it.0));
        let disks = disks.map(|(n, it)| (*n, it.disk.durable()));
        let mut managers: BTreeMap<_, _> = managers.collect();
        // The watchers' long polls wait on purpose.
        for stats in managers.values_mut() {
            let polls = self.watcher.parts.len() + self.document_watcher.parts.len();
            stats.requests_waiting = stats.requests_waiting.saturating_sub(polls);
        }
        converged::check(&Moment {
            view,
            managers,
            disks: disks.collect(),
            instances: &self.ground.checker.ledger.instances,
            drained: self.drained(),
        })
    }

    /// Clients work on a healed cluster: every request gets a final answer.
    fn serve(&mut self) -> Verdict {
        self.ground.phase = Phase::Serve;
        self.order_uncordon(Fault::NodeUncordoned);
        let before = self.ground.checker.ledger.asked.len();
        for index in 0..self.clients.len() {
            self.ground.queue.after(1_000, Event::ClientNext(index));
        }
        for index in 0..self.writers.len() {
            self.ground.queue.after(1_000, Event::WriterNext(index));
        }
        let until_us = self.ground.now_us() + 60_000_000;
        while self.ground.checker.violations.is_empty() && self.ground.now_us() < until_us {
            if self.ground.checker.ledger.asked.len() >= before + SERVED {
                break;
            }
            self.run_until(self.ground.now_us() + 50_000);
        }
        self.ground.phase = Phase::Quiet;
        while self.ground.checker.violations.is_empty()
            && self.ground.now_us() < until_us
            && self.clients.iter().any(crate::client_host::ClientHost::is_busy)
        {
            self.run_until(self.ground.now_us() + 50_000);
        }
        if !self.ground.checker.violations.is_empty() {
            return Ok(());
        }
        self.all_were_served(before)
    }

    fn all_were_served(&self, before: usize) -> Verdict {
        for asked in self.ground.checker.ledger.asked.iter().skip(before) {
            let answers = asked.attempts.iter().filter_map(|it| it.answer.as_ref());
            let served = answers.clone().any(|(_, result)| is_final(result));
            if !served {
                let last = answers.clone().next_back();
                let text = format!(
                    "{:?} of {} (request {}) on a healed cluster came to {last:?}",
                    asked.wish, asked.key, asked.request
                );
                return Err(Violation::new("served", text));
            }
        }
        Ok(())
    }

    /// Every id is read through every manager, every session is listed through every manager, and
    /// the watcher catches up.
    fn scan(&mut self) -> Verdict {
        // What happens by itself must not happen between two looks.
        if let Some(rest_us) = self.ground.setup.lives_rest_us() {
            self.run_until(self.ground.now_us() + rest_us);
            // A clock that is behind brings some of it later.
            let until_us = self.ground.now_us() + LATE_CLOCKS_US;
            while self.events_come() && self.ground.now_us() < until_us {
                self.run_until(self.ground.now_us() + 500_000);
            }
            self.converge()?;
        }
        if self.some_are_opened_again() {
            self.run_until(self.ground.now_us() + OPENED_AGAIN_US);
            self.converge()?;
        }
        self.note_tasks_done();
        let keys = self.ground.setup.keys.clone();
        let before = self.ground.checker.ledger.asked.len();
        for key in &keys {
            for (number, _) in self.ground.setup.numbers.clone() {
                self.read(number, key.clone());
            }
        }
        for (number, _) in self.ground.setup.numbers.clone() {
            self.begin_last_list(number);
            self.read_documents(number);
            self.read_copies(number);
        }
        let until_us = self.ground.now_us() + 3_000_000;
        while self.ground.checker.violations.is_empty() && self.ground.now_us() < until_us {
            self.run_until(self.ground.now_us() + 100_000);
            let is_poll = |it: &&CallFor| matches!(it, CallFor::Pull(_) | CallFor::Documents(_));
            let pulls = self.ground.calls.values().filter(is_poll).count();
            if pulls == self.ground.calls.len() {
                break;
            }
        }
        // One more round of the watcher's pulls, also of those that went to a manager which was just
        // starting; and if the cluster forgot something meanwhile, and the watcher's position is too old
        // for the short tails here, its snapshot to the end.
        let quiet_us = self.ground.now_us();
        self.run_until(quiet_us + 400_000);
        let until_us = self.ground.now_us() + 3_000_000;
        while self.ground.checker.violations.is_empty()
            && self.ground.now_us() < until_us
            && !self.watcher.has_caught_up(quiet_us)
        {
            self.run_until(self.ground.now_us() + 10_000);
        }
        if !self.ground.checker.violations.is_empty() {
            return Ok(());
        }
        let found = self.found(before)?;
        acknowledged_open::check(&self.ground.checker.ledger, &found)?;
        self.check_lists(&found)?;
        for (part, following) in &self.watcher.parts {
            let filter = crate::watcher::filter_of(*part);
            let records = found.values().flatten().filter(|record| filter.passes(record));
            let records = records.filter(|record| {
                let slot = rota_ring::slot_of_session(&record.key, self.ground.setup.m);
                let view = self.store.state().view.as_ref();
                let is_here = view.is_some_and(|view| view.home(slot) == *part);
                // What was forgotten after the reads is in no later snapshot.
                is_here && (following.watched.knows(&record.key) || !self.may_vanish(record))
            });
            following.watched.check(&records.cloned().collect::<Vec<_>>())?;
        }
        self.documents_are_followed(quiet_us)
    }

    /// Whether lost sessions wait for a node that has room: whoever reads them now may find another life later.
    fn some_are_opened_again(&self) -> bool {
        let docs = self.managers.values().flat_map(|it| it.disk.durable().docs.values());
        let mut records = docs.filter_map(|doc| doc.session());
        records.any(|record| record.is_reopened())
    }

    fn read(&mut self, number: ManagerNumber, key: SessionKey) {
        let now_us = self.ground.now_us();
        let asked = self.ground.checker.ledger.asked.len();
        let request = rota_model::RequestId::parse(&format!("scan{asked}")).expect("a short name");
        let attempt = crate::ledger::Attempt { manager: number, sent_us: now_us, answer: None };
        let op = rota_protocol::Op::Get(rota_model::GetOp { key: key.clone(), stale_ok: false });
        self.ground.checker.ledger.asked.push(crate::ledger::Asked {
            client: 0,
            key,
            wish: Wish::Get(false),
            request,
            attempts: vec![attempt],
            healed: true,
            once: false,
        });
        let from = crate::network::Place::Client(0);
        self.ground.call(number, CallFor::Try(0, asked, 0), from, 2_000, op);
    }

    /// What the scan's reads found. All managers must agree.
    fn found(&self, before: usize) -> Result<Found, Violation> {
        let mut found = Found::new();
        for asked in self.ground.checker.ledger.asked.iter().skip(before) {
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
        let forgets = self.ground.setup.timing.tombstone_ms < 60_000;
        record.is_unplaced() || (record.state.is_ended() && forgets)
    }

    fn check_lists(&self, found: &Found) -> Verdict {
        let expected = found.iter().filter_map(|(key, record)| {
            let record = record.as_ref()?;
            let (life, may_vanish) = (record.life, self.may_vanish(record));
            Some((key.clone(), Expected { life, may_vanish }))
        });
        let expected: BTreeMap<_, _> = expected.collect();
        for (through, list) in &self.watcher.lists {
            if list.next.is_some() {
                let text = format!("the last list through M{through} does not end");
                return Err(Violation::new("list", text));
            }
            complete_list::check(*through, &list.shown, &expected)?;
        }
        Ok(())
    }

    /// Requests that the disks of the settled cluster remember.
    fn remembered(&self) -> unchanged::Remembered {
        let is_in = |number| self.ground.setup.numbers.iter().any(|it| it.0 == number);
        let hosts = self.managers.iter().filter(|it| is_in(*it.0)).map(|it| it.1);
        let docs = hosts.flat_map(|it| it.disk.durable().docs.values());
        let requests = docs.flat_map(|doc| {
            let inside = doc.session().map_or(&[][..], |record| &record.requests);
            let ids: Vec<_> = inside.iter().chain(doc.request()).map(|it| it.id.clone()).collect();
            let key = session_of(doc.name());
            ids.into_iter().filter_map(move |id| Some((key.clone().ok()?, id)))
        });
        requests.collect()
    }

    /// Rules over the whole history.
    fn look_back(&mut self) -> Verdict {
        self.note_fired();
        let all = &self.ground.checker.ledger;
        let kept = (!all.lost.is_empty()).then(|| all.kept(self.ground.setup.m));
        let ledger = kept.as_ref().unwrap_or(all);
        let tombstone_us = self.ground.setup.timing.tombstone_ms * 1000;
        let memory_us = tombstone_us.saturating_sub(2_000_000);
        let repeats = same_answer::check(ledger, memory_us);
        if let Ok(forgotten) = repeats {
            *self.ground.counters.answers.entry("(forgotten_created)").or_default() += forgotten;
        }
        let verdicts = [
            one_instance::check(&all.instances),
            // With the highest stamp that was given out, a clock that stepped back may give it again.
            closed_stays::ran_on(if self.ground.setup.clocks_step { ledger } else { all }),
            closed_stays::check(ledger),
            shown_forward::check(ledger),
            ends_told::check(all),
            unchanged::check(ledger, &self.remembered()),
            linear::check(ledger, tombstone_us),
            written_once::check(&ledger.written, &ledger.seen),
            tasks_ran::check(ledger),
            copies_arrive::check(ledger, self.ground.setup.m),
            actions_alone::check(ledger),
            repeats.map(|_| ()),
        ];
        let now_us = self.ground.now_us();
        for verdict in verdicts {
            self.ground.checker.judge(now_us, verdict);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_broken_rule_of_its_seed() {
        let mut world = World::new(1, true, None);
        let violation = guarded(&mut world, |world| panic!("after {} us", world.ground.now_us()));
        assert_eq!(violation, Err(Violation::new("panic", "after 0 us")));
        let violation = guarded(&mut world, |_| panic!("at once"));
        assert_eq!(violation, Err(Violation::new("panic", "at once")));
    }
}
