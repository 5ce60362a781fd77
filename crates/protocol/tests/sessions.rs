//! Opening, reading and closing, through any manager.

use crate::table::*;
use rota_model::node_msg::{DeadToken, NodeAnswer, ReportEvent, ToNode};
use rota_model::{
    Changed, ClassName, CloseOp, Exit, NodeId, Outcome, Placement, Reason, Refusal, RefusalKind,
    RequestId, Retry, SessionState,
};
use rota_protocol::{Answer, Message, Op, OpResult, Sizes, Transition};

#[test]
fn an_open_through_any_manager_creates_one_session_and_finds_it_again() {
    let mut table = Table::serving();
    let (outcome, first) = opened(table.call(300, open("a", "r1")));
    assert_eq!(outcome, Outcome::Created);
    assert_eq!(first.record.state, SessionState::Ready);
    for (index, n) in NUMBERS.into_iter().enumerate() {
        let (outcome, again) = opened(table.call(n, open("a", &format!("other{index}"))));
        assert_eq!(outcome, Outcome::Existed);
        assert_eq!(again.record.placement, first.record.placement);
        let read = got(table.call(n, get("a")));
        assert_eq!(read.record.placement, first.record.placement);
        assert_eq!(u64::from(read.owner.0), u64::from(table.owner("a")));
    }
    let creates = table.node_calls.iter().filter(|(_, it)| matches!(it, ToNode::Create { .. }));
    assert_eq!(creates.count(), 1);
}

#[test]
fn a_node_is_asked_only_after_every_copy_has_the_intent_on_disk() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let copy = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    table.lose =
        Box::new(move |it| it.from.number.0 == copy && matches!(it.message, Message::Ack { .. }));
    let call = table.ask(owner, open("a", "r1"));
    table.pass(300);
    assert!(table.node_calls.is_empty(), "asked before the copy acknowledged");
    table.lose = Box::new(|_| false);
    opened(table.wait_for(call, 2_000));
    assert_eq!(table.node_calls.len(), 1);
}

#[test]
fn opens_that_follow_each_other_cost_one_write_to_each_disk() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let ids = (0..).map(|n| format!("s{n}")).filter(|id| table.owner(id) == owner);
    let ids: Vec<String> = ids.take(5).collect();
    let before = table.persisted;
    for id in &ids {
        opened(table.call(owner, open(id, id)));
    }
    assert_eq!(table.persisted - before, NUMBERS.len() * ids.len());
    // Nobody waits for the last READY, and it reaches every disk all the same.
    table.pass(20);
    for disk in table.disks.values() {
        let states = disk.docs.values().filter_map(|doc| Some(doc.brief()?.state));
        assert_eq!(states.collect::<Vec<_>>(), [SessionState::Ready; 5]);
    }
}

#[test]
fn a_repeated_request_id_gets_the_same_answer_through_another_manager() {
    let mut table = Table::serving();
    let first = opened(table.call(300, open("a", "r1")));
    let again = opened(table.call(1000, open("a", "r1")));
    assert_eq!(first.0, again.0);
    assert_eq!(first.1.record.life, again.1.record.life);
    assert_eq!(first.1.record.version, again.1.record.version);
    assert_eq!(first.1.record.placement, again.1.record.placement);
    assert_eq!(table.count(Transition::RequestRepeated), 1);
    closed(table.call(600, close("a", "c1")));
    let late = opened(table.call(600, open("a", "r1")));
    assert_eq!(late.0, Outcome::Created);
    assert_eq!(late.1.record.life, first.1.record.life);
    assert_eq!(refused(table.call(600, open("a", "c1"))), RefusalKind::RequestIdReused);
}

#[test]
fn a_repeated_request_of_an_earlier_life_is_answered_with_what_that_life_ran() {
    let mut table = Table::serving();
    let classes = ["builtin".to_owned(), "other".to_owned()];
    table.register_offering("n2", 8, &classes);
    let first = opened(table.call(300, open("a", "r1"))).1;
    let closing = close("a", "c1");
    let told = closed(table.call(300, closing.clone()));
    let mut other = open("a", "r2");
    if let Op::Open(open) = &mut other {
        open.spec.class = ClassName::parse("other").unwrap();
    }
    let second = opened(table.call(300, other)).1;
    assert_eq!(second.record.spec.class.as_str(), "other");
    let (outcome, again) = opened(table.call(1000, open("a", "r1")));
    assert_eq!(outcome, Outcome::Created);
    assert_eq!(again.record.life, first.record.life);
    assert_eq!(again.record.spec, first.record.spec);
    let again = closed(table.call(1000, closing));
    assert_eq!(again.record.life, first.record.life);
    assert_eq!(again.record.spec, first.record.spec);
    let (told, again, next) = (told.record.version, again.record.version, second.record.life);
    assert!((told..next).contains(&again), "{again} is neither what was told, {told}, nor later");
}

