//! What a call comes to when it does not succeed.

use rota_model::{Changed, FieldError, Refusal, RefusalKind, Retry};
use std::time::Duration;
use tonic::Code;

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
    },
    /// The answer was not what the protocol says.
    #[error("{endpoint} answered without its {missing}")]
    Incomplete {
        /// The field that was missing.
        missing: &'static str,
        /// Who answered.
        endpoint: String,
    },
    /// The call names an address that is none.
    #[error("address {0:?} is not host:port")]
    Address(String),
}

fn after(attempts: u32) -> String {
    if attempts > 1 { format!(", after {attempts} attempts") } else { String::new() }
}

impl CallError {
    /// The typed reason, as in the status details; UNREACHABLE and TIMED_OUT when no answer of
    /// Rota came.
    pub fn reason(&self) -> &'static str {
        match self {
            CallError::Refused { refusal, .. } => refusal.kind.as_str(),
            CallError::Broken { .. } => "UNREACHABLE",
            CallError::TimedOut { .. } => "TIMED_OUT",
            CallError::Incomplete { .. } => RefusalKind::Internal.as_str(),
            CallError::Address(_) => RefusalKind::InvalidArgument.as_str(),
        }
    }

    /// What the caller should do.
    pub fn retry(&self) -> Retry {
        match self {
            CallError::Refused { refusal, .. } => refusal.retry,
            CallError::Broken { .. } | CallError::TimedOut { .. } => Retry::Now,
            CallError::Incomplete { .. } | CallError::Address(_) => Retry::Never,
        }
    }

    /// Whether the call may have changed something.
    pub fn changed(&self) -> Changed {
        match self {
            CallError::Refused { refusal, .. } => refusal.changed,
            CallError::Address(_) => Changed::No,
            CallError::Broken { .. }
            | CallError::TimedOut { .. }
            | CallError::Incomplete { .. } => Changed::Unknown,
        }
    }

    /// The fields that are wrong; empty unless the request itself was.
    pub fn fields(&self) -> &[FieldError] {
        match self {
            CallError::Refused { refusal, .. } => &refusal.fields,
            CallError::Broken { .. }
            | CallError::TimedOut { .. }
            | CallError::Incomplete { .. }
            | CallError::Address(_) => &[],
        }
    }

    /// The refusal, when Rota gave one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            CallError::Refused { refusal, .. } => Some(refusal),
            CallError::Broken { .. }
            | CallError::TimedOut { .. }
            | CallError::Incomplete { .. }
            | CallError::Address(_) => None,
        }
    }
}
