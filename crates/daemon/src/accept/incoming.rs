//! The connections of a listener, as a stream.

use super::connection::Connection;
use super::gate::Gate;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;

/// After a failure to accept (out of file handles, mostly): others may end meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

/// At most one line about such failures in this time.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Accepts at a listener what its gate lets in. It never ends.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    gate: Gate,
    pause: Option<Pin<Box<Sleep>>>,
    failed: u64,
    told: Option<Instant>,
}

impl Incoming {
    /// The connections of a listener.
    pub fn new(listener: TcpListener, gate: Gate) -> Self {
        Self { listener, gate, pause: None, failed: 0, told: None }
    }

    /// The next connection that may come in.
    pub async fn next(&mut self) -> Connection {
        loop {
            let mut stream = std::future::poll_fn(|cx| self.poll_accept(cx)).await;
            loop {
                let freed = self.gate.freed();
                match self.gate.admit(stream) {
                    Ok(connection) => return connection,
                    Err(turned_away) if self.gate.places().full_waits => stream = turned_away,
                    Err(_) => {
                        self.gate.refused();
                        break;
                    }
                }
                freed.await;
            }
        }
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<TcpStream> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, _)) => return Poll::Ready(stream),
                Err(error) => self.on_failure(&error),
            }
        }
    }

    fn on_failure(&mut self, error: &io::Error) {
        self.failed += 1;
        self.pause = Some(Box::pin(sleep(PAUSE)));
        if self.told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            self.told = Some(Instant::now());
            tracing::warn!(%error, failed = self.failed, "connections cannot be accepted");
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    /// Of a gate that turns away; one that waits would need its place in the queue to be kept.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let stream = ready!(self.poll_accept(cx));
            match self.gate.admit(stream) {
                Ok(connection) => return Poll::Ready(Some(Ok(connection))),
                Err(_) => self.gate.refused(),
            }
        }
    }
}
