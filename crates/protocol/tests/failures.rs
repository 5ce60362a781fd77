//! What holds while managers and nodes fail.

use crate::table::*;
use rota_model::node_msg::{DeadToken, NodeAnswer, ScanFate, ScanItem, ToNode};
use rota_model::{
    Epoch, Exit, Incarnation, LogPos, ManagerNumber, ManagerStatus, Outcome, Reason, RefusalKind,
    Retry, SessionState, Token,
};
use rota_protocol::{Op, Timing, Transition};
use rota_ring::{Change, PartitionEntry, PartitionState};

#[test]
fn killing_the_owner_blocks_its_sessions_no_longer_than_the_suspicion_time() {
    let mut table = Table::serving();
    let (_, before) = opened(table.call(300, open("a", "r1")));
    let owner = table.owner("a");
    table.kill(owner);
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    let call = table.ask(entry, get("a"));
    // Silence counts from the last heartbeat, which was before the kill.
    let suspect_ms = Timing::default().suspect_ms;
    let after = got(table.wait_for(call, suspect_ms));
    assert_eq!(after.record.placement, before.record.placement);
    assert_ne!(after.owner.0, owner);
    let (outcome, again) = opened(table.call(entry, open("a", "r1")));
    assert_eq!((outcome, again.record.life), (Outcome::Created, before.record.life));
    opened(table.call(entry, open("b", "r2")));
}

#[test]
fn an_open_that_the_owner_left_half_done_is_finished_by_the_next_owner() {
    let mut table = Table::serving();
    table.manual_nodes = true;
    let owner = table.owner("a");
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    let call = table.ask(entry, open("a", "r1"));
    let (_, first) = table.node_calls.pop().unwrap();
    table.kill(owner);
    table.manual_nodes = false;
    let (outcome, session) = opened(table.wait_for(call, 3_000));
    assert_eq!(outcome, Outcome::Created);
    assert!(table.count(Transition::Redriven) >= 1);
    let token = session.record.token().unwrap();
    assert!(matches!(first, rota_model::node_msg::ToNode::Create { token: it, .. } if it == token));
}

