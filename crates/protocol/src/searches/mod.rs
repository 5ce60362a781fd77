//! Searches of a partition's committed documents, at its owner.
//!
//! ```text
//!  a search ─▶ the index of its class ── whole, and committed up to what was there when it came ──▶ a page
//!                   ▲          ▲
//!     a look through all       every commit
//!     documents, in steps
//! ```
//! An index is no part of a copy: whoever becomes the owner looks through the documents, and searches wait for that.

pub(crate) mod built;
pub(crate) mod page;
pub(crate) mod state;
