//! Long polls, which watches are made of.

use crate::table::*;
use rota_model::{Filter, LogPos, PullOp, Pulled, Seq, SlotId};
use rota_protocol::{Answer, Message, Op, OpResult, Sizes, Transition};

fn poll(from: Option<LogPos>) -> Op {
    filtered_poll(from, Filter::default())
}

fn filtered_poll(from: Option<LogPos>, filter: Filter) -> Op {
    let slot = SlotId(NUMBERS[0]);
    Op::Pull(PullOp { slot, from, snapshot_after: None, limit: 9, wait_ms: 5_000, filter })
}

fn pulled(result: OpResult) -> Pulled {
    let Ok(Answer::Pulled(pulled)) = result else { panic!("nothing was pulled: {result:?}") };
    pulled
}

/// An id of the partition that is polled.
fn id_here(table: &Table, nth: usize) -> String {
    let home = |id: &String| table.view().home(rota_ring::slot_of_session(&key(id), 1024)).0;
    (0..)
        .map(|n| format!("s{n}"))
        .filter(|id| home(id) == NUMBERS[0])
        .nth(nth)
        .expect("there are enough")
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

/// An answered first poll through a manager that is not the owner, and a second one that waits.
fn idle_poll(table: &mut Table) -> u64 {
    let first = pulled(table.call(600, poll(None)));
    let waiting = table.ask(600, poll(Some(first.upto)));
    assert!(!table.replies.contains_key(&waiting));
    waiting
}

#[test]
fn a_poll_that_waits_is_sent_once_and_reads_no_config_store() {
    let mut table = Table::serving();
    let waiting = idle_poll(&mut table);
    let reads = table.config_reads;
    table.pass(4_900);
    assert_eq!(table.count(Transition::ForwardRetried), 0);
    assert_eq!(table.config_reads, reads);
    let over = pulled(table.wait_for(waiting, 200));
    assert!(!over.snapshot && over.events.is_empty());
}

#[test]
fn a_poll_whose_owner_dies_is_answered_by_the_next_one() {
    let mut table = Table::serving();
    let waiting = idle_poll(&mut table);
    table.kill(300);
    table.pass(2_000);
    opened(table.call(600, open(&id_here(&table, 0), "r1")));
    let news = pulled(table.wait_for(waiting, 20));
    assert!(!news.snapshot && !news.events.is_empty(), "{news:?}");
}

#[test]
fn a_poll_whose_message_is_lost_is_sent_again_when_its_wait_is_over() {
    let mut table = Table::serving();
    let first = pulled(table.call(600, poll(None)));
    table.lose = Box::new(|it| matches!(it.message, Message::Request { .. }));
    let waiting = table.ask(600, poll(Some(first.upto)));
    table.lose = Box::new(|_| false);
    table.pass(5_400);
    assert_eq!(table.count(Transition::ForwardRetried), 0);
    table.pass(200);
    assert_eq!(table.count(Transition::ForwardRetried), 1);
    assert!(!table.replies.contains_key(&waiting));
    opened(table.call(600, open(&id_here(&table, 0), "r1")));
    assert_eq!(pulled(table.wait_for(waiting, 20)).events.len(), 1);
}

#[test]
fn a_poll_is_sent_again_at_once_to_an_owner_that_runs_anew() {
    let mut table = Table::laid_with(0);
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.pass(500);
    table.register("n1", 7);
    let waiting = idle_poll(&mut table);
    table.kill(300);
    table.start(300);
    table.settle();
    table.pass(1_000);
    opened(table.call(600, open(&id_here(&table, 0), "r1")));
    let news = pulled(table.wait_for(waiting, 20));
    assert!(!news.events.is_empty(), "{news:?}");
}

/// A table whose owners keep four entries for polls and copies.
fn with_a_small_window() -> Table {
    let mut table = Table::laid();
    table.sizes = Sizes { window_entries: 4, close_entries: 4, ..Sizes::default() };
    table.start_all();
    table.register("n1", 7);
    table
}

/// Opens and closes other sessions of the partition: more entries than its window holds.
fn others_come_and_go(table: &mut Table) {
    for n in 1..6 {
        let (id, now) = (id_here(table, n), table.now_ms);
        opened(table.call(300, open(&id, &format!("open-{now}"))));
        let closing = table.ask(300, close(&id, &format!("close-{now}")));
        closed(table.wait_for(closing, 100));
    }
    table.pass(20);
}

#[test]
fn a_poll_of_one_id_that_keeps_up_is_not_too_old_whatever_others_do() {
    let mut table = with_a_small_window();
    let id = id_here(&table, 0);
    let filter = Filter { key: Some(key(&id)), ..Filter::default() };
    for through in [300, 600] {
        let first = pulled(table.call(300, filtered_poll(None, filter.clone())));
        let waiting = table.ask(through, filtered_poll(Some(first.upto), filter.clone()));
        others_come_and_go(&mut table);
        assert!(!table.replies.contains_key(&waiting), "{:?}", table.replies);
        table.pass(5_000);
        let over = pulled(table.wait_for(waiting, 20));
        assert!(!over.snapshot && over.events.is_empty());
        // It is told how far that was, so the next one starts there.
        let waiting = table.ask(through, filtered_poll(Some(over.upto), filter.clone()));
        others_come_and_go(&mut table);
        opened(table.call(300, open(&id, &format!("open-{through}"))));
        let news = pulled(table.wait_for(waiting, 20));
        assert!(!news.snapshot, "{news:?}");
        assert_eq!(news.events[0].record.key, key(&id));
        let closing = table.ask(300, close(&id, &format!("close-{through}")));
        closed(table.wait_for(closing, 100));
    }
}

#[test]
fn a_poll_from_a_position_that_is_out_of_the_window_gets_a_snapshot() {
    let mut table = with_a_small_window();
    let first = pulled(table.call(300, poll(None)));
    others_come_and_go(&mut table);
    assert!(pulled(table.call(300, poll(Some(first.upto)))).snapshot);
}
