//! What the effects of a manager come to at the table.

use super::Table;
use rota_docstore::Digest;
use rota_model::node_msg::ToNode;
use rota_model::{ManagerNumber, NewNodes, NodeId, PoolName, ProvisionerName};
use rota_protocol::events::Event;
use rota_protocol::operate::Job;
use rota_protocol::{CasOutcome, DiskWrite, EffectHandler, Envelope, Input, Note, Reply, TaskJob};
use rota_ring::Change;

/// The table, at one of its managers.
pub struct At<'a> {
    pub table: &'a mut Table,
    pub n: u32,
}

impl At<'_> {
    fn give(&mut self, input: Input) {
        self.table.queue.push_back((self.n, input));
    }
}

impl EffectHandler for At<'_> {
    fn persist(&mut self, lsn: u64, writes: Vec<DiskWrite>) {
        self.table.persist(self.n, lsn, &writes);
    }

    fn send(&mut self, _: String, envelope: Envelope) {
        self.table.send(self.n, envelope);
    }

    fn send_to_node(&mut self, node: NodeId, _: String, message: ToNode) {
        // A node here renews when the test says so.
        if let ToNode::Meet { epoch, managers, .. } = message {
            let managers = managers.into_iter().map(|(number, _)| number.0).collect();
            self.table.met.push((node, epoch, managers));
            return;
        }
        self.table.node_calls.push((self.n, message.clone()));
        if !self.table.manual_nodes && !self.table.silent.contains(node.as_str()) {
            self.table.answer_node(self.n, node.as_str(), &message);
        }
    }

    fn reply(&mut self, call: u64, reply: Reply) {
        match reply {
            Reply::Request(result) => drop(self.table.replies.insert(call, result)),
            Reply::Registered(result) => self.table.registered = Some(result),
            Reply::Renewed(renewed) => self.table.renewed = Some(renewed),
            Reply::Ordered(result) => self.table.ordered_as = Some(result),
            Reply::NodeOrdered(result) => self.table.node_ordered_as = Some(result),
        }
    }

    fn read_config(&mut self, read: u64) {
        self.table.config_reads += 1;
        let away = self.table.is_away(self.n) || self.table.late.contains(&self.n);
        let state = (!away).then(|| self.table.config.clone());
        self.give(Input::ConfigRead { read, state });
    }

    fn compare_and_set(&mut self, cas: u64, change: Box<Change>) {
        let table = &mut *self.table;
        let n = self.n;
        if table.is_away(n) || table.cas_unknown || table.late.contains(&n) {
            return self.give(Input::CasDone { cas, outcome: CasOutcome::Unknown });
        }
        if table.unheard.remove(&n) {
            table.config = change.apply(&table.config).unwrap();
            table.late.insert(n);
            return self.give(Input::CasDone { cas, outcome: CasOutcome::Unknown });
        }
        let outcome = match change.apply(&table.config) {
            Some(state) => {
                table.config = state.clone();
                let on_time = |n: &u32| !table.late.contains(n) && !table.is_away(*n);
                let all: Vec<_> = table.managers.keys().copied().filter(on_time).collect();
                for other in all {
                    table.queue.push_back((other, Input::Config(state.clone())));
                }
                CasOutcome::Done(state)
            }
            None => CasOutcome::Conflict(table.config.clone()),
        };
        self.give(Input::CasDone { cas, outcome });
    }

    fn provision(&mut self, order: u64, nodes: Vec<NodeId>, new: NewNodes) {
        self.table.started_by.push(new.provisioner);
        self.table.ordered.extend(nodes);
        self.table.orders.push((self.n, order));
    }

    fn clear_node(&mut self, pool: PoolName, by: ProvisionerName, node: NodeId) {
        self.table.cleared_by.push(by);
        self.table.to_clear.push((self.n, pool, node));
    }

    fn fetch_bodies(&mut self, part: ManagerNumber, bodies: Vec<Digest>) {
        self.table.fetch(self.n, part, bodies);
    }

    fn work(&mut self, work: u64, job: Box<Job>) {
        if self.table.manual_works {
            return self.table.works.push((self.n, work, job));
        }
        self.give(Input::Worked { work, worked: job.run() });
    }

    fn run_task(&mut self, part: ManagerNumber, work: u64, job: Box<TaskJob>) {
        self.table.task_works.push((self.n, part, work, job));
    }

    fn stop_task(&mut self, work: u64) {
        self.table.stopped.push(work);
    }

    fn task_given_up(&mut self, task: serde_json::Value) {
        self.table.given_up.push(task);
    }

    fn events(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Session(it) => self.table.events.push((self.n, it)),
                Event::Content(it) => self.table.content_events.push(it),
            }
        }
    }

    fn note(&mut self, note: Note) {
        self.table.notes.push((self.n, note.transition));
        self.table.said.push((note.transition, note.text));
    }
}
