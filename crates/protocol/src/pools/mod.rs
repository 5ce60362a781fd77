//! Orders of new nodes, at the owner of the pool.

pub(crate) mod order;
pub(crate) mod state;
