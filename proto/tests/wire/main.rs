//! Everything that crosses the wire or the disk comes back as it was, and nothing that arrives can
//! make a decoder panic.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod content;
mod disk;
mod documents;
mod garbage;
mod requests;
mod round_trip;
mod statuses;
mod strategies;
