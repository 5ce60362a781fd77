//! Nodes: one stream of calls and answers to each node that is asked for something.

use crate::link::{BackOff, MESSAGE_BYTES_MAX, connect};
use crate::links::Links;
use crate::mailbox::{Mailbox, Urgent};
use crate::outbox::Outbox;
use metrics::Counter;
use rota_model::node_msg::{FromNode, ToNode};
use rota_model::{ClusterName, NodeId};
use rota_proto::{node, v1};
use rota_protocol::Input;
use rota_ring::NodeReg;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_stream::StreamExt;
use tonic::Status;

/// The streams to nodes. A link is opened with the first call to a node.
pub struct NodeLinks {
    cluster: ClusterName,
    mailbox: Mailbox,
    links: Links<NodeId, v1::NodeCall>,
}

impl NodeLinks {
    /// No links yet.
    pub fn new(cluster: ClusterName, mailbox: Mailbox) -> Self {
        // Every call is repeated until it is answered, so none is ever of no use.
        Self { cluster, mailbox, links: Links::new(Counter::noop()) }
    }

    /// Sends towards a node. Gives how many older calls were dropped for want of room.
    pub fn send(&mut self, node: NodeId, address: String, message: ToNode) -> usize {
        let (cluster, mailbox) = (&self.cluster, &self.mailbox);
        let keep = |address, outbox| {
            let (node, cluster, mailbox) = (node.clone(), cluster.clone(), mailbox.clone());
            Keeper { node, address, cluster, outbox, mailbox }.run()
        };
        self.links.send(&node, address, v1::NodeCall::from(message), None, keep)
    }

    /// Closes links to nodes that are gone or have moved.
    pub fn keep_registered(&mut self, nodes: &BTreeMap<NodeId, NodeReg>) {
        self.links.retain(|node, address| {
            let entry = nodes.get(node);
            entry.is_some_and(|it| !it.state.is_gone() && it.address == address)
        });
    }
}

/// Keeps the stream to one node open.
struct Keeper {
    node: NodeId,
    address: String,
    cluster: ClusterName,
    outbox: Arc<Outbox<v1::NodeCall>>,
    mailbox: Mailbox,
}

impl Keeper {
    async fn run(self) {
        let mut back_off = BackOff::default();
        loop {
            tokio::time::sleep(back_off.next()).await;
            match connect(&self.address).await {
                Ok(channel) => {
                    let end = self.exchange(channel, &mut back_off).await;
                    tracing::info!(node = %self.node, address = %self.address, code = ?end.code(),
                        error = end.message(), "the stream to a node ended");
                }
                Err(failed) => {
                    tracing::debug!(node = %self.node, address = %self.address,
                        error = %failed.text, "no connection to a node");
                    // Every call is repeated until it is answered.
                    self.outbox.clear();
                }
            }
        }
    }

    /// Sends calls and takes answers until the stream breaks. Gives why it did.
    async fn exchange(&self, channel: tonic::transport::Channel, back_off: &mut BackOff) -> Status {
        let mut client = v1::node_agent_client::NodeAgentClient::new(channel)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let cluster = self.cluster.clone();
        let batches = self.outbox.batches(|calls| calls);
        let calls = batches.map(move |calls| node::call_batch(&cluster, calls));
        let mut answers = match client.exchange(calls).await {
            Ok(response) => response.into_inner(),
            Err(status) => return status,
        };
        back_off.reset();
        tracing::info!(node = %self.node, address = %self.address, "a node takes calls");
        let connected = Input::NodeConnected { node: self.node.clone() };
        if self.mailbox.input(connected).await.is_err() {
            return Status::unavailable("this manager is stopping");
        }
        loop {
            let batch = match answers.message().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return Status::ok("closed by the node"),
                Err(status) => return status,
            };
            let mut good = Vec::with_capacity(batch.answers.len());
            for answer in batch.answers {
                match FromNode::try_from(answer) {
                    Ok(answer) => good.push(answer),
                    Err(error) => {
                        tracing::warn!(node = %self.node, %error, "an answer was dropped");
                    }
                }
            }
            if self.mailbox.urgent(Urgent::Node(good)).await.is_err() {
                return Status::unavailable("this manager is stopping");
            }
        }
    }
}
