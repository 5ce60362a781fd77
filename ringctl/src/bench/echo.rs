//! A bare tonic unary echo: what a call costs when the server does nothing. It is written against
//! tonic as generated code is, and runs as a process of its own with one thread.

use crate::failure::UsageMistake;
use crate::output::Out;
use bytes::Bytes;
use clap::Args;
use rota_client::CallError;
use rota_daemon::may_listen;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

const PATH: &str = "/rota.bench.Echo/Echo";

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

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(Echo, request).await)
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
    Ok(Server::builder().add_service(Echo).serve_with_incoming(incoming).await?)
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
}

/// What went wrong with a call of the client, in one line.
pub fn mistake(error: &CallError) -> String {
    format!("{}: {error}", error.reason())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_echo_gives_back_what_was_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let incoming = TcpListenerStream::new(listener);
        tokio::spawn(Server::builder().add_service(Echo).serve_with_incoming(incoming));
        let client = EchoClient::new(&address, 2, 100).unwrap();
        for number in 0..4 {
            assert_eq!(client.call(number, Duration::from_secs(10)).await, Ok(()));
        }
    }
}
