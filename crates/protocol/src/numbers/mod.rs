//! Stable numbers of managers, pools, nodes and sessions ([`sessions`]). Of the first three, the owner of all descriptions assigns them, as documents: one for
//! each entry. Every manager follows these, so all show the same.
//!
//! ```text
//!   View, descriptions of pools, registry ──▶ keys ──▶ Numbers::settle ──▶ documents ──▶ every manager (Told)
//! ```
//!
//! A step looks at all that there is, and runs only when something of that changed. So nothing waits for a
//! number, and a new owner goes on from the documents: a take-over makes no entry invalid. What a start would
//! do to numbers of resources that went while nobody served is done by the first step of the next owner.

pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod step;
