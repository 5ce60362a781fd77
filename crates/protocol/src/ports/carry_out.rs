//! The way from an effect to whoever carries it out.

use crate::ports::io::{Effect, Reply};
use crate::ports::note::Note;
use crate::ports::task_work::TaskJob;
use crate::ports::work::Job;
use rota_docstore::Digest;
use rota_messages::events::Event;
use rota_messages::{DiskWrite, Envelope};
use rota_model::node_msg::ToNode;
use rota_model::{ManagerNumber, NewNodes, NodeId, PoolName, ProvisionerName};
use rota_ring::Change;

/// Whoever carries effects out: a process, a simulator, a test. [`Effect`] says what each is for.
///
/// A method without a body is what every ring needs. The others may be left out where nothing asks for them.
pub trait EffectHandler {
    /// [`Effect::Persist`].
    fn persist(&mut self, lsn: u64, writes: Vec<DiskWrite>);

    /// [`Effect::Send`].
    fn send(&mut self, address: String, envelope: Envelope);

    /// [`Effect::ToNode`].
    fn send_to_node(&mut self, node: NodeId, address: String, message: ToNode);

    /// [`Effect::Reply`].
    fn reply(&mut self, call: u64, reply: Reply);

    /// [`Effect::ReadConfig`].
    fn read_config(&mut self, read: u64);

    /// [`Effect::Cas`].
    fn compare_and_set(&mut self, cas: u64, change: Box<Change>);

    /// [`Effect::Provision`]: where no nodes are started.
    fn provision(&mut self, order: u64, nodes: Vec<NodeId>, new: NewNodes) {
        let _ = (order, nodes, new);
    }

    /// [`Effect::ClearNode`]: where no nodes are started.
    fn clear_node(&mut self, pool: PoolName, provisioner: ProvisionerName, node: NodeId) {
        let _ = (pool, provisioner, node);
    }

    /// [`Effect::FetchBodies`]: where no document names a body.
    fn fetch_bodies(&mut self, part: ManagerNumber, bodies: Vec<Digest>) {
        let _ = (part, bodies);
    }

    /// [`Effect::Work`]: where no application adds operations.
    fn work(&mut self, work: u64, job: Box<Job>) {
        let _ = (work, job);
    }

    /// [`Effect::RunTask`]: where no task is a program or a call.
    fn run_task(&mut self, part: ManagerNumber, work: u64, job: Box<TaskJob>) {
        let _ = (part, work, job);
    }

    /// [`Effect::StopTask`].
    fn stop_task(&mut self, work: u64) {
        let _ = work;
    }

    /// [`Effect::TaskGivenUp`]: where no administrator is told.
    fn task_given_up(&mut self, task: serde_json::Value) {
        let _ = task;
    }

    /// [`Effect::Events`]: where nobody is told.
    fn events(&mut self, events: Vec<Event>) {
        let _ = events;
    }

    /// [`Effect::Note`]: where nobody counts.
    fn note(&mut self, note: Note) {
        let _ = note;
    }

    /// Carries one effect out.
    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Persist { lsn, writes } => self.persist(lsn, writes),
            Effect::Send { address, envelope } => self.send(address, envelope),
            Effect::ToNode { node, address, message } => self.send_to_node(node, address, message),
            Effect::Reply { call, reply } => self.reply(call, reply),
            Effect::ReadConfig { read } => self.read_config(read),
            Effect::Cas { cas, change } => self.compare_and_set(cas, change),
            Effect::Provision { order, nodes, new } => self.provision(order, nodes, new),
            Effect::ClearNode { pool, provisioner, node } => {
                self.clear_node(pool, provisioner, node)
            }
            Effect::FetchBodies { part, bodies } => self.fetch_bodies(part, bodies),
            Effect::Work { work, job } => self.work(work, job),
            Effect::RunTask { part, work, job } => self.run_task(part, work, job),
            Effect::StopTask { work } => self.stop_task(work),
            Effect::TaskGivenUp { task } => self.task_given_up(*task),
            Effect::Events(events) => self.events(events),
            Effect::Note(note) => self.note(note),
        }
    }
}
