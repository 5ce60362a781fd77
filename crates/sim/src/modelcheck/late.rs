//! Answers that come too late. Whoever asked a peer and does not wait any more takes the answer for
//! nothing: whether it arrives or not, and when, is all the same. A search that keeps such messages under
//! way has each of its states many times over, so they go as soon as they are late.
//!
//! A message is *late* when all of this holds:
//!
//! * It does to its receiver what an empty heartbeat of the same peer would do, and no more. That is tried.
//! * It answers what its receiver asked, and the receiver has gone on: it says something about a
//!   partition under an epoch, and the receiver knows a later one, which it never forgets (I4); or it
//!   reports for a Sync that has begun, and none begins twice under one epoch; or it answers a request
//!   that the receiver passed on and that no longer waits, and no name is given twice. So it does no
//!   more at any later time either.
//! * An empty heartbeat may tell of a newer epoch: the receiver knows the message's. It ends a suspicion
//!   that the receiver has of the peer: there is none, and the receiver cannot come to one. It shows when
//!   the peer was heard: nobody is suspected for silence in a search ([`super::bounds::Times`]).
//!
//! Taking a late message is then a step from a state to the same state without the message; no rule looks
//! at what is under way; and what may happen without the message may happen with it. So a search without
//! such messages finds broken what one with them does. That none of them comes to matter after all is
//! watched, too: [`Late::Watched`] keeps them, and fails when one that was late does more after a step.

use super::bounds::Late;
use super::flying::Flying;
use super::room::{Receiver, Room};
use super::seen::wide;
use super::state::State;
use super::work::Told;
use crate::invariant::{Verdict, Violation};
use rota_model::{Epoch, ManagerNumber, MemberId};
use rota_protocol::{Envelope, Message};

impl Room {
    /// Late messages go.
    pub fn forget_late(&mut self, state: &mut State) {
        if self.late == Late::Goes {
            let mut net = std::mem::take(&mut state.net);
            net.retain(|it| !self.is_late(state, *it));
            state.net = net;
        }
    }

    /// After a step, what was late before it and is still under way does no more than a heartbeat.
    ///
    /// # Errors
    /// It does.
    pub fn watch_late(&mut self, before: &State, after: &State) -> Verdict {
        if self.late != Late::Watched {
            return Ok(());
        }
        for number in &after.net {
            if !before.net.contains(number) || !self.is_late(before, *number) {
                continue;
            }
            let Some((at, envelope)) = self.at_manager(after, *number) else { continue };
            let suspect = self.may_suspect(after, at, envelope.from);
            if suspect || !self.is_as_heartbeat(after, at, *number) {
                let text = super::words::message(self.parts.flying.get(*number));
                return Err(Violation::new("late", format!("matters after all: {text}")));
            }
        }
        Ok(())
    }

    fn is_late(&mut self, state: &State, number: u32) -> bool {
        let Some((at, envelope)) = self.at_manager(state, number) else { return false };
        let known = self.parts.manager(state, at).process.as_ref().and_then(|it| it.view());
        known.is_some_and(|it| it.epoch >= envelope.epoch)
            && !self.may_suspect(state, at, envelope.from)
            && self.is_over(state, at, number)
            && self.is_as_heartbeat(state, at, number)
    }

    /// A peer's message, and who would take it.
    fn at_manager(&self, state: &State, number: u32) -> Option<(usize, &Envelope)> {
        let message = self.parts.flying.get(number);
        let Flying::Peer(envelope) = message else { return None };
        match self.receiver(state, message) {
            Some(Receiver::Manager(at)) => Some((at, envelope)),
            Some(Receiver::Node(_)) | None => None,
        }
    }

