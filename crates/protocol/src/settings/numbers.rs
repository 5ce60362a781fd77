//! What an administrator decides about stable numbers.

use rota_docstore::rules::WEEK_MS;

/// What an administrator decides about stable numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumbersConfig {
    /// How long a resource that is gone keeps its number, in milliseconds; 0: not at all. Default 7 days. The
    /// owner of all descriptions goes by its own, so it should be the same at all managers. Too low: a resource
    /// that is away for a while comes back with another number. Too high: numbers of old resources fill memory
    /// and disk.
    pub retention_ms: u64,
    /// Sessions have numbers, too. Default true. Without it a manager tells of no sessions, and assigns none;
    /// it should be the same at all managers.
    pub sessions: bool,
}

impl Default for NumbersConfig {
    fn default() -> Self {
        Self { retention_ms: WEEK_MS, sessions: true }
    }
}
