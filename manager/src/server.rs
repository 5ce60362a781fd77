//! The gRPC server: which services, with which limits.

use crate::driver_state::DriverState;
use crate::link::{CONNECTION_WINDOW_BYTES, MESSAGE_BYTES_MAX, STREAM_WINDOW_BYTES};
use crate::mailbox::Mailbox;
use crate::nodes::NodesService;
use crate::peer::PeersService;
use crate::rpc::content::ContentService;
use crate::rpc::documents::DocumentsService;
use crate::rpc::namespaces::NamespacesService;
use crate::rpc::operator::OperatorService;
use crate::rpc::pools::PoolsService;
use crate::rpc::programs::ProgramsService;
use crate::rpc::tasks::TasksService;
use crate::rpc::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX, SessionsService, Shared};
use anyhow::{Context, Result};
use rota_daemon::accept::{Calls, Gate, Incoming, Need};
use rota_model::{ClusterName, ManagerNumber, Refusal, RefusalKind, Retry};
use rota_proto::bounded::Bounded;
use rota_proto::documents::{
    ANSWER_BYTES_MAX, MESSAGE_BYTES_MAX as DOCUMENT_BYTES_MAX,
    REQUEST_BYTES_MAX as DOCUMENT_REQUEST_BYTES_MAX,
};
use rota_proto::v1::content_server::ContentServer;
use rota_proto::v1::documents_server::DocumentsServer;
use rota_proto::v1::namespaces_server::NamespacesServer;
use rota_proto::v1::nodes_server::NodesServer;
use rota_proto::v1::operator_server::OperatorServer;
use rota_proto::v1::peers_server::PeersServer;
use rota_proto::v1::pools_server::PoolsServer;
use rota_proto::v1::programs_server::ProgramsServer;
use rota_proto::v1::sessions_server::SessionsServer;
use rota_proto::v1::tasks_server::TasksServer;
use rota_proto::{reflection, refusal, serving};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Requests of one connection at once; the mailbox refuses what is too much in all. hyper's own
/// limit of 200 would make one busy client wait without a word.
const STREAMS_MAX: u32 = 8_192;
const _: () = assert!(STREAMS_MAX as usize == serving::RESETS_MAX);

/// A client that has vanished is found out after interval + timeout.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Advice to a client that finds no place: others must end first.
const FULL_MS: u64 = 1_000;

/// What most answers of Sync have at most.
const READ_BYTES: usize = 512 * 1024;

/// A message that is being sent, and those that are ready after it.
const STREAM_BYTES: usize = 512 * 1024;

/// Pieces of a body that are ready.
const BODY_BYTES: usize = 256 * 1024;

/// A body of an operation, with some updates.
const OPERATED_BYTES: usize = 32 * 1024;

/// A session: an open may wait for long, and must not keep others from waiting.
const SESSION_BYTES: usize = 2 * 1024;

/// What an answer takes a share of before it is made.
fn need(path: &str) -> Need {
    let need = |bytes, lasts| Need { bytes, lasts };
    // Whoever asks whether this manager is well must hear it whatever others do.
    if path.starts_with("/grpc.health.") {
        return need(0, false);
    }
    match path.trim_start_matches("/rota.v1.") {
        "Documents/GetBody" | "Programs/Logs" => need(BODY_BYTES, true),
        "Documents/ExportDocument" | "Namespaces/ExportNamespace" | "Content/Updates" => {
            need(STREAM_BYTES, true)
        }
        "Documents/Operate" => need(OPERATED_BYTES, false),
        "Namespaces/ImportNamespace" => need(SESSION_BYTES, false),
        "Programs/Usage" | "Documents/Sync" | "Documents/ListDocuments" | "Sessions/List" => {
            need(READ_BYTES, false)
        }
        path if ["Operator/", "Namespaces/", "Pools/", "Tasks/"]
            .iter()
            .any(|it| path.starts_with(it)) =>
        {
            need(READ_BYTES, false)
        }
        _ => need(SESSION_BYTES, false),
    }
}

/// What the services need.
pub struct Services {
    /// The cluster.
    pub cluster: ClusterName,
    /// This manager.
    pub number: ManagerNumber,
    /// Where requests go.
    pub mailbox: Mailbox,
    /// What the services share.
    pub shared: Arc<Shared>,
    /// What may come in.
    pub gate: Gate,
    /// Ends the server, and the streams of peers.
    pub stop_grpc: CancellationToken,
}

fn sessions(services: &Services) -> Bounded<SessionsServer<SessionsService>> {
    let server = SessionsServer::new(SessionsService { shared: services.shared.clone() })
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    Bounded::new(server, REQUEST_BYTES_MAX)
}

fn operator(services: &Services) -> Bounded<OperatorServer<OperatorService>> {
    let service = OperatorService {
        shared: services.shared.clone(),
        cluster: services.cluster.clone(),
        number: services.number,
    };
    let server = OperatorServer::new(service)
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    Bounded::new(server, REQUEST_BYTES_MAX)
}

