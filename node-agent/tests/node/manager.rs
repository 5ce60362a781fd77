//! A manager as a node sees it: the service `Nodes`, and calls to the node.

use crate::waiting::{LIMIT, until};
use rota_model::node_msg::{
    DeadToken, FromNode, Grant, NodeAnswer, NodeCall, Register, Registered, Renewed, ReportEvent,
    ReportItem, ScanItem, SlotRange, ToNode, ToldLimit,
};
use rota_model::{
    BootId, ClassName, ClusterName, Epoch, Exit, LogPos, ManagerNumber, Namespace, NodeState,
    PoolName, Reason, RequestId, Seq, SessionId, SessionKey, SessionSpec, SlotId, Token,
};
use rota_proto::v1;
use rota_proto::v1::machines_client::MachinesClient;
use rota_proto::v1::node_agent_client::NodeAgentClient;
use rota_proto::v1::nodes_server::{Nodes, NodesServer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

/// Slots of the ring that this manager plays: one partition holds all.
pub const M: u32 = 1024;
const PE: Epoch = Epoch(5);
const RANGE: SlotRange = SlotRange { first: SlotId(0), last: SlotId(M - 1) };

/// What the manager answers to a sign of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    /// The lease is renewed.
    Grants,
    /// It fails.
    Silent,
    /// That boot is lost.
    SaysLost(BootId),
}

struct Seen {
    registered: Vec<Register>,
    reports: Vec<ReportItem>,
    renewals: u64,
    mood: Mood,
}

/// The manager.
#[derive(Clone)]
pub struct Manager {
    pub address: String,
    seen: Arc<Mutex<Seen>>,
}

impl Manager {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Seen { registered: vec![], reports: vec![], renewals: 0, mood: Mood::Grants };
        let manager = Self { address, seen: Arc::new(Mutex::new(seen)) };
        let service = NodesServer::new(manager.clone());
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))),
        );
        manager
    }

    pub fn set_mood(&self, mood: Mood) {
        self.seen.lock().unwrap().mood = mood;
    }

    pub fn renewals(&self) -> u64 {
        self.seen.lock().unwrap().renewals
    }

    /// The registration number `count`, counted from 1.
    pub async fn registration(&self, count: usize) -> Register {
        until(&format!("registration {count}"), || {
            self.seen.lock().unwrap().registered.get(count - 1).cloned()
        })
        .await
    }

    pub fn registrations(&self) -> usize {
        self.seen.lock().unwrap().registered.len()
    }

    /// Waits for a report about a session for which `pick` gives something.
    pub async fn report<T>(
        &self,
        what: &str,
        id: &str,
        mut pick: impl FnMut(&ReportEvent) -> Option<T>,
    ) -> T {
        let key = key(id);
        until(&format!("a report of {id}: {what}"), || {
            let seen = self.seen.lock().unwrap();
            seen.reports.iter().filter(|it| it.key == key).find_map(|it| pick(&it.event))
        })
        .await
    }

    /// Waits for the report of a session's end.
    pub async fn end_of(&self, id: &str) -> (Reason, Option<Exit>, String) {
        self.report("end", id, |event| match event {
            ReportEvent::Ended { reason, exit, detail } => {
                Some((*reason, exit.clone(), detail.clone()))
            }
            ReportEvent::Ready { .. } | ReportEvent::MachineState { .. } => None,
        })
        .await
    }

    /// Waits for the report that a session answers.
    pub async fn ready(&self, id: &str) -> String {
        self.report("ready", id, |event| match event {
            ReportEvent::Ready { address, .. } => Some(address.clone()),
            ReportEvent::Ended { .. } | ReportEvent::MachineState { .. } => None,
        })
        .await
    }

    /// Waits for the report of a machine's state.
    pub async fn state(&self, id: &str, state: &str) -> u64 {
        self.report(state, id, |event| match event {
            ReportEvent::MachineState { state: now, change } if now == state => Some(*change),
            ReportEvent::MachineState { .. }
            | ReportEvent::Ready { .. }
            | ReportEvent::Ended { .. } => None,
        })
        .await
    }
}

