//! Life cycles of sessions: events fire at their time, actions run on the node one at a time, and all of it ends with
//! the session.

use crate::table::lives::*;
use crate::table::*;
use rota_messages::lives::{Event, UpdateOp};
use rota_model::node_msg::Action;
use rota_model::{RefusalKind, SessionState};
use rota_protocol::{LivesOp, Op, Transition};
use std::collections::BTreeMap;

#[test]
fn a_mark_is_made_at_its_time_and_once_and_what_waits_for_it_follows() {
    let mut table = laid_for_lives();
    let items = [format!("note a@{}", at(&table, 2_000)), "mark note?a".to_owned()];
    opened(table.call(300, with_life("a", "r1", &items)));
    table.pass(1_000);
    assert_eq!(managed(&mut table, "a").items().count(), 2, "it is too early");
    table.pass(1_300);
    let managed = managed(&mut table, "a");
    assert_eq!((managed.items().count(), managed.history().len()), (0, 2));
    assert!(managed.history().iter().all(|it| it.fired.is_some()));
    table.pass(5_000);
    assert_eq!(table.count(Transition::EventFired), 2);
}

#[test]
fn an_action_runs_on_the_node_and_changes_the_session_by_what_it_prints() {
    let mut table = laid_for_lives();
    table.node_calls.clear();
    let items = [format!("bill paid@{}", at(&table, 500))];
    opened(table.call(300, with_life("a", "r1", &items)));
    table.manual_nodes = true;
    let (owner, call, action) = next_action(&mut table, 2_000);
    assert_eq!((action.life_cycle.as_str(), action.event(), action.failures), ("bill", "paid", 0));
    let document: serde_json::Value = serde_json::from_str(&action.document).unwrap();
    assert_eq!(
        (&document["id"], &document["managedState"][0]),
        (&"a".into(), &items[0].as_str().into())
    );
    let later = at(&table, 60_000);
    let patch = format!(
        r#"{{"attributes": {{"paid": "yes"}}, "managedState": {{"note b@{later}": true}}}}"#
    );
    ends(&mut table, (owner, call), done(&patch));
    let life = shown(&mut table, "a");
    let record = life.session.expect("it lives").record;
    assert_eq!(record.spec.attributes.get("paid").map(String::as_str), Some("yes"));
    assert_eq!(
        life.managed.items().map(|(it, _)| it.to_string()).collect::<Vec<_>>(),
        [format!("note b@{later}")]
    );
    assert_eq!(history(&life.managed), ["bill"]);
    table.pass(5_000);
    assert_eq!(actions(&mut table), [], "it ran once");
}

