//! Lists and snapshots of watches come in pages, and no page looks at more than a bounded part.

mod table;

use rota_model::{Filter, ListCursor, ListOp, PullOp, SessionState, SlotId};
use rota_protocol::{Answer, Op, Sizes};
use std::collections::BTreeSet;
use table::*;

const LOOKED_AT: usize = 2;

/// Nine sessions, one of which is closed.
fn filled() -> Table {
    let mut table = Table::laid();
    table.sizes = Sizes { page_looked_at: LOOKED_AT, ..Sizes::default() };
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.pass(500);
    table.register("n1", 7);
    for index in 0..9 {
        let id = format!("s{index}");
        opened(table.call(300, open(&id, &id)));
    }
    closed(table.call(300, close("s4", "c4")));
    table
}

fn of(states: &[SessionState]) -> Filter {
    Filter { states: states.to_vec(), ..Filter::default() }
}

/// What a list of the whole ring shows, and how many pages it took.
fn listed(table: &mut Table, filter: &Filter) -> (BTreeSet<String>, usize) {
    let mut next = Some(ListCursor { slot: SlotId(0), after: None });
    let (mut shown, mut pages) = (BTreeSet::new(), 0);
    while let Some(from) = next {
        let op = ListOp { from, limit: 100, filter: filter.clone(), stale_ok: false };
        let Ok(Answer::Listed(page)) = table.call(300, Op::List(op)) else { panic!("no page") };
        assert!(page.sessions.len() <= LOOKED_AT);
        for session in page.sessions {
            assert!(shown.insert(session.record.key.id.to_string()), "twice");
        }
        pages += 1;
        assert!(pages < 100, "it does not end");
        next = page.next;
    }
    (shown, pages)
}

#[test]
fn a_list_shows_each_session_once_however_few_a_page_looks_at() {
    let mut table = filled();
    let all: BTreeSet<String> = (0..9).map(|it| format!("s{it}")).collect();
    assert_eq!(listed(&mut table, &Filter::default()).0, all);
    let (closed, pages) = listed(&mut table, &of(&[SessionState::Closed]));
    assert_eq!(closed, BTreeSet::from(["s4".to_owned()]));
    assert!(pages >= 9 / LOOKED_AT, "a page that finds nothing ends all the same: {pages}");
    assert_eq!(listed(&mut table, &of(&[SessionState::Lost])).0, BTreeSet::new());
    let ready = listed(&mut table, &of(&[SessionState::Ready])).0;
    assert_eq!(ready.len(), 8);
}

#[test]
fn a_snapshot_of_a_watch_goes_on_after_a_page_without_a_session() {
    let mut table = filled();
    let mut shown = BTreeSet::new();
    for n in NUMBERS {
        let (mut from, mut snapshot_after) = (None, None);
        for page in 0.. {
            assert!(page < 100, "it does not end");
            let filter = of(&[SessionState::Closed]);
            let (slot, limit, wait_ms) = (SlotId(n), 100, 1_000);
            let op = PullOp { slot, from, snapshot_after, limit, wait_ms, filter };
            let Ok(Answer::Pulled(pulled)) = table.call(n, Op::Pull(op)) else { panic!("nothing") };
            assert!(pulled.snapshot);
            shown.extend(pulled.events.iter().map(|it| it.record.key.id.to_string()));
            (from, snapshot_after) = (Some(pulled.upto), pulled.snapshot_next);
            if snapshot_after.is_none() {
                break;
            }
        }
    }
    assert_eq!(shown, BTreeSet::from(["s4".to_owned()]));
}
