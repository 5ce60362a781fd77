//! Disturbances: what goes wrong, when, and for how long. Only what meets somebody counts: a cut
//! with the first message that it stops, a slow disk with the first sync, a kill of who runs.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::fault::Begin::{OfMachines, OfNetwork};
use crate::ground::Ground;
use crate::losses::lose_machines;
use crate::manager_host::ManagerHost;
use crate::network::{NetworkProfile, Place};
use crate::node_host::Folder;
use crate::node_orders::{order_cordon, order_drain, order_forget, order_mends, order_uncordon};
use crate::orders::{order_cancel, order_leave, return_manager};
use crate::setup::{manager_address, node_address};
use crate::site::AtNode;
use crate::world::World;
use rota_model::ManagerNumber;
use rota_node::Node;
use rota_protocol::Input;
use std::collections::BTreeSet;

/// Begins a disturbance.
enum Begin {
    /// Of what passes between machines.
    OfNetwork(fn(&mut Ground, Fault)),
    /// Of machines, or something that operators order.
    OfMachines(fn(&mut World, Fault)),
}

/// Disturbances and how often each is drawn.
const MENU: &[(u64, Fault, Begin)] = &[
    (12, Fault::ManagerCrash, OfMachines(crash_one)),
    (2, Fault::ClusterCrash, OfMachines(crash_all)),
    (3, Fault::MachinesLost, OfMachines(lose_machines)),
    (9, Fault::ManagerJoins, OfMachines(start_newcomer)),
    (11, Fault::ManagerLeaves, OfMachines(order_leave)),
    (4, Fault::TransitionCancelled, OfMachines(order_cancel)),
    (8, Fault::ManagerReturns, OfMachines(return_manager)),
    (2, Fault::NodeCordoned, OfMachines(order_cordon)),
    (5, Fault::NodeDrained, OfMachines(order_drain)),
    (6, Fault::NodeUncordoned, OfMachines(order_uncordon)),
    (10, Fault::NodeForgotten, OfMachines(order_forget)),
    (8, Fault::MendOrdered, OfMachines(order_mends)),
    (8, Fault::ManagerPause, OfMachines(pause_manager)),
    (8, Fault::FalseSuspicion, OfMachines(suspect_falsely)),
    (8, Fault::Partition, OfNetwork(Ground::split)),
    (7, Fault::OneWayPartition, OfNetwork(Ground::split)),
    (9, Fault::ManagerIsolated, OfNetwork(Ground::isolate_manager)),
    (6, Fault::BadNetworkProfile, OfNetwork(Ground::spoil_network_profile)),
    (4, Fault::StoreAway, OfNetwork(Ground::hide_store_from_one)),
    (3, Fault::StoreUnheard, OfNetwork(Ground::hide_one_from_store)),
    (4, Fault::PeersAway, OfNetwork(Ground::hide_peers_from_one)),
    (2, Fault::StoreDown, OfNetwork(Ground::hide_store)),
    (4, Fault::NodeIsolated, OfNetwork(Ground::isolate_node)),
    (4, Fault::NodeApart, OfMachines(part_node)),
    (5, Fault::NodeRestart, OfMachines(restart_node)),
    (3, Fault::NodeCrash, OfMachines(crash_node)),
    (5, Fault::AgentRestart, OfMachines(restart_agent)),
    (4, Fault::NodePause, OfMachines(pause_node)),
    (2, Fault::NodeLeave, OfMachines(leave_node)),
    (2, Fault::FolderLost, OfMachines(lose_folder)),
    (2, Fault::NodeTwin, OfMachines(start_twin)),
    (4, Fault::StreamReset, OfNetwork(Ground::reset_stream)),
    (4, Fault::ClockStep, OfMachines(step_clock)),
    (5, Fault::SlowDisk, OfMachines(slow_disk)),
];

/// The next disturbance, and when the one after it comes.
pub fn on_disturb(world: &mut World) {
    if world.ground.phase != Phase::Chaos {
        return;
    }
    let total: u64 = MENU.iter().map(|(weight, _, _)| weight).sum();
    let mut draw = world.ground.rng.within(0, total - 1);
    for (weight, fault, begin) in MENU {
        if let Some(rest) = draw.checked_sub(*weight) {
            draw = rest;
            continue;
        }
        let line = || format!("=== {} ===", fault.as_str());
        world.ground.trace.line(world.ground.queue.now_us(), Place::Store, line);
        match begin {
            OfNetwork(begin) => begin(&mut world.ground, *fault),
            OfMachines(begin) => begin(world, *fault),
        }
        break;
    }
    let pause_us = world.ground.rng.within(20, world.ground.setup.calm_ms_max) * 1000;
    world.ground.queue.after(pause_us, Event::Disturb);
}

