//! Operations that wait at their owner: for a pause to end, for documents of other owners, or for their work
//! beside the decisions.

use crate::documents::state::Documents;
use crate::documents::waiting::{Outside, Waiting};
use crate::log::at::At;
use crate::log::internal::{Internal, InternalRequest};
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::ports::note::Transition;
use rota_docstore::{DocName, Exception, Need, Progress, Run, SyncRequest};
use rota_messages::api::SyncOp;
use rota_messages::{Answer, DocumentAnswer, DocumentOp, Op, OpResult};
use rota_model::{Refusal, RefusalKind, Retry, Stamp};

/// Most operations that wait at one partition; each holds the progress of a request that is kept
/// anyway, and the names that it waits for, 32 at most.
const RUNS_MAX: usize = 1_024;

impl Documents {
    /// How far a request is that waited here. It goes on now: what comes late for it counts no
    /// more.
    pub(crate) fn progress_of(&mut self, origin: Origin) -> Progress {
        let waiting = self.runs.get_mut(&origin);
        let Some(waiting) = waiting else { return Progress::default() };
        (waiting.resume_ms, waiting.missing) = (None, Vec::new());
        waiting.progress.clone()
    }

    pub(crate) fn pause_run(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        progress: Progress,
        ms: u64,
    ) {
        led.env.note(Transition::OperationPaused, Some(led.log.number));
        let resume_ms = Some(led.env.now.mono_ms + ms);
        self.wait(led, origin, Waiting { progress, resume_ms, ..Waiting::default() });
    }

    /// It works, or waits for a worker. False: there is no room for it.
    pub(crate) fn wait_outside(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        progress: Progress,
        outside: Outside,
    ) -> bool {
        let outside = Some(outside);
        self.wait(led, origin, Waiting { progress, outside, ..Waiting::default() })
    }

    fn wait(&mut self, led: &mut At<'_>, origin: Origin, mut waiting: Waiting) -> bool {
        if let Some(before) = self.runs.get_mut(&origin) {
            waiting.wanted = std::mem::take(&mut before.wanted);
        }
        if self.runs.len() < RUNS_MAX || self.runs.contains_key(&origin) {
            self.runs.insert(origin, waiting);
            return true;
        }
        let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
        let text = format!("{RUNS_MAX} operations wait at this partition already");
        self.reply(led, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
        false
    }

    /// Asks the owners of documents for them, on behalf of an operation.
    pub(crate) fn fetch(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        progress: Progress,
        needs: Vec<Need>,
    ) {
        let asked = led.inbox.live.get(&origin);
        let Some(deadline_ms) = asked.map(|it| it.deadline_ms) else { return };
        let missing = needs.iter().map(|it| it.name.clone()).collect();
        if !self.wait(led, origin, Waiting { progress, missing, ..Waiting::default() }) {
            return;
        }
        led.env.note(Transition::DocumentsFetched, Some(led.log.number));
        let (m, asked) = (led.env.view().m, Stamp::from_epoch_ms(led.env.now.wall_ms));
        for Need { name, held, .. } in needs {
            let slot = crate::ports::slots::slot_of(&name, m);
            let syncs = vec![SyncRequest { name: name.clone(), held }];
            // Whether it may be read at all was checked here.
            let op = SyncOp { reader: None, slot, syncs, stale_ok: false };
            let inner = Internal::Fetch { part: led.log.number, origin, name, asked };
            let op = Op::Documents(DocumentOp::Sync(op));
            led.env.router.asked.push(InternalRequest { inner, op, deadline_ms });
        }
    }

    /// A document came, or will not.
    pub fn on_fetched(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        name: &DocName,
        asked: Stamp,
        result: OpResult,
    ) {
        let waiting = self.runs.get_mut(&origin);
        let Some(waiting) = waiting.filter(|it| it.missing.contains(name)) else { return };
        waiting.missing.retain(|it| it != name);
        let is_last = waiting.missing.is_empty();
        let fetched = match result {
            Ok(Answer::Documents(DocumentAnswer::Synced(fetched))) => fetched,
            Ok(_) => Ok(Vec::new()),
            Err(refusal) => return self.reply(led, origin, Err(refusal)),
        };
        match fetched {
            Ok(updates) => {
                let cache = &mut led.env.documents_env.cache;
                let kept = updates.iter().try_for_each(|(name, update)| {
                    let Ok(bytes) = cache.apply(name, update, asked) else {
                        // What does not fit to the copy here is asked for anew, and whole.
                        cache.forget(name);
                        return Ok(());
                    };
                    waiting.progress.fetched(name, bytes, cache.bytes_max())
                });
                if let Err(exception) = kept {
                    return self.fetch_failed(led, origin, exception);
                }
            }
            Err(exception) => return self.fetch_failed(led, origin, exception),
        }
        if is_last {
            self.run(led, origin);
        }
    }

    /// A document cannot be had: that ends an attempt at the operation that asked for it.
    fn fetch_failed(&mut self, led: &mut At<'_>, origin: Origin, exception: Exception) {
        let asked = led.inbox.live.get(&origin);
        let Some(Op::Documents(DocumentOp::Operate(op))) = asked.map(|it| it.op.clone()) else {
            return;
        };
        let mut run = Run::resume(op.request, self.progress_of(origin));
        match run.fetch_failed(exception) {
            Ok(ms) => self.pause_run(led, origin, run.progress(), ms),
            // Which document it asked for leans on what it read here, and that must be committed.
            Err(exception) => {
                self.answer_read(led, origin, crate::documents::operate::operated(Err(exception)))
            }
        }
    }

    /// Goes on with operations whose pause is over.
    pub fn tick_runs(&mut self, led: &mut At<'_>) {
        self.tick_outside(led);
        let now = led.env.now.mono_ms;
        if !led.lead.reads() {
            return;
        }
        let due = self.runs.iter_mut();
        let due = due.filter(|(_, waiting)| waiting.resume_ms.is_some_and(|at| at <= now));
        let due: Vec<Origin> = due
            .map(|(origin, waiting)| {
                // Whatever it waits for next sets this again.
                waiting.resume_ms = None;
                *origin
            })
            .collect();
        for origin in due {
            self.run(led, origin);
        }
    }
}
