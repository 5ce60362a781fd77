//! Planted bugs in a model: the simulator's list ([`Bug`]), planted in the same way: what passes between
//! a process and the rest is changed, and the shipped code knows nothing of it.
//!
//! What finds each, and in how many steps, stands in `crates/sim/MUTANTS.md`; a search has the bounds of
//! [`super::suite::bounds_for`].
//!
//! Those without bounds need what a model leaves out, or bounds too wide to be searched, and the simulator
//! finds them (`rota-sim planted`). Where the rules of the disk and of joins have their bugs:
//!
//! | rule | removed | found by |
//! |---|---|---|
//! | R1: who takes its number again is no copy until it has caught up | `claim_stays` | seed |
//! | R2: a disk older than its membership takes nothing over | `wrong_r2` | seed |
//! | R3: a partition of which no copy is complete is served when it is found again | `recovery_skipped` | search |
//! | R3: a scan raises the fence | `scan_unfenced` | seed |
//! | one join or leave at a time | `join_hidden` | search |
//! | a lone copy reads the config store before it answers a read | `lone_unread` | search |
//! | another node is tried only after a definite answer (I6) | `full_assumed` | search |
//! | a Create is withdrawn only when its link confirms that nothing of it was sent (I6) | `unsent_assumed` | search |
//! | whoever takes over withdraws nothing | `withdrawn_later` | search |
//! | an owner that may have added a copy reads only with its word | `added_unasked` | search |
//! | a member is added by a compare-and-set that lands under its View or never | `careless_store` | search |
//!
//! | a learner from before a loss gets full content (`base_pe`) | `delta_after_loss` | search |
//! | who finds a partition again waits for a better copy | `better_unawaited` | seed |
//! | the farthest copy goes only while there are more than r+1 | `shed_early` | seed |
//! | an owner does not go on while the outcome of adding a member is unknown | `adding_forgotten` | seed |
//! | what ran on a boot that was shut out is over when its owner's own grant is | `grant_unwaited` | search |
//! | a new owner counts the full time from its own beginning | `new_owner_unwaited` | search |
//! | a grant extends the slots of its owner alone | `grant_for_all` | search |
//! | an agent writes down what it decides before it does it | `journal_late` | search |
//! | the next agent goes on with the same boot | `adopted_anew` | search |
//! | the next agent knows the dead tokens | `dead_forgotten` | search |
//! | the next agent knows the fences | `fences_forgotten` | search |
//! | the next agent goes by the lease that keepers have | `lease_by_itself` | search |
//! | the next agent tells what nobody has acknowledged | `news_forgotten` | seed |
//! | an end that a client asked for wins over opening again | `closing_reopened` | seed |
//! | and over a restart | `closing_restarted` | seed |
//! | I8: a new owner serves when all copies have answered its Sync | `served_unsynced` | search |
//! | what a Sync brought is committed when its owner says so | `sync_settled` | seed |
//! | I9: a manager speaks when the config store has its run | `claimed_early` | search |
//! | a node that said Destroyed starts that token no more | `destroyed_forgotten` | search |
//! | a node counts its lease from when it asked | `lease_from_answer` | seed |
//!
//! `adding_forgotten` needs a compare-and-set that is late by more than the second for which an owner wedges: there
//! the simulator delays those that matter (`mutants/stores.rs`). Told "conflict" at the usual pace, an owner asks again at once and
//! stays wedged; only one that is busy with a suspicion meanwhile goes on. And steps of a model's clocks are as
//! long as a wedge, so that no search sees its end while something is under way.

use super::bounds::Bounds;
use super::flying::{Flying, Out};
use super::hosts::ManagerHost;
use super::names::node_id;
use super::node_host::NodeHost;
use super::room::Room;
use super::state::State;
use crate::mutants::acks::{ack_below, count_late};
use crate::mutants::agents::{spoil_journal, spoil_leases};
use crate::mutants::contents::{forget_requests, is_from_before, keep_lost};
use crate::mutants::joins::{shed_early, spoil_split};
use crate::mutants::leaves::hand_to_stranger;
use crate::mutants::nodes::{alter_call, believe_verdicts, grant_for_all};
use crate::mutants::recoveries::{lower_epoch, skip_recovery};
use crate::mutants::rules::{forget_cordon, hide_cordons, hide_drains};
use crate::mutants::stores;
use crate::mutants::syncs::{answered_sync, hide_tail, settle_sync};
use crate::mutants::{Bug, head_mut, is_redrive, raise_epoch};
use rota_model::ManagerNumber;
use rota_model::node_msg::{FromNode, NodeAnswer, Registered, Renewed, ToNode};
use rota_node::{Entry, Node, SlotLease};
use rota_protocol::{DiskWrite, Envelope, Input, Manager, Message};
use rota_ring::{Change, ConfigState, View};
use std::sync::Arc;

