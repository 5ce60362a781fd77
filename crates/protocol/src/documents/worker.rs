//! Operations of applications that work beside the decisions ([`Place::Worker`]).
//!
//! ```text
//!   request ─▶ confirm round ─▶ snapshot ─▶ Effect::Work ─▶ a worker of the rim ─▶ Input::Worked
//!                  ▲               ▲                                                 │
//!                  │               └────── with more documents ◀─────────────────────┤
//!                  └────── pause ◀── changed meanwhile ◀── validation ◀──────────────┘
//!                                                              └─▶ as at any other operation
//! ```
//! The round comes first, so that what only read, or was refused, needs no second work: its answer is right
//! as of the snapshot, which is of a moment at which this manager was known to be the owner. What it writes
//! is validated against the documents of the moment in which its result comes.
//!
//! Nothing can stop what works. Whoever waits for it longer than the quota is told X-QUOTA, and its result
//! is thrown away, as is that of one whose owner changed. It holds its worker until it returns; so these
//! are few, and others wait a moment for one, and are then told X-BUSY.

use crate::documents::documents_env::AtWork;
use crate::documents::here::Here;
use crate::documents::operate::{operated, salt_of};
use crate::documents::state::Documents;
use crate::documents::waiting::Outside;
use crate::log::at::At;
use crate::log::env::{Env, NameOf};
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::ports::note::Transition;
use crate::ports::slots::AtSlot;
use crate::ports::work::{Job, Snapshot, Worked};
use rota_docstore::{
    DocName, Exception, Lookup, Need, Next, Phase, Place, Progress, Run, Territory, codes, validate,
};
use rota_messages::api::OperateOp;
use rota_messages::{Doc, DocKey, DocumentOp, Op};
use rota_model::Stamp;
use rota_ring::slot_of_document;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Most documents of its slot that a snapshot begins with. Of a larger slot it has what the operation asked
/// for, and the operation is begun again for each that it asks for beyond that. Some ten microseconds.
const SNAPSHOT_DOCUMENTS: usize = 256;

/// How long an operation waits for a worker. Short work is over long before that; where all workers do long
/// work, callers hear so soon.
const WORKER_WAIT_MS: u64 = 1_000;

impl Documents {
    pub(crate) fn outside(&self, origin: Origin) -> Option<&Outside> {
        self.runs.get(&origin)?.outside.as_ref()
    }

    pub(crate) fn waits_for_worker(&self, origin: Origin) -> bool {
        self.outside(origin).is_some_and(|it| it.work.is_none())
    }

    /// An attempt at an operation: it works as soon as there is a worker.
    pub(crate) fn begin_work(&mut self, led: &mut At<'_>, origin: Origin, op: &OperateOp) {
        if self.outside(origin).is_some() {
            return;
        }
        // Tasks have workers of their own, which the queues count.
        let is_task = op.request.task.is_some();
        if is_task && !led.env.has_task_worker() {
            let (running, _) = led.env.documents_env.works.count();
            let text = format!(
                "{running} operations work at this manager already, tasks that hang among them: this one is \
                 tried again later"
            );
            let run = Run::resume(Arc::clone(&op.request), self.progress_of(origin));
            let exception = run.given_up(Exception::new(codes::BUSY, text).at(Phase::Before));
            return self.reply(led, origin, operated(Err(exception)));
        }
        let waits = !is_task && !led.env.has_worker();
        let time_ms = match (waits, is_task) {
            (true, _) => WORKER_WAIT_MS,
            (false, true) => led.env.config.tasks.quota_ms,
            (false, false) => led.env.config.documents.work_ms,
        };
        let work = (!waits).then(|| led.env.next_id(NameOf::Work));
        let outside = Outside { work, until_ms: led.env.now.mono_ms + time_ms };
        let progress = self.progress_of(origin);
        if !self.wait_outside(led, origin, progress, outside) {
            return;
        }
        let Some(work) = work else {
            return led.env.documents_env.works.queue.push_back((led.log.number, origin));
        };
        led.env.note(Transition::WorkBegun, Some(led.log.number));
        let job = Box::new(self.job(led, origin, op));
        let operation = job.operation().to_owned();
        let (part, since_ms) = (led.log.number, led.env.now.mono_ms);
        let it = AtWork { part, origin, operation, since_ms, is_overdue: false, is_task };
        led.env.documents_env.works.running.insert(work, it);
        led.env.effects.push(crate::ports::io::Effect::Work { work, job });
    }

