//! Bodies of attachments, as clients put and get them.

use super::owners::admit;
use super::{Shared, no_view, status};
use crate::bodies::{Pieces, announced, refused};
use bytes::Bytes;
use rota_docstore::{Attachment, Digest, DocName, Document};
use rota_model::{ManagerNumber, RefusalKind, SlotId};
use rota_proto::bodies::{Keep, Names};
use rota_proto::documents::export::Part;
use rota_proto::documents::{in_call, request, status as exception_status};
use rota_proto::v1;
use rota_protocol::api::{Reader, Service};
use rota_protocol::operate;
use rota_ring::{View, slot_of_document};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// A body on its way to a client.
pub(super) type Bodies = Pin<Box<dyn Stream<Item = Result<v1::GetBodyResponse, Status>> + Send>>;

/// How long a client may take to say what it puts, and the owner to say that it serves.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

fn view_of(shared: &Shared) -> Result<Arc<View>, Status> {
    let view = shared.seen.borrow().view.clone();
    view.ok_or_else(|| status(no_view()))
}

/// The slot of a document, once its owner has said that it serves, and this caller: so the namespace
/// is switched on, and the body is put where its document will be.
async fn slot_of(shared: &Shared, reader: Reader, docid: &str) -> Result<SlotId, Status> {
    let slot = slot_of_document(&reader.space, docid, view_of(shared)?.m);
    admit(shared, reader, slot, Instant::now() + BEGIN_PATIENCE).await?;
    Ok(slot)
}

fn piece(request: v1::PutBodyRequest) -> Result<Bytes, Status> {
    request::put_piece(request).map_err(|it| exception_status(&it))
}

/// Takes a body from a client.
pub(super) async fn put(
    shared: &Shared,
    request: Request<Streaming<v1::PutBodyRequest>>,
) -> Result<Response<v1::PutBodyResponse>, Status> {
    let mut messages = request.into_inner();
    let first = announced(&mut messages, BEGIN_PATIENCE).await?;
    let asked = request::put_body(first).map_err(|it| exception_status(&it))?;
    let reader = Reader { space: asked.space, service: Service::PutBody, caller: asked.caller };
    let slot = slot_of(shared, reader, &asked.docid).await?;
    let pieces: Pieces = Box::pin(messages.map(|it| piece(it?)));
    let known = shared.bodies.put(slot, asked.sha256, asked.size, pieces).await?;
    Ok(Response::new(v1::PutBodyResponse { known }))
}

/// Gives a body to a client.
pub(super) async fn get(
    shared: &Shared,
    request: &v1::GetBodyRequest,
) -> Result<Response<Bodies>, Status> {
    let asked = request::get_body(request).map_err(|it| exception_status(&it))?;
    let reader = Reader { space: asked.space, service: Service::GetBody, caller: asked.caller };
    let names = Names { sha256: asked.sha256, space: reader.space.clone(), docid: asked.docid };
    let slot = slot_of(shared, reader, &names.docid).await?;
    shared.bodies.check_named(slot, &names).await?;
    let pieces = shared.bodies.read(slot, asked.sha256, asked.offset).await?;
    let named = |it| in_call(Service::GetBody.as_str(), it);
    let pieces = first_bytes(pieces, asked.length);
    let stream = pieces.map(move |it| Ok(v1::GetBodyResponse { bytes: it.map_err(named)? }));
    Ok(Response::new(Box::pin(stream)))
}

/// The first bytes of a body; 0: all of them.
fn first_bytes(pieces: Pieces, length: u64) -> Pieces {
    if length == 0 {
        return pieces;
    }
    let mut left = length;
    Box::pin(pieces.map_while(move |piece| {
        (left > 0).then(|| {
            let mut bytes = piece?;
            bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left = left.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            Ok(bytes)
        })
    }))
}

/// What was met lately, so that it is not dealt with again. When it is full it begins anew: what is
/// forgotten is dealt with once more.
#[derive(Debug)]
pub(super) struct Recent<T> {
    met: BTreeSet<T>,
    most: usize,
    count: u64,
}

impl<T: Ord> Recent<T> {
    fn of(most: usize) -> Self {
        Self { met: BTreeSet::new(), most, count: 0 }
    }

    /// Whether it was met lately.
    fn has(&self, it: &T) -> bool {
        self.met.contains(it)
    }

    /// Meets it; false when it was met lately.
    pub fn meet(&mut self, it: T) -> bool {
        if self.met.contains(&it) {
            return false;
        }
        if self.met.len() >= self.most {
            self.met.clear();
        }
        self.met.insert(it);
        self.count += 1;
        true
    }

