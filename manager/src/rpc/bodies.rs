//! Bodies of attachments, as clients put and get them.

use super::Shared;
use super::documents::admit;
use crate::bodies::Pieces;
use bytes::Bytes;
use rota_docstore::{Attachment, Digest, DocName, Document};
use rota_model::{ManagerNumber, Refusal, RefusalKind, Retry, SlotId};
use rota_proto::bodies::{Keep, Names};
use rota_proto::documents::export::Part;
use rota_proto::documents::{request, status as exception_status};
use rota_proto::{refusal, v1};
use rota_protocol::api::{Reader, Service};
use rota_protocol::operate;
use rota_ring::{View, slot_of_document};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// A body on its way to a client.
pub(super) type Bodies = Pin<Box<dyn Stream<Item = Result<v1::GetBodyResponse, Status>> + Send>>;

/// How long a client may take to say what it puts, and the owner to say that it serves.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

fn view_of(shared: &Shared) -> Result<Arc<View>, Status> {
    shared.seen.borrow().view.clone().ok_or_else(|| {
        let text = "this manager has no View yet";
        refusal::status(&Refusal::new(RefusalKind::NotServing, Retry::AfterMs(200), text))
    })
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
    let first = timeout(BEGIN_PATIENCE, messages.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no body was announced"))??;
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
    let stream = pieces.map(|it| Ok(v1::GetBodyResponse { bytes: it? }));
    Ok(Response::new(Box::pin(stream)))
}

/// Writes the bodies of a document into an export, each once. False: its reader is gone.
pub(super) async fn write(
    shared: &Shared,
    document: &Document,
    written: &mut BTreeSet<Digest>,
    out: &mpsc::Sender<Result<v1::NamespaceRecord, Status>>,
) -> Result<bool, Status> {
    for (_, attachment) in document.attachments() {
        if !written.insert(attachment.sha256()) {
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

/// What is remembered of bodies that were handed over; what is forgotten costs a question to each
/// copy once more.
const HANDED_MAX: usize = 65_536;

/// The bodies of an import: each is taken in here first, and handed to the copies of each document
/// that names it before the document is.
#[derive(Default)]
pub(super) struct TakenBodies {
    under_way: Option<(mpsc::Sender<Result<Bytes, Status>>, Taking)>,
    /// Partitions, and bodies that their copies hold.
    handed: BTreeSet<(ManagerNumber, Digest)>,
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
        let taken = taking.await.map_err(|error| Status::internal(error.to_string()))?;
        taken.map(|_known| ())
    }

    /// Hands the bodies of a document to its copies. Those that are not here must be there.
    pub async fn hand_over(&mut self, shared: &Shared, document: &Document) -> Result<(), Status> {
        for (_, attachment) in document.attachments() {
            let sha256 = attachment.sha256();
            let view = view_of(shared)?;
            let slot = operate::slot_of(document.name(), view.m);
            let handed = (view.home(slot), sha256);
            if self.handed.contains(&handed) || !shared.bodies.contains(&sha256) {
                continue;
            }
            shared.bodies.hand_over(slot, sha256).await?;
            if self.handed.len() >= HANDED_MAX {
                self.handed.clear();
            }
            self.handed.insert(handed);
        }
        Ok(())
    }
}
