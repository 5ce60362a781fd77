//! What nodes said that they run, after a take-over from a lone disk or while a partition is found again.

use crate::log::desire::Desire;
use rota_messages::Write;
use rota_model::node_msg::ScanFate;
use rota_model::{BootId, LogPos, MemberId, NodeId, SessionKey, Token};
use rota_ring::{FoundAgain, NodeReg};
use std::collections::{BTreeMap, VecDeque};

/// How a partition is found again, at its owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Recovery {
    /// What is known to be lost, for people.
    pub(crate) why: String,
    pub(crate) step: Step,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// The View does not say so yet.
    GivingUp,
    /// Nodes are asked what they run, and managers whether they hold more.
    Looking(Looking),
    /// What was found is being written.
    Writing(Writing),
}

/// How much a manager holds of a partition: a whole copy through there (zero when it is none), and its
/// last entry. Of what is no whole copy, as when one was being made, some documents are as old as what
/// was here before.
pub(crate) type Holding = (LogPos, LogPos);

/// What is heard of nodes and managers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Looking {
    pub(crate) scan: Scan,
    /// Until then, at least, somebody with more than this manager has may say so.
    pub(crate) until_ms: u64,
    /// When the managers were asked last.
    pub(crate) asked_ms: Option<u64>,
    /// Who holds the most, and how much.
    pub(crate) better: Option<(Holding, MemberId)>,
    /// The time is over.
    pub(crate) has_waited: bool,
}

/// What was found, and how much of it is written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Writing {
    /// The entries that are not written yet.
    pub(crate) rest: VecDeque<Vec<Write>>,
    /// Where the last one stands that is.
    pub(crate) at: LogPos,
    pub(crate) found: FoundAgain,
}

impl Recovery {
    /// The scan that is under way.
    pub fn scan(&mut self) -> Option<&mut Scan> {
        match &mut self.step {
            Step::Looking(it) => Some(&mut it.scan),
            Step::GivingUp | Step::Writing(_) => None,
        }
    }

    /// What is wanted of the View.
    pub fn desire(&self, me: MemberId, committed: LogPos) -> Option<Desire> {
        match &self.step {
            Step::GivingUp => Some(Desire::GiveUp(me)),
            Step::Looking(it) => {
                it.better.filter(|_| it.has_waited).map(|(_, member)| Desire::HandRecovery(member))
            }
            Step::Writing(it) if it.rest.is_empty() && committed >= it.at => {
                Some(Desire::Recovered(me, it.found))
            }
            Step::Writing(_) => None,
        }
    }
}

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
        let node = |it: &NodeReg| {
            let boot = it.boot;
            let (answered, done) = (false, false);
            (it.node.clone(), ScanNode { boot, after: None, answered, done, asked_ms: None })
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

    /// Takes it out of a phase that ends.
    pub fn take(&mut self) -> Scan {
        let empty = Scan { nodes: BTreeMap::new(), found: Found::new(), highest: self.highest };
        std::mem::replace(self, empty)
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
