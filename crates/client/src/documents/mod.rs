//! Documents: operations on them, copies of them, bodies of attachments.

mod body;
pub(crate) mod call;
mod exporting;
mod namespaces;
mod upload;

pub(crate) use upload::silent;

pub use body::BodyReader;
pub use exporting::DocumentExport;
pub use namespaces::{Export, Imported, Namespaces, RecordSource};
pub use rota_proto::documents::{
    DocumentCursor, NamespaceState,
    answer::Head,
    document_export, export, request,
    search::{FoundHit, FoundPage},
    watch,
};

use crate::error::CallError;
use crate::session::Client;
use rota_docstore::{Answer, DocName, SyncRequest, Update};
use rota_proto::documents::answer::{self, Told};
use rota_proto::documents::request::{ExportDocument, GetBody, Operate, PutBody, Sync};
use rota_proto::documents::search::searched;
use rota_proto::{WireError, v1};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncSeek};

/// A client of the documents of one cluster: a view of a [`Client`], with its connections, its
/// retries and its routing. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Documents {
    client: Client,
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The documents.
    pub documents: Vec<Head>,
    /// Continues the list; empty: it is complete.
    pub next_page_token: String,
}

impl Client {
    /// Its documents.
    pub fn documents(&self) -> Documents {
        Documents { client: self.clone() }
    }

    /// Its namespaces, for operators.
    pub fn namespaces(&self) -> Namespaces {
        Namespaces::new(self.clone())
    }
}

/// An answer that was not what the protocol says.
pub(crate) fn unreadable(problem: &WireError, endpoint: &str) -> CallError {
    CallError::Unreadable { problem: problem.to_string(), endpoint: endpoint.to_owned() }
}

impl Documents {
    /// Runs one operation. With an operation time it is sent again when its outcome is unknown, since the
    /// repetition is known as one; without, only when it is certain that it has changed nothing. A
    /// `request_id` goes with each operation time: one that is not given is filled in, for this call alone. Give one
    /// to be able to ask again later: the same for a repetition, and a new one for everything else.
    /// The answer may hold fewer updates than were asked for (those that fit into it, in order; none when the first answer was lost on its way):
    /// [`Documents::sync`] brings the rest.
    pub async fn operate(&self, operate: &Operate, wait: Duration) -> Result<Answer, CallError> {
        let mut request = v1::OperateRequest::from(operate);
        if request.operation_time != 0 && request.request_id.is_empty() {
            request.request_id = self.client.request_id();
        }
        let answered = self.client.call(request, wait).await?;
        answer::operated(answered.answer).map_err(|it| unreadable(&it, &answered.endpoint))
    }

    /// What there is to run, in order of name: the operations of the manager that answers.
    pub async fn operations(&self, wait: Duration) -> Result<Vec<v1::OperationInfo>, CallError> {
        let answered = self.client.call(v1::ListOperationsRequest {}, wait).await?;
        Ok(answered.answer.operations)
    }

    /// Asks for updates of copies: one for each document, in order. Updates that do not fit into
    /// one answer are asked for one after the other, each within `wait`. One that is too large for any answer
    /// comes as a stream, which may pause for `wait`.
    pub async fn sync(
        &self,
        sync: &Sync,
        wait: Duration,
    ) -> Result<Vec<(DocName, Update)>, CallError> {
        let mut rest = sync.clone();
        let mut updates = Vec::with_capacity(sync.documents.len());
        while !rest.documents.is_empty() {
            let answered = self.client.call(v1::SyncRequest::from(&rest), wait).await?;
            let part = answer::synced(answered.answer)
                .map_err(|it| unreadable(&it, &answered.endpoint))?;
            let asked = rest.documents.iter().map(|it| &it.name);
            let is_ours = part.len() <= rest.documents.len()
                && part.iter().zip(asked).all(|((name, _), wanted)| name == wanted);
            if part.is_empty() || !is_ours {
                let endpoint = answered.endpoint.to_string();
                return Err(CallError::Incomplete { missing: "updates", endpoint });
            }
            let asked: Vec<SyncRequest> = rest.documents.drain(..part.len()).collect();
            for ((name, told), asked) in part.into_iter().zip(asked) {
                let update = match told {
                    Told::Update(update) => update,
                    Told::TooLarge { .. } => {
                        exporting::update(&self.client, &rest, &asked, wait).await?
                    }
                };
                updates.push((name, update));
            }
        }
        Ok(updates)
    }

    /// One page of the documents of a namespace, ring-wide. Pages follow each other by
    /// `page_token`.
    pub async fn list(
        &self,
        request: v1::ListDocumentsRequest,
        wait: Duration,
    ) -> Result<Listed, CallError> {
        let answered = self.client.call(request, wait).await?;
        let (documents, next_page_token) =
            answer::listed(answered.answer).map_err(|it| unreadable(&it, &answered.endpoint))?;
        Ok(Listed { documents, next_page_token })
    }

    /// One page of a search, ring-wide. Pages follow each other by `page_token`. What does not change meanwhile is on
    /// exactly one of them.
    pub async fn search(
        &self,
        request: v1::SearchRequest,
        wait: Duration,
    ) -> Result<FoundPage, CallError> {
        let answered = self.client.call(request, wait).await?;
        searched(answered.answer).map_err(|it| unreadable(&it, &answered.endpoint))
    }

    /// The first `most` results from `request.page_token` on, each page within `wait`, as one page.
    pub async fn search_first(
        &self,
        mut request: v1::SearchRequest,
        most: usize,
        wait: Duration,
    ) -> Result<FoundPage, CallError> {
        let mut all = FoundPage::default();
        loop {
            let page = self.search(request.clone(), wait).await?;
            all.hits.extend(page.hits);
            all.documents_read += page.documents_read;
            if page.next_page_token.is_empty() || all.hits.len() >= most {
                all.hits.truncate(most);
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Stores the body of an attachment; then an item that names it can be committed. True when
    /// it was there already. Reads the source in pieces, a few ahead of the network, and from its
    /// beginning again after a break. `patience`: the longest time without progress.
    pub async fn put_body<R>(
        &self,
        put: &PutBody,
        source: &mut R,
        patience: Duration,
    ) -> Result<bool, CallError>
    where
        R: AsyncRead + AsyncSeek + Unpin + Send,
    {
        body::put(&self.client, put, source, patience).await
    }

    /// Reads a body in pieces; nothing is sent before the first [`BodyReader::next`]. `patience`:
    /// the longest time without progress.
    pub fn get_body(&self, get: GetBody, patience: Duration) -> BodyReader {
        BodyReader::new(self.client.clone(), get, patience)
    }

    /// Begins to read a document with its attachments, as of one version: how a copy gets there, then
    /// the bodies that are not held. `patience`: the longest time without a part.
    pub async fn export(
        &self,
        export: &ExportDocument,
        patience: Duration,
    ) -> Result<DocumentExport, CallError> {
        exporting::begin(&self.client, export, patience).await
    }
}
