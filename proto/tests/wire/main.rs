//! Everything that crosses the wire or the disk comes back as it was, and nothing that arrives can
//! make a decoder panic.

mod disk;
mod garbage;
mod requests;
mod round_trip;
mod statuses;
mod strategies;
