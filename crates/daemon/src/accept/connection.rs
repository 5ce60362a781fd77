//! One connection: its bytes, and its standing at the gate.

use super::answers::{Answers, LOOK};
use super::gate::{Gate, Places};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// What a connection is at its gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Standing {
    /// In a place of strangers.
    Stranger,
    /// In a place of members, which it must turn out to be.
    Probation,
    /// In a place of members.
    Member,
    /// Its place was given away.
    Cut,
}

/// What the gate and the calls of a connection know of it.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Gate,
    order: u64,
    standing: AtomicU8,
    cut: CancellationToken,
    answers: Arc<Answers>,
}

impl Pass {
    pub(super) fn new(gate: Gate, order: u64, standing: Standing) -> Self {
        let (standing, answers) = (AtomicU8::new(standing as u8), gate.answers());
        Self { gate, order, standing, cut: CancellationToken::new(), answers }
    }

    pub(super) fn order(&self) -> u64 {
        self.order
    }

    pub(super) fn stands(&self, standing: Standing) -> bool {
        self.standing.load(Ordering::Relaxed) == standing as u8
    }

    pub(super) fn becomes(&self, standing: Standing) {
        self.standing.store(standing as u8, Ordering::Relaxed);
    }

    /// Ends the connection; its place is somebody else's.
    pub(super) fn cut(&self) {
        self.becomes(Standing::Cut);
        self.cut.cancel();
    }
}

/// Whose call it is, among the extensions of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Where it comes from; `None` when the connection was over at once.
    pub address: Option<SocketAddr>,
    pass: Arc<Pass>,
}

impl Caller {
    /// The answers of its connection.
    pub(super) fn answers(&self) -> Arc<Answers> {
        self.pass.answers.clone()
    }

    /// Takes a call. `is_members`: only members make such calls. False when it must be refused, because
    /// this connection has a place for members only.
    pub fn may_call(&self, is_members: bool) -> bool {
        if self.pass.stands(Standing::Member) {
            return true;
        }
        if !is_members {
            return !self.pass.stands(Standing::Probation);
        }
        if self.pass.stands(Standing::Probation) {
            self.pass.becomes(Standing::Member);
        } else {
            // Without a place for one more it stays a stranger, and is served.
            self.pass.gate.promote(&self.pass);
        }
        true
    }
}

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: Option<SocketAddr>,
    pass: Arc<Pass>,
    /// Until the connection has nothing to prove any more.
    trial: Option<Trial>,
    /// When its answers are looked at next, while some are not sent.
    look: Option<Pin<Box<Sleep>>>,
}

/// What a connection must do, and until when.
#[derive(Debug)]
struct Trial {
    /// Bytes that it must still send.
    missing: usize,
    places: Places,
    deadline: Pin<Box<Sleep>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, pass: Arc<Pass>, places: Places) -> Self {
        // Small answers must not wait for each other; without it they are only slower.
        stream.set_nodelay(true).ok();
        let trial = Trial {
            missing: places.first_bytes,
            places,
            deadline: Box::pin(sleep(places.silence)),
            cut: Box::pin(pass.cut.clone().cancelled_owned()),
        };
        Self { address: stream.peer_addr().ok(), stream, pass, trial: Some(trial), look: None }
    }

    /// For the extensions of its requests.
    pub fn caller(&self) -> Caller {
        Caller { address: self.address, pass: self.pass.clone() }
    }

    /// Ready with an error when the trial is lost.
    fn poll_trial(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(trial) = &mut self.trial else { return Poll::Pending };
        if trial.missing == 0 && !self.pass.stands(Standing::Probation) {
            self.trial = None;
            return Poll::Pending;
        }
        if trial.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(io::Error::other("it was silent, and its place was needed"));
        }
        ready!(trial.deadline.as_mut().poll(cx));
        if trial.missing > 0 {
            self.pass.gate.was_silent();
            return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "it was silent"));
        }
        self.pass.gate.refused();
        Poll::Ready(io::Error::other("it is no member, and there is no place for others"))
    }

    /// Ready with an error when nobody reads its answers.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            if !self.pass.answers.are_unsent() {
                self.look = None;
                return Poll::Pending;
            }
            if self.pass.answers.are_too_many() {
                return Poll::Ready(self.unread("it asks for far more than it reads"));
            }
            let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
            ready!(look.as_mut().poll(cx));
            self.look = None;
            if self.pass.answers.stand_still() {
                return Poll::Ready(self.unread("it does not read its answers"));
            }
        }
    }

    fn unread(&self, text: &'static str) -> io::Error {
        self.pass.gate.was_unread();
        tracing::warn!(client = ?self.address, "a connection is ended: {text}");
        io::Error::new(io::ErrorKind::TimedOut, text)
    }

    /// So many bytes came.
    fn heard(&mut self, bytes: usize) {
        let Some(trial) = &mut self.trial else { return };
        if trial.missing == 0 {
            return;
        }
        trial.missing = trial.missing.saturating_sub(bytes);
        if trial.missing == 0 {
            self.pass.gate.spoke(self.pass.order());
            // One on probation has as long again for its first call.
            trial.deadline.as_mut().reset(Instant::now() + trial.places.silence);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pass.gate.left(&self.pass);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.trial.is_some()
            && let Poll::Ready(error) = self.poll_trial(cx)
        {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(error) = self.poll_answers(cx) {
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let bytes = buf.filled().len() - before;
        self.heard(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Who writes may not read meanwhile.
        if let Poll::Ready(error) = self.poll_answers(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(error) = self.poll_answers(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
