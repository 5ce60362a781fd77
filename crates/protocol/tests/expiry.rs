//! Sessions that end by themselves: nobody uses them, they lived long enough, or they end badly and are started again.

use crate::table::*;
use rota_model::node_msg::{ReportEvent, ReportItem};
use rota_model::{
    ClassFacts, Exit, KeepAliveOp, LifeFacts, LifeOptions, NodeId, Outcome, Reason, RefusalKind,
    Restarts, SessionRecord, SessionState,
};
use rota_protocol::{Op, Transition};
use std::sync::Arc;

/// Three managers, and a node with class `builtin` that says that of lives.
fn laid(life: LifeFacts) -> Table {
    let mut table = Table::laid();
    table.start_all();
    let facts = ClassFacts { life: Box::new(life), ..ClassFacts::default() };
    table.register_with_facts("n1", 100, table.places, facts);
    table.pass(1_500);
    table
}

fn idle(ms: u64) -> LifeFacts {
    LifeFacts { idle_ms: Some(ms), ..LifeFacts::default() }
}

fn restarts(times: u32) -> LifeFacts {
    let rule = Restarts { times, delay_ms: 1_000, delay_max_ms: 3_000, steady_ms: 60_000 };
    LifeFacts { restarts: Some(rule), ..LifeFacts::default() }
}

fn asking(id: &str, request: &str, life: LifeOptions) -> Op {
    let mut asked = open(id, request);
    if let Op::Open(open) = &mut asked {
        open.spec.life = Some(Arc::new(life));
    }
    asked
}

fn keep_alive(id: &str) -> Op {
    Op::KeepAlive(KeepAliveOp { key: key(id), life: None })
}

fn now(table: &mut Table, id: &str) -> Arc<SessionRecord> {
    let owner = table.owner(id);
    got(table.call(owner, get(id))).record
}

/// Waits for a session to be so. Gives how long it took.
fn becomes(table: &mut Table, id: &str, what: (SessionState, Option<Reason>), within: u64) -> u64 {
    let from_ms = table.now_ms;
    loop {
        let record = now(table, id);
        if (record.state, record.reason) == what {
            return table.now_ms - from_ms;
        }
        assert!(table.now_ms < from_ms + within, "{what:?}: {record:?}");
        table.pass(20);
    }
}

/// The program of a session ends so, and its node reports it.
fn ends(table: &mut Table, id: &str, reason: Reason, exit: Exit) {
    let record = now(table, id);
    let at = record.placement.clone().expect("it runs");
    table.live.remove(&record.key);
    let event = ReportEvent::Ended { reason, exit: Some(exit), detail: "it said no".to_owned() };
    let item = ReportItem {
        node: NodeId::parse("n1").expect("a name"),
        boot: at.boot,
        key: record.key.clone(),
        token: at.token,
        event,
    };
    let call = table.ask(300, Op::Report(item));
    table.wait_for(call, 5_000).expect("it is taken");
}

const IDLE: (SessionState, Option<Reason>) = (SessionState::Closed, Some(Reason::IdleTimeout));
const READY: (SessionState, Option<Reason>) = (SessionState::Ready, None);
const RESTARTING: (SessionState, Option<Reason>) = (SessionState::Failed, Some(Reason::Restarting));

#[test]
fn a_session_that_nobody_uses_is_closed_once_and_one_that_is_used_lives_on() {
    let mut table = laid(idle(2_000));
    opened(table.call(300, open("a", "r1")));
    opened(table.call(300, open("b", "r2")));
    for _ in 0..5 {
        table.pass(1_000);
        table.call(300, keep_alive("b")).expect("it lives");
    }
    let a = now(&mut table, "a");
    assert_eq!((a.state, a.reason), IDLE);
    assert_eq!(a.detail, "nobody used it for 2 s");
    assert_eq!(now(&mut table, "b").state, SessionState::Ready);
    let took_ms = becomes(&mut table, "b", IDLE, 5_000);
    assert!((1_900..3_000).contains(&took_ms), "{took_ms}");
    assert_eq!(table.count(Transition::SessionExpired), 2);
}

#[test]
fn an_open_that_finds_a_session_uses_it() {
    let mut table = laid(idle(2_000));
    opened(table.call(300, open("a", "r1")));
    for request in ["r2", "r3", "r4"] {
        table.pass(1_500);
        let (outcome, _) = opened(table.call(300, open("a", request)));
        assert_eq!(outcome, Outcome::Existed, "{request}");
    }
    becomes(&mut table, "a", IDLE, 3_000);
}

#[test]
fn a_new_owner_counts_idle_from_its_own_serving() {
    let mut table = laid(idle(4_000));
    opened(table.call(300, open("a", "r1")));
    table.pass(3_000);
    let owner = table.owner("a");
    let killed_ms = table.now_ms;
    table.kill(owner);
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    let call = table.ask(entry, get("a"));
    assert_eq!(got(table.wait_for(call, 5_000)).record.state, SessionState::Ready);
    becomes(&mut table, "a", IDLE, 12_000);
    assert!(table.now_ms >= killed_ms + 4_000, "never too early: {}", table.now_ms - killed_ms);
}

