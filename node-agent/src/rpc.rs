//! The node's gRPC services. No decision is made here.

use crate::mailbox::{Event, Mailbox};
use crate::observe::Observer;
use rota_daemon::accept::{Caller, Calls, Gate, Incoming, Need, Places};
use rota_model::node_msg::{FromNode, ToNode};
use rota_model::{ClusterName, Refusal, RefusalKind, Retry};
use rota_proto::bounded::Bounded;
use rota_proto::reflection;
use rota_proto::refusal::status;
use rota_proto::serving;
use rota_proto::v1;
use rota_proto::v1::machines_server::{Machines, MachinesServer};
use rota_proto::v1::node_agent_server::{NodeAgent, NodeAgentServer};
use rota_proto::v1::node_operator_server::{NodeOperator, NodeOperatorServer};
use rota_proto::v1::programs_server::ProgramsServer;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// Answers of one stream that wait to be sent. More calls than that are not under way from one
/// manager; if they are, the rest is asked again.
const ANSWERS_MAX: usize = 4_096;

/// Most answers in one message.
const BATCH_ANSWERS_MAX: usize = 256;

/// Batches of answers that wait for the network.
const BATCHES_MAX: usize = 4;

/// Largest message taken from a manager: 256 creates with 64 KiB of attributes each.
const CALLS_BYTES_MAX: usize = 20 * 1024 * 1024;

/// Largest event: an id, a namespace and a name. What is somewhat larger should still be refused
/// with the name of its field.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// Without it a connection over a healed network partition can hang for ever.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Largest question of an operator: a thousand names of sessions.
const LOOK_BYTES_MAX: usize = 1024 * 1024;

/// Advice to a client that finds no place: others must end first.
const FULL_MS: u64 = 1_000;

/// The services that stand here: managers call the first, clients of machines the second, operators the
/// third, and managers for operators the fourth.
const SERVED: [&str; 4] =
    ["rota.v1.NodeAgent", "rota.v1.Machines", "rota.v1.NodeOperator", "rota.v1.Programs"];

/// What pieces of output that are ready take.
const OUTPUT_BYTES: usize = 128 * 1024;

/// What an answer takes a share of before it is made.
fn need(path: &str) -> Need {
    match path {
        "/rota.v1.Programs/Logs" => Need { bytes: OUTPUT_BYTES, lasts: true },
        "/rota.v1.Programs/Usage" => Need { bytes: OUTPUT_BYTES, lasts: false },
        path => Need::small(path),
    }
}

/// What a client of machines is told on a connection for which there is only a place of managers.
fn no_place() -> Status {
    let text = "this node has as many connections of clients as it bears";
    status(&Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_MS), text))
}

fn unread() -> Status {
    let text = "answers of this connection, or of others, wait to be read";
    status(&Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_MS), text))
}

/// Serves until the task is dropped.
pub async fn serve(
    listener: TcpListener,
    cluster: ClusterName,
    mailbox: Mailbox,
    observer: Observer,
) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<NodeAgentServer<Service>>().await;
    health.set_serving::<MachinesServer<Service>>().await;
    health.set_serving::<NodeOperatorServer<Service>>().await;
    health.set_serving::<ProgramsServer<Observer>>().await;
    let service = Service { cluster, mailbox, streams: Arc::default() };
    let machines = MachinesServer::new(service.clone()).max_decoding_message_size(SEND_BYTES_MAX);
    let operators =
        NodeOperatorServer::new(service.clone()).max_decoding_message_size(LOOK_BYTES_MAX);
    let programs = ProgramsServer::new(observer).max_decoding_message_size(SEND_BYTES_MAX);
    serving::server()
        .layer(Calls { of_members: &["/rota.v1.NodeAgent/"], refusal: no_place, need, unread })
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(health_service)
        .add_service(reflection::newer(&SERVED)?)
        .add_service(reflection::older(&SERVED)?)
        .add_service(NodeAgentServer::new(service).max_decoding_message_size(CALLS_BYTES_MAX))
        .add_service(Bounded::new(machines, SEND_BYTES_MAX))
        .add_service(Bounded::new(operators, LOOK_BYTES_MAX))
        .add_service(Bounded::new(programs, SEND_BYTES_MAX))
        .serve_with_incoming(Incoming::new(listener, Gate::new(Places::for_grpc())))
        .await?;
    Ok(())
}

