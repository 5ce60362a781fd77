//! Planted bugs: a part of the cluster is made to break one rule, by changing what passes between
//! the processes and the simulated world. The shipped code knows nothing of it. Each bug must be
//! caught by some seed, else the net has a hole.

pub(crate) mod acks;
pub(crate) mod agents;
mod bug;
pub(crate) mod contents;
pub(crate) mod joins;
pub(crate) mod leaves;
pub(crate) mod links;
mod lives;
pub(crate) mod nodes;
pub(crate) mod peers;
mod plant;
pub(crate) mod recoveries;
pub(crate) mod rules;
pub(crate) mod stores;
pub(crate) mod syncs;

pub use self::bug::Bug;
pub use self::plant::{Altered, Plant};
use crate::checker::Run;
use crate::mutants::contents::{
    alter_documents, forget_requests, reopen_closed, restart_closed, unless_memory, with_all_fired,
};
use crate::mutants::nodes::{alter_call, believe_verdicts};
pub(crate) use crate::mutants::nodes::{head_mut, is_redrive, raise_epoch};
use crate::mutants::peers::{empty_page, let_copies_fall};
use crate::mutants::recoveries::lower_epoch;
use crate::mutants::rules::{disturb_all, hide_cordons, hide_drains, take_for_next, take_for_ours};
use crate::mutants::syncs::{hide_tail, settle_sync};
use crate::world::World;
use rota_model::node_msg::{FromNode, NodeAnswer, ReportEvent, ReportItem, ToNode};
use rota_model::{Changed, Epoch, ManagerNumber, NodeId};
use rota_protocol::{Answer, CasOutcome, Effect, Envelope, Input, Message, OpResult, Reply};
use rota_ring::{Change, ConfigState};
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

impl World {
    pub(crate) fn bug(&self) -> Option<Bug> {
        self.plant.as_ref().map(|it| it.bug)
    }

    /// A manager's effect on its way.
    pub fn plant_on_effect(
        &mut self,
        number: ManagerNumber,
        run: u64,
        effect: Effect,
    ) -> Altered<Effect> {
        match (self.bug(), effect) {
            (Some(bug), Effect::Cas { cas, mut change }) => {
                self.plant_on_cas(bug, number, cas, &mut change);
                Altered::Kept(Effect::Cas { cas, change })
            }
            (Some(Bug::AddingForgotten), effect @ Effect::Send { .. }) => {
                if self.plant_loses(number, &effect) {
                    return Altered::Dropped;
                }
                Altered::Kept(effect)
            }
            (Some(bug), Effect::Send { address, envelope }) => {
                self.plant_on_send(bug, (number, run), &envelope);
                Altered::Kept(Effect::Send { address, envelope })
            }
            (Some(bug), Effect::Reply { call, reply: Reply::Request(mut result) }) => {
                spoil_reply(bug, call, &mut result);
                Altered::Kept(Effect::Reply { call, reply: Reply::Request(result) })
            }
            (Some(Bug::AckBeforeDisk), Effect::Persist { lsn, writes }) => {
                self.tell_later(number, 0, Input::Persisted { lsn });
                Altered::Kept(Effect::Persist { lsn, writes })
            }
            (Some(Bug::LeftEarly | Bug::ReleasedUnwedged), Effect::Persist { lsn, writes }) => {
                self.release_early(number, run, &writes);
                Altered::Kept(Effect::Persist { lsn, writes })
            }
            (Some(Bug::ReplicaKept), Effect::Persist { lsn, mut writes }) => {
                self.keep_replica(number, &mut writes);
                Altered::Kept(Effect::Persist { lsn, writes })
            }
            (Some(Bug::NoRedrive), Effect::ToNode { node, address, message }) => {
                if is_redrive(&message) {
                    return Altered::Dropped;
                }
                Altered::Kept(Effect::ToNode { node, address, message })
            }
            (
                Some(Bug::GoneActed | Bug::EndedActed | Bug::TimerLost),
                Effect::ToNode { node, address, message },
            ) => match self.plant_on_act(message.clone()) {
                Some(act) => {
                    let is_other = act != message;
                    let effect = Effect::ToNode { node, address, message: act };
                    if is_other {
                        self.ground.checker.on_effect(
                            self.ground.queue.now_us(),
                            (number, run),
                            &effect,
                        );
                    }
                    Altered::Kept(effect)
                }
                None => Altered::Dropped,
            },
            (
                Some(Bug::ScanSkipped | Bug::DestroyAssumed),
                Effect::ToNode { node, address, message },
            ) => {
                if self.answered_without_the_node(number, &node, &message) {
                    return Altered::Dropped;
                }
                Altered::Kept(Effect::ToNode { node, address, message })
            }
            (_, effect) => Altered::Kept(effect),
        }
    }

