//! Operations at the owner of their slot.
//!
//! ```text
//!   request ─▶ work, validate ─▶ wrote something ─▶ one entry of the log ─▶ promised at its position
//!                │   ▲       └─▶ only read, or refused ─▶ confirm round ─▶ again ─▶ answered when
//!                ▼   │                                                    what it read is committed
//!          pause, or fetch documents of other owners
//! ```
//! Nothing happens here between work and validation, so operations of one owner are never in each
//! other's way; what pauses is an operation that failed unexpectedly. Operations of applications work
//! beside this, unless they say otherwise: see [`super::worker`].

use crate::documents::copies::{check_reader, document_page, synced};
use crate::documents::here::Here;
use crate::documents::memory_quota::take_room;
use crate::documents::state::Documents;
use crate::documents::usage::Beside;
use crate::documents::worker::works_outside;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::ports::note::Transition;
use crate::ports::slots::{AtSlot, CONFIGURATION};
use rota_docstore::{Commit, Exception, Next, Phase, Progress, Run, Update, Validated, validate};
use rota_messages::api::{ClearOp, OperateOp};
use rota_messages::{Answer, Doc, DocKey, DocumentAnswer, DocumentOp, OpResult, Write};
use rota_model::{Refusal, RefusalKind, Retry, Stamp};
use rota_ring::slot_of_document;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The answer to an operation.
pub(crate) fn operated(result: Result<rota_docstore::Answer, Exception>) -> OpResult {
    Ok(Answer::Documents(DocumentAnswer::Operated(result)))
}

/// Whether the answer depends on descriptions of namespaces: limits, readers.
fn needs_spaces(op: &DocumentOp) -> bool {
    match op {
        DocumentOp::Operate(op) => op.request.space.as_str() != CONFIGURATION,
        DocumentOp::Sync(op) => {
            op.reader.as_ref().is_some_and(|it| it.space.as_str() != CONFIGURATION)
        }
        DocumentOp::Watch(op) => op.reader.space.as_str() != CONFIGURATION,
        DocumentOp::Import(_)
        | DocumentOp::Copy(_)
        | DocumentOp::Page(_)
        | DocumentOp::Clear(_)
        | DocumentOp::Follow(_) => false,
    }
}

/// What this manager must hear of namespaces first.
fn unheard(env: &Env, op: &DocumentOp) -> Option<String> {
    if !env.documents_env.knows_spaces && needs_spaces(op) {
        let text = "the owner has just started, and does not know the namespaces yet";
        return Some(text.to_owned());
    }
    match op {
        // It would go on taking writes behind what it deletes.
        DocumentOp::Clear(ClearOp { space, .. })
            if env.documents_env.spaces.check_open(space).is_ok() =>
        {
            Some(format!("the owner has not heard yet that namespace {space} is off"))
        }
        DocumentOp::Clear(_)
        | DocumentOp::Operate(_)
        | DocumentOp::Sync(_)
        | DocumentOp::Import(_)
        | DocumentOp::Copy(_)
        | DocumentOp::Page(_)
        | DocumentOp::Follow(_)
        | DocumentOp::Watch(_) => None,
    }
}

impl Documents {
    /// A request about documents, while the partition serves.
    pub fn on_documents(&mut self, led: &mut At<'_>, origin: Origin, op: &DocumentOp) {
        if let Some(text) = unheard(led.env, op) {
            let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
            let refusal = Refusal::new(RefusalKind::NotServing, retry, text);
            return self.reply(led, origin, Err(refusal));
        }
        if let DocumentOp::Sync(op) = op
            && let Some(reader) = &op.reader
            && let Err(exception) = check_reader(led, reader)
        {
            return self.reply(led, origin, synced(Err(exception)));
        }
        match op {
            DocumentOp::Operate(op) if works_outside(led.env, op) => {
                self.progress_of(origin);
                led.confirm_then(origin);
            }
            DocumentOp::Operate(op) => {
                let progress = self.progress_of(origin);
                self.operate(led, origin, op, progress, false);
            }
            DocumentOp::Sync(op) if op.stale_ok => self.sync_stale(led, origin, op),
            DocumentOp::Follow(op) => self.on_follow(led, origin, op),
            DocumentOp::Watch(op) => self.on_watch(led, origin, op),
            DocumentOp::Import(op) => self.import(led, origin, op, false),
            DocumentOp::Copy(op) => self.copy_in(led, origin, op, false),
            DocumentOp::Sync(_) | DocumentOp::Page(_) | DocumentOp::Clear(_) => {
                led.confirm_then(origin);
            }
        }
    }

