//! Nodes as a manager knows them: the registry, loads, the choice of a node, calls that are under way, and what it
//! granted.

pub(crate) mod calls;
pub(crate) mod choice;
pub(crate) mod granted;
pub(crate) mod registry;
pub(crate) mod renewals;

/// Leases of nodes at this manager.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Leases {
    /// What was granted to nodes.
    pub granted: granted::Granted,
    /// Renewals that wait.
    pub renewals: renewals::Renewals,
}
