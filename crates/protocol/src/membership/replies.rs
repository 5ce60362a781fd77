//! What this manager says to those who ask it for changes of the View and of the registry.

use crate::log::env::Env;
use crate::membership::waiting::{Waiting, WaitingNode};
use crate::ports::io::{Effect, Reply};
use crate::ports::note::Transition;
use rota_messages::{Envelope, Message, NodeOrdered, Ordered};
use rota_model::{MemberId, Refusal, RefusalKind, Retry};
use rota_ring::{NodeReg, RingTransition};

impl Env {
    pub(crate) fn soon(&self) -> Retry {
        Retry::AfterMs(self.config.timing.retry_ms)
    }

    /// Why an order is not carried out when the config store does not answer.
    pub(crate) fn not_read(&self) -> Refusal {
        let text = "the config store could not be read; nothing was changed";
        Refusal::new(RefusalKind::ConfigStoreAway, self.soon(), text)
    }

    pub(crate) fn answer_order(&mut self, call: u64, result: Result<Ordered, Refusal>) {
        self.effects.push(Effect::Reply { call, reply: Reply::Ordered(result) });
    }

    pub(crate) fn answer_node_order(&mut self, call: u64, result: Result<NodeOrdered, Refusal>) {
        self.effects.push(Effect::Reply { call, reply: Reply::NodeOrdered(result) });
    }

    /// Sends to whoever serves there.
    pub(crate) fn send_to(&mut self, address: String, to: MemberId, message: Message) {
        if !address.is_empty() {
            let envelope = Envelope { from: self.me, to, epoch: self.epoch(), message };
            self.effects.push(Effect::Send { address, envelope });
        }
    }

    /// Nobody knows whether the order was carried out.
    pub(crate) fn on_order_unknown(&mut self, waiting: &Waiting) {
        let text = "nobody knows whether the config store took it; `ringctl inspect` shows it";
        let retry = self.soon();
        let refusal = Refusal::unknown_outcome(RefusalKind::ConfigStoreAway, retry, text);
        self.answer_order(waiting.call, Err(refusal));
    }

    /// Nobody knows whether the order was carried out.
    pub(crate) fn on_node_order_unknown(&mut self, waiting: &WaitingNode) {
        let text = "nobody knows whether the config store took it; it may be repeated";
        let refusal = Refusal::unknown_outcome(RefusalKind::ConfigStoreAway, self.soon(), text);
        self.answer_node_order(waiting.call, Err(refusal));
    }

    /// The View is as it was ordered.
    pub(crate) fn on_order_written(&mut self, waiting: &Waiting, answer: Ordered) {
        let step = match (answer.cancelled, answer.under_way) {
            (Some(RingTransition::Join { .. }), _) => Transition::JoinCancelled,
            (Some(RingTransition::Leave { .. }), _) => Transition::LeaveCancelled,
            (None, Some(_)) => Transition::LeaveStarted,
            // It was down and held nothing.
            (None, None) => Transition::LeaveFinished,
        };
        self.note_text(step, None, format!("number {}", answer.number));
        self.answer_order(waiting.call, Ok(answer));
    }

    /// The registry is as it was ordered.
    pub(crate) fn on_node_order_written(&mut self, waiting: &WaitingNode, reg: NodeReg) {
        let text = format!("node {} is {} since an operator's order", reg.node, reg.state);
        self.note_node(Transition::NodeOrdered, None, &reg.node, text);
        self.answer_node_order(waiting.call, Ok(NodeOrdered { reg, changed: true }));
    }
}
