//! The HTTP side: what is served, and how much.

use crate::writer::{Job, Published};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use rota_daemon::{HttpLimits, HttpNames, serve_http};
use rota_membership::port::{WAIT_MAX, check_change};
use rota_membership::wire::{CasBody, REQUEST_BYTES_MAX};
use rota_model::ClusterName;
use serde::Deserialize;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

const LIMITS: HttpLimits = HttpLimits {
    // 100 managers with five each (one waits, four are pooled), twice over while a restarted
    // manager's old ones die.
    connections: 1024,
    // Clients keep idle connections for a shorter time.
    idle: Duration::from_secs(60),
    // Cut off in the middle of a change, a manager would not know what became of it.
    lifetime: None,
    last_request: Duration::from_secs(5),
    drain: Duration::from_secs(5),
};

/// How long a request's body may take, in ms.
const BODY_MS: u64 = 10_000;

/// How long a change may wait for its place in the queue and for the disk, in ms each.
const WRITE_MS: u64 = 10_000;

/// What every request needs.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// The newest state on disk.
    pub published: watch::Receiver<Published>,
    /// To the writer.
    pub jobs: mpsc::Sender<Job>,
    /// Turns true when the process ends: waiting queries are answered then.
    pub stopping: watch::Receiver<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateQuery {
    index: Option<u64>,
    wait_ms: Option<u64>,
}

/// A refusal: status and one line for people.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}

fn routes(shared: Shared) -> Router {
    Router::new()
        .route("/v1/state", get(on_state))
        .route("/v1/cas", post(on_cas))
        .route("/healthz", get(on_health))
        .with_state(shared)
}

fn json(status: StatusCode, body: Bytes) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn on_health(State(shared): State<Shared>) -> Response {
    let now = shared.published.borrow().clone();
    let health = serde_json::json!({
        "ok": true, "cluster": shared.cluster, "index": now.index, "epoch": now.epoch,
    });
    json(StatusCode::OK, Bytes::from(health.to_string()))
}

async fn on_state(State(mut shared): State<Shared>, Query(query): Query<StateQuery>) -> Response {
    if let Some(index) = query.index {
        let wait = Duration::from_millis(query.wait_ms.unwrap_or(0)).min(WAIT_MAX);
        let changed = async {
            // Their errors say that the other side ended; then the answer is due all the same.
            tokio::select! {
                _ = shared.published.wait_for(|it| it.index != index) => {}
                _ = shared.stopping.wait_for(|stopping| *stopping) => {}
            }
        };
        // An error says that the wait has passed; the state is answered either way.
        timeout(wait, changed).await.ok();
    }
    let now = shared.published.borrow().clone();
    json(StatusCode::OK, now.json)
}

async fn on_cas(State(shared): State<Shared>, request: Request) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let body = read_body(&head.headers, body).await?;
    let body: CasBody = serde_json::from_slice(&body).map_err(|error| {
        Refusal(StatusCode::BAD_REQUEST, format!("the request body does not parse: {error}"))
    })?;
    check(&shared.cluster, &body)?;
    let (answer, outcome) = oneshot::channel();
    let job = Job { change: body.change, answer };
    let limit = Duration::from_millis(WRITE_MS);
    if shared.jobs.send_timeout(job, limit).await.is_err() {
        let text = format!("the queue stayed full for {WRITE_MS} ms; nothing was written");
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, text));
    }
    match timeout(limit, outcome).await {
        Ok(Ok(it)) if it.written => Ok(json(StatusCode::OK, it.state.json)),
        Ok(Ok(it)) => Ok(json(StatusCode::CONFLICT, it.state.json)),
        Ok(Err(_)) | Err(_) => {
            let text = "the disk did not confirm the change; it may be written or not";
            Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, text.into()))
        }
    }
}

fn check(cluster: &ClusterName, body: &CasBody) -> Result<(), Refusal> {
    let other = |field: &str, found: &ClusterName| {
        let text = format!("{field} is {found:?}; this config store is of cluster {cluster:?}");
        Err(Refusal(StatusCode::FORBIDDEN, text))
    };
    if body.cluster != *cluster {
        return other("cluster", &body.cluster);
    }
    if let Some(view) = body.change.view.as_ref().filter(|it| it.cluster != *cluster) {
        return other("view.cluster", &view.cluster);
    }
    check_change(&body.change)
        .map_err(|error| Refusal(StatusCode::BAD_REQUEST, format!("the change's {error}")))
}

async fn read_body(headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let too_long = || {
        let text =
            format!("the request body is longer than the limit of {REQUEST_BYTES_MAX} bytes");
        Refusal(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok());
    let announced = announced.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    if usize::try_from(announced).map_or(true, |it| it > REQUEST_BYTES_MAX) {
        return Err(too_long());
    }
    match timeout(Duration::from_millis(BODY_MS), to_bytes(body, REQUEST_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_long()),
        Ok(Err(error)) => {
            let text = format!("the request body broke off: {error}");
            Err(Refusal(StatusCode::BAD_REQUEST, text))
        }
        Err(_) => {
            let text = format!("the request body took longer than {BODY_MS} ms");
            Err(Refusal(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|it| it.is::<http_body_util::LengthLimitError>())
}

/// Accepts and serves until `stopping` turns true, then lets open requests end.
pub async fn serve(listener: TcpListener, names: HttpNames, shared: Shared) {
    let mut stopping = shared.stopping.clone();
    let stop = async move {
        // An error says that whoever stops it has ended.
        stopping.wait_for(|stopping| *stopping).await.ok();
    };
    serve_http(listener, routes(shared), LIMITS, names, stop).await;
}