#[test]
fn a_close_of_an_operator_that_is_repeated_in_the_next_life_tells_who_closed() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    let Op::Close(by_client) = close("a", "c1") else { unreachable!("it is a close") };
    let closing = Op::Close(CloseOp { by_operator: true, ..by_client });
    let first = closed(table.call(300, closing.clone())).record;
    assert_eq!(first.reason, Some(Reason::ClosedByOperator));
    opened(table.call(300, open("a", "r2")));
    let again = closed(table.call(1000, closing)).record;
    assert_eq!((again.life, again.reason), (first.life, first.reason));
}

#[test]
fn a_repeated_open_tells_nothing_of_what_came_after_its_answer() {
    let mut table = Table::serving();
    let first = opened(table.call(300, open("a", "r1"))).1;
    let placement = first.record.placement.clone().unwrap();
    let (reason, exit) = (Reason::Exited, Some(Exit::Code(3)));
    let ended = ReportEvent::Ended { reason, exit, detail: "it fell over".to_owned() };
    table.call(300, report("a", &placement, ended)).unwrap();
    let ended = got(table.call(600, get("a"))).record;
    assert_eq!((ended.state, ended.detail.as_str()), (SessionState::Failed, "it fell over"));
    let again = opened(table.call(1000, open("a", "r1"))).1;
    assert_eq!((again.record.exit.clone(), again.record.detail.as_str()), (None, ""));
    assert_eq!(again.record.placement, first.record.placement);
}

#[test]
fn concurrent_opens_of_one_id_give_one_creation() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let calls: Vec<u64> =
        NUMBERS.iter().map(|n| table.ask(*n, open("a", &format!("r{n}")))).collect();
    assert_eq!(table.node_calls.len(), 1);
    let (owner, message) = table.node_calls[0].clone();
    let answer = NodeAnswer::Running { address: "x:1".into(), ready: true, remark: String::new() };
    table.node_says(owner, "n1", message.head().call, answer);
    table.settle();
    let results: Vec<_> =
        calls.iter().map(|it| opened(table.replies.remove(it).unwrap())).collect();
    let created = results.iter().filter(|it| it.0 == Outcome::Created).count();
    assert_eq!(created, 1);
    assert!(results.iter().all(|it| it.1.record.placement == results[0].1.record.placement));
}

#[test]
fn a_remark_of_its_node_is_told_of_a_session_until_it_closes() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let call = table.ask(1000, open("a", "r1"));
    let (owner, message) = table.node_calls.remove(0);
    let remark = "class c does not use attribute \"x\"".to_owned();
    let answer = NodeAnswer::Running { address: "x:1".into(), ready: true, remark: remark.clone() };
    table.node_says(owner, "n1", message.head().call, answer);
    table.settle();
    assert_eq!(opened(table.replies.remove(&call).unwrap()).1.record.detail, remark);
    assert_eq!(opened(table.call(600, open("a", "r1"))).1.record.detail, remark, "asked once more");
    table.manual_nodes = false;
    assert_eq!(closed(table.call(600, close("a", "c1"))).record.detail, "");
}

#[test]
fn a_remark_is_told_also_where_the_news_that_it_is_ready_overtakes_the_answer() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let call = table.ask(1000, open("a", "r1"));
    let (owner, message) = table.node_calls.remove(0);
    let ToNode::Create { head, token, .. } = &message else { panic!("{message:?}") };
    let (address, remark) = ("x:1".to_owned(), "odd".to_owned());
    let at = Placement {
        node: NodeId::parse("n1").unwrap(),
        boot: head.boot,
        token: *token,
        address: String::new(),
    };
    let ready = ReportEvent::Ready { address: address.clone(), remark: remark.clone() };
    table.ask(owner, report("a", &at, ready));
    let answer = NodeAnswer::Running { address, ready: false, remark: remark.clone() };
    table.node_says(owner, "n1", message.head().call, answer);
    table.settle();
    assert_eq!(opened(table.replies.remove(&call).unwrap()).1.record.detail, remark);
}

