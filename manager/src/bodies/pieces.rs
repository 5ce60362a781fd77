//! Bodies as streams of pieces: from this disk, or from another manager.

use super::failure::is_damage;
use super::{Bodies, STALL, in_time, refused, status_of};
use bytes::{Bytes, BytesMut};
use rota_docstore::Digest;
use rota_model::{RefusalKind, SlotId};
use rota_proto::bodies::{Send as Wanted, read_piece, read_size, send_request};
use rota_proto::{WireError, refusal, v1};
use rota_storage::attachments::{AttachmentError, BodyReader, PIECE_BYTES};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Status, Streaming};

/// Pieces of a body, in order, until the first error.
pub type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// Bytes that are read from a file at a time: few changes of threads, little memory.
const READ_BYTES: usize = 4 * PIECE_BYTES;

/// Pieces that were read and wait for the network: reading and sending need not take turns.
const AHEAD: usize = 2;

/// How long a reader may take for a piece before it counts as gone.
const READER_PATIENCE: Duration = Duration::from_secs(60);

/// Runs what may block on the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| refused(RefusalKind::Internal, format!("reading a body: {error}")))
}

fn read(reader: &mut BodyReader) -> Result<Bytes, AttachmentError> {
    let mut bytes = BytesMut::with_capacity(READ_BYTES);
    while bytes.len() + PIECE_BYTES <= READ_BYTES {
        let piece = reader.next_piece()?;
        if piece.is_empty() {
            break;
        }
        bytes.extend_from_slice(piece);
    }
    Ok(bytes.freeze())
}

/// Reads to the end, as fast as somebody takes it.
async fn pump(
    bodies: Bodies,
    sha256: Digest,
    mut reader: BodyReader,
    out: mpsc::Sender<Result<Bytes, Status>>,
) {
    loop {
        let bodies = bodies.clone();
        let next = blocking(move || {
            let piece = read(&mut reader).inspect_err(|it| bodies.mend_if_damaged(sha256, it));
            (reader, piece.map_err(|it| status_of(&it)))
        });
        let piece = match next.await {
            Ok((back, piece)) => {
                reader = back;
                piece
            }
            Err(status) => {
                let _ = out.send(Err(status)).await;
                return;
            }
        };
        let is_last = !matches!(&piece, Ok(bytes) if !bytes.is_empty());
        if matches!(&piece, Ok(bytes) if bytes.is_empty()) {
            return;
        }
        let taken = timeout(READER_PATIENCE, out.send(piece)).await;
        if is_last || !matches!(taken, Ok(Ok(()))) {
            return;
        }
    }
}

/// Another manager sends what this build cannot read.
fn unreadable(error: WireError) -> Status {
    refused(RefusalKind::Internal, error.to_string())
}

/// The pieces of a body of another manager.
pub(super) struct Remote {
    /// Bytes of the whole body.
    pub size: u64,
    stream: Streaming<v1::SendBodyResponse>,
}

impl Remote {
    /// The next piece.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let next = timeout(STALL, self.stream.message()).await;
        let next =
            next.unwrap_or_else(|_| Err(Status::unavailable("it is silent"))).map_err(|status| {
                // What it says itself, or why nothing is heard of it.
                if !status.details().is_empty() {
                    return status;
                }
                let text = format!("a manager stopped sending a body: {}", status.message());
                refused(RefusalKind::NotServing, text)
            });
        next?.map(|it| read_piece(it).map_err(unreadable)).transpose()
    }

    async fn pump(mut self, out: mpsc::Sender<Result<Bytes, Status>>) {
        loop {
            let piece = match self.next().await {
                Ok(None) => return,
                Ok(Some(piece)) => Ok(piece),
                Err(status) => Err(status),
            };
            let is_last = piece.is_err();
            let taken = timeout(READER_PATIENCE, out.send(piece)).await;
            if is_last || !matches!(taken, Ok(Ok(()))) {
                return;
            }
        }
    }
}

