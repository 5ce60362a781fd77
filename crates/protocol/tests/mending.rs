//! An operator has owners look at what nodes have, and put right what differs from their records.

use crate::table::*;
use rota_model::node_msg::{NodeAnswer, ToNode};
use rota_model::{
    Epoch, LogPos, MendOp, MendStep, Mended, NodeId, Reason, RefusalKind, Seq, SessionState, Token,
};
use rota_protocol::{Answer, Op, OpResult};

fn mend_at(id: &str, node: &str, dry_run: bool) -> Op {
    Op::Mend(MendOp { key: key(id), node: NodeId::parse(node).unwrap(), dry_run })
}

fn look(id: &str) -> Op {
    mend_at(id, "n1", true)
}

fn mend(id: &str) -> Op {
    mend_at(id, "n1", false)
}

fn mended(result: OpResult) -> Mended {
    match result {
        Ok(Answer::Mended(mended)) => mended,
        other => panic!("not mended: {other:?}"),
    }
}

fn step(result: OpResult) -> MendStep {
    mended(result).step
}

/// What runs of one session is said to run for another one, under that token.
fn plant(table: &mut Table, of: &str, id: &str, token: Token) {
    let (node, _, alive) = table.live[&key(of)].clone();
    table.live.insert(key(id), (node, token, alive));
}

/// A token of the owner's first entry in this epoch: no session has it.
fn early_token(table: &Table, id: &str) -> Token {
    let slot = rota_ring::slot_of_session(&key(id), 1024);
    let (_, part) = table.view().part_of(slot);
    Token(LogPos { pe: part.pe, seq: Seq(0) })
}

/// Opens a session, and waits until READY is committed.
fn opened_ready(table: &mut Table, id: &str) -> Option<Token> {
    let (_, session) = opened(table.call(300, open(id, &format!("open-{id}"))));
    table.pass(100);
    session.record.token()
}

/// What a node is asked that has not answered.
fn asked(table: &mut Table) -> (u32, ToNode) {
    table.node_calls.pop().expect("a node is asked")
}

#[test]
fn a_record_of_which_nothing_runs_is_ended_and_a_dry_run_only_says_so() {
    let mut table = Table::serving();
    let token = opened_ready(&mut table, "a");
    let life = got(table.call(300, get("a"))).record.life;
    assert_eq!(step(table.call(600, mend("a"))), MendStep::Nothing, "it runs");
    table.live.remove(&key("a"));
    let persisted = table.persisted;
    let would = mended(table.call(1000, look("a")));
    assert_eq!((would.step, would.token), (MendStep::WriteEnd, token), "{would:?}");
    assert_eq!(
        (table.persisted, got(table.call(300, get("a"))).record.state),
        (persisted, SessionState::Ready)
    );
    assert_eq!(step(table.call(600, mend("a"))), MendStep::WriteEnd);
    let record = got(table.call(300, get("a"))).record;
    assert!(record.state.is_ended(), "{record:?}");
    assert_eq!((record.reason, record.life), (Some(Reason::Internal), life));
    assert!(record.detail.contains("knows nothing of it"), "{record:?}");
    assert_eq!(step(table.call(300, mend("a"))), MendStep::Nothing, "a second look");
    opened(table.call(300, open("a", "r2")));
}

#[test]
fn what_runs_without_a_record_or_after_its_end_is_ended_at_its_node() {
    let mut table = Table::serving();
    let token = opened_ready(&mut table, "a").unwrap();
    let early = early_token(&table, "orphan");
    plant(&mut table, "a", "orphan", early);
    let zombie = table.live[&key("a")].clone();
    closed(table.call(300, close("a", "c1")));
    table.live.insert(key("a"), zombie);
    for (id, token) in [("orphan", early), ("a", token)] {
        let would = mended(table.call(300, look(id)));
        assert_eq!((would.step, would.token), (MendStep::EndInstance, Some(token)), "{would:?}");
        assert!(table.live.contains_key(&key(id)), "{id} runs on after a dry run");
        assert_eq!(step(table.call(300, mend(id))), MendStep::EndInstance);
        assert!(!table.live.contains_key(&key(id)), "{id}");
        assert_eq!(step(table.call(300, mend(id))), MendStep::Nothing);
    }
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Closed);
}

#[test]
fn what_runs_on_another_node_than_its_record_says_is_ended_there_alone() {
    let mut table = Table::serving();
    opened_ready(&mut table, "a");
    let here = table.live[&key("a")].clone();
    table.register("n2", 3);
    table.live.insert(key("a"), ("n2".to_owned(), here.1, here.2.clone()));
    assert_eq!(step(table.call(300, mend_at("a", "n2", false))), MendStep::EndInstance);
    let ended = table.node_calls.iter().filter(|(_, it)| matches!(it, ToNode::Destroy { .. }));
    assert_eq!(ended.count(), 1);
    table.live.insert(key("a"), here);
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Ready);
    assert_eq!(step(table.call(300, mend("a"))), MendStep::Nothing);
    assert_eq!(step(table.call(300, mend_at("a", "n2", false))), MendStep::Nothing);
}

