//! Exports of one document with its attachments, as of one version.

use super::owners::sync;
use super::{Shared, bodies};
use crate::bodies::refused;
use rota_docstore::{Attachment, Digest, DocName, Stamp, SyncRequest, Update, update_for};
use rota_model::RefusalKind;
use rota_proto::documents::document_export::Part;
use rota_proto::documents::request::ExportDocument;
use rota_proto::v1;
use rota_protocol::api::{Reader, Service};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Records that wait for their reader: reading a body and sending it need not take turns.
const AHEAD: usize = 2;

/// The records of an export.
pub(super) type Exporting = ReceiverStream<Result<v1::DocumentRecord, Status>>;
type Out = mpsc::Sender<Result<v1::DocumentRecord, Status>>;

/// Begins an export: reads the whole document once, so that what is told of it and the bodies that
/// follow belong to the same version, whatever is written meanwhile.
pub(super) async fn begin(
    shared: &Arc<Shared>,
    asked: ExportDocument,
    deadline: Instant,
) -> Result<Exporting, Status> {
    let ExportDocument { space, name, held, bodies: has, caller, items_only, stale_ok } = asked;
    let service = if items_only { Service::Sync } else { Service::Export };
    let reader = Some(Reader { space, service, caller });
    let whole = vec![SyncRequest { name: name.clone(), held: None }];
    let found = sync(shared, reader, whole, stale_ok, deadline).await?.pop();
    let none = || refused(RefusalKind::Internal, "the owner sent no update");
    let (_, found) = found.ok_or_else(none)?;
    let (update, missing) = if let Update::Full(document) = &found {
        let named = document.attachments().map(|(_, it)| (it.sha256(), it.clone()));
        let missing = named.filter(|(sha256, _)| !items_only && !has.contains(sha256)).collect();
        // The document is there: nobody looks at how much is known.
        (update_for(Some(document), held.as_ref(), Stamp::MIN), missing)
    } else {
        (found, BTreeMap::new())
    };
    let (out, stream) = mpsc::channel(AHEAD);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        if let Err(status) = write(&shared, name, update, missing, &out).await {
            // Without the end its reader knows that it is not whole.
            let _ = out.send(Err(status)).await;
        }
    });
    Ok(ReceiverStream::new(stream))
}

/// Ends early when the reader is gone.
async fn write(
    shared: &Shared,
    name: DocName,
    update: Update,
    missing: BTreeMap<Digest, Attachment>,
    out: &Out,
) -> Result<(), Status> {
    let is_behind = matches!(update, Update::SourceBehind { .. });
    let update = Part::Update(name.clone(), update);
    let mut is_read = true;
    for record in update.records() {
        is_read = is_read && out.send(Ok(record)).await.is_ok();
    }
    let mut bodies = 0;
    // Whoever has a newer version has no use for bodies of this one.
    for (sha256, attachment) in missing.into_iter().filter(|_| !is_behind) {
        if !is_read {
            return Ok(());
        }
        let begin = (&Part::Body(attachment)).into();
        let bytes = |it| (&Part::Bytes(it)).into();
        is_read = bodies::write_one(shared, &name, sha256, begin, bytes, out).await?;
        bodies += 1;
    }
    // Nobody may be there any more to take it.
    let _ = out.send(Ok((&Part::End { bodies }).into())).await;
    Ok(())
}