    /// There is a worker for one that waited for it.
    pub(crate) fn on_worker(&mut self, led: &mut At<'_>, origin: Origin) {
        if !self.waits_for_worker(origin) {
            return;
        }
        let Some(Op::Documents(DocumentOp::Operate(op))) =
            led.inbox.live.get(&origin).map(|it| it.op.clone())
        else {
            return;
        };
        if let Some(waiting) = self.runs.get_mut(&origin) {
            waiting.outside = None;
        }
        self.begin_work(led, origin, &op);
    }

    fn job(&mut self, led: &mut At<'_>, origin: Origin, op: &OperateOp) -> Job {
        let slots = led.slots();
        let slot = slot_of_document(&op.request.space, &op.docid, slots.m);
        let waiting = self.runs.get(&origin);
        let (progress, wanted) =
            waiting.map_or_else(Default::default, |it| (it.progress.clone(), it.wanted.clone()));
        let (here, far): (BTreeSet<DocName>, BTreeSet<DocName>) =
            wanted.into_iter().partition(|it| slots.holds(slots.slot_of(it)));
        let first = DocKey::first_of(slot);
        let of_slot = led.log.replica.newest_from(Bound::Included(&first));
        let of_slot = of_slot.take_while(|(key, _)| key.slot == slot);
        let mut docs: BTreeMap<DocName, Option<Arc<Doc>>> = of_slot
            .take(SNAPSHOT_DOCUMENTS + 1)
            .map(|(key, doc)| (key.name.clone(), doc.cloned()))
            .collect();
        let whole = (docs.len() <= SNAPSHOT_DOCUMENTS).then_some(slot);
        for name in here {
            let key = DocKey::new(slots.slot_of(&name), name.clone());
            docs.insert(name, led.log.replica.get(&key).cloned());
        }
        let floor = self.floor(led, op.request.space.as_str());
        let high_water = led.log.replica.high_water.max(floor);
        let spaces = led.env.documents_env.spaces.clone();
        let remembered = led.log.replica.remembered();
        Job {
            request: Arc::clone(&op.request),
            progress,
            operations: led.env.documents_env.operations.clone(),
            rules: led.env.documents_env.rules_with(AtSlot { slots, slot }, salt_of(led, origin)),
            snapshot: Arc::new(Snapshot { slots, whole, docs, spaces, remembered, high_water }),
            cache: led.env.documents_env.cache.excerpt(&far),
            now: Stamp::from_epoch_ms(led.env.now.wall_ms),
        }
    }

    /// Takes what an operation worked for. False: nobody waits for it.
    pub(crate) fn on_worked(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        work: u64,
        worked: &Worked,
    ) -> bool {
        let Some(waiting) = self.runs.get_mut(&origin) else { return false };
        if waiting.outside.as_ref().and_then(|it| it.work) != Some(work) {
            return false;
        }
        waiting.outside = None;
        let Some((run, next)) = worked.take() else { return false };
        waiting.progress = run.progress();
        match next {
            Next::Failed(exception) => self.on_exception(led, origin, exception, true),
            Next::Pause { ms } => self.pause_run(led, origin, run.progress(), ms),
            Next::Fetch(needs) => self.look_for(led, origin, run.progress(), needs),
            Next::Validate => self.validate_worked(led, origin, run),
        }
        true
    }

    fn validate_worked(&mut self, led: &mut At<'_>, origin: Origin, mut run: Run) {
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let (slots, space) = (led.slots(), run.request().space.clone());
        let asked = led.inbox.live.get(&origin);
        let Some(Op::Documents(DocumentOp::Operate(op))) = asked.map(|it| &it.op) else { return };
        let slot = slot_of_document(&space, &op.docid, slots.m);
        let rules = led.env.documents_env.rules(AtSlot { slots, slot });
        let floor = self.floor(led, space.as_str());
        let (replica, spaces) = (&led.log.replica, &led.env.documents_env.spaces);
        let beside = led.env.documents_env.counted.beside(led.log.number, led.env.epoch());
        let here = Here { replica, spaces, beside, m: slots.m, floor, clock: led.env.clock() };
        let validated = run.validate_with(|attempt| {
            // It may have been switched off since, and what is in it be deleted already.
            spaces.check_open(&space).map_err(|it| it.at(Phase::Validation))?;
            validate(&rules, &here, attempt, now)
        });
        self.on_validated(led, origin, run, validated, true);
    }

