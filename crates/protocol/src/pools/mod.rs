//! Orders of new nodes, at the owner of the pool; and which texts of classes count, at the owner of all
//! descriptions.

pub(crate) mod order;
pub(crate) mod state;
pub(crate) mod texts;
