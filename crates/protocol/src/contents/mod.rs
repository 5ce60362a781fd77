//! What the documents of one copy come to, by kind: counts of sessions, memories, how much they fill.

pub(crate) mod counts;
pub(crate) mod events;
pub(crate) mod fills;
pub(crate) mod lives;
pub(crate) mod memories;
pub(crate) mod searchable;
pub(crate) mod session_counts;
pub(crate) mod tasks;
