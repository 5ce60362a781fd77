//! The power is cut, and one machine does not come back: whoever holds a complete copy goes on with it.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::invariant::{Verdict, Violation};
use crate::run::patience_us;
use crate::world::World;
use rota_model::ManagerNumber;
use rota_protocol::Manager;
use rota_ring::PartitionState;

/// Of this many seeds.
const PERMILLE: u64 = 400;

/// The longest between the first start and the last.
const STARTS_US: u64 = 1_500_000;

/// A settled cluster loses all its managers at once. All but one start again, in any order, and
/// everything must be served without that one. It comes back at the next
/// [`heal`](crate::fault::heal).
///
/// # Errors
/// A partition is not served in time.
pub(crate) fn restart_without_one(world: &mut World) -> Verdict {
    let claimed = world.managers.iter().filter(|(_, host)| host.is_claimed());
    let all: Vec<ManagerNumber> = claimed.map(|(number, _)| *number).collect();
    let r = world.store.state().view.as_ref().map_or(0, |view| view.r);
    // With one copy only, somebody is always the last.
    if r == 0 || all.len() < 2 || !world.ground.rng.permille(PERMILLE) {
        return Ok(());
    }
    world.ground.phase = Phase::Quiet;
    let away = all[world.ground.rng.index(all.len())];
    world.ground.took_effect(Fault::OneStaysAway);
    for number in &all {
        world.at_manager(*number, |at| at.crash());
    }
    // A start that the chaos left behind is not for now.
    if let Some(host) = world.managers.get_mut(&away) {
        host.away = true;
    }
    let at_once = world.ground.rng.permille(300);
    for number in all.into_iter().filter(|it| *it != away) {
        let delay_us = world.ground.rng.within(1_000, if at_once { 20_000 } else { STARTS_US });
        world.ground.queue.after(delay_us, Event::StartManager(number));
    }
    let until_us = world.ground.now_us() + patience_us(world);
    loop {
        world.run_until(world.ground.now_us() + 100_000);
        let verdict = served_without(world, away);
        let is_over =
            world.ground.now_us() > until_us || !world.ground.checker.violations.is_empty();
        if is_over || verdict.is_ok() {
            return verdict;
        }
    }
}

fn served_without(world: &World, away: ManagerNumber) -> Verdict {
    let waits = |text: String| Err(Violation::new("served without one", text));
    let Some(view) = &world.store.state().view else { return Ok(()) };
    for (number, part) in &view.parts {
        let process = world.managers.get(&part.owner).and_then(|it| it.process.as_ref());
        let stats = process.map(Manager::stats).unwrap_or_default();
        let serves = stats.parts.iter().any(|it| it.part == *number && it.role == "serving");
        if part.state != PartitionState::Active || part.owner == away || !serves {
            return waits(format!("M{away} is away, and partition {number} is {part:?}"));
        }
    }
    Ok(())
}
