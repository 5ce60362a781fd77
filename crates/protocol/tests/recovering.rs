//! What is left when the last copy of a partition is gone: what runs on the nodes.

use crate::table::asking::{op, operated, sync, synced, write};
use crate::table::losing::{after_ms, lose, recovering, roll_back, write_all_down};
use crate::table::*;
use rota_docstore::{Held, Update};
use rota_model::node_msg::{ReportEvent, ToNode};
use rota_model::{
    LogPos, NodeId, Outcome, Reason, RefusalKind, SessionState, SessionView, Stamp, Token,
};
use rota_protocol::{Answer, Sizes, Timing, Transition};
use rota_ring::ClaimRefused;

const SESSIONS: usize = 30;

/// Three managers with copies of everything (r = 2), and sessions all over the ring.
fn filled() -> (Table, Vec<SessionView>) {
    let mut table = Table::serving();
    let open = |index| open(&format!("s{index}"), &format!("r{index}"));
    let sessions = (0..SESSIONS).map(|index| opened(table.call(300, open(index))).1).collect();
    (table, sessions)
}

fn id(session: &SessionView) -> String {
    session.record.key.id.to_string()
}

/// Who has just started does not know yet which namespaces are switched off: that is found again, too.
fn assert_unanswered(kind: RefusalKind) {
    assert!(matches!(kind, RefusalKind::Recovering | RefusalKind::NotServing), "{kind:?}");
}

/// Every session runs as it did, and is found again under the token that it had.
fn assert_as_before(table: &mut Table, sessions: &[SessionView]) {
    for before in sessions {
        for n in NUMBERS {
            let call = table.ask(n, get(&id(before)));
            let now = got(table.wait_for(call, 5_000)).record.clone();
            assert_eq!((now.state, now.life), (SessionState::Ready, before.record.life));
            assert_eq!(now.placement, before.record.placement);
            assert_eq!(now.spec, before.record.spec);
        }
    }
}

/// The same, and of one more a client was told that it is closed.
fn filled_and_one_closed() -> (Table, Vec<SessionView>, SessionView) {
    let (mut table, mut sessions) = filled();
    let over = sessions.pop().expect("there are some");
    closed(table.call(300, close(&id(&over), "c")));
    (table, sessions, over)
}

fn assert_closed_by_client(table: &mut Table, over: &SessionView) {
    let call = table.ask(600, get(&id(over)));
    let end = got(table.wait_for(call, 1_000)).record.clone();
    assert_eq!((end.state, end.reason), (SessionState::Closed, Some(Reason::ClosedByClient)));
}

#[test]
fn every_live_session_is_found_again_under_its_token_after_the_loss_of_every_disk() {
    let (mut table, sessions, over) = filled_and_one_closed();
    lose(&mut table, &NUMBERS);
    assert_eq!(recovering(&table), 3, "{:?}", table.view());
    let early = table.ask_within(300, get("s0"), 400);
    assert_unanswered(refused(table.wait_for(early, 2_000)));
    table.pass(after_ms() + 3_000);
    assert_eq!(recovering(&table), 0, "{:?}", table.view());
    assert_as_before(&mut table, &sessions);
    let call = table.ask(600, get(&id(&over)));
    assert_eq!(refused(table.wait_for(call, 1_000)), RefusalKind::NotFound, "its end is forgotten");
    // Everybody has copies again, and the sessions obey as ever.
    table.pass(3_000);
    assert!(table.view().parts.values().all(|it| it.isr.len() == 3), "{:?}", table.view());
    let (outcome, again) = opened(table.call(300, open(&id(&over), "r-again")));
    assert!(outcome == Outcome::Created && again.record.life > over.record.life);
    let (outcome, _) = opened(table.call(300, open("s0", "another")));
    assert_eq!(outcome, Outcome::Existed);
    closed(table.call(300, close("s0", "c0")));
    assert!(!table.live.contains_key(&key("s0")));
}

