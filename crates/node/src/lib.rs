//! What a node decides, and nothing else: no clock, no process, no file, no socket.
//!
//! ```text
//!                Input                                Effect
//!  managers ── Call ─────────▶ ┌──────────────┐ ── Answer ───────▶ managers
//!           ── Registered ───▶ │              │ ── Renew ────────▶ (all of them)
//!           ── Renewed ──────▶ │  Node        │ ── Report ───────▶ (any of them)
//!           ── ReportsAcked ─▶ │   handle,    │
//!           ── Reached ──────▶ │   then flush │
//!   runtime ── Started ──────▶ │              │ ── Start ────────▶ runtime: keepers with
//!           ── Ready ────────▶ │              │ ── Stop ─────────▶ programs, and machines
//!           ── MachineState ─▶ │              │ ── Lease ────────▶ (keepers' deadlines)
//!           ── Ended ────────▶ │              │ ── Adopt ────────▶ runtime, after a restart
//!           ── Stopped ──────▶ │              │ ── BootAnew ─────▶ driver: a new Node with
//!     clock ── Tick ─────────▶ │              │ ── Left             a new boot id; or exit
//!                              └──────────────┘ ── Journal ──────▶ written down before all others
//! ```
//!
//! The driver gives inputs to [`Node::handle`] and then carries out, in order, what
//! [`Node::flush`] returns. It gives a [`NodeInput::Tick`] no later than [`Node::wake_at`]. While the disk is
//! nearly full it says [`Node::take_no_session`].
//!
//! What a node promises its managers:
//!
//! * it never runs a token twice, and never runs a dead one;
//! * it never runs two tokens of one session id at a time;
//! * it never obeys a partition epoch below the highest that it has seen for those slots;
//! * a definite answer stays: "full" and "destroyed" are remembered, whatever arrives later;
//! * "ended" and "destroyed" are said only when nothing of the session runs any more;
//! * what no owner renewed the lease of, it ends, before that owner may believe it lost.
//!
//! These promises are of a boot, and a boot may have several agents, one after the other: each goes on from what the
//! earlier one wrote down ([`Entry`], [`Node::resumed`]).
//!
//! Beside the decisions stand two values that a node's runtime uses: [`class`] (what a session
//! runs, read from TOML text) and [`machine`] (a running state machine); [`registration`], what a
//! refused registration means; and [`folder_name`], how the folders of sessions are called.

pub mod class;
pub mod config;
mod dead;
mod fences;
mod folder_name;
pub mod io;
mod journal;
mod known_managers;
mod lease;
mod live;
pub mod machine;
mod node;
mod outbox;
pub mod registration;
mod slot_runs;

pub use config::{NodeBounds, NodeConfig, NodeTiming};
pub use folder_name::{NAME_BYTES_MAX, folder_name};
pub use io::{Adopted, NodeEffect, NodeInput, ReportId, StopHow};
pub use journal::{Entry, EntryKind, NotResumed};
pub use lease::{LeaseState, SlotLease};
pub use node::{ACTIONS_WAITING_MAX, LiveSession, Node, Phase, SCAN_PAGE_MAX};
pub use registration::{AfterRefusal, after_refusal};
