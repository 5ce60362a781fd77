//! Client of the embedded config store's process: HTTP/1.1 and JSON, a deadline on every request.

use crate::port::{CasReply, ConfigStore, StoreError, StoreFuture, WAIT_MAX};
use crate::wire::{
    ANSWER_BYTES_MAX, CasBody, Floor, REQUEST_BYTES_MAX, not_older, state_from_json,
};
use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rota_model::address::Address;
use rota_model::{ClusterName, FieldError};
use rota_ring::{Change, ConfigState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long an idle connection is kept, in ms: shorter than the store keeps it (60 s), so that a
/// request seldom meets a connection that the other side is closing.
const IDLE_MS: u64 = 20_000;

/// Idle connections kept: one for the blocking query, the others for reads and writes beside it.
const IDLE_CONNECTIONS_MAX: usize = 4;

/// A client; clones share its connections and what it saw.
#[derive(Clone, Debug)]
pub struct EmbeddedStore {
    address: String,
    cluster: ClusterName,
    deadline: Duration,
    http: Client<HttpConnector, Full<Bytes>>,
    /// How far this client saw the store: a state below it is older than something that was acknowledged.
    seen: Arc<Mutex<Floor>>,
}

impl EmbeddedStore {
    /// A client of the store at `address` (`host:port`). Every answer is awaited for `deadline`,
    /// a blocking query's for its wait and `deadline`. Nothing is sent yet.
    ///
    /// # Errors
    /// When `address` is no `host:port`.
    pub fn new(
        address: &str,
        cluster: ClusterName,
        deadline: Duration,
    ) -> Result<Self, FieldError> {
        if Address::parse(address).is_none() {
            return Err(FieldError::new("config store address", "must be host:port"));
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(deadline));
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_millis(IDLE_MS))
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        let seen = Arc::default();
        Ok(Self { address: address.to_owned(), cluster, deadline, http, seen })
    }

    /// Where the store is, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<(StatusCode, Bytes), StoreError> {
        let uri = Uri::builder().scheme("http").authority(self.address.as_str());
        let uri = uri.path_and_query(path).build().expect("the address was checked by new");
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .expect("method, address and header are valid");
        let exchange = async {
            let answer = self.http.request(request).await.map_err(|error| broken_off(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            match body {
                Ok(body) => Ok((status, body.to_bytes())),
                Err(error) if error.is::<LengthLimitError>() => Err(StoreError::Broken(format!(
                    "its answer is longer than {ANSWER_BYTES_MAX} bytes"
                ))),
                Err(error) => Err(broken_off(error.as_ref())),
            }
        };
        match tokio::time::timeout(deadline, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::Timeout(deadline)),
        }
    }

    async fn state(&self, path: &str, deadline: Duration) -> Result<ConfigState, StoreError> {
        let floor = self.floor();
        match self.call(Method::GET, path, Bytes::new(), deadline).await? {
            (StatusCode::OK, body) => self.parse(&body, floor),
            (status, body) => Err(refused(status, &body)),
        }
    }

    /// Whatever was seen before a request must show in its answer.
    fn floor(&self) -> Floor {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parse(&self, body: &[u8], floor: Floor) -> Result<ConfigState, StoreError> {
        let state = state_from_json(&self.cluster, body);
        let state = state.and_then(|it| not_older(it, floor)).map_err(StoreError::Broken)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Floor::of(&state).max(*seen);
        Ok(state)
    }

    async fn write(&self, change: Change) -> Result<CasReply, StoreError> {
        let body = CasBody { cluster: self.cluster.clone(), change };
        let json = serde_json::to_vec(&body).expect("strings, numbers and maps serialise");
        if json.len() > REQUEST_BYTES_MAX {
            let length = json.len();
            return Err(StoreError::Refused(format!(
                "the change is {length} bytes long; the limit is {REQUEST_BYTES_MAX}"
            )));
        }
        let floor = self.floor();
        match self.call(Method::POST, "/v1/cas", Bytes::from(json), self.deadline).await? {
            (StatusCode::OK, body) => Ok(CasReply::Done(self.parse(&body, floor)?)),
            (StatusCode::CONFLICT, body) => Ok(CasReply::Conflict(self.parse(&body, floor)?)),
            (status, body) => Err(refused(status, &body)),
        }
    }
}

impl ConfigStore for EmbeddedStore {
    fn read(&self) -> StoreFuture<'_, Result<ConfigState, StoreError>> {
        Box::pin(self.state("/v1/state", self.deadline))
    }

    fn cas(&self, change: Change) -> StoreFuture<'_, CasReply> {
        Box::pin(async move { self.write(change).await.unwrap_or_else(CasReply::Unknown) })
    }

    fn next(
        &self,
        after_index: u64,
        wait: Duration,
    ) -> StoreFuture<'_, Result<ConfigState, StoreError>> {
        Box::pin(async move {
            let wait = wait.min(WAIT_MAX);
            let path = format!("/v1/state?index={after_index}&wait_ms={}", wait.as_millis());
            self.state(&path, wait + self.deadline).await
        })
    }
}

fn broken_off(error: &(dyn std::error::Error + 'static)) -> StoreError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    StoreError::Unreachable(text)
}

fn refused(status: StatusCode, body: &[u8]) -> StoreError {
    // The store's own reasons are one line; anything else may be a page of somebody else's.
    let reason = String::from_utf8_lossy(&body[..body.len().min(500)]);
    StoreError::Refused(format!("{status}: {}", reason.trim()))
}