#[test]
fn a_life_after_the_loss_of_every_disk_is_no_lost_one_though_the_clock_was_put_back() {
    let (mut table, _, over) = filled_and_one_closed();
    let mut newest = over.record.version;
    for round in 0..6 {
        if round % 2 == 0 {
            table.wall_step_ms -= 120_000;
            lose(&mut table, &NUMBERS);
            table.pass(after_ms() + 3_000);
        }
        let (outcome, again) = opened(table.call(300, open(&id(&over), &format!("again {round}"))));
        assert_eq!(outcome, Outcome::Created);
        assert!(again.record.life > newest, "{again:?} after {newest}");
        newest = closed(table.call(300, close(&id(&over), &format!("c{round}")))).record.version;
    }
}

#[test]
fn a_document_after_the_loss_of_every_disk_is_no_lost_one_and_who_holds_a_lost_one_is_told_so() {
    let mut table = Table::serving();
    let mut newest = Stamp::MIN;
    for round in 0..3 {
        let made = operated(table.call(300, op(write("c", round), "c"))).unwrap();
        assert!(made.version > newest, "{} after {newest}", made.version);
        newest = made.version;
        let update = synced(table.call(600, sync(&["c"], None, false))).remove(0);
        let Update::Full(copy) = update else { panic!("not full: {update:?}") };
        assert_eq!((copy.ctime(), copy.version()), (newest, newest));
        table.wall_step_ms -= 120_000;
        lose(&mut table, &NUMBERS);
        table.pass(after_ms() + 3_000);
        let update = synced(table.call(600, sync(&["c"], Some(Held::of(&copy)), false))).remove(0);
        // None was there so early: a cache that holds a later one knows that its source is behind.
        assert!(matches!(update, Update::Absent { as_of } if as_of < newest), "{update:?}");
    }
}

#[test]
fn what_was_found_again_is_said_in_the_view_and_in_a_note() {
    let (mut table, sessions) = filled();
    lose(&mut table, &NUMBERS);
    table.pass(after_ms() + 3_000);
    let account = table.view().parts.values().map(|it| it.recovered.expect("it was"));
    let (sum, held): (u64, Vec<LogPos>) = account.fold((0, Vec::new()), |(sum, mut held), part| {
        held.push(part.held);
        (sum + part.sessions, held)
    });
    assert_eq!(sum, sessions.len() as u64);
    assert!(held.iter().all(|it| *it == LogPos::ZERO), "the disks were empty: {held:?}");
    let said = table.said.iter().filter(|(it, _)| *it == Transition::Recovered);
    let said: Vec<&String> = said.map(|(_, text)| text).collect();
    assert_eq!(said.len(), 3);
    assert!(said.iter().all(|it| it.contains("found running") && it.contains("gone")), "{said:?}");
}

#[test]
fn nobody_is_answered_until_a_silent_node_is_lost_and_others_keep_their_leases() {
    let (mut table, sessions) = filled();
    table.register("n2", 8);
    table.silent.insert("n1".into());
    lose(&mut table, &NUMBERS);
    let lost_ms = Timing::default().node_lost_ms;
    let (began_ms, mut passed) = (table.now_ms, 0);
    while passed < lost_ms + 2_000 && recovering(&table) > 0 {
        // Its owner recovers as well.
        let granted = NUMBERS.iter().any(|n| table.grants(*n, "n2"));
        assert!(granted || passed == 0, "after {passed} ms");
        let call = table.ask_within(300, get("s1"), 400);
        assert_unanswered(refused(table.wait_for(call, 500)));
        table.pass(2_000);
        passed = table.now_ms - began_ms;
    }
    assert!(passed >= lost_ms, "after {passed} ms");
    table.pass(2_000);
    assert_eq!(table.count(Transition::NodeLost), 3, "each manager saw the verdict");
    for session in &sessions {
        let call = table.ask(300, get(&id(session)));
        assert_eq!(refused(table.wait_for(call, 2_000)), RefusalKind::NotFound);
    }
}

