//! What a refused client is told: which field, what there is instead, and whether repeating helps.

use crate::table::*;
use rota_model::node_msg::ReportEvent;
use rota_model::{
    Changed, ClassName, ManagerNumber, Outcome, PoolName, RefusalKind, Retry, SessionState,
};
use rota_protocol::{Answer, Message, Op, Sizes};
use rota_ring::PartitionEntry;
use std::sync::Arc;

fn open_of(id: &str, request: &str, class: &str) -> Op {
    let Op::Open(mut op) = open(id, request) else { unreachable!("open gives an open") };
    op.spec.class = ClassName::parse(class).expect("a class name");
    Op::Open(op)
}

fn open_in(id: &str, request: &str, pool: &str) -> Op {
    let Op::Open(mut op) = open(id, request) else { unreachable!("open gives an open") };
    op.spec.pool = PoolName::parse(pool).expect("a pool name");
    Op::Open(op)
}

fn open_with(id: &str, request: &str, value: &str) -> Op {
    let Op::Open(mut op) = open(id, request) else { unreachable!("open gives an open") };
    op.spec.attributes = Arc::new([("k".to_owned(), value.to_owned())].into());
    Op::Open(op)
}

#[test]
fn a_request_id_that_began_a_life_is_refused_with_another_class_pool_or_attributes() {
    let mut table = Table::serving();
    let (_, first) = opened(table.call(300, open_with("a", "r1", "v")));
    let others = [
        (open_of("a", "r1", "other"), "class \"builtin\""),
        (open_in("a", "r1", "other"), "pool \"default\""),
        (open("a", "r1"), "other attributes"),
    ];
    for closed_before in [false, true] {
        for (op, part) in others.clone() {
            let refusal = table.call(1000, op).unwrap_err();
            assert_eq!((refusal.kind, refusal.retry), (RefusalKind::RequestIdReused, Retry::Never));
            assert_eq!(
                (refusal.fields[0].field.as_str(), refusal.changed),
                ("request_id", Changed::No)
            );
            assert!(refusal.message.contains(part), "{refusal:?}");
        }
        let (outcome, again) = opened(table.call(600, open_with("a", "r1", "v")));
        assert_eq!((outcome, again.record.life), (Outcome::Created, first.record.life));
        if !closed_before {
            closed(table.call(600, close("a", "c1")));
        }
    }
}

#[test]
fn a_silent_owner_is_told_of_before_the_callers_deadline_and_a_read_changes_nothing() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r1")));
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    table.lose = Box::new(|it| it.message.name() == "request");
    for (op, changed) in [(get("a"), Changed::No), (close("a", "c1"), Changed::Unknown)] {
        let call = table.ask_within(entry, op, 600);
        table.pass(590);
        let refusal = table.replies.remove(&call).expect("an answer").unwrap_err();
        assert_eq!((refusal.kind, refusal.changed), (RefusalKind::DeadlineExceeded, changed));
    }
}

#[test]
fn what_an_open_asked_for_that_found_the_session_is_not_remembered() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    for class in ["one", "two"] {
        let (outcome, session) = opened(table.call(600, open_of("a", "r2", class)));
        assert_eq!(outcome, Outcome::Existed);
        assert_eq!(session.record.spec.class.as_str(), "builtin", "the answer tells what it is");
    }
    // In another life nothing is known of what began the one before.
    closed(table.call(600, close("a", "c1")));
    opened(table.call(600, open("a", "r3")));
    assert_eq!(opened(table.call(300, open_of("a", "r1", "x"))).0, Outcome::Created);
}

#[test]
fn a_request_id_of_a_close_is_refused_with_another_life() {
    let mut table = Table::serving();
    let (_, first) = opened(table.call(300, open("a", "r1")));
    closed(table.call(600, close("a", "c1")));
    let (_, second) = opened(table.call(300, open("a", "r2")));
    let of_life = |life| {
        let Op::Close(mut op) = close("a", "c1") else { unreachable!("close gives a close") };
        op.life = Some(life);
        Op::Close(op)
    };
    let refusal = table.call(1000, of_life(second.record.life)).unwrap_err();
    assert_eq!(
        (refusal.kind, refusal.changed),
        (RefusalKind::RequestIdReused, Changed::No),
        "{refusal:?}"
    );
    for (name, op) in [("a close", open("a", "c1")), ("an open", close("a", "r2"))] {
        let refusal = table.call(300, op).unwrap_err();
        assert_eq!((refusal.kind, refusal.changed), (RefusalKind::RequestIdReused, Changed::No));
        assert!(refusal.message.contains(name), "{refusal:?}");
    }
    closed(table.call(1000, of_life(first.record.life)));
    assert!(got(table.call(300, get("a"))).record.is_live(), "the second life goes on");
}

