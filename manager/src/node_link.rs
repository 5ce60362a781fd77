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
                    // What comes from now on waits for the next connection, or is thrown away unsent.
                    self.outbox.end_streams();
                    tracing::info!(node = %self.node, address = %self.address, code = ?end.code(),
                        error = end.message(), "the stream to a node ended");
                }
                Err(failed) => {
                    tracing::debug!(node = %self.node, address = %self.address,
                        error = %failed.text, "no connection to a node");
                    if self.mailbox.input(self.unreached()).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Throws away what waits: every call is repeated until it is answered. Nothing of it was given to a
    /// connection, so whoever asked may go elsewhere.
    fn unreached(&self) -> Input {
        let thrown_away = self.outbox.take_back();
        let unsent = thrown_away.iter().map(|it| it.call).collect();
        let (node, address) = (self.node.clone(), self.address.clone());
        Input::NodeUnreached { node, address, unsent }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{Lanes, mailbox};
    use rota_model::node_msg::{NodeCall, SlotRange};
    use rota_model::{BootId, Epoch, SlotId};
    use std::pin::Pin;
    use std::time::Duration;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;
    use tokio_stream::Stream;
    use tokio_util::sync::CancellationToken;
    use tonic::transport::server::TcpIncoming;
    use tonic::{Request, Response, Streaming};

    /// Far above what a loopback connection takes; only a failing test waits for it.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn scan(call: u64) -> ToNode {
        let range = SlotRange { first: SlotId(0), last: SlotId(9) };
        let head = NodeCall { call, boot: BootId(1), pe: Epoch(1), range };
        ToNode::Scan { head, after: None, limit: 1 }
    }

    fn node() -> NodeId {
        NodeId::parse("n1").unwrap()
    }

    fn links() -> (NodeLinks, Lanes) {
        let (mailbox, lanes) = mailbox();
        (NodeLinks::new(ClusterName::parse("c").unwrap(), mailbox), lanes)
    }

    async fn next(lanes: &mut Lanes) -> Input {
        let next = tokio::time::timeout(PATIENCE, lanes.urgent.recv()).await;
        match next.expect("something comes in time").expect("the mailbox is open") {
            Urgent::Input(input) => *input,
            Urgent::Peer(..)
            | Urgent::Node(_)
            | Urgent::Register(..)
            | Urgent::Renew(..)
            | Urgent::Order(..)
            | Urgent::Stats(_)
            | Urgent::NodeOrder(..)
            | Urgent::Placements(..) => panic!("the link tells of its connection alone"),
        }
    }

    /// The calls that the link threw away, the next time that it found nobody.
    async fn unsent(lanes: &mut Lanes) -> Vec<u64> {
        let told = next(lanes).await;
        let Input::NodeUnreached { unsent, .. } = told else { panic!("{told:?}") };
        unsent
    }

    #[tokio::test]
    async fn what_waits_for_a_port_that_refuses_is_thrown_away_and_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let (mut links, mut lanes) = links();
        links.send(node(), address.clone(), scan(7));
        links.send(node(), address.clone(), scan(8));
        let mut named = Vec::new();
        while named.len() < 2 {
            named.extend(unsent(&mut lanes).await);
        }
        assert_eq!(named, [7, 8]);
        links.send(node(), address, scan(9));
        let mut named = Vec::new();
        while named.is_empty() {
            named = unsent(&mut lanes).await;
        }
        assert_eq!(named, [9], "each is named once");
    }

    /// An agent that takes calls and answers none.
    struct Mute(mpsc::UnboundedSender<u64>, CancellationToken);

    type Answers = Pin<Box<dyn Stream<Item = Result<v1::NodeAnswerBatch, Status>> + Send>>;

    #[tonic::async_trait]
    impl v1::node_agent_server::NodeAgent for Mute {
        type ExchangeStream = Answers;

        async fn exchange(
            &self,
            request: Request<Streaming<v1::NodeCallBatch>>,
        ) -> Result<Response<Answers>, Status> {
            let (taken, mut calls) = (self.0.clone(), request.into_inner());
            let over = self.1.clone();
            tokio::spawn(async move {
                while let Ok(Some(batch)) = calls.message().await {
                    for it in batch.calls {
                        // Nobody listens once the test is over.
                        let _ = taken.send(it.call);
                    }
                }
            });
            let until = async move {
                over.cancelled().await;
                Err(Status::unavailable("it ends"))
            };
            Ok(Response::new(Box::pin(stream_of(until))))
        }
    }

    /// A stream of the one item that a future gives.
    fn stream_of<F>(future: F) -> impl Stream<Item = F::Output> + Send
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let _ = sender.send(future.await).await;
        });
        tokio_stream::wrappers::ReceiverStream::new(receiver)
    }

    #[tokio::test]
    async fn a_call_that_was_given_to_a_connection_is_never_named_as_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (taken, mut calls) = mpsc::unbounded_channel();
        let over = CancellationToken::new();
        let agent = v1::node_agent_server::NodeAgentServer::new(Mute(taken, over.clone()));
        let server = tonic::transport::Server::builder().add_service(agent);
        let server = server.serve_with_incoming_shutdown(
            TcpIncoming::from(listener),
            over.clone().cancelled_owned(),
        );
        tokio::spawn(server);
        let (mut links, mut lanes) = links();
        links.send(node(), address.clone(), scan(7));
        assert!(matches!(next(&mut lanes).await, Input::NodeConnected { .. }));
        let seen = tokio::time::timeout(PATIENCE, calls.recv()).await;
        assert_eq!(seen.expect("it comes in time"), Some(7));
        over.cancel();
        let mut named = unsent(&mut lanes).await;
        links.send(node(), address, scan(8));
        while named.is_empty() {
            named = unsent(&mut lanes).await;
        }
        assert_eq!(named, [8], "the first was taken, and is known to have been");
    }
}
