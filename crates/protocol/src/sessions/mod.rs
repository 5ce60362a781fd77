//! Sessions, at the owner of their slot: opens, closes, what nodes say, reads and watches.
//!
//! Invariant: a node is asked only for what the log has committed.

pub(crate) mod capacity;
pub(crate) mod close;
pub(crate) mod drain;
pub(crate) mod ends;
pub(crate) mod expiry;
pub(crate) mod follows;
pub(crate) mod in_progress;
mod keep_alive;
pub(crate) mod mend;
pub(crate) mod open;
pub(crate) mod placements;
pub(crate) mod read;
pub(crate) mod reconcile;
pub(crate) mod recover;
pub(crate) mod refusals;
pub(crate) mod remembered;
pub(crate) mod reopen;
pub(crate) mod report;
pub(crate) mod request_ids;
pub(crate) mod resident;
pub(crate) mod retry_placement;
pub(crate) mod scan;
pub(crate) mod scan_state;
pub(crate) mod state;
pub(crate) mod update;
pub(crate) mod uses;
pub(crate) mod version;
pub(crate) mod watch;
pub(crate) mod withdraw;
