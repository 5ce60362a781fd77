//! Which nodes managers let in.

#![allow(clippy::unwrap_used, reason = "a test that cannot ask has failed")]

mod table;

use rota_model::node_msg::Register;
use rota_model::{BootId, LeaseTimes, NodeId, NodeState, PoolName, RefusalKind, Retry};
use table::*;

/// The registration of a boot.
fn register(node: &str, boot: u64) -> Register {
    Register {
        node: NodeId::parse(node).unwrap(),
        boot: BootId(boot),
        address: format!("{node}:1"),
        pool: PoolName::default_pool(),
        places: 4,
        classes: Vec::new(),
        state: NodeState::Ready,
        lease: LEASE,
    }
}

#[test]
fn a_node_whose_lease_may_outlive_the_verdict_over_it_is_refused_with_both_values() {
    let mut table = Table::serving();
    for (lease, parts) in [
        (LeaseTimes { lease_kill_ms: 20_000, ..LEASE }, ["lease_kill_ms", "20000", "node_lost_ms"]),
        (
            LeaseTimes { lease_term_ms: 12_000, ..LEASE },
            ["lease_term_ms", "12000", "lease_kill_ms"],
        ),
        (LeaseTimes { renew_ms: 4_000, ..LEASE }, ["renew_ms", "8000", "lease_term_ms"]),
        (LeaseTimes { renew_ms: 0, ..LEASE }, ["renew_ms", "0 ms", "lease_term_ms"]),
        (LeaseTimes { renew_ms: u64::MAX, ..LEASE }, ["renew_ms", "8000", "lease_term_ms"]),
    ] {
        let refused = table.registers(300, Register { lease, ..register("n2", 8) }).unwrap_err();
        assert_eq!((refused.kind, refused.retry), (RefusalKind::InvalidArgument, Retry::Never));
        let text = refused.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
    }
    assert!(!table.config.nodes.contains_key(&NodeId::parse("n2").unwrap()));
    let lease = LeaseTimes { lease_kill_ms: 19_999, ..LEASE };
    assert!(table.registers(300, Register { lease, ..register("n2", 8) }).is_ok());
}
