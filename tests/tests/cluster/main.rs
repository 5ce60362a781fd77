//! Whole clusters of real processes, from the outside.

#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod bad_requests;
mod bad_starts;
mod dev;
mod foreign;
mod inspection;
mod lists;
mod lost_managers;
mod lost_nodes;
mod machines;
mod opens;
mod pages;
mod pools;
mod programs;
mod restarts;
mod watches;
