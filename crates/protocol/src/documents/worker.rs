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
use crate::documents::operate::operated;
use crate::documents::state::Outside;
use crate::log::env::{Env, NameOf};
use crate::log::origin::Origin;
use crate::partition::state::Partition;
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

impl Partition {
    /// Whether an operation works beside the decisions.
    pub(crate) fn works_outside(env: &Env, op: &OperateOp) -> bool {
        env.desks.operations.place_of(&op.request.operation) == Place::Worker
    }

    pub(crate) fn outside(&self, origin: Origin) -> Option<&Outside> {
        self.leading.as_ref()?.residents.documents.runs.get(&origin)?.outside.as_ref()
    }

    pub(crate) fn waits_for_worker(&self, origin: Origin) -> bool {
        self.outside(origin).is_some_and(|it| it.work.is_none())
    }

    /// An attempt at an operation: it works as soon as there is a worker.
    pub(crate) fn begin_work(&mut self, env: &mut Env, origin: Origin, op: &OperateOp) {
        if self.outside(origin).is_some() {
            return;
        }
        let waits = !env.has_worker();
        let time_ms = if waits { WORKER_WAIT_MS } else { env.config.documents.work_ms };
        let work = (!waits).then(|| env.next_id(NameOf::Work));
        let outside = Outside { work, until_ms: env.now.mono_ms + time_ms };
        let progress = self.progress_of(origin);
        if !self.wait_outside(env, origin, progress, outside) {
            return;
        }
        let Some(work) = work else {
            return env.desks.works.queue.push_back((self.number, origin));
        };
        env.note(Transition::WorkBegun, Some(self.number));
        let job = Box::new(self.job(env, origin, op));
        let operation = job.operation().to_owned();
        let (part, since_ms) = (self.number, env.now.mono_ms);
        let it = AtWork { part, origin, operation, since_ms, is_overdue: false };
        env.desks.works.running.insert(work, it);
        env.effects.push(crate::ports::io::Effect::Work { work, job });
    }

    /// There is a worker for one that waited for it.
    pub(crate) fn on_worker(&mut self, env: &mut Env, origin: Origin) {
        if !self.waits_for_worker(origin) {
            return;
        }
        let Some(leading) = &mut self.leading else { return };
        let Some(Op::Documents(DocumentOp::Operate(op))) =
            leading.inbox.live.get(&origin).map(|it| it.op.clone())
        else {
            return;
        };
        if let Some(waiting) = leading.residents.documents.runs.get_mut(&origin) {
            waiting.outside = None;
        }
        self.begin_work(env, origin, &op);
    }

    fn job(&mut self, env: &mut Env, origin: Origin, op: &OperateOp) -> Job {
        let slots = self.slots(env);
        let slot = slot_of_document(&op.request.space, &op.docid, slots.m);
        let waiting = self.leading.as_ref().and_then(|it| it.residents.documents.runs.get(&origin));
        let (progress, wanted) =
            waiting.map_or_else(Default::default, |it| (it.progress.clone(), it.wanted.clone()));
        let (here, far): (BTreeSet<DocName>, BTreeSet<DocName>) =
            wanted.into_iter().partition(|it| slots.holds(slots.slot_of(it)));
        let first = DocKey::first_of(slot);
        let of_slot = self.replica.newest_from(Bound::Included(&first));
        let of_slot = of_slot.take_while(|(key, _)| key.slot == slot);
        let mut docs: BTreeMap<DocName, Option<Arc<Doc>>> = of_slot
            .take(SNAPSHOT_DOCUMENTS + 1)
            .map(|(key, doc)| (key.name.clone(), doc.cloned()))
            .collect();
        let whole = (docs.len() <= SNAPSHOT_DOCUMENTS).then_some(slot);
        for name in here {
            let key = DocKey::new(slots.slot_of(&name), name.clone());
            docs.insert(name, self.replica.get(&key).cloned());
        }
        let floor = self.floor(env, op.request.space.as_str());
        let high_water = self.replica.high_water.max(floor);
        let spaces = env.desks.spaces.clone();
        let remembered = self.replica.remembered();
        Job {
            request: Arc::clone(&op.request),
            progress,
            operations: env.desks.operations.clone(),
            rules: env.desks.rules(AtSlot { slots, slot }),
            snapshot: Arc::new(Snapshot { slots, whole, docs, spaces, remembered, high_water }),
            cache: env.desks.cache.excerpt(&far),
            now: Stamp::from_epoch_ms(env.now.wall_ms),
        }
    }

