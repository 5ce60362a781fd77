//! Questions about the tasks of a partition.

use crate::contents::tasks::task_of;
use crate::log::at::At;
use crate::log::origin::Origin;
use crate::log::resident::{Late, RequestHandler};
use crate::tasks::state::Tasks;
use rota_messages::{Answer, DocKey, DocumentCursor, Op, OpResult, QueueRow, TasksOp, TasksPage};
use rota_model::{SlotId, Stamp};
use rota_tasks::Task;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Most tasks that one page looks at.
const LOOKED_AT_MAX: usize = 2_000;

/// Most tasks of one page. Each may have 16 KiB of parameters, and a page is one message.
const PAGE_MAX: u32 = 200;

/// About how many bytes of tasks a page looks at.
const PAGE_BYTES: u64 = 1024 * 1024;

/// Committed tasks from a cursor on, as far as the ring's order leaves this partition, and where to go on.
fn page(led: &At<'_>, op: &TasksOp) -> (Vec<Task>, Option<DocumentCursor>) {
    let (from, limit) = (&op.from, op.limit.min(PAGE_MAX) as usize);
    let m = led.env.view().m;
    let intervals = led.log.range.intervals(m);
    let interval = intervals.iter().find(|(a, b)| *a <= from.slot && from.slot <= *b);
    let last = interval.map_or(from.slot, |(_, last)| *last);
    let lower = match &from.after {
        Some(name) => Bound::Excluded(DocKey::new(from.slot, name.clone())),
        None => Bound::Included(DocKey::first_of(from.slot)),
    };
    let keys = led.log.replica.counts.tasks.keys.range((lower, Bound::Unbounded));
    let (mut tasks, mut bytes) = (Vec::new(), 0);
    for (looked_at, key) in keys.take_while(|it| it.slot <= last).enumerate() {
        let doc = led.log.replica.docs.get(key).and_then(|it| it.of_application());
        bytes += doc.map_or(0, |it| it.content_bytes());
        let task = doc.and_then(|it| task_of(it));
        tasks.extend(task.filter(|it| op.filter.selects(it)));
        if tasks.len() >= limit || bytes >= PAGE_BYTES || looked_at >= LOOKED_AT_MAX {
            let (slot, after) = (key.slot, Some(key.name.clone()));
            return (tasks, Some(DocumentCursor { slot, after }));
        }
    }
    let next = (last.0 + 1 < m).then(|| SlotId(last.0 + 1));
    (tasks, next.map(|slot| DocumentCursor { slot, after: None }))
}

impl Tasks {
    fn answer(&self, led: &At<'_>, op: &TasksOp) -> TasksPage {
        if op.limit > 0 {
            let (tasks, next) = page(led, op);
            return TasksPage { tasks, next, queues: Vec::new(), counts: Vec::new() };
        }
        let index = &led.log.replica.counts.tasks.index;
        let at = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let row = |((queue, space), backlog)| QueueRow { queue, space, backlog };
        let queues = self.queue.backlog(index, at).into_iter().map(row).collect();
        TasksPage { tasks: Vec::new(), next: None, queues, counts: index.counts().collect() }
    }
}

impl RequestHandler for Tasks {
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, _: Op) {
        if led.lead.reads() {
            led.confirm_then(origin);
        } else {
            led.enqueue(origin);
        }
    }

    fn confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        if let Op::Tasks(op) = op {
            let page = self.answer(led, &op);
            led.reply(origin, Ok(Answer::Tasks(page)));
        }
    }

    fn unfinished(&self, led: &At<'_>, late: &Late) -> BTreeMap<Origin, OpResult> {
        let is_mine = |origin: &&Origin| {
            let asked = led.inbox.live.get(origin);
            asked.is_some_and(|asked| matches!(asked.op, Op::Tasks(_)))
        };
        let told = || Err(led.too_late("the partition of these tasks did not serve in time"));
        late.all.iter().filter(is_mine).map(|origin| (*origin, told())).collect()
    }

    fn reply(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult) {
        led.reply(origin, result);
    }
}