#[test]
fn a_look_that_was_asked_before_a_session_ran_ends_nothing() {
    let mut table = Table::serving();
    opened_ready(&mut table, "warm");
    table.manual_nodes = true;
    let opening = table.ask(300, open("a", "r1"));
    let (owner, create) = asked(&mut table);
    let looking = table.ask(300, mend("a"));
    let (_, scan) = asked(&mut table);
    assert!(matches!(scan, ToNode::Scan { .. }), "{scan:?}");
    let address = "n1:1".to_owned();
    let running = NodeAnswer::Running { address, ready: true, remark: String::new() };
    table.node_says(owner, "n1", create.head().call, running);
    table.settle();
    table.pass(100);
    opened(table.wait_for(opening, 1_000));
    // The node looked before it was asked to create.
    table.node_says(owner, "n1", scan.head().call, NodeAnswer::nothing_found());
    table.settle();
    table.pass(100);
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Ready);
    assert!(!table.replies.contains_key(&looking), "it is looked at again");
    table.node_calls.clear();
    table.pass_until("another question", 5_000, |it| !it.node_calls.is_empty());
    // An answer to the earlier question that comes once more counts for nothing.
    table.node_says(owner, "n1", scan.head().call, NodeAnswer::nothing_found());
    table.settle();
    assert_eq!(got(table.call(300, get("a"))).record.state, SessionState::Ready);
    let (_, again) = asked(&mut table);
    table.node_says(owner, "n1", again.head().call, NodeAnswer::nothing_found());
    assert_eq!(step(table.wait_for(looking, 1_000)), MendStep::WriteEnd, "now it ran before");
}

#[test]
fn what_is_being_opened_or_closed_is_left_to_its_owner() {
    let mut table = Table::serving();
    opened_ready(&mut table, "a");
    table.manual_nodes = true;
    table.ask(300, open("b", "r2"));
    table.ask(300, close("a", "c1"));
    table.manual_nodes = false;
    table.silent.insert("n1".to_owned());
    for id in ["a", "b"] {
        let looking = table.ask(300, mend(id));
        let (owner, scan) = asked(&mut table);
        table.node_says(owner, "n1", scan.head().call, NodeAnswer::nothing_found());
        assert_eq!(step(table.wait_for(looking, 100)), MendStep::UnderWay, "{id}");
    }
}

#[test]
fn nodes_that_cannot_be_asked_are_named() {
    let mut table = Table::serving();
    let none = mended(table.call(300, mend_at("a", "nobody", false)));
    assert_eq!(none.step, MendStep::OutOfReach);
    assert!(none.text.contains("nobody registered a node nobody"), "{none:?}");
    table.silent.insert("n1".to_owned());
    let looking = table.ask_within(300, mend("a"), 2_000);
    let refusal = table.wait_for(looking, 3_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::DeadlineExceeded);
    assert!(refusal.message.contains("node n1 did not say in time"), "{refusal:?}");
    assert!(table.node_calls.len() > 1, "it was asked again");
}

#[test]
fn an_instance_that_takes_its_time_to_end_is_told_as_such() {
    let mut table = Table::serving();
    opened_ready(&mut table, "a");
    let early = early_token(&table, "orphan");
    plant(&mut table, "a", "orphan", early);
    table.manual_nodes = true;
    let looking = table.ask_within(300, mend("orphan"), 2_000);
    let (owner, scan) = asked(&mut table);
    table.answers(owner, "n1", &scan);
    table.settle();
    let (_, destroy) = asked(&mut table);
    assert!(matches!(destroy, ToNode::Destroy { token, .. } if token == early), "{destroy:?}");
    let refusal = table.wait_for(looking, 3_000).unwrap_err();
    assert!(refusal.message.contains("has not ended attempt"), "{refusal:?}");
}

#[test]
fn a_later_attempt_than_any_known_one_has_its_partition_found_again() {
    let mut table = Table::serving();
    opened_ready(&mut table, "a");
    let early = early_token(&table, "lost");
    let later = Token(LogPos { seq: Seq(9_999), ..early.0 });
    plant(&mut table, "a", "lost", later);
    let would = mended(table.call(300, look("lost")));
    assert_eq!((would.step, would.token), (MendStep::FindAgain, Some(later)), "{would:?}");
    assert_eq!(refused(table.call(300, get("lost"))), RefusalKind::NotFound);
    let looking = table.ask_within(300, mend("lost"), 30_000);
    assert_eq!(step(table.wait_for(looking, 30_000)), MendStep::Nothing, "it was found again");
    let found = got(table.call(300, get("lost"))).record;
    assert_eq!((found.state, found.token()), (SessionState::Ready, Some(later)));
    assert!(table.live.contains_key(&key("lost")));
    // Of an epoch that is not known here nothing is judged.
    let of_later = Token(LogPos { pe: Epoch(later.0.pe.0 + 100), seq: Seq(1) });
    plant(&mut table, "a", "other", of_later);
    let looking = table.ask_within(300, mend("other"), 1_000);
    assert_eq!(refused(table.wait_for(looking, 2_000)), RefusalKind::DeadlineExceeded);
}
