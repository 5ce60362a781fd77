//! What an owner has about sessions beside its log: ids in progress, opens that wait for room, a drain, long polls.

use crate::sessions::capacity::AwaitingCapacity;
use crate::sessions::drain::Draining;
use crate::sessions::expiry::Expiry;
use crate::sessions::in_progress::InProgress;
use crate::sessions::mend::Looks;
use crate::sessions::reopen::Reopening;
use crate::sessions::scan::Scanning;
use crate::sessions::uses::Uses;
use crate::sessions::watch::Watches;

/// What an owner has about sessions beside its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Sessions {
    /// Ids in progress.
    pub work: InProgress,
    pub capacity: AwaitingCapacity,
    pub drain: Draining,
    /// When clients said that they use them.
    pub uses: Uses,
    /// Those that end by themselves.
    pub expiry: Expiry,
    pub watches: Watches,
    /// Looks at what nodes have, by order of operators.
    pub looks: Looks,
    pub scanning: Scanning,
    /// Lost sessions that are opened again.
    pub reopening: Reopening,
    /// When something that this owner granted to a boot that was shut out is over.
    pub sweep_ms: Option<u64>,
}

impl Sessions {
    pub fn new(now_ms: u64) -> Self {
        let capacity = AwaitingCapacity { next_ms: now_ms, ..AwaitingCapacity::default() };
        Self { capacity, ..Self::default() }
    }
}