impl Bodies {
    /// A body that is here, from a byte on, and its whole size.
    pub(super) async fn local(
        &self,
        sha256: Digest,
        offset: u64,
    ) -> Result<(u64, Pieces), AttachmentError> {
        let attachments = self.shared.attachments.clone();
        let opened = blocking(move || {
            let unreadable =
                || attachments.damage(&sha256).unwrap_or(AttachmentError::Missing { sha256 });
            let size = attachments.size(&sha256).ok_or_else(unreadable)?;
            Ok((size, attachments.read_range(&sha256, offset..size.max(offset))?))
        });
        let opened = opened.await.unwrap_or(Err(AttachmentError::Missing { sha256 }));
        let (size, reader) = opened.inspect_err(|it| self.mend_if_damaged(sha256, it))?;
        let (out, pieces) = mpsc::channel(AHEAD);
        tokio::spawn(pump(self.clone(), sha256, reader, out));
        Ok((size, Box::pin(ReceiverStream::new(pieces))))
    }

    fn mend_if_damaged(&self, sha256: Digest, error: &AttachmentError) {
        if matches!(error, AttachmentError::Damaged { .. }) {
            self.mend(sha256);
        }
    }

    /// A body of another manager, from a byte on.
    pub(super) async fn remote(
        &self,
        peer: &super::Peer,
        sha256: Digest,
        offset: u64,
    ) -> Result<Remote, Status> {
        let begun = async {
            let mut client = self.shared.channels.client(peer).await?;
            let wanted = Wanted { sha256, offset };
            let request = send_request(&self.shared.cluster, wanted);
            let mut stream = client.send_body(request).await?.into_inner();
            let size = read_size(stream.message().await?);
            let size = size.map_err(unreadable)?;
            Ok(Remote { size, stream })
        };
        let begun = timeout(STALL, begun).await;
        let silent = |_| Err(refused(RefusalKind::NotServing, "a manager is silent"));
        let begun = begun.unwrap_or_else(silent);
        if let Err(status) = &begun
            && status.code() == Code::Unavailable
        {
            self.shared.channels.forget(peer);
        }
        begun
    }

    /// A body from here, or else from another manager, those with a copy of the slot's partition
    /// first.
    pub async fn read(&self, slot: SlotId, sha256: Digest, offset: u64) -> Result<Pieces, Status> {
        let missing = match self.local(sha256, offset).await {
            Ok((_, pieces)) => return Ok(pieces),
            Err(error @ (AttachmentError::Missing { .. } | AttachmentError::Damaged { .. })) => {
                error
            }
            Err(error) => return Err(status_of(&error)),
        };
        let view = self.view()?;
        let (mut unreached, mut damaged) = (None, None);
        for peer in self.peers(&view, slot) {
            match self.remote(&peer, sha256, offset).await {
                Ok(remote) => {
                    let (out, pieces) = mpsc::channel(AHEAD);
                    tokio::spawn(remote.pump(out));
                    return Ok(Box::pin(ReceiverStream::new(pieces)));
                }
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) if status.code() == Code::InvalidArgument => return Err(status),
                Err(status) if is_damage(&status) => damaged = Some(status),
                Err(status) => unreached = Some((peer.number, status)),
            }
        }
        match unreached {
            None => Err(damaged.unwrap_or_else(|| status_of(&missing))),
            Some((number, status)) => {
                let text = format!("{missing}; manager {number} may have it: {}", status.message());
                Err(refused(RefusalKind::NotServing, text))
            }
        }
    }
}

/// The next piece; refuses one that does not come in time.
pub(super) async fn next_piece(
    pieces: &mut Pieces,
    patience: Duration,
) -> Result<Option<Bytes>, Status> {
    let next = in_time("the next piece", patience, pieces.next()).await;
    next.map_err(|it| refusal::status(&it))?.transpose()
}