#[test]
fn a_restarted_manager_learns_and_comes_back_into_every_isr() {
    let mut table = Table::serving();
    for index in 0..50 {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    table.kill(600);
    table.pass(1_500);
    for index in 50..80 {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    table.start(600);
    table.pass(3_000);
    for part in table.view().parts.values() {
        assert_eq!(part.isr.len(), 3, "{:?}", table.view());
    }
    for n in NUMBERS {
        assert_eq!(table.view().parts[&rota_model::ManagerNumber(n)].owner.0, n);
    }
    let digests = |n: u32| -> Vec<u64> {
        table.managers[&n].stats().parts.iter().map(|it| it.digest).collect()
    };
    assert_eq!(digests(300), digests(600));
    assert_eq!(digests(300), digests(1000));
    for index in 0..80 {
        let read = got(table.call(600, get(&format!("s{index}"))));
        assert_eq!(read.record.state, SessionState::Ready);
    }
}

#[test]
fn a_restart_of_the_whole_cluster_brings_records_back_and_writes_off_what_no_longer_runs() {
    let mut table = Table::serving();
    for index in 0..20 {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    closed(table.call(300, close("s3", "c3")));
    for n in NUMBERS {
        table.kill(n);
    }
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.register("n1", 8);
    table.pass(4_000);
    assert!(table.count(Transition::LoneTakeOver) >= 3);
    for index in 0..20 {
        let record = got(table.call(600, get(&format!("s{index}")))).record;
        let expected = if index == 3 { SessionState::Closed } else { SessionState::Lost };
        assert_eq!(record.state, expected);
    }
    for part in table.view().parts.values() {
        assert_eq!(part.isr.len(), 3);
    }
    opened(table.call(1000, open("s4", "again")));
}

#[test]
fn after_a_restart_of_everything_nobody_is_answered_before_the_nodes_are_asked() {
    let mut table = Table::serving();
    let (_, session) = opened(table.call(300, open("a", "r1")));
    let placed = session.record.placement.clone().expect("it is ready");
    for n in NUMBERS {
        table.kill(n);
    }
    (table.manual_nodes, table.node_calls) = (true, Vec::new());
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.pass(1_000);
    let mut stale = get("a");
    if let Op::Get(get) = &mut stale {
        get.stale_ok = true;
    }
    let ops = || [get("a"), stale.clone(), open("a", "r1"), open("a", "r2"), close("a", "c1")];
    let asked = NUMBERS.into_iter().flat_map(|n| ops().map(|op| (n, op)));
    let asked: Vec<u64> = asked.map(|(n, op)| table.ask(n, op)).collect();
    table.pass(4_000);
    let answered: Vec<_> = asked.iter().filter_map(|call| table.replies.get(call)).collect();
    assert!(answered.is_empty(), "the node has not answered yet: {answered:?}");
    let ended = DeadToken::Ended {
        reason: Reason::Exited,
        exit: Some(Exit::Code(0)),
        detail: String::new(),
    };
    let item = ScanItem { key: key("a"), token: placed.token, fate: ScanFate::Dead(ended) };
    for (n, scan) in std::mem::take(&mut table.node_calls) {
        assert!(matches!(scan, ToNode::Scan { .. }), "nothing else is asked before: {scan:?}");
        let answer = scanned(vec![item.clone()]);
        table.node_says(n, "n1", scan.head().call, answer);
    }
    table.settle();
    table.pass(1_000);
    for call in &asked[..2] {
        let shown = got(table.replies.remove(call).expect("the node has answered")).record;
        assert!(shown.state.is_ended(), "{shown:?}");
    }
}

#[test]
fn a_falsely_suspected_manager_rejoins_and_nothing_is_lost() {
    let mut table = Table::serving();
    let (_, before) = opened(table.call(300, open("a", "r1")));
    let owner = table.owner("a");
    let other = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    let number = rota_model::ManagerNumber(owner);
    let refused = |address| rota_protocol::Input::PeerRefused { number, address };
    table.input(other, refused("its-port-of-before:1".to_owned()));
    table.pass(3_000);
    assert_eq!(table.count(Transition::TakenOut), 0, "an old port says nothing of this run");
    table.input(other, refused(format!("m{owner}:1")));
    table.pass(3_000);
    assert_eq!(table.count(Transition::TakenOut), 1);
    assert!(table.count(Transition::Claimed) >= 4);
    let after = got(table.call(other, get("a")));
    assert_eq!(after.record.placement, before.record.placement);
    assert!(table.view().parts.values().all(|part| part.isr.len() == 3));
}

/// Has one manager told that another looks gone; gives both.
#[test]
fn a_peer_that_dies_after_everybody_stood_still_is_missed_as_soon_as_ever() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    table.now_ms += 60_000;
    // Everybody hears the others before its clock is looked at.
    for number in NUMBERS {
        let call = table.ask(number, get("a"));
        got(table.wait_for(call, 1_000));
    }
    table.kill(600);
    table.pass(Timing::default().suspect_ms + 500);
    let member = &table.view().managers[&ManagerNumber(600)];
    assert_eq!(member.status, ManagerStatus::Down);
}

fn signal(table: &mut Table) -> (u32, u32) {
    let (teller, gone) = (NUMBERS[0], NUMBERS[1]);
    let member =
        table.view().member(rota_model::ManagerNumber(gone)).expect("the ring has that number");
    table.input(teller, rota_protocol::Input::Signal { member });
    (teller, gone)
}

#[test]
fn a_peer_that_is_heard_stays_whatever_a_signal_says() {
    let mut table = Table::serving();
    for _ in 0..5 {
        signal(&mut table);
        table.pass(1_000);
    }
    assert_eq!(table.count(Transition::Suspected), 0);
}

#[test]
fn a_signal_shortens_the_patience_with_a_silent_peer_and_means_one_run_only() {
    let mut table = Table::serving();
    table.pass(1_000);
    table.kill(NUMBERS[1]);
    table.pass(150);
    let (_, gone) = signal(&mut table);
    table.pass(450);
    assert_eq!(table.count(Transition::TakenOut), 1, "well before the usual second");
    assert!(!table.view().is_up(rota_model::ManagerNumber(gone)));
    table.start(gone);
    table.pass(3_000);
    assert!(table.view().is_up(rota_model::ManagerNumber(gone)));
    let earlier = table.view().member(rota_model::ManagerNumber(gone)).unwrap();
    let earlier = rota_model::MemberId {
        incarnation: rota_model::Incarnation(earlier.incarnation.0 - 1),
        ..earlier
    };
    table.kill(gone);
    table.input(NUMBERS[0], rota_protocol::Input::Signal { member: earlier });
    table.pass(600);
    assert_eq!(table.count(Transition::TakenOut), 1, "the signal was about the run before");
}

#[test]
fn a_silent_node_is_declared_lost_and_its_sessions_with_it() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    table.pass(19_000);
    assert_eq!(got(table.call(600, get("a"))).record.state, SessionState::Ready);
    table.pass(2_500);
    assert_eq!(got(table.call(600, get("a"))).record.state, SessionState::Lost);
    table.register("n1", 8);
    let (outcome, _) = opened(table.call(600, open("a", "r2")));
    assert_eq!(outcome, Outcome::Created);
}

/// The last entry of a session's partition at its owner.
fn last_entry(table: &Table, id: &str) -> LogPos {
    let owner = table.owner(id);
    let part = table.view().home(rota_ring::slot_of_session(&key(id), 1024));
    let stats = table.managers[&owner].stats();
    stats.parts.iter().find(|it| it.part == part).expect("its owner holds it").last
}

#[test]
fn with_the_config_store_away_a_partition_that_lost_a_copy_takes_nothing_new() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r0")));
    let owner = table.owner("a");
    let copy = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    table.store_away = true;
    table.lose = Box::new(move |it| it.from.number.0 == copy);
    let waiting = table.ask(owner, open("a", "r1"));
    table.pass(2_200);
    let before = last_entry(&table, "a");
    for (index, op) in [open("a", "r2"), close("a", "c1"), get("a")].into_iter().enumerate() {
        let refusal = table.call(owner, op).expect_err("it is refused at once");
        assert_eq!(refusal.kind, RefusalKind::ConfigStoreAway, "request {index}: {refusal}");
        assert!(matches!(refusal.retry, Retry::AfterMs(_)), "{refusal:?}");
    }
    assert_eq!(last_entry(&table, "a"), before, "nothing was appended");
    let mut stale = get("a");
    if let Op::Get(get) = &mut stale {
        get.stale_ok = true;
    }
    got(table.call(owner, stale));
    // The copy is back, the store is not: everything is served again.
    table.lose = Box::new(|_| false);
    opened(table.wait_for(waiting, 2_000));
    opened(table.call(owner, open("a", "r3")));
    closed(table.call(owner, close("a", "c2")));
}

