//! Errors of the tree: the statuses of gRPC as JSON, in the form that APIs of Google have.
//!
//! ```text
//!  {"error": {"code": 404, "status": "NOT_FOUND", "message": "...", "details": [
//!      {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "NOT_FOUND", "domain": "rota",
//!       "metadata": {"retry": "when_changed", "changed": "no"}}]}}
//! ```

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rota_model::{FieldError, Refusal};
use rota_proto::refusal;
use rota_proto::status_details::{StatusDetails, details};
use serde_json::{Value, json};
use std::time::Duration;
use tonic::{Code, Status};

/// Why a call of the tree has no answer.
#[derive(Debug)]
pub struct Failed(Box<Status>);

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

impl From<Refusal> for Failed {
    fn from(refused: Refusal) -> Self {
        refusal::status(&refused).into()
    }
}

impl From<FieldError> for Failed {
    fn from(error: FieldError) -> Self {
        Refusal::from(error).into()
    }
}

/// The code of HTTP and the printed name of a code of gRPC, as google.rpc has them.
fn row(code: Code) -> (u16, &'static str) {
    match code {
        Code::Ok => (200, "OK"),
        Code::Cancelled => (499, "CANCELLED"),
        Code::Unknown => (500, "UNKNOWN"),
        Code::InvalidArgument => (400, "INVALID_ARGUMENT"),
        Code::DeadlineExceeded => (504, "DEADLINE_EXCEEDED"),
        Code::NotFound => (404, "NOT_FOUND"),
        Code::AlreadyExists => (409, "ALREADY_EXISTS"),
        Code::PermissionDenied => (403, "PERMISSION_DENIED"),
        Code::ResourceExhausted => (429, "RESOURCE_EXHAUSTED"),
        Code::FailedPrecondition => (400, "FAILED_PRECONDITION"),
        Code::Aborted => (409, "ABORTED"),
        Code::OutOfRange => (400, "OUT_OF_RANGE"),
        Code::Unimplemented => (501, "UNIMPLEMENTED"),
        Code::Internal => (500, "INTERNAL"),
        Code::Unavailable => (503, "UNAVAILABLE"),
        Code::DataLoss => (500, "DATA_LOSS"),
        Code::Unauthenticated => (401, "UNAUTHENTICATED"),
    }
}

const TYPES: &str = "type.googleapis.com/google.rpc.";

fn entries(told: &StatusDetails) -> Vec<Value> {
    let mut entries = Vec::new();
    if let Some(info) = &told.info {
        entries.push(json!({
            "@type": format!("{TYPES}ErrorInfo"),
            "reason": info.reason,
            "domain": info.domain,
            "metadata": info.metadata,
        }));
    }
    if let Some(delay) = told.retry_delay {
        let delay = format!("{}.{:03}s", delay.as_secs(), delay.subsec_millis());
        entries.push(json!({"@type": format!("{TYPES}RetryInfo"), "retryDelay": delay}));
    }
    if !told.fields.is_empty() {
        let wrong = |it: &FieldError| json!({"field": it.field, "description": it.problem});
        let fields: Vec<Value> = told.fields.iter().map(wrong).collect();
        entries.push(json!({"@type": format!("{TYPES}BadRequest"), "fieldViolations": fields}));
    }
    entries
}

/// What `Retry-After` says: whole seconds, and none of them less than the advice.
fn retry_after(delay: Duration) -> Option<HeaderValue> {
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    (seconds > 0).then(|| HeaderValue::from(seconds))
}

impl Failed {
    /// The code of HTTP for its status.
    fn http(&self) -> StatusCode {
        let (code, _) = row(self.0.code());
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The error as JSON, with the code of HTTP for its status.
    pub fn json(&self) -> Value {
        self.to_json(self.http())
    }

    /// The error as JSON, with a code of HTTP.
    fn to_json(&self, code: StatusCode) -> Value {
        let (_, name) = row(self.0.code());
        let details = entries(&details(&self.0));
        json!({"error": {
            "code": code.as_u16(), "status": name, "message": self.0.message(), "details": details,
        }})
    }

    /// With another code of HTTP than that of its status.
    pub fn as_code(&self, code: StatusCode) -> Response {
        let told = details(&self.0);
        let mut response = (code, Json(self.to_json(code))).into_response();
        if let Some(after) = told.retry_delay.and_then(retry_after) {
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        self.as_code(self.http())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{RefusalKind, Retry};

    #[test]
    fn a_refusal_is_told_with_its_reason_its_fields_and_when_to_come_again() {
        let fields = vec![FieldError::new("class", "must not be empty")];
        let told = Failed::from(Refusal::invalid(fields)).json();
        assert_eq!(told["error"]["code"], 400);
        assert_eq!(told["error"]["status"], "INVALID_ARGUMENT");
        assert_eq!(told["error"]["details"][0]["reason"], "INVALID_ARGUMENT");
        assert_eq!(told["error"]["details"][0]["metadata"]["retry"], "never");
        assert_eq!(told["error"]["details"][1]["fieldViolations"][0]["field"], "class");
        let busy = Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(1_500), "full");
        let busy = Failed::from(busy);
        assert_eq!(busy.json()["error"]["details"][1]["retryDelay"], "1.500s");
        let response = busy.into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    }

    #[test]
    fn every_kind_of_refusal_is_an_error_of_http() {
        for kind in RefusalKind::ALL {
            let failed = Failed::from(Refusal::new(*kind, Retry::Now, "x"));
            let told = failed.json();
            assert_eq!(told["error"]["details"][0]["reason"], kind.as_str());
            assert!(failed.into_response().status().as_u16() >= 400, "{kind}");
        }
    }
}
