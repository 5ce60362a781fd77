//! Planted bugs in a model: what passes between a process and the rest is changed, as in the simulator.

use super::flying::{Flying, Out};
use super::hosts::{ManagerHost, NodeHost};
use super::room::Room;
use super::state::State;
use crate::plant::Bug;
use rota_model::node_msg::{NodeAnswer, ToNode};
use rota_node::Node;
use rota_protocol::Input;
use rota_ring::{Change, ConfigState};

/// A node's agent before a call, if it is to be put back.
pub fn kept_agent(bug: Option<Bug>, agent: &Node) -> Option<Node> {
    (bug == Some(Bug::FullForgotten)).then(|| agent.clone())
}

/// Whether a node answered Full.
pub fn said_full(out: &[Out]) -> bool {
    out.iter().any(|it| match it {
        Out::Fly(Flying::FromNode { answer, .. }) => answer.answer == NodeAnswer::Full,
        _ => false,
    })
}

/// What a careless config store holds after a change that it should have refused.
pub fn forced(_bug: Option<Bug>, _change: &Change, _state: &ConfigState) -> Option<ConfigState> {
    None
}

/// What a manager is shown of the config store.
pub fn shown(_bug: Option<Bug>, _host: &ManagerHost, state: ConfigState) -> ConfigState {
    state
}

/// An input on its way to a manager.
pub fn input(_bug: Option<Bug>, _host: &ManagerHost, input: Input) -> Input {
    input
}

/// A call on its way into a node.
pub fn call(_bug: Option<Bug>, _host: &NodeHost, message: ToNode) -> ToNode {
    message
}

/// What a manager sends, on its way.
pub fn alter(_room: &Room, _state: &State, _host: &ManagerHost, _out: &mut Vec<Out>) {}
