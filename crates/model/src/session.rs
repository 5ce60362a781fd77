//! A session as managers decide about it. They keep it as a document, whose items are in
//! [`crate::items`].

use crate::digest::AttributesDigest;
use crate::epoch::{BootId, Token};
use crate::ids::{ClassName, NodeId, PoolName, RequestId, SessionKey};
use crate::life::{LifeOptions, Lifetime};
use crate::stamp::Stamp;
use crate::state::{Exit, Reason, SessionState};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Attributes of a session: given at open, handed to its class, never interpreted by managers.
pub type Attributes = BTreeMap<String, String>;

/// Most bytes of all attribute names and values together.
pub const ATTRIBUTES_BYTES_MAX: usize = 64 * 1024;

/// How long a request id is remembered in the session's record and tombstone.
pub const REQUEST_MEMORY_MS: u64 = 10 * 60 * 1000;

/// How long at least the record is kept of a life that no node took, if it remembers no request. A full pool
/// would leave very many of them.
pub const UNPLACED_MEMORY_MS: u64 = 10 * 1000;

/// Most requests that the owner of a partition remembers beside its sessions, those aside that only found
/// their session: of these a quarter as many, and the oldest goes for a new one, since it changed nothing.
/// When there are as many others, opens and closes of sessions that remember several are told to come
/// back later.
pub const REQUESTS_REMEMBERED_MAX: usize = 1 << 20;

/// What to run. Also the content of an item: see [`crate::items`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// The class.
    pub class: ClassName,
    /// The pool whose nodes may run it.
    pub pool: PoolName,
    /// Attributes.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub attributes: Arc<Attributes>,
    /// What its open asked for instead of what the class says of its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Arc<LifeOptions>>,
}

fn is_empty(attributes: &Arc<Attributes>) -> bool {
    attributes.is_empty()
}

/// Where a life runs, or was to run. Written before the node is asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// The boot of the node that was chosen; another boot never runs this token.
    pub boot: BootId,
    /// Names this attempt.
    pub token: Token,
    /// Where the session answers, `host:port`; empty until the node said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
}

/// Outcome of an open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Outcome {
    /// A new life was started.
    Created,
    /// The live session was found.
    Existed,
}

impl Outcome {
    /// The printed form.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Created => "CREATED",
            Outcome::Existed => "EXISTED",
        }
    }
}

/// What became of a remembered request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RequestFate {
    /// An open that is still being carried out (it stands in a PENDING or STARTING record), or whose
    /// node was lost meanwhile: then a repetition begins anew.
    Opening,
    /// An open that was answered so.
    Opened {
        /// The outcome.
        outcome: Outcome,
        /// The life that was answered.
        life: Stamp,
        /// The version that was answered.
        version: Stamp,
        /// Where that life ran.
        placement: Placement,
    },
    /// An open whose life ended before it was READY: it did not start, or a close overtook it. Of the second
    /// kind nothing is remembered any more once the close is finished.
    Failed {
        /// The life that did not start.
        life: Stamp,
    },
    /// A close of that life.
    Closed {
        /// The life that was closed.
        life: Stamp,
    },
}

/// A remembered request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RequestEntry {
    /// The caller's name for it.
    pub id: RequestId,
    /// When it was first seen (owner's wall clock).
    pub at: Stamp,
    /// What became of it.
    pub fate: RequestFate,
    /// What the life that it is about ran, if that is an earlier one and the life in the record runs
    /// something else.
    pub ran: Option<Arc<EarlierSpec>>,
}

/// What is kept of the [`SessionSpec`] of an earlier life. Its attributes are not: a session may
/// remember many requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlierSpec {
    /// The class.
    pub class: ClassName,
    /// The pool.
    pub pool: PoolName,
}

impl RequestFate {
    /// The life that it is about; `None` while it is not known.
    pub fn life(&self) -> Option<Stamp> {
        match self {
            RequestFate::Opening => None,
            RequestFate::Opened { life, .. }
            | RequestFate::Failed { life }
            | RequestFate::Closed { life } => Some(*life),
        }
    }
}

