//! The verbs after the last colon of a path, and the refusal of a method that a resource does not have.

use super::call::last_with_verb;
use super::error::Failed;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use rota_proto::refusal;

/// What can be done to a session.
pub const SESSION_VERBS: [&str; 5] = ["open", "close", "send", "keepalive", "update"];

/// What can be ordered about a task, beside its end.
pub const TASK_VERBS: [&str; 5] = ["retry", "advance", "postpone", "pause", "resume"];

/// The refusal of a method that a resource does not have. Those of a verb stand behind the same route as those of the
/// session.
pub async fn wrong_method(uri: Uri) -> Response {
    let text = "this resource has no such method; GET /v1/openapi.json tells which it has";
    let failed = Failed::from(refusal::wrong_method(text));
    let mut response = failed.as_code(StatusCode::METHOD_NOT_ALLOWED);
    let path = uri.path();
    let is_task = path.starts_with("/v1/namespaces/") && path.contains("/tasks/");
    let verbs = if is_task { &TASK_VERBS[..] } else { &SESSION_VERBS };
    let allow = match last_with_verb(&uri, verbs) {
        (_, Some(_)) => "POST",
        (_, None) if is_task => "GET,HEAD,DELETE",
        (_, None) => "GET,HEAD",
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn a_method_that_is_not_there_is_told_with_its_reason_and_those_that_are() {
        for (path, allow) in [
            ("/v1/pools", "GET,HEAD"),
            ("/v1/namespaces/default/sessions/a:close", "POST"),
            ("/v1/namespaces/default/tasks/a:retry", "POST"),
            ("/v1/namespaces/default/tasks/a", "GET,HEAD,DELETE"),
        ] {
            let answer = wrong_method(path.parse().unwrap()).await;
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(answer.headers()[header::ALLOW], allow);
            let body = to_bytes(answer.into_body(), 10_000).await.unwrap();
            let told: Value = serde_json::from_slice(&body).unwrap();
            let info = &told["error"]["details"][0];
            assert_eq!(info["reason"], "METHOD_NOT_ALLOWED", "{told}");
            assert_eq!(info["metadata"], json!({"retry": "never", "changed": "no"}));
        }
    }
}