#[derive(Clone)]
struct Service {
    /// Calls of other clusters are refused.
    cluster: ClusterName,
    mailbox: Mailbox,
    /// Names streams.
    streams: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl NodeAgent for Service {
    type ExchangeStream =
        Pin<Box<dyn Stream<Item = Result<v1::NodeAnswerBatch, Status>> + Send + 'static>>;

    async fn exchange(
        &self,
        request: Request<Streaming<v1::NodeCallBatch>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let manager = request.extensions().get::<Caller>().and_then(|it| it.address);
        let manager = manager.map_or("unknown".to_owned(), |it| it.to_string());
        tracing::debug!(stream, manager, "a manager connected");
        let (answers, waiting) = mpsc::channel(ANSWERS_MAX);
        let (batches, outgoing) = mpsc::channel(BATCHES_MAX);
        self.mailbox.give(Event::StreamOpened { stream, answers }).await;
        tokio::spawn(gather(waiting, batches.clone()));
        let (cluster, mailbox) = (self.cluster.clone(), self.mailbox.clone());
        let incoming = request.into_inner();
        tokio::spawn(async move {
            let end = take_calls(stream, &cluster, incoming, &mailbox).await;
            mailbox.node(rota_node::NodeInput::StreamClosed { stream }).await;
            if let Some(status) = end {
                // Nobody to tell it to is fine: then the manager has gone first.
                let _ = batches.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}

/// Puts whatever answers are there into one message.
async fn gather(
    mut waiting: mpsc::Receiver<FromNode>,
    batches: mpsc::Sender<Result<v1::NodeAnswerBatch, Status>>,
) {
    let mut answers = Vec::with_capacity(BATCH_ANSWERS_MAX);
    while waiting.recv_many(&mut answers, BATCH_ANSWERS_MAX).await > 0 {
        let answers = answers.drain(..).map(v1::NodeAnswer::from).collect();
        if batches.send(Ok(v1::NodeAnswerBatch { answers })).await.is_err() {
            return;
        }
    }
}

/// Hands on what a manager calls, until its stream ends. Gives what the manager is to be told then.
async fn take_calls(
    stream: u64,
    cluster: &ClusterName,
    mut incoming: Streaming<v1::NodeCallBatch>,
    mailbox: &Mailbox,
) -> Option<Status> {
    loop {
        let batch = match incoming.message().await {
            Ok(Some(batch)) => batch,
            Ok(None) => return None,
            Err(error) => {
                tracing::debug!(stream, %error, "a manager's stream broke");
                return None;
            }
        };
        match rota_proto::node::calls(cluster, batch) {
            Ok(calls) => {
                let calls = calls.filter_map(checked).collect();
                mailbox.give(Event::Calls { stream, calls }).await;
            }
            Err(error) => {
                tracing::warn!(stream, %error, "calls of another cluster were refused");
                return Some(Status::failed_precondition(error.to_string()));
            }
        }
    }
}

/// A call that is no call is dropped: it has no answer, and its manager's other calls go on.
fn checked(call: Result<ToNode, rota_proto::WireError>) -> Option<ToNode> {
    match call {
        Ok(call) => Some(call),
        Err(error) => {
            tracing::warn!(%error, "a manager's call is malformed");
            None
        }
    }
}

#[tonic::async_trait]
impl Machines for Service {
    async fn send(
        &self,
        request: Request<v1::SendRequest>,
    ) -> Result<Response<v1::SendResponse>, Status> {
        let event =
            rota_proto::request::send(request.into_inner()).map_err(|refusal| status(&refusal))?;
        let (reply, answer) = oneshot::channel();
        self.mailbox.give(Event::Send { event, reply }).await;
        let leaving = || {
            let message = "the node is leaving";
            status(&Refusal::unknown_outcome(RefusalKind::NotServing, Retry::Now, message))
        };
        let step = answer.await.map_err(|_| leaving())?.map_err(|refusal| status(&refusal))?;
        Ok(Response::new(v1::SendResponse {
            from: step.from,
            to: step.to,
            changes: step.changes,
            r#final: step.is_final,
        }))
    }
}

#[tonic::async_trait]
impl NodeOperator for Service {
    async fn live(
        &self,
        request: Request<v1::LiveRequest>,
    ) -> Result<Response<v1::LiveResponse>, Status> {
        let ask = rota_proto::running::live(&self.cluster, request.into_inner());
        let ask = ask.map_err(|refusal| status(&refusal))?;
        let (reply, answer) = oneshot::channel();
        self.mailbox.give(Event::Look { ask, reply }).await;
        let page = answer.await.map_err(|_| {
            let message = "the node is leaving";
            status(&Refusal::new(RefusalKind::NotServing, Retry::Now, message))
        })?;
        Ok(Response::new(page))
    }
}