#[test]
fn who_holds_a_newer_copy_finds_the_partition_again_and_then_nothing_is_lost() {
    let (mut table, sessions, over) = filled_and_one_closed();
    lose(&mut table, &[1000]);
    table.pass(2 * after_ms() + 3_000);
    assert_eq!(recovering(&table), 0, "{:?}", table.view());
    assert_eq!(table.count(Transition::RecoveryHandedOn), 3);
    assert_as_before(&mut table, &sessions);
    assert_closed_by_client(&mut table, &over);
    let (outcome, _) = opened(table.call(300, open("s3", "r3")));
    assert_eq!(outcome, Outcome::Created, "its request is remembered");
}

#[test]
fn a_newer_copy_that_returns_late_is_taken_as_long_as_the_nodes_are_waited_for() {
    let (mut table, sessions, over) = filled_and_one_closed();
    table.silent.insert("n1".into());
    lose(&mut table, &[1000]);
    table.kill(300);
    table.kill(600);
    table.pass(after_ms() + 1_000);
    assert_eq!(recovering(&table), 3, "{:?}", table.view());
    table.start(600);
    table.start(300);
    table.pass(1_000);
    assert_eq!(table.count(Transition::RecoveryHandedOn), 3);
    table.silent.clear();
    table.pass(after_ms() + 3_000);
    assert_eq!(recovering(&table), 0, "{:?}", table.view());
    assert_as_before(&mut table, &sessions);
    assert_closed_by_client(&mut table, &over);
}

/// These lose their disks; 1000 is stopped after it wrote what it found, and before the View could say so.
fn stop_before_it_is_said(table: &mut Table, disks: &[u32]) {
    lose(table, disks);
    table.kill(300);
    table.kill(600);
    table.pass(after_ms() - 1_000);
    table.store_away = true;
    table.pass(2_000);
    assert!(table.disks[&1000].docs.len() >= SESSIONS - 1, "what was found is on its disk");
    assert_eq!(recovering(table), 3, "{:?}", table.view());
    table.kill(1000);
    table.store_away = false;
}

#[test]
fn who_holds_a_newer_copy_than_the_base_is_taken_though_an_owner_wrote_what_it_found() {
    let (mut table, sessions, over) = filled_and_one_closed();
    stop_before_it_is_said(&mut table, &[1000]);
    for n in NUMBERS {
        table.start(n);
    }
    table.pass(2 * after_ms() + 3_000);
    assert_eq!(recovering(&table), 0, "{:?}", table.view());
    assert_eq!(table.count(Transition::RecoveryHandedOn), 3);
    assert_as_before(&mut table, &sessions);
    assert_closed_by_client(&mut table, &over);
}

#[test]
fn an_account_after_an_interruption_tells_what_the_disk_held_before_it() {
    let (mut table, sessions) = filled();
    stop_before_it_is_said(&mut table, &NUMBERS);
    table.start(1000);
    table.pass(after_ms() + 3_000);
    let account: Vec<_> = table.view().parts.values().map(|it| it.recovered.unwrap()).collect();
    assert_eq!(account.iter().map(|it| it.sessions).sum::<u64>(), sessions.len() as u64);
    assert!(account.iter().all(|it| it.held == LogPos::ZERO), "{account:?}");
    assert!(table.disks[&1000].parts.values().all(|it| it.last > LogPos::ZERO));
}

const MESSAGE_BYTES: usize = 3_000;

/// The same with sessions of which a message takes two.
fn filled_with_large() -> (Table, Vec<SessionView>) {
    let mut table = Table::serving();
    let large = |index| open_large(&format!("s{index}"), &format!("r{index}"), 2_000);
    let sessions = (0..SESSIONS).map(|index| opened(table.call(300, large(index))).1).collect();
    table.sizes = Sizes { message_bytes: MESSAGE_BYTES, ..Sizes::default() };
    table.batch_max = 0;
    (table, sessions)
}

