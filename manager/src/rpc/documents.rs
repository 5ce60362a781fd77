//! Operations on documents, copies, and lists of names.

use super::{Shared, bodies, export_document, no_view, status, watch, watched};
use crate::rpc::deadline::deadline_of;
use crate::rpc::search::{Question, gather};
use metrics::counter;
use rota_docstore::space::{WEB_BODY_CLASS, WEB_CLASS, WebHead};
use rota_docstore::{Content, DocName, Exception, Namespace, Phase, SyncRequest, Update, codes};
use rota_model::{ManagerNumber, Refusal, RefusalKind, Retry, SlotId};
use rota_proto::documents::{
    answer, in_call, request, search as wire, status as exception_status, watch as proto_watch,
};
use rota_proto::v1;
use rota_protocol::api::{OperateOp, PageOp, Reader, Service, SyncOp};
use rota_protocol::operate::{self, slot_of};
use rota_protocol::{
    Answer, DocumentAnswer, DocumentCursor, DocumentHead, DocumentOp, DocumentPage, Op,
};
use rota_ring::View;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

/// The service of documents.
pub struct DocumentsService {
    shared: Arc<Shared>,
}

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

/// Why a web resource is not given: the HTTP status, and a text.
pub type NoPage = (u16, String);

impl Failure {
    /// As HTTP has it: exceptions by their table; 503 when nobody could be asked.
    fn page(self) -> NoPage {
        match self {
            Self::Raised(exception) => (exception.letter().row().http, exception.to_string()),
            Self::Refused(refusal) => (503, refusal.message),
        }
    }
}

/// A web resource: its mime type and its bytes. `None`: there is none of that path.
pub async fn web(
    shared: &Shared,
    path: &str,
    deadline: Instant,
) -> Result<Option<(String, Vec<u8>)>, NoPage> {
    let z = Namespace::parse(operate::CONFIGURATION).expect("z is a name");
    let Ok(name) = DocName::new(&z, WEB_CLASS, path) else { return Ok(None) };
    let syncs = vec![SyncRequest { name, held: None }];
    let update = sync(shared, None, syncs, true, deadline).await.map_err(Failure::page)?.pop();
    let Some((_, Update::Full(document))) = update else { return Ok(None) };
    let stored = |it| Failure::Raised(Exception::of_field(codes::STORED, it)).page();
    let head = document.one::<WebHead>().map_err(stored)?;
    let body = match document.content(WEB_BODY_CLASS, None) {
        Some(Content::Raw(bytes)) => Some(bytes.to_vec()),
        Some(Content::Json(_) | Content::Attachment(_)) | None => None,
    };
    Ok(head.map(|it| it.mime).zip(body))
}

fn kind_of(update: &Update) -> &'static str {
    match update {
        Update::Unchanged { .. } => "unchanged",
        Update::Full(_) => "full",
        Update::Changes(changes) if changes.unchanged().is_some() => "changes_and_names",
        Update::Changes(_) => "changes",
        Update::Deleted { .. } => "deleted",
        Update::Absent { .. } => "absent",
        Update::SourceBehind { .. } => "source_behind",
    }
}

fn count_updates(updates: &[(DocName, Update)]) {
    for (_, update) in updates {
        counter!("rota_sync_updates_total", "kind" => kind_of(update)).increment(1);
    }
}

impl DocumentsService {
    /// The service.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn count(&self, name: &str, result: &Result<rota_docstore::Answer, Failure>) {
        let name = self.shared.operations.get_key_value(name).map_or("other", |it| it.0);
        let outcome = match result {
            Ok(_) => "ok".to_owned(),
            Err(Failure::Raised(exception)) => format!("{:?}", exception.letter()),
            Err(Failure::Refused(refusal)) => refusal.kind.as_str().to_owned(),
        };
        counter!("rota_operations_total", "operation" => name, "result" => outcome).increment(1);
    }

    /// A page, from one owner after the other.
    async fn gather(
        &self,
        list: &request::List,
        deadline: Instant,
    ) -> Result<(Vec<DocumentHead>, Option<DocumentCursor>), Failure> {
        let (mut heads, mut next) = (Vec::new(), Some(list.from.clone()));
        while let Some(from) = next.clone() {
            let found = u32::try_from(heads.len()).unwrap_or(u32::MAX);
            let limit = list.limit.saturating_sub(found);
            if limit == 0 {
                break;
            }
            let (space, class) = (list.space.clone(), list.class.clone());
            let op = PageOp { from, limit, space, class, by_operator: false };
            match page(&self.shared, op, deadline).await {
                Ok(page) => {
                    heads.extend(page.documents);
                    next = page.next;
                }
                Err(failure) if heads.is_empty() => return Err(failure),
                // What was gathered is a shorter page.
                Err(_) => break,
            }
        }
        Ok((heads, next))
    }
}

#[tonic::async_trait]
impl v1::documents_server::Documents for DocumentsService {
    type GetBodyStream = bodies::Bodies;
    type ExportDocumentStream = export_document::Exporting;
    type WatchDocumentsStream = watch::Changes<watched::Documents>;

