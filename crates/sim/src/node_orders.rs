//! What operators order about nodes: cordon, drain, uncordon, forget; and looks at what nodes have.

use crate::calls::CallFor;
use crate::counters::Fault;
use crate::network::Place;
use crate::node_host::NodeHost;
use crate::orders::ask_some_manager;
use crate::setup::CLIENT_DEADLINE_MS_MAX;
use crate::world::World;
use rota_model::{MendOp, NodeId};
use rota_protocol::{Input, Op};
use rota_ring::{DrainTime, NodeOrder, NodeReg};

/// Somebody orders that nothing more is placed on some node.
pub(crate) fn order_cordon(world: &mut World, fault: Fault) {
    if let Some(node) = some_registered(world) {
        give_node_order(world, fault, node, NodeOrder::Cordon);
    }
}

/// Somebody has all nodes forgotten that are gone.
pub(crate) fn order_forget(world: &mut World, fault: Fault) {
    let is_gone = |it: &&NodeReg| it.state.is_gone() && !it.is_forgotten();
    let gone = world.store.state().nodes.values().filter(is_gone);
    for node in gone.map(|it| it.node.clone()).collect::<Vec<_>>() {
        give_node_order(world, fault, node, NodeOrder::Forget);
    }
}

/// Somebody orders that some node becomes empty, mostly at once.
pub(crate) fn order_drain(world: &mut World, fault: Fault) {
    let time = match world.ground.rng.within(0, 9) {
        0 => DrainTime::Unlimited,
        1..=3 => DrainTime::Ms(world.ground.rng.within(0, 3_000)),
        4 => DrainTime::Force,
        _ => DrainTime::AsBefore,
    };
    let replaces = world.ground.rng.permille(200);
    let order = if replaces { NodeOrder::Replace(time) } else { NodeOrder::Drain(time) };
    if let Some(node) = some_registered(world) {
        give_node_order(world, fault, node, order);
    }
}

/// Somebody lets all nodes take sessions again.
pub(crate) fn order_uncordon(world: &mut World, fault: Fault) {
    for node in cordoned(world) {
        give_node_order(world, fault, node, NodeOrder::Uncordon);
    }
}

/// Somebody has the owners of some sessions look at what a node has of them, mostly one that runs them.
pub(crate) fn order_mends(world: &mut World, fault: Fault) {
    for _ in 0..world.ground.rng.within(1, 6) {
        let Some(any) = some_registered(world) else { return };
        let key = world.ground.rng.pick(&world.ground.setup.keys).clone();
        let runs = |host: &&NodeHost| {
            let agent = host.agent.as_ref();
            agent.is_some_and(|it| !it.live_of(std::slice::from_ref(&key)).is_empty())
        };
        let at = world.nodes.iter().find(runs).map(|it| it.id.clone());
        let node = at.filter(|_| world.ground.rng.permille(700)).unwrap_or(any);
        let (through, dry_run) = (world.ground.some_manager(), world.ground.rng.permille(100));
        let deadline_ms = world.ground.rng.within(200, CLIENT_DEADLINE_MS_MAX);
        if world.ground.is_there(Place::Manager(through)) {
            world.ground.took_effect(fault);
        }
        let op = Op::Mend(MendOp { key, node, dry_run });
        world.ground.call(through, CallFor::Mend, Place::Client(0), deadline_ms, op);
    }
}

fn some_registered(world: &mut World) -> Option<NodeId> {
    let nodes: Vec<NodeId> = world.store.state().nodes.keys().cloned().collect();
    (!nodes.is_empty()).then(|| world.ground.rng.pick(&nodes).clone())
}

/// Nodes of which operators want something.
fn cordoned(world: &World) -> Vec<NodeId> {
    let nodes = world.store.state().nodes.values().filter(|it| !it.wish.is_none());
    nodes.map(|it| it.node.clone()).collect()
}

fn give_node_order(world: &mut World, fault: Fault, node: NodeId, order: NodeOrder) {
    let what = format!("{order:?} of {node}");
    ask_some_manager(world, fault, &what, |call| Input::NodeOrder { call, node, order });
}
