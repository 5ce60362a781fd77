//! Output and use of programs: found at their nodes, and handed on.
//!
//! ```text
//!  client ── Logs ──▶ any manager ── the record's node, or all nodes ──▶ Begin of the newest life
//!         ◀─ pieces ── relay, two at a time ◀── the node's own stream ◀── files of its session folder
//! ```
//! A reader that is slow makes the node wait: nothing is kept here but what two messages and one window of HTTP/2 hold.

use super::Shared;
use super::deadline::deadline_of;
use super::kept_output::{self, Told};
use super::status;
use crate::link::with_sources;
use rota_model::{
    ClusterName, FieldError, GetOp, NodeId, NodeState, Refusal, RefusalKind, Retry, SessionKey,
    SessionState, Stamp,
};
use rota_proto::programs::{self, LogsAsk};
use rota_proto::v1::programs_client::ProgramsClient;
use rota_proto::v1::programs_server::Programs;
use rota_proto::{refusal, session, v1};
use rota_protocol::Op;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

/// Most readers of output at one manager. Each has a connection to a node and some pieces of 32 KiB.
const READERS_MAX: usize = 256;

/// Pieces that wait for the client.
const PIECES_MAX: usize = 2;

/// Most nodes that are asked at once for output that no record leads to.
const ASKED_AT_ONCE_MAX: usize = 16;

/// Most nodes that are gone, of which an answer says so.
const GONE_NAMED_MAX: usize = 8;

/// How long a node may take to say what it keeps. It looks into a folder, and may search a file for lines.
const NODE_PATIENCE: Duration = Duration::from_secs(3);

/// How long a connection to a node may take.
const CONNECT_PATIENCE: Duration = Duration::from_millis(800);

/// A node that is gone without a word must not look alive for longer than twice that.
const KEEPALIVE: Duration = Duration::from_secs(3);

/// Flow control window of a stream from a node, and of its connection: two pieces.
const WINDOW_BYTES: u32 = 64 * 1024;

/// How long a client may take for a piece. A little more than the node waits, which tells why.
const READER_PATIENCE: Duration = Duration::from_secs(65);

/// Largest page of what sessions use: a thousand with long names.
const USAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Advice to whoever comes too early, or finds no place.
const LATER_MS: u64 = 500;

/// The service.
pub struct ProgramsService {
    shared: Arc<Shared>,
    cluster: ClusterName,
    readers: Arc<Semaphore>,
    /// Places of readers of what the ring keeps.
    kept: Arc<Semaphore>,
}

type Pieces = Pin<Box<dyn Stream<Item = Result<v1::LogsResponse, Status>> + Send>>;

/// A node that has begun to answer.
struct BegunLog {
    begin: v1::logs_response::Begin,
    rest: Streaming<v1::LogsResponse>,
}

/// Where output was found.
enum Found {
    AtNode(Box<BegunLog>),
    Kept(Told),
}

/// Where output is looked for.
enum Whereabouts {
    /// There; the life that is meant, and whether it has only just been placed.
    At { node: NodeId, life: Option<Stamp>, starting: bool },
    /// No record tells.
    Anywhere,
}

/// A node, and where it is reached.
#[derive(Clone)]
struct Contact {
    node: NodeId,
    address: String,
    /// What whoever asks is advised where it does not answer.
    advice: Retry,
}

impl Contact {
    fn new(node: &NodeId, address: &str) -> Self {
        let (node, address) = (node.clone(), address.to_owned());
        Self { node, address, advice: Retry::AfterMs(LATER_MS) }
    }
}

impl ProgramsService {
    /// One that serves no reader yet.
    pub fn new(shared: Arc<Shared>, cluster: ClusterName) -> Self {
        let readers = Arc::new(Semaphore::new(READERS_MAX));
        Self { shared, cluster, readers, kept: kept_output::places() }
    }

