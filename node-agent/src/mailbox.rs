//! What reaches the task that owns the node's decisions.

use crate::catalog::Classes;
use rota_model::node_msg::{FromNode, ToNode};
use rota_model::{BootId, Refusal, SessionKey, Token};
use rota_node::machine::Transition;
use rota_node::{NodeInput, ReportId};
use rota_proto::SendEvent;
use rota_proto::running::LiveAsk;
use rota_proto::v1;
use tokio::sync::{mpsc, oneshot};

/// Most events that wait. Calls arrive in batches, one event each, so this is some batches of
/// every manager and news of some thousand programs; when it is full, senders wait.
pub const EVENTS_MAX: usize = 4096;

/// Something for the node.
pub enum Event {
    /// For the decisions as it is: news of the runtime and of managers.
    Node(NodeInput),
    /// A manager did not answer a sign of life.
    Unanswered {
        /// Its address.
        manager: String,
        /// Why, for people.
        why: String,
    },
    /// None of the managers answered the sign of life that was sent then.
    NobodyAnswered {
        /// The boot that sent it.
        boot: BootId,
        /// When.
        sent_mono_ms: u64,
    },
    /// No manager will ever register this boot as it is; why, for people.
    Refused(String),
    /// This boot is over before it was registered; why, for people.
    BootOver(String),
    /// A manager opened a stream; its answers go here. When the channel is full they are dropped:
    /// the manager asks again.
    StreamOpened {
        /// The stream.
        stream: u64,
        /// Its answers.
        answers: mpsc::Sender<FromNode>,
    },
    /// Calls of a manager that came together.
    Calls {
        /// The stream.
        stream: u64,
        /// In order.
        calls: Vec<ToNode>,
    },
    /// Managers have committed these reports of that boot.
    Acked {
        /// Report ids are counted per boot.
        boot: BootId,
        /// Which.
        ids: Vec<ReportId>,
    },
    /// An event for a machine.
    Send {
        /// The event.
        event: SendEvent,
        /// The answer.
        reply: oneshot::Sender<Result<Transition, Refusal>>,
    },
    /// An operator wants to know what lives here.
    Look {
        /// What of it.
        ask: LiveAsk,
        /// A page.
        reply: oneshot::Sender<v1::LiveResponse>,
    },
    /// The task of a program session is over.
    ProgramOver {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
    },
    /// The classes were read again.
    Classes(Classes),
    /// Leave in good order; the second time, without grace.
    Leave {
        /// What asked for it, for the log.
        signal: &'static str,
    },
    /// End now, and leave what runs to the next agent.
    LeaveRunning,
}

/// The sending end.
#[derive(Clone)]
pub struct Mailbox(mpsc::Sender<Event>);

impl Mailbox {
    /// A mailbox and its receiving end.
    pub fn new() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        (Self(sender), receiver)
    }

    /// Gives an event, waiting for room. When nobody takes events any more the process is about
    /// to end, and the event with it.
    pub async fn give(&self, event: Event) {
        if self.0.send(event).await.is_err() {
            tracing::debug!("an event came after the end");
        }
    }

    /// Gives an input for the decisions.
    pub async fn node(&self, input: NodeInput) {
        self.give(Event::Node(input)).await;
    }
}
