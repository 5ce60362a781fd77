//! Long polls for changes of sessions.

use crate::log::at::At;
use crate::log::origin::Origin;
use crate::sessions::read::{look, view_of};
use rota_messages::{Answer, Op};
use rota_model::{ListCursor, LogPos, PullOp, Pulled, Refusal, RefusalKind, Retry, SlotId};
use std::collections::VecDeque;

/// Most long polls that wait at one partition.
const PULLS_MAX: usize = 4_096;

/// Long polls that wait for a change.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Watches {
    pub pulls: VecDeque<Origin>,
}

impl Watches {
    /// A long poll arrives, or something was committed: answer what can be answered.
    pub fn serve_pulls(&mut self, led: &mut At<'_>) {
        if !led.lead.reads() || self.pulls.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.pulls);
        for origin in waiting {
            self.serve_pull(led, origin);
        }
    }

    pub fn serve_pull(&mut self, led: &mut At<'_>, origin: Origin) {
        let Some(asked) = led.inbox.live.get(&origin) else {
            return;
        };
        let Op::Pull(pull) = &asked.op else { return };
        let over = led.env.now.mono_ms >= asked.arrived_ms + pull.wait_ms;
        match pulled(led, pull, over) {
            Some(pulled) => led.reply(origin, Ok(Answer::Pulled(pulled))),
            None => {
                Self::on_nothing_pulled(led, origin);
                self.keep_pull(led, origin);
            }
        }
    }

    /// Nothing that a poll waits for stands in the window. It goes on after what it has looked at: what
    /// others do makes its position no older, and is looked at once.
    fn on_nothing_pulled(led: &mut At<'_>, origin: Origin) {
        let committed = led.log.replica.committed;
        let asked = led.inbox.live.get_mut(&origin);
        // In the middle of a snapshot it waits for another owner.
        if let Some(Op::Pull(PullOp { from: Some(from), snapshot_after: None, .. })) =
            asked.map(|it| &mut it.op)
        {
            *from = committed.max(*from);
        }
    }

    fn keep_pull(&mut self, led: &mut At<'_>, origin: Origin) {
        if self.pulls.len() < PULLS_MAX {
            self.pulls.push_back(origin);
            return;
        }
        let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
        let text = format!("{PULLS_MAX} watches wait at this partition already");
        led.reply(origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
    }

    pub(crate) fn expire_pulls(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        let over = self.pulls.iter().any(|origin| {
            let asked = led.inbox.live.get(origin);
            asked.is_none_or(|asked| {
                let Op::Pull(pull) = &asked.op else { return true };
                now >= asked.arrived_ms + pull.wait_ms
            })
        });
        if over {
            self.serve_pulls(led);
        }
    }
}

/// What a long poll gets: a page of a snapshot, changes, or (when its wait is over) nothing.
pub(crate) fn pulled(led: &At<'_>, pull: &PullOp, over: bool) -> Option<Pulled> {
    let committed = led.log.replica.committed;
    // Of its own epoch an owner has told nothing beyond what it committed: such a position is of
    // another cluster of that name, or of one whose disks were lost.
    let is_alien = |from: &LogPos| from.pe == led.lead.pe && *from > committed;
    let known = pull.from.filter(|it| *it >= led.log.replica.base && !is_alien(it));
    let part = led.log.number;
    let behind = pull.from.filter(|from| *from > committed);
    if let (Some(upto), Some(after)) = (behind, &pull.snapshot_after) {
        // Its earlier pages came from a newer owner, and this one does not know yet that it has
        // been replaced: its contents are older than what the position promises.
        let (events, snapshot_next) = (Vec::new(), Some(after.clone()));
        return over.then_some(Pulled { part, events, snapshot: true, upto, snapshot_next });
    }
    let (Some(from), None) = (known, &pull.snapshot_after) else {
        return Some(snapshot_page(led, pull));
    };
    let limit = pull.limit.clamp(1, led.env.config.sizes.page_sessions) as usize;
    let (mut events, mut bytes) = (Vec::new(), 0);
    let mut upto = from;
    let unseen = led.log.replica.window.entries.partition_point(|entry| entry.at <= from);
    for entry in led.log.replica.window.entries.range(unseen..) {
        if events.len() >= limit || bytes >= led.env.config.sizes.message_bytes {
            break;
        }
        upto = entry.at;
        let records = entry.writes.iter().filter_map(|it| it.doc.as_ref()?.session());
        for record in records.filter(|record| pull.filter.passes(record)) {
            bytes += record.bytes();
            events.push(view_of(led, record.clone()));
        }
    }
    let idle = events.is_empty() && !over;
    (!idle).then_some(Pulled {
        part,
        events,
        snapshot: false,
        upto: upto.min(committed.max(from)),
        snapshot_next: None,
    })
}

/// A snapshot in pages. Its position is the one at which its first page was made: changes
/// after that are delivered again, which a watch allows.
pub(crate) fn snapshot_page(led: &At<'_>, pull: &PullOp) -> Pulled {
    let m = led.env.view().m;
    let start = ListCursor { slot: SlotId(0), after: None };
    let cursor = pull.snapshot_after.clone().unwrap_or(start);
    let upto = match (&pull.snapshot_after, pull.from) {
        (Some(_), Some(from)) => from,
        (_, _) => led.log.replica.committed,
    };
    let last = SlotId(m.saturating_sub(1));
    let (events, snapshot_next) = look(led, &cursor, last, &pull.filter, pull.limit);
    Pulled { part: led.log.number, events, snapshot: true, upto, snapshot_next }
}