    async fn operate(
        &self,
        request: Request<v1::OperateRequest>,
    ) -> Result<Response<v1::OperateResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let name = request.get_ref().operation.clone();
        let checked = request::operate(request.into_inner());
        let checked = checked.map_err(|it| exception_status(&it.in_call(&name)))?;
        let op = OperateOp { request: Arc::new(checked.request), docid: checked.docid };
        let asked = op.request.clone();
        let result = operate(&self.shared, op, deadline).await;
        self.count(&asked.operation, &result);
        let answer = result.map_err(|it| in_call(&name, it.into()))?;
        count_updates(&answer.updates);
        Ok(Response::new(answer::operate_response(&answer)))
    }

    async fn list_operations(
        &self,
        _: Request<v1::ListOperationsRequest>,
    ) -> Result<Response<v1::ListOperationsResponse>, Status> {
        let told = self.shared.operations.iter().map(|(name, about)| v1::OperationInfo {
            name: (*name).to_owned(),
            summary: about.summary.to_owned(),
            parameters: about.parameters.to_owned(),
            example: about.example.to_owned(),
        });
        Ok(Response::new(v1::ListOperationsResponse { operations: told.collect() }))
    }

    async fn sync(
        &self,
        request: Request<v1::SyncRequest>,
    ) -> Result<Response<v1::SyncResponse>, Status> {
        let asked = async {
            let deadline = deadline_of(request.metadata());
            let asked = request::sync(request.into_inner()).map_err(|it| exception_status(&it))?;
            let (space, service) = (asked.space, Service::Sync);
            let reader = Some(Reader { space, service, caller: asked.caller });
            let (syncs, stale_ok) = (asked.documents, asked.stale_ok);
            let updates = sync(&self.shared, reader, syncs, stale_ok, deadline).await?;
            count_updates(&updates);
            Ok::<_, Status>(Response::new(answer::sync_response(&updates)))
        };
        asked.await.map_err(|it| in_call(Service::Sync.as_str(), it))
    }

    async fn list_documents(
        &self,
        request: Request<v1::ListDocumentsRequest>,
    ) -> Result<Response<v1::ListDocumentsResponse>, Status> {
        let asked = async {
            let deadline = deadline_of(request.metadata());
            let list = request::list(request.into_inner()).map_err(|it| exception_status(&it))?;
            let (space, service) = (list.space.clone(), Service::List);
            let reader = Reader { space, service, caller: list.caller.clone() };
            admit(&self.shared, reader, list.from.slot, deadline).await?;
            let (heads, next) = self.gather(&list, deadline).await?;
            Ok::<_, Status>(Response::new(answer::list_response(&heads, next.as_ref(), &list)))
        };
        asked.await.map_err(|it| in_call(Service::List.as_str(), it))
    }

    async fn search(
        &self,
        request: Request<v1::SearchRequest>,
    ) -> Result<Response<v1::SearchResponse>, Status> {
        let asked = async {
            let deadline = deadline_of(request.metadata());
            let request = request.into_inner();
            let shapes = self.shared.searchable.shapes(&request.class);
            let asked = wire::search(request, &shapes).map_err(|it| exception_status(&it))?;
            let wire::Asked { search, after, limit, caller } = asked;
            let space = search.query().space.clone().unwrap_or_else(Namespace::default_space);
            let reader = Some(Reader { space, service: Service::Search, caller });
            let with_sessions = false;
            let question = Question { search: search.clone(), after, limit, reader, with_sessions };
            let gathered = gather(&self.shared, question, deadline).await?;
            Ok::<_, Status>(Response::new(wire::search_response(&search, &gathered.page)))
        };
        asked.await.map_err(|it| in_call(Service::Search.as_str(), it))
    }

    async fn watch_documents(
        &self,
        request: Request<v1::WatchDocumentsRequest>,
    ) -> Result<Response<Self::WatchDocumentsStream>, Status> {
        let begun = || {
            let asked = proto_watch::watch_documents(request.into_inner());
            let asked = asked.map_err(|it| exception_status(&it))?;
            if let Some(position) = &asked.position {
                let checked = proto_watch::check_cluster(position, &self.shared.cluster);
                checked.map_err(|it| exception_status(&it))?;
            }
            let (reader, of) = (Arc::new(asked.reader), Arc::new(asked.of));
            let watched = watched::Documents { reader, of };
            watch::start(self.shared.clone(), watched, asked.position).map_err(status)
        };
        let begun = begun().map_err(|it| in_call(Service::Watch.as_str(), it))?;
        Ok(Response::new(begun))
    }

    async fn put_body(
        &self,
        request: Request<Streaming<v1::PutBodyRequest>>,
    ) -> Result<Response<v1::PutBodyResponse>, Status> {
        let put = bodies::put(&self.shared, request).await;
        put.map_err(|it| in_call(Service::PutBody.as_str(), it))
    }

    async fn get_body(
        &self,
        request: Request<v1::GetBodyRequest>,
    ) -> Result<Response<bodies::Bodies>, Status> {
        let got = bodies::get(&self.shared, request.get_ref()).await;
        got.map_err(|it| in_call(Service::GetBody.as_str(), it))
    }

    async fn export_document(
        &self,
        request: Request<v1::ExportDocumentRequest>,
    ) -> Result<Response<export_document::Exporting>, Status> {
        let asked = async {
            let deadline = deadline_of(request.metadata());
            let asked = request::export_document(request.into_inner());
            let asked = asked.map_err(|it| exception_status(&it))?;
            Ok::<_, Status>(Response::new(
                export_document::begin(&self.shared, asked, deadline).await?,
            ))
        };
        asked.await.map_err(|it| in_call(Service::Export.as_str(), it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_refused_with_the_status_of_the_table_or_503_when_nobody_could_be_asked() {
        let missing = Exception::missing("PAGE", "there is none");
        assert_eq!(Failure::from(missing).page(), (404, "N-PAGE: there is none".to_owned()));
        let off = Refusal::new(RefusalKind::NamespaceOff, Retry::Never, "Back at noon");
        assert_eq!(Failure::from(off).page(), (400, "O-OFF: Back at noon".to_owned()));
        let away = Refusal::new(RefusalKind::NotServing, Retry::AfterMs(200), "no View yet");
        assert_eq!(Failure::from(away).page(), (503, "no View yet".to_owned()));
    }
}
