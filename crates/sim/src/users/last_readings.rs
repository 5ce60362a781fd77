//! What the observer reads at the end, when nothing moves any more: sessions, documents, and what is copied.

use crate::calls::CallFor;
use crate::copying;
use crate::ground::Ground;
use crate::invariant::Violation;
use crate::ledger::{Asked, Attempt, Wish};
use crate::network::Place;
use crate::writing::{GROUPS, SPACE, SeenDocument, name, names};
use rota_docstore::{SyncRequest, apply};
use rota_model::{GetOp, ManagerNumber, Namespace, RequestId, SessionKey};
use rota_protocol::api::{Reader, SyncOp};
use rota_protocol::operate::slot_of;
use rota_protocol::{Answer, DocumentAnswer, DocumentOp, Op, OpResult};
use std::sync::Arc;

fn documents_space() -> Namespace {
    Namespace::parse(SPACE).expect("a short name")
}

/// At the end: a session is read through a manager, by the first client.
pub fn read_session(ground: &mut Ground, number: ManagerNumber, key: SessionKey) {
    let now_us = ground.now_us();
    let asked = ground.checker.ledger.asked.len();
    let request = RequestId::parse(&format!("scan{asked}")).expect("a short name");
    let attempt = Attempt { manager: number, sent_us: now_us, answer: None };
    let op = Op::Get(GetOp { key: key.clone(), stale_ok: false });
    ground.checker.ledger.asked.push(Asked {
        client: 0,
        key,
        wish: Wish::Get(false),
        request,
        attempts: vec![attempt],
        healed: true,
        once: false,
    });
    let from = Place::Client(0);
    ground.call(number, CallFor::Try(0, asked, 0), from, 2_000, op);
}

/// At the end: every document is read whole through a manager, by the first writer.
pub fn read_documents(ground: &mut Ground, number: ManagerNumber) {
    for document in GROUPS.iter().map(|it| name(SPACE, it[0])) {
        let slot = slot_of(&document, ground.setup.m);
        let here = names().into_iter().filter(|it| slot_of(it, ground.setup.m) == slot);
        let syncs = here.map(|name| SyncRequest { name, held: None }).collect();
        let (reader, stale_ok) = (Some(Arc::new(Reader::of(documents_space()))), false);
        let op = Op::Documents(DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok }));
        let what = CallFor::LastSync(ground.now_us());
        ground.call(number, what, Place::Client(0), 2_000, op);
    }
}

/// What the last reading found.
pub fn on_documents(ground: &mut Ground, sent_us: u64, result: Option<&OpResult>) {
    let came_us = ground.now_us();
    let Some(Ok(Answer::Documents(DocumentAnswer::Synced(Ok(updates))))) = result else {
        let text = format!("the last reading of documents came to {result:?}");
        return ground.checker.judge(came_us, Err(Violation::new("served", text)));
    };
    for (name, update) in updates {
        match apply(name, None, update) {
            Ok(document) => {
                let seen = SeenDocument::new(name, (sent_us, came_us), document.as_deref());
                ground.checker.ledger.seen.push(seen);
            }
            Err(error) => {
                let text = format!("the last reading of {name}: {error}");
                ground.checker.judge(came_us, Err(Violation::new("documents", text)));
            }
        }
    }
}

/// At the end: what everybody holds, through one manager.
pub fn read_copies(ground: &mut Ground, number: ManagerNumber) {
    for name in copying::names() {
        let slot = slot_of(&name, ground.setup.m);
        let syncs = vec![SyncRequest { name, held: None }];
        let (reader, stale_ok) = (Some(Arc::new(Reader::of(documents_space()))), false);
        let op = Op::Documents(DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok }));
        ground.call(number, CallFor::LastCopies, Place::Client(0), 2_000, op);
    }
}

/// What that found.
pub fn on_copies(ground: &mut Ground, result: Option<&OpResult>) {
    let now_us = ground.now_us();
    let Some(Ok(Answer::Documents(DocumentAnswer::Synced(Ok(updates))))) = result else {
        let text = format!("the last reading of copies came to {result:?}");
        return ground.checker.judge(now_us, Err(Violation::new("served", text)));
    };
    for (name, update) in updates {
        if let Ok(document) = apply(name, None, update) {
            let held = copying::held(name, document.as_deref());
            ground.checker.ledger.copies.held.push(held);
        }
    }
}
