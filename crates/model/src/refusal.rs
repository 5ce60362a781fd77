//! Every way to say no: what is wrong, whether anything changed, and what the caller should do.
//! The table from [`RefusalKind`] to gRPC codes stands in `rota-proto`.

use crate::epoch::Epoch;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One mistake in a request: which field, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{field} {problem}")]
pub struct FieldError {
    /// Name of the field, as in the protobuf message or the command line.
    pub field: String,
    /// What is wrong, with the limit where there is one.
    pub problem: String,
}

impl FieldError {
    /// A mistake in `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// What a refused caller should do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Retry {
    /// The same request will be refused again, whatever happens.
    Never,
    /// The same request will be refused again as things stand. Once something else has changed (the
    /// message says what is in the way) it may be taken; to repeat it on and on is no use.
    WhenChanged,
    /// At once.
    Now,
    /// After this many milliseconds.
    AfterMs(u64),
    /// At the owner, by a View at least this new.
    AtOwner(Epoch),
}

impl Retry {
    /// Whether to send the same request again, by itself, is advised against.
    pub fn is_final(self) -> bool {
        match self {
            Retry::Never | Retry::WhenChanged => true,
            Retry::Now | Retry::AfterMs(_) | Retry::AtOwner(_) => false,
        }
    }
}

/// Whether a refused request may have changed something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Changed {
    /// Nothing is left of it, and a repetition begins anew. An open may have begun a life that was shown to
    /// others; that life has ended then.
    No,
    /// It may have happened; a retry with the same request id finds out.
    Unknown,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// What a refusal is about. The printed form is the `reason` of the status details.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum RefusalKind { $($(#[$doc])* #[serde(rename = $text)] $variant,)* }
        impl RefusalKind {
            /// Every kind.
            pub const ALL: &'static [RefusalKind] = &[$(RefusalKind::$variant),*];
            /// The printed form.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }
            /// From the printed form.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == text)
            }
        }
    };
}

kinds!(
    /// A field is wrong; `fields` lists all mistakes.
    InvalidArgument = "INVALID_ARGUMENT",
    /// Nodes of the pool run, and none offers the class. Where none runs and the pool may grow, a
    /// node is started before this is known: managers know classes through nodes only.
    UnknownClass = "UNKNOWN_CLASS",
    /// No such session.
    NotFound = "NOT_FOUND",
    /// The session's machine does not take the event in the state that it is in.
    NoTransition = "NO_TRANSITION",
    /// The session lives another life than the one that was named.
    LifeMismatch = "LIFE_MISMATCH",
        /// The session has another version than the caller asked for.
        VersionMismatch = "VERSION_MISMATCH",
    /// The request id was used before for something else of this session: another kind of request,
    /// or an open of something else. `fields` names it.
    RequestIdReused = "REQUEST_ID_REUSED",
    /// This manager does not own the slot.
    NotOwner = "NOT_OWNER",
    /// The partition synchronises, waits for a copy, or hands over.
    NotServing = "NOT_SERVING",
    /// The partition is being found again from the nodes.
    Recovering = "RECOVERING",
    /// The session is being opened; it is not ready yet.
    InProgress = "IN_PROGRESS",
    /// The session is being closed; a new life can start when that is finished.
    Closing = "CLOSING",
    /// A close ended the life that the open began before it was READY. Nothing of it is left, and a
    /// repetition begins anew.
    Closed = "CLOSED",
    /// No node has room; a new one was asked for.
    Provisioning = "PROVISIONING",
    /// No node has room, and the pool is at its maximum.
    NoCapacity = "NO_CAPACITY",
    /// The session's program or machine did not start; the message says why.
    StartFailed = "START_FAILED",
    /// A bounded queue is full.
    Overloaded = "OVERLOADED",
    /// The caller's deadline passed first.
    DeadlineExceeded = "DEADLINE_EXCEEDED",
    /// The config store cannot be reached, and the request needs it.
    ConfigStoreAway = "CONFIG_STORE_AWAY",
    /// The namespace is switched off; the message is the administrator's.
    NamespaceOff = "NAMESPACE_OFF",
    /// Nothing with that name is registered.
    UnknownNode = "UNKNOWN_NODE",
    /// Another boot of the node is registered and may run; the registration does not prove that it is
    /// over. It passes when that boot was declared lost.
    BootUnproven = "BOOT_UNPROVEN",
    /// A defect; the message says where.
    Internal = "INTERNAL",
);

impl fmt::Display for RefusalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A refusal.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What it is about.
    pub kind: RefusalKind,
    /// A sentence for people.
    pub message: String,
    /// The mistakes, for [`RefusalKind::InvalidArgument`].
    pub fields: Vec<FieldError>,
    /// What to do.
    pub retry: Retry,
    /// Whether something may have changed.
    pub changed: Changed,
}

impl Refusal {
    /// A refusal that changed nothing.
    pub fn new(kind: RefusalKind, retry: Retry, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), fields: Vec::new(), retry, changed: Changed::No }
    }

    /// A refusal whose request may have happened.
    pub fn unknown_outcome(kind: RefusalKind, retry: Retry, message: impl Into<String>) -> Self {
        Self { changed: Changed::Unknown, ..Self::new(kind, retry, message) }
    }

    /// Refuses a request for its fields. Lists them all.
    pub fn invalid(fields: Vec<FieldError>) -> Self {
        let list: Vec<String> = fields.iter().map(ToString::to_string).collect();
        Self { fields, ..Self::new(RefusalKind::InvalidArgument, Retry::Never, list.join("; ")) }
    }
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Self::invalid(vec![error])
    }
}
