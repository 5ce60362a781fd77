//! The tree of resources: which path is which call.

use super::body::BODIES_KIB_MAX;
use super::call::last_with_verb;
use super::error::Failed;
use super::{
    content, events, lives, managers, nodes, openapi, pools, route, sessions, tasks, watch, writes,
};
use crate::rpc::content::ContentService;
use crate::rpc::documents::DocumentsService;
use crate::rpc::operator::OperatorService;
use crate::rpc::pools::PoolsService;
use crate::rpc::tasks::TasksService;
use crate::rpc::{SessionsService, Shared};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use axum::{Json, Router};
use rota_model::{ClusterName, FieldError, ManagerNumber, Refusal, RefusalKind, Retry};
use rota_proto::refusal;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::Status;

/// Most lists that are made, or sent and not read yet: each may have some 2 MiB. Too low: lists wait for readers
/// that are slow. Too high: those fill the memory.
const LISTS_MAX: usize = 32;

/// How long a list may wait for its place, and what is advised then.
const PLACE_PATIENCE: Duration = Duration::from_secs(2);
const FULL_RETRY_MS: u64 = 500;

/// What the calls of the tree need.
pub struct Tree {
    /// What the services share.
    pub shared: Arc<Shared>,
    /// The services, which carry everything out.
    pub sessions: SessionsService,
    /// The same of operators.
    pub operator: OperatorService,
    /// The same of pools.
    pub pools: PoolsService,
    /// The same of tasks.
    pub tasks: TasksService,
    /// The same of documents.
    pub documents: DocumentsService,
    /// The same of content.
    pub content: ContentService,
    lists: Arc<Semaphore>,
    /// Room for bodies that are being read, in KiB.
    pub bodies: Semaphore,
    /// Places of watches.
    pub watches: Arc<Semaphore>,
}

/// What a call comes to.
pub type Answer = Result<Response, Failed>;

/// A place of a list. It is free again when the list was written to its connection, or nobody reads it any more.
pub struct ListPlace(OwnedSemaphorePermit);

/// A list on its way, with its place.
struct Held {
    text: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl ListPlace {
    /// The answer with that list.
    pub fn holds(self, list: &impl Serialize) -> Answer {
        let text = serde_json::to_vec(list).map_err(|error| {
            let text = format!("the list is no JSON: {error}");
            Refusal::new(RefusalKind::Internal, Retry::Never, text)
        })?;
        // Whoever writes it to the connection drops it then.
        let body = Body::from(Bytes::from_owner(Held { text, _place: self.0 }));
        let kind = [(header::CONTENT_TYPE, "application/json")];
        Ok((kind, body).into_response())
    }
}

impl Tree {
    /// The tree over what the services share.
    pub fn new(shared: Arc<Shared>, cluster: ClusterName, number: ManagerNumber) -> Self {
        Self {
            sessions: SessionsService { shared: shared.clone() },
            operator: OperatorService { shared: shared.clone(), cluster, number },
            pools: PoolsService { shared: shared.clone() },
            tasks: TasksService { shared: shared.clone() },
            documents: DocumentsService::new(shared.clone()),
            content: ContentService { shared: shared.clone() },
            lists: Arc::new(Semaphore::new(LISTS_MAX)),
            bodies: Semaphore::new(BODIES_KIB_MAX),
            watches: Arc::new(Semaphore::new(watch::WATCHES_MAX)),
            shared,
        }
    }

    /// Waits for a place of a list.
    pub async fn place(&self) -> Result<ListPlace, Failed> {
        let place = timeout(PLACE_PATIENCE, self.lists.clone().acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or_else(|| {
            let text = format!("{LISTS_MAX} lists are made or not read yet, the limit");
            Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_RETRY_MS), text)
        })?;
        Ok(ListPlace(place))
    }
}

/// The refusal of a part of a path that leads to nothing.
pub fn missing(kind: &str, part: &str, list: &str) -> Failed {
    let text = format!("there is no {kind} {part:?}; GET {list} shows those that are there");
    let refused = Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text);
    Refusal { fields: vec![FieldError::new(kind, "is not there")], ..refused }.into()
}

/// `/v1`: where everything is.
async fn index(State(tree): State<Arc<Tree>>) -> Json<Value> {
    Json(json!({
        "cluster": tree.shared.cluster,
        "links": {
            "self": "/v1",
            "openapi": "/v1/openapi.json",
            "managers": "/v1/managers",
            "pools": "/v1/pools",
            "content_updates": "/v1/content/{repository}/updates{?since,pool,category}",
            "events": "/v1/events{?last,after,namespace,id,kind}",
            "watch_events": "/v1/events:watch{?after,namespace,id,kind}",
            "sessions": "/v1/sessions",
            "watch": "/v1/sessions:watch",
            "namespace_sessions": "/v1/namespaces/{namespace}/sessions",
            "session": "/v1/namespaces/{namespace}/sessions/{id}",
            "namespace_tasks": "/v1/namespaces/{namespace}/tasks",
            "route": "/route{?session,namespace,class}",
            "session_life": "/v1/namespaces/{namespace}/sessions/{id}/life",
            "session_by_query": "/v1/session{?namespace,id}",
        },
    }))
}