#[test]
fn a_take_over_writes_nothing_of_life_cycles_where_there_are_none() {
    let mut table = laid(idle(60_000));
    opened(table.call(300, open("a", "r1")));
    table.kill(table.owner("a"));
    table.pass(3_000);
    let owner = table.owner("a");
    assert_eq!(now(&mut table, "a").state, SessionState::Ready);
    let docs = &table.disks[&owner].docs;
    assert!(docs.keys().all(|it| it.name.class() != "life"), "{docs:?}");
}

#[test]
fn a_session_lives_no_longer_than_its_class_or_its_open_says_also_under_another_owner() {
    let mut table = laid(LifeFacts { max_life_ms: Some(60_000), ..LifeFacts::default() });
    let asked = LifeOptions { max_life_ms: Some(6_000), ..LifeOptions::default() };
    opened(table.call(300, asking("a", "r1", asked)));
    opened(table.call(300, open("b", "r2")));
    let begun_ms = table.now_ms;
    table.kill(table.owner("a"));
    table.pass(2_000);
    let entry = table.owner("a");
    let call = table.ask(entry, keep_alive("a"));
    table.wait_for(call, 5_000).expect("a use changes nothing");
    becomes(&mut table, "a", (SessionState::Closed, Some(Reason::MaxLifetime)), 10_000);
    let lived_ms = table.now_ms - begun_ms;
    assert!((5_900..7_000).contains(&lived_ms), "{lived_ms}");
    assert_eq!(now(&mut table, "b").state, SessionState::Ready, "its class lets it live longer");
}

#[test]
fn an_open_that_asks_for_more_than_its_class_allows_is_refused_with_all_mistakes() {
    let mut table = laid(idle(2_000));
    let asked = LifeOptions { idle_ms: Some(2_001), restarts: Some(1), ..LifeOptions::default() };
    let refusal = table.call(300, asking("a", "r1", asked)).unwrap_err();
    let fields: Vec<&str> = refusal.fields.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["life.idle_ms", "life.restarts"]);
    assert_eq!(refusal.kind, RefusalKind::InvalidArgument);
}

#[test]
fn a_bad_end_is_followed_by_another_life_after_a_pause_that_grows_until_the_limit() {
    let mut table = laid(restarts(2));
    let (_, first) = opened(table.call(300, open("a", "r1")));
    let mut life = first.record.life;
    for (restart, pause_ms) in [(1, 1_000), (2, 2_000)] {
        ends(&mut table, "a", Reason::Exited, Exit::Code(3));
        let ended = now(&mut table, "a");
        assert_eq!((ended.state, ended.reason), RESTARTING);
        let took_ms = becomes(&mut table, "a", READY, 5_000);
        assert!((pause_ms - 100..pause_ms + 1_000).contains(&took_ms), "{restart}: {took_ms}");
        let record = now(&mut table, "a");
        assert!(record.life > life);
        assert_eq!(record.spec, first.record.spec);
        let lifetime = record.lifetime.clone().expect("it is restarted");
        assert_eq!((lifetime.restarts, lifetime.origin), (restart, Some(first.record.life)));
        life = record.life;
    }
    ends(&mut table, "a", Reason::Unhealthy, Exit::Signal(9));
    let ended = now(&mut table, "a");
    assert_eq!((ended.state, ended.reason), (SessionState::Failed, Some(Reason::Unhealthy)));
    assert_eq!(ended.detail, "it said no; it was restarted 2 times in a row");
    table.pass(10_000);
    assert_eq!(now(&mut table, "a").life, life, "that was the last one");
    assert_eq!(table.count(Transition::SessionRestarted), 2);
}

#[test]
fn a_good_end_is_followed_by_nothing() {
    let mut table = laid(restarts(2));
    opened(table.call(300, open("a", "r1")));
    ends(&mut table, "a", Reason::Exited, Exit::Code(0));
    table.pass(5_000);
    assert_eq!(now(&mut table, "a").state, SessionState::Closed);
}

#[test]
fn a_restart_is_carried_on_by_the_next_owner() {
    let mut table = laid(restarts(2));
    let (_, first) = opened(table.call(300, open("a", "r1")));
    ends(&mut table, "a", Reason::Exited, Exit::Code(3));
    table.kill(table.owner("a"));
    table.pass(3_000);
    becomes(&mut table, "a", READY, 8_000);
    assert!(now(&mut table, "a").life > first.record.life);
}

