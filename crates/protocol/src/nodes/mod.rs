//! Nodes as a manager knows them: the registry, loads, the choice of a node, calls that are under way, and what it
//! granted.

pub(crate) mod calls;
pub(crate) mod choice;
pub(crate) mod granted;
pub(crate) mod registry;
pub(crate) mod renewals;
