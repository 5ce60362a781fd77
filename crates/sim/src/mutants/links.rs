//! Planted bugs of links to nodes: what they say of calls, and what owners make of it.

use crate::mutants::bug::Bug;
use crate::mutants::nodes::is_redrive;
use crate::site::AtManager;
use rota_model::NodeId;
use rota_model::node_msg::{FromNode, NodeAnswer, ToNode};
use rota_protocol::Input;

/// What an owner takes for the node's answer to a Create of its predecessor's that its link threw away.
pub(crate) fn taken_back(bug: Option<Bug>, node: &NodeId, message: &ToNode) -> Option<FromNode> {
    let is_create = matches!(message, ToNode::Create { .. });
    if bug != Some(Bug::WithdrawnLater) || !is_create || !is_redrive(message) {
        return None;
    }
    let (call, boot, load) = (message.head().call, message.head().boot, Default::default());
    Some(FromNode { call, node: node.clone(), boot, load, answer: NodeAnswer::Full })
}

/// A call was sent, and its link says that nothing of it was.
pub(crate) fn on_sent(at: &mut AtManager<'_>, index: usize, message: &ToNode) {
    let is_create = matches!(message, ToNode::Create { .. });
    let Some(node) = at.ground.machines.nodes().get(index).filter(|_| is_create) else { return };
    if at.bug() == Some(Bug::UnsentAssumed) {
        let (node, address) = (node.id.clone(), node.address.clone());
        let unsent = vec![message.head().call];
        at.hears(500, Input::NodeUnreached { node, address, unsent });
    }
}

/// What a link threw away. Gives the calls that it says so of.
pub(crate) fn on_refused(
    at: &mut AtManager<'_>,
    node: &NodeId,
    thrown_away: Vec<ToNode>,
) -> Vec<u64> {
    let mut unsent = Vec::new();
    for message in thrown_away {
        match taken_back(at.bug(), node, &message) {
            Some(answer) => at.hears(500, Input::Node(answer)),
            None => unsent.push(message.head().call),
        }
    }
    unsent
}
