//! An owner without copies, and without the config store: it answers what a node's fence decides, and
//! nothing else. Somebody else may own the partition by now.

use crate::table::asking::*;
use crate::table::*;
use rota_model::{Changed, ManagerNumber, Outcome, RefusalKind, Retry};
use rota_protocol::operate::slot_of_spaces;
use rota_protocol::{Input, Message, Op, Transition};
use rota_ring::{Change, View};
use std::sync::Arc;

/// Three managers, each of them alone with what it owns.
fn without_copies() -> Table {
    let mut table = Table::laid_with(0);
    table.start_all();
    table.register("n1", 7);
    table
}

/// Its only copy goes with it.
fn goes_down(table: &mut Table, n: u32) {
    table.kill(n);
    let member = table.view().member(ManagerNumber(n)).unwrap();
    let down = table.view().without(&[member]).unwrap();
    table.config = Change::view(down).apply(&table.config).unwrap();
}

/// Managers that want something else of the View meet again and again what they refuse; how often in 5 s.
fn refusals_in_5_s(table: &mut Table) -> usize {
    let before = table.count(Transition::ViewRefused);
    table.pass(5_000);
    let refused = table.count(Transition::ViewRefused) - before;
    assert!(refused < 500, "{refused} times in 5 s");
    refused
}

fn assert_refused_in_doubt(table: &mut Table, owner: u32, op: Op) {
    let what = format!("{op:?}");
    let waits = table.ask(owner, op);
    let refusal = table.wait_for(waits, 5_000).expect_err(&what);
    assert_eq!(refusal.kind, RefusalKind::ConfigStoreAway, "{what}: {refusal}");
    assert!(matches!(refusal.retry, Retry::AfterMs(_)), "{refusal:?}");
    assert_eq!(refusal.changed, Changed::Unknown, "{what}: {refusal}");
}

#[test]
fn a_lone_owner_without_the_config_store_answers_only_what_a_node_decides() {
    let mut table = without_copies();
    let (owner, keeper) = (table.owner("a"), owner_of(&table, "c"));
    let (outcome, _) = opened(table.call(owner, open("a", "r1")));
    assert_eq!(outcome, Outcome::Created);
    operated(table.call(keeper, op(write("c", 1), "c"))).unwrap();
    table.store_away = true;
    let other = (0..).map(|it| format!("b{it}")).find(|it| table.owner(it) == owner).unwrap();
    let (outcome, _) = opened(table.call(owner, open(&other, "r1")));
    assert_eq!(outcome, Outcome::Created);
    closed(table.call(owner, close(&other, "c1")));
    for existing in [open("a", "r2"), open("a", "r2"), open("a", "r1")] {
        assert_refused_in_doubt(&mut table, owner, existing);
    }
    assert_refused_in_doubt(&mut table, keeper, op(write("c", 2), "c"));
    let refusal = table.call(owner, get("a")).expect_err("it may be closed elsewhere");
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::ConfigStoreAway, Changed::No));
    table.store_away = false;
    table.pass(3_000);
    // A moment without the store costs nothing but that moment.
    table.store_away = true;
    let waits = table.ask(keeper, op(write("c", 3), "c"));
    table.pass(500);
    assert!(!table.replies.contains_key(&waits));
    table.store_away = false;
    operated(table.wait_for(waits, 2_000)).unwrap();
    // What it wrote stands, and is told now.
    for (request, then) in [("r1", Outcome::Created), ("r2", Outcome::Existed)] {
        let (outcome, session) = opened(table.call(owner, open("a", request)));
        assert_eq!((outcome, session.record.key.clone()), (then, key("a")), "{request}");
    }
    let shown = body(&operated(table.call(keeper, op(read("c"), "c"))).unwrap());
    assert_eq!(shown["documents"][0]["items"][0]["json"]["n"], 3, "{shown}");
}

#[test]
fn a_view_of_another_ring_is_refused_and_a_lone_owner_answers_nothing_beside_it() {
    let mut table = without_copies();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r1")));
    let known = table.view().clone();
    let other = View { epoch: known.epoch.next(), r: known.r + 1, ..known.clone() };
    table.config.view = Some(Arc::new(other));
    let refusal = table.call(owner, get("a")).expect_err("the store names a later View");
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::ConfigStoreAway, Changed::No));
    assert!(table.count(Transition::ViewRefused) > 0);
    // What it wants to change is not tried as fast as it is refused.
    table.kill(other_than(owner));
    refusals_in_5_s(&mut table);
    table.config.view = Some(Arc::new(View { epoch: known.epoch.next().next(), ..known }));
    table.pass(1_000);
    got(table.call(owner, get("a")));
}