fn crash_one(world: &mut World, _: Fault) {
    let number = world.ground.some_manager();
    // The crash itself is counted where it happens, whatever its cause.
    world.ground.disturbed += u64::from(world.ground.is_there(Place::Manager(number)));
    crash_for_a_while(world, number);
}

fn crash_all(world: &mut World, fault: Fault) {
    let all = world.ground.machines.managers();
    // With one left to die it is the crash of one.
    match all.iter().filter(|it| world.ground.is_there(Place::Manager(**it))).count() {
        0 => {}
        1 => world.ground.disturbed += 1,
        _ => world.ground.took_effect(fault),
    }
    for number in all {
        crash_for_a_while(world, number);
    }
}

/// The next newcomer, if one is left, begins to join. From now on everything may happen to it
/// that happens to managers.
fn start_newcomer(world: &mut World, fault: Fault) {
    let Some((number, id)) = world.ground.machines.newcomers.pop() else { return };
    let config = world.ground.setup.manager_config(number, &id);
    let mut host = ManagerHost::new(config);
    host.joins = true;
    world.add_manager(number, host);
    world.ground.machines.numbers.push((number, id));
    world.at_manager(number, |at| at.start());
    world.ground.took_effect(fault);
}

fn slow_disk(world: &mut World, _: Fault) {
    let (number, length_us) = (world.ground.some_manager(), world.ground.length_us());
    let until_us = world.ground.now_us() + length_us;
    if let Some(host) = world.managers.get_mut(&number) {
        host.slow_disk_until_us = until_us;
        host.slow_disk_felt = false;
    }
}

fn crash_for_a_while(world: &mut World, number: ManagerNumber) {
    let Some(mut at) = world.manager(number) else { return };
    at.crash();
    let length_us = at.ground.length_us();
    at.ground.queue.after(length_us, Event::StartManager(number));
}

fn pause_manager(world: &mut World, fault: Fault) {
    let (number, length_us) = (world.ground.some_manager(), world.ground.length_us());
    let until_us = world.ground.now_us() + length_us;
    let host = world.managers.get_mut(&number).filter(|it| it.process.is_some());
    if let Some(host) = host.filter(|it| it.paused_until_us < until_us) {
        host.paused_until_us = until_us;
        let run = host.run;
        world.ground.checker.deadlines.on_paused(number, run, until_us);
        world.ground.took_effect(fault);
    }
}

fn suspect_falsely(world: &mut World, fault: Fault) {
    let (accuser, accused) = (world.ground.some_manager(), world.ground.some_manager());
    let process = world.managers.get(&accused).and_then(|it| it.process.as_ref());
    let Some(member) = process.map(|it| it.member()) else { return };
    if accuser != accused && world.ground.is_there(Place::Manager(accuser)) {
        world.ground.took_effect(fault);
        world.ground.tell_later(accuser, 0, Input::Signal { member });
        let (number, address) = (accused, manager_address(accused));
        world.ground.tell_later(accuser, 0, Input::PeerRefused { number, address });
    }
}

/// Mostly the owner of its slot: that one declares it lost, and others grant it leases until they see that.
fn part_node(world: &mut World, fault: Fault) {
    let index = world.ground.rng.index(world.nodes.len());
    let any = world.ground.some_manager();
    let view = world.store.state().view.clone().filter(|_| world.ground.rng.permille(700));
    let owner = view
        .zip(world.nodes.get(index))
        .map(|(view, host)| view.owner_of(rota_ring::slot_of_node(&host.id, view.m)));
    let to = BTreeSet::from([Place::Manager(owner.unwrap_or(any))]);
    world.ground.cut(fault, BTreeSet::from([Place::Node(index)]), to, true);
}

fn restart_node(world: &mut World, fault: Fault) {
    let length_us = world.ground.rng.within(1_000, 400_000);
    kill_for(world, fault, length_us);
}

fn crash_node(world: &mut World, fault: Fault) {
    let length_us = world.ground.setup.timing.node_lost_ms * 1000 + world.ground.length_us();
    kill_for(world, fault, length_us);
}

fn kill_for(world: &mut World, fault: Fault, length_us: u64) {
    let index = world.ground.rng.index(world.nodes.len());
    let Some(mut at) = world.node(index).filter(|it| it.host.agent.is_some()) else { return };
    at.ground.took_effect(fault);
    at.kill();
    at.ground.queue.after(length_us, Event::BootNode(index));
}