    /// An operation asked for documents that were not in its snapshot: they come into the next one, those
    /// of other owners by way of the cache.
    fn look_for(&mut self, led: &mut At<'_>, origin: Origin, progress: Progress, needs: Vec<Need>) {
        let (slots, now) = (led.slots(), Stamp::from_epoch_ms(led.env.now.wall_ms));
        let Some(waiting) = self.runs.get_mut(&origin) else { return };
        waiting.wanted.extend(needs.iter().map(|it| it.name.clone()));
        // Whoever looks for a memory asks next how much was forgotten.
        let memories = needs.iter().filter(|it| it.name.is_memory());
        waiting.wanted.extend(memories.map(|it| it.name.floor()));
        let cache = &mut led.env.documents_env.cache;
        let missing = needs.into_iter().filter_map(|Need { name, tolerance, .. }| {
            if slots.holds(slots.slot_of(&name)) {
                return None;
            }
            match cache.look_up(&name, now, tolerance) {
                Lookup::Fresh(_) => None,
                Lookup::Stale(held) => Some(Need { name, tolerance, held }),
            }
        });
        let missing: Vec<Need> = missing.collect();
        if missing.is_empty() {
            self.run(led, origin);
        } else {
            self.fetch(led, origin, progress, missing);
        }
    }

    /// Tells callers that wait for a worker, or for work to end, for too long.
    pub(crate) fn tick_outside(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        let late = self.runs.iter().filter_map(|(origin, waiting)| {
            let outside = waiting.outside.as_ref().filter(|it| it.until_ms <= now)?;
            Some((*origin, outside.work, waiting.progress.clone()))
        });
        let late: Vec<_> = late.collect();
        for (origin, work, progress) in late {
            let asked = led.inbox.live.get(&origin);
            let Some(Op::Documents(DocumentOp::Operate(op))) = asked.map(|it| &it.op) else {
                continue;
            };
            let run = Run::resume(Arc::clone(&op.request), progress);
            let exception = match work {
                Some(work) => overdue(led, work),
                None => crowded(led),
            };
            let exception = run.given_up(exception);
            self.reply(led, origin, operated(Err(exception)));
        }
    }
}

/// Whether an operation works beside the decisions.
pub(crate) fn works_outside(env: &Env, op: &OperateOp) -> bool {
    env.documents_env.operations.place_of(&op.request.operation) == Place::Worker
}

fn overdue(led: &mut At<'_>, work: u64) -> Exception {
    let mut limit = (led.env.config.documents.work_ms, "--work-ms");
    let mut operation = String::new();
    if let Some(it) = led.env.documents_env.works.running.get_mut(&work) {
        if it.is_task {
            limit = (led.env.config.tasks.quota_ms, "--task-quota-ms");
        }
        it.is_overdue = true;
        operation.clone_from(&it.operation);
    }
    let (limit_ms, flag) = limit;
    let (running, overdue) = led.env.documents_env.works.count();
    let most = led.env.config.documents.works_max;
    let text = format!(
        "operation {operation} works for longer than {limit_ms} ms: its caller was told so; of {most} \
         workers {running} work, {overdue} of them for too long"
    );
    led.env.note_text(Transition::WorkOverdue, Some(led.log.number), text);
    let message = format!(
        "it works for longer than {limit_ms} ms, which is the limit of this manager ({flag}); it \
         has changed nothing: ask for less at once"
    );
    Exception::new(codes::QUOTA, message)
}

fn crowded(led: &mut At<'_>) -> Exception {
    let (running, overdue) = led.env.documents_env.works.count();
    let text = format!("{running} operations work, {overdue} of them for too long");
    led.env.note_text(Transition::WorkRefused, Some(led.log.number), text);
    let message = format!(
        "{running} operations of applications work at this manager already, which is its limit \
         (--works-max), and none has ended for {WORKER_WAIT_MS} ms; {overdue} of them work for longer \
         than they may"
    );
    Exception::new(codes::BUSY, message).at(Phase::Before)
}
