//! Every owner grants what a node has in its partition. A verdict shuts a boot out; what ran there is over for each
//! owner when its own grant is.

use crate::table::*;
use rota_model::node_msg::{Register, Renewed};
use rota_model::{NodeId, NodeState, SessionState};
use rota_protocol::{Message, Timing};
use rota_ring::slot_of_node;

/// The owner of a node, and an id whose session another one owns.
fn apart(table: &Table, node: &str) -> (u32, u32, String) {
    let slot = slot_of_node(&NodeId::parse(node).unwrap(), 1024);
    let of_node = table.view().owner_of(slot).0;
    let id = (0..).map(|n| format!("b{n}")).find(|it| table.owner(it) != of_node).unwrap();
    let owner = table.owner(&id);
    (of_node, owner, id)
}

fn state_of(table: &mut Table, owner: u32, id: &str) -> SessionState {
    got(table.call(owner, get(id))).record.state
}

fn registered(table: &Table, node: &str) -> (u64, NodeState, Option<u64>) {
    let reg = &table.config.nodes[&NodeId::parse(node).unwrap()];
    (reg.boot.0, reg.state, reg.unproven.map(|it| it.0))
}

/// Time passes, and the node renews with these alone.
fn pass_renewing(table: &mut Table, ms: u64, managers: &[u32]) {
    let until_ms = table.now_ms + ms;
    while table.now_ms < until_ms {
        managers.iter().for_each(|n| drop(table.renews(*n, "n1")));
        table.pass(1_000.min(until_ms - table.now_ms));
    }
}

/// The node renews with the owner of the session alone, until the owner of the node declares it lost.
fn pass_until_lost(table: &mut Table, owner: u32) {
    let until_ms = table.now_ms + 2 * Timing::default().node_lost_ms;
    while registered(table, "n1").1 != NodeState::Lost {
        assert!(table.now_ms < until_ms, "nobody declares it lost");
        pass_renewing(table, 1_000, &[owner]);
    }
}

#[test]
fn each_manager_grants_the_slots_that_it_owns_and_together_they_grant_all() {
    let mut table = Table::serving();
    let mut slots = 0;
    for n in NUMBERS {
        for grant in table.granted(n, "n1") {
            let (number, part) = table.view().part_of(grant.range.last);
            assert_eq!((part.owner.0, part.pe), (n, grant.pe));
            assert_eq!(grant.range, table.view().range(number));
            slots += grant.range.len(1024);
        }
    }
    assert_eq!(slots, 1024);
    // Who takes a partition over grants that, too.
    table.kill(NUMBERS[0]);
    table.pass(5_000);
    let mut granted =
        |n: u32| table.granted(n, "n1").iter().map(|it| it.range.len(1024)).sum::<u32>();
    assert_eq!(granted(NUMBERS[1]) + granted(NUMBERS[2]), 1024);
}

#[test]
fn a_session_runs_on_where_its_owner_granted_it_though_the_owner_of_its_node_heard_nothing() {
    let mut table = Table::serving();
    let (of_node, owner, id) = apart(&table, "n1");
    opened(table.call(owner, open(&id, "r1")));
    let lost_ms = Timing::default().node_lost_ms;
    pass_renewing(&mut table, lost_ms - 2_000, &[owner]);
    let newest_ms = table.now_ms - 1_000;
    while registered(&table, "n1").1 != NodeState::Lost {
        assert!(table.now_ms < newest_ms + lost_ms, "{of_node} declares it lost");
        pass_renewing(&mut table, 1_000, &[owner]);
    }
    assert!(table.granted(owner, "n1").is_empty(), "it is shut out");
    assert_eq!(
        state_of(&mut table, owner, &id),
        SessionState::Ready,
        "what was granted is not over"
    );
    table.pass(lost_ms - 4_000);
    assert_eq!(state_of(&mut table, owner, &id), SessionState::Ready);
    table.pass(4_000);
    assert_eq!(state_of(&mut table, owner, &id), SessionState::Lost);
}