fn leave_node(world: &mut World, fault: Fault) {
    let index = world.ground.rng.index(world.nodes.len());
    let Some(mut at) = world.node(index) else { return };
    if at.host.paused_until(at.ground.now_us()).is_none() && at.ask_to_leave() {
        at.ground.took_effect(fault);
    }
}

fn pause_node(world: &mut World, fault: Fault) {
    let (index, length_us) = (world.ground.rng.index(world.nodes.len()), world.ground.length_us());
    let until_us = world.ground.now_us() + length_us;
    let host = world.nodes.get_mut(index).filter(|it| it.agent.is_some());
    if let Some(host) = host.filter(|it| it.paused_until_us < until_us) {
        host.paused_until_us = until_us;
        world.ground.took_effect(fault);
    }
}

fn step_clock(world: &mut World, fault: Fault) {
    if !world.ground.setup.clocks_step {
        return;
    }
    let (number, ahead_ms) =
        (world.ground.some_manager(), world.ground.rng.within(40_000, 160_000));
    if let Some(host) = world.managers.get_mut(&number) {
        let stepped = host.process.is_some() && host.wall_ahead_ms != ahead_ms;
        host.wall_ahead_ms = ahead_ms;
        if stepped {
            world.ground.took_effect(fault);
        }
    }
}

/// Ends every disturbance and brings everybody back. Who is paused comes back by itself.
pub fn heal(world: &mut World) {
    world.ground.network.calm_all();
    world.ground.network.stragglers = false;
    world.ground.network.base = NetworkProfile { loss_permille: 0, ..world.ground.network.base };
    for number in world.ground.machines.managers() {
        if let Some(host) = world.managers.get_mut(&number) {
            host.slow_disk_until_us = 0;
            host.away = false;
        }
        world.ground.queue.after(1_000, Event::StartManager(number));
    }
    // Every second agent ends for good.
    for index in 0..world.nodes.len() {
        if let Some(mut at) = world.node(index).filter(AtNode::is_twin) {
            at.kill();
        }
    }
    for (index, host) in world.nodes.iter_mut().enumerate() {
        host.registered_lost_until_us = 0;
        host.dies_next = false;
        if let Some(node) = world.ground.machines.node_mut(index) {
            node.refuses_until_us = 0;
        }
        if host.agent.is_none() {
            world.ground.queue.after(1_000, Event::BootNode(index));
        } else {
            world.ground.connect_node(index);
        }
    }
}

/// An agent dies now, or with the next thing that it writes down; another one comes.
fn restart_agent(world: &mut World, fault: Fault) {
    let index = world.ground.rng.index(world.nodes.len());
    let torn = world.ground.rng.permille(500);
    let registered = |it: &AtNode<'_>| it.host.agent.as_ref().is_some_and(Node::is_registered);
    let Some(mut at) = world.node(index).filter(registered) else { return };
    at.host.dies_next = torn;
    at.ground.took_effect(fault);
    if !torn {
        at.kill_agent();
    }
}

/// A node dies, and comes back with a fresh folder, some on a machine whose clock is behind.
fn lose_folder(world: &mut World, fault: Fault) {
    let index = world.ground.rng.index(world.nodes.len());
    let behind = world.ground.rng.permille(300).then_some(1);
    // Mostly before its boot is lost, and always before some node has anything else to do.
    let away_us = world.ground.rng.within(1_000, world.ground.setup.timing.node_lost_ms * 500);
    let Some(mut at) = world.node(index).filter(|it| it.host.agent.is_some()) else { return };
    at.ground.took_effect(fault);
    at.kill();
    at.host.folder = Folder::fresh(behind);
    at.ground.queue.after(away_us, Event::BootNode(index));
}

/// A second agent under one id starts, on a machine of its own, and works for a while: every other time
/// with a copy of the first one's folder.
fn start_twin(world: &mut World, fault: Fault) {
    let index = world.ground.rng.index(world.nodes.len());
    let id = world.nodes[index].id.clone();
    let address = format!("twin-of-{}", node_address(&id));
    let lost_us = world.ground.setup.timing.node_lost_ms * 1000;
    let length_us = world.ground.rng.within(lost_us / 4, lost_us * 4);
    let twin = world.ground.machines.at_address(&address);
    let twin = twin.unwrap_or_else(|| world.add_machine(id, address));
    let folder = world.nodes[index].folder.clone();
    let Some(mut at) = world.node(twin).filter(|it| it.host.agent.is_none()) else { return };
    at.ground.took_effect(fault);
    if length_us.is_multiple_of(2) {
        at.host.folder = folder;
        at.ground.counters.fault(Fault::FolderCopied);
    }
    at.boot();
    let event = Event::Retire(twin, at.host.run);
    at.ground.queue.after(length_us, event);
}
