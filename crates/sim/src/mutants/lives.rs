//! Planted bugs of life cycles: which actions owners ask for, and what nodes say of them.

use crate::ledger::Ran;
use crate::mutants::bug::Bug;
use crate::mutants::nodes::{head_mut, is_redrive};
use crate::mutants::plant::Plant;
use crate::site::AtNode;
use rota_model::node_msg::ToNode;

/// A call of a manager with a bug of life cycles: perhaps another one, or none.
pub(crate) fn act_instead(plant: &mut Plant, message: ToNode) -> Option<ToNode> {
    match (plant.bug, &message) {
        // The owner of an epoch that began later than the attempt was placed took it over.
        (Bug::TimerLost, ToNode::Act { head, token, .. }) if token.0.pe < head.pe => None,
        (Bug::GoneActed, ToNode::Act { key, action, .. }) => {
            let before = plant.acts.insert(key.clone(), message.clone());
            let is_other = |earlier: &ToNode| match earlier {
                ToNode::Act { action: other, .. } => other.word != action.word,
                ToNode::Create { .. }
                | ToNode::Destroy { .. }
                | ToNode::Scan { .. }
                | ToNode::Meet { .. } => false,
            };
            Some(before.filter(is_other).map_or(message.clone(), |it| in_place_of(it, message)))
        }
        (Bug::EndedActed, ToNode::Act { key, .. }) => {
            plant.acts.insert(key.clone(), message.clone());
            Some(message)
        }
        (Bug::EndedActed, ToNode::Destroy { key, .. }) if !is_redrive(&message) => {
            let acted = plant.acts.remove(key);
            Some(acted.map_or(message.clone(), |it| in_place_of(it, message)))
        }
        (_, _) => Some(message),
    }
}

/// A call that goes out under the head of another one.
fn in_place_of(mut call: ToNode, mut other: ToNode) -> ToNode {
    *head_mut(&mut call) = head_mut(&mut other).clone();
    call
}

/// A node with a planted bug runs an action that it should not run.
pub(crate) fn act_wrongly(at: &mut AtNode<'_>, message: &ToNode) {
    let ToNode::Act { key, token, action, .. } = message else { return };
    let ledger = &at.ground.checker.ledger;
    let of = |it: &&Ran| it.index == at.index && it.token == *token && it.word == action.word;
    let runs = ledger.actions.ran.iter().filter(of).any(|it| it.to_us.is_none());
    let is_live = ledger.instances.iter().any(|it| it.token == *token && it.to.is_none());
    let is_wrong = match at.bug() {
        Some(Bug::ActionTwice) => runs,
        Some(Bug::ActionUnguarded) => !is_live,
        Some(_) | None => false,
    };
    if is_wrong {
        at.start_action(key.clone(), *token, (**action).clone());
    }
}
