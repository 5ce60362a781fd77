//! Outside of the ring: a manager that was started with `--join` and that nobody has told its number
//! yet. It owns nothing and touches no folder; it only listens.
//!
//! ```text
//!  Join ──▶ checks: contact, config store, View ──▶ told: the process begins to work
//!   ▲          │ what speaks against it                       │ the View has it: inside
//!   └──────────┴──────────────────────────────────────────────┘ or refuses it: outside as before
//! ```
//!
//! The servers here go on until the process has its number, so that whoever asked gets the answer;
//! then the manager's own ones take the same ports over.

mod checks;
mod lost;

use crate::http::{self, LIMITS};
use crate::options::Options;
use crate::rpc::events::Events;
use crate::server::{no_place, unread};
use anyhow::{Context, Result};
use axum::extract;
use axum::http::StatusCode;
use axum::response;
use axum::routing::get;
use axum::{Json, Router};
use rota_daemon::accept::{Calls, Gate, Incoming, Need, Places};
use rota_daemon::{HttpNames, serve_http};
use rota_membership::ConfigStore;
use rota_model::{ClusterName, ManagerId, ManagerNumber, MemberId, Refusal, RefusalKind, Retry};
use rota_proto::operator::JoinAsk;
use rota_proto::serving;
use rota_proto::v1::operator_server::{Operator, OperatorServer};
use rota_proto::{operator, refusal, v1};
use rota_ring::ClaimRefused;
use serde::Serialize;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// Requests to join that wait while one is looked at. One person asks; a few more may be repetitions.
const ASKED_MAX: usize = 4;

/// Advice to whoever takes this manager for one of the ring, in milliseconds. Another manager may serve, and
/// this one may have its number soon.
pub const ELSEWHERE_MS: u64 = 100;

/// How long calls under way may take when the manager's own servers take the ports over.
pub const HAND_OVER: Duration = Duration::from_secs(1);

/// Where this manager serves.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// gRPC, `host:port`.
    pub grpc: String,
    /// HTTP, `host:port`.
    pub http: String,
}

type Answer = Result<v1::JoinResponse, Refusal>;

struct Asked {
    ask: JoinAsk,
    reply: oneshot::Sender<Answer>,
}

/// What listens while nobody has told a number.
pub struct Outside {
    asked: mpsc::Receiver<Asked>,
    /// What is looked at once more before anything else.
    again: Option<Asked>,
    stop: CancellationToken,
    servers: Vec<JoinHandle<()>>,
}

/// A number that the ring would take, and who waits for what becomes of it.
pub struct Told {
    /// The number.
    pub number: ManagerNumber,
    asked: Asked,
}

impl Told {
    /// Whether the disk that the number had is said to be gone for good.
    pub fn force_lost(&self) -> bool {
        self.asked.ask.force_lost
    }

    /// The View has this run now.
    pub fn joined(self, member: MemberId, epoch: u64) {
        let (number, incarnation) = (member.number.0, member.incarnation.0);
        // Whoever asked may have gone; the View shows it, too.
        let joined = v1::JoinResponse { number, incarnation, epoch };
        let _gone = self.asked.reply.send(Ok(joined));
    }

    /// It came to nothing.
    pub fn refused(self, why: Refusal) {
        let _gone = self.asked.reply.send(Err(why));
    }
}

impl Outside {
    /// Listens, on copies of the manager's own listeners.
    pub fn start(options: &Options, grpc: TcpListener, http: TcpListener) -> Self {
        let (asks, asked) = mpsc::channel(ASKED_MAX);
        let stop = CancellationToken::new();
        let health = Health {
            cluster: options.ring.cluster.clone(),
            id: options.id.clone(),
            claimed: false,
            outside: true,
        };
        let routes = Routes::new(OperatorServer::new(Door { asks }));
        let servers = vec![
            tokio::spawn(serve_grpc(grpc, routes, elsewhere, stop.clone())),
            tokio::spawn(serve_pages(http, health, options.http_names.clone(), stop.clone())),
        ];
        Self { asked, again: None, stop, servers }
    }

    /// Waits for a number that nothing speaks against. Every other one is refused, with the reason.
    /// `begun` is the number that the data folder was begun for.
    pub async fn told(
        &mut self,
        options: &Options,
        store: &dyn ConfigStore,
        addresses: &Addresses,
        begun: Option<ManagerNumber>,
    ) -> Result<Told> {
        loop {
            let asked = match self.again.take() {
                Some(asked) => asked,
                None => self.asked.recv().await.context("the server outside ended")?,
            };
            let contact = asked.ask.contact.as_deref();
            match checks::number(&asked.ask, options, store, addresses, begun).await {
                Ok(number) => {
                    tracing::info!(%number, contact, "told to join");
                    return Ok(Told { number, asked });
                }
                Err(why) => {
                    tracing::info!(contact, %why, "a request to join is refused");
                    let _gone = asked.reply.send(Err(why));
                }
            }
        }
    }

    /// The View refused what [`Outside::told`] let pass: somebody else was quicker.
    pub fn refused(&mut self, told: Told, why: &ClaimRefused) {
        tracing::info!(number = %told.number, %why, "the View refuses the number");
        let was_chosen = told.asked.ask.number.is_none();
        if was_chosen && matches!(why, ClaimRefused::Taken { .. }) {
            // Whoever asked named no number: there is another one, or a better word against it.
            self.again = Some(told.asked);
        } else {
            told.refused(checks::refused(why));
        }
    }

