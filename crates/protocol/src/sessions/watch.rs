//! Long polls for changes of sessions.

use crate::log::at::At;
use crate::log::origin::Origin;
use crate::log::polls::{GoesOn, Polls, changes, elsewhere, goes_on, is_over};
use crate::sessions::read::{look, view_of};
use rota_messages::{Answer, Op, Write};
use rota_model::{ListCursor, LogPos, PullOp, Pulled, SessionView, SlotId};

/// Long polls that wait for a change.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Watches {
    pub pulls: Polls,
}

impl Watches {
    /// A long poll arrives, or something was committed: answer what can be answered.
    pub fn serve_pulls(&mut self, led: &mut At<'_>) {
        if !led.lead.reads() || self.pulls.is_empty() {
            return;
        }
        for origin in self.pulls.take() {
            self.serve_pull(led, origin);
        }
    }

    pub fn serve_pull(&mut self, led: &mut At<'_>, origin: Origin) {
        let Some(asked) = led.inbox.live.get(&origin) else {
            return;
        };
        let Op::Pull(pull) = &asked.op else { return };
        if let Some(pulled) = pulled(led, &asked.op, pull, is_over(led, &origin)) {
            led.reply(origin, Ok(Answer::Pulled(pulled)));
        } else if let Err(refusal) = self.pulls.keep(led, origin) {
            led.reply(origin, Err(refusal));
        }
    }

    pub(crate) fn expire_pulls(&mut self, led: &mut At<'_>) {
        if self.pulls.is_one_over(led) {
            self.serve_pulls(led);
        }
    }
}

/// What a long poll gets: a page of a snapshot, changes, or (when its wait is over) nothing.
fn pulled(led: &At<'_>, op: &Op, pull: &PullOp, is_over: bool) -> Option<Pulled> {
    let poll = op.poll()?;
    match goes_on(led, poll) {
        GoesOn::Elsewhere { upto } => {
            is_over.then(|| elsewhere(led, upto, pull.snapshot_after.clone()))
        }
        GoesOn::Snapshot { upto } => Some(snapshot_page(led, pull, upto)),
        GoesOn::Changes { from } => {
            let told = |write: &Write| -> Option<(SessionView, usize)> {
                let record = write.doc.as_ref()?.session()?;
                let passes = pull.filter.passes(record);
                passes.then(|| (view_of(led, record.clone()), record.bytes()))
            };
            changes(led, poll, from, is_over, told)
        }
    }
}

/// A page of a snapshot that is as of a position.
fn snapshot_page(led: &At<'_>, pull: &PullOp, upto: LogPos) -> Pulled {
    let m = led.env.view().m;
    let start = ListCursor { slot: SlotId(0), after: None };
    let cursor = pull.snapshot_after.clone().unwrap_or(start);
    let last = SlotId(m.saturating_sub(1));
    let (events, snapshot_next) = look(led, &cursor, last, &pull.filter, pull.limit);
    Pulled { part: led.log.number, events, snapshot: true, upto, snapshot_next }
}
