//! The lists that the observer asks for at the end: all sessions, through every manager.

use crate::calls::CallFor;
use crate::ground::Ground;
use crate::network::Place;
use rota_model::{Filter, ListCursor, ListOp, ManagerNumber, SessionKey, SlotId, Stamp};
use rota_protocol::{Answer, Op, OpResult};
use std::collections::BTreeMap;

/// The last lists.
#[derive(Clone, Debug, Default)]
pub struct LastLists {
    /// By the manager through which it is asked for.
    pub lists: BTreeMap<ManagerNumber, LastList>,
}

/// A list in the making.
#[derive(Clone, Debug, Default)]
pub struct LastList {
    /// What it shows.
    pub shown: Vec<(SessionKey, Stamp)>,
    /// Where it goes on; `None` when it is complete.
    pub next: Option<ListCursor>,
    tries: u32,
}

impl LastLists {
    /// Begins the observer's list through a manager.
    pub fn begin(&mut self, ground: &mut Ground, through: ManagerNumber) {
        let next = Some(ListCursor { slot: SlotId(0), after: None });
        let list = LastList { shown: Vec::new(), next, tries: 0 };
        self.lists.insert(through, list);
        self.ask_page(ground, through);
    }

    /// Asks for the next page of the observer's list.
    pub fn ask_page(&mut self, ground: &mut Ground, through: ManagerNumber) {
        let now_us = ground.now_us();
        let Some(list) = self.lists.get_mut(&through) else { return };
        list.tries += 1;
        let Some(from) = list.next.clone().filter(|_| list.tries < 400) else { return };
        let filter = Filter::default();
        let op = Op::List(ListOp { from, limit: 3, filter, stale_ok: false });
        ground.call(through, CallFor::LastPage(through, now_us), Place::OBSERVER, 500, op);
    }

    /// A page of the observer's list came.
    pub fn on_page(&mut self, ground: &mut Ground, through: ManagerNumber, result: OpResult) {
        let Some(list) = self.lists.get_mut(&through) else { return };
        if let Ok(Answer::Listed(page)) = result {
            list.shown
                .extend(page.sessions.iter().map(|it| (it.record.key.clone(), it.record.life)));
            list.next = page.next;
        }
        self.ask_page(ground, through);
    }
}
