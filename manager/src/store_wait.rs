//! A start for which the config store does not answer: it waits, says so, and lets whoever asks know that
//! this manager is not ready.
//!
//! ```text
//!  read ──▶ answers: the start goes on
//!    └────▶ does not: log every 5 s · /healthz 503 · gRPC health NOT_SERVING, calls NOT_SERVING ──▶ read …
//! ```
//! The servers here begin with the first read that fails, and end before the start goes on: then the
//! manager's own ones take the same ports over.

use crate::http::{self, LIMITS};
use crate::options::Options;
use crate::outside::{ELSEWHERE_MS, HAND_OVER, serve_grpc};
use crate::start::again;
use anyhow::{Context, Result, bail};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use rota_daemon::serve_http;
use rota_membership::{ConfigStore, StoreError};
use rota_model::{ClusterName, ManagerId, Refusal, RefusalKind, Retry};
use rota_proto::refusal;
use rota_ring::ConfigState;
use serde::Serialize;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;

/// Pause between attempts to read the config store.
const PAUSE: Duration = Duration::from_millis(50);

/// How often the log says that it is away.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// Waits for the config store, for a bounded time or for as long as it takes.
pub struct StoreWait<'a> {
    how: How<'a>,
    /// Since when it does not answer.
    away: Option<Away>,
}

enum How<'a> {
    /// Somebody waits for this start, and is told.
    AtMost(Duration),
    /// Nobody does. These doors are nobody's so far.
    Served { options: &'a Options, grpc: &'a TcpListener, http: &'a TcpListener },
}

struct Away {
    since: Instant,
    said: Option<Instant>,
    servers: Option<Servers>,
}

struct Servers {
    told: watch::Sender<String>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl<'a> StoreWait<'a> {
    /// Gives up after so long.
    pub fn at_most(limit: Duration) -> Self {
        Self { how: How::AtMost(limit), away: None }
    }

    /// Waits for as long as it takes; meanwhile copies of these listeners are served.
    pub fn served(options: &'a Options, grpc: &'a TcpListener, http: &'a TcpListener) -> Self {
        Self { how: How::Served { options, grpc, http }, away: None }
    }

    /// Reads the config store, as soon as it answers.
    ///
    /// # Errors
    /// It answers, and cannot be used; or it did not answer in time.
    pub async fn read(&mut self, store: &dyn ConfigStore) -> Result<ConfigState> {
        loop {
            match store.read().await {
                Ok(state) => {
                    self.is_back().await;
                    return Ok(state);
                }
                Err(error @ (StoreError::Unreachable(_) | StoreError::Timeout(_))) => {
                    self.is_away(error)?;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error @ (StoreError::Broken(_) | StoreError::Refused(_))) => {
                    return Err(error).context("--config-store");
                }
            }
        }
    }

    fn is_away(&mut self, error: StoreError) -> Result<()> {
        let now = Instant::now();
        let away = self.away.get_or_insert(Away { since: now, said: None, servers: None });
        let for_long = now - away.since;
        match &self.how {
            How::AtMost(limit) => {
                if for_long >= *limit {
                    let text = format!("--config-store: no answer for {} s", limit.as_secs());
                    return Err(error).context(text);
                }
            }
            How::Served { options, grpc, http } => match &away.servers {
                Some(servers) => drop(servers.told.send_replace(error.to_string())),
                None => away.servers = Some(Servers::start(options, (grpc, http), &error)?),
            },
        }
        if away.said.is_none_or(|it| now - it >= SAID_EVERY) {
            away.said = Some(now);
            let away_s = for_long.as_secs();
            tracing::warn!(%error, away_s, "--config-store does not answer; this manager waits for it");
        }
        Ok(())
    }

    async fn is_back(&mut self) {
        let Some(away) = self.away.take() else { return };
        let away_ms = u64::try_from(away.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(away_ms, "the config store answers; the start goes on");
        let Some(mut servers) = away.servers else { return };
        servers.stop.cancel();
        for mut task in servers.tasks.drain(..) {
            if tokio::time::timeout(HAND_OVER, &mut task).await.is_err() {
                task.abort();
            }
        }
    }

    /// A pause before the next read, while somebody else is at work in the store.
    ///
    /// # Errors
    /// That has gone on since `since` for too long.
    pub async fn pause(since: Instant, limit: Duration) -> Result<()> {
        if since.elapsed() >= limit {
            bail!("the cluster could not be founded within {limit:?}");
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

impl Servers {
    fn start(
        options: &Options,
        (grpc, http): (&TcpListener, &TcpListener),
        error: &StoreError,
    ) -> Result<Self> {
        let (told, why) = watch::channel(error.to_string());
        let stop = CancellationToken::new();
        let page = Page {
            cluster: options.ring.cluster.clone(),
            id: options.id.clone(),
            since: Instant::now(),
            why,
        };
        let router = Router::new().route(
            "/healthz",
            get(move || {
                let health = page.health();
                async move { (StatusCode::SERVICE_UNAVAILABLE, Json(health)) }
            }),
        );
        let router = router.merge(http::elsewhere(refused));
        let (names, stopped) = (options.http_names.clone(), stop.clone().cancelled_owned());
        let pages = serve_http(again(http)?, router, LIMITS, names, stopped);
        let calls = serve_grpc(again(grpc)?, Routes::default(), refused, stop.clone());
        let tasks = vec![tokio::spawn(pages), tokio::spawn(calls)];
        Ok(Self { told, stop, tasks })
    }
}

impl Drop for Servers {
    /// Also when the process is told to end while it waits.
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn refused() -> Status {
    let text =
        "this manager has just started and waits for the config store; another one may serve";
    refusal::status(&Refusal::new(RefusalKind::NotServing, Retry::AfterMs(ELSEWHERE_MS), text))
}

#[derive(Clone)]
struct Page {
    cluster: ClusterName,
    id: ManagerId,
    since: Instant,
    why: watch::Receiver<String>,
}

/// The answer of `/healthz`.
#[derive(Serialize)]
struct Health {
    cluster: ClusterName,
    id: ManagerId,
    /// Whether this process holds a number.
    claimed: bool,
    config_store: StoreAway,
}

#[derive(Serialize)]
struct StoreAway {
    reachable: bool,
    away_ms: u64,
    error: String,
}

impl Page {
    fn health(&self) -> Health {
        let away_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let error = self.why.borrow().clone();
        let config_store = StoreAway { reachable: false, away_ms, error };
        Health { cluster: self.cluster.clone(), id: self.id.clone(), claimed: false, config_store }
    }
}
