//! A node's rules, one test each, and properties of random histories.

mod actions;
mod calls;
mod journal;
mod lease;
mod outbox;
mod properties;
mod room;
mod world;
