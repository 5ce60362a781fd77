//! Sessions whose node is lost and whose class says `on_node_loss = "reopen"`: a new life begins, unless a client
//! closed them.

use crate::table::asking::{configure, op, operated, space};
use crate::table::losing::roll_back;
use crate::table::*;
use rota_docstore::Request;
use rota_model::node_msg::ReportEvent;
use rota_model::{
    ClassFacts, KeepAliveOp, NodeId, Outcome, Reason, RefusalKind, SessionState, SessionView,
};
use rota_protocol::operate::{CONFIGURATION, SPACES_DOCID};
use rota_protocol::{Input, Op, Transition};
use rota_ring::NodeOrder;
use serde_json::json;

/// A node boots, or boots anew, with class `builtin`, whose lost sessions are opened again.
fn boots(table: &mut Table, node: &str, boot: u64) {
    let facts = ClassFacts { reopens: true, ..ClassFacts::default() };
    table.register_with_facts(node, boot, table.places, facts);
}

/// Three managers and one node.
fn laid() -> Table {
    let mut table = Table::laid();
    table.start_all();
    boots(&mut table, "n1", 100);
    table.pass(1_500);
    table
}

/// An operator orders something of n1.
fn orders(table: &mut Table, order: NodeOrder) {
    table.node_ordered_as = None;
    let node = NodeId::parse("n1").expect("a name");
    let n = *table.managers.keys().next().expect("a manager runs");
    table.input(n, Input::NodeOrder { call: 3, node, order });
    table.pass(1_000);
    table.node_ordered_as.take().expect("it is answered").expect("it is carried out");
}

fn with_attributes(id: &str) -> Op {
    let mut asked = open(id, "r1");
    if let Op::Open(open) = &mut asked {
        open.spec.attributes =
            std::sync::Arc::new([("map".to_owned(), "desert".to_owned())].into());
    }
    asked
}

fn now(table: &mut Table, id: &str) -> SessionView {
    let owner = table.owner(id);
    got(table.call(owner, get(id)))
}

fn becomes(table: &mut Table, id: &str, state: SessionState) -> SessionView {
    let until_ms = table.now_ms + 5_000;
    loop {
        let view = now(table, id);
        if view.record.state == state {
            return view;
        }
        assert!(table.now_ms < until_ms, "{view:?}");
        table.pass(50);
    }
}

#[test]
fn a_lost_session_is_opened_again_as_a_new_life_with_its_attributes() {
    let mut table = laid();
    let (_, before) = opened(table.call(300, with_attributes("a")));
    boots(&mut table, "n1", 101);
    table.pass(400);
    let after = becomes(&mut table, "a", SessionState::Ready);
    assert!(after.record.life > before.record.life);
    assert_eq!((after.record.reason, &after.record.spec), (None, &before.record.spec));
    assert_eq!(table.count(Transition::SessionReopened), 1);
    let (outcome, found) = opened(table.call(300, open("a", "r2")));
    assert_eq!((outcome, found.record.life), (Outcome::Existed, after.record.life));
    table.pass(5_000);
    assert_eq!(table.count(Transition::SessionReopened), 1, "it was lost once");
}

#[test]
fn a_session_of_another_class_stays_lost() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    table.register("n1", 200);
    table.pass(2_000);
    let lost = becomes(&mut table, "a", SessionState::Lost);
    assert_eq!(lost.record.reason, Some(Reason::NodeLost));
}

/// A session of a node that takes nothing more, which boots anew.
fn waiting() -> (Table, SessionView) {
    let mut table = laid();
    let (_, before) = opened(table.call(300, open("a", "r1")));
    orders(&mut table, NodeOrder::Cordon);
    boots(&mut table, "n1", 101);
    table.pass(2_000);
    let lost = now(&mut table, "a");
    assert_eq!((lost.record.life, lost.record.state), (before.record.life, SessionState::Lost));
    assert_eq!(lost.record.reason, Some(Reason::Reopening));
    (table, before)
}

#[test]
fn without_room_it_waits_longer_than_ended_sessions_are_kept_and_begins_when_there_is_room() {
    let (mut table, before) = waiting();
    table.pass(660_000);
    assert_eq!(now(&mut table, "a").record.reason, Some(Reason::Reopening));
    // It was not heard of meanwhile.
    boots(&mut table, "n1", 102);
    orders(&mut table, NodeOrder::Uncordon);
    let after = becomes(&mut table, "a", SessionState::Ready);
    assert!(after.record.life > before.record.life);
}

#[test]
fn who_keeps_a_session_alive_that_waits_is_told_so() {
    let (mut table, before) = waiting();
    let keep = KeepAliveOp { key: before.record.key.clone(), life: Some(before.record.life) };
    let refusal = table.call(300, Op::KeepAlive(keep)).unwrap_err();
    let text = "session default/a waits for a node that has room for its next life: it is LOST";
    assert_eq!((refusal.kind, refusal.message.as_str()), (RefusalKind::NotFound, text));
}

