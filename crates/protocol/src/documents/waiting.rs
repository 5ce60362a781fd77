//! Operations that wait at their owner.

use crate::log::origin::Origin;
use rota_docstore::{DocName, Progress};
use std::collections::{BTreeMap, BTreeSet};

/// Operations that wait, each until its request is answered or given up.
pub(crate) type Runs = BTreeMap<Origin, Waiting>;

/// An operation that waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) progress: Progress,
    /// When it goes on; `None`: when nothing is missing any more.
    pub(crate) resume_ms: Option<u64>,
    /// Documents that were asked for and have not come.
    pub(crate) missing: Vec<DocName>,
    /// While it works beside the decisions, or waits for a worker.
    pub(crate) outside: Option<Outside>,
    /// What it asked for and had not in a snapshot.
    pub(crate) wanted: BTreeSet<DocName>,
}

impl Waiting {
    /// When its caller is told that it takes too long.
    pub(crate) fn until_ms(&self) -> Option<u64> {
        self.outside.as_ref().map(|it| it.until_ms)
    }
}

/// An operation's time beside the decisions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Outside {
    /// The name of its work; `None` while it waits for a worker.
    pub(crate) work: Option<u64>,
    /// Its caller is told then that it takes too long.
    pub until_ms: u64,
}
