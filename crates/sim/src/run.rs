//! One seed from start to end: chaos, heal, converge, serve, a power cut, durability scan, checks.

use crate::at_rest::{
    drained, event_waits, has_orders, note_fired, outside, restless, task_waits, unclaimed,
};
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
use crate::outage::restart_without_one;
use crate::scan::scan;
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

/// Runs one seed.
pub fn run(seed: u64, keep_trace: bool, bug: Option<Bug>) -> Outcome {
    let mut world = World::new(seed, keep_trace, bug.map(Plant::new));
    world.store.careless = bug == Some(Bug::CarelessStore);
    world.store.drops_unsaid = bug == Some(Bug::DropsUnsaid);
    let phases = [
        chaos as fn(&mut World) -> Verdict,
        converge,
        serve,
        converge,
        restart_without_one,
        converge,
        scan,
        look_back,
    ];
    for phase in phases {
        let verdict = guarded(&mut world, phase);
        let ground = &mut world.ground;
        ground.checker.judge(ground.queue.now_us(), verdict);
        if !ground.checker.violations.is_empty() {
            break;
        }
    }
    let ground = world.ground;
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
fn guarded(world: &mut World, phase: fn(&mut World) -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| phase(world))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Violation::new("panic", text.unwrap_or("it says nothing")))
    })
}

/// Clients work while things go wrong.
fn chaos(world: &mut World) -> Verdict {
    while world.ground.checker.violations.is_empty() {
        let enough = world.ground.checker.ledger.asked.len() >= REQUESTS_MIN
            && world.ground.disturbed >= FAULTS_MIN;
        if enough || world.ground.now_us() > CHAOS_MAX_US {
            break;
        }
        world.run_until(world.ground.now_us() + 200_000);
    }
    let (asked, faults) = (world.ground.checker.ledger.asked.len(), world.ground.disturbed);
    if world.ground.checker.violations.is_empty() && (asked < REQUESTS_MIN || faults < FAULTS_MIN) {
        let text = format!(
            "clients made {asked} requests of at least {REQUESTS_MIN}, and {faults} faults of \
             at least {FAULTS_MIN} happened in {CHAOS_MAX_US} us"
        );
        return Err(Violation::new("progress", text));
    }
    Ok(())
}