async fn unknown(uri: Uri) -> Failed {
    let text = format!("there is no resource {:?}; GET /v1 shows where everything is", uri.path());
    Refusal::new(RefusalKind::NotFound, Retry::Never, text).into()
}

/// The refusal of a method that a resource does not have. Those of a verb stand behind the same route as those of the
/// session.
pub async fn wrong_method(uri: Uri) -> Response {
    let text = "this resource has no such method; GET /v1/openapi.json tells which it has";
    let failed = Failed::from(refusal::wrong_method(text));
    let mut response = failed.as_code(StatusCode::METHOD_NOT_ALLOWED);
    let path = uri.path();
    let is_task = path.starts_with("/v1/namespaces/") && path.contains("/tasks/");
    let verbs = if is_task { &tasks::VERBS[..] } else { &writes::VERBS };
    let allow = match last_with_verb(&uri, verbs) {
        (_, Some(_)) => "POST",
        (_, None) if is_task => "GET,HEAD,DELETE",
        (_, None) => "GET,HEAD",
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// What a manager answers that serves nothing yet: whoever asks goes to another one, and finds the same there. To a
/// gateway it is a bad one (502): by that it is told from a manager that serves, but one session not (503).
pub fn elsewhere(refused: fn() -> Status) -> Router {
    let refuse = move || async move { Failed::from(refused()) };
    let no_route = move || async move { Failed::from(refused()).as_code(StatusCode::BAD_GATEWAY) };
    Router::new()
        .route("/v1", any(refuse))
        .route("/v1/{*rest}", any(refuse))
        .route("/route", any(no_route))
}

/// Whatever keeps answers asks each time whether they still hold: all of this may change at any moment.
async fn ask_again(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A path, and what answers there.
type Route = (&'static str, MethodRouter<Arc<Tree>>);

/// All of its paths: each is described in `openapi.json`.
pub fn routes() -> Vec<Route> {
    vec![
        ("/v1", get(index)),
        ("/v1/openapi.json", get(openapi::show)),
        ("/v1/managers", get(managers::list)),
        ("/v1/managers/{manager}", get(managers::one)),
        ("/v1/content/{repository}/updates", get(content::updates)),
        ("/v1/pools", get(pools::list)),
        ("/v1/pools/{pool}", get(pools::one)),
        ("/v1/pools/{pool}/nodes", get(nodes::list)),
        ("/v1/pools/{pool}/nodes/{node}", get(nodes::one)),
        ("/v1/pools/{pool}/nodes/{node}/sessions", get(nodes::sessions)),
        ("/v1/pools/{pool}/nodes/{node}/sessions/{number}", get(nodes::session)),
        ("/v1/sessions", get(sessions::of_ring)),
        ("/v1/sessions:watch", get(watch::of_ring)),
        ("/v1/namespaces/{namespace}/sessions", get(sessions::of_namespace)),
        ("/v1/namespaces/{namespace}/sessions:watch", get(watch::of_namespace)),
        ("/v1/namespaces/{namespace}/sessions/{id}", get(sessions::by_path).post(writes::by_path)),
        ("/v1/namespaces/{namespace}/sessions/{id}/life", get(lives::by_path)),
        ("/v1/namespaces/{namespace}/tasks", get(tasks::list)),
        (
            "/v1/namespaces/{namespace}/tasks/{id}",
            get(tasks::one).post(tasks::by_path).delete(tasks::delete),
        ),
        ("/v1/events", get(events::list)),
        ("/v1/events:watch", get(events::watch)),
        ("/v1/session", get(sessions::by_query)),
        ("/v1/session:watch", get(watch::by_query)),
        ("/v1/session:open", post(writes::open_by_query)),
        ("/v1/session:close", post(writes::close_by_query)),
        ("/v1/session:send", post(writes::send_by_query)),
        ("/v1/session:keepalive", post(writes::keep_alive_by_query)),
        ("/v1/session:update", post(writes::update_by_query)),
        ("/v1/session/life", get(lives::by_query)),
        ("/route", get(route::show)),
    ]
}

/// The tree.
pub fn router(tree: Arc<Tree>) -> Router {
    let router = Router::new();
    let router = routes().into_iter().fold(router, |router, (path, at)| router.route(path, at));
    router
        .route("/v1/", any(unknown))
        .route("/v1/{*rest}", any(unknown))
        .method_not_allowed_fallback(wrong_method)
        .layer(map_response(ask_again))
        .with_state(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    #[tokio::test]
    async fn a_list_keeps_its_place_until_it_was_read_or_nobody_reads_it() {
        let lists = Arc::new(Semaphore::new(1));
        for is_read in [true, false] {
            let place = ListPlace(lists.clone().try_acquire_owned().unwrap());
            let answer = place.holds(&["a", "b"]).unwrap_or_else(|it| panic!("{it:?}"));
            assert_eq!(lists.available_permits(), 0);
            if is_read {
                let read = to_bytes(answer.into_body(), 100).await.unwrap();
                assert_eq!(read, "[\"a\",\"b\"]");
            } else {
                drop(answer);
            }
            assert_eq!(lists.available_permits(), 1, "{is_read}");
        }
    }

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
