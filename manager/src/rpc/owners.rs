//! What owners of documents are asked, and why that fails.

use super::{Shared, no_view, status};
use rota_docstore::{DocName, Exception, Phase, SyncRequest, Update, codes};
use rota_model::{ManagerNumber, Refusal, RefusalKind, Retry, SlotId};
use rota_proto::documents::status as exception_status;
use rota_protocol::api::{OperateOp, PageOp, Reader, SyncOp};
use rota_protocol::operate::slot_of;
use rota_protocol::{Answer, DocumentAnswer, DocumentOp, DocumentPage, Op};
use rota_ring::View;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use tonic::Status;

/// Why a request about documents fails: before the owner, or at it.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody carried it out.
    Refused(Refusal),
    /// What it came to.
    Raised(Exception),
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) => status(refusal),
            Failure::Raised(exception) => exception_status(&exception),
        }
    }
}

impl From<Exception> for Failure {
    fn from(exception: Exception) -> Self {
        Self::Raised(exception)
    }
}

/// Whoever works with documents is told of a namespace that is off as of every other exception.
impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        if refusal.kind == RefusalKind::NamespaceOff {
            return Self::Raised(Exception::new(codes::OFF, refusal.message).at(Phase::Before));
        }
        Self::Refused(refusal)
    }
}

/// An answer that belongs to another request.
pub(super) fn mixed_up(answer: &Answer) -> Failure {
    let text = format!("the answer is of another kind: {answer:?}");
    Failure::Refused(Refusal::new(RefusalKind::Internal, Retry::Never, text))
}

/// Runs an operation.
pub(super) async fn operate(
    shared: &Shared,
    op: OperateOp,
    deadline: Instant,
) -> Result<rota_docstore::Answer, Failure> {
    let op = Op::Documents(DocumentOp::Operate(op));
    let answer = shared.mailbox.call(op, deadline).await?;
    let Answer::Documents(DocumentAnswer::Operated(result)) = answer else {
        return Err(mixed_up(&answer));
    };
    Ok(result?)
}

/// Whether a client may ask, by the owner of a slot, who serves then.
pub(super) async fn admit(
    shared: &Shared,
    reader: Reader,
    slot: SlotId,
    deadline: Instant,
) -> Result<(), Failure> {
    let (reader, syncs) = (Some(Arc::new(reader)), Vec::new());
    let nothing = SyncOp { reader, slot, syncs, stale_ok: true };
    let answer = shared.mailbox.call(Op::Documents(DocumentOp::Sync(nothing)), deadline).await?;
    let Answer::Documents(DocumentAnswer::Synced(synced)) = answer else {
        return Err(mixed_up(&answer));
    };
    synced?;
    Ok(())
}

/// One page of one partition.
pub(super) async fn page(
    shared: &Shared,
    op: PageOp,
    deadline: Instant,
) -> Result<DocumentPage, Failure> {
    let answer = shared.mailbox.call(Op::Documents(DocumentOp::Page(op)), deadline).await?;
    let Answer::Documents(DocumentAnswer::Page(page)) = answer else {
        return Err(mixed_up(&answer));
    };
    Ok(page)
}

/// The View, or the first one that this manager sees.
pub(super) async fn some_view(shared: &Shared, deadline: Instant) -> Result<Arc<View>, Failure> {
    let mut seen = shared.seen.clone();
    let first = tokio::time::timeout_at(deadline, seen.wait_for(|it| it.view.is_some())).await;
    let view = first.ok().and_then(|it| it.ok()?.view.clone());
    view.ok_or_else(|| Failure::Refused(no_view()))
}

/// Updates in the order of the request: from each owner at the same time. When one of them sends
/// only the first ones, the rest of the request is left out.
pub(super) async fn sync(
    shared: &Shared,
    reader: Option<Reader>,
    syncs: Vec<SyncRequest>,
    stale_ok: bool,
    deadline: Instant,
) -> Result<Vec<(DocName, Update)>, Failure> {
    let view = some_view(shared, deadline).await?;
    let reader = reader.map(Arc::new);
    let mut parts: BTreeMap<ManagerNumber, (SlotId, Vec<usize>)> = BTreeMap::new();
    for (at, sync) in syncs.iter().enumerate() {
        let slot = slot_of(&sync.name, view.m);
        parts.entry(view.part_of(slot).0).or_insert((slot, Vec::new())).1.push(at);
    }
    let begun: Vec<_> = parts
        .into_values()
        .map(|(slot, places)| {
            let syncs = places.iter().map(|at| syncs[*at].clone()).collect();
            let op = SyncOp { reader: reader.clone(), slot, syncs, stale_ok };
            (places, shared.mailbox.begin(Op::Documents(DocumentOp::Sync(op)), deadline))
        })
        .collect();
    let mut found: BTreeMap<usize, (DocName, Update)> = BTreeMap::new();
    for (places, begun) in begun {
        let answer = begun.answer().await?;
        let Answer::Documents(DocumentAnswer::Synced(updates)) = answer else {
            return Err(mixed_up(&answer));
        };
        found.extend(places.into_iter().zip(updates?));
    }
    let in_order = found.into_iter().enumerate().take_while(|(at, (place, _))| at == place);
    Ok(in_order.map(|(_, (_, update))| update).collect())
}
