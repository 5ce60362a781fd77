//! Exports of namespaces, and imports: streams of documents, a few at a time in memory.

use super::Shared;
use super::bodies::{Recent, TakenBodies};
use super::namespaces::{STEP, create_missing};
use super::owners::{Failure, mixed_up, page, sync};
use crate::bodies::in_time;
use crate::mailbox::PendingCall;
use rota_docstore::{Digest, DocName, Document, Exception, Namespace, SyncRequest, Update};
use rota_model::items::OWN_CLASSES;
use rota_model::{Changed, Refusal, RefusalKind, Retry};
use rota_proto::documents::NamespaceState;
use rota_proto::documents::export::{Order, Part};
use rota_proto::v1;
use rota_protocol::api::{ImportOp, PageOp};
use rota_protocol::kept_outputs::OUTPUT_CLASS;
use rota_protocol::operate::CONFIGURATION;
use rota_protocol::{Answer, DocumentAnswer, DocumentCursor, DocumentOp, Op};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tonic::{Status, Streaming};

/// Documents that are read together: of usual ones some hundred KB.
const STEP_DOCUMENTS: u32 = 64;

/// Documents that are imported at once: enough to share commits.
const UNDER_WAY_MAX: usize = 64;

/// Where the records of an export go.
type Out = mpsc::Sender<Result<v1::NamespaceRecord, Status>>;

/// Writes an export: each document as it is when its turn comes. Ends when its reader is gone.
pub(super) async fn write(shared: Arc<Shared>, state: NamespaceState, out: Out) {
    let space = state.name.clone();
    if out.send(Ok((&Part::Header(state)).into())).await.is_err() {
        return;
    }
    let last = match write_documents(&shared, &space, &out).await {
        Ok(Some((documents, bodies))) => Ok((&Part::Footer { documents, bodies }).into()),
        Ok(None) => return,
        Err(status) => Err(status),
    };
    // Without the footer its reader knows that it is not whole.
    let _ = out.send(last).await;
}

/// How many documents and bodies there were; `None`: the reader is gone.
async fn write_documents(
    shared: &Shared,
    space: &Namespace,
    out: &Out,
) -> Result<Option<(u64, u64)>, Status> {
    let (mut count, mut next) = (0, Some(DocumentCursor::default()));
    let mut written = Recent::default();
    while let Some(from) = next {
        let (limit, space) = (STEP_DOCUMENTS, space.clone());
        let op = PageOp { from, limit, space, class: None, by_operator: true };
        let page = page(shared, op, Instant::now() + STEP).await.map_err(Status::from)?;
        next = page.next;
        let names = page.documents.into_iter().map(|it| it.name);
        // Managers keep these themselves: an import could not take them. What programs printed is nobody else's.
        let is_own = |class: &str| OWN_CLASSES.contains(&class) || class == OUTPUT_CLASS;
        let names = names.filter(|it| !is_own(it.class()));
        let mut names: VecDeque<DocName> = names.collect();
        while !names.is_empty() {
            let ask = |name: &DocName| SyncRequest { name: name.clone(), held: None };
            let asked = names.iter().map(ask).collect();
            let updates = sync(shared, None, asked, false, Instant::now() + STEP).await;
            let updates = updates.map_err(Status::from)?;
            if updates.is_empty() {
                let text = "an owner sent no document of many";
                let refused = Refusal::new(RefusalKind::Internal, Retry::Never, text);
                return Err(Failure::from(refused).into());
            }
            for (_, update) in updates {
                names.pop_front();
                // One that was deleted meanwhile is not part of it.
                let Update::Full(document) = update else { continue };
                if document.is_deleted() {
                    continue;
                }
                if !super::bodies::write(shared, &document, &mut written, out).await? {
                    return Ok(None);
                }
                let document = Document::clone(&document);
                for record in Part::Document(document).records() {
                    if out.send(Ok(record)).await.is_err() {
                        return Ok(None);
                    }
                }
                count += 1;
            }
        }
    }
    Ok(Some((count, written.count())))
}

/// An import that is under way.
struct Importing<'a> {
    shared: &'a Shared,
    admin: String,
    into: Option<Namespace>,
    /// Documents, each with the bodies that it names.
    under_way: VecDeque<(PendingCall, Vec<Digest>)>,
    bodies: TakenBodies,
    /// Bodies of documents that were taken over.
    gained: Recent<Digest>,
    response: v1::ImportNamespaceResponse,
}

