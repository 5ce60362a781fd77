//! The way into the driver. Two lanes, both bounded: what keeps the ring going (peers, nodes,
//! config store) is taken before new work of clients, and waits for room where there is none;
//! a client's call that finds its lane full, or comes when the process stops, is refused at once.

use crate::metrics;
use rota_model::node_msg::{FromNode, Register, Registered, Renew, Renewed};
use rota_model::{Changed, NodeId, Refusal, RefusalKind, Retry};
use rota_proto::encoded::DocBytes;
use rota_protocol::placements::{Placements, PlacementsAsk};
use rota_protocol::{Envelope, Input, NodeOrdered, Op, OpResult, Order, Ordered, Stats};
use rota_ring::NodeOrder;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Client calls that may wait for the driver. It takes some 50,000 a second, so a full lane is
/// already 80 ms behind; more would only make callers wait for what they then give up.
pub const CALLS_MAX: usize = 4096;

/// Most bytes of such calls: a thousand opens with the largest attributes.
pub const CALL_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Batches of peers and nodes, and other inputs, that may wait for the driver. Senders wait for
/// room, which stops the reading of their streams; a few batches per peer and node suffice.
pub const URGENT_MAX: usize = 1024;

/// Advice to a caller that was refused for overload, in milliseconds.
const OVERLOADED_RETRY_MS: u64 = 100;

/// How long the driver may take for what carries no deadline of its own: a look at its state, a
/// renewal (the node sends another one every 3 s), and a registration or an operator's order, which
/// write the config store.
const LOOK: Duration = Duration::from_secs(5);
const RENEW: Duration = Duration::from_secs(3);
const REGISTER: Duration = Duration::from_secs(10);
const ORDER: Duration = Duration::from_secs(10);

/// How long after its deadline a client's call is given up here. The decisions watch deadlines, and are
/// later than this only when the driver does not turn, as while the disk is behind.
const OVERDUE: Duration = Duration::from_secs(1);

/// A client's call.
pub struct Call {
    /// What to do.
    pub op: Op,
    /// When the caller gives up.
    pub deadline: Instant,
    /// When it came in.
    pub entered: Instant,
    /// Where the answer goes.
    pub reply: oneshot::Sender<OpResult>,
    /// What it holds of the lane.
    pub held: LaneBytes,
}

