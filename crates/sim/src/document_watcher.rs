//! A watcher of documents: it follows the writers' namespace in every partition by long polls.

use crate::calls::CallFor;
use crate::event::Event;
use crate::invariant::document_gaps::WatchedDocs;
use crate::invariant::{Verdict, Violation};
use crate::network::Place;
use crate::world::World;
use crate::writing::SPACE;
use rota_model::{LogPos, ManagerNumber, Namespace, SlotId};
use rota_protocol::api::{Reader, Service, WatchOp, WatchedDocuments};
use rota_protocol::operate::slot_of;
use rota_protocol::{Answer, Doc, DocumentAnswer, DocumentCursor, DocumentOp, Op, OpResult};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Place of the watcher: a client that no manager distinguishes.
const WATCHER: Place = Place::Client(usize::MAX);

/// How long it may take to catch up on a healed cluster, in microseconds.
const FOLLOWED_US: u64 = 60_000_000;

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

impl DocumentWatcher {
    /// Whether every partition has answered a poll that was asked for after that moment, to the end.
    pub fn has_caught_up(&self, since_us: u64) -> bool {
        self.parts.values().all(|it| it.fresh_us > since_us && it.snapshot_after.is_none())
    }
}

fn docs() -> Namespace {
    Namespace::parse(SPACE).expect("a short name")
}

impl World {
    /// The watcher polls a partition through any manager.
    pub fn on_documents_due(&mut self, part: ManagerNumber) {
        let through = self.ground.rng.index(self.ground.setup.numbers.len());
        let through = self.ground.setup.numbers[through].0;
        let now_us = self.ground.now_us();
        let following = self.document_watcher.parts.entry(part).or_default();
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
        self.ground.call(through, CallFor::Documents(part), WATCHER, 1_000, op);
    }

    /// A poll was answered, or was not in time.
    pub fn on_documents_told(&mut self, part: ManagerNumber, result: Option<OpResult>) {
        let following = self.document_watcher.parts.entry(part).or_default();
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
        self.ground.queue.after(pause_us, Event::Documents(part));
    }

    /// Waits until the watcher has caught up with that moment, and checks what it knows. Pages that look at a
    /// document or two take long to a snapshot's end.
    pub fn documents_are_followed(&mut self, since_us: u64) -> Verdict {
        let until_us = self.ground.now_us() + FOLLOWED_US;
        while self.ground.checker.violations.is_empty()
            && !self.document_watcher.has_caught_up(since_us)
        {
            if self.ground.now_us() >= until_us {
                let text = format!("a watch does not catch up within {FOLLOWED_US} us");
                return Err(Violation::new("document watch", text));
            }
            self.run_until(self.ground.now_us() + 50_000);
        }
        if self.ground.checker.violations.is_empty() {
            self.check_document_watcher()
        } else {
            Ok(())
        }
    }

    /// Whether the watcher knows what the owners have.
    fn check_document_watcher(&self) -> Verdict {
        let Some(view) = self.store.state().view.as_ref() else { return Ok(()) };
        for (part, following) in &self.document_watcher.parts {
            let Some(owner) = view.parts.get(part).and_then(|it| self.managers.get(&it.owner))
            else {
                continue;
            };
            let is_here = |doc: &&Arc<Doc>| {
                let name = doc.name();
                let is_meant = name.space() == SPACE && !name.is_memory();
                is_meant && view.home(slot_of(name, self.ground.setup.m)) == *part
            };
            let here = owner.disk.durable().docs.values().filter(is_here);
            following.watched.check(&here.map(|it| it.document().clone()).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
