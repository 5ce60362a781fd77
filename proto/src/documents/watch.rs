//! Watches of documents: what clients ask and are told, and what managers ask of owners.

use super::UPDATES_BYTES_MAX;
use super::document::stamp;
use super::exception::invalid;
use super::request::caller;
use crate::mistakes::Mistakes;
use crate::position::Position;
use crate::v1;
use crate::v1::DocumentNews as News;
use crate::v1::peer_answer::Watched;
use crate::wire::{WireError, convert, each, optional, required};
use prost::Message;
use rota_docstore::{Caller, Credentials, Document, Exception, FieldError};
use rota_messages::DocumentCursor;
use rota_messages::api::{ItemFilter, Reader, Service, WatchOp, WatchedDocuments};
use rota_model::{ManagerNumber, Namespace, Pulled, SlotId};
use std::sync::Arc;

pub use rota_messages::api::{DocumentChange, DocumentEvent};

/// A watch as a client asks for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchDocuments {
    /// Who reads.
    pub reader: Reader,
    /// What is watched.
    pub of: WatchedDocuments,
    /// Where it goes on; `None`: it begins with a snapshot.
    pub position: Option<Position>,
}

/// Checks a watch. Whether its filter fits the fields, the owner knows.
pub fn watch_documents(request: v1::WatchDocumentsRequest) -> Result<WatchDocuments, Exception> {
    let mut mistakes = Mistakes::default();
    let space = mistakes.namespace(&request.namespace);
    let reader = match &*request.reader {
        "" => space.clone(),
        given => mistakes.note_in("reader", Namespace::parse(given)),
    };
    let class = match &*request.class {
        "" => Some(None),
        given => mistakes.class("class", given).map(Some),
    };
    let docid = match &*request.docid {
        "" => Some(None),
        given => mistakes.docid("docid", given).map(Some),
    };
    let has_filter = !request.filter.is_empty() || !request.item.is_empty();
    let needs = [("docid", !request.docid.is_empty()), ("filter", has_filter)];
    for (field, _) in needs.into_iter().filter(|(_, is_given)| *is_given) {
        if request.class.is_empty() {
            let problem = format!("is empty; {field} needs the class of the documents");
            mistakes.note::<()>(Err(FieldError::new("class", problem)));
        }
    }
    let position = match &*request.position {
        b"" => Some(None),
        given => mistakes.note(Position::from_bytes(given)).map(Some),
    };
    let caller = caller!(request);
    let item = Some(request.item).filter(|it| !it.is_empty());
    let filter = has_filter.then_some(ItemFilter { text: request.filter, item });
    let names_only = request.names_only;
    let found = (|| {
        let reader = Reader { space: reader?, service: Service::Watch, caller };
        let (space, class, docid) = (space?, class?, docid?);
        let of = WatchedDocuments { space, class, docid, filter, names_only };
        Some(WatchDocuments { reader, of, position: position? })
    })();
    mistakes.all(found)
}

/// The way back: what clients of this code send.
impl From<&WatchDocuments> for v1::WatchDocumentsRequest {
    fn from(watch: &WatchDocuments) -> Self {
        let position = watch.position.as_ref().map(Position::to_bytes).unwrap_or_default();
        Self { position, ..request_of(&watch.reader, &watch.of) }
    }
}

fn request_of(reader: &Reader, of: &WatchedDocuments) -> v1::WatchDocumentsRequest {
    let Caller { build, who } = reader.caller.clone();
    let (filter, item) = match &of.filter {
        Some(it) => (it.text.clone(), it.item.clone().unwrap_or_default()),
        None => (String::new(), String::new()),
    };
    v1::WatchDocumentsRequest {
        namespace: of.space.as_str().into(),
        reader: reader.space.as_str().into(),
        class: of.class.clone().unwrap_or_default(),
        docid: of.docid.clone().unwrap_or_default(),
        filter,
        item,
        names_only: of.names_only,
        position: bytes::Bytes::new(),
        build: build.unwrap_or(0),
        account: who.account,
        key: who.key,
        admin: who.admin,
    }
}

