//! Documents in the requests that managers pass to owners, and in their answers.

use super::answer::{operate_response, operated};
use super::request::{Operate, PARAMETERS_BYTES_MAX, caller};
use crate::refusal::{field_from_wire, field_to_wire};
use crate::v1;
use crate::v1::exception::Of;
use crate::v1::{peer_answer, peer_request};
use crate::wire::{WireError, convert, each, named, optional, required, unless_empty};
use rota_docstore::{
    Caller, Code, Credentials, Details, DocName, Document, Exception, JsonText, Phase, Request,
    Stamp, SyncRequest, Usage,
};
use rota_messages::api::{
    ClearOp, CopyOp, CountedUsage, FollowOp, ImportOp, OperateOp, PageOp, Reader, Service, SyncOp,
};
use rota_messages::{DocumentAnswer, DocumentOp, DocumentPage};
use rota_model::{Epoch, Namespace, RequestId, SlotId};
use std::sync::Arc;

/// A document of its bytes.
fn document_of(bytes: &[u8]) -> Result<Arc<Document>, WireError> {
    Ok(Arc::new(named("Document", Document::from_bytes(bytes))?))
}

impl From<&OperateOp> for v1::OperateRequest {
    fn from(op: &OperateOp) -> Self {
        let OperateOp { request, docid } = op;
        (&Operate { request: (**request).clone(), docid: docid.clone() }).into()
    }
}

impl TryFrom<v1::OperateRequest> for OperateOp {
    type Error = WireError;
    fn try_from(it: v1::OperateRequest) -> Result<Self, WireError> {
        let length = it.parameters.len();
        if length > PARAMETERS_BYTES_MAX {
            let problem = format!("are {length} bytes; the limit is {PARAMETERS_BYTES_MAX}");
            return Err(WireError::new("OperateRequest.parameters", problem));
        }
        let stamp = |number| named("OperateRequest.operation_time", Stamp::parse(number));
        let Caller { build, who } = caller!(it);
        let request = Request {
            space: named("OperateRequest.namespace", Namespace::parse(&it.namespace))?,
            operation: it.operation,
            parameters: unless_empty("OperateRequest.parameters", &it.parameters, JsonText::parse)?,
            operation_time: (it.operation_time > 0)
                .then(|| stamp(it.operation_time))
                .transpose()?,
            request_id: unless_empty(
                "OperateRequest.request_id",
                &it.request_id,
                RequestId::parse,
            )?,
            build,
            who,
            syncs: each(it.syncs)?,
            task: None,
        };
        Ok(Self { request: Arc::new(request), docid: it.docid })
    }
}

impl TryFrom<v1::DocumentSync> for SyncRequest {
    type Error = WireError;
    fn try_from(it: v1::DocumentSync) -> Result<Self, WireError> {
        let name: DocName = convert("DocumentSync.name", it.name)?;
        Ok(Self { name, held: optional(it.held)? })
    }
}

impl From<&SyncOp> for v1::SyncOp {
    fn from(op: &SyncOp) -> Self {
        Self {
            slot: op.slot.0,
            documents: op.syncs.iter().map(Into::into).collect(),
            stale_ok: op.stale_ok,
            ..op.reader.as_deref().map(reader_to_wire).unwrap_or_default()
        }
    }
}

/// Who reads, and nothing that is read.
pub(super) fn reader_to_wire(reader: &Reader) -> v1::SyncOp {
    let Caller { build, who } = reader.caller.clone();
    v1::SyncOp {
        reader: Some(reader.space.as_str().into()),
        service: reader.service.as_str().into(),
        build: build.unwrap_or(0),
        account: who.account,
        key: who.key,
        admin: who.admin,
        ..v1::SyncOp::default()
    }
}

pub(super) fn reader_of(op: &v1::SyncOp) -> Result<Option<Arc<Reader>>, WireError> {
    let Some(space) = &op.reader else { return Ok(None) };
    let space = named("SyncOp.reader", Namespace::parse(space))?;
    let service = Service::ALL.into_iter().find(|it| it.as_str() == op.service);
    let service = service.ok_or_else(|| {
        let problem = format!("is {:?}, which nobody can ask for", op.service);
        WireError::new("SyncOp.service", problem)
    })?;
    Ok(Some(Arc::new(Reader { space, service, caller: caller!(op) })))
}

