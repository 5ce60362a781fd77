//! Long polls, which watches are made of.

mod table;

use rota_model::{Filter, LogPos, PullOp, Pulled, Seq, SlotId};
use rota_protocol::{Answer, Op, OpResult};
use table::*;

fn poll(from: Option<LogPos>) -> Op {
    let (slot, filter) = (SlotId(NUMBERS[0]), Filter::default());
    Op::Pull(PullOp { slot, from, snapshot_after: None, limit: 9, wait_ms: 5_000, filter })
}

fn pulled(result: OpResult) -> Pulled {
    let Ok(Answer::Pulled(pulled)) = result else { panic!("nothing was pulled: {result:?}") };
    pulled
}

#[test]
fn a_position_beyond_what_its_epoch_committed_gets_a_snapshot_and_one_that_is_the_newest_waits() {
    let mut table = Table::serving();
    let first = pulled(table.call(300, poll(None)));
    assert!(first.snapshot);
    // Told by a cluster of the same name, or before all disks were lost.
    let beyond = LogPos::new(first.upto.pe, Seq(first.upto.seq.0 + 1));
    let again = pulled(table.call(300, poll(Some(beyond))));
    assert!(again.snapshot && again.upto == first.upto, "{again:?}");
    let waiting = table.ask(300, poll(Some(first.upto)));
    assert!(!table.replies.contains_key(&waiting));
    let over = pulled(table.wait_for(waiting, 6_000));
    assert!(!over.snapshot && over.events.is_empty());
}
