//! The time that a close gives a session's program.

use crate::table::*;
use rota_model::node_msg::{NodeAnswer, ToNode};
use rota_model::{SessionState, Token};
use rota_protocol::Op;

fn close_within(request: &str, grace_ms: Option<u64>) -> Op {
    let Op::Close(mut op) = close("a", request) else { unreachable!("close gives a close") };
    op.grace_ms = grace_ms;
    Op::Close(op)
}

/// What nodes were asked to end since the last look: which attempt, within what time, and by whose call.
fn destroys(table: &mut Table) -> Vec<(u32, Token, Option<u64>, u64)> {
    let calls = std::mem::take(&mut table.node_calls);
    let of = |(owner, call): (u32, ToNode)| match call {
        ToNode::Destroy { head, token, grace_ms, .. } => Some((owner, token, grace_ms, head.call)),
        ToNode::Create { .. } | ToNode::Act { .. } | ToNode::Scan { .. } | ToNode::Meet { .. } => {
            None
        }
    };
    calls.into_iter().filter_map(of).collect()
}

#[test]
fn the_time_that_a_close_gives_reaches_the_node_from_every_owner_and_only_gets_shorter() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    table.manual_nodes = true;
    let owner = table.owner("a");
    table.ask(owner, close_within("c1", Some(60_000)));
    let asked: Vec<_> = destroys(&mut table).into_iter().map(|it| it.2).collect();
    assert_eq!(asked, [Some(60_000)]);

    table.kill(owner);
    while table.owner("a") == owner {
        table.pass(20);
    }
    table.pass(100);
    let asked = destroys(&mut table);
    assert!(!asked.is_empty() && asked.iter().all(|it| it.2 == Some(60_000)), "{asked:?}");

    // A longer time, and none, change nothing; a shorter one is told at once.
    let owner = table.owner("a");
    table.ask(owner, close_within("c2", Some(90_000)));
    table.ask(owner, close_within("c3", None));
    let asked = destroys(&mut table);
    assert!(asked.iter().all(|it| it.2 == Some(60_000)), "{asked:?}");
    let hurried = table.ask(owner, close_within("c4", Some(0)));
    let (owner, _, grace_ms, call) = destroys(&mut table).pop().expect("the node is asked again");
    assert_eq!(grace_ms, Some(0));
    let gone = NodeAnswer::Destroyed { exit: None, detail: "it was killed".to_owned() };
    table.node_says(owner, "n1", call, gone);
    table.settle();
    let closed = closed(table.replies.remove(&hurried).expect("it is closed"));
    assert_eq!(closed.record.state, SessionState::Closed);
    assert_eq!(closed.record.detail, "it was killed");
}

#[test]
fn a_second_close_may_hasten_one_that_left_the_time_to_the_class() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    table.manual_nodes = true;
    let owner = table.owner("a");
    table.ask(owner, close("a", "c1"));
    assert_eq!(destroys(&mut table).pop().map(|it| it.2), Some(None));
    table.ask(owner, close_within("c2", Some(1_000)));
    assert_eq!(destroys(&mut table).pop().map(|it| it.2), Some(Some(1_000)));
}
