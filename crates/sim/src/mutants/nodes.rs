//! Planted bugs of nodes: how long a lease counts, how long a start may take, what is dead.

use crate::event::Phase;
use crate::mutants::bug::Bug;
use crate::mutants::plant::Plant;
use crate::site::AtNode;
use rota_model::node_msg::{FromNode, NodeAnswer, Renewed, SlotRange, ToNode};
use rota_model::{Epoch, LogPos, ManagerNumber, NodeState, SlotId, Token};
use rota_node::{Node, NodeEffect};
use rota_ring::ConfigState;

/// How late the answer to a renewal is, if a node counts from it: seven of ten come when what they grant is over.
pub(crate) fn renewed_late(at: &mut AtNode<'_>) -> Option<u64> {
    at.bug().filter(|it| *it == Bug::LeaseFromAnswer)?;
    let is_late = at.ground.phase == Phase::Chaos && at.ground.rng.permille(700);
    let timing = &at.ground.setup.timing;
    let spare_ms = timing.node_lost_ms - timing.lease_kill_ms;
    Some(if is_late { spare_ms * 3_000 } else { 0 })
}

/// A node's agent has decided: after a Full it is put back to what it was before.
pub(crate) fn after_decision(at: &mut AtNode<'_>, effects: &[NodeEffect]) {
    let Some(before) = at.plant.as_mut().and_then(|it| it.before.take()) else { return };
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
    if full {
        at.host.agent = Some(before);
    }
}

/// An answer on its way out of a node.
pub(crate) fn answer_as_meant(plant: Option<&Plant>, mut answer: FromNode) -> FromNode {
    if let Some(meant) = plant.and_then(|it| it.boots.get(&answer.call)) {
        answer.boot = *meant;
    }
    answer
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
