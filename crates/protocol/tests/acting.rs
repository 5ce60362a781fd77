//! Actions under way: each is asked for once as long as its life goes on, its end is its own, and none stands in the
//! way of others for ever.

use crate::table::lives::*;
use crate::table::*;
use rota_messages::lives::{Event, FireOp};
use rota_messages::{Envelope, Message};
use rota_model::node_msg::{NodeAnswer, ReportEvent, ToNode};
use rota_model::{ClassFacts, Exit, Handler, LifeFacts, Reason, Restarts, SessionState};
use rota_protocol::{LivesOp, Op, Transition};
use std::collections::BTreeSet;

/// An event by its item.
fn event(text: &str) -> Event {
    let (life_cycle, word) = text.split_once(' ').expect("an item has a word");
    Event { life_cycle: life_cycle.to_owned(), word: word.to_owned() }
}

/// The ids of tasks that try actions again.
fn retries(table: &Table, id: &str) -> usize {
    let docs = &table.disks[&table.owner(id)].docs;
    docs.iter().filter(|(key, _)| key.name.class() == "Task").count()
}

/// Which sessions nodes were asked to act for, in order.
fn asked_for(table: &mut Table) -> Vec<String> {
    let id = |document: &str| {
        let document: serde_json::Value = serde_json::from_str(document).expect("it is JSON");
        document["id"].as_str().expect("a session has an id").to_owned()
    };
    actions(table).iter().map(|(.., it)| id(&it.document)).collect()
}

#[test]
fn a_write_of_the_session_that_is_not_committed_yet_leaves_its_action_under_way() {
    let mut table = laid_for_lives();
    table.keeps_actions = true;
    let items = [format!("bill a@{}", at(&table, 0))];
    opened(table.call(300, with_life("a", "r1", &items)));
    let (owner, call, _) = next_action(&mut table, 2_000);
    let entry = table.owner("a");
    opened(table.call(entry, open("a", "r2")));
    table.lose = Box::new(|it: &Envelope| matches!(it.message, Message::Prepare { .. }));
    table.ask(entry, open("a", "r3"));
    table.pass(100);
    table.lose = Box::new(|_| false);
    table.pass(2_000);
    ends(&mut table, (owner, call), failed("EXIT-3"));
    let life = shown(&mut table, "a");
    let failure = life.managed.items().next().and_then(|(_, it)| it.failed.clone());
    assert_eq!(failure.expect("its end is counted").attempts, 1);
    assert_eq!(table.count(Transition::ActionBegan), 1);
}

/// A node with class `builtin`, whose sessions are started again, and whose action `bill` is retried so often. Nodes
/// keep actions.
fn laid_for_restarts(retries: u32) -> Table {
    let mut table = Table::laid();
    table.start_all();
    let rule = Restarts { times: 9, delay_ms: 500, delay_max_ms: 500, steady_ms: 60_000 };
    let life_cycles = [("bill".to_owned(), action(retries))].into();
    let life = LifeFacts { life_cycles, restarts: Some(rule), ..LifeFacts::default() };
    let facts = ClassFacts { life: Box::new(life), ..ClassFacts::default() };
    table.register_with_facts("n1", 100, table.places, facts);
    table.pass(1_500);
    table.keeps_actions = true;
    table
}

/// The program of session `a` ends with exit code 3, and its node says so.
fn ends_badly(table: &mut Table, owner: u32) {
    let record = got(table.call(owner, get("a"))).record;
    table.live.remove(&record.key);
    let why = (Reason::Exited, Some(Exit::Code(3)));
    let event = ReportEvent::Ended { reason: why.0, exit: why.1, detail: String::new() };
    let placement = record.placement.clone().expect("it runs");
    let told = table.ask(owner, report("a", &placement, event));
    table.wait_for(told, 5_000).expect("it is taken");
}

#[test]
fn the_late_end_of_an_action_of_an_earlier_life_says_nothing_of_the_next_one() {
    let mut table = laid_for_restarts(2);
    let items = [format!("bill a@{}", at(&table, 0))];
    let (_, first) = opened(table.call(300, with_life("a", "r1", &items)));
    let (owner, early, _) = next_action(&mut table, 2_000);
    table.pass(100);
    ends_badly(&mut table, owner);
    let (owner, late, action) = next_action(&mut table, 5_000);
    assert!(action.life > first.record.life, "the next life runs it again");
    ends(&mut table, (owner, early), done(""));
    assert_eq!(managed(&mut table, "a").history().len(), 0, "that was another life");
    ends(&mut table, (owner, late), done(""));
    assert_eq!(history(&managed(&mut table, "a")), ["bill"]);
}

