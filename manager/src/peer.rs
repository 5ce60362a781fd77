//! Peers: one outgoing stream to each, and the service that takes theirs.

use crate::bodies::{Bodies, Sending, keep_body, names_body, send_body};
use crate::driver_state::DriverState;
use crate::link::{BackOff, MESSAGE_BYTES_MAX, connect};
use crate::links::Links;
use crate::mailbox::{Mailbox, Urgent};
use crate::metrics::Copied;
use crate::outbox::Outbox;
use metrics::Counter;
use rota_model::{ClusterName, ManagerNumber};
use rota_proto::encoded::DocBytes;
use rota_proto::peer::to_wire;
use rota_proto::v1;
use rota_protocol::{Envelope, Input, Message};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// The outgoing streams. A link is opened with the first message to a peer.
pub struct PeerLinks {
    cluster: ClusterName,
    mailbox: Mailbox,
    links: Links<ManagerNumber, v1::Envelope>,
    copied: Copied,
}

impl PeerLinks {
    /// No links yet. Counts in `late` the requests whose deadline passed before they were sent, and in
    /// `copied` what brings copies of partitions.
    pub fn new(cluster: ClusterName, mailbox: Mailbox, late: Counter, copied: Copied) -> Self {
        Self { cluster, mailbox, links: Links::new(late), copied }
    }

    /// Sends towards a peer. Gives how many older messages were dropped for want of room.
    pub fn send(&mut self, address: String, envelope: Envelope, docs: &mut DocBytes) -> usize {
        let number = envelope.to.number;
        let (cluster, mailbox) = (&self.cluster, &self.mailbox);
        let keep = |address, outbox| {
            let (cluster, mailbox) = (cluster.clone(), mailbox.clone());
            Keeper { number, address, cluster, outbox, mailbox }.run()
        };
        let until = useful_until(&envelope.message);
        let envelope = to_wire(envelope, docs);
        self.copied.sent(&envelope);
        self.links.send(&number, address, envelope, until, keep)
    }
}

/// A request tells how long its sender waits, counted from its receipt: one that lay here for longer
/// would be carried out for somebody who has gone.
fn useful_until(message: &Message) -> Option<Instant> {
    if let Message::Request { deadline_ms, .. } = message {
        return Instant::now().checked_add(Duration::from_millis(*deadline_ms));
    }
    None
}

/// Keeps the stream to one peer open.
struct Keeper {
    number: ManagerNumber,
    address: String,
    cluster: ClusterName,
    outbox: Arc<Outbox<v1::Envelope>>,
    mailbox: Mailbox,
}