#[test]
fn a_close_of_a_session_that_waits_for_its_restart_wins() {
    let mut table = laid(restarts(2));
    opened(table.call(300, open("a", "r1")));
    ends(&mut table, "a", Reason::Exited, Exit::Code(3));
    let ended = closed(table.call(300, close("a", "r2")));
    assert_eq!(
        (ended.record.state, ended.record.reason),
        (SessionState::Failed, Some(Reason::Exited))
    );
    table.pass(5_000);
    assert_eq!(now(&mut table, "a").state, SessionState::Failed);
}

#[test]
fn a_close_wins_over_the_bad_end_of_its_program_however_late_that_is_told() {
    let mut table = laid(restarts(2));
    opened(table.call(300, open("a", "r1")));
    table.silent.insert("n1".to_owned());
    let call = table.ask_within(300, close("a", "r2"), 20_000);
    table.pass(500);
    assert_eq!(now(&mut table, "a").state, SessionState::Closing);
    ends(&mut table, "a", Reason::Exited, Exit::Code(3));
    table.silent.clear();
    let ended = closed(table.wait_for(call, 20_000));
    assert_eq!(ended.record.state, SessionState::Closed);
    table.pass(5_000);
    assert_eq!(now(&mut table, "a").state, SessionState::Closed);
    assert_eq!(table.count(Transition::SessionRestarted), 0);
}

#[test]
fn an_open_during_the_pause_goes_on_at_once() {
    let mut table = laid(restarts(5));
    opened(table.call(300, open("a", "r1")));
    ends(&mut table, "a", Reason::Exited, Exit::Code(3));
    let (_, next) = opened(table.call(300, open("a", "r2")));
    assert_eq!(next.record.state, SessionState::Ready);
    let owner = table.owner("a");
    table.pass(100);
    let lifetime = got(table.call(owner, get("a"))).record.lifetime.clone();
    assert_eq!(lifetime.map(|it| it.restarts), Some(1));
}

#[test]
fn a_clock_that_steps_ends_no_session_too_early() {
    let mut table = laid(LifeFacts { max_life_ms: Some(8_000), ..LifeFacts::default() });
    opened(table.call(300, open("a", "r1")));
    table.wall_step_ms = 5_000;
    table.pass(5_000);
    assert_eq!(now(&mut table, "a").state, SessionState::Ready);
    becomes(&mut table, "a", (SessionState::Closed, Some(Reason::MaxLifetime)), 5_000);
}

#[test]
fn an_open_during_the_pause_that_asks_for_another_life_begins_anew_with_all_that_it_asks_for() {
    let mut table = laid(LifeFacts { idle_max_ms: Some(60_000), ..restarts(5) });
    let life = |ms: u64| LifeOptions { idle_ms: Some(ms), ..LifeOptions::default() };
    let (_, first) = opened(table.call(300, asking("a", "r1", life(20_000))));
    ends(&mut table, "a", Reason::Exited, Exit::Code(3));
    opened(table.call(300, open("a", "r2")));
    let kept = now(&mut table, "a").lifetime.clone().expect("it goes on");
    assert_eq!((kept.idle_ms, kept.origin), (Some(20_000), Some(first.record.life)));
    ends(&mut table, "a", Reason::Exited, Exit::Code(3));
    opened(table.call(300, asking("a", "r3", life(30_000))));
    let anew = now(&mut table, "a").lifetime.clone().expect("it is closed when it is idle");
    assert_eq!((anew.idle_ms, anew.origin, anew.restarts), (Some(30_000), None, 0));
}

#[test]
fn a_session_that_is_not_restarted_after_all_ends_as_it_did() {
    for (reason, exit) in [(Reason::Unhealthy, Exit::Signal(9)), (Reason::Exited, Exit::Code(3))] {
        let mut table = laid(restarts(2));
        opened(table.call(300, open("a", "r1")));
        ends(&mut table, "a", reason, exit);
        let ended = closed(table.call(300, close("a", "r2")));
        assert_eq!((ended.record.state, ended.record.reason), (SessionState::Failed, Some(reason)));
    }
}

#[test]
fn what_holds_for_a_life_is_what_the_node_has_of_its_class_on_which_it_runs() {
    let mut table = Table::laid();
    table.start_all();
    table.register_with_facts(
        "n1",
        100,
        1,
        ClassFacts { life: Box::new(idle(50_000)), ..ClassFacts::default() },
    );
    table.pass(1_500);
    opened(table.call(300, open("a", "r1")));
    // Its text of the class says nothing of lives.
    table.register_with("n2", 101, 1);
    table.pass(1_500);
    opened(table.call(300, open("b", "r2")));
    for id in ["a", "b"] {
        let record = now(&mut table, id);
        let node = record.placement.as_ref().expect("it runs").node.to_string();
        let idle_ms = record.lifetime.as_ref().and_then(|it| it.idle_ms);
        let holds = (node == "n1").then_some(50_000);
        assert_eq!(idle_ms, holds, "{id} at {node}");
    }
}
