//! One seed from start to end: chaos, heal, converge, serve, a power cut, durability scan, checks.

use crate::counters::{Counters, Fault};
use crate::event::Phase;
use crate::fault::heal;
use crate::invariant::converged::Moment;
use crate::invariant::{
    Verdict, Violation, actions_alone, closed_stays, converged, copies_arrive, ends_told, linear,
    one_instance, same_answer, shown_forward, tasks_ran, unchanged, written_once,
};
use crate::mutants::{Bug, Plant};
use crate::network::STRAGGLER_US_MAX;
use crate::node_orders::order_uncordon;
use crate::world::World;
use rota_model::RefusalKind;
use rota_protocol::OpResult;
use rota_protocol::session_of;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Client requests of the chaos phase, at least.
const REQUESTS_MIN: usize = 500;
/// Faults of the chaos phase, at least.
const FAULTS_MIN: u64 = 20;

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

/// The run of a seed: it drives a cluster from phase to phase, and looks at it from outside.
pub(crate) struct Trial {
    pub world: World,
}

/// Runs one seed.
pub fn run(seed: u64, keep_trace: bool, bug: Option<Bug>) -> Outcome {
    let mut world = World::new(seed, keep_trace, bug.map(Plant::new));
    world.store.careless = bug == Some(Bug::CarelessStore);
    world.store.drops_unsaid = bug == Some(Bug::DropsUnsaid);
    let mut trial = Trial { world };
    let phases = [
        Trial::chaos as fn(&mut Trial) -> Verdict,
        Trial::converge,
        Trial::serve,
        Trial::converge,
        Trial::restart_without_one,
        Trial::converge,
        Trial::scan,
        Trial::look_back,
    ];
    for phase in phases {
        let verdict = guarded(&mut trial, phase);
        let ground = &mut trial.world.ground;
        ground.checker.judge(ground.queue.now_us(), verdict);
        if !ground.checker.violations.is_empty() {
            break;
        }
    }
    let ground = trial.world.ground;
    Outcome {
        seed,
        requests: ground.checker.ledger.asked.len(),
        disturbances: ground.disturbed,
        violations: ground.checker.violations,
        counters: ground.counters,
        trace_hash: ground.trace.hash(),
        trace: ground.trace.into_lines(),
    }
}

/// A phase. A panic in it is a broken rule like any other, so that it is told with its seed. Nothing
/// runs on after it: of the world only what it wrote down is looked at.
fn guarded(trial: &mut Trial, phase: fn(&mut Trial) -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| phase(trial))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Violation::new("panic", text.unwrap_or("it says nothing")))
    })
}

impl Trial {
    /// Clients work while things go wrong.
    fn chaos(&mut self) -> Verdict {
        while self.world.ground.checker.violations.is_empty() {
            let enough = self.world.ground.checker.ledger.asked.len() >= REQUESTS_MIN
                && self.world.ground.disturbed >= FAULTS_MIN;
            if enough || self.world.ground.now_us() > CHAOS_MAX_US {
                break;
            }
            self.world.run_until(self.world.ground.now_us() + 200_000);
        }
        let (asked, faults) =
            (self.world.ground.checker.ledger.asked.len(), self.world.ground.disturbed);
        if self.world.ground.checker.violations.is_empty()
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
        let timing = &self.world.ground.setup.timing;
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
        let processes = self.world.managers.values().filter_map(|it| it.process.as_ref());
        let documents = processes.flat_map(|it| it.stats().parts).map(|it| it.documents);
        documents.max().unwrap_or(0) * DOCUMENT_COPIED_US
    }

