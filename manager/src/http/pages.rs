//! `/metrics` for Prometheus, `/healthz` for whoever must know whether this manager serves, `/web/PATH` for small
//! resources that administrators put.

use crate::metrics::{Exposition, Look};
use crate::rpc::{Shared, documents};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use rota_daemon::accept::{Counts, Gate};
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_ring::View;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a look waits for the driver.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the pages need.
pub struct Pages {
    /// The cluster.
    pub cluster: ClusterName,
    /// This manager's number.
    pub number: ManagerNumber,
    /// Its name.
    pub id: ManagerId,
    /// What the services share.
    pub shared: Arc<Shared>,
    /// What was counted.
    pub exposition: Exposition,
    /// What comes in for gRPC.
    pub gate: Gate,
}

/// The answer of `/healthz`.
#[derive(Serialize)]
struct Health {
    cluster: ClusterName,
    number: ManagerNumber,
    id: ManagerId,
    /// Whether this process holds its number.
    claimed: bool,
    incarnation: Option<u64>,
    /// 0 before a View was seen.
    epoch: u64,
    config_store: ConfigStoreHealth,
    /// Partitions here, by role.
    partitions: BTreeMap<&'static str, u32>,
    /// Partitions owned here of which no copy was known to be complete, and what became of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost_copies: Vec<LostCopy>,
    requests_waiting: usize,
    /// Connections for gRPC.
    connections: Counts,
}

#[derive(Serialize)]
struct LostCopy {
    partition: ManagerNumber,
    what: String,
}

/// What is to be told of partitions that this manager owns and that no copy was known to hold completely.
fn lost_copies(view: &View, owner: ManagerNumber) -> Vec<LostCopy> {
    let owned = view.parts.iter().filter(|(_, part)| part.owner == owner);
    let lost = owned.filter_map(|(partition, part)| {
        let what = part.account()?;
        Some(LostCopy { partition: *partition, what })
    });
    lost.collect()
}

#[derive(Serialize)]
struct ConfigStoreHealth {
    reachable: bool,
    /// Since when it is away.
    away_ms: Option<u64>,
    error: Option<String>,
}

impl Pages {
    fn config_store(&self) -> ConfigStoreHealth {
        let trouble = self.shared.config_trouble();
        let away = trouble.as_ref().map(|it| it.since.elapsed().as_millis());
        ConfigStoreHealth {
            reachable: trouble.is_none(),
            away_ms: away.map(|it| u64::try_from(it).unwrap_or(u64::MAX)),
            error: trouble.as_ref().map(|it| it.error.to_string()),
        }
    }

    async fn look(&self) -> Option<Look> {
        let stats = tokio::time::timeout(PATIENCE, self.shared.mailbox.stats()).await;
        let stats = stats.ok()?.ok()?;
        let seen = self.shared.seen.borrow();
        Some(Look {
            stats,
            view: seen.view.clone(),
            mailbox: self.shared.mailbox.depth(),
            config_store_reachable: self.config_store().reachable,
            connections: self.gate.counts(),
        })
    }
}

fn stuck() -> Response {
    let text = format!("the driver did not answer within {} s\n", PATIENCE.as_secs());
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

pub(super) async fn metrics(State(pages): State<Arc<Pages>>) -> Response {
    let look = pages.look().await;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], pages.exposition.render(look.as_ref())).into_response()
}

pub(super) async fn healthz(State(pages): State<Arc<Pages>>) -> Response {
    let Some(look) = pages.look().await else { return stuck() };
    let member = pages.shared.seen.borrow().member;
    let mut partitions: BTreeMap<&'static str, u32> = BTreeMap::new();
    for part in &look.stats.parts {
        *partitions.entry(part.role).or_default() += 1;
    }
    let view = pages.shared.seen.borrow().view.clone();
    let health = Health {
        cluster: pages.cluster.clone(),
        number: pages.number,
        id: pages.id.clone(),
        claimed: member.is_some(),
        incarnation: member.map(|it| it.incarnation.0),
        epoch: look.epoch(),
        config_store: pages.config_store(),
        partitions,
        lost_copies: view.map(|view| lost_copies(&view, pages.number)).unwrap_or_default(),
        requests_waiting: look.stats.requests_waiting,
        connections: pages.gate.counts(),
    };
    let code = match member {
        Some(_) => StatusCode::OK,
        None => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(health)).into_response()
}

/// A small web resource of the namespace for configuration.
pub(super) async fn web(State(pages): State<Arc<Pages>>, Path(path): Path<String>) -> Response {
    let missing = || (StatusCode::NOT_FOUND, "there is no such resource\n").into_response();
    match documents::web(&pages.shared, &path, Instant::now() + PATIENCE).await {
        Ok(Some((mime, body))) => {
            // What anybody may have written is a page of nobody: it runs nothing and loads nothing.
            let sure = [
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
            ];
            ([(header::CONTENT_TYPE, mime)], sure, body).into_response()
        }
        Ok(None) => missing(),
        Err((code, why)) => {
            let code = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            (code, format!("{why}\n")).into_response()
        }
    }
}
