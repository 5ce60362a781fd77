//! What can be watched: sessions, and documents.

use super::merge::{Ask, Item};
use super::watch::{Unpulled, Watched, mixed_up};
use super::{Shared, owners, status};
use crate::clock::now;
use rota_model::{Filter, ListCursor, PullOp, Pulled, Refusal, SessionView, SlotId};
use rota_proto::documents::{in_call, status as exception_status, watch};
use rota_proto::{session, v1};
use rota_protocol::api::{
    DocumentChange, DocumentEvent, Reader, Service, WatchOp, WatchedDocuments,
};
use rota_protocol::operate::slot_of;
use rota_protocol::session_search::{ATTRIBUTE, SessionValues};
use rota_protocol::{Answer, DocumentAnswer, DocumentCursor, DocumentOp, Op};
use rota_ring::{View, slot_of_session};
use rota_search::Condition;
use std::sync::Arc;
use tonic::Status;

/// Sessions that pass.
pub struct Sessions {
    /// What owners look at.
    pub filter: Filter,
    /// Further conditions, which this manager looks at.
    pub selected: rota_search::Filter,
}

impl Watched for Sessions {
    type Event = SessionView;
    type Cursor = ListCursor;
    type Response = v1::WatchResponse;

    fn slot(&self, view: &View) -> Option<SlotId> {
        self.filter.key.as_ref().map(|key| slot_of_session(key, view.m))
    }

    fn op(&self, slot: SlotId, ask: &Ask<ListCursor>, limit: u32, wait_ms: u64) -> Op {
        let (from, snapshot_after) = (ask.from, ask.snapshot_after.clone());
        Op::Pull(PullOp { slot, from, snapshot_after, limit, wait_ms, filter: self.filter.clone() })
    }

    fn pulled(answer: Answer) -> Result<Pulled, Unpulled> {
        let Answer::Pulled(pulled) = answer else { return Err(mixed_up(&answer)) };
        Ok(pulled)
    }

    fn bytes(event: &SessionView) -> usize {
        event.record.bytes()
    }

    /// One that has ended has no attributes any more: its end is told whatever they were, since a follower must hear of
    /// it.
    fn passes(&self, event: &SessionView, is_snapshot: bool) -> bool {
        let is_end = !is_snapshot && event.record.state.is_ended();
        let counts = |it: &&Condition| !is_end || !it.field.starts_with(ATTRIBUTE);
        let counted = self.selected.conditions.iter().filter(counts).cloned().collect();
        let selected = rota_search::Filter { conditions: counted };
        selected.matches(&SessionValues(&event.record), now())
    }

    fn response(&self, shared: &Shared, item: Item<SessionView>) -> v1::WatchResponse {
        let session = item.event.map(|view| {
            let placement = view.record.placement.as_ref();
            let address = placement.map_or_else(String::new, |it| shared.node_address(&it.node));
            session::session(view, address)
        });
        v1::WatchResponse {
            session,
            position: item.position.to_bytes(),
            snapshot: item.snapshot,
            caught_up: item.caught_up,
        }
    }

    fn refused(refusal: Refusal) -> Status {
        status(refusal)
    }
}

/// Documents, and who reads them.
pub struct Documents {
    /// Who reads.
    pub reader: Arc<Reader>,
    /// Which.
    pub of: Arc<WatchedDocuments>,
}

impl Watched for Documents {
    type Event = DocumentEvent;
    type Cursor = DocumentCursor;
    type Response = v1::WatchDocumentsResponse;

    fn slot(&self, view: &View) -> Option<SlotId> {
        self.of.one().map(|name| slot_of(&name, view.m))
    }

    fn op(&self, slot: SlotId, ask: &Ask<DocumentCursor>, limit: u32, wait_ms: u64) -> Op {
        Op::Documents(DocumentOp::Watch(WatchOp {
            reader: self.reader.clone(),
            of: self.of.clone(),
            slot,
            from: ask.from,
            snapshot_after: ask.snapshot_after.clone(),
            tells_absent: ask.knows,
            limit,
            wait_ms,
        }))
    }

    fn pulled(answer: Answer) -> Result<Pulled<DocumentEvent, DocumentCursor>, Unpulled> {
        let Answer::Documents(DocumentAnswer::Watched(watched)) = answer else {
            return Err(mixed_up(&answer));
        };
        watched.map_err(|exception| {
            let told = in_call(Service::Watch.as_str(), exception_status(&exception));
            Unpulled::Ended(Box::new(told))
        })
    }

    fn bytes(event: &DocumentEvent) -> usize {
        let contents = match &event.change {
            DocumentChange::Is(document) => document.content_bytes(),
            DocumentChange::Named
            | DocumentChange::TooLarge
            | DocumentChange::Ended
            | DocumentChange::Left => 0,
        };
        event.name.as_text().len() + usize::try_from(contents).unwrap_or(usize::MAX / 2)
    }

    fn response(&self, _: &Shared, item: Item<DocumentEvent>) -> v1::WatchDocumentsResponse {
        v1::WatchDocumentsResponse {
            event: item.event.as_ref().map(watch::told),
            position: item.position.to_bytes(),
            snapshot: item.snapshot,
            caught_up: item.caught_up,
        }
    }

    fn refused(refusal: Refusal) -> Status {
        in_call(Service::Watch.as_str(), owners::Failure::from(refusal).into())
    }
}
