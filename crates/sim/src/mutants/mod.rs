//! Planted bugs: a part of the cluster is made to break one rule, by changing what passes between
//! the processes and the simulated world. The shipped code knows nothing of it. Each bug must be
//! caught by some seed, else the net has a hole.

pub(crate) mod acks;
pub(crate) mod agents;
pub(crate) mod bug;
pub(crate) mod contents;
pub(crate) mod joins;
pub(crate) mod leaves;
pub(crate) mod links;
pub(crate) mod lives;
pub(crate) mod nodes;
pub(crate) mod peers;
pub(crate) mod plant;
pub(crate) mod recoveries;
pub(crate) mod rules;
pub(crate) mod stores;
pub(crate) mod syncs;

pub use self::bug::Bug;
pub use self::plant::{Altered, Plant};
use crate::mutants::acks::on_epochs;
use crate::mutants::contents::{
    alter_documents, forget_requests, only_what_changed, reopen_closed, restart_closed,
    unless_memory, with_all_fired,
};
use crate::mutants::joins::{empty_arc, keep_replica};
use crate::mutants::leaves::release_early;
use crate::mutants::lives::{act_instead, act_wrongly};
use crate::mutants::nodes::{alter_call, believe_verdicts};
pub(crate) use crate::mutants::nodes::{head_mut, is_redrive, raise_epoch};
use crate::mutants::peers::{
    ack_for_the_silent, confirm_at_once, empty_page, learned_at_once, let_copies_fall, runs_at_once,
};
use crate::mutants::recoveries::{alter_since, lower_epoch};
use crate::mutants::rules::{
    disturb_all, hide_cordons, hide_drains, on_cas, take_for_next, take_for_ours,
};
use crate::mutants::stores::loses;
use crate::mutants::syncs::{hide_tail, settle_sync, synced_at_once};
use crate::site::{AtManager, AtNode};
use rota_model::node_msg::{FromNode, NodeAnswer, ToNode};
use rota_model::{Changed, Epoch, NodeId};
use rota_protocol::{
    Answer, CasOutcome, Effect, Envelope, Input, Manager, Message, OpResult, Reply,
};
use rota_ring::ConfigState;
use std::sync::Arc;

/// What a client is told by a manager with that bug.
fn spoil_reply(bug: Bug, call: u64, result: &mut OpResult) {
    let is_chosen = call.is_multiple_of(5);
    match result {
        Ok(Answer::Listed(page)) if bug == Bug::ListMisses && is_chosen => {
            page.sessions.pop();
        }
        Ok(Answer::Pulled(pulled)) if bug == Bug::WatchMisses && is_chosen => {
            pulled.events.pop();
        }
        Ok(Answer::Documents(rota_protocol::DocumentAnswer::Watched(Ok(pulled))))
            if bug == Bug::WatchMisses && is_chosen =>
        {
            pulled.events.pop();
        }
        Err(refusal) if bug == Bug::ChangeDenied => refusal.changed = Changed::No,
        Ok(_) | Err(_) => {}
    }
}

/// A manager's effect on its way.
pub(crate) fn on_effect(at: &mut AtManager<'_>, effect: Effect) -> Altered<Effect> {
    let Some(bug) = at.bug() else { return Altered::Kept(effect) };
    let number = at.number;
    match (bug, effect) {
        (bug, Effect::Cas { cas, mut change }) => {
            on_cas(at, bug, cas, &mut change);
            Altered::Kept(Effect::Cas { cas, change })
        }
        (bug, Effect::Send { address, envelope }) => {
            if bug == Bug::AddingForgotten && loses(at, &envelope) {
                return Altered::Dropped;
            }
            on_send(at, bug, &envelope);
            Altered::Kept(Effect::Send { address, envelope })
        }
        (bug, Effect::Reply { call, reply: Reply::Request(mut result) }) => {
            spoil_reply(bug, call, &mut result);
            Altered::Kept(Effect::Reply { call, reply: Reply::Request(result) })
        }
        (Bug::AckBeforeDisk, Effect::Persist { lsn, writes }) => {
            at.hears(0, Input::Persisted { lsn });
            Altered::Kept(Effect::Persist { lsn, writes })
        }
        (Bug::LeftEarly | Bug::ReleasedUnwedged, Effect::Persist { lsn, writes }) => {
            release_early(at, &writes);
            Altered::Kept(Effect::Persist { lsn, writes })
        }
        (Bug::ReplicaKept, Effect::Persist { lsn, mut writes }) => {
            keep_replica(at, &mut writes);
            Altered::Kept(Effect::Persist { lsn, writes })
        }
        (Bug::NoRedrive, Effect::ToNode { message, .. }) if is_redrive(&message) => {
            Altered::Dropped
        }
        (
            Bug::GoneActed | Bug::EndedActed | Bug::TimerLost,
            Effect::ToNode { node, address, message },
        ) => {
            let plant = at.plant.as_mut();
            let act = plant.and_then(|plant| act_instead(plant, message.clone()));
            let Some(act) = act else { return Altered::Dropped };
            let is_other = act != message;
            let effect = Effect::ToNode { node, address, message: act };
            if is_other {
                let (now_us, run) = (at.ground.now_us(), (number, at.host.run));
                at.ground.checker.on_effect(now_us, run, &effect);
            }
            Altered::Kept(effect)
        }
        (Bug::ScanSkipped | Bug::DestroyAssumed, Effect::ToNode { node, address, message }) => {
            if answered_without_the_node(at, bug, &node, &message) {
                return Altered::Dropped;
            }
            Altered::Kept(Effect::ToNode { node, address, message })
        }
        (_, effect) => Altered::Kept(effect),
    }
}