/// A node's agent before a call, if it is to be put back.
pub fn kept_agent(bug: Option<Bug>, agent: &Node) -> Option<Node> {
    (bug == Some(Bug::FullForgotten)).then(|| agent.clone())
}

/// What a node's agent leaves behind when it dies: its journal, and the lease as keepers have it.
pub fn left_behind(
    bug: Option<Bug>,
    now_ms: u64,
    agent: &Node,
    bounds: &Bounds,
) -> (Vec<Entry>, Vec<SlotLease>) {
    let timing = bounds.timing();
    let times = (timing.lease_term_ms, timing.lease_kill_ms);
    let journal = spoil_journal(bug, (agent.config(), bounds.slots()), agent.remembered());
    (journal, spoil_leases(bug, (now_ms, times), agent.lease_deadlines()))
}

/// Whether a node answered Full.
pub fn said_full(out: &[Out]) -> bool {
    out.iter().any(|output| {
        matches!(output, Out::Fly(Flying::FromNode { answer, .. })
            if answer.answer == NodeAnswer::Full)
    })
}

/// What a careless config store holds after a change that it should have refused.
pub fn forced(bug: Option<Bug>, change: &Change, state: &ConfigState) -> Option<ConfigState> {
    if bug == Some(Bug::CarelessStore) { crate::store::force(state, change) } else { None }
}

/// What a manager is shown of the config store.
pub fn shown(
    bug: Option<Bug>,
    bounds: &Bounds,
    host: &ManagerHost,
    mut state: ConfigState,
) -> ConfigState {
    if bug == Some(Bug::CordonUnseen) {
        hide_cordons(&mut state);
    }
    if bug == Some(Bug::DrainHidden) {
        hide_drains(&mut state);
    }
    if let Some(bug) = bug {
        believe_verdicts(bug, host.number, &mut state);
    }
    let claimed = host.process.as_ref().is_some_and(Manager::is_claimed);
    let hides = bug == Some(Bug::JoinHidden) && bounds.newcomers.contains(&host.number.0);
    if let Some(view) = state.view.as_mut().filter(|_| hides && !claimed) {
        Arc::make_mut(view).transition = None;
    }
    state
}

/// What a manager reads of the config store when it must know what stands there now.
pub fn read(
    bug: Option<Bug>,
    bounds: &Bounds,
    host: &ManagerHost,
    state: ConfigState,
) -> ConfigState {
    let mut state = shown(bug, bounds, host, state);
    let known = host.process.as_ref().filter(|it| bug == Some(Bug::LoneUnread) && it.is_claimed());
    if let Some((process, view)) = known.and_then(|it| Some((it, it.view()?))) {
        (state.index, state.view) = (process.config_index(), Some(view.clone()));
    }
    state
}

/// An input on its way to a manager.
pub fn input(bug: Option<Bug>, bounds: &Bounds, host: &ManagerHost, mut input: Input) -> Input {
    let (Some(bug), Input::Peer(envelope)) = (bug, &mut input) else { return input };
    match (bug, &mut envelope.message) {
        (Bug::SuffixKept, Message::SyncData { writes, .. }) => *writes = Arc::default(),
        (Bug::HiddenTail, message) => hide_tail(message),
        (Bug::EmptySnapshot, Message::SnapshotChunk { chunk, .. }) => chunk.docs.clear(),
        (Bug::SyncSettled, message) => settle_sync(message),
        (Bug::RequestForgotten, message) => forget_requests(message),
        (Bug::DeltaAfterLoss, Message::SnapshotChunk { part, chunk }) => {
            let view = host.process.as_ref().and_then(Manager::view);
            let from_before = |view: &&Arc<View>| is_from_before(view, &host.disk, *part);
            if let Some(view) = view.filter(from_before).filter(|_| chunk.number == 0) {
                keep_lost(view, &host.disk, *part, chunk);
            }
        }
        (Bug::LateAckCounted, message) => {
            if let Some(process) = &host.process {
                count_late(process, message);
            }
        }
        (Bug::EmptyArc, Message::SnapshotChunk { part, chunk })
            if *part == host.number && bounds.newcomers.contains(&host.number.0) =>
        {
            chunk.docs.clear();
        }
        (_, _) => {}
    }
    input
}

