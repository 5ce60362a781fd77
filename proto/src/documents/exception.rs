//! Exceptions as gRPC statuses, and back. What each means stands in one table,
//! [`rota_docstore::TABLE`]; here it only gets the shape of the wire.
//!
//! A status carries google.rpc details: `ErrorInfo` with domain `rota.documents`, the exception's
//! code as its reason and the metadata `major`, `phase`, `operation`, `attempts`, `retry` (never,
//! when_changed, after), `retry_ms` and `changed` (no, yes); `RetryInfo` when a wait is advised; `BadRequest`
//! when fields are wrong. The message stands without the code.

use crate::refusal::{MESSAGE_BYTES_MAX, PROBLEM_BYTES_MAX};
use crate::refusal::{bad_request, cut, note_retry, wrong_fields};
use rota_docstore::{Code, Details, Effect, Exception, Phase, Status as Name, codes};
use rota_model::{FieldError, Retry};
use std::collections::HashMap;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

/// Domain of the `ErrorInfo`.
pub const DOMAIN: &str = "rota.documents";

/// The gRPC code of that name.
pub fn code(status: Name) -> tonic::Code {
    match status {
        Name::InvalidArgument => tonic::Code::InvalidArgument,
        Name::FailedPrecondition => tonic::Code::FailedPrecondition,
        Name::NotFound => tonic::Code::NotFound,
        Name::Internal => tonic::Code::Internal,
        Name::Unavailable => tonic::Code::Unavailable,
        Name::Aborted => tonic::Code::Aborted,
        Name::PermissionDenied => tonic::Code::PermissionDenied,
        Name::AlreadyExists => tonic::Code::AlreadyExists,
        Name::ResourceExhausted => tonic::Code::ResourceExhausted,
    }
}

/// A request whose fields are wrong: lists them all.
pub fn invalid(fields: Vec<FieldError>) -> Exception {
    let list: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let exception = Exception::new(codes::INVALID, list.join("; ")).at(Phase::Before);
    fields.into_iter().fold(exception, Exception::with_field)
}

/// An exception as the status that a client gets.
pub fn status(exception: &Exception) -> Status {
    let it = exception.details();
    let changed = match it.phase.effect() {
        Effect::Nothing => "no",
        Effect::Committed => "yes",
    };
    let told = [
        ("major", exception.letter().row().major.to_string()),
        ("phase", it.phase.number().to_string()),
        ("operation", cut(&it.operation, PROBLEM_BYTES_MAX).to_owned()),
        ("attempts", it.attempts.to_string()),
        ("changed", changed.to_owned()),
    ];
    let mut metadata: HashMap<_, _> =
        told.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut details = ErrorDetails::new();
    note_retry(exception.retry(), &mut metadata, &mut details);
    details.set_error_info(it.code.as_str(), DOMAIN, metadata);
    bad_request(&it.fields, &mut details);
    let message = cut(&it.message, MESSAGE_BYTES_MAX);
    Status::with_error_details(code(exception.status()), message, details)
}

/// A status that says in which call nothing was done, if it is an exception that no operation raised: see
/// [`Exception::in_call`]. Any other status stays as it is.
pub fn in_call(call: &str, status: Status) -> Status {
    match exception(&status) {
        Some(raised) if raised.details().operation.is_empty() => {
            self::status(&raised.in_call(call))
        }
        Some(_) | None => status,
    }
}

/// The exception in a status; `None` when it carries none that this build can read. What its code
/// and phase mean, this build's table says.
pub fn exception(status: &Status) -> Option<Exception> {
    let details = status.get_error_details();
    let info = details.error_info().filter(|it| it.domain == DOMAIN)?;
    let text = |key: &str| info.metadata.get(key).map(String::as_str);
    let number = |key: &str| text(key).and_then(|it| it.parse::<u8>().ok());
    let code = Code::parse(&info.reason).ok()?;
    // What the table says by itself is not kept.
    let by_table = code.letter().row().retry;
    let told_ms = text("retry_ms").and_then(|it| it.parse().ok());
    Some(Exception::from(Details {
        code,
        phase: number("phase").and_then(Phase::from_number)?,
        message: status.message().to_owned(),
        fields: wrong_fields(&details),
        operation: text("operation").unwrap_or_default().to_owned(),
        attempts: number("attempts").unwrap_or(0),
        after_ms: told_ms.filter(|it| Retry::AfterMs(*it) != by_table),
    }))
}