    /// Takes what an operation worked for. False: nobody waits for it.
    pub(crate) fn on_worked(
        &mut self,
        env: &mut Env,
        origin: Origin,
        work: u64,
        worked: &Worked,
    ) -> bool {
        let Some(leading) = &mut self.leading else { return false };
        let Some(waiting) = leading.residents.documents.runs.get_mut(&origin) else { return false };
        if waiting.outside.as_ref().and_then(|it| it.work) != Some(work) {
            return false;
        }
        waiting.outside = None;
        let Some((run, next)) = worked.take() else { return false };
        waiting.progress = run.progress();
        match next {
            Next::Failed(exception) => self.on_exception(env, origin, exception, true),
            Next::Pause { ms } => self.pause_run(env, origin, run.progress(), ms),
            Next::Fetch(needs) => self.look_for(env, origin, run.progress(), needs),
            Next::Validate => self.validate_worked(env, origin, run),
        }
        true
    }

    fn validate_worked(&mut self, env: &mut Env, origin: Origin, mut run: Run) {
        let now = Stamp::from_epoch_ms(env.now.wall_ms);
        let (slots, space) = (self.slots(env), run.request().space.clone());
        let asked = self.leading.as_ref().and_then(|it| it.inbox.live.get(&origin));
        let Some(Op::Documents(DocumentOp::Operate(op))) = asked.map(|it| &it.op) else { return };
        let slot = slot_of_document(&space, &op.docid, slots.m);
        let rules = env.desks.rules(AtSlot { slots, slot });
        let floor = self.floor(env, space.as_str());
        let (replica, spaces) = (&self.replica, &env.desks.spaces);
        let beside = env.desks.counted.beside(self.number, env.epoch());
        let here = Here { replica, spaces, beside, m: slots.m, floor, clock: env.clock() };
        let validated = run.validate_with(|attempt| {
            // It may have been switched off since, and what is in it be deleted already.
            spaces.check_open(&space).map_err(|it| it.at(Phase::Validation))?;
            validate(&rules, &here, attempt, now)
        });
        self.on_validated(env, origin, run, validated, true);
    }

    /// An operation asked for documents that were not in its snapshot: they come into the next one, those
    /// of other owners by way of the cache.
    fn look_for(&mut self, env: &mut Env, origin: Origin, progress: Progress, needs: Vec<Need>) {
        let (slots, now) = (self.slots(env), Stamp::from_epoch_ms(env.now.wall_ms));
        let Some(leading) = &mut self.leading else { return };
        let Some(waiting) = leading.residents.documents.runs.get_mut(&origin) else { return };
        waiting.wanted.extend(needs.iter().map(|it| it.name.clone()));
        // Whoever looks for a memory asks next how much was forgotten.
        let memories = needs.iter().filter(|it| it.name.is_memory());
        waiting.wanted.extend(memories.map(|it| it.name.floor()));
        let cache = &mut env.desks.cache;
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
            self.run(env, origin);
        } else {
            self.fetch(env, origin, progress, missing);
        }
    }

    /// Tells callers that wait for a worker, or for work to end, for too long.
    pub(crate) fn tick_outside(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        let Some(leading) = &self.leading else { return };
        let late = leading.residents.documents.runs.iter().filter_map(|(origin, waiting)| {
            let outside = waiting.outside.as_ref().filter(|it| it.until_ms <= now)?;
            Some((*origin, outside.work, waiting.progress.clone()))
        });
        let late: Vec<_> = late.collect();
        for (origin, work, progress) in late {
            let asked = self.leading.as_ref().and_then(|it| it.inbox.live.get(&origin));
            let Some(Op::Documents(DocumentOp::Operate(op))) = asked.map(|it| &it.op) else {
                continue;
            };
            let run = Run::resume(Arc::clone(&op.request), progress);
            let exception = match work {
                Some(work) => self.overdue(env, work),
                None => self.crowded(env),
            };
            let exception = run.given_up(exception);
            self.reply(env, origin, operated(Err(exception)));
        }
    }

    fn overdue(&self, env: &mut Env, work: u64) -> Exception {
        let limit_ms = env.config.documents.work_ms;
        let mut operation = String::new();
        if let Some(it) = env.desks.works.running.get_mut(&work) {
            it.is_overdue = true;
            operation.clone_from(&it.operation);
        }
        let (running, overdue) = env.desks.works.count();
        let most = env.config.documents.works_max;
        let text = format!(
            "operation {operation} works for longer than {limit_ms} ms: its caller was told so; of {most} \
             workers {running} work, {overdue} of them for too long"
        );
        env.note_text(Transition::WorkOverdue, Some(self.number), text);
        let message = format!(
            "it works for longer than {limit_ms} ms, which is the limit of this manager (--work-ms); it \
             has changed nothing: ask for less at once"
        );
        Exception::new(codes::QUOTA, message)
    }

    fn crowded(&self, env: &mut Env) -> Exception {
        let (running, overdue) = env.desks.works.count();
        let text = format!("{running} operations work, {overdue} of them for too long");
        env.note_text(Transition::WorkRefused, Some(self.number), text);
        let message = format!(
            "{running} operations of applications work at this manager already, which is its limit \
             (--works-max), and none has ended for {WORKER_WAIT_MS} ms; {overdue} of them work for longer \
             than they may"
        );
        Exception::new(codes::BUSY, message).at(Phase::Before)
    }
}
