//! The last reading of what is copied, when nothing moves any more.

use crate::calls::CallFor;
use crate::copying::{held, names};
use crate::invariant::Violation;
use crate::network::Place;
use crate::world::World;
use crate::writing::SPACE;
use rota_docstore::{Namespace, SyncRequest, apply};
use rota_model::ManagerNumber;
use rota_protocol::api::{Reader, SyncOp};
use rota_protocol::operate::slot_of;
use rota_protocol::{Answer, DocumentAnswer, DocumentOp, Op, OpResult};
use std::sync::Arc;

impl World {
    /// At the end: what everybody holds, through one manager.
    pub fn read_copies(&mut self, number: ManagerNumber) {
        for name in names() {
            let slot = slot_of(&name, self.ground.setup.m);
            let syncs = vec![SyncRequest { name, held: None }];
            let space = Namespace::parse(SPACE).expect("a short name");
            let (reader, stale_ok) = (Some(Arc::new(Reader::of(space))), false);
            let op = Op::Documents(DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok }));
            self.ground.call(number, CallFor::LastCopies, Place::Client(0), 2_000, op);
        }
    }

    /// What that found.
    pub fn on_last_copies(&mut self, result: Option<&OpResult>) {
        let now_us = self.ground.now_us();
        let Some(Ok(Answer::Documents(DocumentAnswer::Synced(Ok(updates))))) = result else {
            let text = format!("the last reading of copies came to {result:?}");
            return self.ground.checker.judge(now_us, Err(Violation::new("served", text)));
        };
        for (name, update) in updates {
            if let Ok(document) = apply(name, None, update) {
                let held = held(name, document.as_deref());
                self.ground.checker.ledger.held.push(held);
            }
        }
    }
}