/// What a manager answers to a message that it is not given.
pub fn answered(bug: Option<Bug>, host: &ManagerHost, message: &Flying) -> Option<Out> {
    let Flying::Peer(envelope) = message else { return None };
    let process = host.process.as_ref().filter(|_| bug == Some(Bug::OldEpochAcked))?;
    Some(Out::Fly(Flying::Peer(ack_below(process, envelope)?)))
}

/// What a node is told when its boot is registered.
pub fn registered(bug: Option<Bug>, mut registered: Registered) -> Registered {
    if bug == Some(Bug::BootUnfenced) {
        registered.fences.clear();
    }
    registered
}

/// An answer to a renewal on its way into a node.
pub fn renewed(bug: Option<Bug>, bounds: &Bounds, renewed: Renewed) -> Renewed {
    grant_for_all(bug, bounds.slots(), renewed)
}

/// A call on its way into a node.
pub fn call(bug: Option<Bug>, bounds: &Bounds, host: &NodeHost, mut message: ToNode) -> ToNode {
    if bug == Some(Bug::NoFence) {
        let slot = match &message {
            ToNode::Create { slot, .. }
            | ToNode::Destroy { slot, .. }
            | ToNode::Act { slot, .. } => *slot,
            ToNode::Scan { .. } | ToNode::Meet { .. } => return message,
        };
        raise_epoch(&mut message, host.agent.fence(slot));
    }
    if bug == Some(Bug::ScanUnfenced) && matches!(message, ToNode::Scan { .. }) {
        lower_epoch(&mut message, bounds.slots(), |slot| host.agent.fence(slot));
    }
    if let Some(bug) = bug {
        alter_call(bug, &host.agent, &mut message);
    }
    if bug == Some(Bug::BootIgnored) {
        head_mut(&mut message).boot = host.boot;
    }
    message
}

/// Writes on their way to a manager's disk.
pub fn writes(bug: Option<Bug>, process: &Manager, number: u32, writes: &mut Vec<DiskWrite>) {
    let (Some(Bug::ReplicaKept), Some(view)) = (bug, process.view()) else { return };
    writes.retain(|write| match write {
        DiskWrite::Doc { key, doc: None } => view.part_of(key.slot).1.has(ManagerNumber(number)),
        DiskWrite::Doc { .. } | DiskWrite::Part { .. } | DiskWrite::Identity(_) => true,
    });
}

/// What a manager sends, on its way.
pub fn alter(room: &Room, state: &State, out: &mut Vec<Out>) {
    let Some(bug) = room.bug else { return };
    let mut altered = Vec::new();
    for mut it in out.drain(..) {
        if let Out::Fly(Flying::Peer(envelope)) = &it {
            altered.extend(forged(bug, envelope));
            altered.extend(added_unasked(room, state, bug, envelope));
            altered.extend(synced_at_once(room, state, bug, envelope));
        }
        if let Out::Fly(Flying::ToNode { node, message, .. }) = &it {
            if bug == Bug::NoRedrive && is_redrive(message) {
                continue;
            }
            if let Some(answer) = assumed(bug, *node, message) {
                altered.push(Out::ForgedNode(Box::new(answer)));
                // Whatever the owner takes for granted, the call is on its way.
                if bug == Bug::FullAssumed {
                    altered.push(it);
                }
                continue;
            }
        }
        if let Out::Fly(Flying::Cas { from, cas, change }) = &mut it {
            alter_change(room, state, bug, Arc::make_mut(change));
            let held = stores::registered(&room.parts.store(state).state, change);
            let held = held.filter(|_| bug == Bug::RegisteredEarly).or_else(|| {
                let held = stores::claimed(&room.parts.store(state).state, from.0, change);
                held.filter(|_| bug == Bug::ClaimedEarly)
            });
            if let Some(held) = held {
                let (to, cas, done, held) = (*from, *cas, true, Box::new(held));
                altered.push(Out::Fly(Flying::Outcome { to, cas, done, held }));
            }
        }
        altered.push(it);
    }
    *out = altered;
}