    /// A message of a manager on its way to a peer, who may seem to answer at once.
    fn plant_on_send(&mut self, bug: Bug, (number, run): Run, envelope: &Envelope) {
        match (bug, envelope) {
            (Bug::StaleConfirm, it) => self.confirm_at_once(number, run, it),
            (Bug::TimeoutThenProceed, it) => self.ack_for_the_silent(number, it),
            (Bug::EarlyMember, it) => self.learned_at_once(number, it),
            (Bug::LeftToTheGone, it) => self.runs_at_once(number, it),
            (Bug::ServedUnsynced, it) => self.synced_at_once((number, run), it),
            (_, _) => {}
        }
    }

    /// An answer that the manager takes for a node's, to a call that never reaches it.
    fn answered_without_the_node(
        &mut self,
        number: ManagerNumber,
        node: &NodeId,
        message: &ToNode,
    ) -> bool {
        let (answer, delay_us) = match (self.bug(), message) {
            (Some(Bug::DestroyAssumed), ToNode::Destroy { .. }) => {
                (NodeAnswer::Destroyed { exit: None, detail: String::new() }, 500)
            }
            (Some(Bug::ScanSkipped), ToNode::Scan { .. }) => (NodeAnswer::nothing_found(), 0),
            _ => return false,
        };
        let (call, boot, load) = (message.head().call, message.head().boot, Default::default());
        let answer = FromNode { call, node: node.clone(), boot, load, answer };
        self.tell_later(number, delay_us, Input::Node(answer));
        true
    }

    /// Whether programs outlive their lease.
    pub fn plant_ignores_lease(&self) -> bool {
        self.bug() == Some(Bug::LeaseIgnored)
    }

    /// Whether that news never reaches the manager, which acknowledges it all the same.
    pub fn plant_drops_news(&self, item: &ReportItem) -> bool {
        let machine = matches!(item.event, ReportEvent::MachineState { .. });
        machine && self.bug() == Some(Bug::NewsDropped)
    }

    /// A change of an entry whose later revisions nobody was shown expects the newest.
    pub(crate) fn expect_newest(&self, change: &mut Change) {
        let Some(node) = &mut change.node else { return };
        let Some(now) = self.store.state().nodes.get(&node.to.node) else { return };
        let name = (now.node.clone(), now.boot);
        let shown = self.plant.as_ref().and_then(|it| it.revisions.get(&name)).copied();
        if shown == Some(node.expect_revision) {
            node.expect_revision = now.revision;
            node.to.revision = now.revision + 1;
        }
    }

    /// A state of the registry in which every boot keeps its first revision.
    fn first_revisions(&mut self, state: &mut ConfigState) {
        let plant = self.plant.as_mut().filter(|it| it.bug == Bug::LeaseNotAnew);
        let Some(plant) = plant else { return };
        for reg in state.nodes.values_mut().filter(|it| !it.state.is_gone()) {
            let first = plant.revisions.entry((reg.node.clone(), reg.boot));
            reg.revision = *first.or_insert(reg.revision);
        }
    }