#[test]
fn a_close_is_idempotent_and_the_next_open_starts_a_new_life() {
    let mut table = Table::serving();
    let (_, first) = opened(table.call(300, open("a", "r1")));
    let gone = closed(table.call(600, close("a", "c1")));
    assert_eq!(gone.record.state, SessionState::Closed);
    assert_eq!(gone.record.reason, Some(Reason::ClosedByClient));
    closed(table.call(1000, close("a", "c1")));
    closed(table.call(1000, close("a", "c2")));
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Closed);
    let (outcome, second) = opened(table.call(300, open("a", "r2")));
    assert_eq!(outcome, Outcome::Created);
    assert!(second.record.life > first.record.life);
    assert!(second.record.version > gone.record.version);
    assert_eq!(refused(table.call(300, get("never"))), RefusalKind::NotFound);
    assert_eq!(refused(table.call(300, close("never", "c3"))), RefusalKind::NotFound);
}

#[test]
fn a_close_that_an_operator_ordered_says_so() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    let Op::Close(by_client) = close("a", "c1") else { panic!("it is a close") };
    let gone = closed(table.call(600, Op::Close(CloseOp { by_operator: true, ..by_client })));
    assert_eq!(gone.record.reason, Some(Reason::ClosedByOperator));
    opened(table.call(300, open("a", "r2")));
    assert_eq!(
        closed(table.call(600, close("a", "c2"))).record.reason,
        Some(Reason::ClosedByClient)
    );
}

#[test]
fn a_full_node_is_left_for_another_under_a_new_token() {
    let mut table = Table::serving();
    table.register("n2", 7);
    table.manual_nodes = true;
    let call = table.ask(300, open("a", "r1"));
    let (owner, first) = table.node_calls.pop().unwrap();
    table.node_says(owner, "n1", first.head().call, NodeAnswer::Full);
    table.settle();
    let (_, second) = table.node_calls.pop().expect("the other node is asked");
    let running =
        NodeAnswer::Running { address: "n2:9".into(), ready: true, remark: String::new() };
    table.node_says(owner, "n2", second.head().call, running);
    table.settle();
    let (outcome, session) = opened(table.replies.remove(&call).unwrap());
    assert_eq!(outcome, Outcome::Created);
    let placement = session.record.placement.as_ref().unwrap();
    assert_eq!((placement.node.as_str(), placement.address.as_str()), ("n2", "n2:9"));
    let ToNode::Create { token, .. } = first else { panic!("{first:?}") };
    assert!(placement.token > token, "the refused token is dead for ever");
}

#[test]
fn a_program_that_ends_while_starting_fails_its_open_and_says_why() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let call = table.ask(300, open("a", "r1"));
    let (owner, message) = table.node_calls.pop().unwrap();
    let ended = DeadToken::Ended {
        reason: Reason::Exited,
        exit: Some(rota_model::Exit::Code(3)),
        detail: "no such file".into(),
    };
    table.node_says(owner, "n1", message.head().call, NodeAnswer::Dead(ended));
    table.settle();
    let refusal = table.replies.remove(&call).unwrap().unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::StartFailed);
    assert!(refusal.message.contains("exit code 3") && refusal.message.contains("no such file"));
    let record = got(table.call(600, get("a"))).record;
    assert_eq!((record.state, record.reason), (SessionState::Failed, Some(Reason::Exited)));
}