#[test]
fn an_unknown_class_is_refused_with_those_that_there_are() {
    let mut table = Table::serving();
    let call = table.ask(300, open_of("a", "r1", "nonesuch"));
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert_eq!((refusal.kind, refusal.retry), (RefusalKind::UnknownClass, Retry::WhenChanged));
    assert!(refusal.message.contains("\"nonesuch\"; they offer builtin"), "{refusal}");
    let many: Vec<String> = (0..100).map(|it| format!("c{it:02}")).collect();
    table.register_offering("n2", 8, &many);
    let call = table.ask(300, open_of("a", "r2", "nonesuch"));
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert!(refusal.message.ends_with("c13, c14 and 85 more"), "{refusal}");
}

#[test]
fn a_pool_that_is_nowhere_is_refused_at_once_with_those_that_there_are_and_a_full_one_may_get_room()
{
    let mut table = Table::serving();
    let call = table.ask(300, open_in("a", "r1", "nonesuch"));
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert_eq!((refusal.kind, refusal.retry), (RefusalKind::NoCapacity, Retry::WhenChanged));
    assert!(refusal.message.ends_with("describes one); the pools are default"), "{refusal}");
    table.places = 1;
    table.register("n1", 8);
    // One owner for both: it knows at once what it asked the node for.
    let owner = table.owner("a");
    let other = (0..).map(|n| format!("s{n}")).find(|id| table.owner(id) == owner).unwrap();
    opened(table.call(owner, open("a", "r2")));
    let call = table.ask(owner, open(&other, "r3"));
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NoCapacity);
    assert!(refusal.message.contains("is full (load limit 0.8 of its places)"), "{refusal}");
    assert!(matches!(refusal.retry, Retry::AfterMs(_)), "{refusal:?}");
}

#[test]
fn a_session_that_does_not_exist_may_be_opened_later() {
    let mut table = Table::serving();
    for op in [get("a"), close("a", "c1")] {
        let refusal = table.call(300, op).unwrap_err();
        assert_eq!((refusal.kind, refusal.retry), (RefusalKind::NotFound, Retry::WhenChanged));
    }
}

#[test]
fn requests_that_wait_are_bounded_by_their_bytes_at_their_manager_and_at_the_owner() {
    let mut table = Table::laid();
    let large = |id: &str| open_large(id, "r1", 64 * 1024);
    // So many wait, beside the look at the namespaces, that there is room for nothing else.
    let request_bytes = 15 * large("s").bytes() + get("s").bytes();
    table.sizes = Sizes { request_bytes, ..Sizes::default() };
    table.start_all();
    table.register("n1", 7);
    table.silent.insert("n1".to_owned());
    let owner = table.owner("a");
    let [one, other] = NUMBERS.into_iter().filter(|it| *it != owner).collect::<Vec<_>>()[..] else {
        panic!("of three managers one is the owner")
    };
    let here = (0..).map(|n| format!("s{n}")).filter(|id| table.owner(id) == owner);
    let ids: Vec<String> = here.take(18).collect();
    let waiting: Vec<u64> = ids[..15].iter().map(|id| table.ask(one, large(id))).collect();
    assert!(waiting.iter().all(|it| !table.replies.contains_key(it)), "{:?}", table.replies);
    for (through, place) in [(one, "manager"), (other, "partition")] {
        let refusal = table.call(through, large(&ids[15])).expect_err("there is no room");
        assert_eq!((refusal.kind, refusal.changed), (RefusalKind::Overloaded, Changed::No));
        assert!(refusal.message.contains(place), "{}", refusal.message);
        assert!(refusal.message.contains(&request_bytes.to_string()), "{}", refusal.message);
    }
    // What is small is bounded by its number; what is large finds room when the others have given up.
    assert_eq!(refused(table.call(other, get(&ids[15]))), RefusalKind::NotFound);
    assert_eq!(refused(table.call(one, close(&ids[15], "r2"))), RefusalKind::NotFound);
    let small = table.ask(one, open(&ids[16], "r1"));
    assert!(!table.replies.contains_key(&small));
    table.pass(11_000);
    assert!(waiting.iter().all(|it| table.replies.contains_key(it)));
    let again = table.ask(other, large(&ids[17]));
    assert!(!table.replies.contains_key(&again), "{:?}", table.replies[&again]);
}

