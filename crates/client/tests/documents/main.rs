//! Clients of documents against a real store behind real connections.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bodies;
mod cached;
mod manager;
mod namespaces;
mod operations;
mod ring;
mod spaces;

use std::time::Duration;

/// Longest wait for anything: far longer than any of it takes.
const WAIT: Duration = Duration::from_secs(10);