#[test]
fn a_repeated_open_that_failed_fails_again_and_starts_nothing() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let others: Vec<u32> = NUMBERS.into_iter().filter(|n| *n != owner).collect();
    let call = table.ask(others[0], open("a", "r1"));
    let (_, message) = table.node_calls.pop().unwrap();
    let ended = DeadToken::Ended { reason: Reason::StartTimeout, exit: None, detail: "x".into() };
    table.node_says(owner, "n1", message.head().call, NodeAnswer::Dead(ended));
    table.settle();
    let first = table.replies.remove(&call).unwrap().unwrap_err();
    assert_eq!((first.kind, first.changed), (RefusalKind::StartFailed, Changed::Unknown));
    assert_eq!(table.call(others[1], open("a", "r1")).unwrap_err(), first);
    assert_eq!(table.call(owner, open("a", "r1")).unwrap_err(), first);
    assert!(table.node_calls.is_empty(), "no program is started: {:?}", table.node_calls);
    assert_eq!(refused(table.call(owner, close("a", "r1"))), RefusalKind::RequestIdReused);
    // Another open begins another life; the first one stays answered.
    table.manual_nodes = false;
    let (_, second) = opened(table.call(others[0], open("a", "r2")));
    assert_eq!(refused(table.call(others[1], open("a", "r1"))), RefusalKind::StartFailed);
    table.kill(owner);
    let call = table.ask(others[0], open("a", "r1"));
    assert_eq!(refused(table.wait_for(call, 3_000)), RefusalKind::StartFailed);
    let now = got(table.call(others[0], get("a"))).record;
    assert_eq!((now.state, now.life), (SessionState::Ready, second.record.life));
}

#[test]
fn an_open_that_a_close_overtook_is_told_so_and_its_repetition_begins_anew() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let opening = table.ask(owner, open("a", "r1"));
    table.node_calls.clear();
    let closing = table.ask(owner, close("a", "c1"));
    // As long as it is being closed, nobody may begin another life for it: not for a repetition either.
    let again = table.ask(owner, open("a", "r1"));
    let (_, message) = table.node_calls.pop().unwrap();
    assert!(matches!(message, ToNode::Destroy { .. }), "{message:?}");
    assert!(!table.replies.contains_key(&again), "{:?}", table.replies);
    let over = NodeAnswer::Destroyed { exit: None, detail: String::new() };
    table.node_says(owner, "n1", message.head().call, over);
    table.settle();
    let life = closed(table.replies.remove(&closing).unwrap()).record.life;
    for call in [opening, again] {
        let told = table.replies.remove(&call).unwrap().unwrap_err();
        let expected = (RefusalKind::Closed, Retry::Now, Changed::No);
        assert_eq!((told.kind, told.retry, told.changed), expected, "{told:?}");
    }
    assert!(table.node_calls.is_empty(), "nothing is started: {:?}", table.node_calls);
    table.manual_nodes = false;
    let (outcome, session) = opened(table.call(owner, open("a", "r1")));
    assert_eq!(outcome, Outcome::Created);
    assert!(session.record.life > life);
}

#[test]
fn a_repeated_request_whose_session_has_ended_says_so_beside_its_old_answer() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let ended_since = |result: OpResult| match result {
        Ok(Answer::Opened { ended_since, session, .. }) => (ended_since, session.record.life),
        other => panic!("it is no answer to an open: {other:?}"),
    };
    let (_, life) = ended_since(table.call(owner, open("a", "r1")));
    assert_eq!(ended_since(table.call(owner, open("a", "r1"))), (false, life));
    closed(table.call(owner, close("a", "c1")));
    assert_eq!(ended_since(table.call(owner, open("a", "r1"))), (true, life));
    let (fresh, later) = ended_since(table.call(owner, open("a", "r2")));
    assert!(!fresh && later > life);
    assert_eq!(ended_since(table.call(owner, open("a", "r1"))), (true, life));
    assert_eq!(ended_since(table.call(owner, open("a", "r2"))), (false, later));
}

/// Managers that remember 1,024 requests beside sessions, and a quarter as many that only found one.
fn with_few_memories() -> Table {
    let mut table = Table::laid();
    table.sizes = Sizes { requests_max: 1_024, ..Sizes::default() };
    table.start_all();
    table.register("n1", 7);
    table
}

/// What the disk of a manager holds beside sessions of requests: how many, and their bytes with the
/// sessions'.
fn remembered_by(table: &Table, n: u32) -> (usize, usize) {
    let docs = || table.disks[&n].docs.values();
    let sessions = docs().filter(|it| it.session().is_some()).map(|it| it.to_bytes().len());
    (docs().filter(|it| it.request().is_some()).count(), sessions.sum())
}