/// A message of a manager on its way to a peer, who may seem to answer at once.
fn on_send(at: &mut AtManager<'_>, bug: Bug, envelope: &Envelope) {
    match (bug, envelope) {
        (Bug::StaleConfirm, envelope) => confirm_at_once(at, envelope),
        (Bug::TimeoutThenProceed, envelope) => ack_for_the_silent(at, envelope),
        (Bug::EarlyMember, envelope) => learned_at_once(at, envelope),
        (Bug::LeftToTheGone, envelope) => runs_at_once(at, envelope),
        (Bug::ServedUnsynced, envelope) => synced_at_once(at, envelope),
        (_, _) => {}
    }
}

/// An answer that the manager takes for a node's, to a call that never reaches it.
fn answered_without_the_node(
    at: &mut AtManager<'_>,
    bug: Bug,
    node: &NodeId,
    message: &ToNode,
) -> bool {
    let (answer, delay_us) = match (bug, message) {
        (Bug::DestroyAssumed, ToNode::Destroy { .. }) => {
            (NodeAnswer::Destroyed { exit: None, detail: String::new() }, 500)
        }
        (Bug::ScanSkipped, ToNode::Scan { .. }) => (NodeAnswer::nothing_found(), 0),
        _ => return false,
    };
    let (call, boot, load) = (message.head().call, message.head().boot, Default::default());
    let answer = FromNode { call, node: node.clone(), boot, load, answer };
    at.hears(delay_us, Input::Node(answer));
    true
}

/// A state of the registry in which every boot keeps its first revision.
fn first_revisions(plant: &mut Plant, state: &mut ConfigState) {
    for reg in state.nodes.values_mut().filter(|it| !it.state.is_gone()) {
        let first = plant.revisions.entry((reg.node.clone(), reg.boot));
        reg.revision = *first.or_insert(reg.revision);
    }
}

/// The content of an earlier copying under the numbers of this one.
fn late_chunk(at: &mut AtManager<'_>, message: Message) -> Message {
    let Message::SnapshotChunk { part, chunk } = &message else { return message };
    let (learn, pe, start) = (chunk.learn, chunk.pe, chunk.start);
    let place = (at.number, *part, chunk.number);
    let Some(plant) = at.plant else { return message };
    let before = plant.chunks.insert(place, message.clone());
    let Some(mut late) = before else { return message };
    if let Message::SnapshotChunk { chunk: old, .. } = &mut late
        && old.learn < learn
    {
        (old.learn, old.pe, old.start) = (learn, pe, start);
        return late;
    }
    message
}

/// An input on its way to a manager.
pub(crate) fn on_input(at: &mut AtManager<'_>, mut input: Input) -> Input {
    let Some(bug) = at.bug() else { return input };
    match (bug, &mut input) {
        (bug, Input::Peer(envelope)) => {
            on_epochs(at, bug, envelope);
            on_message(at, bug, &mut envelope.message);
        }
        (Bug::BootUnproven, Input::NodeRegister { register, .. }) => {
            let registered = at.store.state().nodes.get(&register.node);
            register.ended_boots.extend(registered.map(|it| it.boot));
        }
        (Bug::JoinHidden, Input::ConfigRead { state: Some(state), .. }) => {
            if let Some(view) = state.view.as_mut().filter(|_| at.host.joins) {
                Arc::make_mut(view).transition = None;
            }
        }
        (Bug::WrongR2, Input::ConfigRead { state: Some(state), .. }) => {
            alter_since(at, state, Epoch(0));
        }
        (Bug::GivenUpEarly, Input::ConfigRead { state: Some(state), .. }) => {
            alter_since(at, state, Epoch(u64::MAX));
        }
        (
            bug,
            Input::Config(state)
            | Input::ConfigRead { state: Some(state), .. }
            | Input::CasDone {
                outcome: CasOutcome::Done(state) | CasOutcome::Conflict(state), ..
            },
        ) => on_state(at, bug, state),
        (_, _) => {}
    }
    input
}

