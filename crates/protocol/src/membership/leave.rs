//! Who leaves the ring, and what operators order about it.
//!
//! ```text
//!  order ──▶ read the View consistently ──▶ compare-and-set ──▶ answer
//!                                                │
//!  owners: copy to the next managers, let go ◀───┘ ──▶ LEFT: the run ends
//! ```
//! An order is looked at under a View that was read after it came, so that what is refused is refused
//! for what stands there now. The copying and the hand-over are those of [`crate::log::learn`].

use crate::log::env::{Env, NameOf};
use crate::manager::inputs::Manager;
use crate::membership::purpose::Purpose;
use crate::membership::standing::Standing;
use crate::membership::state::{Membership, Orders};
use crate::membership::waiting::{ORDER_MS, ORDERS_MAX, Waiting};
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use rota_messages::{Message, Order};
use rota_model::{ManagerStatus, Refusal, RefusalKind, Retry};
use rota_ring::{Change, RingTransition, View};

impl Manager {
    /// An operator's order.
    pub(crate) fn on_order(&mut self, call: u64, order: Order) {
        match self.membership.begin_order(&mut self.env, self.orders.ring.len(), "orders") {
            Ok((read, until_ms)) => {
                self.orders.ring.push_back(Waiting {
                    call,
                    order,
                    until_ms,
                    read: Some(read),
                    saw: None,
                });
            }
            Err(refusal) => self.env.answer_order(call, Err(refusal)),
        }
    }

    /// Carries out the next order that is ready. Gives whether a compare-and-set is on its way.
    pub(crate) fn drive_orders(&mut self, view: &View) -> bool {
        while let Some(index) = self.orders.ring.iter().position(|it| it.read.is_none()) {
            let Some(waiting) = self.orders.ring.remove(index) else { return false };
            match waiting.carried_out(view) {
                Ok((Some(next), answer)) => {
                    let purpose = Purpose::Order(Box::new(waiting), answer);
                    self.changes.ask(&mut self.env, purpose, Change::view(next));
                    return true;
                }
                Ok((None, answer)) => self.env.answer_order(waiting.call, Ok(answer)),
                Err(refusal) => self.env.answer_order(waiting.call, Err(refusal)),
            }
        }
        false
    }

    /// Gives the transition back: the newcomer when it holds all that it should, who leaves when it
    /// holds nothing, its first Up successor when it has come no nearer to that for so long that others
    /// should not wait any more. And should who left be gone with its last word, the successor says it.
    pub(crate) fn drive_release(&mut self, view: &View) {
        let Some(under_way) = view.transition else { return };
        let (me, number) = (self.env.me.number, under_way.number());
        let timing = &self.env.config.timing;
        let waited_ms = self.progress.under_way.stands_still(self.env.now.mono_ms);
        let mut successors = view.ring_from(number).filter(|it| *it != number && view.is_up(*it));
        let is_heir = successors.next().unwrap_or(number) == me;
        let overdue = waited_ms >= timing.join_ms && is_heir;
        let (next, step) = match under_way {
            RingTransition::Join { .. } if me == number && self.progress.arrived == view.epoch => {
                (view.released(), Transition::JoinFinished)
            }
            RingTransition::Join { .. } if overdue => (view.released(), Transition::JoinGivenUp),
            RingTransition::Join { .. } => return,
            RingTransition::Leave { .. } => match view.left() {
                Some(next) if me == number || (is_heir && waited_ms >= timing.suspect_ms) => {
                    (Some(next), Transition::LeaveFinished)
                }
                None if overdue => (view.stayed(), Transition::LeaveGivenUp),
                Some(_) | None => return,
            },
        };
        if let Some(next) = next {
            let purpose = Purpose::Release(step, number);
            self.changes.ask(&mut self.env, purpose, Change::view(next));
        }
    }

    /// The View says that this run is out: it claims its number anew, unless that has left.
    pub(crate) fn go_out(&mut self, view: &View) {
        let status = view.managers.get(&self.env.config.number).map(|it| it.status);
        self.parts.release_all(&mut self.env);
        if status == Some(ManagerStatus::Left) {
            self.membership.standing = Standing::Left;
            self.env.note(Transition::HasLeft, None);
        } else {
            self.membership.standing = Standing::outside();
            self.membership.drive_claim(&mut self.env);
        }
    }
}

impl Orders {
    /// A read of the config store has ended.
    pub(crate) fn on_order_read(&mut self, env: &mut Env, read: u64, is_there: bool) {
        let Some(index) = self.ring.iter().position(|it| it.read == Some(read)) else {
            return;
        };
        if is_there {
            let saw = env.view.as_ref().and_then(|view| view.transition);
            if let Some(waiting) = self.ring.get_mut(index) {
                (waiting.read, waiting.saw) = (None, saw);
            }
        } else if let Some(waiting) = self.ring.remove(index) {
            let refusal = env.not_read();
            env.answer_order(waiting.call, Err(refusal));
        }
    }

    /// By when each waiting order is answered.
    pub(crate) fn order_deadlines(&self) -> impl Iterator<Item = u64> {
        self.ring.iter().map(|it| it.until_ms)
    }

    /// Orders that waited too long have changed nothing.
    pub(crate) fn expire_orders(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        while let Some(index) = self.ring.iter().position(|it| now >= it.until_ms) {
            let Some(waiting) = self.ring.remove(index) else { return };
            let text = format!("other changes of the ring went on for {ORDER_MS} ms; try again");
            let refusal = Refusal::new(RefusalKind::DeadlineExceeded, env.soon(), text);
            env.answer_order(waiting.call, Err(refusal));
        }
    }

    /// Somebody else changed the View: the order is looked at again.
    pub(crate) fn on_order_conflict(&mut self, waiting: Waiting) {
        self.ring.push_front(waiting);
    }
}

/// Whether a run that has left still takes such a message: answers for its clients, and requests, to
/// say that others own now.
pub(crate) fn is_for_the_last_calls(message: &Message) -> bool {
    matches!(message, Message::Answer { .. } | Message::Request { .. })
}

impl Membership {
    /// The door of every operator's order, beside so many others: the read of the config store that
    /// it waits for from here, and until when.
    pub(crate) fn begin_order(
        &self,
        env: &mut Env,
        waiting: usize,
        what: &str,
    ) -> Result<(u64, u64), Refusal> {
        if self.standing != Standing::Inside {
            let text = "this manager has no number of the ring just now; ask another one";
            return Err(Refusal::new(RefusalKind::NotServing, Retry::Now, text));
        }
        if waiting >= ORDERS_MAX {
            let text = format!("{ORDERS_MAX} {what} wait at this manager already");
            return Err(Refusal::new(RefusalKind::Overloaded, env.soon(), text));
        }
        let read = env.next_id(NameOf::Read);
        env.effects.push(Effect::ReadConfig { read });
        Ok((read, env.now.mono_ms + ORDER_MS))
    }
}