/// A compare-and-set on its way.
fn alter_change(room: &Room, state: &State, bug: Bug, change: &mut Change) {
    match (bug, room.view(state), &mut change.view) {
        (Bug::CordonForgotten, ..) => forget_cordon(&room.parts.store(state).state, change),
        (Bug::SplitUnfenced | Bug::EarlyHandOver, Some(before), Some(view)) => {
            spoil_split(Some(bug), before, view);
        }
        (Bug::HandedToStranger, Some(before), Some(view)) => hand_to_stranger(before, view),
        (Bug::RecoverySkipped, Some(before), Some(view)) => skip_recovery(before, view),
        (Bug::ShedEarly, Some(before), Some(view)) => shed_early(before, view),
        (_, _, _) => {}
    }
}

/// What a peer seems to answer before it was asked.
fn forged(bug: Bug, envelope: &Envelope) -> Vec<Out> {
    let answers = match (bug, &envelope.message) {
        (Bug::StaleConfirm, Message::ReadIndex { round, parts }) => {
            vec![Message::ReadIndexConfirmed { round: *round, parts: parts.clone() }]
        }
        (Bug::EarlyMember, Message::SnapshotChunk { part, chunk }) => {
            let (part, pe, learn) = (*part, chunk.pe, chunk.learn);
            vec![
                Message::SnapshotAck { part, pe, learn, chunk: chunk.number },
                Message::Ack { part, pe, seq: chunk.upto.seq },
            ]
        }
        (Bug::TimeoutThenProceed, Message::Prepare { part, pe, entries, .. }) => {
            let last = entries.last();
            let ack =
                |it: &rota_protocol::Entry| Message::Ack { part: *part, pe: *pe, seq: it.at.seq };
            last.map(ack).into_iter().collect()
        }
        (_, _) => Vec::new(),
    };
    let (from, to, epoch) = (envelope.to, envelope.from, envelope.epoch);
    let forge = |message| Out::Forged(Box::new(Envelope { from, to, epoch, message }));
    answers.into_iter().map(forge).collect()
}

/// Whoever is no copy as far as the owner knows, and may have been added, seems to confirm at once.
fn added_unasked(room: &Room, state: &State, bug: Bug, envelope: &Envelope) -> Option<Out> {
    let Message::ReadIndex { round, parts } = &envelope.message else { return None };
    let at = room.place_of(envelope.from.number).filter(|_| bug == Bug::AddedUnasked)?;
    let view = room.parts.manager(state, at).process.as_ref()?.view()?;
    let is_added =
        |part: &ManagerNumber| view.parts.get(part).is_some_and(|it| !it.has(envelope.to.number));
    let parts: Vec<_> = parts.iter().filter(|it| is_added(&it.0)).copied().collect();
    let message = Message::ReadIndexConfirmed { round: *round, parts };
    let (from, to, epoch) = (envelope.to, envelope.from, envelope.epoch);
    Some(Out::Forged(Box::new(Envelope { from, to, epoch, message })))
}

/// A copy seems to answer a Sync as soon as it is asked.
fn synced_at_once(room: &Room, state: &State, bug: Bug, envelope: &Envelope) -> Option<Out> {
    let at = room.place_of(envelope.from.number).filter(|_| bug == Bug::ServedUnsynced)?;
    let message =
        answered_sync(room.parts.manager(state, at).process.as_ref()?, &envelope.message)?;
    let (from, to, epoch) = (envelope.to, envelope.from, envelope.epoch);
    Some(Out::Forged(Box::new(Envelope { from, to, epoch, message })))
}

/// What a node seems to answer to a call that never reaches it.
fn assumed(bug: Bug, node: usize, message: &ToNode) -> Option<FromNode> {
    let answer = match (bug, message) {
        (Bug::DestroyAssumed, ToNode::Destroy { .. }) => {
            NodeAnswer::Destroyed { exit: None, detail: String::new() }
        }
        (Bug::FullAssumed, ToNode::Create { .. }) => NodeAnswer::Full,
        (Bug::ScanSkipped, ToNode::Scan { .. }) => NodeAnswer::nothing_found(),
        (_, _) => return None,
    };
    let head = message.head();
    let node = node_id(node);
    Some(FromNode { call: head.call, node, boot: head.boot, load: Default::default(), answer })
}