/// What a manager sees of the config store, however it comes by that.
fn on_state(at: &mut AtManager<'_>, bug: Bug, state: &mut ConfigState) {
    match (bug, state) {
        (Bug::LeaseNotAnew, state) => {
            if let Some(plant) = at.plant {
                first_revisions(plant, state);
            }
        }
        (Bug::DrainHidden, state) => hide_drains(state),
        (Bug::AllDisturbed, state) => disturb_all(state),
        (Bug::CordonUnseen, state) => hide_cordons(state),
        (Bug::OtherRingFollowed, state) => take_for_ours(state, &at.ground.setup.ring()),
        (Bug::OldStoreFollowed, state) => {
            let known = at.host.process.as_ref().map(Manager::config_index);
            take_for_next(state, known.zip(at.host.known_epoch()));
        }
        (Bug::GrantUnwaited | Bug::NewOwnerUnwaited, state) => {
            believe_verdicts(bug, at.number, state)
        }
        (_, _) => {}
    }
}

/// A message of a peer on its way to a manager.
fn on_message(at: &mut AtManager<'_>, bug: Bug, message: &mut Message) {
    match (bug, message) {
        (Bug::LateChunk, message) => *message = late_chunk(at, message.clone()),
        (Bug::SuffixKept, Message::SyncData { writes, .. }) => *writes = Arc::default(),
        (Bug::HiddenTail, message) => hide_tail(message),
        (Bug::SyncSettled, message) => settle_sync(message),
        (Bug::EmptySnapshot, Message::SnapshotChunk { chunk, .. }) => chunk.docs.clear(),
        (Bug::RequestForgotten, message) => forget_requests(message),
        (Bug::ClosingReopened, message) => reopen_closed(message),
        (Bug::MemoryForgotten, message) => alter_documents(message, unless_memory),
        (Bug::WriteForgotten, message) => alter_documents(message, |_| None),
        (Bug::EmptyArc, message) => empty_arc(at, message),
        (Bug::SearchUnbuilt, message) => empty_page(message),
        (Bug::CopyForgotten, message) => let_copies_fall(message),
        (Bug::ClosingRestarted, message) => restart_closed(message),
        (Bug::EventUnrun, message) => alter_documents(message, with_all_fired),
        (Bug::DeltaAfterLoss, message) => only_what_changed(at, message),
        (_, _) => {}
    }
}

/// A call on its way into a node.
pub(crate) fn on_node_call(at: &mut AtNode<'_>, mut message: ToNode) -> Option<ToNode> {
    act_wrongly(at, &message);
    let Some(plant) = at.plant else { return Some(message) };
    let (agent, boot) = (at.host.agent.as_ref()?, at.host.boot);
    if plant.bug == Bug::FullForgotten {
        plant.before = Some(agent.clone());
    }
    if plant.bug == Bug::NoFence {
        let slot = match &message {
            ToNode::Create { slot, .. }
            | ToNode::Destroy { slot, .. }
            | ToNode::Act { slot, .. } => *slot,
            ToNode::Scan { .. } | ToNode::Meet { .. } => return Some(message),
        };
        let fence = agent.fence(slot);
        raise_epoch(&mut message, fence);
    }
    if plant.bug == Bug::ScanUnfenced && matches!(message, ToNode::Scan { .. }) {
        lower_epoch(&mut message, at.ground.setup.m, |slot| agent.fence(slot));
    }
    alter_call(plant.bug, agent, &mut message);
    if plant.bug == Bug::BootIgnored {
        let head = head_mut(&mut message);
        if head.boot != boot {
            plant.boots.insert(head.call, head.boot);
            head.boot = boot;
        }
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_is_found_by_its_name() {
        for bug in Bug::ALL {
            assert_eq!(Bug::parse(bug.as_str()), Some(*bug));
        }
        assert!(Bug::ALL.len() >= 8);
    }
}