#[test]
fn the_record_of_a_hot_session_stays_small_and_what_it_gives_up_lies_beside_it() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let mut seen = Vec::new();
    for n in 0..100 {
        opened(table.call(owner, open("a", &format!("r{n:03}"))));
        table.pass(20);
        seen.push(NUMBERS.map(|it| remembered_by(&table, it)));
    }
    let [few, many] = [20, 99].map(|it: usize| seen[it][0]);
    assert_eq!((few.0, many.0), (20 + 1 - 4, 99 + 1 - 4));
    assert!(many.1 <= few.1, "{many:?} after {few:?}");
    assert!(seen.iter().all(|it| it.iter().all(|copy| copy == &it[0])), "all copies have both");
    // They go after ten minutes, though nobody asks.
    table.pass(640_000);
    assert_eq!(NUMBERS.map(|it| remembered_by(&table, it).0), [0; 3]);
}

#[test]
fn a_request_that_lies_beside_its_session_gets_its_answer_from_the_next_owner_too() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let (_, first) = opened(table.call(owner, open("a", "r1")));
    closed(table.call(owner, close("a", "c1")));
    for n in 0..20 {
        opened(table.call(owner, open("a", &format!("more{n}"))));
    }
    let now = got(table.call(owner, get("a"))).record;
    table.pass(100);
    for kill in [false, true] {
        if kill {
            table.kill(owner);
        }
        let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
        let mut ask = |op: Op| {
            let call = table.ask(entry, op);
            table.wait_for(call, 3_000)
        };
        let (outcome, again) = opened(ask(open("a", "r1")));
        assert_eq!((outcome, again.record.life), (Outcome::Created, first.record.life));
        assert_eq!(again.record.placement, first.record.placement);
        let (outcome, again) = opened(ask(open("a", "more0")));
        assert_eq!((outcome, again.record.life), (Outcome::Created, now.life));
        let again = closed(ask(close("a", "c1"))).record;
        assert_eq!((again.state, again.life), (SessionState::Closed, first.record.life));
        for wrong in [close("a", "r1"), open("a", "c1")] {
            assert_eq!(refused(ask(wrong)), RefusalKind::RequestIdReused);
        }
        let still = got(ask(get("a"))).record;
        assert_eq!((still.state, still.life), (SessionState::Ready, now.life));
    }
}

#[test]
fn a_live_session_is_found_by_more_clients_than_it_remembers() {
    let mut table = with_few_memories();
    let owner = table.owner("a");
    let (_, first) = opened(table.call(owner, open("a", "r0")));
    let last = 1_024;
    for n in 1..=last {
        let (outcome, found) = opened(table.call(owner, open("a", &format!("r{n}"))));
        assert_eq!((outcome, found.record.life), (Outcome::Existed, first.record.life));
    }
    closed(table.call(owner, close("a", "c1")));
    // What began the life is remembered, and so are the last that found it; the first of them is not.
    for (request, outcome) in
        [("r0".into(), Outcome::Created), (format!("r{last}"), Outcome::Existed)]
    {
        let (again, session) = opened(table.call(owner, open("a", &request)));
        assert_eq!((again, session.record.life), (outcome, first.record.life), "{request}");
    }
    let (outcome, session) = opened(table.call(owner, open("a", "r1")));
    assert_eq!(outcome, Outcome::Created);
    assert!(session.record.life > first.record.life);
}

/// Opens and closes one session again and again, 160 ms apart, until that is refused or was done so
/// often.
fn open_and_close(name: impl Fn(u64) -> RequestId) -> Result<(), Refusal> {
    let mut table = with_few_memories();
    let owner = table.owner("a");
    for n in 0..600 {
        if n % 50 == 0 {
            table.register("n1", 100 + n);
        }
        let (Op::Open(mut opening), Op::Close(mut closing)) = (open("a", "r"), close("a", "r"))
        else {
            unreachable!("an open and a close");
        };
        (opening.request, closing.request) = (name(2 * n), name(2 * n + 1));
        table.call(owner, Op::Open(opening))?;
        table.call(owner, Op::Close(closing))?;
        table.pass(160);
    }
    Ok(())
}

#[test]
fn requests_without_a_name_of_their_callers_do_not_lock_a_session_and_named_ones_do() {
    assert_eq!(open_and_close(|n| RequestId::given_by_manager(7, n)), Ok(()));
    let refusal = open_and_close(|n| RequestId::parse(&format!("r{n}")).unwrap()).unwrap_err();
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::Overloaded, Changed::No));
}

