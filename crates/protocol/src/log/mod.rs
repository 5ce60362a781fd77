//! One partition's log: a copy of it, what its owner knows of the other copies, and how they come to agree.
//!
//! Invariant: what is committed is on the disk of every member of the ISR.

pub(crate) mod answered;
pub(crate) mod at;
pub(crate) mod backlog;
pub(crate) mod bodies;
pub(crate) mod copies;
pub(crate) mod desire;
pub(crate) mod drop_replica;
pub(crate) mod env;
pub(crate) mod flow;
pub(crate) mod inbox;
pub(crate) mod internal;
pub(crate) mod lead;
pub(crate) mod learn;
pub(crate) mod learner;
pub(crate) mod newcomers;
pub(crate) mod origin;
pub(crate) mod pending_replies;
pub(crate) mod polls;
pub(crate) mod progress;
pub(crate) mod read_index;
pub(crate) mod recovery;
pub(crate) mod replica;
pub(crate) mod requests;
pub(crate) mod resident;
pub(crate) mod split;
pub(crate) mod state;
pub(crate) mod sync;
pub(crate) mod wedge;
