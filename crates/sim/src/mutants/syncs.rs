//! Planted bugs of Syncs: copies that seem to answer at once, and what a Sync brought.

use crate::event::Event;
use crate::site::AtManager;
use rota_model::{LogPos, ManagerNumber};
use rota_protocol::{Envelope, Input, Manager, Message};

/// A copy seems to answer a Sync as soon as it is asked. Only the owner believes that: the observer
/// writes down what was said.
pub(crate) fn synced_at_once(at: &mut AtManager<'_>, envelope: &Envelope) {
    let now = at.host.now(at.ground.now_us());
    let Some(process) = &mut at.host.process else { return };
    let Some(message) = answered_sync(process, &envelope.message) else { return };
    let (from, to, epoch) = (envelope.to, envelope.from, envelope.epoch);
    process.handle(now, Input::Peer(Envelope { from, to, epoch, message }));
    at.ground.queue.after(10, Event::Flush(at.number, at.host.run));
}

/// What an owner takes for a copy's answer: it holds what is committed here and no more, and it has
/// taken what it lacks.
pub(crate) fn answered_sync(process: &Manager, asked: &Message) -> Option<Message> {
    if let Message::SyncAsk { part, pe } = asked {
        let (part, pe) = (*part, *pe);
        let (last, committed, touched) = (LogPos::ZERO, committed(process, part)?, Vec::new());
        return Some(Message::SyncReport { part, pe, last, committed, touched });
    }
    let Message::SyncData { part, pe, at, .. } = asked else { return None };
    Some(Message::Ack { part: *part, pe: *pe, seq: at.seq })
}

fn committed(process: &Manager, part: ManagerNumber) -> Option<LogPos> {
    process.stats().parts.iter().find(|it| it.part == part).map(|it| it.committed)
}

/// A copy reports everything that it has as committed.
pub(crate) fn hide_tail(message: &mut Message) {
    if let Message::SyncReport { last, committed, touched, .. } = message {
        *committed = *last;
        touched.clear();
    }
}

/// A copy that heard of no commit since a Sync reports what that brought as committed. (That is the first
/// entry of its epoch, and whoever sends a later one tells that it is committed.)
pub(crate) fn settle_sync(message: &mut Message) {
    if let Message::SyncReport { last, committed, .. } = &*message
        && committed.pe < last.pe
    {
        hide_tail(message);
    }
}