#[test]
fn what_is_found_goes_to_the_disk_in_bounded_steps() {
    let (mut table, sessions) = filled_with_large();
    lose(&mut table, &NUMBERS);
    table.pass(after_ms() + 1_000);
    assert_eq!(recovering(&table), 0, "{:?}", table.view());
    // One owner finds three partitions again. The last document of an entry may be large.
    let most = 3 * (MESSAGE_BYTES + 3_000);
    assert!(table.batch_max <= most, "{} bytes in a batch, not {most}", table.batch_max);
    let account = table.view().parts.values().map(|it| it.recovered.expect("it was").sessions);
    assert_eq!(account.sum::<u64>(), sessions.len() as u64);
    assert_as_before(&mut table, &sessions);
}

#[test]
fn an_owner_that_is_stopped_between_two_of_these_steps_loses_nothing_that_runs() {
    let (mut table, sessions) = filled_with_large();
    lose(&mut table, &NUMBERS);
    table.kill(300);
    table.kill(600);
    table.pass(after_ms() - 1_000);
    table.disks_stop_after = Some(table.persisted + 3);
    table.pass(2_000);
    let written = table.disks[&1000].docs.len();
    assert!((1..SESSIONS).contains(&written), "{written} documents");
    table.kill(1000);
    table.disks_stop_after = None;
    for n in NUMBERS {
        table.start(n);
    }
    table.pass(after_ms() + 3_000);
    assert_eq!(recovering(&table), 0, "{:?}", table.view());
    let account: Vec<_> = table.view().parts.values().map(|it| it.recovered.unwrap()).collect();
    assert!(account.iter().all(|it| it.held == LogPos::ZERO), "{account:?}");
    assert_as_before(&mut table, &sessions);
}

#[test]
fn what_is_being_ended_stays_closing() {
    let (mut table, _) = filled();
    let (_, _, alive) = table.live.get_mut(&key("s2")).unwrap();
    alive.ends = Some(Reason::ClosedByClient);
    lose(&mut table, &NUMBERS);
    table.pass(after_ms() + 1_000);
    let call = table.ask(300, get("s2"));
    let ended = got(table.wait_for(call, 5_000)).record.clone();
    assert_eq!((ended.state, ended.reason), (SessionState::Closed, Some(Reason::ClosedByClient)));
    assert!(!table.live.contains_key(&key("s2")), "the node was asked once more");
}

#[test]
fn an_empty_disk_is_refused_in_the_place_of_a_last_copy_and_the_old_one_loses_nothing() {
    let (mut table, sessions) = filled();
    let disk = table.disks[&1000].clone();
    for n in NUMBERS {
        table.kill(n);
    }
    write_all_down(&mut table);
    table.disks.remove(&1000);
    table.start(1000);
    table.pass(200);
    let refused = table.managers[&1000].refused();
    assert!(matches!(refused, Some(ClaimRefused::LastCopy { .. })), "{refused:?}");
    table.kill(1000);
    table.disks.insert(1000, disk);
    for n in NUMBERS {
        table.start(n);
    }
    table.pass(3_000);
    assert_eq!(recovering(&table), 0, "{:?}", table.view());
    assert_as_before(&mut table, &sessions);
}

