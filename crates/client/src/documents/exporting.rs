//! Exports of one document with its attachments.

use super::body::owner;
use super::call::documents;
use super::unreadable;
use super::upload::silent;
use crate::call;
use crate::error::CallError;
use crate::resume::{BEGIN_WAIT, Resume, ended};
use crate::session::Client;
use rota_docstore::{Attachment, Digest, SyncRequest, Update};
use rota_model::Changed;
use rota_proto::documents::document_export::{Order, Part};
use rota_proto::documents::request::{ExportDocument, Sync};
use rota_proto::v1;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::{Status, Streaming};

/// An export of a document that is being read. It cannot go on after a break: begin again, and name
/// the bodies that have come.
#[derive(Debug)]
pub struct DocumentExport {
    stream: Streaming<v1::DocumentRecord>,
    order: Order,
    /// The body that is under way.
    body: Option<(Attachment, Sha256)>,
    endpoint: Arc<str>,
    patience: Duration,
}

pub(super) async fn begin(
    client: &Client,
    export: &ExportDocument,
    patience: Duration,
) -> Result<DocumentExport, CallError> {
    let mut resume = Resume::reading(client, patience);
    loop {
        let (space, docid) = (export.name.space(), export.name.docid());
        let endpoint = owner(client, &mut resume, space, docid).await;
        let borrowed = client.endpoints.connect_to(&endpoint)?;
        let mut service = documents(borrowed.channel.clone());
        let begun =
            timeout(BEGIN_WAIT, service.export_document(v1::ExportDocumentRequest::from(export)))
                .await;
        let failure = match begun {
            Ok(Ok(response)) => {
                let (stream, order) = (response.into_inner(), Order::default());
                return Ok(DocumentExport { stream, order, body: None, endpoint, patience });
            }
            Ok(Err(status)) => call::failure(&status),
            Err(_elapsed) => call::failure(&Status::unavailable("no stream began in time")),
        };
        resume.recover(client, failure, &endpoint).await?;
    }
}

/// An update that is too large for an answer.
pub(super) async fn update(
    client: &Client,
    sync: &Sync,
    asked: &SyncRequest,
    wait: Duration,
) -> Result<Update, CallError> {
    let export = ExportDocument {
        space: sync.space.clone(),
        name: asked.name.clone(),
        held: asked.held,
        bodies: BTreeSet::new(),
        caller: sync.caller.clone(),
        items_only: true,
        stale_ok: sync.stale_ok,
    };
    let mut export = begin(client, &export, wait).await?;
    let mut update = None;
    while let Some(part) = export.next().await? {
        if let Part::Update(name, its) = part
            && name == asked.name
        {
            update = Some(its);
        }
    }
    let endpoint = || export.endpoint.to_string();
    update.ok_or_else(|| CallError::Incomplete { missing: "updates", endpoint: endpoint() })
}

impl DocumentExport {
    /// The next part; `None` after the end, and never before it. A body whose bytes have all come is
    /// checked: one of another digest is an error, with its last piece.
    pub async fn next(&mut self) -> Result<Option<Part>, CallError> {
        let failure = loop {
            match timeout(self.patience, self.stream.message()).await {
                Ok(Ok(Some(record))) => {
                    let part = self.order.take(record);
                    let part = part.map_err(|it| unreadable(&it, &self.endpoint))?;
                    let Some(part) = part else { continue };
                    self.check(&part)?;
                    return Ok(Some(part));
                }
                Ok(Ok(None)) if self.order.is_complete() => return Ok(None),
                Ok(Ok(None)) => break ended(),
                Ok(Err(status)) => break call::failure(&status),
                Err(_elapsed) => break silent(),
            }
        };
        Err(call::error(failure, &self.endpoint, 1, Changed::No))
    }

    /// Bodies that have begun so far.
    pub fn bodies(&self) -> u64 {
        self.order.bodies()
    }

    /// Whether all bytes of the body that began last have come.
    pub fn is_body_whole(&self) -> bool {
        self.order.is_body_whole()
    }

    fn check(&mut self, part: &Part) -> Result<(), CallError> {
        match (part, &mut self.body) {
            (Part::Body(attachment), body) => *body = Some((attachment.clone(), Sha256::new())),
            (Part::Bytes(bytes), Some((_, digesting))) => digesting.update(bytes),
            (Part::Bytes(_) | Part::Update(..) | Part::End { .. }, _) => {}
        }
        if !self.order.is_body_whole() {
            return Ok(());
        }
        let Some((attachment, digesting)) = self.body.take() else { return Ok(()) };
        let came = Digest(digesting.finalize().into());
        if came == attachment.sha256() {
            return Ok(());
        }
        let problem = format!("a body has digest {came}, not {}", attachment.sha256());
        Err(CallError::Unreadable { problem, endpoint: self.endpoint.to_string() })
    }
}
