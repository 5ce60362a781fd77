//! A page of a search of the whole ring, gathered from every partition.

use rota_messages::{Found, Op, SearchOp};
use rota_model::{FieldError, SessionView, SlotId, Stamp};
use rota_ring::View;
use rota_search::{HITS_MAX, Limits, Page, Position, Search, Slots, merge};

/// Most results of a page: sessions may have 64 KiB of attributes each, and a page is one message.
const PAGE_HITS: u32 = 250;
const _: () = assert!(PAGE_HITS as usize <= HITS_MAX);

/// A page that is being gathered, and where it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    search: Search,
    after: Option<Position>,
    now: Stamp,
    with_sessions: bool,
    /// So many partitions have not answered.
    missing: usize,
    parts: Vec<(Slots, Page)>,
    sessions: Vec<SessionView>,
}

/// What a look came to, once everybody answered.
#[derive(Debug)]
pub(crate) enum Round {
    /// Somebody has not answered.
    Waiting,
    /// Slots changed owners: everybody is asked again.
    Again,
    /// A page, with sessions in no order.
    Page(Page, Vec<SessionView>),
}

impl Look {
    pub fn new(search: Search, now: Stamp) -> Self {
        let (parts, sessions) = (Vec::new(), Vec::new());
        Self { search, after: None, now, with_sessions: false, missing: 0, parts, sessions }
    }

    /// The same, with the sessions that are found.
    pub fn of_sessions(search: Search, now: Stamp) -> Self {
        Self { with_sessions: true, ..Self::new(search, now) }
    }

    /// The questions of a round, one for each partition.
    pub fn ask(&mut self, view: &View) -> Vec<Op> {
        self.parts.clear();
        self.sessions.clear();
        self.missing = view.parts.len();
        let ask = |slot: SlotId| {
            Op::Search(SearchOp {
                reader: None,
                slot,
                query: self.search.query().clone(),
                after: self.after.clone(),
                now: self.now,
                limit: PAGE_HITS,
                with_sessions: self.with_sessions,
            })
        };
        view.parts.keys().map(|it| ask(SlotId(it.0))).collect()
    }

    /// A partition answered.
    pub fn take(&mut self, found: Found, m: u32) -> Result<Round, FieldError> {
        let Found { slots, page, sessions, .. } = found;
        self.sessions.extend(sessions);
        self.parts.extend(slots.into_iter().map(|(first, last)| (first..=last, page.clone())));
        self.missing = self.missing.saturating_sub(1);
        if self.missing > 0 {
            return Ok(Round::Waiting);
        }
        let limits = Limits::new(PAGE_HITS as usize)?;
        let all = SlotId(0)..=SlotId(m.saturating_sub(1));
        match merge(&self.search, all, std::mem::take(&mut self.parts), limits) {
            Ok(page) => {
                self.after.clone_from(&page.next);
                Ok(Round::Page(page, std::mem::take(&mut self.sessions)))
            }
            Err(_) => Ok(Round::Again),
        }
    }
}