#[test]
fn one_action_of_a_session_is_under_way_at_a_time() {
    let mut table = laid_for_lives();
    let now = at(&table, 0);
    let items = [format!("bill a@{now}"), format!("ship a@{now}")];
    opened(table.call(300, with_life("a", "r1", &items)));
    opened(table.call(300, with_life("b", "r2", &items)));
    table.manual_nodes = true;
    table.node_calls.clear();
    table.pass(300);
    let asked = actions(&mut table);
    let _ = asked;
    // Nodes answered nothing: they are asked again for the same action.
    table.pass(3_000);
    let again = actions(&mut table);
    assert!(!again.is_empty());
    assert!(again.iter().all(|(.., it)| it.life_cycle == "bill"), "{again:?}");
    let (owner, call, _) =
        again.iter().rfind(|(.., it)| it.document.contains(r#""id":"a""#)).cloned().unwrap();
    ends(&mut table, (owner, call), done(""));
    let next = next_action(&mut table, 5_000);
    assert!(next.2.life_cycle == "ship" || next.2.document.contains(r#""id":"b""#), "{next:?}");
}

#[test]
fn actions_that_wait_for_room_begin_also_where_sessions_end_and_actions_do_not() {
    let mut table = laid_for_lives_with(200);
    table.manual_nodes = false;
    let now = at(&table, 1_500);
    let ids: Vec<String> = (0..150).map(|it| format!("{{a}}{it}")).collect();
    for id in &ids {
        opened(table.call(300, with_life(id, &format!("r{id}"), &[format!("bill a@{now}")])));
    }
    // Nodes answer no action.
    table.keeps_actions = true;
    table.node_calls.clear();
    table.pass(2_000);
    let asked = |table: &mut Table| {
        let of = |(.., it): (u32, u64, Action)| it.document;
        actions(table).into_iter().map(of).collect::<std::collections::BTreeSet<String>>()
    };
    let first = asked(&mut table);
    assert_eq!(first.len(), 64, "so many of a partition");
    for id in ids.iter().filter(|id| first.iter().any(|it| it.contains(&format!("\"{id}\"")))) {
        closed(table.call(300, close(id, &format!("c{id}"))));
    }
    table.node_calls.clear();
    table.pass(1_000);
    assert_eq!(asked(&mut table).len(), 64, "the next ones");
}

#[test]
fn a_failed_action_is_tried_again_by_a_task_until_it_is_parked_and_an_operator_may_skip_it() {
    let mut table = laid_for_lives();
    let word = format!("a@{}", at(&table, 0));
    opened(table.call(300, with_life("a", "r1", &[format!("bill {word}")])));
    table.manual_nodes = true;
    for failures in 0..3 {
        let (owner, call, action) = next_action(&mut table, 60_000);
        assert_eq!(action.failures, failures);
        ends(&mut table, (owner, call), failed("EXIT-3"));
        table.pass(300);
        actions(&mut table);
    }
    let life = shown(&mut table, "a");
    let (_, held) = life.managed.items().next().expect("it is held");
    let failure = held.failed.as_ref().expect("it failed");
    assert_eq!((failure.attempts, failure.code.as_str()), (3, "EXIT-3"));
    assert_eq!(life.retrying.iter().map(|it| it.state.as_str()).collect::<Vec<_>>(), ["PARKED"]);
    let event = Event { life_cycle: "bill".to_owned(), word };
    let skip = UpdateOp { skip: vec![event], ..update("a") };
    let after = life_of(asks(&mut table, "a", Op::Lives(LivesOp::Update(Box::new(skip)))));
    assert!(after.managed.history().iter().any(|it| it.fired.is_some_and(|it| it.skipped)));
    assert_eq!(shown(&mut table, "a").retrying, []);
}

#[test]
fn an_operator_may_have_a_parked_action_tried_at_once() {
    let mut table = laid_for_lives();
    let word = format!("a@{}", at(&table, 0));
    opened(table.call(300, with_life("a", "r1", &[format!("bill {word}")])));
    table.manual_nodes = true;
    let (owner, call, _) = next_action(&mut table, 5_000);
    ends(&mut table, (owner, call), failed("TIMEOUT"));
    let event = Event { life_cycle: "bill".to_owned(), word };
    let retry = UpdateOp { retry: vec![event], ..update("a") };
    life_of(asks(&mut table, "a", Op::Lives(LivesOp::Update(Box::new(retry)))));
    let (owner, call, action) = next_action(&mut table, 1_000);
    assert_eq!(action.failures, 0);
    ends(&mut table, (owner, call), done(""));
    assert_eq!(history(&managed(&mut table, "a")), ["bill"]);
}

#[test]
fn what_is_removed_does_not_fire_and_what_is_added_does() {
    let mut table = laid_for_lives();
    let first = format!("note a@{}", at(&table, 1_000));
    opened(table.call(300, with_life("a", "r1", std::slice::from_ref(&first))));
    life_of(asks(&mut table, "a", removing("a", &first)));
    let second = format!("note b@{}", at(&table, 1_000));
    life_of(asks(&mut table, "a", adding("a", &second)));
    life_of(asks(&mut table, "a", adding("a", &second)));
    table.pass(2_500);
    let managed = managed(&mut table, "a");
    assert_eq!(
        managed.history().iter().map(|it| it.item.to_string()).collect::<Vec<_>>(),
        [second]
    );
}

#[test]
fn life_cycles_end_with_the_session_and_their_history_outlives_it() {
    let mut table = laid_for_lives();
    let items = [format!("note a@{}", at(&table, 500)), format!("mark b@{}", at(&table, 3_000))];
    opened(table.call(300, with_life("a", "r1", &items)));
    table.pass(1_000);
    closed(table.call(300, close("a", "r2")));
    table.pass(3_000);
    let over = managed(&mut table, "a");
    assert!(over.has_ended());
    assert_eq!((over.items().count(), history(&over)), (0, vec!["note".to_owned()]));
    assert_eq!(table.count(Transition::EventFired), 1, "nothing fires after the end");
    table.pass(700_000);
    let owner = table.owner("a");
    assert_eq!(refused(table.call(owner, get("a"))), RefusalKind::NotFound, "it is forgotten");
    let later = shown(&mut table, "a");
    assert_eq!((later.session, later.managed), (None, over));
}

#[test]
fn a_new_life_by_an_open_begins_with_its_own_items() {
    let mut table = laid_for_lives();
    let first = [format!("note a@{}", at(&table, 500))];
    opened(table.call(300, with_life("a", "r1", &first)));
    table.pass(1_000);
    closed(table.call(300, close("a", "r2")));
    let second = [format!("note a@{}", at(&table, 500))];
    opened(table.call(300, with_life("a", "r3", &second)));
    table.pass(1_000);
    let managed = managed(&mut table, "a");
    assert_eq!(managed.history().len(), 2, "{managed:?}");
    assert_eq!(table.count(Transition::EventFired), 2);
}

#[test]
fn a_new_owner_fires_what_is_due_and_runs_again_what_was_under_way() {
    let mut table = laid_for_lives();
    let items = [format!("note a@{}", at(&table, 3_000)), format!("bill a@{}", at(&table, 500))];
    opened(table.call(300, with_life("a", "r1", &items)));
    table.manual_nodes = true;
    let (first, ..) = next_action(&mut table, 2_000);
    table.kill(first);
    table.manual_nodes = false;
    table.pass(6_000);
    let managed = managed(&mut table, "a");
    assert_eq!((managed.items().count(), managed.history().len()), (0, 2), "{managed:?}");
}

#[test]
fn a_life_cycle_that_nobody_handles_is_refused_at_the_open_and_at_a_change() {
    let mut table = laid_for_lives();
    let wrong = format!("tax a@{}", at(&table, 500));
    let refusal = table.call(300, with_life("a", "r1", std::slice::from_ref(&wrong))).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::InvalidArgument);
    assert!(refusal.message.contains("neither has a program nor says mark_only"), "{refusal:?}");
    opened(table.call(300, open("a", "r2")));
    let refusal = asks(&mut table, "a", adding("a", &wrong)).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::InvalidArgument);
}

#[test]
fn a_change_of_another_version_or_life_or_of_nothing_that_lives_is_refused() {
    let mut table = laid_for_lives();
    let asked = |op| Op::Lives(LivesOp::Update(Box::new(op)));
    let set = || BTreeMap::from([("map".to_owned(), Some("sea".to_owned()))]);
    assert_eq!(refused(asks(&mut table, "a", asked(update("a")))), RefusalKind::NotFound);
    let (_, session) = opened(table.call(300, open("a", "r1")));
    table.pass(100);
    let owner = table.owner("a");
    let version = got(table.call(owner, get("a"))).record.version;
    let old = UpdateOp { if_version: Some(version.minus_ms(1)), ..update("a") };
    assert_eq!(refused(asks(&mut table, "a", asked(old))), RefusalKind::VersionMismatch);
    let other = UpdateOp { life: Some(session.record.life.next()), ..update("a") };
    assert_eq!(refused(asks(&mut table, "a", asked(other))), RefusalKind::LifeMismatch);
    let mine = UpdateOp { if_version: Some(version), attributes: set(), ..update("a") };
    let after = life_of(asks(&mut table, "a", asked(mine))).session.expect("it lives").record;
    assert!(after.version > version);
    assert_eq!(after.spec.attributes.get("map").map(String::as_str), Some("sea"));
    closed(table.call(300, close("a", "r2")));
    assert_eq!(refused(asks(&mut table, "a", asked(update("a")))), RefusalKind::NotFound);
    assert_eq!(got(table.call(owner, get("a"))).record.state, SessionState::Closed);
}
