//! What the processes of a model are called, and when they begin.

use rota_model::{ManagerId, ManagerNumber, NodeId};

/// Clocks of all processes show this at the start.
pub const START_MS: u64 = 1_000_000;

/// Name of the class that nodes know.
pub const CLASS: &str = "builtin";

/// A manager's own name.
pub fn manager_id(number: ManagerNumber) -> ManagerId {
    ManagerId::parse(&format!("manager-{number}")).expect("a short name")
}

/// A node's name.
pub fn node_id(index: usize) -> NodeId {
    NodeId::parse(&format!("node-{index}")).expect("a short name")
}

/// The place of the node of that name.
pub fn node_index(node: &NodeId) -> usize {
    node.as_str().trim_start_matches("node-").parse().expect("the model named it")
}