#[tonic::async_trait]
impl Nodes for Manager {
    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterResponse>, Status> {
        let register = rota_proto::node::register(&cluster(), request.into_inner()).unwrap();
        self.seen.lock().unwrap().registered.push(register);
        let registered = Registered {
            epoch: PE,
            m: M,
            fences: vec![(RANGE, PE)],
            managers: vec![(ManagerNumber(M - 1), self.address.clone())],
        };
        Ok(Response::new(registered.into()))
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::RenewResponse>, Status> {
        let mut seen = self.seen.lock().unwrap();
        let boot = rota_proto::node::renew(&cluster(), request.into_inner()).unwrap().boot.0;
        let renewed = match seen.mood {
            Mood::Silent => return Err(Status::unavailable("silent")),
            Mood::SaysLost(lost) if lost.0 == boot => Renewed::Lost,
            Mood::Grants | Mood::SaysLost(_) => {
                let managers = vec![(ManagerNumber(M - 1), self.address.clone())];
                let (load_limit, grants) =
                    (ToldLimit::Nothing, vec![Grant { range: RANGE, pe: PE }]);
                Renewed::Heard {
                    epoch: PE,
                    managers,
                    load_limit,
                    grants,
                    more: false,
                    retires: false,
                }
            }
        };
        seen.renewals += 1;
        Ok(Response::new(renewed.into()))
    }

    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<v1::ReportResponse>, Status> {
        let items = rota_proto::node::report_items(&cluster(), request.into_inner()).unwrap();
        let acknowledged = vec![true; items.len()];
        self.seen.lock().unwrap().reports.extend(items);
        Ok(Response::new(v1::ReportResponse { acknowledged }))
    }
}

/// The cluster of nodes and managers, unless a test says otherwise.
pub fn cluster() -> ClusterName {
    ClusterName::parse("rota").unwrap()
}

pub fn key(id: &str) -> SessionKey {
    SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap())
}

pub fn token(seq: u64) -> Token {
    Token(LogPos::new(PE, Seq(seq)))
}

/// A connection to `host:port`.
pub async fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// A manager's stream to a node.
pub struct Line {
    cluster: ClusterName,
    address: String,
    boot: BootId,
    calls: mpsc::Sender<v1::NodeCallBatch>,
    answers: tonic::Streaming<v1::NodeAnswerBatch>,
    next: AtomicU64,
    early: BTreeMap<u64, FromNode>,
}

