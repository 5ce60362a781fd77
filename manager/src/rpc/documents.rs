//! Operations on documents, copies, and lists of names.

use super::owners::{Failure, admit, operate, page, sync};
use super::{Shared, bodies, export_document, status, watch, watched};
use crate::rpc::deadline::deadline_of;
use crate::rpc::search::{Question, gather};
use metrics::counter;
use rota_docstore::space::{WEB_BODY_CLASS, WEB_CLASS, WebHead};
use rota_docstore::{Content, DocName, Exception, Namespace, SyncRequest, Update, codes};
use rota_proto::documents::{
    answer, in_call, request, search as wire, status as exception_status, watch as proto_watch,
};
use rota_proto::v1;
use rota_protocol::api::{OperateOp, PageOp, Reader, Service};
use rota_protocol::operate::CONFIGURATION;
use rota_protocol::{DocumentCursor, DocumentHead};
use std::sync::Arc;
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

/// The service of documents.
pub struct DocumentsService {
    shared: Arc<Shared>,
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
    let z = Namespace::parse(CONFIGURATION).expect("z is a name");
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
    use rota_model::{Refusal, RefusalKind, Retry};

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
