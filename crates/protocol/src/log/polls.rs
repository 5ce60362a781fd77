//! Long polls, which watches are made of: where one goes on, how it waits, and when that is over. Residents
//! say what of an entry concerns a poll, and make the pages of snapshots.

use crate::log::at::At;
use crate::log::origin::Origin;
use rota_messages::Write;
use rota_messages::api::Poll;
use rota_model::{LogPos, Pulled, Refusal, RefusalKind, Retry};
use std::collections::VecDeque;

/// Most long polls of one kind that wait at one partition.
const POLLS_MAX: usize = 4_096;

/// Long polls that wait for a change.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Polls {
    waiting: VecDeque<Origin>,
}

impl Polls {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.waiting.iter()
    }

    pub fn retain(&mut self, is_there: impl FnMut(&Origin) -> bool) {
        self.waiting.retain(is_there);
    }

    /// All of them, to be looked at again: those that go on waiting are kept again.
    pub fn take(&mut self) -> VecDeque<Origin> {
        std::mem::take(&mut self.waiting)
    }

    /// Nothing that a poll waits for stands in the window: it waits, unless too many do. It goes on after
    /// what it has looked at: what others do makes its position no older, and is looked at once.
    pub fn keep(&mut self, led: &mut At<'_>, origin: Origin) -> Result<(), Refusal> {
        let committed = led.log.replica.committed;
        if let Some(asked) = led.inbox.live.get_mut(&origin) {
            asked.op.looked_through(committed);
        }
        if self.waiting.len() < POLLS_MAX {
            self.waiting.push_back(origin);
            return Ok(());
        }
        let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
        let text = format!("{POLLS_MAX} watches wait at this partition already");
        Err(Refusal::new(RefusalKind::Overloaded, retry, text))
    }

    /// Whether the wait of one of them is over.
    pub fn is_one_over(&self, led: &At<'_>) -> bool {
        self.waiting.iter().any(|it| is_over(led, it))
    }
}

/// Whether a poll waits no longer.
pub(crate) fn is_over(led: &At<'_>, origin: &Origin) -> bool {
    let asked = led.inbox.live.get(origin);
    asked.is_none_or(|asked| {
        let Some(poll) = asked.op.poll() else { return true };
        led.env.now.mono_ms >= asked.arrived_ms + poll.wait_ms
    })
}

/// Where a poll goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GoesOn {
    /// Its snapshot came from a newer owner so far, and this one does not know yet that it has been
    /// replaced: its contents are older than what the position promises.
    Elsewhere { upto: LogPos },
    /// With a page of a snapshot, which is as of that position.
    Snapshot { upto: LogPos },
    /// With the changes after that position.
    Changes { from: LogPos },
}

pub(crate) fn goes_on(led: &At<'_>, poll: Poll) -> GoesOn {
    let replica = &led.log.replica;
    let committed = replica.committed;
    if let (Some(from), true) = (poll.from, poll.is_in_snapshot) {
        if from > committed {
            return GoesOn::Elsewhere { upto: from };
        }
        // Its position is the one at which its first page was made: changes after that are delivered
        // again, which a watch allows.
        return GoesOn::Snapshot { upto: from };
    }
    // Of its own epoch an owner has told nothing beyond what it committed: such a position is of
    // another cluster of that name, or of one whose disks were lost.
    let is_alien = |from: &LogPos| from.pe == led.lead.pe && *from > committed;
    let known = poll.from.filter(|it| *it >= replica.base && !is_alien(it));
    match known {
        Some(from) if !poll.is_in_snapshot => GoesOn::Changes { from },
        Some(_) | None => GoesOn::Snapshot { upto: committed },
    }
}

/// An answer that only says where to go on: with the snapshot that is broken off.
pub(crate) fn elsewhere<E, C>(led: &At<'_>, upto: LogPos, after: Option<C>) -> Pulled<E, C> {
    let (part, events) = (led.log.number, Vec::new());
    Pulled { part, events, snapshot: true, upto, snapshot_next: after }
}

/// Events of the committed entries after a position, with their bytes: as many as a message takes, and all of
/// an entry. `None`: there is none, and the poll may wait for one.
pub(crate) fn changes<E, C>(
    led: &At<'_>,
    poll: Poll,
    from: LogPos,
    is_over: bool,
    told: impl Fn(&Write) -> Option<(E, usize)>,
) -> Option<Pulled<E, C>> {
    let (sizes, replica) = (&led.env.config.sizes, &led.log.replica);
    let limit = poll.limit.clamp(1, sizes.page_sessions) as usize;
    let (mut events, mut bytes) = (Vec::new(), 0);
    let mut upto = from;
    let unseen = replica.window.entries.partition_point(|entry| entry.at <= from);
    for entry in replica.window.entries.range(unseen..) {
        if events.len() >= limit || bytes >= sizes.message_bytes {
            break;
        }
        upto = entry.at;
        for (event, size) in entry.writes.iter().filter_map(&told) {
            bytes += size;
            events.push(event);
        }
    }
    let is_idle = events.is_empty() && !is_over;
    (!is_idle).then_some(Pulled {
        part: led.log.number,
        events,
        snapshot: false,
        upto: upto.min(replica.committed.max(from)),
        snapshot_next: None,
    })
}