    /// Whether a manager has gone on since it asked for this.
    fn is_over(&mut self, state: &State, at: usize, number: u32) -> bool {
        let Flying::Peer(envelope) = self.parts.flying.get(number) else { return false };
        let view = self.parts.manager(state, at).process.as_ref().and_then(|it| it.view());
        let known = |part: &ManagerNumber| view.and_then(|view| view.parts.get(part));
        let later = |(part, pe): &(ManagerNumber, Epoch)| known(part).is_some_and(|it| it.pe > *pe);
        match &envelope.message {
            Message::Ack { part, pe, .. }
            | Message::Nack { part, pe, .. }
            | Message::SyncApplied { part, pe, .. }
            | Message::SnapshotAck { part, pe, .. } => later(&(*part, *pe)),
            Message::SyncReport { part, pe, .. } => {
                let (part, pe) = (*part, *pe);
                later(&(part, pe))
                    || known(&part).is_some_and(|it| it.pe == pe) && self.syncs(state, at, part)
            }
            Message::ReadIndexConfirmed { parts, .. } => parts.iter().all(later),
            Message::Answer { .. } => true,
            Message::Request { .. }
            | Message::ReadIndex { .. }
            | Message::Prepare { .. }
            | Message::SyncAsk { .. }
            | Message::SyncData { .. }
            | Message::SnapshotChunk { .. }
            | Message::Heartbeat { .. }
            | Message::Probe { .. }
            | Message::Probed { .. }
            | Message::NodeWanted { .. }
            | Message::NodesFailed { .. } => false,
        }
    }

    /// Whether an owner takes reports for a Sync, or did under this epoch.
    fn syncs(&mut self, state: &State, at: usize, part: ManagerNumber) -> bool {
        let key = wide(&(3_u8, state.managers[at], part));
        if let Some(known) = self.known.answer(key) {
            return known == 1;
        }
        let stats = self.parts.manager(state, at).process.as_ref().map(|it| it.stats());
        let parts = stats.map(|it| it.parts).unwrap_or_default();
        let role = parts.iter().find(|it| it.part == part).map(|it| it.role);
        let syncs = role.is_some_and(|it| ["syncing", "serving", "wedged"].contains(&it));
        self.known.keep_answer(key, u32::from(syncs));
        syncs
    }

    /// Whether a manager may yet come to suspect that run of a peer, beside for its silence.
    fn may_suspect(&self, state: &State, at: usize, peer: MemberId) -> bool {
        let view = self.parts.manager(state, at).process.as_ref().and_then(|it| it.view());
        if view.is_some_and(|view| !view.may_run(peer)) {
            return false;
        }
        let Some(other) = self.place_of(peer.number) else { return true };
        let apart = |it: usize| self.bystanders.contains(&self.numbers[it]);
        let left = &state.left;
        let accuses = self.bounds.may_accuse(self.numbers[at]);
        let dies = left.managers.crashes > 0 && self.bounds.may_die(peer.number);
        self.parts.manager(state, other).process.is_none()
            || (dies && !apart(other))
            || (left.managers.suspicions > 0 && accuses && !apart(at) && !apart(other))
    }

    /// Whether a message does to a manager what an empty heartbeat of its sender does.
    fn is_as_heartbeat(&mut self, state: &State, at: usize, number: u32) -> bool {
        let key = wide(&(4_u8, state.managers[at], number));
        if let Some(known) = self.known.answer(key) {
            return known == 1;
        }
        let Flying::Peer(envelope) = self.parts.flying.get(number) else { return false };
        let Envelope { from, to, epoch, .. } = *envelope;
        let message = Message::Heartbeat { committed: Vec::new() };
        let beat = self.parts.keep_flying(Flying::Peer(Envelope { from, to, epoch, message }));
        let mut after = [state.clone(), state.clone()];
        let sent = self.step_manager(&mut after[0], at, &Told::Flying(number));
        let beaten = self.step_manager(&mut after[1], at, &Told::Flying(beat));
        let [was, is] = after.map(|it| self.parts.managers.canon(it.managers[at]));
        let alike = sent.is_nothing() && beaten.is_nothing() && was == is;
        self.known.keep_answer(key, u32::from(alike));
        alike
    }
}
