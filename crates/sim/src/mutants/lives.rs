//! Planted bugs of life cycles: which actions owners ask for, and what nodes say of them.

use crate::mutants::{Bug, head_mut, is_redrive};
use crate::world::World;
use rota_model::node_msg::ToNode;

impl World {
    /// A call of a manager with a bug of life cycles: perhaps another one, or none.
    pub(crate) fn plant_on_act(&mut self, message: ToNode) -> Option<ToNode> {
        let plant = self.plant.as_mut()?;
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

    /// Whether nodes run no actions, and say that they did.
    pub(crate) fn plant_leaves_actions(&self) -> bool {
        self.bug() == Some(Bug::ActionUnrun)
    }
}

/// A call that goes out under the head of another one.
fn in_place_of(mut call: ToNode, mut other: ToNode) -> ToNode {
    *head_mut(&mut call) = head_mut(&mut other).clone();
    call
}
