//! Nodes as a manager knows them: the registry, loads, the choice of a node, and calls that are under way.

pub(crate) mod calls;
pub(crate) mod choice;
pub(crate) mod registry;