/// Bytes of a call that waits for the driver. They are free again when the driver has taken it.
pub struct LaneBytes {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl LaneBytes {
    /// `None`: there is no room for so many beside those that are held.
    fn take(all: &Arc<AtomicUsize>, op: &Op) -> Option<Self> {
        let bytes = op.bytes();
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        let held = Self { bytes, all: all.clone() };
        (before == 0 || before + bytes <= CALL_BYTES_MAX || !op.is_large()).then_some(held)
    }
}

impl Drop for LaneBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What is taken before client calls.
pub enum Urgent {
    /// Messages of a peer, in order, and the bytes of the documents in them.
    Peer(Vec<Envelope>, DocBytes),
    /// Answers of a node, in order.
    Node(Vec<FromNode>),
    /// A node registers.
    Register(Register, oneshot::Sender<Result<Registered, Refusal>>),
    /// A node renews its lease.
    Renew(Renew, oneshot::Sender<Renewed>),
    /// An operator orders something.
    Order(Order, oneshot::Sender<Result<Ordered, Refusal>>),
    /// The same about a node.
    NodeOrder(NodeId, NodeOrder, oneshot::Sender<Result<NodeOrdered, Refusal>>),
    /// An operator wants to know where sessions are.
    Placements(PlacementsAsk, oneshot::Sender<Option<Placements>>),
    /// Somebody wants to see the manager's state.
    Stats(oneshot::Sender<Stats>),
    /// Anything else.
    Input(Box<Input>),
}

/// The sending side; clones share the lanes.
#[derive(Clone)]
pub struct Mailbox {
    calls: mpsc::Sender<Call>,
    call_bytes: Arc<AtomicUsize>,
    under_way: TaskTracker,
    urgent: mpsc::Sender<Urgent>,
}

/// The driver's side.
pub struct Lanes {
    /// Client calls.
    pub calls: mpsc::Receiver<Call>,
    /// Everything else.
    pub urgent: mpsc::Receiver<Urgent>,
}

/// A mailbox and its lanes.
pub fn mailbox() -> (Mailbox, Lanes) {
    let (calls, call_lane) = mpsc::channel(CALLS_MAX);
    let (urgent, urgent_lane) = mpsc::channel(URGENT_MAX);
    let (call_bytes, under_way) = (Arc::default(), TaskTracker::new());
    (
        Mailbox { calls, call_bytes, under_way, urgent },
        Lanes { calls: call_lane, urgent: urgent_lane },
    )
}

const STOPPING: &str = "this manager is stopping; ask another one";

/// The driver has ended: the process is stopping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopping;

impl From<Stopping> for Refusal {
    fn from(_: Stopping) -> Self {
        Refusal::unknown_outcome(RefusalKind::NotServing, Retry::Now, STOPPING)
    }
}

/// A request that is being carried out.
pub struct PendingCall(Result<Awaited, Refusal>);

struct Awaited {
    answer: oneshot::Receiver<OpResult>,
    until: Instant,
    changes: bool,
    _under_way: TaskTrackerToken,
}

impl PendingCall {
    /// Its answer. Soon after the deadline, whatever the driver does.
    pub async fn answer(self) -> OpResult {
        let Awaited { answer, until, changes, _under_way } = self.0?;
        match timeout_at(until, answer).await {
            Ok(answered) => answered.unwrap_or_else(|_| Err(Stopping.into())),
            Err(_) => {
                let text = "this manager is too busy to answer by the deadline";
                let mut refusal = unanswered(text.to_owned());
                if !changes {
                    refusal.changed = Changed::No;
                }
                Err(refusal)
            }
        }
    }
}

impl Mailbox {
    /// Carries out a request. Answers by its deadline, which the decisions watch, or soon after.
    pub async fn call(&self, op: Op, deadline: Instant) -> OpResult {
        self.begin(op, deadline).answer().await
    }

    /// Begins to carry out a request, without waiting for its answer.
    pub fn begin(&self, op: Op, deadline: Instant) -> PendingCall {
        if let Err(refusal) = self.takes_calls() {
            return PendingCall(Err(refusal));
        }
        let (reply, answer) = oneshot::channel();
        let Some(held) = LaneBytes::take(&self.call_bytes, &op) else {
            return PendingCall(Err(overloaded(
                &op,
                format_args!("{CALL_BYTES_MAX} bytes of calls"),
            )));
        };
        let (until, changes) = (deadline + OVERDUE, op.changes());
        let awaited = Awaited { answer, until, changes, _under_way: self.under_way.token() };
        let call = Call { op, deadline, entered: Instant::now(), reply, held };
        PendingCall(match self.calls.try_send(call) {
            Ok(()) => Ok(awaited),
            Err(mpsc::error::TrySendError::Full(call)) => {
                Err(overloaded(&call.op, format_args!("{CALLS_MAX} calls")))
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Stopping.into()),
        })
    }

    /// Refuses calls that come when the process is told to stop: nothing of them is begun.
    pub fn takes_calls(&self) -> Result<(), Refusal> {
        if self.under_way.is_closed() {
            return Err(Refusal::new(RefusalKind::NotServing, Retry::Now, STOPPING));
        }
        Ok(())
    }

    /// Refuses new calls of clients, and waits until none is under way.
    pub async fn last_calls(&self) {
        self.under_way.close();
        self.under_way.wait().await;
    }

    /// Hands over something urgent; waits for room.
    pub async fn urgent(&self, message: Urgent) -> Result<(), Stopping> {
        self.urgent.send(message).await.map_err(|_| Stopping)
    }

    /// Hands over an input; waits for room.
    pub async fn input(&self, input: Input) -> Result<(), Stopping> {
        self.urgent(Urgent::Input(Box::new(input))).await
    }

