//! Planted bugs of acknowledgements across epochs: an owner that counts those of an earlier one, a copy that
//! acknowledges under one that it knows to be over.

use crate::mutants::bug::Bug;
use crate::network::Place;
use crate::packet::Packet;
use crate::site::AtManager;
use rota_protocol::{Envelope, Manager, Message};

/// A message reaches a manager that may do with it what its epoch forbids.
pub(crate) fn on_epochs(at: &mut AtManager<'_>, bug: Bug, envelope: &mut Envelope) {
    let Some(process) = &at.host.process else { return };
    if bug == Bug::LateAckCounted {
        count_late(process, &mut envelope.message);
    }
    let ack = ack_below(process, envelope).filter(|_| bug == Bug::OldEpochAcked);
    if let Some(ack) = ack {
        envelope.message = Message::Heartbeat { committed: Vec::new() };
        let (from, to) = (at.place(), Place::Manager(ack.to.number));
        at.ground.send(from, to, None, Packet::Peer(ack));
    }
}

/// An acknowledgement that reaches the owner of a partition is one of the epoch that it knows.
pub(crate) fn count_late(process: &Manager, message: &mut Message) {
    let Message::Ack { part, pe, .. } = message else { return };
    let entry = process.view().and_then(|view| view.parts.get(part));
    if let Some(entry) = entry.filter(|it| it.owner == process.member().number) {
        *pe = entry.pe.max(*pe);
    }
}

/// What a copy says to a Prepare of an epoch that it knows to be over, instead of naming the newer one: it
/// has it.
pub(crate) fn ack_below(process: &Manager, envelope: &Envelope) -> Option<Envelope> {
    let Message::Prepare { part, pe, entries, .. } = &envelope.message else { return None };
    let known = process.view()?.parts.get(part)?.pe;
    let is_over = process.is_claimed() && envelope.to == process.member() && known > *pe;
    let last = entries.last().filter(|_| is_over)?;
    let message = Message::Ack { part: *part, pe: *pe, seq: last.at.seq };
    let (from, to, epoch) = (envelope.to, envelope.from, envelope.epoch);
    Some(Envelope { from, to, epoch, message })
}