#[test]
fn a_request_that_waits_is_not_late_because_many_others_were_refused_meanwhile() {
    let mut table = Table::serving();
    table.silent.insert("n1".to_owned());
    let owner = table.owner("a");
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    let call = table.ask_within(entry, open("a", "r1"), 60_000);
    let here = (0..).map(|n| format!("s{n}")).find(|id| table.owner(id) == owner).unwrap();
    // More than an owner remembers.
    for number in 0..20_100 {
        let refusal = table.call(entry, close(&here, &format!("c{number}")));
        assert_eq!(refused(refusal), RefusalKind::NotFound);
    }
    // Its entry manager repeats it.
    table.pass(1_200);
    assert_eq!(table.replies.get(&call), None);
    table.silent.clear();
    opened(table.wait_for(call, 30_000));
}

#[test]
fn news_of_nodes_are_taken_when_large_documents_wait_for_their_commit_and_bounded_by_number() {
    let mut table = Table::laid();
    table.sizes = Sizes { tail_bytes: 1_000, tail_entries: 3, ..Sizes::default() };
    table.start_all();
    table.register("n1", 7);
    let owner = table.owner("a");
    let placement = opened(table.call(owner, open("a", "r1"))).1.record.placement.clone().unwrap();
    table.pass(200);
    table.lose = Box::new(|it| matches!(it.message, Message::Prepare { .. }));
    let here = (0..).map(|n| format!("s{n}")).filter(|id| table.owner(id) == owner);
    let others: Vec<String> = here.take(2).collect();
    let large = table.ask(owner, open_large(&others[0], "r1", 4_096));
    assert!(!table.replies.contains_key(&large));
    assert_eq!(refused(table.call(owner, open(&others[1], "r1"))), RefusalKind::Overloaded);
    let news = |change| {
        let event = ReportEvent::MachineState { state: format!("s{change}"), change };
        report("a", &placement, event)
    };
    let told: Vec<u64> = (1..6).map(|change| table.ask(owner, news(change))).collect();
    assert!(told.iter().all(|it| !table.replies.contains_key(it)), "{:?}", table.replies);
    assert_eq!(refused(table.call(owner, news(6))), RefusalKind::Overloaded);
    table.lose = Box::new(|_| false);
    for call in told {
        assert_eq!(table.wait_for(call, 3_000), Ok(Answer::Reported));
    }
    opened(table.wait_for(large, 3_000));
}

#[test]
fn nobody_is_promised_that_nothing_changed_while_his_request_waits_as_one_of_an_earlier_run() {
    let mut table = Table::laid();
    table.sizes = Sizes { tail_bytes: 1_000, ..Sizes::default() };
    table.start_all();
    table.register("n1", 7);
    let owner = table.owner("a");
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    opened(table.call(owner, open("a", "r1")));
    // The open waits at its owner until the life before has ended. Repetitions of it are lost.
    table.silent.insert("n1".to_owned());
    let closing = table.ask_within(owner, close("a", "c1"), 60_000);
    let call = table.ask_within(entry, open("a", "r2"), 20_000);
    // Its entry manager is missed, and comes back as another run.
    let run = |table: &Table| table.view().managers[&ManagerNumber(entry)].incarnation;
    let before = run(&table);
    table.lose = Box::new(move |it| it.from.number.0 == entry);
    table.pass_until("another run", 10_000, |it| run(it) > before);
    table.lose = Box::new(|it| matches!(it.message, Message::Request { .. }));
    let has_all = |it: &PartitionEntry| it.isr.len() == NUMBERS.len();
    table.pass_until("all copies", 10_000, |it| it.view().parts.values().all(has_all));
    assert!(table.owner("a") == owner && !table.replies.contains_key(&call));
    // Its next repetition finds that its partition takes nothing more.
    table.lose = Box::new(|it| matches!(it.message, Message::Prepare { .. }));
    let here = (0..).map(|n| format!("s{n}")).find(|id| table.owner(id) == owner).unwrap();
    let large = table.ask(owner, open_large(&here, "r1", 4_096));
    assert!(!table.replies.contains_key(&large));
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::Overloaded, Changed::Unknown));
    // And the first one is carried out after that.
    table.lose = Box::new(|_| false);
    table.silent.clear();
    closed(table.wait_for(closing, 10_000));
    table.pass(1_000);
    let view = got(table.call(owner, get("a")));
    assert_eq!(view.record.state, SessionState::Ready, "{view:?}");
}