/// Takes over an export. What was taken over before a failure stays; to repeat it is safe.
pub(super) async fn read(
    shared: &Shared,
    mut records: Streaming<v1::ImportNamespaceRequest>,
    admin: String,
    deadline: Instant,
) -> Result<v1::ImportNamespaceResponse, Status> {
    let response = v1::ImportNamespaceResponse { documents: 0, kept: 0, bodies: 0 };
    let (under_way, bodies, gained) = (VecDeque::new(), TakenBodies::default(), Recent::default());
    let mut importing =
        Importing { shared, admin, into: None, under_way, bodies, gained, response };
    let mut order = Order::new();
    let mut is_first = true;
    while let Some(request) = next(&mut records).await? {
        if std::mem::take(&mut is_first) {
            importing.into = into(&request.into)?;
        }
        let record = request.record.ok_or_else(|| invalid("record", "is missing"))?;
        let part = order.take(record).map_err(|it| invalid("record", &it.to_string()))?;
        let Some(part) = part else { continue };
        importing.take(part, deadline).await?;
        if order.is_body_whole() {
            importing.bodies.end().await?;
        }
    }
    if !order.is_complete() {
        return Err(invalid("record", "of the end is missing: the export was cut short"));
    }
    importing.wait_for(0).await?;
    importing.response.bodies = importing.gained.count();
    Ok(importing.response)
}

fn invalid(field: &str, problem: &str) -> Status {
    let field = rota_docstore::FieldError::new(field, problem);
    rota_proto::documents::status(&Exception::from(field))
}

fn into(name: &str) -> Result<Option<Namespace>, Status> {
    if name.is_empty() {
        return Ok(None);
    }
    Namespace::parse(name).map(Some).map_err(|it| invalid("into", &it.problem))
}

/// The next record. A sender that says nothing for a while has gone.
async fn next(
    records: &mut Streaming<v1::ImportNamespaceRequest>,
) -> Result<Option<v1::ImportNamespaceRequest>, Status> {
    let record = in_time("the next record", STEP, records.next()).await;
    // What came before it stays.
    let silent = |it| super::status(Refusal { changed: Changed::Unknown, ..it });
    record.map_err(silent)?.transpose()
}

impl Importing<'_> {
    async fn take(&mut self, part: Part, deadline: Instant) -> Result<(), Status> {
        match part {
            Part::Header(state) => {
                let into = self.into.take().unwrap_or(state.name);
                if into.as_str() == CONFIGURATION {
                    return Err(invalid("into", "is the namespace for configuration"));
                }
                create_missing(self.shared, &into, &state.description, &self.admin).await?;
                self.into = Some(into);
            }
            Part::Document(document) => {
                self.wait_for(UNDER_WAY_MAX - 1).await?;
                self.begin(document, deadline).await?;
            }
            Part::Body(attachment) => self.bodies.begin(&self.shared.bodies, &attachment),
            Part::Bytes(bytes) => self.bodies.take(bytes).await,
            Part::Footer { .. } => {}
        }
        Ok(())
    }

    async fn begin(&mut self, document: Document, deadline: Instant) -> Result<(), Status> {
        let into = self.into.as_ref().ok_or_else(|| invalid("header", "is missing"))?;
        let mut parts = document.into_parts();
        let (class, docid) = (parts.name.class().to_owned(), parts.name.docid().to_owned());
        let renamed = DocName::new(into, &class, &docid).and_then(|name| {
            parts.name = name;
            Document::from_parts(parts)
        });
        let document = Arc::new(renamed.map_err(|it| invalid(&it.field, &it.problem))?);
        self.bodies.hand_over(self.shared, &document).await?;
        let named = document.bodies().collect();
        let op = Op::Documents(DocumentOp::Import(ImportOp { document }));
        let within = deadline.max(Instant::now() + STEP);
        self.under_way.push_back((self.shared.mailbox.begin(op, within), named));
        Ok(())
    }

    /// Waits until no more than so many are under way.
    async fn wait_for(&mut self, most: usize) -> Result<(), Status> {
        while self.under_way.len() > most {
            let Some((begun, named)) = self.under_way.pop_front() else { break };
            let taken = match begun.answer().await {
                Ok(Answer::Documents(DocumentAnswer::Imported(taken))) => {
                    taken.map_err(Failure::from)
                }
                Ok(other) => Err(mixed_up(&other)),
                Err(refusal) => Err(refusal.into()),
            };
            match taken? {
                true => {
                    self.response.documents += 1;
                    for sha256 in named {
                        self.gained.meet(sha256);
                    }
                }
                false => self.response.kept += 1,
            }
        }
        Ok(())
    }
}