#[test]
fn an_unknown_class_is_refused_by_name() {
    let mut table = Table::serving();
    let mut op = open("a", "r1");
    if let rota_protocol::Op::Open(open) = &mut op {
        open.spec.class = rota_model::ClassName::parse("nonesuch").unwrap();
    }
    let call = table.ask(300, op);
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::UnknownClass);
    assert!(refusal.message.contains("nonesuch"));
}

#[test]
fn an_open_in_a_full_pool_is_told_so_however_short_its_deadline_is() {
    let mut table = Table::serving();
    table.places = 1;
    table.register("n1", 8);
    let owner = table.owner("a");
    let other = (0..).map(|n| format!("s{n}")).find(|id| table.owner(id) == owner).unwrap();
    opened(table.call(owner, open("a", "r1")));
    for ms in [100, 2_000] {
        let call = table.ask_within(owner, open(&other, "r2"), ms);
        let refusal = table.wait_for(call, 3_000).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::NoCapacity, "{ms} ms: {refusal:?}");
        assert!(refusal.message.contains("the only node"), "{refusal:?}");
    }
}

#[test]
fn late_news_of_a_machine_does_not_hide_newer_news() {
    let mut table = Table::serving();
    let (_, session) = opened(table.call(300, open("a", "r1")));
    let placement = session.record.placement.clone().unwrap();
    let news = |state: &str, change| {
        let event = ReportEvent::MachineState { state: state.into(), change };
        report("a", &placement, event)
    };
    assert_eq!(table.call(300, news("red", 0)), Ok(Answer::Reported));
    assert_eq!(table.call(300, news("amber", 2)), Ok(Answer::Reported));
    let owner = table.owner("a");
    table.kill(owner);
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    // The owner that heard both is gone: what came late is told by the record itself.
    for (state, change) in [("red", 0), ("green", 1), ("amber", 2)] {
        let call = table.ask(entry, news(state, change));
        assert_eq!(table.wait_for(call, 3_000), Ok(Answer::Reported), "late news is acknowledged");
        let record = got(table.call(entry, get("a"))).record;
        assert_eq!((record.machine_state.as_str(), record.machine_change), ("amber", 2));
    }
    assert_eq!(table.call(entry, news("off", 3)), Ok(Answer::Reported));
    assert_eq!(got(table.call(entry, get("a"))).record.machine_state, "off");
}

#[test]
fn a_late_repetition_of_a_close_that_found_nothing_closes_no_later_life() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    let sent = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = sent.clone();
    table.lose = Box::new(move |envelope| {
        if envelope.message.name() == "request" {
            kept.borrow_mut().push(envelope.clone());
        }
        false
    });
    let refusal = table.call(entry, close("a", "c1")).unwrap_err();
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::NotFound, Changed::No));
    // Soon; and when the owner has forgotten what it answered.
    for later_ms in [0, 70_000] {
        table.pass(later_ms);
        table.register("n1", 8 + later_ms);
        let request = format!("r{later_ms}");
        let (_, before) = opened(table.call(owner, open("a", &request)));
        let late = sent.borrow()[0].clone();
        table.input(owner, rota_protocol::Input::Peer(late));
        table.pass(500);
        let after = got(table.call(owner, get("a"))).record;
        assert_eq!((after.state, after.life), (SessionState::Ready, before.record.life));
    }
    closed(table.call(entry, close("a", "c2")));
}

#[test]
fn a_request_id_is_remembered_for_ten_minutes_though_its_session_has_ended() {
    let mut table = Table::serving();
    let (_, first) = opened(table.call(300, open("a", "r1")));
    closed(table.call(600, close("a", "r2")));
    table.pass(595_000);
    let (outcome, again) = opened(table.call(1000, open("a", "r1")));
    assert_eq!((outcome, again.record.life), (Outcome::Created, first.record.life));
    assert_eq!(closed(table.call(300, close("a", "r2"))).record.life, first.record.life);
    table.pass(65_000);
    assert_eq!(refused(table.call(300, get("a"))), RefusalKind::NotFound);
    // The node sent no sign of life all the while.
    table.register("n1", 8);
    let (outcome, later) = opened(table.call(1000, open("a", "r1")));
    assert_eq!(outcome, Outcome::Created);
    assert!(later.record.life > first.record.life, "{later:?} after {first:?}");
}
