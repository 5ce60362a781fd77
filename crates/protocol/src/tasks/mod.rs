//! Tasks at the owner of their slot: which is started when, and what becomes of each run.
//!
//! ```text
//!   due ─▶ task.start ─▶ the operation itself ──────────────────┬─▶ gone, in the commit of the operation
//!             │             ▲      │ a checkpoint               │
//!             │             └──────┘                            └─▶ task.fail
//!             └────────▶ Effect::RunTask ─▶ Input::TaskRan ─▶ task.end, or task.fail
//! ```
//!
//! Every arrow to the right is an operation on documents that this manager asks of itself ([`crate::log::internal`]).
//! So a record changes by validated commits alone, and this room only counts workers. What a former owner began cannot
//! be committed any more: the records say that it runs, no worker here has it, and so it is lost.

mod look;
pub(crate) mod state;
pub(crate) mod step;