#[test]
fn a_log_that_is_not_committed_is_bounded_in_bytes() {
    let mut table = Table::serving();
    table.register_with("n1", 8, 10_000);
    let owner = table.owner("a");
    let copy = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    table.lose = Box::new(move |it| it.from.number.0 == copy);
    let attributes = [("a".to_string(), "x".repeat(65_000))].into_iter().collect();
    let attributes = std::sync::Arc::new(attributes);
    let (mut asked, mut refused) = (0, None);
    for index in 0..8_000 {
        let id = format!("s{index}");
        if table.owner(&id) != owner {
            continue;
        }
        let mut op = open(&id, "r1");
        if let Op::Open(open) = &mut op {
            open.spec.attributes = std::sync::Arc::clone(&attributes);
        }
        let call = table.ask(owner, op);
        asked += 1;
        if let Some(result) = table.replies.remove(&call) {
            refused = Some(result.expect_err("nothing can be committed"));
            break;
        }
    }
    let refusal = refused.expect("the log has a bound");
    assert_eq!(refusal.kind, RefusalKind::Overloaded);
    assert!(matches!(refusal.retry, Retry::AfterMs(_)), "{refusal:?}");
    assert!((900..1_100).contains(&asked), "64 MiB are about 1,000 such sessions, not {asked}");
    table.lose = Box::new(|_| false);
    table.pass(2_000);
    opened(table.call(owner, open("a", "r2")));
}