#[test]
fn a_new_owner_waits_as_long_as_if_it_had_granted_when_it_began_to_serve() {
    let mut table = Table::serving();
    let (of_node, owner, id) = apart(&table, "n1");
    opened(table.call(owner, open(&id, "r1")));
    let lost_ms = Timing::default().node_lost_ms;
    pass_until_lost(&mut table, owner);
    table.kill(owner);
    table.pass_until("somebody takes over", 8_000, |it| it.owner(&id) != owner);
    let (since_ms, next) = (table.now_ms, table.owner(&id));
    table.pass(2_000);
    assert_eq!(state_of(&mut table, next, &id), SessionState::Ready, "{of_node} said LOST");
    table.pass(lost_ms - 4_000);
    assert_eq!(state_of(&mut table, next, &id), SessionState::Ready);
    table.pass(4_000);
    assert!(table.now_ms >= since_ms + lost_ms);
    assert_eq!(state_of(&mut table, next, &id), SessionState::Lost);
}

#[test]
fn a_boot_that_proves_nothing_takes_the_place_of_one_that_is_lost_and_owners_wait_all_the_same() {
    let mut table = Table::serving();
    let (_, owner, id) = apart(&table, "n1");
    opened(table.call(owner, open(&id, "r1")));
    pass_until_lost(&mut table, owner);
    let before = registered(&table, "n1").0;
    let classes = ["builtin".to_owned()];
    table.register_as("n1", before + 1, 10, &classes, |it| Register { ended_boots: vec![], ..it });
    assert_eq!(registered(&table, "n1"), (before + 1, NodeState::Ready, Some(before)));
    assert_eq!(state_of(&mut table, owner, &id), SessionState::Ready, "it may run still");
    table.pass(Timing::default().node_lost_ms);
    assert_eq!(state_of(&mut table, owner, &id), SessionState::Lost);
}

#[test]
fn what_ran_on_a_boot_whose_end_is_proved_is_lost_at_once() {
    let mut table = Table::serving();
    let (_, owner, id) = apart(&table, "n1");
    opened(table.call(owner, open(&id, "r1")));
    let before = registered(&table, "n1").0;
    table.register("n1", before + 1);
    assert_eq!(registered(&table, "n1"), (before + 1, NodeState::Ready, None));
    table.pass(100);
    assert_eq!(state_of(&mut table, owner, &id), SessionState::Lost);
}

#[test]
fn a_partition_that_stands_still_keeps_no_other_of_its_manager_from_granting() {
    let mut table = Table::serving();
    let [first, second, third] = NUMBERS;
    table.kill(first);
    table.pass(6_000);
    let both = [second, third].into_iter().find(|n| table.granted(*n, "n1").len() > 1);
    let both = both.expect("one of two owns two of three partitions");
    let stands = table.view().parts.iter().find(|(_, it)| it.owner.0 == both).unwrap().0.0;
    table.lose = Box::new(
        move |it| matches!(&it.message, Message::ReadIndex { parts, .. } if parts[0].0.0 == stands),
    );
    assert_eq!(table.renews(both, "n1"), None, "it waits for both");
    table.pass(Timing::default().renew_ms / 3 + 100);
    let Some(Renewed::Heard { grants, more: true, .. }) = table.renewed() else {
        panic!("the other one is granted");
    };
    assert_eq!(grants.len(), 1);
    assert_ne!(grants[0].range.last.0, stands);
}

#[test]
fn a_renewal_is_granted_though_its_round_takes_longer_than_the_node_waits_to_repeat_it() {
    let mut table = Table::serving();
    let owner = NUMBERS[0];
    table.lose = Box::new(|it| matches!(it.message, Message::ReadIndexConfirmed { .. }));
    for _ in 0..3 {
        assert!(table.granted(owner, "n1").is_empty());
        table.pass(700);
    }
    table.lose = Box::new(|_| false);
    table.pass(800);
    let Some(Renewed::Heard { grants, .. }) = table.renewed() else { panic!("it is answered") };
    assert!(!grants.is_empty());
}
