//! The power is cut, and one machine does not come back: whoever holds a complete copy goes on with it.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::invariant::{Verdict, Violation};
use crate::run::Trial;
use rota_model::ManagerNumber;
use rota_protocol::Manager;
use rota_ring::PartitionState;

/// Of this many seeds.
const PERMILLE: u64 = 400;

/// The longest between the first start and the last.
const STARTS_US: u64 = 1_500_000;

impl Trial {
    /// A settled cluster loses all its managers at once. All but one start again, in any order, and
    /// everything must be served without that one. It comes back at the next
    /// [`heal`](crate::fault::heal).
    ///
    /// # Errors
    /// A partition is not served in time.
    pub fn restart_without_one(&mut self) -> Verdict {
        let claimed = self.world.managers.iter().filter(|(_, host)| host.is_claimed());
        let all: Vec<ManagerNumber> = claimed.map(|(number, _)| *number).collect();
        let r = self.world.store.state().view.as_ref().map_or(0, |view| view.r);
        // With one copy only, somebody is always the last.
        if r == 0 || all.len() < 2 || !self.world.ground.rng.permille(PERMILLE) {
            return Ok(());
        }
        self.world.ground.phase = Phase::Quiet;
        let away = all[self.world.ground.rng.index(all.len())];
        self.world.ground.took_effect(Fault::OneStaysAway);
        for number in &all {
            self.world.at_manager(*number, |at| at.crash());
        }
        // A start that the chaos left behind is not for now.
        if let Some(host) = self.world.managers.get_mut(&away) {
            host.away = true;
        }
        let at_once = self.world.ground.rng.permille(300);
        for number in all.into_iter().filter(|it| *it != away) {
            let delay_us =
                self.world.ground.rng.within(1_000, if at_once { 20_000 } else { STARTS_US });
            self.world.ground.queue.after(delay_us, Event::StartManager(number));
        }
        let until_us = self.world.ground.now_us() + self.patience_us();
        loop {
            self.world.run_until(self.world.ground.now_us() + 100_000);
            let verdict = self.served_without(away);
            let is_over = self.world.ground.now_us() > until_us
                || !self.world.ground.checker.violations.is_empty();
            if is_over || verdict.is_ok() {
                return verdict;
            }
        }
    }

    fn served_without(&self, away: ManagerNumber) -> Verdict {
        let waits = |text: String| Err(Violation::new("served without one", text));
        let Some(view) = &self.world.store.state().view else { return Ok(()) };
        for (number, part) in &view.parts {
            let process = self.world.managers.get(&part.owner).and_then(|it| it.process.as_ref());
            let stats = process.map(Manager::stats).unwrap_or_default();
            let serves = stats.parts.iter().any(|it| it.part == *number && it.role == "serving");
            if part.state != PartitionState::Active || part.owner == away || !serves {
                return waits(format!("M{away} is away, and partition {number} is {part:?}"));
            }
        }
        Ok(())
    }
}
