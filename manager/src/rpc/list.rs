//! One page of the whole ring's sessions: owner after owner, in order of slots.

use super::Shared;
use rota_model::{ListCursor, ListOp, Page, Refusal};
use rota_protocol::Op;
use rota_ring::slot_of_session;
use tokio::time::Instant;

/// Most sessions that are asked of one owner at once: with the largest attributes, 16 MiB.
pub const STEP_MAX: u32 = 250;

/// Bytes of sessions after which a page ends early: below the 4 MiB that gRPC clients accept
/// when they are not told otherwise.
pub const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A page that is being gathered.
struct Gathering {
    op: ListOp,
    page: Page,
    bytes: usize,
}

impl Gathering {
    fn new(op: ListOp) -> Self {
        let page = Page { sessions: Vec::new(), next: Some(op.from.clone()), stale: false };
        Self { op, page, bytes: 0 }
    }

    fn missing(&self) -> u32 {
        let found = u32::try_from(self.page.sessions.len()).unwrap_or(u32::MAX);
        self.op.limit.saturating_sub(found)
    }

    /// What to ask next; `None` when the page is complete.
    fn next_op(&self) -> Option<ListOp> {
        let from = self.page.next.clone()?;
        let limit = self.missing().min(STEP_MAX);
        let full = limit == 0 || self.bytes >= PAGE_BYTES_MAX;
        (!full).then(|| ListOp { from, limit, ..self.op.clone() })
    }

    /// What is given when nobody answers any more: a shorter page, which may be empty where the filter
    /// passed nothing so far. `None`: nothing was looked at, so there is nothing to go on from.
    fn so_far(self) -> Option<Page> {
        let is_begun = self.page.next.as_ref() != Some(&self.op.from);
        is_begun.then_some(self.page)
    }

    /// Adds an owner's page, up to the page's size in bytes. `m` is the ring's number of slots.
    fn add(&mut self, page: Page, m: u32) {
        self.page.stale |= page.stale;
        for session in page.sessions {
            self.bytes += session.record.bytes();
            if self.bytes > PAGE_BYTES_MAX && !self.page.sessions.is_empty() {
                // Goes on after the last one that fitted, instead of where the owner stopped.
                self.page.next = self.page.sessions.last().map(|last| ListCursor {
                    slot: slot_of_session(&last.record.key, m),
                    after: Some(last.record.key.clone()),
                });
                return;
            }
            self.page.sessions.push(session);
        }
        self.page.next = page.next;
    }
}

