//! Planted bugs of nodes: how long a lease counts, how long a start may take, what is dead.

use crate::event::{Event, Phase};
use crate::mutants::Bug;
use crate::world::World;
use rota_model::node_msg::{FromNode, NodeAnswer, Renewed, SlotRange, ToNode};
use rota_model::{BootId, Epoch, LogPos, ManagerNumber, NodeState, SlotId, Token};
use rota_node::{Node, NodeEffect, NodeInput};
use rota_ring::ConfigState;

impl World {
    /// A node is told that its lease was renewed, as an answer to what it sent at that time.
    pub(crate) fn on_renewed(
        &mut self,
        (index, run): (usize, u64),
        (boot, sent_mono_ms): (BootId, u64),
        renewed: Renewed,
    ) {
        let renewed = grant_for_all(self.bug(), self.ground.setup.m, renewed);
        let Some(late_us) = self.renewed_late() else {
            return self.tell_node(index, run, NodeInput::Renewed { boot, sent_mono_ms, renewed });
        };
        let Some(host) = self.nodes.get(index) else { return };
        let sent_mono_ms = host.mono_ms(self.ground.now_us() + late_us);
        let input = Box::new(NodeInput::Renewed { boot, sent_mono_ms, renewed });
        self.ground.queue.after(late_us, Event::TellNode(index, run, input));
    }

    /// How late such an answer is, if a node counts from it: seven of ten come when what they grant is over.
    fn renewed_late(&mut self) -> Option<u64> {
        self.bug().filter(|it| *it == Bug::LeaseFromAnswer)?;
        let is_late = self.ground.phase == Phase::Chaos && self.ground.rng.permille(700);
        let timing = &self.ground.setup.timing;
        let spare_ms = timing.node_lost_ms - timing.lease_kill_ms;
        Some(if is_late { spare_ms * 3_000 } else { 0 })
    }

    /// A node's agent has decided: after a Full it is put back to what it was before.
    pub fn plant_on_node_decided(&mut self, index: usize, effects: &[NodeEffect]) {
        let Some(before) = self.plant.as_mut().and_then(|it| it.before.take()) else { return };
        let full = effects.iter().any(|effect| match effect {
            NodeEffect::Answer { answer, .. } => answer.answer == NodeAnswer::Full,
            NodeEffect::Start { .. }
            | NodeEffect::Journal { .. }
            | NodeEffect::Adopt { .. }
            | NodeEffect::Stop { .. }
            | NodeEffect::Act { .. }
            | NodeEffect::Report { .. }
            | NodeEffect::Renew { .. }
            | NodeEffect::Lease { .. }
            | NodeEffect::BootAnew
            | NodeEffect::Left
            | NodeEffect::Retire => false,
        });
        if let Some(host) = self.nodes.get_mut(index).filter(|_| full) {
            host.agent = Some(before);
        }
    }

    /// An answer on its way out of a node.
    pub fn plant_on_node_answer(&mut self, mut answer: FromNode) -> FromNode {
        if let Some(meant) = self.plant.as_ref().and_then(|it| it.boots.get(&answer.call)) {
            answer.boot = *meant;
        }
        answer
    }

    /// Whether a data folder proves boots of other machines to be over.
    pub(crate) fn plant_believes_folders(&self) -> bool {
        self.bug() == Some(Bug::FolderBelieved)
    }

    /// Whether a start that is slow never comes to anything.
    pub(crate) fn plant_hangs(&self) -> bool {
        self.bug() == Some(Bug::DeadlineIgnored)
    }
}

/// An answer to a renewal on its way into a node: what one owner grants counts for all slots.
pub(crate) fn grant_for_all(bug: Option<Bug>, m: u32, mut renewed: Renewed) -> Renewed {
    if let (Some(Bug::GrantForAll), Renewed::Heard { grants, .. }) = (bug, &mut renewed) {
        for grant in grants {
            let (first, last) = (SlotId(0), SlotId(m - 1));
            (grant.range, grant.pe) = (SlotRange { first, last }, Epoch(u64::MAX));
        }
    }
    renewed
}

/// What a manager is shown of boots that are shut out: nothing of them runs any more. A new owner is who has taken
/// a partition over by the newest View.
pub(crate) fn believe_verdicts(bug: Bug, number: ManagerNumber, state: &mut ConfigState) {
    let is_new = state.view.as_ref().is_some_and(|view| {
        view.parts.values().any(|it| it.owner == number && it.pe == view.epoch)
    });
    for reg in state.nodes.values_mut() {
        if bug == Bug::GrantUnwaited || (bug == Bug::NewOwnerUnwaited && is_new) {
            if reg.state == NodeState::Lost {
                reg.state = NodeState::Removed;
            }
            reg.unproven = None;
        }
    }
}

/// A call on its way into a node. One to destroy what it does not run is about another token, so that the
/// one that was meant is not dead afterwards; one to start something has no deadline.
pub(crate) fn alter_call(bug: Bug, agent: &Node, message: &mut ToNode) {
    match (bug, message) {
        (Bug::DestroyedForgotten, ToNode::Destroy { key, token, .. }) => {
            let runs = agent.live_of(std::slice::from_ref(key)).iter().any(|it| it.token == *token);
            if !runs {
                *token = Token(LogPos::ZERO);
            }
        }
        (Bug::DeadlineIgnored, ToNode::Create { deadline_ms, .. }) => *deadline_ms = u64::MAX,
        (_, _) => {}
    }
}

pub(crate) fn head_mut(message: &mut ToNode) -> &mut rota_model::node_msg::NodeCall {
    match message {
        ToNode::Create { head, .. }
        | ToNode::Destroy { head, .. }
        | ToNode::Act { head, .. }
        | ToNode::Scan { head, .. }
        | ToNode::Meet { head, .. } => head,
    }
}

pub(crate) fn raise_epoch(message: &mut ToNode, fence: Epoch) {
    let head = head_mut(message);
    head.pe = head.pe.max(fence);
}

/// Whether a call is about a token that an earlier epoch's owner wrote.
pub(crate) fn is_redrive(message: &ToNode) -> bool {
    match message {
        ToNode::Create { head, token, .. } | ToNode::Destroy { head, token, .. } => {
            token.0.pe < head.pe
        }
        ToNode::Act { .. } | ToNode::Scan { .. } | ToNode::Meet { .. } => false,
    }
}
