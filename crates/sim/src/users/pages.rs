//! What pages of lists show, for the book of the observer.

use crate::counters::Corner;
use crate::ground::Ground;
use crate::invariant::Violation;
use crate::ledger::Shown;
use rota_model::Filter;
use rota_protocol::{Answer, OpResult};

/// A page came: it shows what its filter passes, and nothing else.
pub fn note_page(ground: &mut Ground, sent_us: u64, result: &OpResult, filter: &Filter) {
    let came_us = ground.now_us();
    if let Ok(Answer::Listed(page)) = result {
        if page.next.as_ref().is_some_and(|it| it.after.is_some()) {
            ground.counters.corner(Corner::SplitPage);
        }
        if let Some(other) = page.sessions.iter().find(|it| !filter.passes(&it.record)) {
            let text = format!("a list of {filter:?} shows {:?}", other.record);
            ground.checker.judge(came_us, Err(Violation::new("list", text)));
        }
        // A page that need not be confirmed may be as old as it likes.
        if page.stale {
            return;
        }
        let shown = page.sessions.iter().map(|session| Shown {
            sent_us,
            came_us,
            record: session.record.clone(),
            owner: session.owner,
        });
        ground.checker.ledger.listed.extend(shown);
    }
}
