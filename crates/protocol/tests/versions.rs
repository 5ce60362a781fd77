//! Versions and lives of a session only grow, whatever the clocks do.

use crate::table::*;
use rota_model::node_msg::{NodeAnswer, ReportEvent, ToNode};
use rota_model::{
    Filter, ListCursor, ListOp, NodeId, Outcome, Placement, RefusalKind, SessionState, SessionView,
};
use rota_protocol::{Answer, Envelope, Message, Op, Transition};

const HOUR_MS: i64 = 3_600_000;

/// An open whose owner dies when its node runs it and READY is at no copy yet, with the owner's wall
/// clock `step_ms` ahead at that moment. Gives what the caller was told; another owner serves then.
fn told_early(table: &mut Table, step_ms: i64) -> Option<SessionView> {
    let early = tell_early(table, step_ms);
    take_over(table, |_| false);
    early
}

/// The same up to where its owner is to die.
fn tell_early(table: &mut Table, step_ms: i64) -> Option<SessionView> {
    table.manual_nodes = true;
    let owner = table.owner("a");
    let call = table.ask(owner, open("a", "r1"));
    let (_, create) = table.node_calls.pop().expect("PENDING is committed");
    table.lose = Box::new(move |envelope| {
        envelope.from.number.0 == owner && matches!(envelope.message, Message::Prepare { .. })
    });
    table.wall_step_ms += step_ms;
    let running = NodeAnswer::Running { address: "x:1".into(), ready: true, remark: String::new() };
    table.node_says(owner, "n1", create.head().call, running);
    table.settle();
    let early = table.replies.remove(&call).map(|result| opened(result).1);
    let shown = got_unless_waiting(table, owner);
    assert_eq!(shown.map(|it| it.record.version), early.as_ref().map(|it| it.record.version));
    table.wall_step_ms -= step_ms;
    early
}

/// The owner dies, and another one gets the partition while these messages are lost.
fn take_over(table: &mut Table, lose: impl Fn(&Envelope) -> bool + 'static) {
    let owner = table.owner("a");
    table.kill(owner);
    table.lose = Box::new(lose);
    while table.owner("a") == owner {
        table.pass(20);
    }
}

/// The same, and the caller asks again. Gives what it was told before, and after.
fn open_and_lose_ready(step_ms: i64) -> (Option<SessionView>, SessionView) {
    let mut table = Table::serving();
    let early = told_early(&mut table, step_ms);
    table.manual_nodes = false;
    let entry = table.owner("a");
    let again = table.ask(entry, open("a", "r1"));
    let (outcome, later) = opened(table.wait_for(again, 3_000));
    assert_eq!(outcome, Outcome::Created);
    assert_eq!(got(table.call(entry, get("a"))).record.version, later.record.version);
    (early, later)
}

/// What a read shows, if it shows the session as live.
fn got_unless_waiting(table: &mut Table, n: u32) -> Option<SessionView> {
    Some(got(table.call(n, get("a")))).filter(|it| it.record.is_live())
}

#[test]
fn a_version_that_was_told_before_its_commit_is_below_every_later_one() {
    let (early, later) = open_and_lose_ready(3_000);
    let early = early.expect("it is answered before READY is committed");
    assert_eq!(early.record.life, later.record.life);
    assert!(later.record.version > early.record.version, "{early:?} {later:?}");
}

#[test]
fn a_machine_is_told_early_as_it_was_when_that_was_committed() {
    for (state, change) in [("red", 0), ("amber", 1)] {
        let mut table = Table::serving();
        table.manual_nodes = true;
        let owner = table.owner("a");
        let call = table.ask(owner, open("a", "r1"));
        let (_, create) = table.node_calls.pop().expect("PENDING is committed");
        let ToNode::Create { head, token, slot, .. } = create else { panic!("{create:?}") };
        let node = NodeId::parse("n1").unwrap();
        let placement = Placement { node, boot: head.boot, token, address: String::new() };
        table.lose = Box::new(move |envelope| {
            envelope.from.number.0 == owner && matches!(envelope.message, Message::Prepare { .. })
        });
        let event = ReportEvent::MachineState { state: state.into(), change };
        table.ask(owner, report("a", &placement, event));
        let running =
            NodeAnswer::Running { address: "x:1".into(), ready: true, remark: String::new() };
        table.node_says(owner, "n1", head.call, running);
        table.settle();
        let (_, told) = opened(table.replies.remove(&call).expect("it is told before the commit"));
        let machine =
            |it: &SessionView| (it.record.machine_state.clone(), it.record.machine_change);
        let committed = (String::new(), 0);
        assert_eq!(machine(&told), committed, "what no copy has may be lost");
        assert_eq!(machine(&got(table.call(owner, get("a")))), committed);
        let from = ListCursor { slot, after: None };
        let list = ListOp { from, limit: 1, filter: Filter::default(), stale_ok: true };
        let Ok(Answer::Listed(page)) = table.call(owner, Op::List(list)) else { panic!("no page") };
        assert_eq!(page.sessions[0].record.state, SessionState::Ready);
        assert_eq!(machine(&page.sessions[0]), committed);
        table.lose = Box::new(|_| false);
        table.pass(100);
        assert_eq!(machine(&got(table.call(owner, get("a")))), (state.to_owned(), change));
    }
}

