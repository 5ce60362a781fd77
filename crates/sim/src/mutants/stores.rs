//! Planted bugs between managers and the config store: outcomes that nobody knows, words that land late, and
//! what is believed before it is written. Where a bug shows only when a compare-and-set is late, it is late
//! more often than usual; sound managers stand that.

use crate::event::{Event, Phase};
use crate::invariant::member_added;
use crate::mutants::Bug;
use crate::network::Place;
use crate::packet::Packet;
use crate::world::World;
use rota_model::ManagerNumber;
use rota_protocol::{CasOutcome, Effect, Input, Message};
use rota_ring::{Change, ConfigState, View};

/// When a compare-and-set lands that adds a member: its owner wedges for a second at most, unless it knows
/// that nothing was asked.
const ADDED_US: u64 = 1_800_000;

/// Until then the owner's other ones are under way.
const OTHERS_US: u64 = 2_500_000;

impl World {
    /// How late a compare-and-set is, if a planted bug needs that.
    pub(crate) fn plant_lateness(&mut self, number: ManagerNumber, change: &Change) -> Option<u64> {
        let bug = self.bug().filter(|_| self.ground.phase == Phase::Chaos)?;
        if bug != Bug::AddingForgotten || change.view.is_none() {
            return None;
        }
        let now_us = self.ground.now_us();
        let adds = self.adds(change);
        let held = &mut self.plant.as_mut()?.held;
        match held.get(&number).filter(|until| **until > now_us) {
            Some(until) => Some(until - now_us),
            None if adds => {
                held.insert(number, now_us + OTHERS_US);
                Some(ADDED_US)
            }
            None => None,
        }
    }

    /// Whether a change adds a copy of a partition.
    fn adds(&self, change: &Change) -> bool {
        let views = self.store.state().view.as_ref().zip(change.view.as_ref());
        views.is_some_and(|(before, view)| !member_added::newcomers(before, view).is_empty())
    }

    /// An owner asks for a copy to be added, and is told that it was not, though it may be yet. What it
    /// does next is to suspect others.
    pub(crate) fn deny_adding(&mut self, number: ManagerNumber, cas: u64, change: &Change) {
        if self.ground.phase != Phase::Chaos || !self.adds(change) {
            return;
        }
        for other in self.managers.keys().copied().filter(|it| *it != number).collect::<Vec<_>>() {
            let address = crate::setup::manager_address(other);
            self.tell_later(number, 10_000, Input::PeerRefused { number: other, address });
        }
        let outcome = CasOutcome::Conflict(self.store.state().clone());
        self.tell_later(number, 10_000, Input::CasDone { cas, outcome });
    }

    /// A newcomer hears nothing of the log while it is being added by such an owner.
    pub(crate) fn plant_loses(&self, number: ManagerNumber, effect: &Effect) -> bool {
        let Effect::Send { envelope, .. } = effect else { return false };
        let Message::Prepare { part, .. } = &envelope.message else { return false };
        let now_us = self.ground.now_us();
        let held = self.plant.as_ref().and_then(|it| it.held.get(&number)).copied();
        let is_held = held.is_some_and(|until| until > now_us) && self.ground.phase == Phase::Chaos;
        let process = self.managers.get(&number).and_then(|it| it.process.as_ref());
        let entry = process.and_then(|it| it.view()?.parts.get(part));
        is_held && entry.is_some_and(|it| !it.has(envelope.to.number))
    }

    /// A manager takes a boot for registered as soon as it asked for that.
    pub(crate) fn registered_at_once(&mut self, number: ManagerNumber, cas: u64, change: &Change) {
        if let Some(state) = registered(self.store.state(), change) {
            let outcome = CasOutcome::Done(state);
            self.tell_later(number, 0, Input::CasDone { cas, outcome });
        }
    }

    /// A manager takes its number for taken as soon as it asked for that.
    pub(crate) fn claimed_at_once(&mut self, number: ManagerNumber, cas: u64, change: &Change) {
        if let Some(state) = claimed(self.store.state(), number, change) {
            let outcome = CasOutcome::Done(state);
            self.tell_later(number, 0, Input::CasDone { cas, outcome });
        }
    }

    /// A compare-and-set leaves later.
    pub(crate) fn send_later(&mut self, number: ManagerNumber, delay_us: u64, packet: Packet) {
        let from = Place::Manager(number);
        let line = || format!("sends late by {delay_us} us: {}", packet.line());
        self.ground.trace.line(self.ground.queue.now_us(), from, line);
        let (run, serial, packet) = (None, 0, Box::new(packet));
        let event = Event::Arrive { from, to: Place::Store, run, serial, packet };
        self.ground.queue.after(delay_us, event);
    }
}

/// What the config store will hold when a boot is written there that it does not have.
pub(crate) fn registered(state: &ConfigState, change: &Change) -> Option<ConfigState> {
    let to = &change.node.as_ref()?.to;
    let known = state.nodes.get(&to.node).map(|it| it.boot);
    change.apply(state).filter(|_| known != Some(to.boot) && !to.state.is_gone())
}

/// What the config store will hold when a manager's number is taken there by a new run.
pub(crate) fn claimed(
    state: &ConfigState,
    number: ManagerNumber,
    change: &Change,
) -> Option<ConfigState> {
    let known = |view: &View| view.managers.get(&number).map(|it| it.incarnation);
    let (before, after) = (state.view.as_ref()?, change.view.as_ref()?);
    change.apply(state).filter(|_| known(before) < known(after))
}
