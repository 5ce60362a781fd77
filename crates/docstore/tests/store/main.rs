//! The store through its public face: operations, exceptions, synchronisation, caches, namespaces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ahead;
mod attempts;
mod bank;
mod caches;
mod crowded;
mod exceptions;
mod histories;
mod limits;
mod lives;
mod readme;
mod runs;
mod spaces;
mod syncs;
