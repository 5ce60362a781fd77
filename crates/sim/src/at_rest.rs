//! What a cluster has still to do, and what is still to happen in it. Nothing may be left of that when a settled cluster
//! is looked at.

use crate::ledger::Fired;
use crate::manager_host::ManagerHost;
use crate::node_host::NodeHost;
use crate::setup::{ACTS, node_address};
use crate::world::World;
use crate::writing::who_of;
use rota_lifecycle::Managed;
use rota_model::{ManagerNumber, NodeId, SessionKey, Stamp};
use rota_node::Node;
use rota_protocol::life_documents::{life_session, managed_in};
use rota_protocol::operate;
use rota_protocol::task_records::{Param, Task, TaskState};
use rota_ring::NodeReg;

/// Whether an order waits at a process that runs.
pub(crate) fn has_orders(world: &World) -> bool {
    world.managers.values().any(|it| !it.waiting.orders.is_empty())
}

/// The first manager of the ring that has not taken its number.
pub(crate) fn unclaimed(world: &World) -> Option<ManagerNumber> {
    let mut numbers = world.ground.machines.numbers.iter().map(|it| it.0);
    let is_in = |it: &ManagerNumber| world.managers.get(it).is_some_and(ManagerHost::is_claimed);
    numbers.find(|it| !is_in(it))
}

/// The first machine whose agent did not get in, among those that stay.
pub(crate) fn outside(world: &World) -> Option<String> {
    let mut stay = world.nodes.iter().zip(world.ground.machines.nodes());
    let is_in = |host: &NodeHost| host.agent.as_ref().is_some_and(Node::is_registered);
    let out = stay.find(|(host, it)| it.address == node_address(&it.id) && !is_in(host));
    out.map(|(host, _)| format!("{} {:?} is not registered", host.id, host.boot))
}

/// The first machine that is still ending something, or has news that no manager acknowledged.
/// What is ending is rightly said to be live until it has ended.
pub(crate) fn restless(world: &World) -> Option<String> {
    world.nodes.iter().find_map(|host| {
        let agent = host.agent.as_ref()?;
        if let Some(ending) = agent.live().find(|it| it.phase == rota_node::Phase::Stopping) {
            return Some(format!("{} is ending {}", host.id, ending.key));
        }
        let news = agent.outbox_sessions();
        (news > 0).then(|| format!("{} has news of {news} sessions", host.id))
    })
}

/// Nodes that should be empty by now, whichever manager's wall clock is asked. What is only waited for may run on.
pub(crate) fn drained(world: &World) -> Vec<NodeId> {
    let now_us = world.ground.now_us();
    let walls = world.managers.values().map(|it| it.wall_ms(now_us));
    let wall_ms = walls.min().unwrap_or_default();
    let disturb = world.ground.setup.disturb;
    let closes = |reg: &&NodeReg| reg.closes(wall_ms).is_some_and(|it| !it.spares(disturb));
    let nodes = world.store.state().nodes.values().filter(closes);
    nodes.map(|it| it.node.clone()).collect()
}

/// The tasks on the disks of those who own them: which have nothing to wait for.
fn tasks(world: &World) -> Vec<(Task, bool)> {
    let Some(view) = &world.store.state().view else { return Vec::new() };
    let mut tasks = Vec::new();
    for (number, host) in &world.managers {
        let now = Stamp::from_epoch_ms(host.wall_ms(world.ground.now_us()));
        for (key, doc) in &host.disk.durable().docs {
            let is_owned = view.part_of(key.slot).1.owner == *number;
            let doc = doc.of_application().filter(|_| is_owned);
            let Some(task) = doc.and_then(|it| operate::task_of(it)) else { continue };
            // The clock of a former owner was ahead: its start is still to come.
            let comes_later = task.start_at.is_some_and(|it| it > now.plus_ms(1_000));
            let rests = match task.state() {
                TaskState::Parked => true,
                TaskState::Waiting | TaskState::Lost => comes_later,
                TaskState::Running | TaskState::Paused => false,
            };
            tasks.push((task, rests));
        }
    }
    tasks
}

/// Whether a task that runs an action of a session again has not been given up.
pub(crate) fn actions_are_tried_again(world: &World) -> bool {
    let is_parked = |it: &Task| it.state() == TaskState::Parked;
    tasks(world).iter().any(|(it, _)| it.op_name == "session.action" && !is_parked(it))
}

/// A task that waits or runs.
pub(crate) fn task_waits(world: &World) -> Option<String> {
    let mut all = tasks(world).into_iter();
    let waiting = all.find(|it| !it.1).map(|it| it.0);
    waiting.map(|it| format!("task {} is {:?}", it.docid(), it.state()))
}

/// No task waits any more. Those that were given up stay; of some nobody was told, as their owner died then.
pub(crate) fn note_tasks_done(world: &mut World) {
    let who = |(task, _): (Task, bool)| match task.param {
        Param::Json(value) => who_of(&value),
        Param::Document(docid) => docid,
    };
    let resting: Vec<String> = tasks(world).into_iter().map(who).collect();
    world.ground.checker.ledger.tasks.given_up.extend(resting);
    world.ground.checker.ledger.tasks.done_us = world.ground.now_us();
}

/// The life cycles of every partition, as their owners hold them.
fn life_cycles(world: &World) -> Vec<(SessionKey, Managed, Stamp)> {
    let Some(view) = &world.store.state().view else { return Vec::new() };
    let mut found = Vec::new();
    for (number, host) in &world.managers {
        let now = Stamp::from_epoch_ms(host.wall_ms(world.ground.now_us()));
        for (key, doc) in &host.disk.durable().docs {
            if view.part_of(key.slot).1.owner != *number {
                continue;
            }
            let session = life_session(&key.name);
            found.extend(session.zip(managed_in(doc)).map(|(it, managed)| (it, managed, now)));
        }
    }
    found
}

fn session_runs(world: &World, key: &SessionKey) -> bool {
    let instances = &world.ground.checker.ledger.instances;
    instances.iter().any(|it| it.key == *key && it.to.is_none())
}

/// Something that is due and has not fired, of a session that runs, at the end.
pub(crate) fn event_waits(world: &World) -> Option<String> {
    let mut all = life_cycles(world).into_iter().filter(|(_, managed, _)| !managed.has_ended());
    all.find_map(|(key, managed, now)| {
        let due = managed.due(now.minus_ms(500)).into_iter().next()?;
        let text = format!("{} {} of {key} is due and has not fired", due.life_cycle, due.word);
        session_runs(world, &key).then_some(text)
    })
}

/// Whether an event of a session that runs is still to fire, or its action to be tried again.
pub(crate) fn events_come(world: &World) -> bool {
    let comes = |managed: &Managed| !managed.has_ended() && managed.next_at().is_some();
    let events =
        life_cycles(world).iter().any(|(key, it, _)| comes(it) && session_runs(world, key));
    events || actions_are_tried_again(world)
}

/// What actions have succeeded, as life cycles say at the end.
pub(crate) fn note_fired(world: &mut World) {
    let all = life_cycles(world);
    let fired = all.iter().flat_map(|(key, managed, _)| {
        let held = managed.items().filter(|(_, it)| it.fired.is_some()).map(|it| it.0);
        let past = managed.history().iter().filter(|it| it.fired.is_some()).map(|it| &it.item);
        let items = held.chain(past).filter(|it| it.life_cycle().as_str() == ACTS);
        items.map(|it| Fired { key: key.clone(), word: it.last().to_string() })
    });
    world.ground.checker.ledger.actions.fired = fired.collect();
}
