//! A bare tonic unary echo: what a call costs when the server does nothing; and a sink, to which bytes
//! stream. It is written against tonic as generated code is, and runs as a process of its own with one
//! thread.

use crate::dev::Cluster;
use crate::failure::UsageMistake;
use crate::output::Out;
use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use rota_client::CallError;
use rota_daemon::may_listen;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::Command;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{ClientStreamingService, NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const PATH: &str = "/rota.bench.Echo/Echo";
const SINK_PATH: &str = "/rota.bench.Echo/Sink";
/// What one message of a stream carries, how many are under way, and how much of them the connection: as
/// managers copy partitions.
const PIECE_BYTES: usize = 512 * 1024;
const PIECES_IN_FLIGHT: usize = 4;
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// `bench-echo`.
#[derive(Args, Debug)]
pub struct EchoArguments {
    /// Where to serve.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Allow an address that other machines can reach.
    #[arg(long)]
    insecure_bind: bool,
}

/// What is sent and comes back.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Payload {
    /// Any bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub payload: Bytes,
}

#[derive(Clone)]
struct Echo;

impl UnaryService<Payload> for Echo {
    type Response = Payload;
    type Future = BoxFuture<Response<Payload>, Status>;

    fn call(&mut self, request: Request<Payload>) -> Self::Future {
        Box::pin(async move { Ok(Response::new(request.into_inner())) })
    }
}

/// Takes a stream, and answers how many bytes came.
#[derive(Clone)]
struct Sink;

impl ClientStreamingService<Payload> for Sink {
    type Response = Payload;
    type Future = BoxFuture<Response<Payload>, Status>;

    fn call(&mut self, request: Request<Streaming<Payload>>) -> Self::Future {
        Box::pin(async move {
            let (mut pieces, mut bytes) = (request.into_inner(), 0);
            while let Some(piece) = pieces.message().await? {
                bytes += piece.payload.len();
            }
            Ok(Response::new(Payload { payload: Bytes::from(bytes.to_string()) }))
        })
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(
        &mut self,
        _context: &mut std::task::Context<'_>,
    ) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(match request.uri().path() {
                SINK_PATH => grpc.client_streaming(Sink, request).await,
                _ => grpc.unary(Echo, request).await,
            })
        })
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "rota.bench.Echo";
}

/// Serves until it is ended.
pub async fn serve(it: &EchoArguments, out: &mut Out) -> anyhow::Result<()> {
    let may = may_listen("--listen", it.listen, it.insecure_bind);
    may.map_err(|mistake| UsageMistake(mistake.to_string()))?;
    let listener = TcpListener::bind(it.listen).await?;
    let address = listener.local_addr()?.to_string();
    let pid = std::process::id();
    out.json(&serde_json::json!({"ready": true, "address": address, "pid": pid}))?;
    let incoming = TcpListenerStream::new(listener);
    let server = Server::builder().initial_stream_window_size(WINDOW_BYTES);
    let mut server = server.initial_connection_window_size(WINDOW_BYTES);
    Ok(server.add_service(Echo).serve_with_incoming(incoming).await?)
}

/// Starts the echo beside the cluster; it ends with the cluster.
pub async fn start(cluster: &Cluster) -> anyhow::Result<(String, u32)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench-echo", "--listen", "127.0.0.1:0"]);
    let process = cluster.family.start("echo", command, &cluster.log("echo"))?;
    let told = tokio::time::timeout(Duration::from_secs(10), process.first_line).await;
    let told = told.context("the echo was not ready in time")?.context("the echo ended")?;
    let address = told.get("address").and_then(|it| it.as_str()).context("no address")?;
    Ok((address.to_owned(), process.pid))
}

/// Connections to an echo server.
#[derive(Clone, Debug)]
pub struct EchoClient {
    channels: Vec<Channel>,
    payload: Bytes,
}

impl EchoClient {
    /// So many connections, each opened at its first call.
    pub fn new(address: &str, connections: u32, payload: usize) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(Duration::from_secs(2))
            .tcp_nodelay(true);
        let channels = (0..connections.max(1)).map(|_| endpoint.connect_lazy()).collect();
        Ok(Self { channels, payload: Bytes::from(vec![7; payload]) })
    }

    /// One call, on the connection that the number picks.
    pub async fn call(&self, number: u64, wait: Duration) -> Result<(), String> {
        let count = u64::try_from(self.channels.len()).unwrap_or(1).max(1);
        let index = usize::try_from(number % count).unwrap_or(0);
        let Some(channel) = self.channels.get(index) else { return Err("no channel".to_owned()) };
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        let mut request = Request::new(Payload { payload: self.payload.clone() });
        request.set_timeout(wait);
        let sent = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = http::uri::PathAndQuery::from_static(PATH);
            grpc.unary(request, path, ProstCodec::<Payload, Payload>::default()).await
        };
        let answer = tokio::time::timeout(wait, sent).await;
        let answer = answer.map_err(|_elapsed| "no echo in time".to_owned())?;
        let back = answer.map_err(|status| status.to_string())?.into_inner();
        if back.payload == self.payload { Ok(()) } else { Err("another echo".to_owned()) }
    }

    /// Streams so many bytes to the sink, on the first connection. Resolves when all have come.
    pub async fn stream(&self, bytes: u64) -> anyhow::Result<()> {
        let channel = self.channels.first().context("no channel")?.clone();
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await?;
        let (sender, pieces) = tokio::sync::mpsc::channel(PIECES_IN_FLIGHT);
        let full = Bytes::from(vec![7; PIECE_BYTES]);
        let feeding = async {
            let mut left = bytes;
            while left > 0 {
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
                left -= length as u64;
                if sender.send(Payload { payload: full.slice(..length) }).await.is_err() {
                    break;
                }
            }
            drop(sender);
        };
        let path = http::uri::PathAndQuery::from_static(SINK_PATH);
        let request = Request::new(ReceiverStream::new(pieces));
        let codec = ProstCodec::<Payload, Payload>::default();
        let (answer, ()) = tokio::join!(grpc.client_streaming(request, path, codec), feeding);
        let came = String::from_utf8_lossy(&answer?.into_inner().payload).into_owned();
        if came == bytes.to_string() { Ok(()) } else { bail!("{came} of {bytes} bytes came") }
    }
}

/// What went wrong with a call of the client, in one line.
pub fn mistake(error: &CallError) -> String {
    format!("{}: {error}", error.reason())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_echo_gives_back_what_was_sent_and_the_sink_counts_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let incoming = TcpListenerStream::new(listener);
        tokio::spawn(Server::builder().add_service(Echo).serve_with_incoming(incoming));
        let client = EchoClient::new(&address, 2, 100).unwrap();
        for number in 0..4 {
            assert_eq!(client.call(number, Duration::from_secs(10)).await, Ok(()));
        }
        for bytes in [0, 1, PIECE_BYTES as u64 * 9 + 1] {
            client.stream(bytes).await.unwrap();
        }
    }
}
