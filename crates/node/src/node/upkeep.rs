//! What the clock and the lease make the node do.

use super::{Departure, Node};
use crate::io::{NodeEffect, NodeInput, StopHow};
use crate::lease::LeaseState;
use crate::live::{Stage, StopCause};
use rota_model::node_msg::{Grant, Registered, Renewed, ToldLimit};
use rota_model::{Epoch, ManagerNumber, SessionKey, Token};

impl Node {
    /// Takes an input that may renew the lease; gives back any other.
    pub(super) fn on_lease_news(&mut self, now: u64, input: NodeInput) -> Option<NodeInput> {
        match input {
            NodeInput::Registered { sent_mono_ms, registered } => {
                self.on_registered(now, sent_mono_ms, registered);
                None
            }
            NodeInput::Renewed { boot, sent_mono_ms, renewed } => {
                if boot == self.config.boot && self.is_registered() {
                    self.on_renewed(now, sent_mono_ms, renewed);
                }
                None
            }
            NodeInput::Reached => {
                self.lease.reached(now, &self.config.timing);
                None
            }
            NodeInput::Call { .. }
            | NodeInput::StreamClosed { .. }
            | NodeInput::Started { .. }
            | NodeInput::Ready { .. }
            | NodeInput::StartFailed { .. }
            | NodeInput::Ended { .. }
            | NodeInput::Stopped { .. }
            | NodeInput::MachineState { .. }
            | NodeInput::Acted { .. }
            | NodeInput::ReportsAcked { .. }
            | NodeInput::Leave
            | NodeInput::Tick => Some(input),
        }
    }

    fn on_registered(&mut self, now: u64, sent_ms: u64, registered: Registered) {
        if self.lease.is_lost() {
            return;
        }
        let is_first = self.fences.learn(registered.m, &registered.fences);
        // One that goes on from a journal knows nobody yet.
        let knew_nobody = self.managers.list().is_empty();
        self.managers.learn(registered.epoch, registered.managers);
        self.lease.register(now, registered.m);
        if is_first {
            // Whoever owns anything counts from when it sees this boot, which is later.
            let grants: Vec<Grant> = registered
                .fences
                .iter()
                .map(|(range, pe)| Grant { range: *range, pe: *pe })
                .collect();
            self.grant(now, sent_ms, &grants);
        }
        if is_first || knew_nobody {
            self.lease.renew_at_once(now);
        }
    }

    fn on_renewed(&mut self, now: u64, sent_ms: u64, renewed: Renewed) {
        match renewed {
            Renewed::Heard { epoch, managers, load_limit, grants, more, retires } => {
                self.load_limit = match load_limit {
                    ToldLimit::Nothing => self.load_limit,
                    ToldLimit::AsStarted => self.config.load_limit,
                    ToldLimit::Of(limit) => limit,
                };
                let has_new = self.managers.learn(epoch, managers);
                self.grant(now, sent_ms, &grants);
                // What one owns that came up since was not granted by anybody: a whole interval without it is
                // most of the lease.
                if more || has_new {
                    self.lease.retry_soon(now, sent_ms, &self.config.timing);
                }
                if retires {
                    self.retire(now);
                }
            }
            Renewed::NotServing => self.lease.retry_soon(now, sent_ms, &self.config.timing),
            Renewed::Lost => {
                self.lost_moved |= !self.lease.is_lost();
                self.lease.lose();
                self.stop_all(now, StopHow::Kill, StopCause::LeaseOver);
            }
        }
    }

    /// The owner of this node's slot has not heard of it, and says who runs the ring now.
    pub(super) fn meet(&mut self, now: u64, epoch: Epoch, managers: Vec<(ManagerNumber, String)>) {
        if self.managers.is_news(epoch) {
            self.managers.learn(epoch, managers);
            self.lease.renew_at_once(now);
        }
    }

    fn grant(&mut self, now: u64, sent_ms: u64, grants: &[Grant]) {
        let Some(fences) = self.fences.runs() else { return };
        if self.lease.grant((now, sent_ms), grants, fences, &self.config.timing) {
            self.effects.push(NodeEffect::Lease { slots: self.lease_deadlines() });
            if self.lease.had_missed() {
                self.outbox.hurry();
            }
        }
    }

