//! Every owner grants nodes the lease of its slots. The owner of a node's slot says when that node is lost.

pub(crate) mod renewals;
pub(crate) mod reply;
pub(crate) mod state;
