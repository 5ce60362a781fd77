//! What operators order: that a number leaves, that a transition is taken back, that a number which has
//! left returns.

use crate::counters::Fault;
use crate::manager_host::ManagerHost;
use crate::manager_orders::ORDER_US;
use crate::network::STRAGGLER_US_MAX;
use crate::world::World;
use rota_protocol::{Input, Order};

/// Somebody orders that some number leaves, mostly one that is up.
pub(crate) fn order_leave(world: &mut World, fault: Fault) {
    let number = world.ground.some_manager();
    give_order(world, fault, Order::Leave(number));
}

/// Somebody takes back whatever is under way.
pub(crate) fn order_cancel(world: &mut World, fault: Fault) {
    if world.store.state().view.as_ref().is_some_and(|view| view.transition.is_some()) {
        let until_us = world.ground.now_us() + ORDER_US + STRAGGLER_US_MAX;
        world.ground.checker.on_cancel_ordered(until_us);
        give_order(world, fault, Order::Cancel(None));
    }
}

fn give_order(world: &mut World, fault: Fault, order: Order) {
    let what = format!("{order:?}");
    ask_some_manager(world, fault, &what, |call| Input::Order { call, order });
}

/// Somebody asks some manager for something, if that one runs.
pub(crate) fn ask_some_manager(
    world: &mut World,
    fault: Fault,
    what: &str,
    input: impl FnOnce(u64) -> Input,
) {
    let (through, call) = (world.ground.some_manager(), world.ground.name());
    if let Some(mut at) = world.manager(through) {
        at.is_ordered(fault, call, what, input(call));
    }
}

/// A number that has left is told to come into the ring again, some with an empty disk.
pub(crate) fn return_manager(world: &mut World, fault: Fault) {
    let is_away = |host: &ManagerHost| host.process.is_none();
    let gone = &world.ground.machines.gone;
    let index = gone.iter().position(|it| world.managers.get(&it.0).is_some_and(is_away));
    let Some(index) = index else { return };
    let (number, id) = world.ground.machines.gone.remove(index);
    let is_empty = world.ground.rng.permille(500);
    let Some(mut at) = world.manager(number) else { return };
    (at.host.joins, at.host.told) = (true, true);
    if is_empty {
        at.host.empty();
    }
    at.ground.machines.numbers.push((number, id));
    at.start();
    world.ground.took_effect(fault);
}
