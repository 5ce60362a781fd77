//! Planted bugs of single rules: what a claim does to memberships, and what managers see
//! and keep of what operators want of a node.

use crate::mutants::bug::Bug;
use crate::mutants::joins::{shed_early, spoil_split};
use crate::mutants::leaves::hand_to_stranger;
use crate::mutants::peers::leave_one;
use crate::mutants::recoveries::skip_recovery;
use crate::mutants::stores::{claimed_at_once, deny_adding, registered_at_once};
use crate::site::AtManager;
use rota_model::node_msg::Registered;
use rota_model::{Disturb, Epoch, ManagerNumber, NodeState};
use rota_protocol::ManagerConfig;
use rota_ring::{Change, ConfigState, NodeWish, RingShape, View};
use std::sync::Arc;

/// After so long owners forget what has ended, if a planted bug says so. What they ask of nodes is
/// remembered for as long.
const FORGOTTEN_MS: u64 = 2_000;

/// A compare-and-set on its way to the config store.
pub(crate) fn on_cas(at: &mut AtManager<'_>, bug: Bug, cas: u64, change: &mut Change) {
    match (bug, change) {
        (Bug::OneMayReturn, change) => leave_one(change),
        (Bug::LeaseNotAnew, change) => expect_newest(at, change),
        (Bug::CordonForgotten, change) => forget_cordon(at.store.state(), change),
        (Bug::RegisteredEarly, change) => registered_at_once(at, cas, change),
        (Bug::ClaimedEarly, change) => claimed_at_once(at, cas, change),
        (Bug::AddingForgotten, change) => deny_adding(at, cas, change),
        (bug, change) => {
            let before = at.store.state().view.as_ref();
            if let Some((before, view)) = before.zip(change.view.as_mut()) {
                on_view(bug, at.number, before, view);
            }
        }
    }
}

/// A View that a manager is about to write after another one.
fn on_view(bug: Bug, number: ManagerNumber, before: &View, view: &mut View) {
    match (bug, view) {
        (Bug::SplitUnfenced | Bug::EarlyHandOver, view) => spoil_split(Some(bug), before, view),
        (Bug::HandedToStranger, view) => hand_to_stranger(before, view),
        (Bug::RecoverySkipped, view) => skip_recovery(before, view),
        (Bug::ClaimStays, view) => keep_memberships(number, before, view),
        (Bug::ShedEarly, view) => shed_early(before, view),
        (_, _) => {}
    }
}

/// A change of an entry whose later revisions nobody was shown expects the newest.
fn expect_newest(at: &AtManager<'_>, change: &mut Change) {
    let Some(node) = &mut change.node else { return };
    let Some(now) = at.store.state().nodes.get(&node.to.node) else { return };
    let name = (now.node.clone(), now.boot);
    let shown = at.plant.as_ref().and_then(|it| it.revisions.get(&name)).copied();
    if shown == Some(node.expect_revision) {
        node.expect_revision = now.revision;
        node.to.revision = now.revision + 1;
    }
}

/// What a manager's process is told at its start.
pub(crate) fn plant_config(bug: Option<Bug>, mut config: ManagerConfig) -> ManagerConfig {
    match bug {
        Some(Bug::CopiesUnawaited) => config.timing.copy_deadline_ms = 0,
        Some(Bug::BetterUnawaited) => config.timing.recover_after_ms = 0,
        Some(Bug::EndedForgotten) => config.timing.tombstone_ms = FORGOTTEN_MS,
        _ => {}
    }
    config
}

/// How often the answers to a boot's first registrations are lost, in thousandths. Only where a boot is
/// registered again it shows that it has no fences.
pub(crate) fn registered_lost_permille(bug: Option<Bug>) -> u64 {
    if bug == Some(Bug::BootUnfenced) { 700 } else { 80 }
}

/// What a boot is told when it is registered.
pub(crate) fn without_fences(bug: Option<Bug>, mut registered: Registered) -> Registered {
    if bug == Some(Bug::BootUnfenced) {
        registered.fences.clear();
    }
    registered
}

/// In a View by which a manager takes its number again, it is a member wherever it was one.
pub(crate) fn keep_memberships(number: ManagerNumber, before: &View, view: &mut View) {
    let incarnation = |view: &View| view.managers.get(&number).map(|it| it.incarnation);
    if incarnation(before) >= incarnation(view) {
        return;
    }
    for (part, was) in before.parts.iter().filter(|(_, was)| was.has(number)) {
        if let Some(part) = view.parts.get_mut(part).filter(|it| !it.has(number)) {
            *part = was.clone();
        }
    }
}

/// A registry in which every node that is there takes sessions.
pub(crate) fn hide_cordons(state: &mut ConfigState) {
    for reg in state.nodes.values_mut().filter(|it| !it.state.is_gone()) {
        (reg.wish, reg.state) = (NodeWish::Serves, NodeState::Ready);
    }
}

/// Managers see of a drain only that nothing more is to be placed there.
pub(crate) fn hide_drains(state: &mut ConfigState) {
    for reg in state.nodes.values_mut() {
        if let NodeWish::Drained { closes_at_ms, .. } = &mut reg.wish {
            *closes_at_ms = None;
        }
    }
}

/// Managers see of all classes that their sessions may always be disturbed.
pub(crate) fn disturb_all(state: &mut ConfigState) {
    let facts = state.nodes.values_mut().flat_map(|it| it.facts.values_mut());
    facts.for_each(|it| it.disturb = Disturb::Always);
}

/// A boot that takes another one's place takes sessions, whatever is wished of its node.
pub(crate) fn forget_cordon(before: &ConfigState, change: &mut Change) {
    let Some(node) = &mut change.node else { return };
    let before = before.nodes.get(&node.to.node);
    if before.is_some_and(|it| it.boot != node.to.boot) && !node.to.state.is_gone() {
        (node.to.wish, node.to.state) = (NodeWish::Serves, NodeState::Ready);
    }
}

/// A View of another ring looks like one of that ring.
pub(crate) fn take_for_ours(state: &mut ConfigState, ring: &RingShape) {
    let view = state.view.as_mut().filter(|it| it.shape() != *ring);
    if let Some(view) = view {
        let RingShape { cluster, m, r } = ring.clone();
        let view = Arc::make_mut(view);
        (view.cluster, view.m, view.r) = (cluster, m, r);
    }
}

/// A View that is older than the one that a manager knows, though it comes later, looks like the next one.
pub(crate) fn take_for_next(state: &mut ConfigState, known: Option<(u64, Epoch)>) {
    let (Some((index, epoch)), Some(view)) = (known, &mut state.view) else { return };
    if state.index > index && view.epoch < epoch {
        Arc::make_mut(view).epoch = epoch.next();
    }
}