impl TryFrom<v1::SyncOp> for SyncOp {
    type Error = WireError;
    fn try_from(op: v1::SyncOp) -> Result<Self, WireError> {
        Ok(Self {
            reader: reader_of(&op)?,
            slot: SlotId(op.slot),
            syncs: each(op.documents)?,
            stale_ok: op.stale_ok,
        })
    }
}

impl From<&PageOp> for v1::DocumentsOp {
    fn from(op: &PageOp) -> Self {
        Self {
            from: Some((&op.from).into()),
            limit: op.limit,
            namespace: op.space.as_str().into(),
            class: op.class.clone().unwrap_or_default(),
            by_operator: op.by_operator,
        }
    }
}

impl TryFrom<v1::DocumentsOp> for PageOp {
    type Error = WireError;
    fn try_from(op: v1::DocumentsOp) -> Result<Self, WireError> {
        Ok(Self {
            from: convert("DocumentsOp.from", op.from)?,
            limit: op.limit,
            space: named("DocumentsOp.namespace", Namespace::parse(&op.namespace))?,
            class: Some(op.class).filter(|it| !it.is_empty()),
            by_operator: op.by_operator,
        })
    }
}

impl From<&CopyOp> for v1::CopyOp {
    fn from(op: &CopyOp) -> Self {
        let items = op.items.iter().map(Into::into).collect();
        Self { name: Some((&op.name).into()), items }
    }
}

impl TryFrom<v1::CopyOp> for CopyOp {
    type Error = WireError;
    fn try_from(op: v1::CopyOp) -> Result<Self, WireError> {
        Ok(Self { name: convert("CopyOp.name", op.name)?, items: Arc::new(each(op.items)?) })
    }
}

impl From<&ClearOp> for v1::ClearOp {
    fn from(op: &ClearOp) -> Self {
        Self { from: Some((&op.from).into()), namespace: op.space.as_str().into() }
    }
}

impl TryFrom<v1::ClearOp> for ClearOp {
    type Error = WireError;
    fn try_from(op: v1::ClearOp) -> Result<Self, WireError> {
        let space = named("ClearOp.namespace", Namespace::parse(&op.namespace))?;
        Ok(Self { from: convert("ClearOp.from", op.from)?, space })
    }
}

impl From<&FollowOp> for v1::FollowOp {
    fn from(op: &FollowOp) -> Self {
        let held = op.held.as_ref().map(Into::into);
        Self { since: op.since.as_u64(), wait_ms: op.wait_ms, held }
    }
}

impl TryFrom<v1::FollowOp> for FollowOp {
    type Error = WireError;
    fn try_from(op: v1::FollowOp) -> Result<Self, WireError> {
        let since = named("FollowOp.since", Stamp::parse(op.since))?;
        Ok(Self { since, wait_ms: op.wait_ms, held: optional(op.held)? })
    }
}

impl From<&CountedUsage> for v1::CountedUsage {
    fn from(it: &CountedUsage) -> Self {
        let held = |(namespace, usage): (&String, &Usage)| {
            let Usage { documents, item_bytes, attachment_bytes } = *usage;
            v1::counted_usage::Held {
                namespace: namespace.clone(),
                documents,
                item_bytes,
                attachment_bytes,
            }
        };
        Self { epoch: it.epoch.0, held: it.usages.iter().map(held).collect() }
    }
}

impl TryFrom<v1::CountedUsage> for CountedUsage {
    type Error = WireError;
    fn try_from(it: v1::CountedUsage) -> Result<Self, WireError> {
        let held = |held: v1::counted_usage::Held| {
            named("CountedUsage.held.namespace", Namespace::parse(&held.namespace))?;
            Ok((
                held.namespace,
                Usage {
                    documents: held.documents,
                    item_bytes: held.item_bytes,
                    attachment_bytes: held.attachment_bytes,
                },
            ))
        };
        let usages = it.held.into_iter().map(held).collect::<Result<_, WireError>>()?;
        Ok(Self { epoch: Epoch(it.epoch), usages })
    }
}

