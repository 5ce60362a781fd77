//! The paths of the tree of resources: which of them is which call.

use super::error::Failed;
use super::tree::Tree;
use super::verbs::wrong_method;
use super::{
    content, events, lives, managers, nodes, openapi, pools, route, sessions, tasks, watch, writes,
};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{MethodRouter, any, get, post};
use axum::{Json, Router};
use rota_model::{Refusal, RefusalKind, Retry};
use serde_json::{Value, json};
use std::sync::Arc;
use tonic::Status;

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
