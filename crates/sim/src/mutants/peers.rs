//! Planted bugs between managers: answers in the name of a peer that never gave them, and what is written
//! of peers that are gone.

use crate::site::AtManager;
use rota_model::ManagerStatus;
use rota_protocol::{Answer, DocumentOp, Envelope, Input, Message, Op};
use rota_ring::Change;

/// A confirmation that the peer might have given earlier comes before the peer is asked.
pub(crate) fn confirm_at_once(at: &mut AtManager<'_>, envelope: &Envelope) {
    let Message::ReadIndex { round, parts } = &envelope.message else { return };
    let message = Message::ReadIndexConfirmed { round: *round, parts: parts.clone() };
    let (from, to) = (envelope.to, envelope.from);
    let forged = Envelope { from, to, epoch: envelope.epoch, message };
    at.hears(10, Input::Peer(forged));
}

/// Acknowledgements in the name of a learner, before it got anything.
pub(crate) fn learned_at_once(at: &mut AtManager<'_>, envelope: &Envelope) {
    let Message::SnapshotChunk { part, chunk } = &envelope.message else { return };
    let (part, pe, learn) = (*part, chunk.pe, chunk.learn);
    let acks = [
        Message::SnapshotAck { part, pe, learn, chunk: chunk.number },
        Message::Ack { part, pe, seq: chunk.upto.seq },
    ];
    for message in acks {
        let (from, to) = (envelope.to, envelope.from);
        let forged = Envelope { from, to, epoch: envelope.epoch, message };
        at.hears(100, Input::Peer(forged));
    }
}

/// An acknowledgement in the name of a copy, some time after the entries were sent to it.
pub(crate) fn ack_for_the_silent(at: &mut AtManager<'_>, envelope: &Envelope) {
    let Message::Prepare { part, pe, entries, .. } = &envelope.message else { return };
    let Some(last) = entries.last() else { return };
    let message = Message::Ack { part: *part, pe: *pe, seq: last.at.seq };
    let (from, to) = (envelope.to, envelope.from);
    let forged = Envelope { from, to, epoch: envelope.epoch, message };
    at.hears(30_000, Input::Peer(forged));
}

/// Whoever is asked whether it runs says that it does.
pub(crate) fn runs_at_once(at: &mut AtManager<'_>, envelope: &Envelope) {
    let Message::Probe { .. } = &envelope.message else { return };
    let (from, to) = (envelope.to, envelope.from);
    let message = Message::Probed { incarnation: from.incarnation, runs: true };
    let forged = Envelope { from, to, epoch: envelope.epoch, message };
    at.hears(100, Input::Peer(forged));
}

/// Of an ISR whose members are all DOWN only one stays.
pub(crate) fn leave_one(change: &mut Change) {
    let Some(view) = change.view.as_mut() else { return };
    for part in view.parts.values_mut() {
        let is_down =
            |number| view.managers.get(&number).map(|it| it.status) == Some(ManagerStatus::Down);
        if part.isr.len() > 1 && part.isr.iter().all(|it| is_down(it.number)) {
            part.isr.truncate(1);
            part.pe = view.epoch;
            part.owner = part.isr.first().map_or(part.owner, |it| it.number);
        }
    }
}

/// Nothing was found.
pub(crate) fn empty_page(message: &mut Message) {
    if let Message::Answer { result, .. } = message
        && let Ok(Answer::Found(Ok(found))) = &mut **result
    {
        found.page.hits.clear();
        found.page.next = None;
    }
}

/// Copies come without what is copied.
pub(crate) fn let_copies_fall(message: &mut Message) {
    if let Message::Request { op, .. } = message
        && let Op::Documents(DocumentOp::Copy(copy)) = &mut **op
    {
        copy.items = Default::default();
    }
}
