//! What a request of HTTP says in its path and its query, by names of fields (and in its body: `body`). All mistakes are told
//! together, and a name that nobody knows is one.

use super::error::Failed;
use crate::rpc::deadline::deadline_of;
use axum::http::{HeaderMap, Uri, header::HeaderName};
use percent_encoding::percent_decode_str;
use rota_model::{FieldError, Refusal};
use rota_proto::documents::ADMIN_KEY_METADATA;
use serde_json::{Map, Value};
use std::str::FromStr;
use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::{MetadataMap, MetadataValue};

/// The query field with the time that the answer may take, in milliseconds.
pub const TIMEOUT: &str = "timeout_ms";

/// Most milliseconds of it. gRPC cuts longer waits; here they are told as a mistake.
const TIMEOUT_MS_MAX: u64 = rota_protocol::REQUEST_MS;

/// Most fields of a query: more are of no use, and each is looked at.
const FIELDS_MAX: usize = 64;

/// The fields of a request, taken one by one.
#[derive(Debug, Default)]
pub struct Call {
    query: Vec<(String, String)>,
    /// Of one with a body: see `body`.
    pub(super) body: Map<String, Value>,
    /// The names that were asked for.
    known: Vec<&'static str>,
    mistakes: Vec<FieldError>,
    metadata: MetadataMap,
}

/// The parts of a path below `/v1`, decoded.
pub fn segments(uri: &Uri) -> Result<Vec<String>, FieldError> {
    let path = uri.path();
    let below = path.strip_prefix("/v1").unwrap_or(path);
    let below = below.strip_prefix('/').unwrap_or(below);
    below.split('/').map(decoded).collect()
}

/// A part of a path.
pub fn decoded(part: &str) -> Result<String, FieldError> {
    let text = percent_decode_str(part).decode_utf8();
    let wrong = |_| FieldError::new("path", format!("has {part:?}, which is no UTF-8"));
    text.map(|it| it.into_owned()).map_err(wrong)
}

/// The last part of a path, decoded, and the verb after its last colon, if that is one of these. A colon that is
/// written as `%3A` belongs to the name.
pub fn last_with_verb<'a>(uri: &Uri, verbs: &[&'a str]) -> (String, Option<&'a str>) {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let split = last.rsplit_once(':').and_then(|(name, verb)| {
        let verb = verbs.iter().find(|it| **it == verb)?;
        Some((name, *verb))
    });
    let (name, verb) = split.map_or((last, None), |(name, verb)| (name, Some(verb)));
    (name.to_owned(), verb)
}

fn query_of(uri: &Uri) -> Result<Vec<(String, String)>, FieldError> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_decode_str(&text).decode_utf8().map(|it| it.into_owned());
        decoded.map_err(|_| FieldError::new("query", format!("has {text:?}, which is no UTF-8")))
    };
    let pairs = uri.query().unwrap_or_default().split('&').filter(|it| !it.is_empty());
    let mut query = Vec::new();
    for pair in pairs {
        if query.len() == FIELDS_MAX {
            let problem = format!("has more fields than {FIELDS_MAX}, the limit");
            return Err(FieldError::new("query", problem));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        query.push((decode(name)?, decode(value)?));
    }
    Ok(query)
}

/// What the calls of one request have in common: who asks, and one deadline for all of them.
pub struct Asked {
    metadata: MetadataMap,
    deadline: Instant,
}

impl Asked {
    /// By the metadata of the request. Its time begins now.
    pub fn begin(metadata: &MetadataMap) -> Self {
        Self { metadata: metadata.clone(), deadline: deadline_of(metadata) }
    }

    /// The next of these calls.
    pub fn with<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().clone_from(&self.metadata);
        request.set_timeout(self.deadline.saturating_duration_since(Instant::now()));
        request
    }
}

impl Call {
    /// Of a request without a body.
    pub fn new(uri: &Uri, headers: &HeaderMap) -> Result<Self, Failed> {
        let mut call = Self { query: query_of(uri)?, ..Self::default() };
        if let Some(wait) = call.number::<u64>(TIMEOUT) {
            if (1..=TIMEOUT_MS_MAX).contains(&wait) {
                let wait = MetadataValue::from_str(&format!("{wait}m"));
                drop(wait.map(|it| call.metadata.insert("grpc-timeout", it)));
            } else {
                call.wrong(TIMEOUT, format!("is {wait}; it must be 1 to {TIMEOUT_MS_MAX}"));
            }
        }
        let admin_key = headers.get(HeaderName::from_static(ADMIN_KEY_METADATA));
        if let Some(key) = admin_key.and_then(|it| MetadataValue::try_from(it.as_bytes()).ok()) {
            call.metadata.insert(ADMIN_KEY_METADATA, key);
        }
        Ok(call)
    }