#[test]
fn the_task_that_tries_an_action_again_goes_with_its_item_and_with_its_session() {
    let mut table = laid_for_lives();
    let items: Vec<String> =
        ["bill a", "ship a"].iter().map(|it| format!("{it}@{}", at(&table, 0))).collect();
    opened(table.call(300, with_life("a", "r1", &items)));
    table.manual_nodes = true;
    for _ in &items {
        let (owner, call, _) = next_action(&mut table, 2_000);
        ends(&mut table, (owner, call), failed("EXIT-3"));
    }
    assert_eq!(retries(&table, "a"), 2);
    life_of(asks(&mut table, "a", removing("a", &items[0])));
    assert_eq!(retries(&table, "a"), 1, "its item is gone");
    table.manual_nodes = false;
    table.keeps_actions = true;
    closed(table.call(300, close("a", "r2")));
    table.pass(500);
    assert_eq!(retries(&table, "a"), 0, "its session is gone");
}

#[test]
fn a_task_of_a_chain_of_lives_that_ended_goes_when_the_session_is_opened_at_once() {
    let mut table = laid_for_lives();
    let items = [format!("bill a@{}", at(&table, 0))];
    opened(table.call(300, with_life("a", "r1", &items)));
    table.manual_nodes = true;
    let (owner, call, _) = next_action(&mut table, 2_000);
    ends(&mut table, (owner, call), failed("EXIT-3"));
    table.manual_nodes = false;
    closed(table.call(300, close("a", "r2")));
    opened(table.call(300, open("a", "r3")));
    table.pass(100);
    assert_eq!(retries(&table, "a"), 0);
}

/// Answers the actions that the node was asked for: it has no room for them, or they have ended well.
fn answer_as_busy(table: &mut Table, is_busy: bool) {
    for (owner, call, _) in actions(table) {
        let end = if is_busy { failed("BUSY") } else { done("") };
        table.node_says(owner, "n1", call, NodeAnswer::Acted { end });
    }
}

#[test]
fn an_action_for_which_its_node_has_no_room_is_asked_for_again_and_counts_as_no_failure() {
    let mut table = laid_for_lives();
    table.keeps_actions = true;
    let items = [format!("bill a@{}", at(&table, 0))];
    opened(table.call(300, with_life("a", "r1", &items)));
    let until_ms = table.now_ms + 120_000;
    while table.now_ms < until_ms {
        answer_as_busy(&mut table, true);
        table.pass(100);
        for n in NUMBERS {
            table.renews(n, "n1");
        }
    }
    let busy = shown(&mut table, "a");
    assert!(busy.managed.items().all(|(_, it)| it.failed.is_none()), "{busy:?}");
    let until_ms = table.now_ms + 5_000;
    while table.now_ms < until_ms {
        answer_as_busy(&mut table, false);
        table.pass(100);
    }
    assert_eq!(history(&managed(&mut table, "a")), ["bill"]);
}

#[test]
fn actions_wait_for_room_in_order_of_time_and_not_of_name() {
    let mut table = laid_for_lives_with(400);
    table.keeps_actions = true;
    let ids = |from: char| (0..64).map(move |it| format!("{{a}}{from}{it}")).collect::<Vec<_>>();
    let (first, second, last) = (ids('x'), ids('y'), ids('b'));
    for id in first.iter().chain(&second) {
        let items = [format!("bill a@{}", at(&table, 0))];
        opened(table.call(300, with_life(id, &format!("r{id}"), &items)));
    }
    table.pass(200);
    let under_way: BTreeSet<String> = asked_for(&mut table).into_iter().collect();
    assert_eq!(under_way.len(), 64, "so many of a partition");
    for id in &last {
        let items = [format!("bill a@{}", at(&table, 0))];
        opened(table.call(300, with_life(id, &format!("r{id}"), &items)));
    }
    table.pass(200);
    for id in &under_way {
        closed(table.call(300, close(id, &format!("c{id}"))));
    }
    table.node_calls.clear();
    table.pass(200);
    let next: BTreeSet<String> = asked_for(&mut table).into_iter().collect();
    assert!(next.iter().all(|it| second.contains(it) || first.contains(it)), "{next:?}");
    assert_eq!(next.len(), 64);
}