#[test]
fn news_of_a_machine_that_was_lost_with_the_last_copy_is_found_on_its_node() {
    let (mut table, sessions) = filled();
    let old = table.disks.clone();
    let (amber, green) = (&sessions[0], &sessions[1]);
    for (session, state) in [(amber, "amber"), (green, "green")] {
        let placement = session.record.placement.clone().unwrap();
        let event = ReportEvent::MachineState { state: state.into(), change: 2 };
        assert_eq!(table.call(300, report(&id(session), &placement, event)), Ok(Answer::Reported));
        let (_, _, alive) = table.live.get_mut(&session.record.key).unwrap();
        (alive.machine_state, alive.machine_change) = (state.into(), 2);
    }
    roll_back(&mut table, old);
    assert_as_before(&mut table, &sessions);
    for (session, state, change) in
        [(amber, "amber", 2), (green, "green", 2), (&sessions[2], "", 0)]
    {
        let call = table.ask(300, get(&id(session)));
        let now = got(table.wait_for(call, 1_000)).record.clone();
        assert_eq!((now.machine_state.as_str(), now.machine_change), (state, change));
        assert_eq!(now.version > session.record.version, change > 0, "{now:?}");
    }
}

#[test]
fn a_disk_that_was_rolled_back_is_the_base_and_what_came_after_it_is_found_on_the_nodes() {
    let (mut table, sessions) = filled();
    let old = table.disks.clone();
    let (_, late) = opened(table.call(300, open("late", "r-late")));
    closed(table.call(300, close("s4", "c4")));
    roll_back(&mut table, old);
    let rest: Vec<SessionView> = sessions.into_iter().filter(|it| id(it) != "s4").collect();
    assert_as_before(&mut table, &rest);
    assert_as_before(&mut table, &[late]);
    let call = table.ask(300, get("s4"));
    let ended = got(table.wait_for(call, 1_000)).record.clone();
    assert_eq!((ended.state, ended.reason), (SessionState::Failed, Some(Reason::Internal)));
}

#[test]
fn an_owner_that_sees_that_writes_were_lost_gives_the_partition_up_and_finds_it_again() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    let owner = table.owner("a");
    table.manual_nodes = true;
    let call = table.ask(owner, open("b", "r2"));
    let b_owner = table.owner("b");
    let (_, create) = table.node_calls.pop().expect("PENDING is committed");
    let ToNode::Create { mut token, .. } = create.clone() else { panic!("{create:?}") };
    token.0.seq.0 += 7;
    let answer = rota_model::node_msg::NodeAnswer::OtherLive { token: Token(token.0) };
    table.node_says(b_owner, "n1", create.head().call, answer);
    table.settle();
    table.manual_nodes = false;
    assert_eq!(table.count(Transition::GivenUp), 1);
    let _ = table.wait_for(call, 12_000);
    table.pass(after_ms() + 3_000);
    assert_eq!(recovering(&table), 0, "{:?}", table.view());
    assert_eq!(table.count(Transition::Recovered), 1);
    got(table.call(300, get("a")));
    assert!(table.view().parts.values().all(|it| it.isr.len() == 3), "{:?}", table.view());
}

#[test]
fn an_owner_that_gives_a_partition_up_renews_no_lease_by_the_word_of_its_copies() {
    let mut table = Table::serving();
    let node = NodeId::parse("n1").expect("a name");
    let owner = table.view().owner_of(rota_ring::slot_of_node(&node, 1024)).0;
    let id = (0..).map(|n| format!("b{n}")).find(|it| table.owner(it) == owner);
    let granted = |table: &mut Table| table.grants(owner, "n1");
    assert!(granted(&mut table));
    table.manual_nodes = true;
    table.ask(owner, open(&id.expect("one is there"), "r1"));
    let (_, create) = table.node_calls.pop().expect("PENDING is committed");
    let ToNode::Create { mut token, .. } = create.clone() else { panic!("{create:?}") };
    token.0.seq.0 += 7;
    // Whether it is given up cannot be heard: another may have that number by now, and nobody else.
    table.store_away = true;
    let answer = rota_model::node_msg::NodeAnswer::OtherLive { token };
    table.node_says(owner, "n1", create.head().call, answer);
    table.settle();
    assert!(!granted(&mut table));
    (table.store_away, table.manual_nodes) = (false, false);
    table.pass(1_000);
    assert!(granted(&mut table), "who finds it again judges, too");
}
