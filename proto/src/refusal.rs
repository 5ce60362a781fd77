//! Refusals as gRPC statuses: the one table from kinds to codes, and the way back.
//!
//! A status carries google.rpc details: `ErrorInfo` with domain `rota`, the kind as its reason
//! and the metadata `retry` (never, when_changed, now, after, at_owner), `changed` (no, unknown), `retry_ms` or
//! `epoch`; `RetryInfo` when a wait is advised; `BadRequest` when fields are wrong.

use crate::v1;
use crate::wire::{WireError, required};
use rota_model::{Changed, Epoch, FieldError, Refusal, RefusalKind, Retry};
use std::collections::HashMap;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

/// Domain of our `ErrorInfo`.
pub const DOMAIN: &str = "rota";
/// Most bytes of a status message; longer ones are cut. Statuses travel in HTTP/2 headers, which
/// many stacks limit to 16 KiB altogether, and a message stands there up to five times its size.
pub const MESSAGE_BYTES_MAX: usize = 1024;
/// Most field mistakes in a status; the message still counts all of them.
pub const FIELDS_MAX: usize = 16;
/// Most bytes of one mistake's text.
pub const PROBLEM_BYTES_MAX: usize = 256;

/// The gRPC code of a kind. UNAVAILABLE is what plain clients repeat on their own, so every kind
/// that passes with time has it.
pub fn code(kind: RefusalKind) -> Code {
    match kind {
        RefusalKind::InvalidArgument => Code::InvalidArgument,
        RefusalKind::NotFound | RefusalKind::UnknownNode => Code::NotFound,
        RefusalKind::RequestIdReused => Code::AlreadyExists,
        RefusalKind::UnknownClass
        | RefusalKind::LifeMismatch
        | RefusalKind::VersionMismatch
        | RefusalKind::NoTransition => Code::FailedPrecondition,
        RefusalKind::NotOwner
        | RefusalKind::NotServing
        | RefusalKind::Recovering
        | RefusalKind::InProgress
        | RefusalKind::Closing
        | RefusalKind::Provisioning
        | RefusalKind::ConfigStoreAway
        | RefusalKind::NamespaceOff
        | RefusalKind::BootUnproven => Code::Unavailable,
        RefusalKind::NoCapacity | RefusalKind::Overloaded => Code::ResourceExhausted,
        RefusalKind::StartFailed | RefusalKind::Closed => Code::Aborted,
        RefusalKind::DeadlineExceeded => Code::DeadlineExceeded,
        RefusalKind::Internal => Code::Internal,
    }
}

/// What a status without our details means: it comes from gRPC itself or from something between.
/// A broken connection, a passed deadline and a dead peer all leave the outcome unknown.
fn plain(code: Code) -> (RefusalKind, Retry, Changed) {
    match code {
        Code::InvalidArgument | Code::OutOfRange => {
            (RefusalKind::InvalidArgument, Retry::Never, Changed::No)
        }
        Code::NotFound => (RefusalKind::NotFound, Retry::WhenChanged, Changed::No),
        Code::ResourceExhausted => (RefusalKind::Overloaded, Retry::Now, Changed::No),
        Code::Cancelled | Code::DeadlineExceeded => {
            (RefusalKind::DeadlineExceeded, Retry::Now, Changed::Unknown)
        }
        Code::Unavailable | Code::Unknown | Code::Aborted => {
            (RefusalKind::NotServing, Retry::Now, Changed::Unknown)
        }
        Code::Unimplemented
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::FailedPrecondition => (RefusalKind::Internal, Retry::Never, Changed::No),
        Code::Ok | Code::Internal | Code::DataLoss => {
            (RefusalKind::Internal, Retry::Never, Changed::Unknown)
        }
    }
}

/// At most `limit` bytes of a text, cut between characters.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Writes an advice down: `retry` with its number in the metadata, and `RetryInfo`.
pub(crate) fn note_retry(
    retry: Retry,
    metadata: &mut HashMap<String, String>,
    details: &mut ErrorDetails,
) {
    let mut tell = |key: &str, value: String| metadata.insert(key.to_owned(), value);
    match retry {
        Retry::Never => tell("retry", "never".into()),
        Retry::WhenChanged => tell("retry", "when_changed".into()),
        Retry::Now => {
            details.set_retry_info(Some(Duration::ZERO));
            tell("retry", "now".into())
        }
        Retry::AfterMs(ms) => {
            details.set_retry_info(Some(Duration::from_millis(ms)));
            tell("retry_ms", ms.to_string());
            tell("retry", "after".into())
        }
        Retry::AtOwner(epoch) => {
            tell("epoch", epoch.to_string());
            tell("retry", "at_owner".into())
        }
    };
}

/// Writes down which fields are wrong, if any are.
pub(crate) fn bad_request(fields: &[FieldError], details: &mut ErrorDetails) {
    if fields.is_empty() {
        return;
    }
    let violation = |error: &FieldError| {
        let problem = cut(&error.problem, PROBLEM_BYTES_MAX);
        FieldViolation::new(cut(&error.field, PROBLEM_BYTES_MAX), problem)
    };
    let fields: Vec<_> = fields.iter().take(FIELDS_MAX).map(violation).collect();
    details.set_bad_request(fields);
}

/// Which fields are wrong.
pub(crate) fn wrong_fields(details: &ErrorDetails) -> Vec<FieldError> {
    let fields = details.bad_request().map_or(&[][..], |it| &it.field_violations);
    fields.iter().map(|it| FieldError::new(&*it.field, &*it.description)).collect()
}

