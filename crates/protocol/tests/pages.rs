//! Lists and snapshots of watches come in pages, and no page looks at more than a bounded part.

use crate::table::*;
use rota_model::node_msg::NodeAnswer;
use rota_model::{Filter, ListCursor, ListOp, PullOp, SessionState, SlotId};
use rota_protocol::{Answer, Message, Op, Sizes};
use std::collections::{BTreeMap, BTreeSet};

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

#[test]
fn a_list_shows_what_was_told_before_its_commit() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let slot = table.view().parts.keys().next().copied().expect("three partitions");
    let here = |table: &Table, id: &String| {
        table.view().home(rota_ring::slot_of_session(&key(id), 1024)) == slot
    };
    let ids = (0..).map(|n| format!("t{n}")).filter(|id| here(&table, id));
    let ids: Vec<String> = ids.take(3).collect();
    let calls: Vec<u64> = ids.iter().map(|id| table.ask(300, open(id, "r1"))).collect();
    let creates = std::mem::take(&mut table.node_calls);
    // Nothing more is committed, and two of three run.
    table.lose = Box::new(|it| matches!(it.message, Message::Prepare { .. }));
    for (n, create) in &creates[..2] {
        let answer =
            NodeAnswer::Running { address: "n1:1".to_owned(), ready: true, remark: String::new() };
        table.node_says(*n, "n1", create.head().call, answer);
        table.settle();
    }
    calls[..2].iter().for_each(|it| drop(opened(table.replies[it].clone())));
    let from = ListCursor { slot: SlotId(0), after: None };
    let op = ListOp { from, limit: 100, filter: Filter::default(), stale_ok: true };
    let Ok(Answer::Listed(page)) = table.call(300, Op::List(op)) else { panic!("no page") };
    let states = page.sessions.iter().map(|it| (it.record.key.id.to_string(), it.record.state));
    let states: BTreeMap<String, SessionState> = states.collect();
    let shown = ids.iter().map(|id| states[id]);
    let (ready, pending) = (SessionState::Ready, SessionState::Pending);
    assert_eq!(shown.collect::<Vec<_>>(), [ready, ready, pending]);
    assert_eq!(got(table.call(300, get(&ids[0]))).record.state, ready);
}
