//! What a call comes to when it does not succeed.

use rota_docstore::{Effect, Exception};
use rota_model::{Changed, FieldError, Refusal, RefusalKind, Retry};
use std::error::Error;
use std::time::Duration;
use tonic::{Code, Status};

/// What caused a status, from the top down.
pub(crate) fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |it: &&(dyn Error + 'static)| (*it).source())
}

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// Rota said no, with a typed reason and advice, which was followed as long as the deadline
    /// allowed.
    #[error("{}", .refusal.message)]
    Refused {
        /// The refusal.
        refusal: Box<Refusal>,
        /// Who said it, `host:port`.
        endpoint: String,
        /// How often the call was sent.
        attempts: u32,
    },
    /// An operation, or a store of documents, said no. Its advice was followed as long as the
    /// deadline allowed. Whether that attempt changed something: `exception.phase().effect()`.
    #[error("{}", .exception.details().message)]
    Raised {
        /// The exception.
        exception: Box<Exception>,
        /// Who said it, `host:port`.
        endpoint: String,
        /// How often the call was sent.
        attempts: u32,
        /// Whether one of the attempts may have changed something.
        changed: Changed,
    },
    /// No answer of Rota came: a connection failed or broke, or the server is something else.
    #[error("{endpoint}: {message} ({code:?}{})", after(*attempts))]
    Broken {
        /// gRPC code of the last attempt.
        code: Code,
        /// What the transport said.
        message: String,
        /// The endpoint of the last attempt.
        endpoint: String,
        /// How often the call was sent.
        attempts: u32,
        /// Whether one of the attempts may have changed something.
        changed: Changed,
    },
    /// Nothing at all was heard before the deadline.
    #[error("no answer from {endpoint} within {waited:?}")]
    TimedOut {
        /// The endpoint of the last attempt.
        endpoint: String,
        /// The deadline that was given.
        waited: Duration,
        /// How often the call was sent.
        attempts: u32,
        /// Whether one of the attempts may have changed something.
        changed: Changed,
    },
    /// The answer was not what the protocol says.
    #[error("{endpoint} answered without its {missing}")]
    Incomplete {
        /// The field that was missing.
        missing: &'static str,
        /// Who answered.
        endpoint: String,
    },
    /// The answer breaks the rules of its parts.
    #[error("{endpoint} answered what cannot be read: {problem}")]
    Unreadable {
        /// Which part, and what is wrong with it.
        problem: String,
        /// Who answered.
        endpoint: String,
    },
    /// What was to be sent could not be read here.
    #[error("what was to be sent cannot be read: {0}")]
    Source(String),
    /// The call names an address that is none.
    #[error("address {0:?} is not host:port")]
    Address(String),
}

fn after(attempts: u32) -> String {
    if attempts > 1 { format!(", after {attempts} attempts") } else { String::new() }
}

impl CallError {
    /// The typed reason, as in the status details: the kind of a refusal or the code of an
    /// exception; UNREACHABLE and TIMED_OUT when no answer of Rota came.
    pub fn reason(&self) -> &str {
        match self {
            CallError::Refused { refusal, .. } => refusal.kind.as_str(),
            CallError::Raised { exception, .. } => exception.code().as_str(),
            CallError::Broken { .. } => "UNREACHABLE",
            CallError::TimedOut { .. } => "TIMED_OUT",
            CallError::Incomplete { .. } | CallError::Unreadable { .. } => {
                RefusalKind::Internal.as_str()
            }
            CallError::Source(_) | CallError::Address(_) => RefusalKind::InvalidArgument.as_str(),
        }
    }

    /// What the caller should do.
    pub fn retry(&self) -> Retry {
        match self {
            CallError::Refused { refusal, .. } => refusal.retry,
            CallError::Raised { exception, .. } => exception.retry(),
            CallError::Broken { .. } | CallError::TimedOut { .. } => Retry::Now,
            CallError::Incomplete { .. }
            | CallError::Unreadable { .. }
            | CallError::Source(_)
            | CallError::Address(_) => Retry::Never,
        }
    }

    /// Whether the call may have changed something. An exception after the commit counts as
    /// [`Changed::Unknown`]; that it did, [`CallError::has_changed`] says.
    pub fn changed(&self) -> Changed {
        match self {
            CallError::Refused { refusal, .. } => refusal.changed,
            CallError::Raised { changed, .. }
            | CallError::Broken { changed, .. }
            | CallError::TimedOut { changed, .. } => *changed,
            CallError::Address(_) => Changed::No,
            CallError::Incomplete { .. } | CallError::Unreadable { .. } | CallError::Source(_) => {
                Changed::Unknown
            }
        }
    }

    /// The same error, where this is known of all attempts together: an earlier one may have changed
    /// something, although the last was refused.
    pub(crate) fn with_changed(mut self, known: Changed) -> Self {
        match &mut self {
            // One that was carried out would stand where something else stands.
            CallError::Refused { refusal, .. } if refusal.kind == RefusalKind::RequestIdReused => {}
            CallError::Refused { refusal, .. } => refusal.changed = known,
            CallError::Raised { changed, .. }
            | CallError::Broken { changed, .. }
            | CallError::TimedOut { changed, .. } => *changed = known,
            CallError::Incomplete { .. }
            | CallError::Unreadable { .. }
            | CallError::Source(_)
            | CallError::Address(_) => {}
        }
        self
    }

    /// Whether it is known that the operation is done and will stay, although it failed later.
    pub fn has_changed(&self) -> bool {
        self.exception().is_some_and(|it| it.phase().effect() == Effect::Committed)
    }

    /// The fields that are wrong; empty unless the request itself was.
    pub fn fields(&self) -> &[FieldError] {
        match self {
            CallError::Refused { refusal, .. } => &refusal.fields,
            CallError::Raised { exception, .. } => &exception.details().fields,
            CallError::Broken { .. }
            | CallError::TimedOut { .. }
            | CallError::Incomplete { .. }
            | CallError::Unreadable { .. }
            | CallError::Source(_)
            | CallError::Address(_) => &[],
        }
    }

    /// The refusal, when Rota gave one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            CallError::Refused { refusal, .. } => Some(refusal),
            CallError::Raised { .. }
            | CallError::Broken { .. }
            | CallError::TimedOut { .. }
            | CallError::Incomplete { .. }
            | CallError::Unreadable { .. }
            | CallError::Source(_)
            | CallError::Address(_) => None,
        }
    }

    /// The exception, when an operation or a store of documents raised one.
    pub fn exception(&self) -> Option<&Exception> {
        match self {
            CallError::Raised { exception, .. } => Some(exception),
            CallError::Refused { .. }
            | CallError::Broken { .. }
            | CallError::TimedOut { .. }
            | CallError::Incomplete { .. }
            | CallError::Unreadable { .. }
            | CallError::Source(_)
            | CallError::Address(_) => None,
        }
    }
}
