//! What becomes of orders at a manager, and of a process whose number has left, or is refused.

use crate::counters::Fault;
use crate::event::Event;
use crate::ground::Ground;
use crate::site::AtManager;
use rota_model::{ManagerNumber, ManagerStatus, Refusal};
use rota_protocol::{Input, Ordered};
use rota_ring::ClaimRefused;
use std::fmt::Debug;

/// How long an order may take at a manager: as long as it waits there, and a compare-and-set.
pub(crate) const ORDER_US: u64 = 7_000_000;

impl Ground {
    /// That number is no more one of the ring's.
    fn note_left(&mut self, number: ManagerNumber) {
        if let Some(index) = self.machines.numbers.iter().position(|it| it.0 == number) {
            let gone = self.machines.numbers.remove(index);
            self.machines.gone.push(gone);
        }
    }
}

impl AtManager<'_> {
    /// Somebody orders something, if the process runs.
    pub(crate) fn is_ordered(&mut self, fault: Fault, call: u64, what: &str, input: Input) {
        if self.host.process.is_none() {
            return;
        }
        self.ground.took_effect(fault);
        let until_us = self.ground.now_us() + ORDER_US;
        self.ground.checker.deadlines.on_asked(self.number, self.host.run, call, until_us);
        self.host.waiting.orders.insert(call);
        let line = || format!("is ordered {what} (call {call})");
        self.ground.trace.line(self.ground.queue.now_us(), self.place(), line);
        self.hears(0, input);
    }

    /// An order about the ring was answered.
    pub fn on_ordered(&mut self, call: u64, result: &Result<Ordered, Refusal>) {
        if result.as_ref().is_err_and(|it| it.message.contains("one goes at a time")) {
            self.ground.counters.fault(Fault::OrderRefused);
        }
        self.on_order_answered(call, result);
    }

    /// An order was answered.
    pub fn on_order_answered(&mut self, call: u64, result: &impl Debug) {
        self.host.waiting.orders.remove(&call);
        let line = || format!("answers order {call}: {result:?}");
        self.ground.trace.line(self.ground.queue.now_us(), self.place(), line);
    }

    /// Whether a manager's number has left and nobody has told it to return: its process does not
    /// start. One that may join is outside then, the others are refused.
    pub fn stays_away(&mut self) -> bool {
        let view = self.store.state().view.as_ref();
        let status = view.and_then(|view| view.managers.get(&self.number).map(|it| it.status));
        if status == Some(ManagerStatus::Left) && !self.host.told {
            self.ground.note_left(self.number);
            return true;
        }
        false
    }

    /// Whether a process may come into the ring: nobody reserved its number, or that has left, and it
    /// was told to take it.
    pub fn may_join(&self) -> bool {
        let view = self.store.state().view.as_ref();
        let entry = view.and_then(|view| view.managers.get(&self.number));
        self.host.joins && (self.host.told || entry.is_none())
    }

    /// The View has changed: in the ring, nobody is told to return.
    pub fn forget_told(&mut self) {
        let Some(view) = &self.store.state().view else { return };
        let entry = view.managers.get(&self.number);
        self.host.told &= entry.is_none_or(|it| it.status == ManagerStatus::Left);
    }

    /// A process that learns that its number has left ends, when its last callers had some time.
    pub fn see_whether_left(&mut self) {
        let Some(process) = &self.host.process else { return };
        let is_refused = matches!(process.refused(), Some(ClaimRefused::HasLeft(_)));
        if (process.has_left() || is_refused) && !self.host.ends {
            self.host.ends = true;
            self.ground.note_left(self.number);
            let delay_us = self.ground.rng.within(1_000, 400_000);
            let event = Event::EndManager(self.number, self.host.run);
            self.ground.queue.after(delay_us, event);
        }
    }

    /// A process whose number has left ends.
    pub fn on_end(&mut self) {
        if self.host.process.is_some() {
            self.end_process();
        }
    }

    /// Who was refused because another one joins, tries again.
    pub fn try_join_again(&mut self) {
        if let Some(ClaimRefused::InTransition { .. }) = self.host.refused() {
            self.ground.counters.fault(Fault::JoinRefused);
            self.restart_after(200_000);
        }
    }

    /// An empty machine was refused since the others do not know yet that the one before is gone: it
    /// tries again. A backup was refused since it is of an earlier run: an empty machine takes its place.
    pub fn try_empty_machine_again(&mut self) {
        let Some(ClaimRefused::NotThisDisk { incarnation, .. }) = self.host.refused() else {
            return;
        };
        let intended = self.host.disk.durable().identity.intended;
        let is_next = intended.is_some_and(|it| it.0 > *incarnation);
        if !self.ground.checker.ledger.disks.lost_us.contains_key(&self.number) {
            return;
        }
        self.crash();
        if !is_next {
            self.host.empty();
        }
        self.ground.queue.after(200_000, Event::StartManager(self.number));
    }
}
