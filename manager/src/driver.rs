//! The one task that owns the decisions.
//!
//! ```text
//!   take an input ─▶ take what else is queued ─▶ handle each ─▶ flush once ─▶ carry out effects
//! ```
//!
//! It never waits for anything but its lanes, its disk and its clock; whatever takes time is done
//! by other tasks, which come back with an input. "Persist before answer" needs nothing here: a
//! reply is an effect that the decisions give only after the writes it promises were reported
//! durable.

mod calls;
#[cfg(test)]
mod tests;

use crate::bodies::{Bodies, Ledger};
use crate::clock::Clock;
use crate::config_link::ConfigLink;
use crate::disk::DiskWriter;
use crate::driver_state::DriverState;
use crate::events::EventLog;
use crate::mailbox::{Call, Lanes, Urgent, overloaded};
use crate::metrics::{self, Metrics};
use crate::node_link::NodeLinks;
use crate::peer::PeerLinks;
use crate::provisioner::Provisioner;
use crate::tasks::Tasks;
use crate::trace;
use crate::workers::Workers;
use calls::{Calls, WAITING_MAX};
use rota_docstore::Digest;
use rota_membership::{StoreError, Trouble};
use rota_model::node_msg::ToNode;
use rota_model::{ManagerNumber, NewNodes, NodeId, Now, PoolName, ProvisionerName, SlotId};
use rota_proto::encoded::DocBytes;
use rota_protocol::events::Event;
use rota_protocol::operate::Job;
use rota_protocol::{DiskWrite, EffectHandler, Envelope, Input, Manager, Note, Reply, TaskJob};
use rota_ring::{Change, ClaimRefused, NodeReg, View};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

/// Inputs that are handled before what they came to is sent out. Enough to fill one commit and
/// one batch per peer; more would keep the first of them waiting.
const TURN_INPUTS_MAX: usize = 512;

/// Without any timer of the decisions, the driver still looks this often.
const IDLE_MS: u64 = 1_000;

/// Where effects go.
pub struct Outputs {
    /// Towards peers.
    pub peers: PeerLinks,
    /// Towards nodes.
    pub nodes: NodeLinks,
    /// Towards the disk.
    pub disk: DiskWriter,
    /// Bodies of attachments.
    pub bodies: Bodies,
    /// Which documents on the disk name which bodies.
    pub ledger: Ledger,
    /// Towards the config store.
    pub config: ConfigLink,
    /// Towards new nodes.
    pub provisioner: Provisioner,
    /// Where operations of applications work.
    pub workers: Workers,
    /// Programs and calls of tasks.
    pub tasks: Tasks,
    /// What happened lately.
    pub events: EventLog,
    /// What is counted.
    pub metrics: Metrics,
}

/// What is left of a driver.
pub struct Ended {
    /// To be closed.
    pub disk: DiskWriter,
    /// Why this manager may not have its number.
    pub refused: Option<ClaimRefused>,
}

/// The driver.
pub struct Driver {
    manager: Manager,
    clock: Clock,
    lanes: Lanes,
    outputs: Outputs,
    calls: Calls,
    /// Of this turn: the same bytes go to copies and to the disk.
    docs: DocBytes,
    seen: watch::Sender<DriverState>,
    /// The nodes that the decisions knew last.
    nodes: Arc<BTreeMap<NodeId, NodeReg>>,
    /// The index of the config store's state that they are from.
    nodes_index: u64,
    durable: u64,
    /// The last turn found more than one input.
    busy: bool,
    alarm: Alarm,
}

/// The decisions' timer. To set tokio's timer to an earlier moment costs a system call and a
/// wake-up, so it is left alone while it rings early enough; it may ring too early.
struct Alarm {
    sleep: Pin<Box<Sleep>>,
    set_ms: u64,
}

impl Alarm {
    fn new() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), set_ms: 0 }
    }

    /// Rings at `wake_ms` at the latest.
    async fn ring(&mut self, clock: &Clock, wake_ms: u64) {
        if wake_ms < self.set_ms || self.sleep.is_elapsed() {
            self.sleep.as_mut().reset(clock.instant(wake_ms));
            self.set_ms = wake_ms;
        }
        self.sleep.as_mut().await;
    }
}

enum Next {
    Urgent(Urgent),
    Call(Call),
    Wake,
    Stop,
}

impl Driver {
    /// A driver for `manager`.
    pub fn new(
        manager: Manager,
        clock: Clock,
        lanes: Lanes,
        outputs: Outputs,
    ) -> (Self, watch::Receiver<DriverState>) {
        let (seen, seers) = watch::channel(DriverState::default());
        let calls = Calls::default();
        let alarm = Alarm::new();
        let docs = DocBytes::default();
        let driver = Self {
            manager,
            clock,
            lanes,
            outputs,
            calls,
            docs,
            seen,
            nodes: Arc::default(),
            nodes_index: 0,
            durable: 0,
            busy: false,
            alarm,
        };
        (driver, seers)
    }

