//! Long polls for changes of sessions.

use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::partition::state::Partition;
use rota_messages::{Answer, Op};
use rota_model::{ListCursor, LogPos, PullOp, Pulled, Refusal, RefusalKind, Retry, SlotId};

/// Most long polls that wait at one partition.
const PULLS_MAX: usize = 4_096;

impl Partition {
    /// A long poll arrives, or something was committed: answer what can be answered.
    pub fn serve_pulls(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        if !leading.lead.reads() || leading.residents.sessions.pulls.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut leading.residents.sessions.pulls);
        for origin in waiting {
            self.serve_pull(env, origin);
        }
    }

    pub fn serve_pull(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &self.leading else { return };
        let Some(asked) = leading.inbox.live.get(&origin) else {
            return;
        };
        let Op::Pull(pull) = &asked.op else { return };
        let over = env.now.mono_ms >= asked.arrived_ms + pull.wait_ms;
        match self.pulled(env, pull, over) {
            Some(pulled) => self.reply(env, origin, Ok(Answer::Pulled(pulled))),
            None => {
                self.on_nothing_pulled(origin);
                self.keep_pull(env, origin);
            }
        }
    }

    /// Nothing that a poll waits for stands in the window. It goes on after what it has looked at: what
    /// others do makes its position no older, and is looked at once.
    fn on_nothing_pulled(&mut self, origin: Origin) {
        let committed = self.replica.committed;
        let asked = self.leading.as_mut().and_then(|it| it.inbox.live.get_mut(&origin));
        // In the middle of a snapshot it waits for another owner.
        if let Some(Op::Pull(PullOp { from: Some(from), snapshot_after: None, .. })) =
            asked.map(|it| &mut it.op)
        {
            *from = committed.max(*from);
        }
    }

    fn keep_pull(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        if leading.residents.sessions.pulls.len() < PULLS_MAX {
            leading.residents.sessions.pulls.push_back(origin);
            return;
        }
        let retry = Retry::AfterMs(env.config.timing.retry_ms);
        let text = format!("{PULLS_MAX} watches wait at this partition already");
        self.reply(env, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
    }

    /// What a long poll gets: a page of a snapshot, changes, or (when its wait is over) nothing.
    fn pulled(&self, env: &Env, pull: &PullOp, over: bool) -> Option<Pulled> {
        let committed = self.replica.committed;
        // Of its own epoch an owner has told nothing beyond what it committed: such a position is of
        // another cluster of that name, or of one whose disks were lost.
        let pe = self.leading.as_ref().map(|it| it.lead.pe);
        let is_alien = |from: &LogPos| Some(from.pe) == pe && *from > committed;
        let known = pull.from.filter(|it| *it >= self.replica.base && !is_alien(it));
        let part = self.number;
        let behind = pull.from.filter(|from| *from > committed);
        if let (Some(upto), Some(after)) = (behind, &pull.snapshot_after) {
            // Its earlier pages came from a newer owner, and this one does not know yet that it has
            // been replaced: its contents are older than what the position promises.
            let (events, snapshot_next) = (Vec::new(), Some(after.clone()));
            return over.then_some(Pulled { part, events, snapshot: true, upto, snapshot_next });
        }
        let (Some(from), None) = (known, &pull.snapshot_after) else {
            return Some(self.snapshot_page(env, pull));
        };
        let limit = pull.limit.clamp(1, env.config.sizes.page_sessions) as usize;
        let (mut events, mut bytes) = (Vec::new(), 0);
        let mut upto = from;
        let unseen = self.replica.window.entries.partition_point(|entry| entry.at <= from);
        for entry in self.replica.window.entries.range(unseen..) {
            if events.len() >= limit || bytes >= env.config.sizes.message_bytes {
                break;
            }
            upto = entry.at;
            let records = entry.writes.iter().filter_map(|it| it.doc.as_ref()?.session());
            for record in records.filter(|record| pull.filter.passes(record)) {
                bytes += record.bytes();
                events.push(self.view_of(env, record.clone()));
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
    fn snapshot_page(&self, env: &Env, pull: &PullOp) -> Pulled {
        let m = env.view().m;
        let start = ListCursor { slot: SlotId(0), after: None };
        let cursor = pull.snapshot_after.clone().unwrap_or(start);
        let upto = match (&pull.snapshot_after, pull.from) {
            (Some(_), Some(from)) => from,
            (_, _) => self.replica.committed,
        };
        let last = SlotId(m.saturating_sub(1));
        let (events, snapshot_next) = self.look(env, &cursor, last, &pull.filter, pull.limit);
        Pulled { part: self.number, events, snapshot: true, upto, snapshot_next }
    }

    pub(crate) fn expire_pulls(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        let Some(leading) = &self.leading else { return };
        let over = leading.residents.sessions.pulls.iter().any(|origin| {
            leading.inbox.live.get(origin).is_none_or(|asked| match &asked.op {
                Op::Pull(pull) => now >= asked.arrived_ms + pull.wait_ms,
                Op::Open(_)
                | Op::Close(_)
                | Op::Get(_)
                | Op::List(_)
                | Op::Report(_)
                | Op::Documents(_) => true,
            })
        });
        if over {
            self.serve_pulls(env);
        }
    }
}
