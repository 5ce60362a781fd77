//! The last look at a settled cluster: what every manager reads and lists, and what watchers know.

use crate::at_rest::{events_come, note_tasks_done};
use crate::calls::CallFor;
use crate::invariant::acknowledged_open::{self, Found};
use crate::invariant::complete_list::{self, Expected};
use crate::invariant::{Verdict, Violation};
use crate::run::converge;
use crate::users::filter_of;
use crate::users::last_readings::{read_copies, read_documents, read_session};
use crate::world::World;
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

/// Every id is read through every manager, every session is listed through every manager, and
/// the watcher catches up.
///
/// # Errors
/// What is read, listed or watched is not what it should be.
pub(crate) fn scan(world: &mut World) -> Verdict {
    // What happens by itself must not happen between two looks.
    if let Some(rest_us) = world.ground.setup.lives_rest_us() {
        world.run_until(world.ground.now_us() + rest_us);
        // A clock that is behind brings some of it later.
        let until_us = world.ground.now_us() + LATE_CLOCKS_US;
        while events_come(world) && world.ground.now_us() < until_us {
            world.run_until(world.ground.now_us() + 500_000);
        }
        converge(world)?;
    }
    if some_are_opened_again(world) {
        world.run_until(world.ground.now_us() + OPENED_AGAIN_US);
        converge(world)?;
    }
    note_tasks_done(world);
    let keys = world.ground.setup.keys.clone();
    let before = world.ground.checker.ledger.asked.len();
    for key in &keys {
        for (number, _) in world.ground.machines.numbers.clone() {
            read_session(&mut world.ground, number, key.clone());
        }
    }
    for (number, _) in world.ground.machines.numbers.clone() {
        world.users.last_lists.begin(&mut world.ground, number);
        read_documents(&mut world.ground, number);
        read_copies(&mut world.ground, number);
    }
    let until_us = world.ground.now_us() + 3_000_000;
    while world.ground.checker.violations.is_empty() && world.ground.now_us() < until_us {
        world.run_until(world.ground.now_us() + 100_000);
        let is_poll = |it: &&CallFor| matches!(it, CallFor::Pull(_) | CallFor::Documents(_));
        let pulls = world.ground.calls.values().filter(is_poll).count();
        if pulls == world.ground.calls.len() {
            break;
        }
    }
    // One more round of the watcher's pulls, also of those that went to a manager which was just
    // starting; and if the cluster forgot something meanwhile, and the watcher's position is too old
    // for the short tails here, its snapshot to the end.
    let quiet_us = world.ground.now_us();
    world.run_until(quiet_us + 400_000);
    let until_us = world.ground.now_us() + 3_000_000;
    while world.ground.checker.violations.is_empty()
        && world.ground.now_us() < until_us
        && !world.users.watcher.has_caught_up(quiet_us)
    {
        world.run_until(world.ground.now_us() + 10_000);
    }
    if !world.ground.checker.violations.is_empty() {
        return Ok(());
    }
    let found = found(world, before)?;
    acknowledged_open::check(&world.ground.checker.ledger, &found)?;
    check_lists(world, &found)?;
    check_watcher(world, &found)?;
    documents_are_followed(world, quiet_us)
}

/// Whether the watcher knows the sessions that were found.
fn check_watcher(world: &World, found: &Found) -> Verdict {
    for (part, following) in &world.users.watcher.parts {
        let filter = filter_of(*part);
        let records = found.values().flatten().filter(|record| filter.passes(record));
        let records = records.filter(|record| {
            let slot = rota_ring::slot_of_session(&record.key, world.ground.setup.m);
            let view = world.store.state().view.as_ref();
            let is_here = view.is_some_and(|view| view.home(slot) == *part);
            // What was forgotten after the reads is in no later snapshot.
            is_here && (following.watched.knows(&record.key) || !may_vanish(world, record))
        });
        following.watched.check(&records.cloned().collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Waits until the watcher of documents has caught up with that moment, and checks what it knows. Pages that look
/// at a document or two take long to a snapshot's end.
fn documents_are_followed(world: &mut World, since_us: u64) -> Verdict {
    let until_us = world.ground.now_us() + FOLLOWED_US;
    while world.ground.checker.violations.is_empty()
        && !world.users.document_watcher.has_caught_up(since_us)
    {
        if world.ground.now_us() >= until_us {
            let text = format!("a watch does not catch up within {FOLLOWED_US} us");
            return Err(Violation::new("document watch", text));
        }
        world.run_until(world.ground.now_us() + 50_000);
    }
    if world.ground.checker.violations.is_empty() { check_document_watcher(world) } else { Ok(()) }
}

/// Whether the watcher of documents knows what the owners have.
fn check_document_watcher(world: &World) -> Verdict {
    let Some(view) = world.store.state().view.as_ref() else { return Ok(()) };
    for (part, following) in &world.users.document_watcher.parts {
        let Some(owner) = view.parts.get(part).and_then(|it| world.managers.get(&it.owner)) else {
            continue;
        };
        let is_here = |doc: &&Arc<Doc>| {
            let name = doc.name();
            let is_meant = name.space() == SPACE && !name.is_memory();
            is_meant && view.home(slot_of(name, world.ground.setup.m)) == *part
        };
        let here = owner.disk.durable().docs.values().filter(is_here);
        following.check(&here.map(|it| it.document().clone()).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Whether lost sessions wait for a node that has room: whoever reads them now may find another life later.
fn some_are_opened_again(world: &World) -> bool {
    let docs = world.managers.values().flat_map(|it| it.disk.durable().docs.values());
    let mut records = docs.filter_map(|doc| doc.session());
    records.any(|record| record.is_reopened())
}

/// What the scan's reads found. All managers must agree.
fn found(world: &World, before: usize) -> Result<Found, Violation> {
    let mut found = Found::new();
    for asked in world.ground.checker.ledger.asked.iter().skip(before) {
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
        let tombstones = [&*known, &record].into_iter().flatten().all(|it| may_vanish(world, it));
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
fn may_vanish(world: &World, record: &SessionRecord) -> bool {
    let forgets = world.ground.setup.timing.tombstone_ms < 60_000;
    record.is_unplaced() || (record.state.is_ended() && forgets)
}

fn check_lists(world: &World, found: &Found) -> Verdict {
    let expected = found.iter().filter_map(|(key, record)| {
        let record = record.as_ref()?;
        let (life, may_vanish) = (record.life, may_vanish(world, record));
        Some((key.clone(), Expected { life, may_vanish }))
    });
    let expected: BTreeMap<_, _> = expected.collect();
    for (through, list) in &world.users.last_lists.lists {
        if list.next.is_some() {
            let text = format!("the last list through M{through} does not end");
            return Err(Violation::new("list", text));
        }
        complete_list::check(*through, &list.shown, &expected)?;
    }
    Ok(())
}