/// A request about documents.
pub(crate) fn document_op(op: DocumentOp) -> peer_request::Op {
    use peer_request::Op as Wire;
    match op {
        DocumentOp::Operate(op) => Wire::Operate((&op).into()),
        DocumentOp::Sync(op) => Wire::Sync((&op).into()),
        DocumentOp::Page(op) => Wire::Documents((&op).into()),
        DocumentOp::Clear(op) => Wire::Clear((&op).into()),
        DocumentOp::Import(op) => Wire::Import(op.document.to_bytes().into()),
        DocumentOp::Copy(op) => Wire::Copy((&op).into()),
        DocumentOp::Follow(op) => Wire::Follow((&op).into()),
        DocumentOp::Watch(op) => Wire::Watch((&op).into()),
    }
}

/// The request again; one about sessions is refused.
pub(crate) fn document_op_from(op: peer_request::Op) -> Result<DocumentOp, WireError> {
    use peer_request::Op as Wire;
    Ok(match op {
        Wire::Operate(op) => DocumentOp::Operate(op.try_into()?),
        Wire::Sync(op) => DocumentOp::Sync(op.try_into()?),
        Wire::Documents(op) => DocumentOp::Page(op.try_into()?),
        Wire::Clear(op) => DocumentOp::Clear(op.try_into()?),
        Wire::Import(bytes) => DocumentOp::Import(ImportOp { document: document_of(&bytes)? }),
        Wire::Copy(op) => DocumentOp::Copy(op.try_into()?),
        Wire::Follow(op) => DocumentOp::Follow(op.try_into()?),
        Wire::Watch(op) => DocumentOp::Watch(op.try_into()?),
        Wire::Open(_)
        | Wire::Close(_)
        | Wire::Get(_)
        | Wire::KeepAlive(_)
        | Wire::Lives(_)
        | Wire::List(_)
        | Wire::Pull(_)
        | Wire::Report(_)
        | Wire::Mend(_)
        | Wire::Tasks(_)
        | Wire::Search(_)
        | Wire::Numbers(_) => {
            return Err(WireError::new("PeerRequest.op", "is about sessions"));
        }
    })
}

/// An answer about documents.
pub(crate) fn document_answer(answer: DocumentAnswer) -> peer_answer::Result {
    use DocumentAnswer::{Cleared, Followed, Imported, Operated, Page, Synced, Watched};
    use peer_answer::Result as Wire;
    let documents = |it: Vec<Arc<Document>>| it.iter().map(|it| it.to_bytes().into()).collect();
    match answer {
        Operated(Ok(it)) => Wire::Operated(operate_response(&it)),
        Operated(Err(it)) => Wire::Exception(exception(Of::Operate, &it)),
        // All of them, however large one is: the client's manager fits them into its answer.
        Synced(Ok(it)) => Wire::Synced(v1::SyncResponse {
            updates: it.iter().map(|(name, update)| (name, update).into()).collect(),
        }),
        Synced(Err(it)) => Wire::Exception(exception(Of::Sync, &it)),
        Page(page) => Wire::Documents((&page).into()),
        Cleared { deleted, next } => {
            Wire::Cleared(peer_answer::Cleared { deleted, next: next.as_ref().map(Into::into) })
        }
        Imported(Ok(taken)) => Wire::Imported(peer_answer::Imported { taken }),
        Imported(Err(it)) => Wire::Exception(exception(Of::Import, &it)),
        Watched(Ok(it)) => Wire::Watched((&it).into()),
        Watched(Err(it)) => Wire::Exception(exception(Of::Watch, &it)),
        Followed { documents: it, held } => Wire::Followed(peer_answer::Followed {
            documents: documents(it),
            held: held.as_ref().map(Into::into),
        }),
    }
}

