//! What operators order: that a number leaves, that a transition is taken back, that a number which has
//! left returns. And what becomes of a process whose number has left.

use crate::blob_store::BlobStore;
use crate::counters::Fault;
use crate::disk::SimDisk;
use crate::event::Event;
use crate::manager_host::ManagerHost;
use crate::network::{Place, STRAGGLER_US_MAX};
use crate::world::World;
use rota_model::{ManagerNumber, ManagerStatus, Refusal};
use rota_protocol::{Input, Order, Ordered};
use rota_ring::ClaimRefused;
use std::fmt::Debug;

/// How long an order may take at a manager: as long as it waits there, and a compare-and-set.
const ORDER_US: u64 = 7_000_000;

impl World {
    /// Somebody orders that some number leaves, mostly one that is up.
    pub fn order_leave(&mut self, fault: Fault) {
        let number = self.some_manager();
        self.give_order(fault, Order::Leave(number));
    }

    /// Somebody takes back whatever is under way.
    pub fn order_cancel(&mut self, fault: Fault) {
        if self.store.state().view.as_ref().is_some_and(|view| view.transition.is_some()) {
            let until_us = self.ground.now_us() + ORDER_US + STRAGGLER_US_MAX;
            self.ground.checker.on_cancel_ordered(until_us);
            self.give_order(fault, Order::Cancel(None));
        }
    }

    fn give_order(&mut self, fault: Fault, order: Order) {
        let what = format!("{order:?}");
        self.order(fault, &what, |call| Input::Order { call, order });
    }

    /// Somebody asks some manager for something, if that one runs.
    pub(crate) fn order(&mut self, fault: Fault, what: &str, input: impl FnOnce(u64) -> Input) {
        let through = self.some_manager();
        let call = self.ground.name();
        let Some(host) = self.managers.get(&through).filter(|it| it.process.is_some()) else {
            return;
        };
        let run = host.run;
        self.ground.took_effect(fault);
        let until_us = self.ground.now_us() + ORDER_US;
        self.ground.checker.deadlines.on_asked(through, run, call, until_us);
        self.orders.insert((through, run, call));
        let line = || format!("is ordered {what} (call {call})");
        self.ground.trace.line(self.ground.queue.now_us(), Place::Manager(through), line);
        self.tell_later(through, 0, input(call));
    }

    /// An order about the ring was answered.
    pub fn on_ordered(
        &mut self,
        at: (ManagerNumber, u64),
        call: u64,
        result: &Result<Ordered, Refusal>,
    ) {
        if result.as_ref().is_err_and(|it| it.message.contains("one goes at a time")) {
            self.ground.counters.fault(Fault::OrderRefused);
        }
        self.on_order_answered(at, call, result);
    }

    /// An order was answered.
    pub fn on_order_answered(
        &mut self,
        (number, run): (ManagerNumber, u64),
        call: u64,
        result: &impl Debug,
    ) {
        self.orders.remove(&(number, run, call));
        let line = || format!("answers order {call}: {result:?}");
        self.ground.trace.line(self.ground.queue.now_us(), Place::Manager(number), line);
    }

    /// Whether an order waits at a process that runs.
    pub fn has_orders(&self) -> bool {
        let runs = |number, run| {
            let host = self.managers.get(&number).filter(|it| it.process.is_some());
            host.is_some_and(|it| it.run == run)
        };
        self.orders.iter().any(|(number, run, _)| runs(*number, *run))
    }

    /// Whether a manager's number has left and nobody has told it to return: its process does not
    /// start. One that may join is outside then, the others are refused.
    pub fn stays_away(&mut self, number: ManagerNumber) -> bool {
        let view = self.store.state().view.clone();
        let status = view.and_then(|view| view.managers.get(&number).map(|it| it.status));
        let is_told = self.managers.get(&number).is_some_and(|it| it.told);
        if status == Some(ManagerStatus::Left) && !is_told {
            self.note_left(number);
            return true;
        }
        false
    }

    /// Whether a process may come into the ring: nobody reserved its number, or that has left, and it
    /// was told to take it.
    pub fn may_join(&self, number: ManagerNumber) -> bool {
        let view = self.store.state().view.as_ref();
        let entry = view.and_then(|view| view.managers.get(&number));
        let host = self.managers.get(&number);
        host.is_some_and(|it| it.joins && (it.told || entry.is_none()))
    }

    /// The View has changed: in the ring, nobody is told to return.
    pub fn forget_told(&mut self) {
        let Some(view) = self.store.state().view.clone() else { return };
        for (number, host) in &mut self.managers {
            let entry = view.managers.get(number);
            host.told &= entry.is_none_or(|it| it.status == ManagerStatus::Left);
        }
    }

    /// That number is no more one of the ring's.
    fn note_left(&mut self, number: ManagerNumber) {
        if let Some(index) = self.ground.setup.numbers.iter().position(|it| it.0 == number) {
            let gone = self.ground.setup.numbers.remove(index);
            self.gone.push(gone);
        }
    }

    /// A process that learns that its number has left ends, when its last callers had some time.
    pub fn see_whether_left(&mut self, number: ManagerNumber) {
        let Some(host) = self.managers.get_mut(&number) else { return };
        let Some(process) = &host.process else { return };
        let is_refused = matches!(process.refused(), Some(ClaimRefused::HasLeft(_)));
        if (process.has_left() || is_refused) && !host.ends {
            host.ends = true;
            let run = host.run;
            self.note_left(number);
            let delay_us = self.ground.rng.within(1_000, 400_000);
            self.ground.queue.after(delay_us, Event::EndManager(number, run));
        }
    }

    /// A process whose number has left ends.
    pub fn on_end_manager(&mut self, number: ManagerNumber, run: u64) {
        let Some(host) = self.managers.get_mut(&number).filter(|it| it.run == run) else { return };
        if host.process.is_some() {
            self.end_process(number);
        }
    }

    /// A number that has left is told to come into the ring again, some with an empty disk.
    pub fn return_manager(&mut self, fault: Fault) {
        let away = |host: &ManagerHost| host.process.is_none();
        let is_away = |it: &(ManagerNumber, _)| self.managers.get(&it.0).is_some_and(away);
        let Some(index) = self.gone.iter().position(is_away) else { return };
        let (number, id) = self.gone.remove(index);
        let is_empty = self.ground.rng.permille(500);
        let Some(host) = self.managers.get_mut(&number) else { return };
        (host.joins, host.told) = (true, true);
        if is_empty {
            host.disk = SimDisk::default();
            host.blob_store = BlobStore::default();
        }
        self.ground.setup.numbers.push((number, id));
        self.start_manager(number);
        self.ground.took_effect(fault);
    }

    /// The first manager of the ring that has not taken its number.
    pub fn unclaimed(&self) -> Option<ManagerNumber> {
        let numbers = self.ground.setup.numbers.iter().map(|it| it.0);
        let is_in = |number: &ManagerNumber| {
            let process = self.managers.get(number).and_then(|it| it.process.as_ref());
            process.is_some_and(rota_protocol::Manager::is_claimed)
        };
        numbers.into_iter().find(|it| !is_in(it))
    }
}
