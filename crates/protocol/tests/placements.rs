//! What operators ask who compare owners, copies and nodes.

use crate::table::*;
use rota_model::{ManagerNumber, SessionState};
use rota_protocol::placements::{Placed, PlacementsAsk, Which};
use std::collections::BTreeSet;

const SESSIONS: usize = 60;

fn filled() -> Table {
    let mut table = Table::serving();
    for index in 0..SESSIONS {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    table
}

/// Every session of a partition that has not ended, in pages of seven.
fn all_of(table: &Table, part: u32) -> Vec<Placed> {
    let (part, mut after, mut all) = (ManagerNumber(part), None, Vec::new());
    loop {
        let which = Which::After { after, limit: 7 };
        let page = table.managers[&part.0].placements(&PlacementsAsk { part, which });
        let page = page.expect("it serves its partition");
        assert!(page.sessions.len() <= 7);
        all.extend(page.sessions);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

#[test]
fn an_owner_tells_where_its_sessions_are_page_by_page() {
    let mut table = filled();
    closed(table.call(300, close("s0", "c0")));
    table.pass(20);
    let all: Vec<Placed> = NUMBERS.iter().flat_map(|it| all_of(&table, *it)).collect();
    let keys: BTreeSet<_> = all.iter().map(|it| it.key.clone()).collect();
    assert_eq!((all.len(), keys.len()), (SESSIONS - 1, SESSIONS - 1));
    assert!(all.iter().all(|it| it.state == SessionState::Ready && it.placement.is_some()));
}

#[test]
fn sessions_are_told_by_name_also_when_they_have_ended_and_by_their_owner_alone() {
    let mut table = filled();
    closed(table.call(300, close("s0", "c0")));
    table.pass(20);
    let owner = table.owner("s0");
    let part = ManagerNumber(owner);
    let ask = |names: &[&str]| {
        let keys = names.iter().map(|it| key(it)).collect();
        PlacementsAsk { part, which: Which::Named(keys) }
    };
    let named = table.managers[&owner].placements(&ask(&["s0", "nobody"])).expect("it serves");
    assert_eq!(named.sessions.len(), 1);
    assert_eq!(named.sessions[0].state, SessionState::Closed);
    let other = NUMBERS.into_iter().find(|it| *it != owner).expect("there are three");
    assert_eq!(table.managers[&other].placements(&ask(&["s0"])), None);
}

#[test]
fn copies_keep_equal_digests_of_positions_that_they_have_passed() {
    let mut table = filled();
    for index in 0..400 {
        opened(table.call(300, open(&format!("m{index}"), &format!("m{index}"))));
        closed(table.call(600, close(&format!("m{index}"), &format!("n{index}"))));
    }
    table.pass(500);
    for part in NUMBERS {
        let marks = NUMBERS.map(|number| {
            let stats = table.managers[&number].stats();
            let mut parts = stats.parts.into_iter();
            parts.find(|it| it.part.0 == part).expect("all copy all").marks
        });
        assert!(marks[0].len() >= 3, "{}", marks[0].len());
        assert!(marks.iter().all(|it| *it == marks[0]), "partition {part}");
    }
}