#[test]
fn a_config_store_that_went_back_and_was_written_since_is_refused() {
    let mut table = without_copies();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r1")));
    let old = table.config.clone();
    goes_down(&mut table, other_than(owner));
    table.pass(1_000);
    let newest = std::mem::replace(&mut table.config, old);
    assert!(table.config.epoch() < newest.epoch());
    // Somebody who knows nothing of what was lost has written nodes.
    table.config.index = newest.index + 1;
    let refusal = table.call(owner, get("a")).expect_err("the store has forgotten something");
    assert_eq!((refusal.kind, refusal.changed), (RefusalKind::ConfigStoreAway, Changed::No));
    let why = table.managers[&owner].config_refused().expect("it says why").to_owned();
    assert!(why.contains("it went back"), "{why}");
    table.kill(NUMBERS.into_iter().find(|it| *it != owner && !table.dead.contains(it)).unwrap());
    refusals_in_5_s(&mut table);
    table.config = newest;
    table.pass(1_000);
    got(table.call(owner, get("a")));
}

#[test]
fn who_is_out_is_not_turned_away_for_good_by_a_config_store_that_went_back_for_a_moment() {
    let mut table = Table::serving();
    let old = table.config.clone();
    let [_, outside, other] = NUMBERS;
    table.kill(other);
    table.pass(3_000);
    table.start(other);
    table.pass(3_000);
    let member = table.view().member(ManagerNumber(outside)).unwrap();
    let out = Change::view(table.view().without(&[member]).unwrap());
    let out = out.apply(&table.config).unwrap();
    table.config = rota_ring::ConfigState { index: out.index + 1, ..old };
    table.input(outside, Input::Config(out.clone()));
    table.pass(200);
    assert!(!table.managers[&outside].is_claimed());
    assert!(table.count(Transition::ViewRefused) > 0);
    table.config = out;
    table.pass(3_000);
    assert!(table.managers[&outside].is_claimed(), "{:?}", table.managers[&outside].refused());
}

#[test]
fn who_is_out_claims_nothing_in_a_view_that_is_older_than_what_it_knows() {
    let mut table = Table::serving();
    let old = table.config.clone();
    let [_, outside, _] = NUMBERS;
    // Its next run: of that the old View knows nothing, and would refuse its disk.
    table.kill(outside);
    table.pass(3_000);
    table.start(outside);
    table.pass(3_000);
    let member = table.view().member(ManagerNumber(outside)).unwrap();
    let out = Change::view(table.view().without(&[member]).unwrap());
    let out = out.apply(&table.config).unwrap();
    // Shown with an index that is known already: it overtakes nothing, and is no state that went back.
    table.config = rota_ring::ConfigState { index: out.index, ..old };
    let refused = table.count(Transition::ViewRefused);
    table.input(outside, Input::Config(out.clone()));
    table.pass(200);
    assert!(!table.managers[&outside].is_claimed());
    assert_eq!(table.count(Transition::ViewRefused), refused);
    table.config = out;
    table.pass(3_000);
    assert!(table.managers[&outside].is_claimed(), "{:?}", table.managers[&outside].refused());
}

#[test]
fn a_view_of_another_ring_with_the_very_epoch_is_not_overwritten() {
    let mut table = without_copies();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r1")));
    let known = table.view().clone();
    let other = Arc::new(View { r: known.r + 1, ..known });
    table.config.view = Some(other.clone());
    table.kill(other_than(owner));
    assert!(refusals_in_5_s(&mut table) > 0);
    assert_eq!(table.config.view, Some(other));
}

#[test]
fn who_has_just_started_follows_no_view_of_another_ring_and_takes_its_number_in_its_own() {
    let mut table = Table::laid_with(0);
    let own = table.config.clone();
    let known = table.view().clone();
    let cluster = rota_model::ClusterName::parse("another").unwrap();
    let epoch = known.epoch.next().next();
    table.config.view = Some(Arc::new(View { epoch, cluster, ..known }));
    table.config.index += 7;
    let [first, ..] = NUMBERS;
    table.start(first);
    table.pass(3_000);
    assert!(!table.managers[&first].is_claimed(), "that ring is not its own");
    assert!(table.count(Transition::ViewRefused) > 0);
    assert!(table.managers[&first].view().is_none());
    table.config = own;
    table.start_all();
    table.register("n1", 7);
    opened(table.call(first, open("a", "r1")));
}