    /// Registers a node.
    pub async fn register(&self, register: Register) -> Result<Registered, Refusal> {
        let (reply, answer) = oneshot::channel();
        let message = Urgent::Register(register, reply);
        self.within(REGISTER, "the registration", message, answer).await?
    }

    /// Renews a node's lease.
    pub async fn renew(&self, renew: Renew) -> Result<Renewed, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.within(RENEW, "the renewal", Urgent::Renew(renew, reply), answer).await
    }

    /// Carries out an operator's order.
    pub async fn order(&self, order: Order) -> Result<Ordered, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.within(ORDER, "the order", Urgent::Order(order, reply), answer).await?
    }

    /// Carries out an operator's order about a node.
    pub async fn node_order(&self, node: NodeId, order: NodeOrder) -> Result<NodeOrdered, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.within(ORDER, "the order", Urgent::NodeOrder(node, order, reply), answer).await?
    }

    /// Where sessions of a partition are; `None` when this manager does not serve it.
    pub async fn placements(&self, ask: PlacementsAsk) -> Result<Option<Placements>, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.within(LOOK, "the look at placements", Urgent::Placements(ask, reply), answer).await
    }

    /// The manager's state, for people.
    pub async fn stats(&self) -> Result<Stats, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.within(LOOK, "the look at its state", Urgent::Stats(reply), answer).await
    }

    /// Hands over something urgent and waits for its answer, both within `most`.
    async fn within<T>(
        &self,
        most: Duration,
        what: &str,
        message: Urgent,
        answer: oneshot::Receiver<T>,
    ) -> Result<T, Refusal> {
        let exchange = async {
            self.urgent(message).await?;
            answer.await.map_err(|_| Stopping)
        };
        match timeout(most, exchange).await {
            Ok(answered) => answered.map_err(Refusal::from),
            Err(_) => {
                let text = format!("{what} was not answered within {} ms", most.as_millis());
                Err(unanswered(text))
            }
        }
    }

    /// Client calls that wait now, and urgent messages that wait now.
    pub fn depth(&self) -> (usize, usize) {
        let waiting = |capacity: usize, max: usize| max - capacity.min(max);
        (waiting(self.calls.capacity(), CALLS_MAX), waiting(self.urgent.capacity(), URGENT_MAX))
    }
}

/// The driver did not answer in time.
fn unanswered(text: String) -> Refusal {
    let retry = Retry::AfterMs(OVERLOADED_RETRY_MS);
    Refusal::unknown_outcome(RefusalKind::DeadlineExceeded, retry, text)
}

