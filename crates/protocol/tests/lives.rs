//! Life cycles of sessions: events fire at their time, actions run on the node one at a time, and all of it ends with
//! the session.

mod table;

use rota_lifecycle::{Edit, LifeItem, Managed};
use rota_messages::lives::{Event, Life, UpdateOp};
use rota_model::node_msg::{Action, ActionEnd, NodeAnswer, ToNode};
use rota_model::{ClassFacts, Handler, LifeFacts, LifeOptions, RefusalKind, SessionState, Stamp};
use rota_protocol::{Answer, LivesAnswer, LivesOp, Op, OpResult, Transition};
use rota_tasks::Patience;
use std::collections::BTreeMap;
use std::sync::Arc;
use table::*;

fn action(retries: u32) -> Handler {
    Handler::Action { events: Default::default(), retries, timeout_ms: 5_000 }
}

/// Three managers, and a node with class `builtin`: `note` and `mark` are only marked, `bill` and `ship` act.
fn laid() -> Table {
    laid_with(Table::laid().places)
}

/// The same with a node of so many places.
fn laid_with(places: u32) -> Table {
    let mut table = Table::laid();
    table.places = places;
    table.tasks.patience = Patience { first_ms: 1_000, most_ms: 2_000, retries: 9 };
    table.start_all();
    let cycles = [
        ("note", Handler::Mark),
        ("mark", Handler::Mark),
        ("bill", action(2)),
        ("ship", action(2)),
    ];
    let life_cycles = cycles.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
    let life = Box::new(LifeFacts { life_cycles, ..LifeFacts::default() });
    let facts = ClassFacts { life, ..ClassFacts::default() };
    table.register_with_facts("n1", 100, table.places, facts);
    table.pass(1_500);
    table
}

/// A time of the table, as a stamp.
fn at(table: &Table, after_ms: u64) -> Stamp {
    Stamp::from_epoch_ms(table.now().wall_ms + after_ms)
}

fn with_life(id: &str, request: &str, items: &[String]) -> Op {
    let mut asked = open(id, request);
    if let Op::Open(open) = &mut asked {
        let managed_state = items.iter().cloned().collect();
        open.spec.life = Some(Arc::new(LifeOptions { managed_state, ..LifeOptions::default() }));
    }
    asked
}

fn item(text: &str) -> LifeItem {
    LifeItem::parse(text).expect("it is an item")
}

fn update(id: &str) -> UpdateOp {
    UpdateOp {
        key: key(id),
        life: None,
        if_version: None,
        attributes: BTreeMap::new(),
        edit: Arc::default(),
        skip: Vec::new(),
        retry: Vec::new(),
        ran: None,
    }
}

fn adding(id: &str, text: &str) -> Op {
    let edit = Arc::new(Edit::adding(vec![item(text)]));
    Op::Lives(LivesOp::Update(Box::new(UpdateOp { edit, ..update(id) })))
}

fn removing(id: &str, text: &str) -> Op {
    let edit = Arc::new(Edit { remove: vec![item(text)], ..Edit::default() });
    Op::Lives(LivesOp::Update(Box::new(UpdateOp { edit, ..update(id) })))
}

fn life(result: OpResult) -> Life {
    match result {
        Ok(Answer::Lives(LivesAnswer::Life(life))) => *life,
        other => panic!("not how a session lives: {other:?}"),
    }
}

fn asks(table: &mut Table, id: &str, op: Op) -> OpResult {
    let owner = table.owner(id);
    let call = table.ask(owner, op);
    table.wait_for(call, 5_000)
}

fn shown(table: &mut Table, id: &str) -> Life {
    life(asks(table, id, Op::Lives(LivesOp::Show(key(id)))))
}

fn managed(table: &mut Table, id: &str) -> Arc<Managed> {
    shown(table, id).managed
}

/// What has fired and is over, oldest first.
fn history(managed: &Managed) -> Vec<String> {
    let fired = managed.history().iter().filter(|it| it.fired.is_some());
    fired.map(|it| it.item.life_cycle().to_string()).collect()
}

