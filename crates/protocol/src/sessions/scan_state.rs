//! What nodes said that they run, after a take-over from a lone disk or while a partition is found again.

use rota_model::node_msg::ScanFate;
use rota_model::{BootId, LogPos, NodeId, SessionKey, Token};
use rota_ring::NodeReg;
use std::collections::BTreeMap;

/// What became of a session of which its node knows nothing any more.
pub(crate) const UNKNOWN_THERE: &str =
    "its node knows nothing of it any more: how it ended is not known";

/// Progress of a scan.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Scan {
    pub(crate) nodes: BTreeMap<NodeId, ScanNode>,
    pub(crate) found: Found,
    /// The highest token that any node has seen here.
    pub(crate) highest: Token,
}

/// What was found: session and token -> where, and what became of it.
pub(crate) type Found = BTreeMap<(SessionKey, Token), (NodeId, BootId, ScanFate)>;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ScanNode {
    pub(crate) boot: BootId,
    pub(crate) after: Option<SessionKey>,
    /// It said everything, so what it did not name it does not know.
    pub(crate) answered: bool,
    /// Nothing more is to be heard of it: it answered, or that boot is over.
    pub(crate) done: bool,
    pub(crate) asked_ms: Option<u64>,
}

impl Scan {
    /// All nodes that may run something.
    pub fn new(reg: &BTreeMap<NodeId, NodeReg>) -> Self {
        let there = reg.values().filter(|it| !it.state.is_gone());
        let node = |reg: &NodeReg| {
            let boot = reg.boot;
            let (answered, done) = (false, false);
            (reg.node.clone(), ScanNode { boot, after: None, answered, done, asked_ms: None })
        };
        let highest = Token(LogPos::ZERO);
        Self { nodes: there.map(node).collect(), found: BTreeMap::new(), highest }
    }

    /// Everybody has said all, or is gone.
    pub fn is_done(&self) -> bool {
        self.nodes.values().all(|node| node.done)
    }

    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Something that a node knows, and that came after everything on a disk that ends there.
    pub(crate) fn newer_than(&self, last: LogPos) -> Option<String> {
        if let Some((key, token)) = self.found.keys().find(|(_, token)| token.0 > last) {
            return Some(format!("attempt {token} of session {key}"));
        }
        let forgotten = self.highest;
        (forgotten.0 > last).then(|| format!("an attempt {forgotten} that has long ended"))
    }

    /// Whether that boot said all that it knows.
    pub(crate) fn has_answered(&self, node: &NodeId, boot: BootId) -> bool {
        self.nodes.get(node).is_some_and(|it| it.boot == boot && it.answered)
    }
}