    fn take_place(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.readers.clone().try_acquire_owned().map_err(|_| {
            let text = format!(
                "this manager hands output on to {READERS_MAX} readers, its limit; ask another manager"
            );
            status(Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(LATER_MS), text))
        })
    }

    /// A node that is registered and there.
    fn contact(&self, node: &NodeId) -> Result<Contact, Refusal> {
        let seen = self.shared.seen.borrow();
        let unknown = |text| Refusal::new(RefusalKind::UnknownNode, Retry::WhenChanged, text);
        match seen.nodes.get(node) {
            None => Err(unknown(format!(
                "node {node} is not registered; `ringctl node list` shows those that are"
            ))),
            Some(entry) if entry.state.is_gone() => {
                Err(unknown(format!("node {node} is {}", entry.state.as_str())))
            }
            Some(entry) => Ok(Contact::new(node, &entry.address)),
        }
    }

    /// The state of a node that is gone.
    fn state_if_gone(&self, node: &NodeId) -> Option<NodeState> {
        let seen = self.shared.seen.borrow();
        seen.nodes.get(node).map(|entry| entry.state).filter(|it| it.is_gone())
    }

    /// Every node that is there.
    fn contacts(&self) -> Vec<Contact> {
        let seen = self.shared.seen.borrow();
        let there = seen.nodes.iter().filter(|(_, entry)| !entry.state.is_gone());
        there.map(|(node, entry)| Contact::new(node, &entry.address)).collect()
    }

    /// Where the record says that it runs, or ran.
    async fn whereabouts(&self, ask: &LogsAsk, deadline: Instant) -> Result<Whereabouts, Refusal> {
        if let Some(node) = ask.node.clone() {
            return Ok(Whereabouts::At { node, life: ask.life, starting: false });
        }
        // What the owner shows without asking its copies is good enough to find a file.
        let get = Op::Get(GetOp { key: ask.key.clone(), stale_ok: true });
        let found = match self.shared.mailbox.call(get, deadline).await {
            Err(refused) if refused.kind == RefusalKind::NotFound => {
                return Ok(Whereabouts::Anywhere);
            }
            found => session::get_response(found?, |node| self.shared.node_address(node))?,
        };
        let found = found.session.unwrap_or_default();
        let life = Stamp::parse(found.life).ok();
        if ask.life.is_some() && ask.life != life {
            return Ok(Whereabouts::Anywhere);
        }
        if is_machine(&found) {
            return Err(runs_a_machine(&ask.key, &found.class));
        }
        let starting =
            matches!(found.state(), v1::SessionState::Pending | v1::SessionState::Starting);
        match NodeId::parse(&found.node_id) {
            Ok(node) => Ok(Whereabouts::At { node, life, starting }),
            Err(_) if starting => Err(not_started(&ask.key)),
            Err(_) => {
                let text = format!(
                    "no node took session {}, so it printed nothing: {}",
                    ask.key, found.detail
                );
                Err(Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text))
            }
        }
    }

    /// From its node. Where none tells it, from what the ring keeps.
    async fn begin(
        &self,
        request: &v1::LogsRequest,
        ask: &LogsAsk,
        deadline: Instant,
    ) -> Result<Found, Status> {
        let whereabouts = self.whereabouts(ask, deadline).await.map_err(status)?;
        let life = match &whereabouts {
            Whereabouts::At { life, .. } => *life,
            Whereabouts::Anywhere => ask.life,
        };
        let error = match self.begin_at_node(request, ask, whereabouts, deadline).await {
            Ok(begun) => return Ok(Found::AtNode(Box::new(begun))),
            Err(error) => error,
        };
        // Where nobody knows which life is the newest, a node that is silent may have a newer one than the ring.
        let is_final = error.code() == Code::NotFound;
        if error.code() == Code::InvalidArgument || (life.is_none() && !is_final) {
            return Err(error);
        }
        // The time that a node took is over for the ring, too: it gets some of its own.
        let deadline = deadline.max(Instant::now() + NODE_PATIENCE);
        let kept = kept_output::tell((&self.shared, &self.kept), (ask, life), deadline).await;
        match kept {
            Ok(Some(told)) => Ok(Found::Kept(told)),
            // Whoever asks again may be told it.
            Err(of_ring) if is_final => Err(of_ring),
            // Why no node tells it is what whoever asks must know.
            Ok(None) | Err(_) => Err(error),
        }
    }

    async fn begin_at_node(
        &self,
        request: &v1::LogsRequest,
        ask: &LogsAsk,
        whereabouts: Whereabouts,
        deadline: Instant,
    ) -> Result<BegunLog, Status> {
        match whereabouts {
            Whereabouts::At { node, life, starting } => {
                if let Some(state) = self.state_if_gone(&node) {
                    return Err(status(out_of_reach((&node, state), &ask.key, life)));
                }
                let contact = self.contact(&node).map_err(status)?;
                let request = self.for_node(request, life);
                let begun = within(deadline, begin_at(contact, request)).await;
                begun.map_err(|error| {
                    let is_early = starting && error.code() == Code::NotFound;
                    if is_early { status(not_started(&ask.key)) } else { error }
                })
            }
            Whereabouts::Anywhere => within(deadline, self.begin_anywhere(request, ask)).await,
        }
    }

    /// Asks every node, and takes the newest life that one of them keeps.
    async fn begin_anywhere(
        &self,
        request: &v1::LogsRequest,
        ask: &LogsAsk,
    ) -> Result<BegunLog, Status> {
        let (mut waiting, mut asked) = (self.contacts().into_iter(), JoinSet::new());
        let (mut best, mut silent): (Option<BegunLog>, Vec<String>) = (None, Vec::new());
        let count = waiting.len();
        loop {
            while asked.len() < ASKED_AT_ONCE_MAX
                && let Some(contact) = waiting.next()
            {
                let (node, request) = (contact.node.clone(), self.for_node(request, ask.life));
                asked.spawn(async move { (node, begin_at(contact, request).await) });
            }
            let Some(answer) = asked.join_next().await else { break };
            match answer.map_err(|error| Status::internal(error.to_string()))? {
                (_, Ok(begun)) => {
                    let newest = best.as_ref().is_none_or(|it| it.begin.life < begun.begin.life);
                    best = if newest { Some(begun) } else { best };
                }
                (_, Err(error)) if error.code() == Code::NotFound => {}
                (_, Err(error)) if error.code() == Code::InvalidArgument => return Err(error),
                (node, Err(_)) => silent.push(node.to_string()),
            }
        }
        best.ok_or_else(|| status(nowhere(ask, count, &silent, &self.gone())))
    }

    /// Nodes that are gone, with their states: nobody can ask them.
    fn gone(&self) -> Vec<String> {
        let seen = self.shared.seen.borrow();
        let gone =
            seen.nodes.iter().filter(|(_, entry)| entry.state.is_gone() && !entry.is_forgotten());
        let named = gone.map(|(node, entry)| format!("{node} ({})", entry.state.as_str()));
        named.take(GONE_NAMED_MAX).collect()
    }

    fn for_node(&self, request: &v1::LogsRequest, life: Option<Stamp>) -> v1::LogsRequest {
        v1::LogsRequest {
            cluster: self.cluster.to_string(),
            node: String::new(),
            life: life.map_or(0, u64::from),
            ..request.clone()
        }
    }
}

