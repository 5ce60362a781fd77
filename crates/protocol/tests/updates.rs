//! Changes of sessions that live: what they come to, and that they may be repeated.

use crate::table::lives::*;
use crate::table::*;
use rota_lifecycle::Edit;
use rota_messages::lives::{Event, UpdateOp};
use rota_model::{Outcome, RefusalKind, Stamp};
use rota_protocol::{LivesOp, Op};
use std::collections::BTreeMap;
use std::sync::Arc;

fn asked(op: UpdateOp) -> Op {
    Op::Lives(LivesOp::Update(Box::new(op)))
}

fn setting(id: &str, name: &str, value: &str) -> UpdateOp {
    let attributes = BTreeMap::from([(name.to_owned(), Some(value.to_owned()))]);
    UpdateOp { attributes, ..update(id) }
}

/// An open with one attribute.
fn with_attribute(id: &str, request: &str, (name, value): (&str, &str)) -> Op {
    let Op::Open(mut op) = open(id, request) else { unreachable!("open gives an open") };
    op.spec.attributes = Arc::new([(name.to_owned(), value.to_owned())].into());
    Op::Open(op)
}

#[test]
fn an_open_is_known_again_by_what_it_asked_whatever_its_session_was_changed_to() {
    let mut table = laid_for_lives();
    let red = || with_attribute("a", "r1", ("color", "red"));
    let (_, first) = opened(table.call(300, red()));
    opened(table.call(300, open("b", "r2")));
    for id in ["a", "b"] {
        life_of(asks(&mut table, id, asked(setting(id, "color", "blue"))));
        life_of(asks(&mut table, id, asked(setting(id, "color", "green"))));
    }
    let (outcome, again) = opened(table.call(300, red()));
    assert_eq!((outcome, &again.record.spec), (Outcome::Created, &first.record.spec));
    let (outcome, again) = opened(table.call(300, open("b", "r2")));
    assert_eq!((outcome, again.record.spec.attributes.len()), (Outcome::Created, 0));
    let green = with_attribute("a", "r1", ("color", "green"));
    assert_eq!(refused(table.call(300, green)), RefusalKind::RequestIdReused);
    closed(table.call(300, close("a", "r3")));
    let ended = table.owner("a");
    let call = table.ask(ended, red());
    let (outcome, _) = opened(table.wait_for(call, 5_000));
    assert_eq!(outcome, Outcome::Created);
    let green = with_attribute("a", "r1", ("color", "green"));
    assert_eq!(refused(table.call(300, green)), RefusalKind::RequestIdReused);
}

fn version(table: &mut Table, id: &str) -> Stamp {
    let owner = table.owner(id);
    table.pass(100);
    got(table.call(owner, get(id))).record.version
}

#[test]
fn a_change_that_came_about_already_is_no_other_one_when_it_is_repeated_with_its_version() {
    let mut table = laid_for_lives();
    let old = format!("note old@{}", at(&table, 60_000));
    opened(table.call(300, with_life("a", "r1", std::slice::from_ref(&old))));
    let before = version(&mut table, "a");
    let new = format!("note new@{}", at(&table, 60_000));
    let edit = Edit { add: vec![item(&new)], remove: vec![item(&old)], ..Edit::default() };
    let change =
        UpdateOp { if_version: Some(before), edit: Arc::new(edit), ..setting("a", "color", "red") };
    let first = life_of(asks(&mut table, "a", asked(change.clone())));
    let again = life_of(asks(&mut table, "a", asked(change.clone())));
    let version_of = |it: &rota_messages::lives::Life| it.session.as_ref().unwrap().record.version;
    assert_eq!(version_of(&again), version_of(&first), "nothing was written");
    assert_eq!(again.managed, first.managed);
    let other = UpdateOp { if_version: Some(before), ..setting("a", "color", "blue") };
    assert_eq!(refused(asks(&mut table, "a", asked(other))), RefusalKind::VersionMismatch);
    life_of(asks(&mut table, "a", asked(setting("a", "color", "blue"))));
    let later = asks(&mut table, "a", asked(change));
    assert_eq!(refused(later), RefusalKind::VersionMismatch, "something else came after it");
}

#[test]
fn an_item_that_has_fired_is_added_again_without_a_trace() {
    let mut table = laid_for_lives();
    let item = format!("note a@{}", at(&table, 500));
    opened(table.call(300, open("a", "r1")));
    life_of(asks(&mut table, "a", adding("a", &item)));
    table.pass(1_500);
    assert_eq!(history(&managed(&mut table, "a")), ["note"]);
    life_of(asks(&mut table, "a", adding("a", &item)));
    table.pass(2_000);
    let managed = managed(&mut table, "a");
    assert_eq!((managed.items().count(), managed.history().len()), (0, 1), "{managed:?}");
    let other = format!("note a@{}", at(&table, 60_000));
    let refusal = asks(&mut table, "a", adding("a", &other)).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::InvalidArgument, "its name is used");
}

fn settling(id: &str, skip: &[&Event], retry: &[&Event]) -> Op {
    let all = |it: &[&Event]| it.iter().map(|it| (*it).clone()).collect();
    asked(UpdateOp { skip: all(skip), retry: all(retry), ..update(id) })
}

#[test]
fn only_what_failed_is_skipped_or_retried_and_both_may_be_said_again() {
    let mut table = laid_for_lives();
    let (now, later) = (at(&table, 0), at(&table, 60_000));
    let items = [format!("bill a@{now}"), format!("ship b@{now}"), format!("ship c@{later}")];
    opened(table.call(300, with_life("a", "r1", &items)));
    table.manual_nodes = true;
    for _ in 0..2 {
        let (owner, call, _) = next_action(&mut table, 2_000);
        ends(&mut table, (owner, call), failed("EXIT-3"));
    }
    let owner = table.owner("a");
    assert_eq!(got(table.call(owner, get("a"))).failed_actions, 2, "it is shown with the session");
    let event = |life_cycle: &str, word: String| Event { life_cycle: life_cycle.to_owned(), word };
    let [bill, ship, waits] = [
        event("bill", format!("a@{now}")),
        event("ship", format!("b@{now}")),
        event("ship", format!("c@{later}")),
    ];
    let missing = event("ship", "b".to_owned());
    for op in [settling("a", &[&waits], &[]), settling("a", &[], &[&waits])] {
        let told = asks(&mut table, "a", op).unwrap_err();
        let (says, failed) = ("has not failed", format!("ship b@{now}"));
        assert!(told.message.contains(says) && told.message.contains(&failed), "{told:?}");
    }
    let told = asks(&mut table, "a", settling("a", &[&missing], &[])).unwrap_err();
    assert!(told.message.contains(&format!("ship b@{now}")), "{told:?}");
    for _ in 0..2 {
        let after = life_of(asks(&mut table, "a", settling("a", &[&bill], &[&ship])));
        let skipped = after.managed.history().iter().filter(|it| it.fired.unwrap().skipped);
        assert_eq!(skipped.count(), 1);
    }
    let (owner, call, action) = next_action(&mut table, 2_000);
    assert_eq!((action.life_cycle.as_str(), action.failures), ("ship", 0));
    ends(&mut table, (owner, call), done(""));
    life_of(asks(&mut table, "a", settling("a", &[&bill], &[&ship])));
    assert_eq!(actions(&mut table), [], "nothing runs again");
    let told = asks(&mut table, "a", settling("a", &[&ship], &[])).unwrap_err();
    assert!(told.message.contains("has fired"), "{told:?}");
}