    /// Gives the ports to whoever listens there next.
    pub async fn end(self) {
        self.stop.cancel();
        for mut server in self.servers {
            if tokio::time::timeout(HAND_OVER, &mut server).await.is_err() {
                server.abort();
            }
        }
    }
}

/// The answer of `/healthz`.
#[derive(Serialize, Clone)]
struct Health {
    cluster: ClusterName,
    id: ManagerId,
    /// Whether this process holds a number.
    claimed: bool,
    /// It waits to be told one.
    outside: bool,
}

async fn serve_pages(
    listener: TcpListener,
    health: Health,
    names: HttpNames,
    stop: CancellationToken,
) {
    let answer = move || async move { (StatusCode::SERVICE_UNAVAILABLE, Json(health)) };
    let router = Router::new().route("/healthz", get(answer)).merge(http::elsewhere(elsewhere));
    serve_http(listener, router, LIMITS, names, stop.cancelled_owned()).await;
}

/// Serves gRPC for a manager that is none of the ring yet: these services, and health, which is NOT_SERVING.
/// The other services that a manager of the ring has are refused in its way: clients, nodes and peers know
/// that advice. What Rota does not have, this manager does not have either.
pub async fn serve_grpc(
    listener: TcpListener,
    routes: Routes,
    elsewhere: fn() -> Status,
    stop: CancellationToken,
) {
    // Its status is NOT_SERVING until the manager's own server says otherwise.
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
    let other_service = move |request: extract::Request| async move {
        let is_rotas = request.uri().path().starts_with("/rota.v1.");
        let status = if is_rotas { elsewhere() } else { unknown() };
        let refused: response::Response = status.into_http();
        refused
    };
    let routes = routes.add_service(health).into_axum_router().fallback(other_service);
    let served = serving::server()
        .layer(Calls { of_members: &[], refusal: no_place, need: Need::small, unread })
        .add_routes(Routes::from(routes))
        .serve_with_incoming_shutdown(
            Incoming::new(listener, Gate::new(Places::for_grpc())),
            stop.cancelled_owned(),
        )
        .await;
    if let Err(error) = served {
        tracing::warn!(%error, "the gRPC server outside of the ring failed");
    }
}

fn elsewhere() -> Status {
    refused_outside(Retry::AfterMs(ELSEWHERE_MS))
}

fn unknown() -> Status {
    Status::unimplemented("a manager that waits outside of the ring has no such service")
}

/// The service of operators, as far as there is anything to operate.
struct Door {
    asks: mpsc::Sender<Asked>,
}

fn refused_outside(retry: Retry) -> Status {
    let text = "this manager waits outside of the ring; `ringctl join` tells it its number";
    refusal::status(&Refusal::new(RefusalKind::NotServing, retry, text))
}

fn outside() -> Status {
    refused_outside(Retry::WhenChanged)
}

fn soon(text: &str) -> Status {
    refusal::status(&Refusal::new(RefusalKind::NotServing, Retry::AfterMs(1_000), text))
}

#[tonic::async_trait]
impl Operator for Door {
    type EventsStream = Events;

    async fn events(
        &self,
        _request: Request<v1::EventsRequest>,
    ) -> Result<Response<Self::EventsStream>, Status> {
        Err(outside())
    }

    async fn inspect(
        &self,
        _request: Request<v1::InspectRequest>,
    ) -> Result<Response<v1::InspectResponse>, Status> {
        Err(outside())
    }

    async fn signal(
        &self,
        _request: Request<v1::SignalRequest>,
    ) -> Result<Response<v1::SignalResponse>, Status> {
        Err(outside())
    }

    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinResponse>, Status> {
        let ask = operator::join(request.into_inner()).map_err(|it| refusal::status(&it))?;
        let (reply, answer) = oneshot::channel();
        let told = self.asks.try_send(Asked { ask, reply });
        told.map_err(|_| soon("this manager was told to join already"))?;
        match answer.await {
            Ok(Ok(joined)) => Ok(Response::new(joined)),
            Ok(Err(why)) => Err(refusal::status(&why)),
            Err(_) => Err(soon("this manager was told to join already, or stops")),
        }
    }
    async fn leave(
        &self,
        _request: Request<v1::LeaveRequest>,
    ) -> Result<Response<v1::LeaveResponse>, Status> {
        Err(outside())
    }

    async fn cancel(
        &self,
        _request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        Err(outside())
    }

    async fn order_node(
        &self,
        _request: Request<v1::OrderNodeRequest>,
    ) -> Result<Response<v1::OrderNodeResponse>, Status> {
        Err(outside())
    }

    async fn placements(
        &self,
        _request: Request<v1::PlacementsRequest>,
    ) -> Result<Response<v1::PlacementsResponse>, Status> {
        Err(outside())
    }

    async fn session_numbers(
        &self,
        _request: Request<v1::SessionNumbersRequest>,
    ) -> Result<Response<v1::SessionNumbersResponse>, Status> {
        Err(outside())
    }

    async fn mend(
        &self,
        _request: Request<v1::MendRequest>,
    ) -> Result<Response<v1::MendResponse>, Status> {
        Err(outside())
    }
}