/// Machines are known by their state, or by having been at their node's own address.
fn is_machine(session: &v1::Session) -> bool {
    let has_final_state = session
        .exit
        .as_ref()
        .is_some_and(|it| matches!(it.how, Some(v1::exit::How::FinalState(_))));
    let at_node = !session.address.is_empty() && session.address == session.node_address;
    !session.machine_state.is_empty() || has_final_state || at_node
}

fn runs_a_machine(key: &SessionKey, class: &str) -> Refusal {
    let text = format!(
        "session {key} runs a state machine (class {class}), which prints nothing; \
         `ringctl session get` shows its state"
    );
    Refusal::new(RefusalKind::InvalidArgument, Retry::WhenChanged, text)
}

fn not_started(key: &SessionKey) -> Refusal {
    let state = SessionState::Starting;
    let text = format!("the program of session {key} was not started yet ({state})");
    Refusal::new(RefusalKind::InProgress, Retry::AfterMs(LATER_MS), text)
}

/// What is told of output on a node that is gone, of which the ring keeps nothing.
fn out_of_reach(
    (node, state): (&NodeId, NodeState),
    key: &SessionKey,
    life: Option<Stamp>,
) -> Refusal {
    let life = life.map(|it| format!("life {it} of ")).unwrap_or_default();
    let text = format!(
        "node {node} is {state}, and the ring keeps nothing of what {life}session {key} printed there; that machine may \
         have it still, among the sessions of the node's --data"
    );
    Refusal::new(RefusalKind::UnknownNode, Retry::WhenChanged, text)
}