    /// Runs until it is told to stop, or until its claim is refused. Gives the disk back, to be
    /// closed.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        self.turn_end(self.clock.now());
        loop {
            let next = if self.outputs.disk.has_room() {
                self.next(&stop).await
            } else {
                // Nothing is taken until the disk has caught up; if it never does, peers suspect
                // this manager, and rightly.
                tokio::select! {
                    () = stop.cancelled() => Next::Stop,
                    () = self.outputs.disk.more_durable() => continue,
                }
            };
            if matches!(next, Next::Stop) {
                return Ended { disk: self.outputs.disk, refused: None };
            }
            if self.busy {
                // What the sockets hold already comes along: larger commits, fewer frames. The
                // first turn of the runtime reads them, the second runs the handlers of what was
                // read. A lone caller has nothing to gain from it and would wait for it.
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
            self.turn(next);
            if let Some(refused) = self.manager.refused() {
                let refused = Some(refused.clone());
                return Ended { disk: self.outputs.disk, refused };
            }
        }
    }

    async fn next(&mut self, stop: &CancellationToken) -> Next {
        let now_ms = self.clock.now().mono_ms;
        let wake_at = self.manager.wake_at().unwrap_or(u64::MAX).min(now_ms + IDLE_MS);
        tokio::select! {
            biased;
            () = stop.cancelled() => Next::Stop,
            () = self.outputs.disk.more_durable() => Next::Wake,
            Some(urgent) = self.lanes.urgent.recv() => Next::Urgent(urgent),
            Some(call) = self.lanes.calls.recv() => Next::Call(call),
            () = self.alarm.ring(&self.clock, wake_at) => Next::Wake,
        }
    }

    /// Handles an input and what else waits, then carries out what they came to.
    fn turn(&mut self, first: Next) {
        let now = self.clock.now();
        let mut taken = 1;
        self.on_durable(now);
        match first {
            Next::Urgent(urgent) => self.on_urgent(now, urgent),
            Next::Call(call) => self.on_call(now, call),
            Next::Wake | Next::Stop => {}
        }
        while taken < TURN_INPUTS_MAX && !self.manager.is_batch_full() {
            let Ok(urgent) = self.lanes.urgent.try_recv() else { break };
            taken += 1;
            self.on_urgent(now, urgent);
        }
        while taken < TURN_INPUTS_MAX && !self.manager.is_batch_full() {
            let Ok(call) = self.lanes.calls.try_recv() else { break };
            taken += 1;
            self.on_call(now, call);
        }
        if self.manager.wake_at().is_some_and(|at| at <= now.mono_ms) {
            self.manager.handle(now, Input::Tick);
        }
        self.turn_end(now);
        self.busy = taken > 1;
        self.outputs.metrics.turn_inputs.record(u32::try_from(taken).unwrap_or(u32::MAX));
    }

    fn turn_end(&mut self, now: Now) {
        self.take_nodes();
        for effect in self.manager.flush(now) {
            self.carry_out(effect);
        }
        self.docs.clear();
        self.show();
    }

    fn on_durable(&mut self, now: Now) {
        let durable = self.outputs.disk.durable();
        if durable > self.durable {
            self.durable = durable;
            self.outputs.ledger.on_durable(durable);
            self.manager.handle(now, Input::Persisted { lsn: durable });
        }
    }

    fn on_urgent(&mut self, now: Now, urgent: Urgent) {
        match urgent {
            Urgent::Peer(envelopes, mut docs) => {
                self.docs.append(&mut docs);
                for envelope in envelopes {
                    trace::received(&envelope);
                    self.manager.handle(now, Input::Peer(envelope));
                }
            }
            Urgent::Node(answers) => {
                for answer in answers {
                    self.manager.handle(now, Input::Node(answer));
                }
            }
            Urgent::Register(register, reply) => {
                let call = self.calls.register(reply);
                self.manager.handle(now, Input::NodeRegister { call, register });
            }
            Urgent::Renew(renew, reply) => {
                let call = self.calls.renew(reply);
                self.manager.handle(now, Input::NodeRenew { call, renew });
            }
            Urgent::Order(order, reply) => {
                let call = self.calls.order(reply);
                self.manager.handle(now, Input::Order { call, order });
            }
            Urgent::NodeOrder(node, order, reply) => {
                let call = self.calls.node_order(reply);
                self.manager.handle(now, Input::NodeOrder { call, node, order });
            }
            Urgent::Placements(ask, reply) => {
                let _ = reply.send(self.manager.placements(&ask));
            }
            Urgent::Stats(reply) => {
                // Whoever asked may have gone.
                let _ = reply.send(self.manager.stats());
            }
            Urgent::Input(input) => {
                self.manager.handle(now, *input);
            }
        }
    }

    /// Takes over the nodes that the decisions know: they take no older state, and none of another ring.
    fn take_nodes(&mut self) {
        let (index, known) = self.manager.nodes();
        if std::mem::replace(&mut self.nodes_index, index) == index || *known == *self.nodes {
            return;
        }
        self.nodes = Arc::new(known.clone());
        metrics::know_classes(self.nodes.values().flat_map(|it| &it.classes));
        self.outputs.nodes.keep_registered(&self.nodes);
    }