/// The longest that a healed cluster may take to settle.
pub(crate) fn patience_us(world: &World) -> u64 {
    let timing = &world.ground.setup.timing;
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
fn copies_us(world: &World) -> u64 {
    let processes = world.managers.values().filter_map(|it| it.process.as_ref());
    let documents = processes.flat_map(|it| it.stats().parts).map(|it| it.documents);
    documents.max().unwrap_or(0) * DOCUMENT_COPIED_US
}

/// Everything is healed and nobody asks: the cluster settles.
///
/// # Errors
/// It does not settle in time.
pub(crate) fn converge(world: &mut World) -> Verdict {
    world.ground.phase = Phase::Quiet;
    // What is still under way may begin something: let it arrive first.
    let under_way_us = if world.ground.network.stragglers { STRAGGLER_US_MAX } else { 500_000 };
    heal(world);
    let until_us = world.ground.now_us() + patience_us(world) + copies_us(world);
    world.run_until(world.ground.now_us() + under_way_us);
    loop {
        world.run_until(world.ground.now_us() + 100_000);
        if !world.ground.checker.violations.is_empty() {
            return Ok(());
        }
        let busy = world.users.are_busy();
        let verdict = settled(world);
        match verdict {
            Ok(()) if !busy => return Ok(()),
            Err(violation) if world.ground.now_us() > until_us => return Err(violation),
            Ok(()) | Err(_) => {}
        }
    }
}

fn settled(world: &World) -> Verdict {
    let Some(view) = &world.store.state().view else {
        return Err(Violation::new("converged", "there is no View"));
    };
    if let Some(text) = outside(world) {
        return Err(Violation::new("converged", text));
    }
    if let Some(number) = unclaimed(world) {
        return Err(Violation::new("converged", format!("M{number} is not in the ring")));
    }
    if !world.users.admin.is_done {
        return Err(Violation::new("converged", "the pool is not described at last"));
    }
    if has_orders(world) {
        return Err(Violation::new("converged", "an order waits"));
    }
    if let Some(text) = event_waits(world) {
        return Err(Violation::new("converged", text));
    }
    if let Some(text) = task_waits(world) {
        return Err(Violation::new("converged", text));
    }
    if let Some(text) = restless(world) {
        return Err(Violation::new("converged", text));
    }
    // Who has left keeps what it likes.
    let is_in = |number| world.ground.machines.numbers.iter().any(|it| it.0 == number);
    let managers = world.managers.iter().filter(|it| is_in(*it.0));
    let managers = managers.filter_map(|(n, it)| Some((*n, it.process.as_ref()?.stats())));
    let disks = world.managers.iter().filter(|it| is_in(*it.0));
    let disks = disks.map(|(n, it)| (*n, it.disk.durable()));
    let mut managers: BTreeMap<_, _> = managers.collect();
    // The watchers' long polls wait on purpose.
    for stats in managers.values_mut() {
        stats.requests_waiting = stats.requests_waiting.saturating_sub(world.users.polls());
    }
    converged::check(&Moment {
        view,
        managers,
        disks: disks.collect(),
        instances: &world.ground.checker.ledger.instances,
        drained: drained(world),
    })
}

/// Clients work on a healed cluster: every request gets a final answer.
fn serve(world: &mut World) -> Verdict {
    world.ground.phase = Phase::Serve;
    order_uncordon(world, Fault::NodeUncordoned);
    let before = world.ground.checker.ledger.asked.len();
    world.users.go_on(&mut world.ground);
    let until_us = world.ground.now_us() + 60_000_000;
    while world.ground.checker.violations.is_empty() && world.ground.now_us() < until_us {
        if world.ground.checker.ledger.asked.len() >= before + SERVED {
            break;
        }
        world.run_until(world.ground.now_us() + 50_000);
    }
    world.ground.phase = Phase::Quiet;
    while world.ground.checker.violations.is_empty()
        && world.ground.now_us() < until_us
        && world.users.clients_are_busy()
    {
        world.run_until(world.ground.now_us() + 50_000);
    }
    if !world.ground.checker.violations.is_empty() {
        return Ok(());
    }
    all_were_served(world, before)
}

fn all_were_served(world: &World, before: usize) -> Verdict {
    for asked in world.ground.checker.ledger.asked.iter().skip(before) {
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
fn remembered(world: &World) -> unchanged::Remembered {
    let is_in = |number| world.ground.machines.numbers.iter().any(|it| it.0 == number);
    let hosts = world.managers.iter().filter(|it| is_in(*it.0)).map(|it| it.1);
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
fn look_back(world: &mut World) -> Verdict {
    note_fired(world);
    let all = &world.ground.checker.ledger;
    let kept = (!all.lost.is_empty()).then(|| all.kept(world.ground.setup.m));
    let ledger = kept.as_ref().unwrap_or(all);
    let tombstone_us = world.ground.setup.timing.tombstone_ms * 1000;
    let memory_us = tombstone_us.saturating_sub(2_000_000);
    let repeats = same_answer::check(ledger, memory_us);
    if let Ok(forgotten) = repeats {
        *world.ground.counters.answers.entry("(forgotten_created)").or_default() += forgotten;
    }
    let verdicts = [
        one_instance::check(&all.instances),
        // With the highest stamp that was given out, a clock that stepped back may give it again.
        closed_stays::ran_on(if world.ground.setup.clocks_step { ledger } else { all }),
        closed_stays::check(ledger),
        shown_forward::check(ledger),
        ends_told::check(all),
        unchanged::check(ledger, &remembered(world)),
        linear::check(ledger, tombstone_us),
        written_once::check(&ledger.written, &ledger.seen),
        tasks_ran::check(ledger),
        copies_arrive::check(ledger, world.ground.setup.m),
        actions_alone::check(ledger),
        repeats.map(|_| ()),
    ];
    let now_us = world.ground.now_us();
    for verdict in verdicts {
        world.ground.checker.judge(now_us, verdict);
    }
    Ok(())
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_broken_rule_of_its_seed() {
        let mut world = World::new(1, true, None);
        let violation = guarded(&mut world, |it| panic!("after {} us", it.ground.now_us()));
        assert_eq!(violation, Err(Violation::new("panic", "after 0 us")));
        let violation = guarded(&mut world, |_| panic!("at once"));
        assert_eq!(violation, Err(Violation::new("panic", "at once")));
    }
}
