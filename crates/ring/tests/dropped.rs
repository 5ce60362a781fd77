//! What is left of nodes that are gone: traces are dropped, and of all of them it stays known that they are over.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its state has failed")]

use rota_model::{BootId, NodeId, NodeState, PoolName};
use rota_ring::{Change, ConfigState, NodeChange, NodeOrder, NodeReg, NodeWish};
use std::collections::BTreeMap;

fn node(id: &str) -> NodeId {
    NodeId::parse(id).unwrap()
}

fn reg(id: &str, boot: u64, revision: u64, state: NodeState) -> NodeReg {
    NodeReg {
        node: node(id),
        boot: BootId(boot),
        unproven: None,
        address: "127.0.0.1:9".into(),
        pool: PoolName::default_pool(),
        offers: rota_model::Resources::of_places(8),
        labels: BTreeMap::new(),
        classes: Vec::new(),
        digests: BTreeMap::new(),
        facts: BTreeMap::new(),
        sandbox: None,
        renew_ms: 0,
        state,
        wish: NodeWish::Serves,
        revision,
    }
}

fn written(state: &ConfigState, change: NodeChange) -> Option<ConfigState> {
    Change { expect_epoch: None, view: None, node: Some(change) }.apply(state)
}

/// A state with these entries, written one by one.
fn with(entries: &[NodeReg]) -> ConfigState {
    let put = |state: ConfigState, reg: &NodeReg| {
        let revision = state.nodes.get(&reg.node).map_or(0, |it| it.revision);
        let reg = NodeReg { revision: revision + 1, ..reg.clone() };
        written(&state, NodeChange::to(reg)).unwrap()
    };
    entries.iter().fold(ConfigState::default(), put)
}

/// The node is forgotten, and these traces are dropped with it.
fn forgotten(state: &ConfigState, id: &str, drops: &[&str]) -> ConfigState {
    let to = state.nodes[&node(id)].ordered(NodeOrder::Forget, 0).unwrap().unwrap();
    let drops = drops.iter().map(|it| node(it)).collect();
    written(state, NodeChange { drops, ..NodeChange::to(to) }).unwrap()
}

#[test]
fn boots_of_dropped_traces_stay_over_and_a_later_one_comes_in() {
    let state = with(&[reg("a", 5, 1, NodeState::Removed), reg("b", 9, 1, NodeState::Removed)]);
    let state = forgotten(&state, "a", &["a"]);
    assert!(state.nodes.contains_key(&node("b")) && !state.nodes.contains_key(&node("a")));
    let over = |boot| state.dropped.is_over(BootId(boot));
    assert_eq!([4, 5, 6].map(over), [true, true, false]);
    assert!(state.dropped.is_proved_over(BootId(5)), "it left in good order");
    // Also one that never was here: nobody can tell it from those.
    for id in ["a", "c"] {
        let comes = |boot| written(&state, NodeChange::to(reg(id, boot, 1, NodeState::Ready)));
        assert_eq!((comes(4), comes(5)), (None, None));
        assert!(comes(6).is_some());
    }
    // One that has an entry is asked by that alone.
    let same = reg("b", 9, 2, NodeState::Removed);
    assert!(written(&state, NodeChange::to(same)).is_some());
}

#[test]
fn the_bound_only_grows_and_knows_whether_owners_may_have_to_wait() {
    let lost = [reg("a", 9, 1, NodeState::Lost), reg("b", 5, 1, NodeState::Removed)];
    let state = forgotten(&forgotten(&with(&lost), "b", &["b"]), "a", &["a"]);
    assert_eq!((state.dropped.through, state.dropped.unproven), (BootId(9), true));
    let later = with(&[reg("c", 7, 1, NodeState::Removed)]).nodes;
    let state = ConfigState { nodes: later, ..state };
    let state = forgotten(&state, "c", &["c"]);
    assert_eq!((state.dropped.through, state.dropped.unproven), (BootId(9), true));
}

#[test]
fn only_traces_are_dropped() {
    let state = with(&[reg("a", 5, 1, NodeState::Removed), reg("b", 9, 1, NodeState::Ready)]);
    let state = forgotten(&state, "a", &["b", "nobody"]);
    assert_eq!((state.nodes.len(), state.dropped.is_none()), (2, true));
}

#[test]
fn a_late_change_of_an_entry_that_was_dropped_changes_no_later_one() {
    let state = with(&[reg("a", 5, 1, NodeState::Lost)]);
    let verdict = NodeChange::to(reg("a", 5, 2, NodeState::Lost));
    let state = forgotten(&state, "a", &["a"]);
    assert_eq!(written(&state, verdict.clone()), None);
    // The node is back, and its revision is that which the late change expects.
    let state = written(&state, NodeChange::to(reg("a", 6, 1, NodeState::Ready))).unwrap();
    assert_eq!(written(&state, verdict), None);
    let own = NodeChange::to(reg("a", 6, 2, NodeState::Lost));
    assert!(written(&state, own).is_some());
}
