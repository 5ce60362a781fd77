//! Orders of new nodes and the end of those that nobody needs, at the owner of the pool; and which texts of classes count, at the owner of all
//! descriptions.

pub(crate) mod clearing;
pub(crate) mod ending;
pub(crate) mod late;
pub(crate) mod order;
pub(crate) mod short_lived;
pub(crate) mod state;
pub(crate) mod texts;
