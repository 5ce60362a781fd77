//! Who waits for an answer of the decisions.

use crate::metrics::Metrics;
use rota_model::node_msg::{Registered, Renewed};
use rota_model::{ClassName, Refusal};
use rota_protocol::{NodeOrdered, OpKind, OpResult, Ordered, Reply};
use std::collections::HashMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Calls that may be under way at once. Each ends at its deadline; what their requests hold, the
/// decisions bound (`rota_protocol::Sizes::request_bytes`).
pub const WAITING_MAX: usize = 65_536;

enum Waiting {
    Op {
        kind: OpKind,
        class: Option<ClassName>,
        entered: Instant,
        reply: oneshot::Sender<OpResult>,
    },
    Register(oneshot::Sender<Result<Registered, Refusal>>),
    Renew(oneshot::Sender<Renewed>),
    Order(oneshot::Sender<Result<Ordered, Refusal>>),
    NodeOrder(oneshot::Sender<Result<NodeOrdered, Refusal>>),
}

/// The calls under way, by the number that the driver gave them.
#[derive(Default)]
pub struct Calls {
    last: u64,
    waiting: HashMap<u64, Waiting>,
}

impl Calls {
    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    fn add(&mut self, waiting: Waiting) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, waiting);
        self.last
    }

    /// A client's call; gives its number.
    pub fn op(
        &mut self,
        (kind, class): (OpKind, Option<ClassName>),
        entered: Instant,
        reply: oneshot::Sender<OpResult>,
    ) -> u64 {
        self.add(Waiting::Op { kind, class, entered, reply })
    }

    /// A node's registration; gives its number.
    pub fn register(&mut self, reply: oneshot::Sender<Result<Registered, Refusal>>) -> u64 {
        self.add(Waiting::Register(reply))
    }

    /// A node's sign of life; gives its number.
    pub fn renew(&mut self, reply: oneshot::Sender<Renewed>) -> u64 {
        self.add(Waiting::Renew(reply))
    }

    /// An operator's order; gives its number.
    pub fn order(&mut self, reply: oneshot::Sender<Result<Ordered, Refusal>>) -> u64 {
        self.add(Waiting::Order(reply))
    }

    /// An operator's order about a node; gives its number.
    pub fn node_order(&mut self, reply: oneshot::Sender<Result<NodeOrdered, Refusal>>) -> u64 {
        self.add(Waiting::NodeOrder(reply))
    }

    /// Answers a call. Whoever has hung up meanwhile is no mistake.
    pub fn reply(&mut self, call: u64, reply: Reply, metrics: &Metrics) {
        match (self.waiting.remove(&call), reply) {
            (Some(Waiting::Op { kind, class, entered, reply }), Reply::Request(result)) => {
                metrics.answered(kind, class.as_ref(), entered.elapsed(), &result);
                let _ = reply.send(result);
            }
            (Some(Waiting::Register(reply)), Reply::Registered(result)) => {
                let _ = reply.send(result);
            }
            (Some(Waiting::Renew(reply)), Reply::Renewed(renewed)) => {
                let _ = reply.send(renewed);
            }
            (Some(Waiting::Order(reply)), Reply::Ordered(result)) => {
                let _ = reply.send(result);
            }
            (Some(Waiting::NodeOrder(reply)), Reply::NodeOrdered(result)) => {
                let _ = reply.send(result);
            }
            (None, _) => {}
            (Some(_), reply) => tracing::error!(call, ?reply, "an answer of another kind"),
        }
    }
}
