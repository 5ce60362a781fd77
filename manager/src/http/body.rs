//! What a request of HTTP says in its body.

use super::call::Call;
use super::error::Failed;
use crate::rpc::REQUEST_BYTES_MAX;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Uri};
use rota_model::{FieldError, Refusal, RefusalKind, Retry};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::timeout;

/// How long a body may take to come.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// The body of a request: an object of JSON, or nothing.
async fn object(body: Body) -> Result<Map<String, Value>, Failed> {
    let wrong = |problem: String| Failed::from(FieldError::new("body", problem));
    let Ok(read) = timeout(BODY_PATIENCE, to_bytes(body, REQUEST_BYTES_MAX)).await else {
        let text = format!("the body did not come within {} s", BODY_PATIENCE.as_secs());
        return Err(Refusal::new(RefusalKind::DeadlineExceeded, Retry::Now, text).into());
    };
    let bytes = read.map_err(|error| {
        wrong(format!("cannot be read: {error}; the limit is {REQUEST_BYTES_MAX} bytes"))
    })?;
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_slice(&bytes).map_err(|error| wrong(format!("is no JSON object: {error}")))
}

impl Call {
    /// Of a request with one.
    pub async fn with_body(uri: &Uri, headers: &HeaderMap, body: Body) -> Result<Self, Failed> {
        let mut call = Self::new(uri, headers)?;
        call.body = object(body).await?;
        Ok(call)
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

    #[tokio::test]
    async fn a_body_is_an_object_whose_fields_are_known() {
        let uri: Uri = "/v1/x".parse().unwrap();
        let with = async |text: &'static str| {
            Call::with_body(&uri, &HeaderMap::new(), Body::from(text)).await
        };
        let mut it = with(r#"{"class": 5, "colour": "red"}"#).await.unwrap();
        assert_eq!(it.field::<String>("class"), "");
        assert_eq!(fields(it.request(()).unwrap_err()), ["class", "colour"]);
        assert_eq!(fields(with("[]").await.unwrap_err()), ["body"]);
        assert!(with("").await.unwrap().request(()).is_ok());
        let large = Body::from(vec![b' '; REQUEST_BYTES_MAX + 1]);
        let large = Call::with_body(&uri, &HeaderMap::new(), large).await.unwrap_err();
        assert_eq!(fields(large), ["body"]);
    }
}
