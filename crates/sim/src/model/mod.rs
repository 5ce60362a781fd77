//! Model checks: every order of events within bounds, instead of the drawn orders of a seed.
//!
//! [`shipped`] is the protocol as it ships, the very code. [`literal`] is the ring as its first text
//! describes it, [`search`] the checker for that, and [`counterexample`] the shortest ways in which it
//! breaks what is promised.

pub mod counterexample;
pub mod literal;
pub mod search;
pub mod shipped;
