//! What operators see of the programs on this node.
//!
//! ```text
//!  runtime ── begins, has a keeper, ends ──▶ Listing ──▶ usage ──▶ Programs.Usage, /metrics
//!  files of outputs ──────────────────────────┼───────▶ logs ───▶ Programs.Logs, until the Listing has it no more
//! ```
//! Nothing here decides anything, and no session waits for it.

mod listing;
mod logs;
mod pages;
mod service;
mod usage;

pub use listing::{Entry, Listed, Listing, Rooted};
pub use pages::serve as serve_pages;
pub use service::{Observer, READERS_MAX};
