//! The owner of a node's slot judges that node: it grants renewals, and says when the node is lost.

pub(crate) mod judge;
pub(crate) mod reply;
pub(crate) mod state;