/// What is told when nobody keeps anything. A node that did not answer might.
fn nowhere(ask: &LogsAsk, asked: usize, silent: &[String], gone: &[String]) -> Refusal {
    let life = ask.life.map(|it| format!("life {it} of ")).unwrap_or_default();
    let text =
        format!("no node keeps output of {life}session {} ({asked} nodes were asked)", ask.key);
    let text = match gone {
        [] => text,
        gone => format!("{text}; {} cannot be asked, and may keep it", gone.join(", ")),
    };
    if silent.is_empty() {
        let text = format!(
            "{text}: it never ran, or its folder is gone since (--folders-kept-max of a node says how many it keeps)"
        );
        return Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text);
    }
    let text = format!("{text}; no answer came from {}", silent.join(", "));
    Refusal::new(RefusalKind::NotServing, Retry::AfterMs(LATER_MS), text)
}

fn unreached(contact: &Contact, why: &str) -> Status {
    let text = format!("node {} does not answer at {}: {why}", contact.node, contact.address);
    status(Refusal::new(RefusalKind::NotServing, contact.advice, text))
}

/// What broke on the way to a node: its own refusal, or that it does not answer.
fn broken(contact: &Contact, error: Status) -> Status {
    if error.details().is_empty() { unreached(contact, &with_sources(&error)) } else { error }
}

async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    timeout_at(deadline, work).await.unwrap_or_else(|_| {
        let text = "the time for the answer is over, and no node has begun to answer";
        Err(status(Refusal::new(RefusalKind::DeadlineExceeded, Retry::Now, text)))
    })
}

/// A connection of its own, with a small window: what a slow reader leaves waits at the node.
async fn connect(contact: &Contact) -> Result<ProgramsClient<Channel>, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{}", contact.address));
    let endpoint = endpoint.map_err(|error| unreached(contact, &error.to_string()))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_PATIENCE)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let channel = endpoint.connect().await;
    let channel = channel.map_err(|error| unreached(contact, &with_sources(&error)))?;
    Ok(ProgramsClient::new(channel).max_decoding_message_size(USAGE_BYTES_MAX))
}

async fn begin_at(contact: Contact, request: v1::LogsRequest) -> Result<BegunLog, Status> {
    let begin = async {
        let mut client = connect(&contact).await?;
        let answer = client.logs(request).await;
        let mut rest = answer.map_err(|error| broken(&contact, error))?.into_inner();
        let first = rest.message().await.map_err(|error| broken(&contact, error))?;
        match first.and_then(|it| it.part) {
            Some(v1::logs_response::Part::Begin(begin)) => Ok(BegunLog { begin, rest }),
            Some(v1::logs_response::Part::Piece(_) | v1::logs_response::Part::End(_)) | None => {
                Err(unreached(&contact, "its stream has no beginning"))
            }
        }
    };
    let begun = timeout(NODE_PATIENCE, begin).await;
    begun.unwrap_or_else(|_| {
        let why = format!("nothing came for {} s", NODE_PATIENCE.as_secs());
        Err(unreached(&contact, &why))
    })
}