impl RequestEntry {
    /// Requests order by when they were first seen, then by id: of some requests there is one order
    /// only.
    pub fn order(&self, other: &Self) -> Ordering {
        (self.at, &self.id).cmp(&(other.at, &other.id))
    }

    /// About how many bytes it takes in a message.
    fn bytes(&self) -> usize {
        let placed = match &self.fate {
            RequestFate::Opening | RequestFate::Failed { .. } | RequestFate::Closed { .. } => 0,
            RequestFate::Opened { placement, .. } => {
                64 + placement.node.as_str().len() + placement.address.len()
            }
        };
        32 + self.id.as_str().len() + placed
    }
}

/// A session's record: one life, the newest, as decisions see its document. Kept as a tombstone for
/// at least [`REQUEST_MEMORY_MS`] after the life ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SessionRecord {
    /// Its full name.
    pub key: SessionKey,
    /// What to run.
    pub spec: SessionSpec,
    /// The life: the stamp at which it was first written. A new life has a higher one.
    pub life: Stamp,
    /// Grows with every change.
    pub version: Stamp,
    /// State.
    pub state: SessionState,
    /// Why, once it is closing or ended.
    pub reason: Option<Reason>,
    /// A sentence about the reason, for people; may be empty.
    pub detail: String,
    /// How its program or machine ended, if that is known.
    pub exit: Option<Exit>,
    /// How long a close gives its program to end, in milliseconds; `None`: as its class says.
    pub grace_ms: Option<u64>,
    /// Where it runs or ran. `None` only for a life that found no node.
    pub placement: Option<Placement>,
    /// What is kept of its attributes once it has ended, if it had any: its spec has none then.
    pub attributes_digest: Option<AttributesDigest>,
    /// The machine's current state, as its node last reported; empty for programs.
    pub machine_state: String,
    /// Number of the change that led to it, by the node's count; late news has a lower one.
    pub machine_change: u64,
    /// What holds for this life, if anything does.
    pub lifetime: Option<Arc<Lifetime>>,
    /// The newest remembered requests, in order of [`RequestEntry::order`]. Older ones lie beside it, in
    /// documents of class [`crate::items::REQUEST_CLASS`].
    pub requests: Vec<RequestEntry>,
}

impl SessionRecord {
    /// True when a client may be told the address.
    pub fn is_live(&self) -> bool {
        self.state == SessionState::Ready
    }

    /// Whether another life follows when a node has room: it was lost, or ended badly.
    pub fn is_reopened(&self) -> bool {
        self.state.is_reopened(self.reason)
    }

    /// The first life of the chain that this one goes on with.
    pub fn origin(&self) -> Stamp {
        self.lifetime.as_ref().and_then(|it| it.origin).unwrap_or(self.life)
    }

    /// The token of the current placement.
    pub fn token(&self) -> Option<Token> {
        self.placement.as_ref().map(|it| it.token)
    }

    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        let attributes = self.spec.attributes.iter();
        let attributes: usize = attributes.map(|(name, value)| name.len() + value.len() + 8).sum();
        let requests = self.requests.iter().map(RequestEntry::bytes);
        let names = self.key.namespace.as_str().len() + self.key.id.as_str().len();
        256 + names
            + attributes
            + self.detail.len()
            + self.machine_state.len()
            + requests.sum::<usize>()
    }

    /// Whether no node took this life, and no request is remembered in its record. Such a record is forgotten
    /// after [`UNPLACED_MEMORY_MS`].
    pub fn is_unplaced(&self) -> bool {
        let (state, reason) = (SessionState::Failed, Some(Reason::NoCapacity));
        self.state == state && self.reason == reason && self.requests.is_empty()
    }

    /// The remembered request of that id, if the record itself has it.
    pub fn request(&self, id: &RequestId) -> Option<&RequestEntry> {
        self.requests.iter().find(|it| it.id == *id)
    }
}
