//! Serves HTTP to a bounded number of connections, each with a deadline for what it asks.

use crate::accept::{Gate, Incoming, Places};
use crate::http_rules::{HttpNames, refuse_foreign};
use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How much a listener for HTTP bears.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Most connections. A newcomer takes the place of the oldest that says nothing; without one it waits.
    pub connections: usize,
    /// How long a connection may take for a request's head, or stay idle. Before its first byte, it may
    /// not be silent for longer than [`FIRST_BYTES`](crate::accept::FIRST_BYTES) either.
    pub idle: Duration,
    /// How long a connection may take new requests, if that is bounded.
    pub lifetime: Option<Duration>,
    /// How long the request under way may take then: who asks and does not read keeps a connection so long. Too low:
    /// a slow answer is cut off, and nobody knows what it was.
    pub last_request: Duration,
    /// How long open requests may take to end at a shutdown.
    pub drain: Duration,
}

/// Accepts and serves until `stop` is ready, then lets open requests end. What pages of others ask is
/// refused: see [`HttpNames`].
pub async fn serve_http(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    names: HttpNames,
    stop: impl Future<Output = ()>,
) {
    let router = router.layer(from_fn_with_state(names, refuse_foreign));
    let service = TowerToHyperService::new(router);
    let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle);
    let (stopping, under_way) = (CancellationToken::new(), TaskTracker::new());
    let mut incoming = Incoming::new(listener, Gate::new(Places::for_http(limits)));
    tokio::pin!(stop);
    loop {
        let connection = tokio::select! {
            accepted = incoming.next() => accepted,
            () = &mut stop => break,
        };
        let connection = builder.serve_connection(TokioIo::new(connection), service.clone());
        let connection = connection.into_owned();
        let stopped = stopping.clone().cancelled_owned();
        under_way.spawn(async move {
            tokio::pin!(connection);
            let is_over = sleep(limits.lifetime.unwrap_or(Duration::MAX));
            let done = tokio::select! {
                done = connection.as_mut() => Some(done),
                () = is_over => None,
                () = stopped => None,
            };
            let done = match done {
                Some(done) => Ok(done),
                None => {
                    connection.as_mut().graceful_shutdown();
                    timeout(limits.last_request, connection).await
                }
            };
            match done {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(error, "a connection broke"),
                Err(_) => tracing::debug!("a connection was cut off"),
            }
        });
    }
    drop(incoming);
    stopping.cancel();
    under_way.close();
    if timeout(limits.drain, under_way.wait()).await.is_err() {
        tracing::warn!("some requests did not end within {} ms", limits.drain.as_millis());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    async fn ask(address: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn who_says_nothing_is_cut_off_so_that_others_are_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().route("/", get(async || "here"));
        let idle = Duration::from_millis(200);
        let drain = Duration::from_secs(5);
        let limits =
            HttpLimits { connections: 4, idle, lifetime: None, last_request: drain, drain };
        let (stop, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or(()) };
        let served =
            tokio::spawn(serve_http(listener, router, limits, HttpNames::default(), stopped));
        let mut silent = Vec::new();
        for _ in 0..8 {
            silent.push(TcpStream::connect(&address).await.unwrap());
        }
        let within = Duration::from_secs(20);
        let text = timeout(within, ask(&address)).await.expect("an answer, when they are cut off");
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("here"), "{text}");
        let mut left = Vec::new();
        let cut = timeout(within, silent[0].read_to_end(&mut left)).await;
        cut.expect("the first silent connection has ended").ok();
        stop.send(()).unwrap();
        timeout(within, served).await.expect("it stops").unwrap();
    }

    #[tokio::test]
    async fn who_asks_and_does_not_read_is_cut_off_as_well() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let page = || async { vec![b'x'; 64 * 1024 * 1024] };
        let router = Router::new().route("/", get(async || "here")).route("/large", get(page));
        let (idle, drain) = (Duration::from_secs(60), Duration::from_secs(5));
        let lifetime = Some(Duration::from_millis(300));
        let last_request = Duration::from_millis(300);
        let limits = HttpLimits { connections: 1, idle, lifetime, last_request, drain };
        let (stop, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or(()) };
        let served =
            tokio::spawn(serve_http(listener, router, limits, HttpNames::default(), stopped));
        let mut deaf = TcpStream::connect(&address).await.unwrap();
        deaf.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let within = Duration::from_secs(20);
        let text = timeout(within, ask(&address)).await.expect("an answer, when it is cut off");
        assert!(text.ends_with("here"), "{text}");
        stop.send(()).unwrap();
        timeout(within, served).await.expect("it stops").unwrap();
    }

    #[tokio::test]
    async fn a_request_that_is_under_way_when_the_time_of_its_connection_is_over_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let lifetime = Duration::from_millis(200);
        let slow = move || async move {
            sleep(2 * lifetime).await;
            "here"
        };
        let router = Router::new().route("/", get(slow));
        let within = Duration::from_secs(20);
        let limits = HttpLimits {
            connections: 1,
            idle: within,
            lifetime: Some(lifetime),
            last_request: within,
            drain: within,
        };
        let (stop, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or(()) };
        let served =
            tokio::spawn(serve_http(listener, router, limits, HttpNames::default(), stopped));
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut text = String::new();
        let read = timeout(within, stream.read_to_string(&mut text)).await;
        read.expect("it is closed after the answer").unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("here"), "{text}");
        stop.send(()).unwrap();
        timeout(within, served).await.expect("it stops").unwrap();
    }
}