#[test]
fn a_close_of_a_session_that_waits_wins() {
    let (mut table, before) = waiting();
    let ended = closed(table.call(300, close("a", "r2")));
    assert_eq!((ended.record.life, ended.record.state), (before.record.life, SessionState::Lost));
    assert_eq!(ended.record.reason, Some(Reason::NodeLost));
    orders(&mut table, NodeOrder::Uncordon);
    table.pass(5_000);
    assert_eq!(now(&mut table, "a").record.state, SessionState::Lost, "nobody opens it again");
    assert_eq!(table.count(Transition::SessionReopened), 0);
}

#[test]
fn a_session_that_was_being_closed_when_its_node_was_lost_is_closed() {
    let mut table = laid();
    opened(table.call(300, open("a", "r1")));
    table.silent.insert("n1".to_owned());
    let call = table.ask_within(300, close("a", "r2"), 20_000);
    table.pass(500);
    assert_eq!(now(&mut table, "a").record.state, SessionState::Closing);
    table.silent.clear();
    boots(&mut table, "n1", 101);
    let ended = closed(table.wait_for(call, 10_000));
    assert_eq!(ended.record.state, SessionState::Closed);
    table.pass(5_000);
    assert_eq!(now(&mut table, "a").record.state, SessionState::Closed);
    assert_eq!(table.count(Transition::SessionReopened), 0);
}

#[test]
fn whoever_takes_the_partition_over_goes_on_with_it() {
    let (mut table, before) = waiting();
    let owner = table.owner("a");
    table.kill(owner);
    table.pass_until("somebody takes over", 8_000, |it| it.owner("a") != owner);
    orders(&mut table, NodeOrder::Uncordon);
    let after = becomes(&mut table, "a", SessionState::Ready);
    assert!(after.record.life > before.record.life);
}

#[test]
fn an_open_of_a_client_begins_the_next_life_itself() {
    let (mut table, before) = waiting();
    boots(&mut table, "n2", 300);
    let (_, found) = opened(table.call(300, open("a", "r2")));
    assert!(found.record.life > before.record.life);
    table.pass(3_000);
    assert_eq!(now(&mut table, "a").record.life, found.record.life, "there is one next life");
}

#[test]
fn nodes_are_ordered_for_what_waits() {
    let (mut table, _) = waiting();
    assert!(table.ordered.is_empty(), "nobody described the pool");
    let settings = json!({"provisioner": "process", "max_nodes": 2, "places": 10});
    let parameters = json!({"name": "default", "allow_missing": true, "settings": settings});
    let set = Request::new(space(CONFIGURATION), "pool.set").with(&parameters).expect("small");
    let call = table.ask(300, op(set, SPACES_DOCID));
    table.wait_for(call, 1_000).unwrap();
    table.pass(2_000);
    let node = table.ordered.first().expect("a node is ordered").clone();
    boots(&mut table, node.as_str(), 500);
    let after = becomes(&mut table, "a", SessionState::Ready);
    assert_eq!(after.record.placement.as_ref().unwrap().node, node);
}

#[test]
fn a_session_whose_close_was_lost_with_the_last_copy_is_not_opened_again() {
    let (mut table, before) = waiting();
    let old = table.disks.clone();
    closed(table.call(300, close("a", "r2")));
    roll_back(&mut table, old);
    let call = table.ask(300, get("a"));
    let lost = got(table.wait_for(call, 5_000)).record.clone();
    assert_eq!((lost.life, lost.state), (before.record.life, SessionState::Lost));
    assert_eq!(lost.reason, Some(Reason::NodeLost));
    boots(&mut table, "n2", 300);
    table.pass(5_000);
    assert_eq!(table.count(Transition::SessionReopened), 0);
}

#[test]
fn a_session_that_its_node_stopped_since_no_manager_renewed_its_lease_is_opened_again() {
    let mut table = laid();
    let (_, before) = opened(table.call(300, open("a", "r1")));
    let placement = before.record.placement.clone().unwrap();
    let reason = Reason::LeaseNotRenewed;
    let ended = ReportEvent::Ended { reason, exit: None, detail: "no manager".to_owned() };
    table.live.remove(&before.record.key);
    table.call(300, report("a", &placement, ended)).unwrap();
    let after = becomes(&mut table, "a", SessionState::Ready);
    assert!(after.record.life > before.record.life);
}

#[test]
fn sessions_of_a_namespace_that_is_switched_off_are_not_opened_again() {
    let (mut table, before) = waiting();
    let put = configure("namespace.put", &json!({"name": "default", "create": true}));
    operated(table.call(600, put)).unwrap();
    let off = configure("namespace.switch", &json!({"name": "default", "off": "Back at noon"}));
    operated(table.call(600, off)).unwrap();
    orders(&mut table, NodeOrder::Uncordon);
    table.pass(5_000);
    assert_eq!(table.count(Transition::SessionReopened), 0);
    let on = configure("namespace.switch", &json!({"name": "default"}));
    operated(table.call(600, on)).unwrap();
    let after = becomes(&mut table, "a", SessionState::Ready);
    assert!(after.record.life > before.record.life);
}
