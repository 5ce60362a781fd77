//! HTTP: pages for scrapers and browsers, and the tree of resources under `/v1`, and `/route` for gateways.
//!
//! ```text
//!  /metrics, /healthz, /web/PATH ── pages
//!  /v1/... ── paths ── call: names of fields ──▶ the service of gRPC ──▶ shown: JSON with links
//!                                                    └── a status ────▶ error: the same one as JSON
//! ```
//! The tree decides nothing: each of its calls is a call of a gRPC service, with its checks, deadline and refusals.

mod body;
mod call;
mod content;
mod error;
mod events;
mod filter;
mod links;
mod lives;
mod managers;
mod nodes;
mod openapi;
mod pages;
mod paging;
mod paths;
mod pools;
mod route;
mod sessions;
mod shown;
mod tags;
mod tasks;
mod tree;
mod verbs;
mod watch;
mod which;
mod writes;

pub use pages::Pages;
pub use paths::elsewhere;

use axum::Router;
use axum::routing::get;
use rota_daemon::{HttpLimits, HttpNames, serve_http};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tree::Tree;

/// Scrapers, health checks, people with a browser, and clients without gRPC. Who says nothing makes room soon, so
/// that a flood of silent connections keeps nobody out for long.
pub const LIMITS: HttpLimits = HttpLimits {
    connections: 512,
    idle: Duration::from_secs(10),
    lifetime: Some(Duration::from_secs(300)),
    // The longest call. A body may wait 10 s for room before it, and take 10 s to come. The rest is for a place of a
    // list, and for the answer.
    last_request: Duration::from_millis(rota_protocol::REQUEST_MS + 25_000),
    drain: Duration::from_secs(5),
};

/// Serves the pages and the tree until the process stops.
pub async fn serve(listener: TcpListener, pages: Pages, names: HttpNames, stop: CancellationToken) {
    let tree = Tree::new(pages.shared.clone(), pages.cluster.clone(), pages.number);
    let router = Router::new()
        .route("/metrics", get(pages::metrics))
        .route("/healthz", get(pages::healthz))
        .route("/web/{*path}", get(pages::web))
        .with_state(Arc::new(pages))
        .merge(paths::router(Arc::new(tree)));
    serve_http(listener, router, LIMITS, names, stop.cancelled_owned()).await;
}