fn documents(services: &Services) -> Bounded<DocumentsServer<DocumentsService>> {
    let server = DocumentsServer::new(DocumentsService::new(services.shared.clone()))
        .max_decoding_message_size(DOCUMENT_REQUEST_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    Bounded::new(server, DOCUMENT_REQUEST_BYTES_MAX)
}

fn namespaces(services: &Services) -> Bounded<NamespacesServer<NamespacesService>> {
    let server = NamespacesServer::new(NamespacesService { shared: services.shared.clone() })
        .max_decoding_message_size(DOCUMENT_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    Bounded::new(server, DOCUMENT_BYTES_MAX)
}

fn pools(services: &Services) -> Bounded<PoolsServer<PoolsService>> {
    let server = PoolsServer::new(PoolsService { shared: services.shared.clone() })
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    Bounded::new(server, REQUEST_BYTES_MAX)
}

fn tasks(services: &Services) -> Bounded<TasksServer<TasksService>> {
    let server = TasksServer::new(TasksService { shared: services.shared.clone() })
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    Bounded::new(server, REQUEST_BYTES_MAX)
}

fn content(services: &Services) -> Bounded<ContentServer<ContentService>> {
    let server = ContentServer::new(ContentService { shared: services.shared.clone() })
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    Bounded::new(server, REQUEST_BYTES_MAX)
}

fn programs(services: &Services) -> Bounded<ProgramsServer<ProgramsService>> {
    let service = ProgramsService::new(services.shared.clone(), services.cluster.clone());
    let server = ProgramsServer::new(service)
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    Bounded::new(server, REQUEST_BYTES_MAX)
}

fn nodes(services: &Services) -> Bounded<NodesServer<NodesService>> {
    let (cluster, mailbox) = (services.cluster.clone(), services.mailbox.clone());
    let server = NodesServer::new(NodesService { cluster, mailbox })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Bounded::new(server, MESSAGE_BYTES_MAX)
}

fn peers(services: &Services) -> PeersServer<PeersService> {
    let service = PeersService {
        cluster: services.cluster.clone(),
        seen: services.shared.seen.clone(),
        mailbox: services.mailbox.clone(),
        bodies: services.shared.bodies.clone(),
        stopping: services.stop_grpc.clone(),
    };
    PeersServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// The services that stand here.
const SERVED: [&str; 10] = [
    "rota.v1.Sessions",
    "rota.v1.Nodes",
    "rota.v1.Peers",
    "rota.v1.Operator",
    "rota.v1.Documents",
    "rota.v1.Namespaces",
    "rota.v1.Pools",
    "rota.v1.Programs",
    "rota.v1.Tasks",
    "rota.v1.Content",
];

/// Calls that only managers and nodes make begin so.
const OF_MEMBERS: [&str; 2] = ["/rota.v1.Peers/", "/rota.v1.Nodes/"];

/// What a client is told on a connection for which there is only a place of managers and nodes.
pub fn no_place() -> Status {
    let text = "this manager has as many connections of clients as it bears; another manager may have room";
    refusal::status(&Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_MS), text))
}

/// What a client is told when there is no share of what answers may fill.
pub fn unread() -> Status {
    let text = "answers of this connection, or of others, wait to be read: read them, or ask another manager";
    refusal::status(&Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_MS), text))
}

/// Serves until `stop_grpc`; then takes no more, and ends when what is under way has ended. From `stop` on it
/// is said to serve no more.
pub async fn serve(
    listener: TcpListener,
    services: Services,
    stop: CancellationToken,
) -> Result<()> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let seen = services.shared.seen.clone();
    let reporting = tokio::spawn(report_health(reporter, seen, stop.clone()));
    let served = serving::server()
        .layer(Calls { of_members: &OF_MEMBERS, refusal: no_place, need, unread })
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(sessions(&services))
        .add_service(operator(&services))
        .add_service(documents(&services))
        .add_service(namespaces(&services))
        .add_service(pools(&services))
        .add_service(programs(&services))
        .add_service(tasks(&services))
        .add_service(content(&services))
        .add_service(nodes(&services))
        .add_service(peers(&services))
        .add_service(health)
        .add_service(reflection::newer(&SERVED).context("reflection")?)
        .add_service(reflection::older(&SERVED).context("reflection")?)
        .serve_with_incoming_shutdown(
            Incoming::new(listener, services.gate.clone()),
            services.stop_grpc.clone().cancelled_owned(),
        )
        .await;
    reporting.abort();
    served.context("the gRPC server failed")
}

/// SERVING while this process holds its number.
async fn report_health(
    reporter: HealthReporter,
    mut seen: watch::Receiver<DriverState>,
    stop: CancellationToken,
) {
    loop {
        let claimed = seen.borrow_and_update().member.is_some() && !stop.is_cancelled();
        let status = if claimed { ServingStatus::Serving } else { ServingStatus::NotServing };
        // The empty name stands for the whole process.
        for service in SERVED.into_iter().chain([""]) {
            reporter.set_service_status(service, status).await;
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { return },
            () = stop.cancelled(), if !stop.is_cancelled() => {}
        }
    }
}
