//! Sending a stream of pieces: a few are read ahead of the network, and no more.

use crate::call;
use crate::error::CallError;
use crate::retry::Failure;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status};

/// Pieces that wait for the network. They have at most 8 MiB each, most 64 KiB; one would make
/// reading and sending take turns.
const PIECES_AHEAD: usize = 2;

/// Where the pieces come from.
pub(super) trait Source {
    /// A message.
    type Piece: Send + 'static;

    /// The next one; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Piece>, CallError>> + Send;
}

/// How an upload ended without an answer.
pub(super) enum Stopped {
    /// The other side, or what is between: it may be sent again.
    Failed(Failure),
    /// This side: it cannot go on.
    Local(CallError),
}

/// Why no piece can be handed over any more.
enum Fed {
    All,
    /// The call has ended: it has the answer.
    NobodyReads,
    Slow,
}

/// Sends all pieces, and waits for the answer. `patience`: the longest wait for the network to
/// take one more piece, and for the answer after the last.
pub(super) async fn upload<S, A, F>(
    source: &mut S,
    patience: Duration,
    send: impl FnOnce(ReceiverStream<S::Piece>) -> F,
) -> Result<A, Stopped>
where
    S: Source,
    F: Future<Output = Result<Response<A>, Status>>,
{
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    let mut answer = pin!(send(ReceiverStream::new(receiver)));
    let fed = tokio::select! {
        biased;
        answered = &mut answer => return read(answered),
        fed = feed(source, sender, patience) => fed.map_err(Stopped::Local)?,
    };
    if matches!(fed, Fed::Slow) {
        return Err(Stopped::Failed(silent()));
    }
    match timeout(patience, answer).await {
        Ok(answered) => read(answered),
        Err(_elapsed) => Err(Stopped::Failed(silent())),
    }
}

fn read<A>(answered: Result<Response<A>, Status>) -> Result<A, Stopped> {
    answered.map(Response::into_inner).map_err(|it| Stopped::Failed(call::failure(&it)))
}

/// The other side does not go on.
pub(crate) fn silent() -> Failure {
    let message = "nothing went on for too long".to_owned();
    Failure::Broken { code: Code::DeadlineExceeded, message, is_unsent: false }
}

async fn feed<S: Source>(
    source: &mut S,
    sender: mpsc::Sender<S::Piece>,
    patience: Duration,
) -> Result<Fed, CallError> {
    while let Some(piece) = source.next().await? {
        match timeout(patience, sender.send(piece)).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Ok(Fed::NobodyReads),
            Err(_elapsed) => return Ok(Fed::Slow),
        }
    }
    Ok(Fed::All)
}