    /// What goes along with each call. Mistakes are told by `request`.
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// Notes a mistake.
    pub fn wrong(&mut self, field: &str, problem: impl Into<String>) {
        self.mistakes.push(FieldError::new(field, problem.into()));
    }

    /// What the query says, if anything.
    pub fn given(&mut self, name: &'static str) -> Option<String> {
        let mut all = self.all(name).into_iter();
        let first = all.next();
        if all.next().is_some() {
            self.wrong(name, "is given twice");
        }
        first
    }

    /// The same; empty where it says nothing.
    pub fn text(&mut self, name: &'static str) -> String {
        self.given(name).unwrap_or_default()
    }

    /// All that the query says under that name.
    pub fn all(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        let named = self.query.iter().filter(|it| it.0 == name);
        named.map(|it| it.1.clone()).collect()
    }

    /// A number of the query.
    pub fn number<T: FromStr>(&mut self, name: &'static str) -> Option<T> {
        let text = self.given(name)?;
        let number = text.parse().ok();
        if number.is_none() {
            self.wrong(name, format!("is {text:?}; it must be a whole number"));
        }
        number
    }

    /// Yes or no in the query; no where it says nothing.
    pub fn is_set(&mut self, name: &'static str) -> bool {
        match self.given(name).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                let problem = format!("is {other:?}; it must be true or false");
                self.wrong(name, problem);
                false
            }
        }
    }

    /// The message for a service, unless something is wrong. Fields that nobody asked for are mistakes.
    pub fn request<T>(mut self, message: T) -> Result<Request<T>, Failed> {
        let unknown = |name: &str| FieldError::new(name, "is not known here");
        let mut names: Vec<&str> = self.query.iter().map(|it| it.0.as_str()).collect();
        names.retain(|it| !self.known.contains(it));
        names.dedup();
        let names = names.into_iter().chain(self.body.keys().map(String::as_str));
        self.mistakes.extend(names.map(unknown));
        if !self.mistakes.is_empty() {
            return Err(Refusal::invalid(self.mistakes).into());
        }
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata;
        Ok(request)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn call(uri: &str) -> Call {
        Call::new(&uri.parse().unwrap(), &HeaderMap::new()).unwrap()
    }

    pub fn fields(failed: Failed) -> Vec<String> {
        let told = failed.json();
        let details = told["error"]["details"].as_array().unwrap();
        let wrong = details.iter().filter_map(|it| it["fieldViolations"].as_array());
        wrong.flatten().map(|it| it["field"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn all_mistakes_of_a_query_are_told_together_and_by_name() {
        let mut it = call("/v1/x?page_size=many&stale_ok=perhaps&a=1&a=2&colour=red&timeout_ms=0");
        assert_eq!((it.number::<u32>("page_size"), it.is_set("stale_ok")), (None, false));
        assert_eq!(it.text("a"), "1");
        let failed = it.request(()).unwrap_err();
        assert_eq!(fields(failed), ["timeout_ms", "page_size", "stale_ok", "a", "colour"]);
    }

    #[test]
    fn a_time_becomes_that_of_grpc() {
        let request = call("/v1/x?timeout_ms=250").request(()).unwrap();
        assert_eq!(request.metadata().get("grpc-timeout").unwrap(), "250m");
        assert!(call("/v1/x").request(()).unwrap().metadata().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn all_calls_of_a_request_have_one_deadline() {
        let asked = Asked::begin(call("/v1/x?timeout_ms=250").metadata());
        tokio::time::advance(std::time::Duration::from_millis(100)).await;
        let left = deadline_of(asked.with(()).metadata()) - Instant::now();
        assert_eq!(left.as_millis(), 150);
    }

    #[test]
    fn a_verb_stands_after_the_last_colon_that_is_not_encoded() {
        let parted = |path: &str| last_with_verb(&path.parse().unwrap(), &["open", "watch"]);
        assert_eq!(parted("/v1/s/a:b:open"), ("a:b".to_owned(), Some("open")));
        assert_eq!(parted("/v1/s/a%3Aopen"), ("a%3Aopen".to_owned(), None));
        assert_eq!(parted("/v1/s/a:b"), ("a:b".to_owned(), None));
        assert_eq!(segments(&"/v1/a%2Fb/c".parse().unwrap()).unwrap(), ["a/b", "c"]);
        assert_eq!(segments(&"/v1/v1".parse().unwrap()).unwrap(), ["v1"]);
        assert!(segments(&"/v1/%FF".parse().unwrap()).is_err());
    }
}
