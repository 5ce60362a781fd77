//! A watcher of documents: it follows the writers' namespace in every partition by long polls.

use crate::calls::CallFor;
use crate::event::Event;
use crate::ground::Ground;
use crate::invariant::Verdict;
use crate::invariant::document_gaps::WatchedDocs;
use crate::network::Place;
use crate::writing::SPACE;
use rota_docstore::Document;
use rota_model::{LogPos, ManagerNumber, Namespace, SlotId};
use rota_protocol::api::{Reader, Service, WatchOp, WatchedDocuments};
use rota_protocol::{Answer, DocumentAnswer, DocumentCursor, DocumentOp, Op, OpResult};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What it knows of each partition, and where it goes on.
#[derive(Clone, Debug, Default)]
pub struct DocumentWatcher {
    /// By partition.
    pub parts: BTreeMap<ManagerNumber, Following>,
}

/// Where the watch of one partition stands.
#[derive(Clone, Debug, Default)]
pub struct Following {
    watched: WatchedDocs,
    from: Option<LogPos>,
    snapshot_after: Option<DocumentCursor>,
    /// A snapshot was complete, so that a later one tells what is gone, too.
    knows: bool,
    asked_us: u64,
    /// What was committed before this has been told.
    fresh_us: u64,
}

fn docs() -> Namespace {
    Namespace::parse(SPACE).expect("a short name")
}

impl Following {
    /// Whether that is known, and nothing else: the documents of the partition.
    ///
    /// # Errors
    /// Another one is known, or one is not.
    pub fn check(&self, here: &[Arc<Document>]) -> Verdict {
        self.watched.check(here)
    }
}

impl DocumentWatcher {
    /// Whether every partition has answered a poll that was asked for after that moment, to the end.
    pub fn has_caught_up(&self, since_us: u64) -> bool {
        self.parts.values().all(|it| it.fresh_us > since_us && it.snapshot_after.is_none())
    }

    /// The watcher polls a partition through any manager.
    pub fn on_due(&mut self, ground: &mut Ground, part: ManagerNumber) {
        let through = ground.rng.index(ground.machines.numbers.len());
        let through = ground.machines.numbers[through].0;
        let now_us = ground.now_us();
        let following = self.parts.entry(part).or_default();
        following.asked_us = now_us;
        let names_only = part.0.is_multiple_of(2);
        let (class, docid, filter) = (None, None, None);
        let of = WatchedDocuments { space: docs(), class, docid, filter, names_only };
        let op = WatchOp {
            reader: Arc::new(Reader { service: Service::Watch, ..Reader::of(docs()) }),
            of: Arc::new(of),
            slot: SlotId(part.0),
            from: following.from,
            snapshot_after: following.snapshot_after.clone(),
            tells_absent: following.knows,
            limit: 4,
            wait_ms: 300,
        };
        let op = Op::Documents(DocumentOp::Watch(op));
        ground.call(through, CallFor::Documents(part), Place::OBSERVER, 1_000, op);
    }

    /// A poll was answered, or was not in time.
    pub fn on_told(&mut self, ground: &mut Ground, part: ManagerNumber, result: Option<OpResult>) {
        let following = self.parts.entry(part).or_default();
        let mut pause_us = 20_000;
        let told = |result| match result {
            Some(Ok(Answer::Documents(DocumentAnswer::Watched(Ok(pulled))))) => Some(pulled),
            Some(_) | None => None,
        };
        if let Some(pulled) = told(result) {
            following.watched.on_pulled(&pulled);
            // A page ends where it is full; that there is nothing more, only an empty one says.
            if pulled.events.is_empty() && !pulled.snapshot {
                following.fresh_us = following.asked_us;
            }
            following.from = Some(pulled.upto);
            following.knows |= pulled.snapshot_next.is_none();
            following.snapshot_after = pulled.snapshot_next;
            pause_us = 1_000;
        }
        ground.queue.after(pause_us, Event::Documents(part));
    }
}