#[test]
fn managers_that_restart_before_a_third_ever_ran_serve_without_it() {
    let mut table = Table::laid();
    table.start(300);
    table.start(600);
    table.settle();
    table.pass(500);
    for n in [300, 600] {
        table.kill(n);
        table.start(n);
        table.settle();
        table.pass(500);
    }
    table.pass(1_000);
    table.register("n1", 7);
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for id in ids {
        opened(table.call(600, open(id, "r1")));
    }
    table.start(1000);
    table.pass(2_000);
    assert!(table.view().parts.values().all(|part| part.isr.len() == 3), "{:?}", table.view());
    for id in ids {
        assert_eq!(got(table.call(1000, get(id))).record.state, SessionState::Ready);
    }
}

#[test]
fn a_node_that_never_answers_is_left_alone_while_others_have_room() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let mine = |id: &&str| table.owner(id) == owner;
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
    let ids: Vec<&str> = ids.into_iter().filter(mine).collect();
    let node_of = |session: rota_model::SessionView| {
        session.record.placement.as_ref().map(|it| it.node.as_str().to_string()).unwrap()
    };
    assert_eq!(node_of(opened(table.call(owner, open(ids[0], "r1"))).1), "n1");
    table.register("n2", 7);
    // It renews its lease somewhere, but calls do not reach it: being the fuller one, it is chosen.
    table.silent.insert("n1".into());
    let waiting = table.ask(owner, open(ids[1], "r1"));
    table.pass(2_000);
    assert!(!table.replies.contains_key(&waiting));
    assert_eq!(node_of(opened(table.call(owner, open(ids[2], "r1"))).1), "n2");
    assert!(!table.replies.contains_key(&waiting), "the open that waits stays with its node");
    table.silent.clear();
    assert_eq!(node_of(opened(table.wait_for(waiting, 5_000)).1), "n1");
    // It answered: the fuller node is chosen again.
    assert_eq!(node_of(opened(table.call(owner, open(ids[3], "r1"))).1), "n1");
}

#[test]
fn a_node_that_never_answers_is_asked_when_no_other_has_room() {
    let mut table = Table::serving();
    table.silent.insert("n1".into());
    let owner = table.owner("a");
    let calls = [table.ask(owner, open("a", "r1"))];
    table.pass(4_000);
    let other = ["b", "c", "d", "e", "f"].into_iter().find(|id| table.owner(id) == owner).unwrap();
    let late = table.ask(owner, open(other, "r1"));
    table.silent.clear();
    opened(table.wait_for(calls[0], 5_000));
    opened(table.wait_for(late, 5_000));
}

#[test]
fn a_manager_outside_the_isr_says_that_it_is_a_former_copy() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    let roles = |table: &Table, n: u32| -> Vec<&'static str> {
        table.managers[&n].stats().parts.iter().map(|it| it.role).collect()
    };
    assert_eq!(roles(&table, 600).iter().filter(|it| **it == "copy").count(), 2);
    // It is taken out and cannot come back: its claims are not heard.
    table.lose = Box::new(|it| it.from.number.0 == 600 || it.to.number.0 == 600);
    let number = rota_model::ManagerNumber(600);
    let address = "m600:1".to_owned();
    table.input(300, rota_protocol::Input::PeerRefused { number, address });
    table.pass(500);
    let roles = roles(&table, 600);
    assert!(!roles.contains(&"copy"), "{roles:?}");
    assert!(roles.contains(&"former copy"), "{roles:?}");
}

fn scanned(items: Vec<ScanItem>) -> NodeAnswer {
    NodeAnswer::Scanned { items, more: false, highest: Token(LogPos::ZERO) }
}