pub(crate) fn field_to_wire(it: FieldError) -> v1::refusal::Field {
    v1::refusal::Field { field: it.field, problem: it.problem }
}

pub(crate) fn field_from_wire(it: v1::refusal::Field) -> FieldError {
    FieldError::new(it.field, it.problem)
}

/// A refusal as the status that a client gets.
pub fn status(refusal: &Refusal) -> Status {
    let changed = changed_text(refusal.changed).to_owned();
    let mut metadata = HashMap::from([("changed".to_owned(), changed)]);
    let mut details = ErrorDetails::new();
    note_retry(refusal.retry, &mut metadata, &mut details);
    details.set_error_info(refusal.kind.as_str(), DOMAIN, metadata);
    bad_request(&refusal.fields, &mut details);
    let message = cut(&refusal.message, MESSAGE_BYTES_MAX);
    Status::with_error_details(code(refusal.kind), message, details)
}

/// The reason of [`wrong_method`].
pub const METHOD_NOT_ALLOWED: &str = "METHOD_NOT_ALLOWED";

/// A resource has no such method. Only HTTP knows of that, so it is no kind of refusal.
pub fn wrong_method(text: &str) -> Status {
    let mut metadata = HashMap::from([("changed".to_owned(), changed_text(Changed::No).into())]);
    let mut details = ErrorDetails::new();
    note_retry(Retry::Never, &mut metadata, &mut details);
    details.set_error_info(METHOD_NOT_ALLOWED, DOMAIN, metadata);
    Status::with_error_details(Code::Unimplemented, text, details)
}

fn changed_text(changed: Changed) -> &'static str {
    match changed {
        Changed::No => "no",
        Changed::Unknown => "unknown",
    }
}

/// The refusal in a status, whoever made it. Without our details the code decides, and whatever
/// may have happened counts as unknown.
pub fn refusal(status: &Status) -> Refusal {
    let details = status.get_error_details();
    let (plain_kind, plain_retry, plain_changed) = plain(status.code());
    let ours = details.error_info().filter(|it| it.domain == DOMAIN);
    let Some(info) = ours else {
        let text = format!("{:?}: {}", status.code(), status.message());
        let refusal = Refusal::new(plain_kind, plain_retry, text);
        return Refusal { changed: plain_changed, ..refusal };
    };
    let number = |key: &str| info.metadata.get(key).and_then(|it| it.parse::<u64>().ok());
    let retry = match info.metadata.get("retry").map(String::as_str) {
        Some("never") => Some(Retry::Never),
        Some("when_changed") => Some(Retry::WhenChanged),
        Some("now") => Some(Retry::Now),
        Some("after") => number("retry_ms").map(Retry::AfterMs),
        Some("at_owner") => number("epoch").map(|it| Retry::AtOwner(Epoch(it))),
        _ => None,
    };
    let changed = match info.metadata.get("changed").map(String::as_str) {
        Some("no") => Changed::No,
        _ => Changed::Unknown,
    };
    Refusal {
        // A kind of a newer version keeps its advice, and its code says roughly what it is.
        kind: RefusalKind::parse(&info.reason).unwrap_or(plain_kind),
        message: status.message().into(),
        fields: wrong_fields(&details),
        retry: retry.unwrap_or(plain_retry),
        changed,
    }
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        status(&error.into())
    }
}

impl From<Refusal> for v1::Refusal {
    fn from(refusal: Refusal) -> Self {
        use v1::refusal::Retry as Wire;
        let retry = match refusal.retry {
            Retry::Never => Wire::Never(true),
            Retry::WhenChanged => Wire::WhenChanged(true),
            Retry::Now => Wire::Now(true),
            Retry::AfterMs(ms) => Wire::AfterMs(ms),
            Retry::AtOwner(epoch) => Wire::AtOwnerEpoch(epoch.0),
        };
        Self {
            kind: refusal.kind.as_str().into(),
            message: refusal.message,
            fields: refusal.fields.into_iter().map(field_to_wire).collect(),
            retry: Some(retry),
            outcome_unknown: match refusal.changed {
                Changed::No => false,
                Changed::Unknown => true,
            },
        }
    }
}

impl TryFrom<v1::Refusal> for Refusal {
    type Error = WireError;
    fn try_from(refusal: v1::Refusal) -> Result<Self, WireError> {
        use v1::refusal::Retry as Wire;
        let Some(kind) = RefusalKind::parse(&refusal.kind) else {
            let problem = format!("{:?} is not known", cut(&refusal.kind, PROBLEM_BYTES_MAX));
            return Err(WireError::new("Refusal.kind", problem));
        };
        let fields = refusal.fields.into_iter();
        Ok(Refusal {
            kind,
            message: refusal.message,
            fields: fields.map(field_from_wire).collect(),
            retry: match required("Refusal.retry", refusal.retry)? {
                Wire::Never(_) => Retry::Never,
                Wire::WhenChanged(_) => Retry::WhenChanged,
                Wire::Now(_) => Retry::Now,
                Wire::AfterMs(ms) => Retry::AfterMs(ms),
                Wire::AtOwnerEpoch(epoch) => Retry::AtOwner(Epoch(epoch)),
            },
            changed: if refusal.outcome_unknown { Changed::Unknown } else { Changed::No },
        })
    }
}
