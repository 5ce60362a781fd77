//! Life cycles of sessions, at the owner of their slot: when events fire, and what their actions come to.
//!
//! ```text
//!   document of life cycles ── committed ──▶ armed, by time ── due ──▶ a mark: fired, in one commit with what waits
//!                                                               │
//!                                                               └───▶ an action: the node runs it ──▶ an update
//!                                                                       └─ fails ──▶ a task tries it again
//! ```
//!
//! Invariant: one action of a session is under way at a time, and it is asked for only while the session is READY and
//! its event stands in what is committed.

mod acting;
mod crowd;
pub(crate) mod look;
pub(crate) mod state;