#[test]
fn actions_of_a_node_that_has_no_room_leave_room_for_those_of_others() {
    let mut table = laid_for_lives_with(100);
    table.keeps_actions = true;
    for at_node in ["n1", "n2"] {
        for it in 0..80 {
            let (id, request) = (format!("{{a}}{at_node}{it}"), format!("r{at_node}{it}"));
            let items = [format!("bill a@{}", at(&table, 0))];
            opened(table.call(300, with_life(&id, &request, &items)));
        }
        if at_node == "n1" {
            register_for_lives(&mut table, "n2", 101);
            table.pass(1_500);
        }
    }
    let mut at_second = 0;
    for _ in 0..100 {
        for (owner, it) in std::mem::take(&mut table.node_calls) {
            let ToNode::Act { head, key, .. } = it else { continue };
            let node = table.live[&key].0.clone();
            at_second += usize::from(node == "n2");
            let end = if node == "n1" { failed("BUSY") } else { done("") };
            table.node_says(owner, &node, head.call, NodeAnswer::Acted { end });
        }
        table.pass(100);
    }
    assert!(at_second == 80, "{at_second}");
    assert_eq!(table.count(Transition::EventFired), at_second);
    assert_eq!(table.count(Transition::ActionFailed), 0);
}

#[test]
fn an_action_that_may_take_for_ever_by_what_its_node_says_stops_no_manager() {
    let mut table = Table::laid();
    table.start_all();
    let handler = Handler::Action { events: BTreeSet::new(), retries: 1, timeout_ms: u64::MAX };
    let life_cycles = [("bill".to_owned(), handler)].into();
    let facts = ClassFacts {
        life: Box::new(LifeFacts { life_cycles, ..LifeFacts::default() }),
        ..ClassFacts::default()
    };
    table.register_with_facts("n1", 100, table.places, facts);
    table.pass(1_500);
    let items = [format!("bill a@{}", at(&table, 0))];
    opened(table.call(300, with_life("a", "r1", &items)));
    table.pass(1_000);
    assert_eq!(history(&managed(&mut table, "a")), ["bill"]);
}

#[test]
fn many_life_cycles_that_end_at_once_are_written_in_entries_of_bounded_size() {
    let mut table = laid_for_lives_with(400);
    let long = "x".repeat(60);
    let when = at(&table, 3_000);
    let item = |it: usize| format!("mark {long}{it:02}@{when}");
    let items: Vec<String> = (0..40).map(item).collect();
    for it in 0..250 {
        opened(table.call(300, with_life(&format!("{{a}}{it}"), &format!("r{it}"), &items)));
    }
    table.pass(1_000);
    table.batch_max = 0;
    table.pass(6_000);
    assert_eq!(table.count(Transition::EventFired), 250 * 40);
    assert!(table.batch_max < 1024 * 1024, "{}", table.batch_max);
}

#[test]
fn an_open_of_an_id_for_which_no_task_can_be_made_takes_no_item_that_acts() {
    let mut table = laid_for_lives();
    for id in ["x".repeat(240), "a}b".to_owned()] {
        let items = [format!("bill a@{}", at(&table, 0))];
        let refusal = table.call(300, with_life(&id, "r1", &items)).unwrap_err();
        assert!(refusal.message.contains("the id of the session"), "{refusal:?}");
        let marks = [format!("note a@{}", at(&table, 0))];
        opened(table.call(300, with_life(&id, "r2", &marks)));
        let added = asks(&mut table, &id, adding(&id, &items[0])).unwrap_err();
        assert!(added.message.contains("the id of the session"), "{added:?}");
    }
}

#[test]
fn a_task_that_fires_what_has_not_failed_and_is_not_due_yet_runs_nothing() {
    let mut table = laid_for_lives();
    let word = format!("a@{}", at(&table, 60_000));
    let text = format!("bill {word}");
    let (_, session) = opened(table.call(300, with_life("a", "r1", std::slice::from_ref(&text))));
    table.keeps_actions = true;
    let op = FireOp { key: key("a"), origin: session.record.life, event: event(&text) };
    asks(&mut table, "a", Op::Lives(LivesOp::Fire(Box::new(op)))).expect("nothing is left to do");
    assert_eq!(actions(&mut table), []);
    let owner = table.owner("a");
    assert_eq!(got(table.call(owner, get("a"))).record.state, SessionState::Ready);
}

#[test]
fn a_life_goes_by_the_text_of_its_class_that_it_began_with() {
    let mut table = laid_for_lives();
    let items: Vec<String> =
        ["note a", "bill b"].iter().map(|it| format!("{it}@{}", at(&table, 6_000))).collect();
    opened(table.call(300, with_life("a", "r1", &items)));
    table.keeps_actions = true;
    // Another version of the class: what was marked has a program, and what had one is marked.
    register_with_cycles(&mut table, ("n1", 100), [("note", action(2)), ("bill", Handler::Mark)]);
    table.pass(7_000);
    let (owner, call, action) = next_action(&mut table, 2_000);
    assert_eq!(action.life_cycle, "bill", "its own version has a program for that alone");
    ends(&mut table, (owner, call), done(""));
    assert_eq!(history(&managed(&mut table, "a")), ["note", "bill"]);
    // A session that is opened now goes by the new text.
    let items: Vec<String> =
        ["note a", "bill b"].iter().map(|it| format!("{it}@{}", at(&table, 0))).collect();
    opened(table.call(300, with_life("b", "r2", &items)));
    let (.., action) = next_action(&mut table, 2_000);
    assert_eq!(action.life_cycle, "note");
    assert_eq!(history(&managed(&mut table, "b")), ["bill"]);
}