#[test]
fn a_new_owner_closes_above_a_version_that_was_told_before_its_commit() {
    let mut table = Table::serving();
    let early = told_early(&mut table, 3_000).expect("it is answered before READY is committed");
    let owner = table.owner("a");
    let close = table.ask(owner, close("a", "c1"));
    let (_, destroy) = table.node_calls.pop().expect("CLOSING is committed");
    assert!(matches!(destroy, ToNode::Destroy { .. }), "{destroy:?}");
    table.node_says(
        owner,
        "n1",
        destroy.head().call,
        NodeAnswer::Destroyed { exit: None, detail: String::new() },
    );
    table.settle();
    let closed = closed(table.replies.remove(&close).expect("it is closed"));
    assert!(closed.record.version > early.record.version, "{early:?} {closed:?}");
}

#[test]
fn a_new_owner_that_writes_a_session_off_shows_it_only_when_that_is_committed() {
    let mut table = Table::serving();
    let early = tell_early(&mut table, 0).expect("it is answered before READY is committed");
    take_over(&mut table, |it| matches!(it.message, Message::SyncData { .. }));
    let owner = table.owner("a");
    // It has written its first entry, where the session still starts, and does not serve yet.
    table.register("n1", 8);
    let shown = table.ask(owner, get("a"));
    let (lost, serving) = (table.count(Transition::SessionLost), table.count(Transition::Serving));
    assert_eq!(lost, 0, "it is not written off before, with the first entry");
    table.lose = Box::new(|envelope| {
        let Message::Prepare { entries, .. } = &envelope.message else { return false };
        let mut writes = entries.iter().flat_map(|entry| entry.writes.iter());
        writes.any(|write| {
            let record = write.doc.as_ref().and_then(|doc| doc.session());
            record.is_some_and(|record| record.state == SessionState::Lost)
        })
    });
    let is_lost = |it: &Table| it.count(Transition::SessionLost) > lost;
    table.pass_until("the session is written off", 2_000, is_lost);
    assert!(
        table.count(Transition::Serving) > serving,
        "it is written off as the partition begins to serve"
    );
    table.pass(200);
    assert!(!table.replies.contains_key(&shown), "the end may be lost with this owner");
    let later = table.ask(owner, get("a"));
    assert!(!table.replies.contains_key(&later), "nor is it shown to who comes then");
    table.lose = Box::new(|_| false);
    for call in [shown, later] {
        let session = got(table.wait_for(call, 2_000));
        assert_eq!(session.record.state, SessionState::Lost);
        assert!(session.record.version > early.record.version, "{early:?} {session:?}");
    }
}

#[test]
fn a_version_far_above_what_is_committed_is_told_only_when_it_is_committed_itself() {
    let (early, _) = open_and_lose_ready(HOUR_MS);
    assert_eq!(early, None);
}

#[test]
fn a_new_life_is_above_a_forgotten_one_after_restarts_with_clocks_that_went_back() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    let gone = closed(table.call(300, close("a", "c1")));
    table.pass(640_000);
    assert_eq!(refused(table.call(300, get("a"))), RefusalKind::NotFound, "its tombstone is gone");
    table.wall_step_ms -= HOUR_MS;
    for n in NUMBERS {
        table.kill(n);
    }
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.register("n1", 8);
    table.pass(4_000);
    let (_, new) = opened(table.call(300, open("a", "r2")));
    assert!(new.record.life > gone.record.version, "{gone:?} {new:?}");
}

#[test]
fn a_manager_that_only_learned_gives_lives_above_forgotten_ones_too() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    let gone = closed(table.call(300, close("a", "c1")));
    let owner = table.owner("a");
    table.pass(640_000);
    table.wall_step_ms -= HOUR_MS;
    table.kill(owner);
    table.disks.remove(&owner);
    table.pass(1_500);
    table.start(owner);
    table.pass(3_000);
    assert_eq!(table.owner("a"), owner, "the emptied manager owns again");
    table.register("n1", 8);
    let (_, new) = opened(table.call(owner, open("a", "r2")));
    assert!(new.record.life > gone.record.version, "{gone:?} {new:?}");
}

#[test]
fn many_writes_in_one_moment_do_not_run_ahead_of_the_clock() {
    let mut table = Table::serving();
    table.register_with("n1", 8, 100_000);
    let mut newest = rota_model::Stamp::MIN;
    for index in 0..2_000 {
        let (_, session) = opened(table.call(300, open(&format!("s{index}"), "r1")));
        newest = newest.max(session.record.version);
    }
    assert!(newest.to_epoch_ms() < table.now().wall_ms + 100, "{newest}");
}
