//! What the effects of a manager's process come to in a simulated world.

use crate::calls::what_of;
use crate::event::{Event, StoreCall};
use crate::manager_host::Caller;
use crate::network::Place;
use crate::packet::Packet;
use crate::setup::manager_address;
use crate::site::AtManager;
use crate::writing::who_of;
use rota_docstore::Digest;
use rota_model::node_msg::{Registered, Renewed, ToNode};
use rota_model::{ManagerNumber, NewNodes, NodeId, PoolName, ProvisionerName, Refusal};
use rota_protocol::operate::Job;
use rota_protocol::{
    DiskWrite, EffectHandler, Envelope, Note, OpResult, Reply, TaskJob, Transition,
};
use rota_ring::Change;

impl EffectHandler for AtManager<'_> {
    fn persist(&mut self, lsn: u64, writes: Vec<DiskWrite>) {
        self.write_batch(lsn, writes);
    }

    fn send(&mut self, address: String, envelope: Envelope) {
        let to = envelope.to.number;
        if address == manager_address(to) {
            self.packet(Place::Manager(to), None, Packet::Peer(envelope));
        }
    }

    fn send_to_node(&mut self, _: NodeId, address: String, message: ToNode) {
        if let Some(index) = self.ground.machines.at_address(&address) {
            self.give_to_link(index, message);
        }
    }

    fn reply(&mut self, call: u64, reply: Reply) {
        match reply {
            Reply::Request(result) => self.reply_request(call, result),
            Reply::Registered(result) => self.reply_registered(call, result),
            Reply::Renewed(renewed) => self.reply_renewed(call, renewed),
            Reply::Ordered(result) => self.on_ordered(call, &result),
            Reply::NodeOrdered(result) => self.on_order_answered(call, &result),
        }
    }

    fn read_config(&mut self, read: u64) {
        self.ask_store(StoreCall::Read(read));
        self.packet(Place::Store, None, Packet::Read { read });
    }

    fn compare_and_set(&mut self, cas: u64, change: Box<Change>) {
        self.ask_store(StoreCall::Cas(cas));
        self.send_cas(Packet::Cas { cas, generation: self.host.run, change });
    }

    fn provision(&mut self, order: u64, nodes: Vec<NodeId>, _: NewNodes) {
        let delay_us = self.ground.rng.within(20_000, 800_000);
        let event = Event::Provisioned(self.number, self.host.run, order, nodes);
        self.ground.queue.after(delay_us, event);
    }

    fn clear_node(&mut self, pool: PoolName, _: ProvisionerName, node: NodeId) {
        let delay_us = self.ground.rng.within(20_000, 800_000);
        let event = Event::NodeCleared(self.number, self.host.run, pool, node);
        self.ground.queue.after(delay_us, event);
    }

    fn fetch_bodies(&mut self, part: ManagerNumber, bodies: Vec<Digest>) {
        let delay_us = self.ground.rng.skewed(1_000, 300_000);
        let event = Event::Fetched(self.number, self.host.run, part, bodies);
        self.ground.queue.after(delay_us, event);
    }

    fn work(&mut self, work: u64, job: Box<Job>) {
        self.give_to_worker(work, job);
    }

    fn run_task(&mut self, part: ManagerNumber, work: u64, job: Box<TaskJob>) {
        self.run_program_of((part, work), &job);
    }

    fn task_given_up(&mut self, task: serde_json::Value) {
        let who = who_of(&task["param"]["json"]);
        self.ground.checker.ledger.tasks.given_up.insert(who);
    }

    fn note(&mut self, note: Note) {
        self.ground.counters.transition(note.transition);
        if note.transition == Transition::Claimed {
            self.host.past.backup = Some(self.host.disk.durable().clone());
        }
        let line = || format!("* {} {:?} {}", note.transition.as_str(), note.part, note.text);
        let now_us = self.ground.queue.now_us();
        self.ground.trace.line(now_us, self.place(), line);
    }
}

impl AtManager<'_> {
    fn packet(&mut self, to: Place, only: Option<u64>, packet: Packet) {
        self.ground.send(self.place(), to, only, packet);
    }

    fn caller(&mut self, call: u64) -> Option<Caller> {
        self.host.waiting.callers.remove(&call)
    }

    fn reply_request(&mut self, call: u64, result: OpResult) {
        match self.caller(call) {
            Some(Caller::Client(place, call)) => {
                self.ground.counters.answer(what_of(&result));
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
        self.host.waiting.store_calls.insert(call);
        let patience_us = self.ground.rng.within(300_000, 1_500_000);
        let event = Event::StoreTimeout(self.number, self.host.run, call);
        self.ground.queue.after(patience_us, event);
    }
}
