//! Tasks as documents: registering them, what their runs commit, and what administrators order.

mod about;
pub(crate) mod form;
pub(crate) mod keeper;
pub(crate) mod manage;
pub(crate) mod runs;
pub(crate) mod suspend;