#[test]
fn a_mark_fires_at_its_time_while_an_action_of_its_session_is_under_way() {
    let mut table = laid_for_lives();
    table.keeps_actions = true;
    let items = [format!("bill a@{}", at(&table, 0)), format!("note b@{}", at(&table, 2_000))];
    opened(table.call(300, with_life("a", "r1", &items)));
    let (owner, call, _) = next_action(&mut table, 1_000);
    let running = shown(&mut table, "a").running.expect("it is told");
    assert_eq!(running.life_cycle, "bill");
    table.pass(2_000);
    assert_eq!(history(&managed(&mut table, "a")), ["note"], "its action still runs");
    ends(&mut table, (owner, call), done(""));
    assert_eq!(history(&managed(&mut table, "a")), ["note", "bill"]);
    assert_eq!(shown(&mut table, "a").running, None);
    assert_eq!(table.count(Transition::ActionBegan), 1);
}

#[test]
fn life_cycles_of_a_session_that_ends_before_anybody_looks_are_history_all_the_same() {
    let mut table = laid_for_lives();
    let open_and_close = |table: &mut Table, event: &str| {
        let items = [format!("note {event}@{}", at(table, 3_600_000))];
        let opens = table.ask(300, with_life("a", &format!("o{event}"), &items));
        let closes = table.ask(300, close("a", &format!("c{event}")));
        opened(table.wait_for(opens, 2_000));
        closed(table.wait_for(closes, 2_000));
    };
    open_and_close(&mut table, "first");
    table.pass(300);
    open_and_close(&mut table, "next");
    table.pass(300);
    let managed = managed(&mut table, "a");
    let events = managed.history().iter().map(|it| it.item.last().event());
    assert_eq!(events.collect::<Vec<_>>(), ["first", "next"]);
    assert!(managed.has_ended());
}

#[test]
fn a_life_keeps_its_actions_and_its_restarts_when_the_text_of_its_class_says_neither_any_more() {
    let mut table = laid_for_restarts(0);
    let (_, first) = opened(table.call(300, open("a", "r1")));
    table.register_with_facts("n1", 100, table.places, ClassFacts::default());
    table.pass(300);
    let unknown = asks(&mut table, "a", adding("a", "ship then?x"));
    assert!(unknown.is_err(), "its own text has no such life cycle");
    let bill = format!("bill a@{}", at(&table, 0));
    life_of(asks(&mut table, "a", adding("a", &bill)));
    let (owner, call, action) = next_action(&mut table, 2_000);
    assert_eq!(action.timeout_ms, 5_000);
    ends(&mut table, (owner, call), failed("EXIT-3"));
    let parked = shown(&mut table, "a").retrying;
    assert_eq!(parked.iter().map(|it| it.state.as_str()).collect::<Vec<_>>(), ["PARKED"]);
    ends_badly(&mut table, owner);
    table.pass(1_500);
    let next = got(table.call(owner, get("a"))).record;
    assert_eq!(next.state, SessionState::Ready, "{next:?}");
    assert!(next.life > first.record.life, "it was started again");
}

#[test]
fn a_new_owner_ends_the_life_cycles_of_a_session_that_ended_before_anybody_looked() {
    let mut table = laid_for_lives();
    let owner = table.owner("a");
    let items = [format!("note far@{}", at(&table, 3_600_000))];
    let opens = table.ask(owner, with_life("a", "o", &items));
    let closes = table.ask(owner, close("a", "c"));
    opened(table.wait_for(opens, 2_000));
    // The document of its life cycles reaches no copy, and the end of the session does.
    let is_of_life =
        |it: &rota_protocol::Write| it.key.name.class() == rota_model::items::LIFE_CLASS;
    table.lose = Box::new(move |envelope: &Envelope| {
        let Message::Prepare { entries, .. } = &envelope.message else { return false };
        entries.iter().any(|it| it.writes.iter().any(is_of_life))
    });
    closed(table.wait_for(closes, 2_000));
    // The copies hear that it is committed.
    table.pass(300);
    table.kill(owner);
    table.lose = Box::new(|_| false);
    table.pass(5_000);
    assert_ne!(table.owner("a"), owner);
    let managed = managed(&mut table, "a");
    let events = managed.history().iter().map(|it| it.item.last().event());
    assert_eq!(events.collect::<Vec<_>>(), ["far"]);
}
