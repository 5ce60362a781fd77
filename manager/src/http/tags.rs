//! Entity tags of resources whose answers have no version of their own.

use super::tree::Answer;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use rota_model::{Refusal, RefusalKind, Retry};
use serde::Serialize;
use std::hash::{DefaultHasher, Hasher as _};

/// The tag of an answer: it changes with whatever the answer says. Managers of different builds may make others of the
/// same.
fn tag(body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    format!("W/\"{:016x}\"", hasher.finish())
}

/// Whether the caller has that already.
pub fn has_it(headers: &HeaderMap, tag: &str) -> bool {
    let weak = |it: &str| it.trim().trim_start_matches("W/").to_owned();
    let lists = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|it| it.to_str().ok());
    let mut tags = lists.flat_map(|it| it.split(','));
    tags.any(|it| it.trim() == "*" || weak(it) == weak(tag))
}

/// The answer with its tag; without its body where the caller has it.
pub fn tagged(headers: &HeaderMap, answer: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(answer).map_err(|error| {
        let text = format!("the answer is no JSON: {error}");
        Refusal::new(RefusalKind::Internal, Retry::Never, text)
    })?;
    let tag = tag(&body);
    let mut response = match has_it(headers, &tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tag_is_known_in_each_of_its_forms() {
        let knows = |tag: &str, value: &'static str| {
            let value = HeaderValue::from_static(value);
            has_it(&HeaderMap::from_iter([(header::IF_NONE_MATCH, value)]), tag)
        };
        let is_known = |value| knows("W/\"7.4\"", value);
        assert!(is_known("W/\"7.4\"") && is_known("\"7.4\""));
        assert!(is_known("\"1\", W/\"7.4\"") && is_known("*"));
        assert!(!is_known("\"7.5\""));
        assert!(!has_it(&HeaderMap::new(), "W/\"7.4\""));
    }

    #[test]
    fn what_the_caller_has_is_not_sent_again_until_it_changes() {
        let none = HeaderMap::new();
        let first = tagged(&none, &json!({"nodes": 1})).unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].clone();
        let has = HeaderMap::from_iter([(header::IF_NONE_MATCH, tag.clone())]);
        let again = tagged(&has, &json!({"nodes": 1})).unwrap();
        assert_eq!(
            (again.status(), &again.headers()[header::ETAG]),
            (StatusCode::NOT_MODIFIED, &tag)
        );
        let changed = tagged(&has, &json!({"nodes": 2})).unwrap();
        assert_eq!(changed.status(), StatusCode::OK);
        assert_ne!(changed.headers()[header::ETAG], tag);
        let any = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static("*"))]);
        assert_eq!(tagged(&any, &json!({})).unwrap().status(), StatusCode::NOT_MODIFIED);
    }
}