/// An open at the owner of "a", whose node says that it runs another attempt; nodes do not answer
/// by themselves any more. Gives the call.
fn open_where_another_runs(table: &mut Table, other: impl Fn(&mut Token)) -> u64 {
    table.manual_nodes = true;
    let owner = table.owner("a");
    let call = table.ask(owner, open("a", "r1"));
    let (_, create) = table.node_calls.pop().expect("PENDING is committed");
    let ToNode::Create { mut token, .. } = create else { panic!("{create:?}") };
    other(&mut token);
    table.node_says(owner, "n1", create.head().call, NodeAnswer::OtherLive { token });
    table.settle();
    call
}

#[test]
fn a_node_that_runs_a_later_attempt_proves_that_something_was_lost() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    // Of this owner's own epoch, so it must have been on every copy: no retry can mend that.
    let call = open_where_another_runs(&mut table, |token| token.0.seq.0 += 7);
    table.node_calls.clear();
    table.pass(4_000);
    let scans = |it: &(u32, ToNode)| matches!(it.1, ToNode::Scan { .. });
    assert!(table.node_calls.iter().all(scans), "it starts nothing: {:?}", table.node_calls);
    let stats = table.managers[&owner].stats();
    assert_eq!(stats.parts.iter().filter(|it| it.role == "recovering").count(), 1);
    assert_eq!(refused(table.wait_for(call, 8_000)), RefusalKind::Recovering);
}

#[test]
fn a_node_that_obeys_a_later_owner_makes_this_one_read_the_view() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let call = open_where_another_runs(&mut table, |token| token.0.pe.0 += 40);
    let stats = table.managers[&owner].stats();
    assert!(stats.parts.iter().all(|it| it.role != "recovering"), "{stats:?}");
    table.manual_nodes = false;
    opened(table.wait_for(call, 8_000));
}

#[test]
fn an_open_that_waits_for_a_close_is_told_so() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    table.silent.insert("n1".into());
    let closing = table.ask(300, close("a", "c1"));
    let reopening = table.ask(300, open("a", "r2"));
    assert_eq!(refused(table.wait_for(reopening, 12_000)), RefusalKind::Closing);
    assert!(table.replies.remove(&closing).is_some(), "it was told that it is not finished");
}

#[test]
fn what_a_scan_saw_end_is_not_lost_with_its_boot_as_well() {
    let mut table = Table::serving();
    let (_, session) = opened(table.call(300, open("a", "r1")));
    let placed = session.record.placement.clone().expect("it is ready");
    table.register("n2", 8);
    let owner = table.owner("a");
    for other in NUMBERS.into_iter().filter(|it| *it != owner) {
        table.kill(other);
        table.pass(1_500);
    }
    table.kill(owner);
    (table.manual_nodes, table.node_calls) = (true, Vec::new());
    table.start(owner);
    table.pass(100);
    let ended = DeadToken::Ended {
        reason: Reason::Exited,
        exit: Some(Exit::Code(0)),
        detail: String::new(),
    };
    let item = ScanItem { key: key("a"), token: placed.token, fate: ScanFate::Dead(ended) };
    let scans = std::mem::take(&mut table.node_calls);
    let (first, rest): (Vec<_>, Vec<_>) =
        scans.into_iter().map(|it| it.1).partition(|it| it.head().boot == placed.boot);
    for scan in first {
        let answer = scanned(vec![item.clone()]);
        table.node_says(owner, placed.node.as_str(), scan.head().call, answer);
    }
    table.settle();
    // Before the other node has answered, the boot that told it is over.
    table.register(placed.node.as_str(), 9);
    for scan in rest {
        let answer = NodeAnswer::nothing_found();
        table.node_says(owner, "n2", scan.head().call, answer);
    }
    table.settle();
    table.pass(500);
    let shown = got(table.call(owner, get("a"))).record.clone();
    assert_eq!((shown.state, shown.reason), (SessionState::Closed, Some(Reason::Exited)));
}

