//! One look through a partition for the sessions that run on some nodes.

use crate::log::replica::Replica;
use rota_messages::{Doc, DocKey};
use rota_model::items::SESSION_NUMBERS_CLASS;
use rota_model::{NodeId, SessionKey, SessionState};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Most documents that one step looks at: about a millisecond.
const LOOKED_AT_MAX: usize = 10_000;

/// How far a look has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Look {
    /// What runs on each of the nodes, as far as it was found.
    found: BTreeMap<NodeId, Vec<SessionKey>>,
    /// The document after which it goes on.
    after: Option<DocKey>,
    is_over: bool,
}

impl Look {
    /// A look for what runs on these nodes.
    pub fn at(nodes: Vec<NodeId>) -> Self {
        let found = nodes.into_iter().map(|it| (it, Vec::new())).collect();
        Self { found, after: None, is_over: false }
    }

    /// Goes on. Gives the documents of numbers that it came by.
    pub fn step(&mut self, replica: &Replica) -> Vec<DocKey> {
        let mut numbers = Vec::new();
        let from = self.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let docs = replica.docs.range::<DocKey, _>((from, Bound::Unbounded));
        for (at, (key, doc)) in docs.enumerate() {
            if let Some(node) = runs_on(doc)
                && let Some(there) = self.found.get_mut(node)
                && let Some(record) = doc.session()
            {
                there.push(record.key.clone());
            } else if key.name.class() == SESSION_NUMBERS_CLASS {
                numbers.push(key.clone());
            }
            if at + 1 >= LOOKED_AT_MAX {
                self.after = Some(key.clone());
                return numbers;
            }
        }
        self.is_over = true;
        numbers
    }

    /// What was found, once the partition was looked through.
    pub fn ended(self) -> Result<BTreeMap<NodeId, Vec<SessionKey>>, Self> {
        if self.is_over { Ok(self.found) } else { Err(self) }
    }
}

/// Where a session runs whose start was reported.
fn runs_on(doc: &Doc) -> Option<&NodeId> {
    use SessionState::{Closing, Ready};
    let brief = doc.brief().filter(|it| matches!(it.state, Ready | Closing))?;
    brief.runs_at().map(|(node, _)| node)
}
