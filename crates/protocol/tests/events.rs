//! What happened to sessions, as their owners tell it to operators.

use crate::table::lives::*;
use crate::table::*;
use rota_model::node_msg::ReportEvent;
use rota_model::{Exit, Reason};
use rota_protocol::events::{SessionEvent, SessionEventKind as Kind};
use rota_protocol::{Message, Transition};

/// What was told of a session, in order.
fn told<'a>(table: &'a Table, id: &'a str) -> impl Iterator<Item = &'a SessionEvent> {
    table.events.iter().map(|it| &it.1).filter(move |it| it.session == key(id))
}

fn kinds(table: &Table, id: &str) -> Vec<Kind> {
    told(table, id).map(|it| it.kind).collect()
}

#[test]
fn each_step_of_a_session_is_told_once_and_by_its_owner() {
    let mut table = Table::serving();
    let (_, session) = opened(table.call(300, open("a", "r1")));
    opened(table.call(600, open("a", "r2")));
    closed(table.call(1000, close("a", "c1")));
    table.pass(1_000);
    assert_eq!(kinds(&table, "a"), [Kind::Placed, Kind::Opened, Kind::Closing, Kind::Closed]);
    let owner = table.owner("a");
    assert!(table.events.iter().all(|it| it.0 == owner), "{:?}", table.events);
    let events: Vec<&SessionEvent> = told(&table, "a").collect();
    for event in &events {
        assert_eq!(event.life, Some(session.record.life));
        assert_eq!(event.node.as_ref().map(|it| it.as_str()), Some("n1"));
    }
    assert!(events.is_sorted_by_key(|it| it.at) && events.is_sorted_by_key(|it| it.version));
    assert_eq!(events[1].text, format!("at {}", session.record.placement.clone().unwrap().address));
    assert_eq!(events[2].reason, Some(Reason::ClosedByClient));
    assert_eq!(events[3].reason, Some(Reason::ClosedByClient));
}

#[test]
fn nothing_is_told_that_a_copy_lacks() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let copy = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    table.lose =
        Box::new(move |it| it.from.number.0 == copy && matches!(it.message, Message::Ack { .. }));
    let call = table.ask(owner, open("a", "r1"));
    table.pass(300);
    assert_eq!(kinds(&table, "a"), [], "told before it was committed");
    table.lose = Box::new(|_| false);
    opened(table.wait_for(call, 2_000));
    table.pass(100);
    assert_eq!(kinds(&table, "a"), [Kind::Placed, Kind::Opened]);
}

#[test]
fn an_end_of_its_own_is_told_with_how_its_program_ended() {
    let mut table = Table::serving();
    let (_, session) = opened(table.call(300, open("a", "r1")));
    table.pass(100);
    let ended = ReportEvent::Ended {
        reason: Reason::Exited,
        detail: "it gave up".to_owned(),
        exit: Some(Exit::Code(3)),
    };
    let placement = session.record.placement.clone().unwrap();
    table.call(300, report("a", &placement, ended)).unwrap();
    table.pass(100);
    let last = told(&table, "a").last().expect("it was told");
    assert_eq!((last.kind, last.reason), (Kind::Failed, Some(Reason::Exited)));
    assert_eq!(last.text, "exit code 3; it gave up");
}

#[test]
fn the_next_owner_goes_on_and_repeats_nothing_that_is_committed() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    // The copies hear of the last commit with what comes next.
    opened(table.call(300, open("b", "r2")));
    table.pass(2_000);
    let first = table.owner("a");
    table.kill(first);
    table.pass(10_000);
    let next = table.owner("a");
    assert_ne!(first, next);
    assert_eq!(kinds(&table, "a"), [Kind::Placed, Kind::Opened]);
    let now = at(&table, 0);
    closed(table.call(next, close("a", "c1")));
    table.pass(100);
    let told_at: Vec<_> = told(&table, "a").skip(2).map(|it| it.at).collect();
    let until = at(&table, 0);
    assert!(told_at.iter().all(|it| (now..=until).contains(it)), "{told_at:?} in {now}..{until}");
    let of_a = table.events.iter().filter(|it| it.1.session == key("a"));
    let tellers: Vec<u32> = of_a.map(|it| it.0).collect();
    assert_eq!(tellers, [first, first, next, next]);
}

#[test]
fn what_the_next_owner_tells_again_has_the_same_time() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    table.pass(100);
    // The copies have not heard that READY is committed.
    table.kill(table.owner("a"));
    table.pass(10_000);
    let opened = |it: &&SessionEvent| it.kind == Kind::Opened;
    let times: Vec<_> = told(&table, "a").filter(opened).map(|it| (it.version, &it.text)).collect();
    assert_eq!(times.len(), 2, "{times:?}");
    assert_eq!(times[0], times[1]);
}

#[test]
fn a_lost_session_and_its_next_life_are_told() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    table.pass(100);
    table.register("n1", 8);
    table.pass(3_000);
    assert_eq!(kinds(&table, "a").last(), Some(&Kind::Lost));
    opened(table.call(300, open("a", "r2")));
    table.pass(100);
    assert_eq!(kinds(&table, "a")[3..], [Kind::Placed, Kind::Opened]);
    let lives: Vec<_> = told(&table, "a").map(|it| it.life).collect();
    assert!(lives[0] == lives[2] && lives[2] < lives[3], "{lives:?}");
}

#[test]
fn every_manager_tells_that_a_node_is_lost_and_of_which_boot() {
    let mut table = Table::serving();
    table.pass(60_000);
    let lost = table.said.iter().filter(|it| it.0 == Transition::NodeLost);
    assert_eq!(lost.map(|it| it.1.as_str()).collect::<Vec<_>>(), ["node n1 boot 7"; 3]);
}

#[test]
fn events_of_life_cycles_are_told_when_they_fired_and_when_their_actions_failed() {
    let mut table = laid_for_lives();
    let (soon, now) = (at(&table, 500), at(&table, 0));
    let items = [format!("note b@{soon}"), "mark note?b".to_owned(), format!("bill paid@{now}")];
    table.manual_nodes = false;
    opened(table.call(300, with_life("a", "r1", &items)));
    table.manual_nodes = true;
    table.node_calls.clear();
    let (owner, call, _) = next_action(&mut table, 2_000);
    ends(&mut table, (owner, call), failed("EXIT-3"));
    table.pass(1_000);
    let of = |kind| told(&table, "a").filter(move |it| it.kind == kind);
    let mut fired: Vec<&str> = of(Kind::EventFired).map(|it| it.text.as_str()).collect();
    fired.sort_unstable();
    assert_eq!(fired, ["mark note?b", items[0].as_str()]);
    let failed: Vec<&str> = of(Kind::ActionFailed).map(|it| it.text.as_str()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].starts_with(&format!("{}: attempt 1, EXIT-3", items[2])), "{failed:?}");
    table.manual_nodes = false;
    closed(table.call(300, close("a", "c1")));
    table.pass(1_000);
    assert_eq!(told(&table, "a").filter(|it| it.kind == Kind::EventFired).count(), 2);
}