    fn on_call(&mut self, now: Now, call: Call) {
        let Call { op, deadline, entered, reply, held } = call;
        drop(held);
        if !self.calls.has_room() {
            let _ = reply.send(Err(overloaded(&op, format_args!("{WAITING_MAX} calls"))));
            return;
        }
        let deadline_mono_ms = self.clock.mono_ms(deadline);
        let counted = (op.kind(), metrics::class_of(&op));
        let call = self.calls.op(counted, entered, reply);
        trace::entered(call, &op);
        self.manager.handle(now, Input::Client { call, deadline_mono_ms, op });
    }

    /// Shows the View, the membership, the nodes, their numbers and what is refused, when they changed.
    fn show(&mut self) {
        let view = self.manager.view();
        let member = self.manager.is_claimed().then(|| self.manager.member());
        let left = self.manager.has_left();
        let why = self.manager.config_refused();
        let numbers = self.manager.stable_numbers();
        let session_numbers = self.manager.session_numbers();
        let on_demand = self.manager.classes_on_demand();
        self.seen.send_if_modified(|seen| {
            let epoch = |view: Option<&Arc<View>>| view.map(|it| it.epoch);
            let same = epoch(seen.view.as_ref()) == epoch(view)
                && (seen.member, seen.left) == (member, left)
                && Arc::ptr_eq(&seen.nodes, &self.nodes)
                && Arc::ptr_eq(&seen.numbers, numbers)
                && Arc::ptr_eq(&seen.session_numbers, session_numbers)
                && Arc::ptr_eq(&seen.on_demand, on_demand)
                && seen.refused.as_ref().map(|it| &it.error) == why.map(broken).as_ref();
            if !same {
                let since = seen.refused.as_ref().map_or_else(Instant::now, |it| it.since);
                let refused = why.map(|it| Trouble { since, error: broken(it) });
                *seen = DriverState {
                    view: view.cloned(),
                    member,
                    left,
                    nodes: self.nodes.clone(),
                    on_demand: on_demand.clone(),
                    numbers: numbers.clone(),
                    session_numbers: session_numbers.clone(),
                    refused,
                };
            }
            !same
        });
    }
}

impl EffectHandler for Driver {
    fn persist(&mut self, lsn: u64, writes: Vec<DiskWrite>) {
        self.outputs.ledger.on_persist(lsn, &writes);
        self.outputs.disk.submit(lsn, &writes, &mut self.docs);
    }

    fn send(&mut self, address: String, envelope: Envelope) {
        trace::sent(&envelope);
        let dropped = self.outputs.peers.send(address, envelope, &mut self.docs);
        self.outputs.metrics.peer_dropped.increment(dropped as u64);
    }

    fn send_to_node(&mut self, node: NodeId, address: String, message: ToNode) {
        trace::asked(&node, &message);
        let dropped = self.outputs.nodes.send(node, address, message);
        self.outputs.metrics.node_dropped.increment(dropped as u64);
    }

    fn reply(&mut self, call: u64, reply: Reply) {
        self.calls.reply(call, reply, &self.outputs.metrics);
    }

    fn read_config(&mut self, read: u64) {
        self.outputs.config.read(read);
    }

    fn compare_and_set(&mut self, cas: u64, change: Box<Change>) {
        self.outputs.config.cas(cas, *change);
    }

    fn provision(&mut self, order: u64, nodes: Vec<NodeId>, new: NewNodes) {
        self.outputs.provisioner.order(order, nodes, new, self.manager.view());
    }

    fn clear_node(&mut self, pool: PoolName, provisioner: ProvisionerName, node: NodeId) {
        self.outputs.provisioner.end(pool, provisioner, node);
    }

    fn fetch_bodies(&mut self, part: ManagerNumber, bodies: Vec<Digest>) {
        // A partition's number is its last slot.
        self.outputs.bodies.fetch(SlotId(part.0), bodies);
    }

    fn work(&mut self, work: u64, job: Box<Job>) {
        self.outputs.workers.begin(work, job);
    }

    fn run_task(&mut self, part: ManagerNumber, work: u64, job: Box<TaskJob>) {
        self.outputs.tasks.run(part, work, job);
    }

    fn stop_task(&mut self, work: u64) {
        self.outputs.tasks.stop(work);
    }

    fn task_given_up(&mut self, task: serde_json::Value) {
        self.outputs.tasks.given_up(task);
    }

    fn events(&mut self, events: Vec<Event>) {
        self.outputs.events.committed(events);
    }

    fn note(&mut self, note: Note) {
        self.outputs.events.noted(&note, self.clock.now().wall_ms);
        self.outputs.metrics.step(&note);
        trace::noted(&note);
    }
}

fn broken(why: &str) -> StoreError {
    StoreError::Broken(why.to_owned())
}