    /// Everything is healed and nobody asks: the cluster settles.
    ///
    /// # Errors
    /// It does not settle in time.
    pub(crate) fn converge(&mut self) -> Verdict {
        self.world.ground.phase = Phase::Quiet;
        // What is still under way may begin something: let it arrive first.
        let under_way_us =
            if self.world.ground.network.stragglers { STRAGGLER_US_MAX } else { 500_000 };
        heal(&mut self.world);
        let until_us = self.world.ground.now_us() + self.patience_us() + self.copies_us();
        self.world.run_until(self.world.ground.now_us() + under_way_us);
        loop {
            self.world.run_until(self.world.ground.now_us() + 100_000);
            if !self.world.ground.checker.violations.is_empty() {
                return Ok(());
            }
            let busy = self.world.users.are_busy();
            let verdict = self.settled();
            match verdict {
                Ok(()) if !busy => return Ok(()),
                Err(violation) if self.world.ground.now_us() > until_us => return Err(violation),
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn settled(&self) -> Verdict {
        let Some(view) = &self.world.store.state().view else {
            return Err(Violation::new("converged", "there is no View"));
        };
        if let Some(text) = self.outside() {
            return Err(Violation::new("converged", text));
        }
        if let Some(number) = self.unclaimed() {
            return Err(Violation::new("converged", format!("M{number} is not in the ring")));
        }
        if !self.world.users.admin.is_done {
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
        let is_in = |number| self.world.ground.setup.numbers.iter().any(|it| it.0 == number);
        let managers = self.world.managers.iter().filter(|it| is_in(*it.0));
        let managers = managers.filter_map(|(n, it)| Some((*n, it.process.as_ref()?.stats())));
        let disks = self.world.managers.iter().filter(|it| is_in(*it.0));
        let disks = disks.map(|(n, it)| (*n, it.disk.durable()));
        let mut managers: BTreeMap<_, _> = managers.collect();
        // The watchers' long polls wait on purpose.
        for stats in managers.values_mut() {
            stats.requests_waiting =
                stats.requests_waiting.saturating_sub(self.world.users.polls());
        }
        converged::check(&Moment {
            view,
            managers,
            disks: disks.collect(),
            instances: &self.world.ground.checker.ledger.instances,
            drained: self.drained(),
        })
    }

    /// Clients work on a healed cluster: every request gets a final answer.
    fn serve(&mut self) -> Verdict {
        self.world.ground.phase = Phase::Serve;
        order_uncordon(&mut self.world, Fault::NodeUncordoned);
        let before = self.world.ground.checker.ledger.asked.len();
        self.world.users.go_on(&mut self.world.ground);
        let until_us = self.world.ground.now_us() + 60_000_000;
        while self.world.ground.checker.violations.is_empty()
            && self.world.ground.now_us() < until_us
        {
            if self.world.ground.checker.ledger.asked.len() >= before + SERVED {
                break;
            }
            self.world.run_until(self.world.ground.now_us() + 50_000);
        }
        self.world.ground.phase = Phase::Quiet;
        while self.world.ground.checker.violations.is_empty()
            && self.world.ground.now_us() < until_us
            && self.world.users.clients_are_busy()
        {
            self.world.run_until(self.world.ground.now_us() + 50_000);
        }
        if !self.world.ground.checker.violations.is_empty() {
            return Ok(());
        }
        self.all_were_served(before)
    }

    fn all_were_served(&self, before: usize) -> Verdict {
        for asked in self.world.ground.checker.ledger.asked.iter().skip(before) {
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

    /// Requests that the disks of the settled cluster remember.
    fn remembered(&self) -> unchanged::Remembered {
        let is_in = |number| self.world.ground.setup.numbers.iter().any(|it| it.0 == number);
        let hosts = self.world.managers.iter().filter(|it| is_in(*it.0)).map(|it| it.1);
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
        let all = &self.world.ground.checker.ledger;
        let kept = (!all.lost.is_empty()).then(|| all.kept(self.world.ground.setup.m));
        let ledger = kept.as_ref().unwrap_or(all);
        let tombstone_us = self.world.ground.setup.timing.tombstone_ms * 1000;
        let memory_us = tombstone_us.saturating_sub(2_000_000);
        let repeats = same_answer::check(ledger, memory_us);
        if let Ok(forgotten) = repeats {
            *self.world.ground.counters.answers.entry("(forgotten_created)").or_default() +=
                forgotten;
        }
        let verdicts = [
            one_instance::check(&all.instances),
            // With the highest stamp that was given out, a clock that stepped back may give it again.
            closed_stays::ran_on(if self.world.ground.setup.clocks_step { ledger } else { all }),
            closed_stays::check(ledger),
            shown_forward::check(ledger),
            ends_told::check(all),
            unchanged::check(ledger, &self.remembered()),
            linear::check(ledger, tombstone_us),
            written_once::check(&ledger.written, &ledger.seen),
            tasks_ran::check(ledger),
            copies_arrive::check(ledger, self.world.ground.setup.m),
            actions_alone::check(ledger),
            repeats.map(|_| ()),
        ];
        let now_us = self.world.ground.now_us();
        for verdict in verdicts {
            self.world.ground.checker.judge(now_us, verdict);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_broken_rule_of_its_seed() {
        let mut trial = Trial { world: World::new(1, true, None) };
        let violation = guarded(&mut trial, |it| panic!("after {} us", it.world.ground.now_us()));
        assert_eq!(violation, Err(Violation::new("panic", "after 0 us")));
        let violation = guarded(&mut trial, |_| panic!("at once"));
        assert_eq!(violation, Err(Violation::new("panic", "at once")));
    }
}