/// The refusal of a call for which there is no room, which is counted.
pub fn overloaded(op: &Op, limit: impl Display) -> Refusal {
    metrics::refused(op.kind(), metrics::class_of(op).as_ref(), RefusalKind::Overloaded);
    let text = format!("this manager has {limit} waiting, its limit; come again soon");
    Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(OVERLOADED_RETRY_MS), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{
        Attributes, ClassName, GetOp, Namespace, OpenOp, PoolName, RequestId, SessionId,
        SessionKey, SessionSpec,
    };
    use tokio_test::{assert_pending, assert_ready, task};

    fn get() -> Op {
        let id = SessionId::parse("x").unwrap();
        Op::Get(GetOp { key: SessionKey::new(Namespace::default_space(), id), stale_ok: false })
    }

    fn open(bytes: usize) -> Op {
        let Op::Get(GetOp { key, .. }) = get() else { unreachable!("get gives a get") };
        let attributes = Attributes::from([("a".to_owned(), "x".repeat(bytes))]);
        let spec = SessionSpec {
            class: ClassName::parse("builtin").unwrap(),
            pool: PoolName::default_pool(),
            attributes: Arc::new(attributes),
            life: None,
        };
        let request = RequestId::parse("r").unwrap();
        Op::Open(OpenOp { key, spec, pool_named: true, request, remember: true })
    }

    #[tokio::test]
    async fn large_calls_that_wait_are_bounded_by_their_bytes() {
        let (mailbox, mut lanes) = mailbox();
        let (large, deadline) = (open(1024 * 1024), Instant::now());
        let fit = CALL_BYTES_MAX / large.bytes();
        let waiting: Vec<_> = (0..fit).map(|_| mailbox.begin(large.clone(), deadline)).collect();
        assert!(waiting.iter().all(|it| it.0.is_ok()), "{fit}");
        let refusal = mailbox.call(large.clone(), deadline).await.unwrap_err();
        assert_eq!((refusal.kind, refusal.changed), (RefusalKind::Overloaded, Changed::No));
        assert!(refusal.message.contains("67108864 bytes"), "{}", refusal.message);
        drop(lanes.calls.recv().await);
        assert!(mailbox.begin(large, deadline).0.is_ok());
    }

    #[tokio::test]
    async fn who_stops_waits_for_the_calls_that_are_under_way() {
        let (mailbox, mut lanes) = mailbox();
        let mut call = task::spawn(mailbox.call(get(), Instant::now() + LOOK));
        assert_pending!(call.poll());
        let mut last = task::spawn(mailbox.last_calls());
        assert_pending!(last.poll());
        let refusal = mailbox.call(get(), Instant::now()).await.unwrap_err();
        assert_eq!((refusal.kind, refusal.changed), (RefusalKind::NotServing, Changed::No));
        let taken = lanes.calls.recv().await.unwrap();
        taken.reply.send(Err(Stopping.into())).unwrap();
        assert_pending!(last.poll());
        assert!(assert_ready!(call.poll()).is_err());
        assert!(last.is_woken());
        assert_ready!(last.poll());
    }

    #[tokio::test]
    async fn a_call_that_finds_its_lane_full_is_refused_with_advice() {
        let (mailbox, mut lanes) = mailbox();
        let deadline = Instant::now();
        let mut waiting: Vec<_> =
            (0..CALLS_MAX).map(|_| task::spawn(mailbox.call(get(), deadline))).collect();
        waiting.iter_mut().for_each(|it| assert_pending!(it.poll()));
        assert_eq!(mailbox.depth(), (CALLS_MAX, 0));
        let refusal = mailbox.call(get(), deadline).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Overloaded);
        assert!(refusal.message.contains("4096"), "{}", refusal.message);
        drop(lanes.calls.recv().await);
        let first = assert_ready!(waiting[0].poll());
        assert_eq!(first.unwrap_err().kind, RefusalKind::NotServing);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_driver_leaves_unanswered_is_refused_in_time() {
        let (mailbox, _lanes) = mailbox();
        let node = rota_model::NodeId::parse("n").unwrap();
        let (boot, load) = (rota_model::BootId(1), rota_model::node_msg::NodeLoad::default());
        let began = Instant::now();
        let looked = mailbox.stats().await.unwrap_err();
        assert_eq!(looked.kind, RefusalKind::DeadlineExceeded);
        assert!(looked.message.contains("5000 ms"), "{}", looked.message);
        let renew = Renew { node, boot, load };
        assert_eq!(mailbox.renew(renew).await.unwrap_err().kind, RefusalKind::DeadlineExceeded);
        assert_eq!(began.elapsed(), LOOK + RENEW);
        for (op, changed) in [(get(), Changed::No), (open(1), Changed::Unknown)] {
            let wait = Duration::from_secs(10);
            let began = Instant::now();
            let refusal = mailbox.call(op, began + wait).await.unwrap_err();
            assert_eq!((refusal.kind, refusal.changed), (RefusalKind::DeadlineExceeded, changed));
            assert_eq!(began.elapsed(), wait + OVERDUE);
        }
    }

    fn batch() -> Urgent {
        Urgent::Peer(Vec::new(), DocBytes::default())
    }

    #[tokio::test]
    async fn an_urgent_message_waits_for_room() {
        let (mailbox, mut lanes) = mailbox();
        for _ in 0..URGENT_MAX {
            mailbox.urgent(batch()).await.unwrap();
        }
        let mut late = task::spawn(mailbox.urgent(batch()));
        assert_pending!(late.poll());
        drop(lanes.urgent.recv().await);
        assert!(late.is_woken());
        assert_eq!(assert_ready!(late.poll()), Ok(()));
    }
}