/// The answer again; one about sessions is refused.
pub(crate) fn document_answer_from(
    answer: peer_answer::Result,
) -> Result<DocumentAnswer, WireError> {
    use peer_answer::Result as Wire;
    Ok(match answer {
        Wire::Operated(it) => DocumentAnswer::Operated(Ok(operated(it)?)),
        Wire::Synced(it) => DocumentAnswer::Synced(Ok(each(it.updates)?)),
        Wire::Documents(it) => DocumentAnswer::Page(it.try_into()?),
        Wire::Cleared(it) => {
            DocumentAnswer::Cleared { deleted: it.deleted, next: optional(it.next)? }
        }
        Wire::Imported(it) => DocumentAnswer::Imported(Ok(it.taken)),
        Wire::Followed(it) => {
            let documents = it.documents.iter().map(|it| document_of(it));
            let documents = documents.collect::<Result<_, _>>()?;
            DocumentAnswer::Followed { documents, held: optional(it.held)? }
        }
        Wire::Watched(it) => DocumentAnswer::Watched(Ok(it.try_into()?)),
        Wire::Exception(it) => it.try_into()?,
        Wire::Opened(_)
        | Wire::Closed(_)
        | Wire::Got(_)
        | Wire::KeptAlive(_)
        | Wire::Listed(_)
        | Wire::Pulled(_)
        | Wire::Reported(_)
        | Wire::Mended(_)
        | Wire::Numbers(_)
        | Wire::Tasks(_)
        | Wire::Found(_)
        | Wire::Lives(_)
        | Wire::Refusal(_) => {
            return Err(WireError::new("PeerAnswer.result", "is about sessions"));
        }
    })
}

impl From<&DocumentPage> for peer_answer::Documents {
    fn from(page: &DocumentPage) -> Self {
        let Usage { documents, item_bytes, attachment_bytes } = page.usage;
        Self {
            documents: page.documents.iter().map(Into::into).collect(),
            next: page.next.as_ref().map(Into::into),
            count: documents,
            item_bytes,
            attachment_bytes,
        }
    }
}

impl TryFrom<peer_answer::Documents> for DocumentPage {
    type Error = WireError;
    fn try_from(it: peer_answer::Documents) -> Result<Self, WireError> {
        let usage = Usage {
            documents: it.count,
            item_bytes: it.item_bytes,
            attachment_bytes: it.attachment_bytes,
        };
        Ok(Self { documents: each(it.documents)?, next: optional(it.next)?, usage })
    }
}

pub(super) fn exception(of: Of, exception: &Exception) -> v1::Exception {
    let Details { code, phase, message, fields, operation, attempts, after_ms } =
        exception.details().clone();
    v1::Exception {
        of: of.into(),
        code: code.as_str().into(),
        phase: phase.number().into(),
        message,
        fields: fields.into_iter().map(field_to_wire).collect(),
        operation,
        attempts: attempts.into(),
        after_ms,
    }
}

/// The exception, whatever it answers.
pub(super) fn exception_from(it: v1::Exception) -> Result<Exception, WireError> {
    let phase = u8::try_from(it.phase).ok().and_then(Phase::from_number);
    Ok(Exception::from(Details {
        code: named("Exception.code", Code::parse(&it.code))?,
        phase: required("Exception.phase", phase)?,
        message: it.message,
        fields: it.fields.into_iter().map(field_from_wire).collect(),
        operation: it.operation,
        attempts: u8::try_from(it.attempts).unwrap_or(u8::MAX),
        after_ms: it.after_ms,
    }))
}

impl TryFrom<v1::Exception> for DocumentAnswer {
    type Error = WireError;
    fn try_from(it: v1::Exception) -> Result<Self, WireError> {
        let of = Of::try_from(it.of).ok().filter(|it| *it != Of::Unspecified);
        let of = required("Exception.of", of)?;
        let exception = exception_from(it)?;
        Ok(match of {
            Of::Operate => DocumentAnswer::Operated(Err(exception)),
            Of::Sync => DocumentAnswer::Synced(Err(exception)),
            Of::Import => DocumentAnswer::Imported(Err(exception)),
            Of::Search => return Err(WireError::new("Exception.of", "answers a search")),
            Of::Watch => DocumentAnswer::Watched(Err(exception)),
            Of::Unspecified => unreachable!("it was required"),
        })
    }
}