    /// How often something was met that was not met lately.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl<T: Ord> Default for Recent<T> {
    fn default() -> Self {
        Self::of(RECENT_MAX)
    }
}

/// Writes the bodies of a document into an export, each once unless so many others came between that it
/// is forgotten. False: its reader is gone.
pub(super) async fn write(
    shared: &Shared,
    document: &Document,
    written: &mut Recent<Digest>,
    out: &mpsc::Sender<Result<v1::NamespaceRecord, Status>>,
) -> Result<bool, Status> {
    for (_, attachment) in document.attachments() {
        if !written.meet(attachment.sha256()) {
            continue;
        }
        let begin = (&Part::Body(attachment.clone())).into();
        let bytes = |it| (&Part::Bytes(it)).into();
        if !write_one(shared, document.name(), attachment.sha256(), begin, bytes, out).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes a body that a document names into a stream: what begins it, then its bytes. False: its
/// reader is gone.
pub(super) async fn write_one<R>(
    shared: &Shared,
    name: &DocName,
    sha256: Digest,
    begin: R,
    bytes: impl Fn(Bytes) -> R,
    out: &mpsc::Sender<Result<R, Status>>,
) -> Result<bool, Status> {
    let slot = view_of(shared).map(|view| operate::slot_of(name, view.m))?;
    let mut pieces = shared.bodies.read(slot, sha256, 0).await?;
    if out.send(Ok(begin)).await.is_err() {
        return Ok(false);
    }
    while let Some(piece) = pieces.next().await {
        if out.send(Ok(bytes(piece?))).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Pieces of a body of an import that wait for the disk.
const AHEAD: usize = 2;

/// What is remembered of bodies in exports and imports: some 5 MB. One that is forgotten is written
/// again, or costs a question to each copy once more.
const RECENT_MAX: usize = 65_536;

/// The bodies of an import: each is taken in here first, and handed to the copies of each document
/// that names it before the document is.
#[derive(Default)]
pub(super) struct TakenBodies {
    under_way: Option<(mpsc::Sender<Result<Bytes, Status>>, Taking)>,
    /// Partitions, and bodies that their copies hold.
    handed: Recent<(ManagerNumber, Digest)>,
}

type Taking = JoinHandle<Result<bool, Status>>;

impl TakenBodies {
    /// A body begins.
    pub fn begin(&mut self, bodies: &crate::bodies::Bodies, attachment: &Attachment) {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let keep = Keep { sha256: attachment.sha256(), size: attachment.size(), slot: None };
        let bodies = bodies.clone();
        let pieces: Pieces = Box::pin(ReceiverStream::new(pieces));
        let taking = tokio::spawn(async move { bodies.keep(keep, pieces).await });
        self.under_way = Some((sender, taking));
    }

    /// Bytes of it.
    pub async fn take(&mut self, bytes: Bytes) {
        if let Some((sender, _)) = &self.under_way {
            // Nobody takes them: it is here already, or its end says why not.
            let _ = sender.send(Ok(bytes)).await;
        }
    }

    /// All bytes have come: the body that was under way is durable then.
    pub async fn end(&mut self) -> Result<(), Status> {
        let Some((sender, taking)) = self.under_way.take() else { return Ok(()) };
        drop(sender);
        let failed = |it| refused(RefusalKind::Internal, format!("taking a body in: {it}"));
        let taken = taking.await.map_err(failed)?;
        taken.map(|_known| ())
    }

    /// Hands the bodies of a document to its copies. Those that are not here must be there.
    pub async fn hand_over(&mut self, shared: &Shared, document: &Document) -> Result<(), Status> {
        for (_, attachment) in document.attachments() {
            let sha256 = attachment.sha256();
            let view = view_of(shared)?;
            let slot = operate::slot_of(document.name(), view.m);
            let handed = (view.home(slot), sha256);
            if self.handed.has(&handed) || !shared.bodies.contains(&sha256) {
                continue;
            }
            shared.bodies.hand_over(slot, sha256).await?;
            self.handed.meet(handed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_is_bounded_and_what_is_forgotten_is_met_again() {
        let mut recent = Recent::of(2);
        let met = [1, 2, 1, 3, 3, 1, 4].map(|it| recent.meet(it));
        assert_eq!(met, [true, true, false, true, false, true, true]);
        assert_eq!((recent.count(), recent.met.len()), (5, 1));
        assert!(recent.has(&4) && !recent.has(&3));
    }
}