#[test]
fn a_config_store_that_holds_nothing_any_more_takes_no_nodes_away() {
    let mut table = without_copies();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r1")));
    let kept = std::mem::take(&mut table.config);
    table.config.index = kept.index + 1;
    NUMBERS.iter().for_each(|n| table.input(*n, Input::Config(table.config.clone())));
    let refusal = table.call(owner, get("a")).expect_err("the store holds nothing");
    assert_eq!(refusal.kind, RefusalKind::ConfigStoreAway);
    table.config = kept;
    table.pass(1_000);
    got(table.call(owner, get("a")));
}

#[test]
fn whoever_asks_for_a_partition_of_which_every_copy_is_down_is_told_so() {
    let mut table = without_copies();
    let owner = table.owner("a");
    opened(table.call(owner, open("a", "r1")));
    goes_down(&mut table, owner);
    table.pass(1_000);
    let call = table.ask_within(other_than(owner), get("a"), 2_000);
    let refusal = table.wait_for(call, 5_000).expect_err("its only copy is down");
    let wanted = format!("it is served again when manager m{owner} is back");
    assert!(refusal.to_string().contains(&wanted), "{refusal}");
}

#[test]
fn an_operation_whose_answer_waits_while_its_arc_is_cut_out_is_not_carried_out_again() {
    let mut table = without_copies();
    // Slots 301 to 450 go to the newcomer.
    let slot = |id: &str| rota_protocol::operate::slot_of(&name("Cart", id), M).0;
    let id = (0..).map(|it| format!("d{it}")).find(|it| (301..=450).contains(&slot(it))).unwrap();
    let owner = owner_of(&table, &id);
    table.blind = Some(owner);
    let call = table.ask(other_than(owner), op(write(&id, 1), &id));
    assert_eq!(table.count(Transition::Operated), 1);
    // Answers are lost, and the newcomer learns nothing: its arc stays where it was cut out.
    table.lose =
        Box::new(|it| matches!(it.message, Message::Answer { .. } | Message::SnapshotChunk { .. }));
    table.start_newcomer(450);
    table.pass(100);
    assert!(table.view().transition.is_some() && table.count(Transition::ArcSplit) == 0);
    table.blind = None;
    let config = table.config.clone();
    table.input(owner, Input::Config(config));
    table.pass(1_200);
    assert_eq!((table.count(Transition::ArcSplit), owner_of(&table, &id)), (1, owner));
    // Its entry manager has repeated it. Once more it would find nothing to write.
    assert_eq!(table.count(Transition::OperationRead), 0);
    table.lose = Box::new(|it| matches!(it.message, Message::SnapshotChunk { .. }));
    operated(table.wait_for(call, 3_000)).unwrap();
    assert_eq!(table.count(Transition::Operated), 1);
}

#[test]
fn an_operation_that_one_run_refused_is_asked_of_the_next_since_nobody_carries_it_out_any_more() {
    let mut table = without_copies();
    let configuration = table.view().owner_of(slot_of_spaces(M)).0;
    let owner = NUMBERS.into_iter().find(|it| *it != configuration).unwrap();
    let id = id_at(&table, owner, 0);
    // It is found again from the nodes, and one of them says nothing for a while.
    table.silent.insert("n1".into());
    goes_down(&mut table, owner);
    table.start_lost(owner);
    table.pass_until("its number", 5_000, |it| it.managers[&owner].is_claimed());
    let retried = table.count(Transition::ForwardRetried);
    let call = table.ask_within(configuration, op(write(&id, 1), &id), 60_000);
    table.pass_until("a refusal", 5_000, |it| it.count(Transition::ForwardRetried) > retried);
    goes_down(&mut table, owner);
    table.start(owner);
    table.pass_until("the next run", 5_000, |it| it.managers[&owner].is_claimed());
    table.pass(2_000);
    assert!(!table.replies.contains_key(&call), "{:?}", table.replies.get(&call));
    table.silent.clear();
    operated(table.wait_for(call, 30_000)).unwrap();
    assert_eq!(table.count(Transition::Operated), 1);
}

#[test]
fn whoever_asks_for_a_partition_whose_owner_never_started_is_told_so() {
    let mut table = Table::laid_with(0);
    let [asked, started, waited_for] = NUMBERS;
    [asked, started].into_iter().for_each(|n| table.start(n));
    table.settle();
    let id = id_at(&table, waited_for, 0);
    let stale = table.ask_within(asked, sync(&[&id], None, true), 2_000);
    let refusal = table.wait_for(stale, 5_000).expect_err("nobody has it");
    let wanted = format!("manager m{waited_for} is to own this partition, and has not started yet");
    assert!(refusal.to_string().contains(&wanted), "{refusal}");
}