    /// Nobody else owned the partition when the request arrived.
    pub fn on_documents_confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: &DocumentOp) {
        match op {
            DocumentOp::Operate(op) if works_outside(led.env, op) => {
                self.begin_work(led, origin, op);
            }
            DocumentOp::Operate(op) => {
                let progress = self.progress_of(origin);
                self.operate(led, origin, op, progress, true);
            }
            DocumentOp::Sync(op) => self.sync(led, origin, op),
            DocumentOp::Page(op) => {
                let page = document_page(led, op);
                self.answer_read(led, origin, Ok(Answer::Documents(DocumentAnswer::Page(page))));
            }
            DocumentOp::Clear(op) => self.clear(led, origin, op),
            DocumentOp::Import(op) => self.import(led, origin, op, true),
            DocumentOp::Copy(op) => self.copy_in(led, origin, op, true),
            DocumentOp::Follow(_) | DocumentOp::Watch(_) => {}
        }
    }

    /// No version below this is given out. A write need not be above those of other
    /// documents, or a thousand writes in a second would leave the clock behind; but above what
    /// was told of documents that do not exist, and of those that were forgotten or lost.
    pub(crate) fn floor(&self, led: &At<'_>, space: &str) -> Stamp {
        // Whoever follows the descriptions of namespaces asks for what is newer.
        let follows = space == CONFIGURATION;
        let told = if follows { led.log.replica.high_water } else { self.told };
        told.max(led.env.stamps.forgotten).max(led.stamps_above()).next()
    }

    /// Remembers that somebody was told what does not exist here.
    pub(crate) fn note_told<'a>(
        &mut self,
        led: &mut At<'_>,
        mut updates: impl Iterator<Item = &'a Update>,
    ) {
        if updates.any(|it| matches!(it, Update::Absent { .. })) {
            self.told = self.told.max(led.log.replica.high_water);
        }
    }

    /// One attempt at an operation, from its beginning.
    pub(crate) fn operate(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        op: &OperateOp,
        progress: Progress,
        confirmed: bool,
    ) {
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let slots = led.slots();
        let slot = slot_of_document(&op.request.space, &op.docid, slots.m);
        let salt = salt_of(led, origin);
        let rules = led.env.documents_env.rules_with(AtSlot { slots, slot }, salt);
        let floor = self.floor(led, op.request.space.as_str());
        let (replica, high_water) = (&led.log.replica, led.log.replica.high_water.max(floor));
        let (epoch, clock) = (led.env.epoch(), led.env.clock());
        let documents_env = &mut led.env.documents_env;
        let (spaces, beside) =
            (&documents_env.spaces, documents_env.counted.beside(led.log.number, epoch));
        let here = |floor| Here { replica, spaces, beside, m: slots.m, floor, clock };
        let mut run = Run::resume(Arc::clone(&op.request), progress);
        let cache = Some(&mut documents_env.cache);
        let next = run.work(&documents_env.operations, &rules, &here(high_water), cache, now);
        match next {
            Next::Failed(it) => return self.on_exception(led, origin, it, confirmed),
            Next::Pause { ms } => return self.pause_run(led, origin, run.progress(), ms),
            Next::Fetch(needs) => return self.fetch(led, origin, run.progress(), needs),
            Next::Validate => {}
        }
        let validated = run.validate_with(|attempt| validate(&rules, &here(floor), attempt, now));
        self.on_validated(led, origin, run, validated, confirmed);
    }

    pub(crate) fn on_validated(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        run: Run,
        validated: Validated,
        confirmed: bool,
    ) {
        match validated {
            Validated::Failed(it) => self.on_exception(led, origin, it, confirmed),
            Validated::Pause { ms } => self.pause_run(led, origin, run.progress(), ms),
            Validated::Valid(commit) => self.on_valid(led, origin, run, commit, confirmed),
        }
    }

    /// What it came to leans on what it read: that must be as certain as an answer.
    pub(crate) fn on_exception(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        exception: Exception,
        confirmed: bool,
    ) {
        match exception.phase() {
            Phase::Before => self.reply(led, origin, operated(Err(exception))),
            Phase::Work
            | Phase::Validation
            | Phase::AfterWork
            | Phase::Synchronisation
            | Phase::Sending
                if confirmed =>
            {
                self.answer_read(led, origin, operated(Err(exception)));
            }
            Phase::Work
            | Phase::Validation
            | Phase::AfterWork
            | Phase::Synchronisation
            | Phase::Sending => led.confirm_then(origin),
        }
    }

    /// Answers what leans on everything that was appended here.
    pub(crate) fn answer_read(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult) {
        if led.log.replica.tail.entries.is_empty() {
            self.reply(led, origin, result);
        } else {
            led.promise(led.log.replica.last, origin, result);
        }
    }

    fn on_valid(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        run: Run,
        commit: Commit,
        confirmed: bool,
    ) {
        if commit.writes.is_empty() {
            if !confirmed {
                return led.confirm_then(origin);
            }
            led.env.note(Transition::OperationRead, Some(led.log.number));
            let result = self.finish(led, run, &commit);
            return self.answer_read(led, origin, operated(result));
        }
        if !led.may_begin() {
            return led.enqueue(origin);
        }
        let m = led.env.view().m;
        let writes = commit.writes.iter().map(|write| {
            let key = DocKey::new(crate::ports::slots::slot_of(&write.name, m), write.name.clone());
            let doc = write.after.clone().map(Doc::new).transpose();
            let doc = doc.expect("sessions and pools are read only in every schema").map(Arc::new);
            Write { key, doc }
        });
        let writes: Vec<Write> = writes.collect();
        let refused = led.log.without_body(led.env, &writes);
        let keeps_task = run.request().task.as_ref().is_some_and(|it| !it.is_work);
        let no_room = |led: &mut At<'_>| take_room(led, &writes).err().filter(|_| !keeps_task);
        let refused = refused.or_else(|| no_room(led));
        if let Some(exception) = refused {
            let exception = run.given_up(exception.at(Phase::Validation));
            return self.on_exception(led, origin, exception, confirmed);
        }
        let at = led.write(writes, None);
        led.env.note(Transition::Operated, Some(led.log.number));
        let result = self.finish(led, run, &commit);
        led.promise(at, origin, operated(result));
    }

    fn finish(
        &mut self,
        led: &mut At<'_>,
        run: Run,
        commit: &Commit,
    ) -> Result<rota_docstore::Answer, Exception> {
        let (replica, floor) = (&led.log.replica, led.log.replica.high_water);
        // Nothing is written any more, so what others hold limits nothing.
        let (spaces, beside) = (&led.env.documents_env.spaces, Beside::default());
        let here =
            Here { replica, spaces, beside, m: led.env.view().m, floor, clock: led.env.clock() };
        let mut answer = run.finish(&here, commit)?;
        crate::documents::copies::cut(&mut answer.updates, led.env.config.sizes.message_bytes);
        self.note_told(led, answer.updates.iter().map(|(_, update)| update));
        Ok(answer)
    }
}

/// What an attempt draws its numbers from: no other attempt, of whatever manager, has it.
pub(crate) fn salt_of(led: &At<'_>, origin: Origin) -> u64 {
    let mut hasher = DefaultHasher::new();
    let (me, now, log) = (led.env.me, led.env.now.wall_ms, &*led.log);
    (me, log.number, log.replica.last, now, origin).hash(&mut hasher);
    hasher.finish()
}