impl From<&DocumentEvent> for v1::DocumentEvent {
    fn from(event: &DocumentEvent) -> Self {
        let (news, document) = match &event.change {
            DocumentChange::Is(document) => (News::Is, Some((&**document).into())),
            DocumentChange::Named => (News::Named, None),
            DocumentChange::TooLarge => (News::TooLarge, None),
            DocumentChange::Ended => (News::Ended, None),
            DocumentChange::Left => (News::Left, None),
        };
        Self {
            name: Some((&event.name).into()),
            ctime: event.ctime.as_u64(),
            version: event.version.as_u64(),
            news: news.into(),
            document,
        }
    }
}

impl TryFrom<v1::DocumentEvent> for DocumentEvent {
    type Error = WireError;
    fn try_from(event: v1::DocumentEvent) -> Result<Self, WireError> {
        let news = News::try_from(event.news).ok().filter(|it| *it != News::Unspecified);
        let change = match required("DocumentEvent.news", news)? {
            News::Is => {
                let document: Document = convert("DocumentEvent.document", event.document)?;
                DocumentChange::Is(Arc::new(document))
            }
            News::Named => DocumentChange::Named,
            News::TooLarge => DocumentChange::TooLarge,
            News::Ended => DocumentChange::Ended,
            News::Left => DocumentChange::Left,
            News::Unspecified => unreachable!("it was required"),
        };
        Ok(Self {
            name: convert("DocumentEvent.name", event.name)?,
            ctime: stamp("DocumentEvent.ctime", event.ctime)?,
            version: stamp("DocumentEvent.version", event.version)?,
            change,
        })
    }
}

/// An event as a client is told of it: contents that take more than an answer are left out.
pub fn told(event: &DocumentEvent) -> v1::DocumentEvent {
    let told = v1::DocumentEvent::from(event);
    if told.encoded_len() <= UPDATES_BYTES_MAX {
        return told;
    }
    v1::DocumentEvent { news: News::TooLarge.into(), document: None, ..told }
}

impl From<&WatchOp> for v1::WatchOp {
    fn from(op: &WatchOp) -> Self {
        Self {
            watch: Some(request_of(&op.reader, &op.of)),
            slot: op.slot.0,
            from: op.from.map(Into::into),
            snapshot_after: op.snapshot_after.as_ref().map(Into::into),
            tells_absent: op.tells_absent,
            limit: op.limit,
            wait_ms: op.wait_ms,
        }
    }
}

impl TryFrom<v1::WatchOp> for WatchOp {
    type Error = WireError;
    fn try_from(op: v1::WatchOp) -> Result<Self, WireError> {
        let asked = watch_documents(required("WatchOp.watch", op.watch)?);
        let asked = asked.map_err(|it| WireError::new("WatchOp.watch", it.to_string()))?;
        Ok(Self {
            reader: Arc::new(asked.reader),
            of: Arc::new(asked.of),
            slot: SlotId(op.slot),
            from: optional(op.from)?,
            snapshot_after: optional(op.snapshot_after)?,
            tells_absent: op.tells_absent,
            limit: op.limit,
            wait_ms: op.wait_ms,
        })
    }
}

impl From<&Pulled<DocumentEvent, DocumentCursor>> for Watched {
    fn from(pulled: &Pulled<DocumentEvent, DocumentCursor>) -> Self {
        Self {
            part: pulled.part.0,
            events: pulled.events.iter().map(Into::into).collect(),
            snapshot: pulled.snapshot,
            upto: Some(pulled.upto.into()),
            snapshot_next: pulled.snapshot_next.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<Watched> for Pulled<DocumentEvent, DocumentCursor> {
    type Error = WireError;
    fn try_from(pulled: Watched) -> Result<Self, WireError> {
        Ok(Self {
            part: ManagerNumber(pulled.part),
            events: each(pulled.events)?,
            snapshot: pulled.snapshot,
            upto: convert("PeerAnswer.Watched.upto", pulled.upto)?,
            snapshot_next: optional(pulled.snapshot_next)?,
        })
    }
}

/// Refuses a position of another cluster, as every mistake of a watch.
pub fn check_cluster(
    position: &Position,
    cluster: &rota_model::ClusterName,
) -> Result<(), Exception> {
    position.check_cluster(cluster).map_err(|it| invalid(vec![it]))
}
