//! Which nodes managers let in.

use crate::table::*;
use rota_model::node_msg::Register;
use rota_model::{BootId, LeaseTimes, NodeId, NodeState, PoolName, RefusalKind, Retry};
use rota_protocol::Transition;

/// The registration of a boot.
fn register(node: &str, boot: u64) -> Register {
    Register {
        node: NodeId::parse(node).unwrap(),
        boot: BootId(boot),
        ended_boots: Vec::new(),
        address: format!("{node}:1"),
        pool: PoolName::default_pool(),
        offers: rota_model::Resources::of_places(4),
        labels: rota_model::Labels::new(),
        classes: Vec::new(),
        digests: std::collections::BTreeMap::new(),
        facts: std::collections::BTreeMap::new(),
        sandbox: None,
        state: NodeState::Ready,
        lease: LEASE,
        tombstone_ms: 600_000,
    }
}

#[test]
fn a_node_whose_lease_may_outlive_the_verdict_over_it_is_refused_with_both_values() {
    let mut table = Table::serving();
    for (lease, parts) in [
        (LeaseTimes { lease_kill_ms: 16_000, ..LEASE }, ["lease_kill_ms", "16000", "node_lost_ms"]),
        (
            LeaseTimes { lease_term_ms: 12_000, ..LEASE },
            ["lease_term_ms", "12000", "lease_kill_ms"],
        ),
        (LeaseTimes { renew_ms: 4_000, ..LEASE }, ["renew_ms", "4000", "lease_term_ms"]),
        (LeaseTimes { renew_ms: 0, ..LEASE }, ["renew_ms", "0 ms", "lease_term_ms"]),
        (LeaseTimes { renew_ms: u64::MAX, ..LEASE }, ["renew_ms", "8000", "lease_term_ms"]),
    ] {
        let refused = table.registers(300, Register { lease, ..register("n2", 8) }).unwrap_err();
        assert_eq!((refused.kind, refused.retry), (RefusalKind::InvalidArgument, Retry::Never));
        let text = refused.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
    }
    assert!(!table.config.nodes.contains_key(&NodeId::parse("n2").unwrap()));
    let lease = LeaseTimes { lease_kill_ms: 15_999, ..LEASE };
    assert!(table.registers(300, Register { lease, ..register("n2", 8) }).is_ok());
}

#[test]
fn a_node_that_forgets_before_a_delayed_create_is_too_old_is_refused_with_both_values() {
    let mut table = Table::serving();
    let forgetful = Register { tombstone_ms: 5_000, ..register("n2", 8) };
    let refused = table.registers(300, forgetful.clone()).unwrap_err();
    assert_eq!((refused.kind, refused.retry), (RefusalKind::InvalidArgument, Retry::Never));
    let text = refused.to_string();
    for part in ["create_deadline_ms is 5000 ms", "tombstone_ms (5000 ms)"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(table.registers(300, Register { tombstone_ms: 5_001, ..forgetful }).is_ok());
}

/// The boot that is registered.
fn registered(table: &Table, node: &str) -> (u64, NodeState) {
    let reg = &table.config.nodes[&NodeId::parse(node).unwrap()];
    (reg.boot.0, reg.state)
}

#[test]
fn a_second_agent_with_a_folder_of_its_own_does_not_take_the_first_ones_place() {
    let mut table = Table::serving();
    let second = Register { address: "elsewhere:1".into(), ..register("n1", 8) };
    let refused = table.registers(300, second.clone()).unwrap_err();
    assert_eq!((refused.kind, refused.retry), (RefusalKind::BootUnproven, Retry::AfterMs(20_000)));
    assert!(refused.to_string().starts_with("node n1 runs as boot 7 at n1:1"), "{refused}");
    // Boots of which the registry knows nothing prove nothing, nor does the same number.
    let ended_boots = vec![BootId(5), BootId(6)];
    let proves_others = Register { ended_boots, ..second.clone() };
    assert!(table.registers(600, proves_others).is_err());
    assert!(table.registers(600, Register { boot: BootId(7), ..second }).is_err());
    assert_eq!(registered(&table, "n1"), (7, NodeState::Ready));
    assert_eq!(table.count(Transition::NodeUnproven), 3);
}

#[test]
fn a_boot_that_proves_the_registered_one_comes_in_at_once_and_so_does_its_repetition() {
    let mut table = Table::serving();
    let ended_boots = vec![BootId(7), BootId(9)];
    let next = Register { ended_boots, ..register("n1", 12) };
    assert!(table.registers(300, next.clone()).is_ok());
    assert!(table.registers(600, next).is_ok(), "a repetition of what was not answered");
    assert_eq!(registered(&table, "n1"), (12, NodeState::Ready));
    let late = table.registers(300, register("n1", 9)).unwrap_err();
    assert_eq!((late.kind, late.retry), (RefusalKind::UnknownNode, Retry::Never));
}

#[test]
fn a_node_that_lost_its_folder_comes_in_once_its_boot_was_declared_lost_or_has_left() {
    let mut table = Table::serving();
    let fresh = register("n1", 8);
    assert!(table.registers(300, fresh.clone()).is_err());
    table.pass(21_000);
    assert_eq!(registered(&table, "n1"), (7, NodeState::Lost));
    assert!(table.registers(300, fresh).is_ok());
    let state = NodeState::Removed;
    assert!(table.registers(300, Register { state, ..register("n1", 8) }).is_ok());
    assert!(table.registers(300, register("n1", 9)).is_ok(), "it left with nothing running");
}

#[test]
fn nobody_loses_patience_while_no_verdict_can_come() {
    let mut table = Table::serving();
    table.store_away = true;
    assert!(table.registers(300, register("n1", 8)).is_err(), "it begins to read the store");
    let refused = table.registers(300, register("n1", 8)).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::ConfigStoreAway);
    assert!(refused.to_string().contains("boot 7"), "{refused}");
}