/// Hands a stream on, until it ends or nobody reads.
async fn relay(
    contact: Contact,
    mut rest: Streaming<v1::LogsResponse>,
    items: mpsc::Sender<Result<v1::LogsResponse, Status>>,
) {
    loop {
        let item = match rest.message().await {
            Ok(Some(item)) => Ok(item),
            Ok(None) => return,
            Err(error) => Err(broken(&contact, error)),
        };
        let is_last = item.is_err();
        // Whoever reads too slowly is told by the node, if at all.
        let sent = timeout(READER_PATIENCE, items.send(item)).await;
        if is_last || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

#[tonic::async_trait]
impl Programs for ProgramsService {
    type LogsStream = Pieces;

    async fn logs(&self, request: Request<v1::LogsRequest>) -> Result<Response<Pieces>, Status> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        let ask = programs::logs(&request).map_err(status)?;
        let place = self.take_place()?;
        let BegunLog { begin, rest } = match self.begin(&request, &ask, deadline).await? {
            Found::AtNode(begun) => *begun,
            Found::Kept(Told { messages, place: kept }) => {
                let held = (place, kept);
                let all = tokio_stream::iter(messages).map(move |message| {
                    let _ = &held;
                    Ok(message)
                });
                return Ok(Response::new(Box::pin(all)));
            }
        };
        let address = String::new();
        let node = NodeId::parse(&begin.node).map_err(|it| status(it.into()))?;
        let contact = self.contact(&node).unwrap_or_else(|_| Contact::new(&node, &address));
        let (items, pieces) = mpsc::channel(PIECES_MAX);
        let stopping = self.shared.stopping.clone();
        tokio::spawn(async move {
            let _place = place;
            tokio::select! {
                () = relay(contact, rest, items.clone()) => {}
                () = items.closed() => {}
                () = stopping.cancelled() => {
                    let text = "this manager is stopping; go on at another one";
                    let refused = Refusal::new(RefusalKind::NotServing, Retry::Now, text);
                    // A client that reads too slowly to be told finds out anyway.
                    let _ = items.try_send(Err(refusal::status(&refused)));
                }
            }
        });
        let begin = v1::LogsResponse { part: Some(v1::logs_response::Part::Begin(begin)) };
        let all = tokio_stream::once(Ok(begin)).chain(ReceiverStream::new(pieces));
        Ok(Response::new(Box::pin(all)))
    }

    async fn usage(
        &self,
        request: Request<v1::UsageRequest>,
    ) -> Result<Response<v1::UsageResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        let ask = programs::usage(&request).map_err(status)?;
        let contact = self.contact(&ask.node).map_err(status)?;
        let request = v1::UsageRequest { cluster: self.cluster.to_string(), ..request };
        let asked = async {
            let answer = connect(&contact).await?.usage(request).await;
            answer.map_err(|error| broken(&contact, error))
        };
        in_node_time(deadline, &contact, asked).await
    }

    async fn content_status(
        &self,
        request: Request<v1::ContentStatusRequest>,
    ) -> Result<Response<v1::ContentStatusResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        let contact = self.contact(&node_of(&request.node)?).map_err(status)?;
        // Whoever looks at all nodes is told at once which are silent, and asks again if they wait for one.
        let contact = Contact { advice: Retry::WhenChanged, ..contact };
        let request = v1::ContentStatusRequest { cluster: self.cluster.to_string(), ..request };
        let asked = async {
            let answer = connect(&contact).await?.content_status(request).await;
            answer.map_err(|error| broken(&contact, error))
        };
        in_node_time(deadline, &contact, asked).await
    }
}

fn node_of(text: &str) -> Result<NodeId, Status> {
    let wrong = |it: FieldError| status(FieldError::new("node", it.problem).into());
    NodeId::parse(text).map_err(wrong)
}

/// What a node answers, as long as it may take.
async fn in_node_time<T>(
    deadline: Instant,
    contact: &Contact,
    asked: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let deadline = deadline.min(Instant::now() + NODE_PATIENCE);
    timeout_at(deadline, asked).await.unwrap_or_else(|_| {
        Err(unreached(contact, &format!("nothing came for {} s", NODE_PATIENCE.as_secs())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_known_while_they_live_and_after_their_end() {
        let program = v1::Session {
            address: "a:2".into(),
            node_address: "a:1".into(),
            ..v1::Session::default()
        };
        assert!(!is_machine(&program));
        assert!(!is_machine(&v1::Session { address: String::new(), ..program.clone() }));
        assert!(is_machine(&v1::Session { address: "a:1".into(), ..program.clone() }));
        assert!(is_machine(&v1::Session { machine_state: "red".into(), ..program.clone() }));
        let how = Some(v1::exit::How::FinalState("off".into()));
        assert!(is_machine(&v1::Session { exit: Some(v1::Exit { how }), ..program }));
    }

    #[test]
    fn a_node_that_did_not_answer_may_keep_it_all_the_same() {
        let request = v1::LogsRequest { id: "s".into(), ..v1::LogsRequest::default() };
        let ask = programs::logs(&request).unwrap();
        let gone = nowhere(&ask, 3, &[], &[]);
        assert_eq!((gone.kind, gone.retry), (RefusalKind::NotFound, Retry::WhenChanged));
        let silent = nowhere(&ask, 3, &["n2".to_owned()], &[]);
        assert_eq!(silent.kind, RefusalKind::NotServing);
        assert!(
            silent.message.ends_with("(3 nodes were asked); no answer came from n2"),
            "{silent}"
        );
        let lost = nowhere(&ask, 3, &[], &["n4 (LOST)".to_owned()]);
        assert!(lost.message.contains("; n4 (LOST) cannot be asked, and may keep it"), "{lost}");
    }
}
