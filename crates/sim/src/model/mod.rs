//! Model checks: every order of events within bounds, instead of the drawn orders of a seed.
//!
//! [`search`] is the checker. [`literal`] is the ring as its first text describes it, and
//! [`counterexample`] the shortest ways in which that breaks what is promised.

pub mod counterexample;
pub mod literal;
pub mod search;
pub mod shipped;