impl Keeper {
    async fn run(self) {
        let mut back_off = BackOff::default();
        loop {
            tokio::time::sleep(back_off.next()).await;
            match connect(&self.address).await {
                Ok(channel) => self.exchange(channel, &mut back_off).await,
                Err(failed) => {
                    tracing::debug!(peer = %self.number, address = %self.address,
                        error = %failed.text, "no connection to a peer");
                    // What waits is older than the peer's next run, if there is one.
                    self.outbox.clear();
                    let (number, address) = (self.number, self.address.clone());
                    let refused = Input::PeerRefused { number, address };
                    if failed.refused && self.mailbox.input(refused).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Sends until the stream breaks.
    async fn exchange(&self, channel: tonic::transport::Channel, back_off: &mut BackOff) {
        let mut client = v1::peers_client::PeersClient::new(channel)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let cluster = self.cluster.as_str().to_owned();
        let batches = self.outbox.batches(|envelopes| envelopes);
        let batches =
            batches.map(move |envelopes| v1::PeerBatch { cluster: cluster.clone(), envelopes });
        let outcome = async {
            let mut hellos = client.exchange(batches).await?.into_inner();
            while let Some(hello) = hellos.message().await? {
                back_off.reset();
                let run = hello.member.map(|member| member.incarnation);
                tracing::info!(peer = %self.number, address = %self.address, run,
                    "a peer takes messages");
            }
            Ok::<(), Status>(())
        };
        match outcome.await {
            Ok(()) => tracing::info!(peer = %self.number, "a peer closed its stream"),
            Err(status) => tracing::info!(peer = %self.number, address = %self.address,
                code = ?status.code(), error = status.message(), "the stream to a peer broke"),
        }
    }
}

/// The service that takes the messages of peers.
pub struct PeersService {
    /// Batches of other clusters are refused.
    pub cluster: ClusterName,
    /// Who this manager is, once it has claimed its number.
    pub seen: watch::Receiver<DriverState>,
    /// Where messages go.
    pub mailbox: Mailbox,
    /// Bodies of attachments.
    pub bodies: Bodies,
    /// Ends the streams when the process stops, once it needs no answers for its clients any more.
    pub stopping: CancellationToken,
}

type Hellos = Pin<Box<dyn Stream<Item = Result<v1::PeerHello, Status>> + Send>>;

#[tonic::async_trait]
impl v1::peers_server::Peers for PeersService {
    type ExchangeStream = Hellos;
    type SendBodyStream = Sending;

    async fn keep_body(
        &self,
        request: Request<Streaming<v1::KeepBodyRequest>>,
    ) -> Result<Response<v1::KeepBodyResponse>, Status> {
        keep_body(&self.bodies, request).await
    }

    async fn send_body(
        &self,
        request: Request<v1::SendBodyRequest>,
    ) -> Result<Response<Sending>, Status> {
        send_body(&self.bodies, request).await
    }

    async fn names_body(
        &self,
        request: Request<v1::NamesBodyRequest>,
    ) -> Result<Response<v1::NamesBodyResponse>, Status> {
        names_body(&self.bodies, request)
    }

    async fn exchange(
        &self,
        request: Request<Streaming<v1::PeerBatch>>,
    ) -> Result<Response<Hellos>, Status> {
        // One hello at once, and the end's reason: two at most.
        let (hello, hellos) = tokio::sync::mpsc::channel(2);
        let member = self.seen.borrow().member.map(Into::into);
        hello.try_send(Ok(v1::PeerHello { member })).expect("a new channel has room for two");
        let (cluster, mailbox) = (self.cluster.clone(), self.mailbox.clone());
        let stopping = self.stopping.clone();
        let batches = request.into_inner();
        tokio::spawn(async move {
            let end = tokio::select! {
                end = take(cluster, mailbox, batches) => end,
                () = stopping.cancelled() => Status::unavailable("this manager is stopping"),
            };
            // Nobody to tell it to is fine: then the peer has gone first.
            let _ = hello.try_send(Err(end));
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(hellos))))
    }
}

/// Hands on what a peer sends, until it ends. Gives why.
async fn take(
    cluster: ClusterName,
    mailbox: Mailbox,
    mut batches: Streaming<v1::PeerBatch>,
) -> Status {
    loop {
        let batch = match batches.message().await {
            Ok(Some(batch)) => batch,
            Ok(None) => return Status::ok(""),
            Err(status) => return status,
        };
        let mut docs = DocBytes::default();
        let envelopes = match rota_proto::peer::envelopes(&cluster, batch, &mut docs) {
            Ok(envelopes) => envelopes,
            Err(error) => {
                tracing::warn!(%error, "a batch of another cluster was refused");
                return Status::failed_precondition(error.to_string());
            }
        };
        let mut good = Vec::with_capacity(envelopes.size_hint().0);
        for envelope in envelopes {
            match envelope {
                Ok(envelope) => good.push(envelope),
                Err(error) => tracing::warn!(%error, "a message of a peer was dropped"),
            }
        }
        if mailbox.urgent(Urgent::Peer(good, docs)).await.is_err() {
            return Status::unavailable("this manager is stopping");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{Lanes, mailbox};
    use rota_model::{Epoch, Incarnation, MemberId};
    use tokio::net::TcpListener;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;

    /// Far above what a loopback connection takes; only a failing test waits for it.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn cluster(name: &str) -> ClusterName {
        ClusterName::parse(name).unwrap()
    }

    fn heartbeat(epoch: u64) -> Envelope {
        let member =
            |number| MemberId { number: ManagerNumber(number), incarnation: Incarnation(1) };
        let message = Message::Heartbeat { committed: Vec::new() };
        Envelope { from: member(1), to: member(2), epoch: Epoch(epoch), message }
    }

    /// A manager's peer service at a free port; it ends with the token.
    async fn serve(name: &str) -> (String, Lanes, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mailbox, lanes) = mailbox();
        let stopping = CancellationToken::new();
        let seen = watch::channel(DriverState::default()).1;
        let folder = tempfile::tempdir().unwrap();
        let (bodies, _) = crate::bodies::of_test(folder.path(), &cluster(name), ManagerNumber(2));
        let service = PeersService {
            cluster: cluster(name),
            seen,
            mailbox,
            bodies,
            stopping: stopping.clone(),
        };
        let server = Server::builder()
            .add_service(v1::peers_server::PeersServer::new(service))
            .serve_with_incoming_shutdown(
                TcpIncoming::from(listener),
                stopping.clone().cancelled_owned(),
            );
        tokio::spawn(server);
        (address, lanes, stopping)
    }

    async fn next(lanes: &mut Lanes) -> Urgent {
        let next = tokio::time::timeout(PATIENCE, lanes.urgent.recv()).await;
        next.expect("something comes in time").expect("the mailbox is open")
    }

    async fn received(lanes: &mut Lanes) -> Vec<Envelope> {
        match next(lanes).await {
            Urgent::Peer(envelopes, _) => envelopes,
            Urgent::Node(_)
            | Urgent::Register(..)
            | Urgent::Renew(..)
            | Urgent::Order(..)
            | Urgent::Stats(_)
            | Urgent::NodeOrder(..)
            | Urgent::Placements(..)
            | Urgent::Input(_) => panic!("no message of a peer"),
        }
    }

    #[tokio::test]
    async fn messages_arrive_in_order_over_one_stream() {
        let (address, mut lanes, _stopping) = serve("c").await;
        let mut links = PeerLinks::new(cluster("c"), mailbox().0, Counter::noop(), Copied::noop());
        let mut docs = DocBytes::default();
        for epoch in 1..=40 {
            assert_eq!(links.send(address.clone(), heartbeat(epoch), &mut docs), 0);
        }
        let mut epochs = Vec::new();
        while epochs.len() < 40 {
            epochs.extend(received(&mut lanes).await.into_iter().map(|it| it.epoch.0));
        }
        assert_eq!(epochs, (1..=40).collect::<Vec<u64>>());
    }

    #[tokio::test]
    async fn a_peer_whose_port_refuses_after_a_break_is_told_as_gone() {
        let (address, mut lanes, stopping) = serve("c").await;
        let (mailbox, mut mine) = mailbox();
        let mut links = PeerLinks::new(cluster("c"), mailbox, Counter::noop(), Copied::noop());
        links.send(address.clone(), heartbeat(1), &mut DocBytes::default());
        received(&mut lanes).await;
        stopping.cancel();
        let Urgent::Input(input) = next(&mut mine).await else { panic!("another message") };
        let Input::PeerRefused { number, address: refused } = *input else { panic!("another") };
        assert_eq!((number, refused), (ManagerNumber(2), address));
    }

    #[tokio::test]
    async fn a_batch_of_another_cluster_is_refused_and_nothing_of_it_arrives() {
        let (address, mut lanes, _stopping) = serve("other").await;
        let channel = connect(&address).await.unwrap();
        let mut client = v1::peers_client::PeersClient::new(channel);
        let batch = rota_proto::peer::batch(&cluster("c"), [heartbeat(1)]);
        let mut answers = client.exchange(tokio_stream::once(batch)).await.unwrap().into_inner();
        assert!(answers.message().await.unwrap().is_some());
        let refused = answers.message().await.unwrap_err();
        assert!(refused.message().contains("other"), "{refused:?}");
        assert!(lanes.urgent.try_recv().is_err());
    }
}
