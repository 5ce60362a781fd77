//! What an owner has about sessions beside its log: ids in progress, opens that wait for room, a drain, long polls.

use crate::log::origin::Origin;
use crate::sessions::capacity::AwaitingCapacity;
use crate::sessions::drain::Draining;
use crate::sessions::expiry::Expiry;
use crate::sessions::mend::Looks;
use crate::sessions::reopen::Reopening;
use crate::sessions::scan::Scanning;
use crate::sessions::uses::Uses;
use crate::sessions::watch::Watches;
use rota_model::{NodeId, SessionKey, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Most calls that are remembered of one attempt. One that is repeated so often, and neither answered nor thrown
/// away, counts as sent.
const CALLS_MAX: usize = 64;

/// An id in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Work {
    /// Opens, closes and reads that wait for it.
    pub waiters: Vec<Origin>,
    /// When the node is asked (again).
    pub ask_ms: u64,
    /// How often it was asked.
    pub asked: u32,
    /// Nodes that refused this life.
    pub refused: Vec<NodeId>,
    /// At how many of them it was to blame itself.
    pub failures: u32,
    /// A new owner drives it again: reads wait until that ends.
    pub redriven: bool,
    /// The attempt that this owner began, as long as it may be withdrawn.
    pub kept: Option<Kept>,
}

/// An attempt whose every call is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Kept {
    pub(crate) token: Token,
    /// Calls that were given to the link, and of which it has not said that they were thrown away.
    pub(crate) given: BTreeSet<u64>,
}

impl Work {
    /// An attempt begins under this token.
    pub fn begin(&mut self, token: Token) {
        self.kept = Some(Kept { token, given: BTreeSet::new() });
    }

    /// The link is given a call about that token.
    pub fn on_given(&mut self, token: Token, call: u64) {
        let Some(kept) = self.kept.as_mut().filter(|it| it.token == token) else {
            self.kept = None;
            return;
        };
        kept.given.insert(call);
        if kept.given.len() > CALLS_MAX {
            self.kept = None;
        }
    }

    /// The node answered about that token: it saw it.
    pub fn on_seen(&mut self, token: Token) {
        self.kept.take_if(|it| it.token == token);
    }

    /// The link threw a call away of which nothing was sent.
    pub(crate) fn on_unsent(&mut self, token: Token, call: u64) {
        if let Some(kept) = self.kept.as_mut().filter(|it| it.token == token) {
            kept.given.remove(&call);
        }
    }

    /// Whether nothing of that attempt was ever sent, and nothing of it waits to be.
    pub(crate) fn is_unsent(&self, token: Token) -> bool {
        self.kept.as_ref().is_some_and(|it| it.token == token && it.given.is_empty())
    }
}

/// What an owner has about sessions beside its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Sessions {
    /// Ids in progress.
    pub work: BTreeMap<SessionKey, Work>,
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
