//! What a manager is told at its start: times, sizes, what an administrator decides about documents.

pub mod config;
pub mod documents;
pub mod numbers;
pub mod sizes;
pub mod tasks;
pub mod timing;
