//! The ring as its first text describes it, refuted.
//!
//! [`ring`] is that ring, [`search`] looks at every order of its events, and [`counterexample`] has the shortest
//! ways in which it breaks what is promised.

pub mod counterexample;
pub mod ring;
pub mod search;