impl Line {
    /// Connects to a node that registered so.
    pub async fn to(register: &Register) -> Self {
        let mut client = NodeAgentClient::new(channel(&register.address).await);
        let (calls, outgoing) = mpsc::channel(16);
        let answers = client.exchange(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        let (address, boot, cluster) = (register.address.clone(), register.boot, cluster());
        Self {
            cluster,
            address,
            boot,
            calls,
            answers,
            next: AtomicU64::new(1),
            early: BTreeMap::new(),
        }
    }

    /// Sends one call in the name of that cluster, and gives why the node ends the stream.
    pub async fn refused_as(mut self, cluster: &str) -> Status {
        let scan = ToNode::Scan { head: self.head(), after: None, limit: 100 };
        self.cluster = ClusterName::parse(cluster).unwrap();
        let batch = rota_proto::node::call_batch(&self.cluster, vec![scan.into()]);
        self.calls.send(batch).await.unwrap();
        let answer = tokio::time::timeout(LIMIT, self.answers.message());
        answer.await.expect("an answer in time").unwrap_err()
    }

    fn head(&self) -> NodeCall {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        NodeCall { call, boot: self.boot, pe: PE, range: RANGE }
    }

    /// Sends calls in one batch, again and again as a manager does (a node ignores calls before it
    /// knows that it is registered), and gives the answers in the calls' order.
    pub async fn ask_all(&mut self, messages: Vec<ToNode>) -> Vec<NodeAnswer> {
        let wanted: Vec<u64> = messages.iter().map(|it| it.head().call).collect();
        let calls: Vec<v1::NodeCall> = messages.into_iter().map(Into::into).collect();
        let began = Instant::now();
        let mut again = tokio::time::interval(Duration::from_millis(300));
        while !wanted.iter().all(|call| self.early.contains_key(call)) {
            assert!(began.elapsed() < LIMIT, "no answer to calls {wanted:?}");
            tokio::select! {
                batch = self.answers.message() => {
                    for answer in batch.unwrap().expect("a batch").answers {
                        let answer = FromNode::try_from(answer).unwrap();
                        assert_eq!(answer.boot, self.boot);
                        self.early.insert(answer.call, answer);
                    }
                }
                _ = again.tick() => {
                    let batch = rota_proto::node::call_batch(&self.cluster, calls.clone());
                    self.calls.send(batch).await.unwrap();
                }
            }
        }
        wanted.iter().map(|call| self.early[call].answer.clone()).collect()
    }

    pub async fn ask(&mut self, message: ToNode) -> NodeAnswer {
        self.ask_all(vec![message]).await.remove(0)
    }

    pub fn create_call(&self, id: &str, class: &str, seq: u64, given: &[(&str, &str)]) -> ToNode {
        let attributes =
            given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let spec = SessionSpec {
            class: ClassName::parse(class).unwrap(),
            pool: PoolName::default_pool(),
            attributes: Arc::new(attributes),
            life: None,
        };
        ToNode::Create {
            head: self.head(),
            key: key(id),
            slot: SlotId(7),
            token: token(seq),
            life: rota_model::Stamp::MIN,
            deadline_ms: 5_000,
            spec,
            request: Some(RequestId::parse("a-request").unwrap()),
        }
    }

    pub async fn create(&mut self, id: &str, class: &str, seq: u64) -> NodeAnswer {
        let call = self.create_call(id, class, seq, &[]);
        self.ask(call).await
    }

    pub async fn destroy(&mut self, id: &str, seq: u64) -> NodeAnswer {
        let (head, key, token) = (self.head(), key(id), token(seq));
        self.ask(ToNode::Destroy {
            head,
            key,
            slot: SlotId(7),
            token,
            grace_ms: None,
            request: None,
        })
        .await
    }

    pub async fn scan(&mut self) -> Vec<ScanItem> {
        let head = self.head();
        let answer = self.ask(ToNode::Scan { head, after: None, limit: 100 }).await;
        let NodeAnswer::Scanned { items, more: false, .. } = answer else { panic!("{answer:?}") };
        items
    }

    /// Sends an event to a machine.
    pub async fn send(&self, id: &str, event: &str) -> Result<v1::SendResponse, Status> {
        let mut client = MachinesClient::new(channel(&self.address).await);
        let (id, event) = (id.to_owned(), event.to_owned());
        let request = v1::SendRequest { namespace: String::new(), id, event, life: 0 };
        client.send(request).await.map(Response::into_inner)
    }
}

/// The address in the answer to a create.
pub fn running(answer: &NodeAnswer) -> (String, bool) {
    let NodeAnswer::Running { address, ready, .. } = answer else { panic!("{answer:?}") };
    (address.clone(), *ready)
}

/// The detail of a start that never happened.
pub fn never_started(answer: &NodeAnswer) -> String {
    let NodeAnswer::Dead(DeadToken::NeverStarted { detail, .. }) = answer else {
        panic!("{answer:?}")
    };
    detail.clone()
}

/// Whether a registration says that the node left.
pub fn signs_off(register: &Register) -> bool {
    register.state == NodeState::Removed
}