/// Gathers a page. When an owner refuses or the deadline comes first, what was gathered is a
/// shorter page.
pub async fn gather(shared: &Shared, op: ListOp, deadline: Instant) -> Result<Page, Refusal> {
    let mut gathering = Gathering::new(op);
    while let Some(op) = gathering.next_op() {
        match shared.mailbox.call(Op::List(op), deadline).await {
            Ok(rota_protocol::Answer::Listed(page)) => {
                let m = shared.seen.borrow().view.as_ref().map_or(1, |view| view.m);
                gathering.add(page, m);
            }
            Ok(other) => {
                let text = format!("the answer to a list is of another kind: {other:?}");
                let kind = rota_model::RefusalKind::Internal;
                return Err(Refusal::new(kind, rota_model::Retry::Never, text));
            }
            Err(refusal) => return gathering.so_far().ok_or(refusal),
        }
    }
    Ok(gathering.page)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rota_model::{
        Attributes, ClassName, Epoch, Filter, ManagerNumber, Namespace, PoolName, SessionId,
        SessionKey, SessionRecord, SessionSpec, SessionState, SessionView, SlotId, Stamp,
    };
    use std::sync::Arc;

    /// A READY session with an attribute of that many bytes.
    pub(crate) fn session(id: &str, bytes: usize) -> SessionView {
        let key = SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap());
        let attributes = Attributes::from([("a".to_owned(), "x".repeat(bytes))]);
        let spec = SessionSpec {
            class: ClassName::parse("builtin").unwrap(),
            pool: PoolName::default_pool(),
            attributes: Arc::new(attributes),
            life: None,
        };
        let record = SessionRecord {
            key,
            spec,
            life: Stamp::MIN,
            version: Stamp::MIN,
            state: SessionState::Ready,
            reason: None,
            detail: String::new(),
            exit: None,
            grace_ms: None,
            placement: None,
            attributes_digest: None,
            machine_state: String::new(),
            machine_change: 0,
            requests: Vec::new(),
            lifetime: None,
        };
        SessionView {
            record: Arc::new(record),
            owner: ManagerNumber(1),
            epoch: Epoch(1),
            node: None,
            failed_actions: 0,
        }
    }

    fn from_slot(slot: u32) -> ListCursor {
        ListCursor { slot: SlotId(slot), after: None }
    }

    fn gathering(limit: u32) -> Gathering {
        let filter = Filter::default();
        Gathering::new(ListOp { from: from_slot(0), limit, filter, stale_ok: false })
    }

    fn page(ids: &[&str], bytes: usize, next: Option<ListCursor>) -> Page {
        Page { sessions: ids.iter().map(|id| session(id, bytes)).collect(), next, stale: false }
    }

    fn ids(gathering: &Gathering) -> Vec<&str> {
        gathering.page.sessions.iter().map(|it| it.record.key.id.as_str()).collect()
    }

    #[test]
    fn a_page_is_filled_from_one_owner_after_the_other() {
        let mut page_of_three = gathering(3);
        page_of_three.add(page(&["a", "b"], 1, Some(from_slot(101))), 1024);
        let op = page_of_three.next_op().unwrap();
        assert_eq!((op.from, op.limit), (from_slot(101), 1));
        let cursor = ListCursor { after: Some(session("c", 0).record.key.clone()), ..from_slot(7) };
        page_of_three.add(page(&["c"], 1, Some(cursor.clone())), 1024);
        assert_eq!(page_of_three.next_op(), None);
        assert_eq!(ids(&page_of_three), ["a", "b", "c"]);
        assert_eq!(page_of_three.page.next, Some(cursor));
    }

    #[test]
    fn a_page_of_which_one_owner_confirmed_nothing_is_stale() {
        let mut two_owners = gathering(10);
        two_owners.add(page(&["a"], 1, Some(from_slot(101))), 1024);
        assert!(!two_owners.page.stale);
        two_owners.add(Page { stale: true, ..page(&[], 1, Some(from_slot(500))) }, 1024);
        two_owners.add(page(&["b"], 1, None), 1024);
        assert!(two_owners.page.stale);
    }

    #[test]
    fn a_page_that_found_nothing_so_far_tells_where_to_go_on() {
        assert_eq!(gathering(10).so_far(), None);
        let mut nothing_passed = gathering(10);
        nothing_passed.add(page(&[], 1, Some(from_slot(101))), 1024);
        let so_far = nothing_passed.so_far().unwrap();
        assert_eq!((so_far.sessions.len(), so_far.next), (0, Some(from_slot(101))));
    }

    #[test]
    fn the_last_owner_ends_the_list() {
        let mut all = gathering(10);
        all.add(page(&["a"], 1, None), 1024);
        assert_eq!(all.next_op(), None);
        assert_eq!(all.page.next, None);
    }

    #[test]
    fn an_owner_is_asked_for_few_enough_to_fit_a_message() {
        assert_eq!(gathering(1000).next_op().unwrap().limit, STEP_MAX);
    }

    #[test]
    fn a_page_of_large_sessions_ends_early_and_goes_on_after_the_last_that_fitted() {
        let mut large = gathering(1000);
        let bytes = 900 * 1024;
        large.add(page(&["a", "b", "c", "d"], bytes, None), 1024);
        assert_eq!(ids(&large), ["a", "b"]);
        let last = session("b", 0).record.key.clone();
        let slot = slot_of_session(&last, 1024);
        assert_eq!(large.page.next, Some(ListCursor { slot, after: Some(last) }));
        assert_eq!(large.next_op(), None);
    }

    #[test]
    fn a_session_larger_than_a_page_is_a_page() {
        let mut huge = gathering(10);
        huge.add(page(&["a"], 3 * PAGE_BYTES_MAX, Some(from_slot(5))), 1024);
        assert_eq!(ids(&huge), ["a"]);
        assert_eq!(huge.next_op(), None);
        assert_eq!(huge.page.next, Some(from_slot(5)));
    }
}