/// The actions that nodes were asked for since the last look: by whom, the call, and which.
fn actions(table: &mut Table) -> Vec<(u32, u64, Action)> {
    let calls = std::mem::take(&mut table.node_calls);
    let of = |(owner, it): (u32, ToNode)| match it {
        ToNode::Act { head, action, .. } => Some((owner, head.call, *action)),
        ToNode::Create { .. }
        | ToNode::Destroy { .. }
        | ToNode::Scan { .. }
        | ToNode::Meet { .. } => None,
    };
    calls.into_iter().filter_map(of).collect()
}

/// Nodes answer nothing by themselves from now on: waits for the next action that one is asked for.
fn next_action(table: &mut Table, within_ms: u64) -> (u32, u64, Action) {
    let until_ms = table.now_ms + within_ms;
    loop {
        if let Some(found) = actions(table).pop() {
            return found;
        }
        assert!(table.now_ms < until_ms, "no node is asked for an action");
        table.pass(20);
    }
}

fn ends(table: &mut Table, (owner, call): (u32, u64), end: ActionEnd) {
    table.node_says(owner, "n1", call, NodeAnswer::Acted { end });
    table.pass(200);
}

fn done(output: &str) -> ActionEnd {
    ActionEnd::Done { output: output.to_owned() }
}

fn failed(code: &str) -> ActionEnd {
    ActionEnd::Failed { code: code.to_owned(), report: "it said no".to_owned() }
}

#[test]
fn a_mark_is_made_at_its_time_and_once_and_what_waits_for_it_follows() {
    let mut table = laid();
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
    let mut table = laid();
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
    let mut table = laid();
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
    let mut table = laid_with(200);
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
    let mut table = laid();
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

fn life_of(result: OpResult) -> Life {
    life(result)
}

#[test]
fn an_operator_may_have_a_parked_action_tried_at_once() {
    let mut table = laid();
    let word = format!("a@{}", at(&table, 0));
    opened(table.call(300, with_life("a", "r1", &[format!("bill {word}")])));
    table.manual_nodes = true;
    let (owner, call, _) = next_action(&mut table, 5_000);
    ends(&mut table, (owner, call), failed("TIMEOUT"));
    let event = Event { life_cycle: "bill".to_owned(), word };
    let retry = UpdateOp { retry: vec![event], ..update("a") };
    life(asks(&mut table, "a", Op::Lives(LivesOp::Update(Box::new(retry)))));
    let (owner, call, action) = next_action(&mut table, 1_000);
    assert_eq!(action.failures, 0);
    ends(&mut table, (owner, call), done(""));
    assert_eq!(history(&managed(&mut table, "a")), ["bill"]);
}

#[test]
fn what_is_removed_does_not_fire_and_what_is_added_does() {
    let mut table = laid();
    let first = format!("note a@{}", at(&table, 1_000));
    opened(table.call(300, with_life("a", "r1", std::slice::from_ref(&first))));
    life(asks(&mut table, "a", removing("a", &first)));
    let second = format!("note b@{}", at(&table, 1_000));
    life(asks(&mut table, "a", adding("a", &second)));
    life(asks(&mut table, "a", adding("a", &second)));
    table.pass(2_500);
    let managed = managed(&mut table, "a");
    assert_eq!(
        managed.history().iter().map(|it| it.item.to_string()).collect::<Vec<_>>(),
        [second]
    );
}

#[test]
fn life_cycles_end_with_the_session_and_their_history_outlives_it() {
    let mut table = laid();
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
    let mut table = laid();
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
    let mut table = laid();
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
    let mut table = laid();
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
    let mut table = laid();
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
    let after = life(asks(&mut table, "a", asked(mine))).session.expect("it lives").record;
    assert!(after.version > version);
    assert_eq!(after.spec.attributes.get("map").map(String::as_str), Some("sea"));
    closed(table.call(300, close("a", "r2")));
    assert_eq!(refused(asks(&mut table, "a", asked(update("a")))), RefusalKind::NotFound);
    assert_eq!(got(table.call(owner, get("a"))).record.state, SessionState::Closed);
}