    /// The content of an earlier copying under the numbers of this one.
    fn late_chunk(&mut self, number: ManagerNumber, message: Message) -> Message {
        let Message::SnapshotChunk { part, chunk } = &message else { return message };
        let (learn, pe, start) = (chunk.learn, chunk.pe, chunk.start);
        let place = (number, *part, chunk.number);
        let Some(plant) = &mut self.plant else { return message };
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
    pub fn plant_on_input(&mut self, number: ManagerNumber, input: Input) -> Input {
        match (self.bug(), input) {
            (Some(bug), Input::Peer(mut envelope)) => {
                self.plant_on_epochs(bug, number, &mut envelope);
                self.plant_on_message(bug, number, &mut envelope.message);
                Input::Peer(envelope)
            }
            (
                Some(
                    Bug::LeaseNotAnew
                    | Bug::DrainHidden
                    | Bug::AllDisturbed
                    | Bug::CordonUnseen
                    | Bug::OtherRingFollowed
                    | Bug::OldStoreFollowed
                    | Bug::GrantUnwaited
                    | Bug::NewOwnerUnwaited,
                ),
                mut input,
            ) => {
                let process = self.managers.get(&number).and_then(|it| it.process.as_ref());
                let known = process.and_then(|it| Some((it.config_index(), it.view()?.epoch)));
                if let Input::Config(state)
                | Input::ConfigRead { state: Some(state), .. }
                | Input::CasDone {
                    outcome: CasOutcome::Done(state) | CasOutcome::Conflict(state),
                    ..
                } = &mut input
                {
                    self.first_revisions(state);
                    match self.bug() {
                        Some(Bug::DrainHidden) => hide_drains(state),
                        Some(Bug::AllDisturbed) => disturb_all(state),
                        Some(Bug::CordonUnseen) => hide_cordons(state),
                        Some(Bug::OtherRingFollowed) => {
                            take_for_ours(state, &self.ground.setup.ring())
                        }
                        Some(Bug::OldStoreFollowed) => take_for_next(state, known),
                        Some(bug) => believe_verdicts(bug, number, state),
                        _ => {}
                    }
                }
                input
            }
            (Some(Bug::BootUnproven), Input::NodeRegister { call, mut register }) => {
                let registered = self.store.state().nodes.get(&register.node);
                register.ended_boots.extend(registered.map(|it| it.boot));
                Input::NodeRegister { call, register }
            }
            (Some(Bug::JoinHidden), Input::ConfigRead { read, state: Some(mut state) }) => {
                let joins = self.managers.get(&number).is_some_and(|it| it.joins);
                if let Some(view) = state.view.as_mut().filter(|_| joins) {
                    Arc::make_mut(view).transition = None;
                }
                Input::ConfigRead { read, state: Some(state) }
            }
            (Some(Bug::WrongR2), Input::ConfigRead { read, state: Some(mut state) }) => {
                self.alter_since(number, &mut state, Epoch(0));
                Input::ConfigRead { read, state: Some(state) }
            }
            (Some(Bug::GivenUpEarly), Input::ConfigRead { read, state: Some(mut state) }) => {
                self.alter_since(number, &mut state, Epoch(u64::MAX));
                Input::ConfigRead { read, state: Some(state) }
            }
            (_, input) => input,
        }
    }

    /// A message of a peer on its way to a manager.
    fn plant_on_message(&mut self, bug: Bug, number: ManagerNumber, message: &mut Message) {
        match (bug, message) {
            (Bug::LateChunk, message) => *message = self.late_chunk(number, message.clone()),
            (Bug::SuffixKept, Message::SyncData { writes, .. }) => *writes = Arc::default(),
            (Bug::HiddenTail, message) => hide_tail(message),
            (Bug::SyncSettled, message) => settle_sync(message),
            (Bug::EmptySnapshot, Message::SnapshotChunk { chunk, .. }) => chunk.docs.clear(),
            (Bug::RequestForgotten, message) => forget_requests(message),
            (Bug::ClosingReopened, message) => reopen_closed(message),
            (Bug::MemoryForgotten, message) => alter_documents(message, unless_memory),
            (Bug::WriteForgotten, message) => alter_documents(message, |_| None),
            (Bug::EmptyArc, message) => self.empty_arc(number, message),
            (Bug::SearchUnbuilt, message) => empty_page(message),
            (Bug::CopyForgotten, message) => let_copies_fall(message),
            (Bug::ClosingRestarted, message) => restart_closed(message),
            (Bug::EventUnrun, message) => alter_documents(message, with_all_fired),
            (Bug::DeltaAfterLoss, message) => self.only_what_changed(number, message),
            (_, _) => {}
        }
    }

    /// A call on its way into a node.
    pub fn plant_on_node_call(&mut self, index: usize, mut message: ToNode) -> Option<ToNode> {
        self.plant_on_action(index, &message);
        let Some(plant) = &mut self.plant else { return Some(message) };
        let host = self.nodes.get(index)?;
        let (agent, boot) = (host.agent.as_ref()?, host.boot);
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
            lower_epoch(&mut message, self.ground.setup.m, |slot| agent.fence(slot));
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
