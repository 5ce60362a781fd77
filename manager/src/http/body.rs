//! What a request of HTTP says in its body.

use super::call::Call;
use super::error::Failed;
use crate::rpc::REQUEST_BYTES_MAX;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, Uri};
use rota_model::{FieldError, Refusal, RefusalKind, Retry};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

/// How long a body may take to come.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// What bodies that are being read may have in all, in KiB. Too low: writes wait for senders that are slow. Too high:
/// those fill the memory.
pub const BODIES_KIB_MAX: usize = 64 * 1024;

/// Advice to who finds no place, in milliseconds.
const FULL_RETRY_MS: u64 = 500;

/// How much of a body that is too large is read all the same: whoever sends it hears why it is refused, and no
/// broken connection.
const DISCARDED_BYTES_MAX: usize = 16 * REQUEST_BYTES_MAX;

/// Waits until there is room for a body: as much as it says of itself, or as much as one may have.
async fn room(bodies: &Semaphore, said: Option<u64>) -> Result<SemaphorePermit<'_>, Failed> {
    let most = REQUEST_BYTES_MAX as u64;
    let bytes = said.map_or(most, |it| it.min(most));
    let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
    let room = timeout(BODY_PATIENCE, bodies.acquire_many(kib)).await;
    room.ok().and_then(Result::ok).ok_or_else(|| {
        let text = format!("{BODIES_KIB_MAX} KiB of bodies are being read, the limit");
        Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_RETRY_MS), text).into()
    })
}

fn wrong(problem: String) -> Failed {
    FieldError::new("body", problem).into()
}

/// All of a body. Of one that is too large, nothing.
async fn read(body: Body) -> Result<Vec<u8>, Failed> {
    let (mut pieces, mut bytes, mut sent) = (body.into_data_stream(), Vec::new(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| wrong(format!("cannot be read: {error}")))?;
        sent += piece.len();
        if sent <= REQUEST_BYTES_MAX {
            bytes.extend_from_slice(&piece);
        } else if sent > DISCARDED_BYTES_MAX {
            break;
        }
    }
    if sent > REQUEST_BYTES_MAX {
        return Err(wrong(format!("is too large; the limit is {REQUEST_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// The body of a request: an object of JSON, or nothing.
async fn object(bodies: &Semaphore, body: Body) -> Result<Map<String, Value>, Failed> {
    let _room = room(bodies, HttpBody::size_hint(&body).upper()).await?;
    let Ok(read) = timeout(BODY_PATIENCE, read(body)).await else {
        let text = format!("the body did not come within {} s", BODY_PATIENCE.as_secs());
        return Err(Refusal::new(RefusalKind::DeadlineExceeded, Retry::Now, text).into());
    };
    let bytes = read?;
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_slice(&bytes).map_err(|error| wrong(format!("is no JSON object: {error}")))
}

impl Call {
    /// Of a request with one.
    pub async fn with_body(
        uri: &Uri,
        headers: &HeaderMap,
        bodies: &Semaphore,
        body: Body,
    ) -> Result<Self, Failed> {
        let mut call = Self::new(uri, headers)?;
        call.body = object(bodies, body).await?;
        Ok(call)
    }

    /// Whether the body has an object of that name. Its fields become fields of the body, as `name.field`.
    pub fn open_object(&mut self, name: &str) -> bool {
        let Some(object) = self.field::<Option<Map<String, Value>>>(name) else { return false };
        let prefix = format!("{name}.");
        let taken: Vec<String> =
            self.body.keys().filter(|it| it.starts_with(&prefix)).cloned().collect();
        for field in taken {
            self.body.remove(&field);
            self.wrong(&field, format!("is not known here; it stands in the object {name:?}"));
        }
        for (field, value) in object {
            self.body.insert(format!("{name}.{field}"), value);
        }
        true
    }

    /// A field of the body; its default where the body has none.
    pub fn field<T: DeserializeOwned + Default>(&mut self, name: &str) -> T {
        let Some(value) = self.body.remove(name) else { return T::default() };
        match serde_json::from_value(value) {
            Ok(value) => value,
            Err(error) => {
                self.wrong(name, format!("is wrong: {error}"));
                T::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::fields;
    use super::*;
    use std::convert::Infallible;

    #[tokio::test]
    async fn a_body_is_an_object_whose_fields_are_known() {
        let (uri, bodies): (Uri, _) = ("/v1/x".parse().unwrap(), Semaphore::new(1024));
        let with = async |text: &'static str| {
            Call::with_body(&uri, &HeaderMap::new(), &bodies, Body::from(text)).await
        };
        let mut it = with(r#"{"class": 5, "colour": "red"}"#).await.unwrap();
        assert_eq!(it.field::<String>("class"), "");
        assert_eq!(fields(it.request(()).unwrap_err()), ["class", "colour"]);
        assert_eq!(fields(with("[]").await.unwrap_err()), ["body"]);
        assert!(with("").await.unwrap().request(()).is_ok());
        let large = Body::from(vec![b' '; REQUEST_BYTES_MAX + 1]);
        let large = Call::with_body(&uri, &HeaderMap::new(), &bodies, large).await.unwrap_err();
        assert_eq!(fields(large), ["body"]);
        assert_eq!(bodies.available_permits(), 1024, "the room is free again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_finds_no_room_or_does_not_come_is_refused_in_time() {
        let (uri, bodies): (Uri, _) = ("/v1/x".parse().unwrap(), Semaphore::new(1024));
        let with = async |body: Body| {
            let call = Call::with_body(&uri, &HeaderMap::new(), &bodies, body).await;
            call.unwrap_err().json()["error"]["status"].as_str().unwrap().to_owned()
        };
        let silent = || Body::from_stream(tokio_stream::pending::<Result<Vec<u8>, Infallible>>());
        assert_eq!(with(silent()).await, "DEADLINE_EXCEEDED");
        let _taken = bodies.acquire_many(1024).await.unwrap();
        assert_eq!(with(Body::from("{}")).await, "RESOURCE_EXHAUSTED");
        assert_eq!(with(silent()).await, "RESOURCE_EXHAUSTED");
    }
}