    /// Does what the time asks for.
    pub(super) fn upkeep(&mut self, now: u64) {
        if self.lease.advance(now, &self.config.timing) {
            self.stop_without_lease(now);
        }
        // Each stop leaves a deadline behind that is later, or none.
        while let Some((key, token)) = self.live.overdue(now) {
            self.stop(now, (&key, token), StopHow::Kill, StopCause::StartTooLate);
        }
        // A token whose end no manager has taken note of may still be asked for.
        let outbox = &self.outbox;
        let later = now + self.config.timing.tombstone_ms;
        self.dead.expire(now, later, |key, token| outbox.holds(key, token));
    }

    pub(super) fn on_leave(&mut self, now: u64) {
        if self.departure == Departure::Stays {
            self.departure = Departure::Leaving;
            self.stop_all(now, StopHow::Class, StopCause::Leaving);
        }
    }

    /// Its pool needs this node no more. It alone knows whether it is empty: from here on it takes nothing.
    fn retire(&mut self, now: u64) {
        if self.departure == Departure::Stays && self.live.len() == 0 {
            self.effects.push(NodeEffect::Retire);
            self.on_leave(now);
        }
    }

    /// Ends what has no lease any more.
    fn stop_without_lease(&mut self, now: u64) {
        let timing = &self.config.timing;
        let over = self.live.after(None).filter_map(|(key, live)| {
            let how = match self.lease.state_of(live.slot, timing) {
                LeaseState::Term => StopHow::Term,
                LeaseState::Kill => StopHow::Kill,
                LeaseState::None | LeaseState::Valid | LeaseState::Lost => return None,
            };
            Some((key.clone(), live.token, how))
        });
        for (key, token, how) in over.collect::<Vec<_>>() {
            self.stop(now, (&key, token), how, StopCause::LeaseOver);
        }
    }

    fn stop_all(&mut self, now: u64, how: StopHow, cause: StopCause) {
        let all: Vec<(SessionKey, Token)> =
            self.live.after(None).map(|(key, live)| (key.clone(), live.token)).collect();
        for (key, token) in all {
            self.stop(now, (&key, token), how, cause);
        }
    }

    /// Asks the runtime to stop a session, unless it was asked as urgently before. The first cause
    /// stands.
    pub(super) fn stop(
        &mut self,
        now: u64,
        (key, token): (&SessionKey, Token),
        how: StopHow,
        cause: StopCause,
    ) {
        let kill_at_ms = match how {
            // The runtime counts it, too; here it tells whether a later one is earlier.
            StopHow::Within(ms) => Some(now.saturating_add(ms)),
            // The lease may be renewed meanwhile; the kill follows all the same.
            StopHow::Term => {
                let slot = self.live.of(key, token).map(|it| it.slot);
                let lease = slot.and_then(|it| self.lease.deadlines_of(it, &self.config.timing));
                lease.map(|(_, kill_at)| kill_at)
            }
            // The runtime counts the class's grace.
            StopHow::Class | StopHow::Kill => None,
        };
        let asks = self.live.change(key, token, |live| {
            let cause = match live.stage {
                Stage::Starting { .. } | Stage::Running => cause,
                Stage::Stopping { how: before, cause, kill_at_ms: end }
                    if how.may_hasten(before) && !ends_sooner(before, end, kill_at_ms) =>
                {
                    cause
                }
                Stage::Stopping { .. } => return false,
            };
            live.ready = false;
            live.stage = Stage::Stopping { how, cause, kill_at_ms };
            true
        });
        if asks == Some(true) {
            self.effects.push(NodeEffect::Stop { key: key.clone(), token, how });
        }
    }

    /// Tells the driver once when nothing is left to do in this boot.
    pub(super) fn depart(&mut self) {
        if self.live.len() > 0 {
            return;
        }
        if self.lease.is_lost() {
            if self.departure != Departure::Retired {
                self.departure = Departure::Retired;
                self.effects.push(NodeEffect::BootAnew);
            }
        } else if self.departure == Departure::Leaving && self.outbox.len() == 0 {
            self.departure = Departure::Left;
            self.effects.push(NodeEffect::Left);
        }
    }
}

/// Whether what is under way ends no later than what is asked for now.
fn ends_sooner(before: StopHow, end: Option<u64>, kill_at_ms: Option<u64>) -> bool {
    let within = matches!(before, StopHow::Within(_));
    within && end.zip(kill_at_ms).is_some_and(|(end, now)| end <= now)
}
