//! Tasks whose work goes around the ring: copying what changed in a document, closing many sessions, and running an
//! action of a session again.
//!
//! ```text
//!  a task runs ─▶ RingTask ── Op::Search, every partition ──▶ a page ── Op::Copy, Op::Close, so many at a time ──▶ done
//!                   ▲                                                                  │
//!                   └── a refusal: asked again ────────────────────────────────────────┘
//! ```
//! A ring task is a value at the owner of its task, and remembers nothing: who takes over begins it anew. What was
//! done is found to be done.

mod acting;
pub(crate) mod closing;
pub(crate) mod copying;
pub(crate) mod look;
pub(crate) mod state;
