//! Rings for tests, made as managers make them.

use rota_model::{ClusterName, ClusterTimes, ManagerId, ManagerNumber, Nonce};
use rota_ring::{Claim, View};
use std::collections::BTreeMap;

/// The claim of a manager that never ran.
pub fn claim(number: u32, id: &str) -> Claim {
    Claim {
        number: ManagerNumber(number),
        id: ManagerId::parse(id).unwrap(),
        grpc: format!("{id}:1"),
        http: String::new(),
        held: Vec::new(),
        taken: None,
        nonce: Nonce(1),
        disk: BTreeMap::new(),
        force_lost: false,
        times: ClusterTimes { renew_ms: 1, lease_term_ms: 2, lease_kill_ms: 3, node_lost_ms: 4 },
        peer_times: rota_model::PeerTimes { heartbeat_ms: 1, suspect_ms: 4 },
    }
}

/// A ring of 1,024 slots whose managers have all started. Copies beside the owners' are not made yet.
pub fn ring(replicas: u32, managers: &[(u32, &str)]) -> View {
    let named =
        |(number, id): &(u32, &str)| (ManagerNumber(*number), ManagerId::parse(id).unwrap());
    let numbers: Vec<_> = managers.iter().map(named).collect();
    let cluster = ClusterName::parse("c").unwrap();
    let view = View::found(cluster, 1024, replicas, 100, &numbers).unwrap();
    managers.iter().fold(view, |view, (number, id)| view.claimed(&claim(*number, id)).unwrap())
}
