//! Nodes that do not renew: the owner of each tells it who runs the ring, and declares it lost in the end.

use crate::table::*;
use rota_model::{ManagerNumber, NodeId};
use rota_protocol::{Order, Timing, Transition};

fn times_met(table: &Table) -> usize {
    table.met.len()
}

#[test]
fn a_node_that_does_not_renew_is_told_who_runs_the_ring_until_it_does_or_is_lost() {
    let mut table = Table::serving();
    let Timing { renew_ms, node_lost_ms, .. } = Timing::default();
    table.pass(renew_ms);
    assert_eq!(times_met(&table), 0, "it is not late yet");
    table.pass(renew_ms / 2);
    let met = (NodeId::parse("n1").unwrap(), table.view().epoch, NUMBERS.to_vec());
    assert_eq!(table.met, [met], "by its owner alone");
    // It hears that, and renews with everybody.
    for n in NUMBERS {
        table.renews(n, "n1");
    }
    table.pass(renew_ms);
    assert_eq!(times_met(&table), 1);
    table.pass(node_lost_ms);
    assert_eq!(table.count(Transition::NodeLost), NUMBERS.len());
    let most = usize::try_from(1 + node_lost_ms / renew_ms).unwrap();
    assert!((3..=most).contains(&times_met(&table)), "{} times", times_met(&table));
    let before = times_met(&table);
    table.pass(node_lost_ms);
    assert_eq!(times_met(&table), before, "who is lost is left alone");
}

#[test]
fn a_node_that_knows_only_managers_that_have_left_is_found_by_the_one_that_came_before_its_lease_is_over()
 {
    let mut table = Table::laid_among(&[300], 0);
    table.start_all();
    table.register("n1", 7);
    assert!(table.grants(300, "n1"));
    let granted_ms = table.now_ms;
    // Another machine takes all over, between two signs of life of the node.
    table.start_newcomer(600);
    while table.view().transition.is_some() || !table.managers[&600].is_claimed() {
        table.pass(20);
    }
    table.order(600, Order::Leave(ManagerNumber(300))).unwrap();
    while !table.managers[&300].has_left() {
        table.pass(20);
    }
    table.kill(300);
    let took_ms = table.now_ms - granted_ms;
    assert!(took_ms < Timing::default().renew_ms, "it took {took_ms} ms");
    while table.met.is_empty() {
        table.pass(20);
    }
    let (_, epoch, managers) = table.met.pop().unwrap();
    assert_eq!((epoch, managers), (table.view().epoch, vec![600]));
    assert!(table.now_ms - granted_ms < LEASE.lease_term_ms, "its lease would be over");
    assert!(table.grants(600, "n1"));
}

#[test]
fn a_node_that_is_gone_is_shown_for_an_hour_and_its_last_boot_stays_over_for_ever() {
    let mut table = Table::laid_among(&[300], 0);
    table.start_all();
    table.register("n1", 7);
    table.pass(Timing::default().node_lost_ms + 1_000);
    let shown = |table: &Table| table.managers[&300].stats().nodes.len();
    assert_eq!((table.count(Transition::NodeLost), shown(&table)), (1, 1));
    table.now_ms += 3_000_000;
    table.pass(100);
    assert_eq!(shown(&table), 1, "operators may still ask for it");
    table.now_ms += 600_000;
    table.pass(100);
    assert_eq!(shown(&table), 0);
    let node = NodeId::parse("n1").unwrap();
    let trace = &table.managers[&300].nodes().1[&node];
    assert!(trace.state.is_gone() && trace.is_forgotten() && trace.boot.0 == 7, "{trace:?}");
    table.register("n1", 8);
    assert_eq!(shown(&table), 1, "a new boot is a node again");
}
