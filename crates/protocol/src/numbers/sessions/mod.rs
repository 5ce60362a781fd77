//! Stable numbers of sessions, each within its node. The numbers of one node are one document, whose owner assigns
//! them; documents of different nodes lie in different slots, so all managers share the work.
//!
//! ```text
//!   owner of sessions: a session of the node changed ──▶ look through the partition ──▶ what runs there (report)
//!   owner of the document: report ──▶ Numbers::settle for the slots of the report ──▶ the document ──▶ Told
//! ```
//!
//! A report says all that runs on a node in some slots, so one that is lost or late does no harm: the next one puts
//! it right, and each node is reported anew from time to time. No open waits for a number.

mod assign;
mod look;
pub(crate) mod state;
