//! What the effects of a manager's process come to in a simulated world.

use crate::calls::what_of;
use crate::event::{Event, StoreCall};
use crate::manager_host::Caller;
use crate::network::Place;
use crate::packet::Packet;
use crate::setup::manager_address;
use crate::world::World;
use crate::writing::who_of;
use rota_docstore::Digest;
use rota_model::node_msg::{Registered, Renewed, ToNode};
use rota_model::{ManagerNumber, NewNodes, NodeId, PoolName, ProvisionerName, Refusal};
use rota_protocol::operate::Job;
use rota_protocol::{
    DiskWrite, EffectHandler, Envelope, Note, OpResult, Reply, TaskJob, Transition,
};
use rota_ring::Change;

/// The world, at one run of a manager.
pub struct AtManager<'a> {
    /// All of it.
    pub world: &'a mut World,
    /// The manager.
    pub number: ManagerNumber,
    /// Which of its processes.
    pub run: u64,
}

impl EffectHandler for AtManager<'_> {
    fn persist(&mut self, lsn: u64, writes: Vec<DiskWrite>) {
        self.world.persist(self.number, lsn, writes);
    }

    fn send(&mut self, address: String, envelope: Envelope) {
        let to = envelope.to.number;
        if address == manager_address(to) {
            self.packet(Place::Manager(to), None, Packet::Peer(envelope));
        }
    }

    fn send_to_node(&mut self, _: NodeId, address: String, message: ToNode) {
        if let Some(index) = self.world.machine_at(&address) {
            self.world.give_to_link((self.number, self.run), index, message);
        }
    }

    fn reply(&mut self, call: u64, reply: Reply) {
        let at = (self.number, self.run);
        match reply {
            Reply::Request(result) => self.reply_request(call, result),
            Reply::Registered(result) => self.reply_registered(call, result),
            Reply::Renewed(renewed) => self.reply_renewed(call, renewed),
            Reply::Ordered(result) => self.world.on_ordered(at, call, &result),
            Reply::NodeOrdered(result) => self.world.on_order_answered(at, call, &result),
        }
    }

    fn read_config(&mut self, read: u64) {
        self.ask_store(StoreCall::Read(read));
        self.packet(Place::Store, None, Packet::Read { read });
    }

    fn compare_and_set(&mut self, cas: u64, change: Box<Change>) {
        self.ask_store(StoreCall::Cas(cas));
        self.world.send_cas(self.number, Packet::Cas { cas, generation: self.run, change });
    }

    fn provision(&mut self, order: u64, nodes: Vec<NodeId>, _: NewNodes) {
        let delay_us = self.world.ground.rng.within(20_000, 800_000);
        let event = Event::Provisioned(self.number, self.run, order, nodes);
        self.world.ground.queue.after(delay_us, event);
    }

    fn clear_node(&mut self, pool: PoolName, _: ProvisionerName, node: NodeId) {
        let delay_us = self.world.ground.rng.within(20_000, 800_000);
        let event = Event::NodeCleared(self.number, self.run, pool, node);
        self.world.ground.queue.after(delay_us, event);
    }

    fn fetch_bodies(&mut self, part: ManagerNumber, bodies: Vec<Digest>) {
        self.world.fetch_bodies(self.number, self.run, part, bodies);
    }

    fn work(&mut self, work: u64, job: Box<Job>) {
        self.world.work(self.number, self.run, work, job);
    }

    fn run_task(&mut self, part: ManagerNumber, work: u64, job: Box<TaskJob>) {
        self.world.run_task(self.number, self.run, (part, work), &job);
    }

    fn task_given_up(&mut self, task: serde_json::Value) {
        let who = who_of(&task["param"]["json"]);
        self.world.ground.checker.ledger.given_up.insert(who);
    }

    fn note(&mut self, note: Note) {
        self.world.ground.counters.transition(note.transition);
        if note.transition == Transition::Claimed
            && let Some(host) = self.world.managers.get_mut(&self.number)
        {
            host.backup = Some(host.disk.durable().clone());
        }
        let line = || format!("* {} {:?} {}", note.transition.as_str(), note.part, note.text);
        let now_us = self.world.ground.queue.now_us();
        self.world.ground.trace.line(now_us, Place::Manager(self.number), line);
    }
}

impl AtManager<'_> {
    fn packet(&mut self, to: Place, only: Option<u64>, packet: Packet) {
        self.world.ground.send(Place::Manager(self.number), to, only, packet);
    }

    fn caller(&mut self, call: u64) -> Option<Caller> {
        self.world.managers.get_mut(&self.number).and_then(|it| it.callers.remove(&call))
    }

    fn reply_request(&mut self, call: u64, result: OpResult) {
        match self.caller(call) {
            Some(Caller::Client(place, call)) => {
                self.world.ground.counters.answer(what_of(&result));
                self.packet(place, None, Packet::Reply { call, result });
            }
            Some(Caller::Report(node, boot_run, id)) => {
                if result.is_ok() {
                    self.packet(Place::Node(node), Some(boot_run), Packet::ReportAcked(id));
                }
            }
            Some(Caller::Register(..) | Caller::Renew(..)) | None => {}
        }
    }

    fn reply_registered(&mut self, call: u64, result: Result<Registered, Refusal>) {
        if let Some(Caller::Register(node, boot_run, sent_mono_ms)) = self.caller(call) {
            let packet = Packet::Registered { sent_mono_ms, result };
            self.packet(Place::Node(node), Some(boot_run), packet);
        }
    }

    fn reply_renewed(&mut self, call: u64, renewed: Renewed) {
        if let Some(Caller::Renew(node, boot_run, boot, sent_mono_ms)) = self.caller(call) {
            let packet = Packet::Renewed { boot, sent_mono_ms, renewed };
            self.packet(Place::Node(node), Some(boot_run), packet);
        }
    }

    fn ask_store(&mut self, call: StoreCall) {
        if let Some(host) = self.world.managers.get_mut(&self.number) {
            host.store_calls.insert(call);
            let run = host.run;
            let patience_us = self.world.ground.rng.within(300_000, 1_500_000);
            self.world.ground.queue.after(patience_us, Event::StoreTimeout(self.number, run, call));
        }
    }
}