#[test]
fn a_run_that_is_taken_out_before_it_hears_of_its_claim_takes_over_from_its_disk_again() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    for n in [1000, 600] {
        table.kill(n);
        table.pass(3_000);
    }
    table.kill(300);
    table.unheard.insert(300);
    table.start(300);
    table.pass(100);
    let claimed = table.view().member(ManagerNumber(300)).unwrap();
    assert_eq!(claimed.incarnation, Incarnation(2), "it took its partitions over unheard");
    let taken_out = table.view().without(&[claimed]).unwrap();
    table.config = Change::view(taken_out).apply(&table.config).unwrap();
    table.late.clear();
    table.pass(3_000);
    let state = |part: &PartitionEntry| part.state == PartitionState::Active;
    assert!(table.view().parts.values().all(state), "{:?}", table.view());
    let call = table.ask(300, get("a"));
    got(table.wait_for(call, 3_000));
}

/// The manager of "a" as the only copy, which ends and starts again from its disk.
fn restart_alone(table: &mut Table) -> u32 {
    let owner = table.owner("a");
    for other in NUMBERS.into_iter().filter(|it| *it != owner) {
        table.kill(other);
        table.pass(1_500);
    }
    table.kill(owner);
    table.start(owner);
    owner
}

#[test]
fn what_a_lone_disk_has_as_ready_and_its_node_knows_nothing_of_is_closed() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    opened(table.call(300, open("b", "r2")));
    // It ended so long ago that its node has forgotten it, and this disk missed that.
    table.live.remove(&key("a"));
    let owner = restart_alone(&mut table);
    table.pass(1_000);
    let shown = got(table.call(owner, get("a"))).record.clone();
    assert_eq!((shown.state, shown.reason), (SessionState::Failed, Some(Reason::Internal)));
    assert!(shown.detail.contains("its node knows nothing of it"), "{}", shown.detail);
    let (outcome, again) = opened(table.call(owner, open("a", "r3")));
    assert!(outcome == Outcome::Created && again.record.life > shown.life);
}

#[test]
fn a_token_that_a_node_saw_and_forgot_proves_that_a_lone_disk_is_older() {
    let mut table = Table::serving();
    let (_, session) = opened(table.call(300, open("a", "r1")));
    let mut token = session.record.token().unwrap();
    // Of the epoch in which the others are gone.
    (token.0.pe, token.0.seq.0) = (Epoch(table.view().epoch.0 + 2), 1_000);
    table.seen.insert(("n1".into(), rota_ring::slot_of_session(&key("a"), 1024)), token);
    let owner = restart_alone(&mut table);
    table.pass(200);
    let call = table.ask(owner, get("a"));
    table.pass(200);
    let refused = table.replies.remove(&call).map(refused);
    assert!(refused.is_none_or(|it| it == RefusalKind::Recovering), "{refused:?}");
}

#[test]
fn who_comes_to_share_a_partition_is_not_missed_for_the_time_before() {
    let mut table = Table::laid_with(1);
    table.start_all();
    table.register("n1", 7);
    table.start_newcomer(800);
    table.pass(10_000);
    assert!(table.view().is_up(ManagerNumber(800)), "{:?}", table.view());
    // Two that share nothing, and do not ask each other for namespaces all the time, either.
    let asked = table.view().owner_of(rota_protocol::operate::slot_of_spaces(1024)).0;
    let (one, between, other) =
        if [300, 800].contains(&asked) { (600, 800, 1000) } else { (300, 600, 800) };
    // They passed something on to each other, long ago.
    let far = (0..).map(|n| format!("x{n}")).find(|it| table.owner(it) == other).unwrap();
    opened(table.call(one, open(&far, "r1")));
    table.pass(10_000);
    let before = table.count(Transition::TakenOut);
    table.kill(between);
    table.pass(4_000);
    assert_eq!(table.count(Transition::TakenOut) - before, 1, "only {between} is gone");
    assert_eq!(table.view().up_count(), 3, "{:?}", table.view());
}
