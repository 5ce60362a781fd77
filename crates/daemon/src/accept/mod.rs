//! Lets connections in, so many of each kind, and none that says nothing.
//!
//! ```text
//!  TCP ─▶ Gate ─▶ silent ── first bytes ──▶ stranger ── a call of members ──▶ member
//!                   │ 5 s, or a newcomer needs its place
//!                   ▼
//!                  cut
//! ```
//! Nobody is asked yet who they are, so a connection counts as a member's (a manager's, a node's) from its
//! first call that only members make. Members have places of their own: strangers that hold all of
//! theirs do not shut them out. A newcomer that finds no place of strangers gets one of members *on
//! probation*: it must make such a call within [`FIRST_BYTES`], and another call is refused.
//!
//! What strangers are answered counts until they have read it: see `answers`.

mod answers;
mod connection;
mod gate;
mod grpc;
mod incoming;
mod sending;

pub use answers::{Need, ONE_BYTES};
pub use connection::{Caller, Connection, Standing};
pub use gate::{ANSWERS_BYTES_MAX, Counts, Gate, Places};
pub use grpc::Calls;
pub use incoming::Incoming;
pub use sending::Sending;

use std::time::Duration;

/// How long a connection may be silent at its beginning.
pub const FIRST_BYTES: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
