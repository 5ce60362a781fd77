//! What is kept of sessions that have ended, and how much all records may fill.

use crate::table::*;
use rota_model::{Changed, Outcome, RefusalKind, Retry, SessionState};
use rota_protocol::Sizes;

/// Bytes of the attributes of a large session.
const LARGE: usize = 60_000;

/// What the disk of each manager holds of sessions.
fn stored(table: &Table) -> [usize; 3] {
    NUMBERS.map(|number| {
        let docs = table.disks[&number].docs.values();
        docs.filter(|doc| doc.session().is_some()).map(|doc| doc.to_bytes().len()).sum()
    })
}

#[test]
fn a_session_that_has_ended_keeps_a_digest_of_its_attributes_and_knows_its_open_by_it() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let (_, first) = opened(table.call(owner, open_large("a", "r1", LARGE)));
    assert_eq!(first.record.attributes_digest, None);
    table.pass(100);
    assert!(stored(&table).iter().all(|it| *it > LARGE));
    let ended = closed(table.call(owner, close("a", "c1"))).record;
    table.pass(100);
    assert!(stored(&table).iter().all(|it| *it < 2_000), "{:?}", stored(&table));
    let shown = got(table.call(owner, get("a"))).record;
    assert_eq!((ended.state, shown.state), (SessionState::Closed, SessionState::Closed));
    assert!(shown.spec.attributes.is_empty() && shown.attributes_digest.is_some());
    // The same request is answered as it was, by the next owner too; another one is refused.
    for kill in [false, true] {
        if kill {
            table.kill(owner);
        }
        let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
        let mut ask = |op| {
            let call = table.ask(entry, op);
            table.wait_for(call, 3_000)
        };
        let (outcome, again) = opened(ask(open_large("a", "r1", LARGE)));
        assert_eq!((outcome, again.record.life), (Outcome::Created, first.record.life));
        assert_eq!(again.record.spec, first.record.spec);
        for other in [open_large("a", "r1", LARGE - 1), open("a", "r1")] {
            assert_eq!(refused(ask(other)), RefusalKind::RequestIdReused);
        }
    }
}

#[test]
fn a_session_without_attributes_has_no_digest_and_a_new_life_has_its_own_attributes() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r1")));
    let ended = closed(table.call(owner, close("a", "c1"))).record;
    assert_eq!(ended.attributes_digest, None);
    assert_eq!(refused(table.call(owner, open_large("a", "r1", 10))), RefusalKind::RequestIdReused);
    let (outcome, second) = opened(table.call(owner, open_large("a", "r2", 10)));
    assert_eq!((outcome, second.record.spec.attributes.len()), (Outcome::Created, 1));
    closed(table.call(owner, close("a", "c2")));
    let (_, third) = opened(table.call(owner, open("a", "r3")));
    assert_eq!((third.record.spec.attributes.len(), third.record.attributes_digest), (0, None));
    // An earlier life ran something else: that is all that is known of it.
    let (outcome, again) = opened(table.call(owner, open_large("a", "r2", 10)));
    assert_eq!((outcome, again.record.life), (Outcome::Created, second.record.life));
}

#[test]
fn opens_beyond_what_records_of_sessions_may_fill_are_told_when_to_come_again() {
    let mut table = Table::laid();
    table.sizes = Sizes { session_bytes: 10 * 64 * 1024, ..Sizes::default() };
    table.start_all();
    table.register("n1", 7);
    let owner = table.owner("a");
    let here = (0..).map(|n| format!("s{n}")).filter(|id| table.owner(id) == owner);
    let ids: Vec<String> = here.take(20).collect();
    let mut taken = 0;
    let refusal = loop {
        match table.call(owner, open_large(&ids[taken], "r1", LARGE)) {
            Ok(_) => taken += 1,
            Err(refusal) => break refusal,
        }
        table.pass(100);
    };
    assert!((8..=10).contains(&taken), "{taken} sessions of 60 KB");
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::Overloaded, Changed::No));
    assert_eq!(refusal.retry, Retry::AfterMs(10_000));
    assert!(refusal.message.contains("records of sessions"), "{}", refusal.message);
    // What is there goes on, and what ends makes room at once.
    let (outcome, _) = opened(table.call(owner, open_large(&ids[0], "again", LARGE)));
    assert_eq!(outcome, Outcome::Existed);
    closed(table.call(owner, close(&ids[0], "c1")));
    table.pass(100);
    opened(table.call(owner, open_large(&ids[taken], "r1", LARGE)));
}
