//! Small pieces that hand-made violating examples are made of.

use crate::ledger::{Asked, Attempt, EndCause, Instance, Wish};
use rota_model::{
    BootId, ClassName, ClusterName, Epoch, LogPos, ManagerId, ManagerNumber, Namespace, NodeId,
    NodeState, Outcome, Placement, PoolName, RequestId, Seq, SessionId, SessionKey, SessionRecord,
    SessionSpec, SessionState, SessionView, Stamp, Token,
};
use rota_protocol::{Answer, OpResult};
use rota_ring::{ConfigState, NodeReg, NodeWish, View};
use std::sync::Arc;

pub fn key(id: &str) -> SessionKey {
    SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap())
}

pub fn node(id: &str) -> NodeId {
    NodeId::parse(id).unwrap()
}

/// A registry with one node, n0.
pub fn registry(index: u64, boot: u64, state: NodeState, wish: NodeWish) -> ConfigState {
    let reg = NodeReg {
        node: node("n0"),
        boot: BootId(boot),
        unproven: None,
        address: "n0:1".into(),
        pool: PoolName::default_pool(),
        offers: rota_model::Resources::of_places(1),
        labels: rota_model::Labels::new(),
        classes: Vec::new(),
        digests: std::collections::BTreeMap::new(),
        facts: std::collections::BTreeMap::new(),
        sandbox: None,
        renew_ms: 0,
        state,
        wish,
        revision: index,
    };
    ConfigState { index, nodes: [(node("n0"), reg)].into(), ..ConfigState::default() }
}

pub fn token(pe: u64, seq: u64) -> Token {
    Token(LogPos::new(Epoch(pe), Seq(seq)))
}

pub fn life(number: u64) -> Stamp {
    Stamp::from_epoch_ms(1_700_000_000_000 + number)
}

pub fn view() -> View {
    let cluster = ClusterName::parse("c").unwrap();
    let name = |text: &str| ManagerId::parse(text).unwrap();
    let numbers = [(ManagerNumber(10), name("a")), (ManagerNumber(20), name("b"))];
    View::found(cluster, 32, 1, 10, &numbers).unwrap()
}

pub fn record(id: &str, life: Stamp, state: SessionState) -> SessionRecord {
    let spec = SessionSpec {
        class: ClassName::parse("builtin").unwrap(),
        pool: PoolName::default_pool(),
        attributes: Arc::default(),
        life: None,
    };
    let placement = Placement {
        node: node("n0"),
        boot: BootId(1),
        token: token(1, life.as_u64() % 1000),
        address: "n0:1".into(),
    };
    SessionRecord {
        key: key(id),
        spec,
        life,
        version: life,
        state,
        reason: None,
        detail: String::new(),
        exit: None,
        grace_ms: None,
        placement: Some(placement),
        attributes_digest: None,
        machine_state: String::new(),
        machine_change: 0,
        requests: Vec::new(),
        lifetime: None,
    }
}

pub fn shown(id: &str, life: Stamp, state: SessionState) -> SessionView {
    let record = Arc::new(record(id, life, state));
    SessionView { record, owner: ManagerNumber(10), epoch: Epoch(1), node: None, failed_actions: 0 }
}

pub fn opened(id: &str, life: Stamp, outcome: Outcome) -> OpResult {
    let session = shown(id, life, SessionState::Ready);
    Ok(Answer::Opened { outcome, session, ended_since: false })
}

pub fn closed(id: &str, life: Stamp) -> OpResult {
    Ok(Answer::Closed { finished: true, session: shown(id, life, SessionState::Closed) })
}

pub fn got(id: &str, life: Stamp, state: SessionState) -> OpResult {
    Ok(Answer::Got { session: shown(id, life, state), stale: false })
}

pub fn asked(id: &str, wish: Wish, request: &str, tries: &[(u64, u64, OpResult)]) -> Asked {
    let attempts = tries.iter().map(|(sent_us, came_us, result)| Attempt {
        manager: ManagerNumber(10),
        sent_us: *sent_us,
        answer: Some((*came_us, result.clone())),
    });
    Asked {
        client: 0,
        key: key(id),
        wish,
        request: RequestId::parse(request).unwrap(),
        attempts: attempts.collect(),
        healed: false,
        once: false,
    }
}

pub fn instance(id: &str, at: &str, token: Token, from_us: u64, to_us: Option<u64>) -> Instance {
    Instance {
        key: key(id),
        node: node(at),
        boot: BootId(1),
        token,
        address: "n0:1".into(),
        from_us,
        change: 0,
        to: to_us.map(|it| (it, EndCause::Destroyed)),
    }
}
