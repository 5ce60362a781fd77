//! Planted bugs between managers and the config store: outcomes that nobody knows, words that land late, and
//! what is believed before it is written. Where a bug shows only when a compare-and-set is late, it is late
//! more often than usual; sound managers stand that.

use crate::event::Phase;
use crate::invariant::member_added;
use crate::mutants::bug::Bug;
use crate::setup::manager_address;
use crate::site::AtManager;
use crate::store::Store;
use rota_model::ManagerNumber;
use rota_protocol::{CasOutcome, Envelope, Input, Message};
use rota_ring::{Change, ConfigState, View};

/// When a compare-and-set lands that adds a member: its owner wedges for a second at most, unless it knows
/// that nothing was asked.
const ADDED_US: u64 = 1_800_000;

/// Until then the owner's other ones are under way.
const OTHERS_US: u64 = 2_500_000;

/// How late a compare-and-set is, if a planted bug needs that.
pub(crate) fn lateness(at: &mut AtManager<'_>, change: &Change) -> Option<u64> {
    let bug = at.bug().filter(|_| at.ground.phase == Phase::Chaos)?;
    if bug != Bug::AddingForgotten || change.view.is_none() {
        return None;
    }
    let (now_us, adds) = (at.ground.now_us(), adds(at.store, change));
    let held = &mut at.plant.as_mut()?.held;
    match held.get(&at.number).filter(|until| **until > now_us) {
        Some(until) => Some(until - now_us),
        None if adds => {
            held.insert(at.number, now_us + OTHERS_US);
            Some(ADDED_US)
        }
        None => None,
    }
}

/// Whether a change adds a copy of a partition.
fn adds(store: &Store, change: &Change) -> bool {
    let views = store.state().view.as_ref().zip(change.view.as_ref());
    views.is_some_and(|(before, view)| !member_added::newcomers(before, view).is_empty())
}

/// An owner asks for a copy to be added, and is told that it was not, though it may be yet. What it
/// does next is to suspect others.
pub(crate) fn deny_adding(at: &mut AtManager<'_>, cas: u64, change: &Change) {
    if at.ground.phase != Phase::Chaos || !adds(at.store, change) {
        return;
    }
    let others = at.ground.machines.managers().into_iter().filter(|it| *it != at.number);
    for number in others.collect::<Vec<_>>() {
        let address = manager_address(number);
        at.hears(10_000, Input::PeerRefused { number, address });
    }
    let outcome = CasOutcome::Conflict(at.store.state().clone());
    at.hears(10_000, Input::CasDone { cas, outcome });
}

/// A newcomer hears nothing of the log while it is being added by such an owner.
pub(crate) fn loses(at: &AtManager<'_>, envelope: &Envelope) -> bool {
    let Message::Prepare { part, .. } = &envelope.message else { return false };
    let now_us = at.ground.now_us();
    let held = at.plant.as_ref().and_then(|it| it.held.get(&at.number)).copied();
    let is_held = held.is_some_and(|until| until > now_us) && at.ground.phase == Phase::Chaos;
    let entry = at.host.process.as_ref().and_then(|it| it.view()?.parts.get(part));
    is_held && entry.is_some_and(|it| !it.has(envelope.to.number))
}

/// A manager takes a boot for registered as soon as it asked for that.
pub(crate) fn registered_at_once(at: &mut AtManager<'_>, cas: u64, change: &Change) {
    if let Some(state) = registered(at.store.state(), change) {
        let outcome = CasOutcome::Done(state);
        at.hears(0, Input::CasDone { cas, outcome });
    }
}

/// A manager takes its number for taken as soon as it asked for that.
pub(crate) fn claimed_at_once(at: &mut AtManager<'_>, cas: u64, change: &Change) {
    if let Some(state) = claimed(at.store.state(), at.number, change) {
        let outcome = CasOutcome::Done(state);
        at.hears(0, Input::CasDone { cas, outcome });
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
