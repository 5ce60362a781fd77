//! The workers of a partition's tasks.

use crate::contents::tasks::task_of;
use crate::log::at::At;
use crate::log::env::{Env, NameOf};
use crate::log::internal::OwnRequest;
use crate::log::lead::Phase;
use crate::log::resident::{Resident, Turn};
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use crate::ports::slots::{CONFIGURATION, Slots};
use crate::ports::task_work::{
    END, Ending, FAIL, PROGRESS, Progressing, START, Started, Starting, TaskJob, TaskOutcome,
};
use crate::ring_tasks::state::RingTask;
use crate::tasks::step::{Held, Step, Work};
use rota_docstore::{
    Body, DocName, Exception, JsonText, Request, Stamp, TaskRun, Territory, codes,
};
use rota_messages::api::OperateOp;
use rota_messages::{Answer, DocKey, DocumentAnswer, DocumentOp, Op, OpResult};
use rota_model::{SessionId, SessionKey};
use rota_tasks::{
    ACT, ActWork, Param, Patience, QueueManager, Run, TASK_CLASS, Task, TaskKey, TaskState,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Between two looks for lost runs, in milliseconds. Shorter, and looks cost more. Longer, and a run that a former owner
/// began waits longer.
const LOST_LOOK_MS: u64 = 1_000;

/// Most runs that one look finds lost.
const LOST_MAX: usize = 100;

/// How long a commit of a start or an end may take. After that the worker is free, and a later look puts the record right.
const COMMIT_MS: u64 = 10_000;

/// Between two words about how far work around the ring has come, in milliseconds.
const TELL_MS: u64 = 1_000;

/// How long nothing is started after a start that was refused.
const REST_MS: u64 = 1_000;

/// The workers of a partition's tasks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Tasks {
    pub queue: QueueManager,
    /// What each worker waits for, by the name of its request or of its work.
    held: BTreeMap<u64, Held>,
    /// Work that goes around the ring, by its name.
    ring_tasks: BTreeMap<u64, RingTask>,
    /// Nobody is told before how far it has come.
    tell_ms: u64,
    /// No look for lost runs before.
    lost_ms: u64,
    /// Nothing is started before.
    rest_ms: u64,
}

impl Tasks {
    /// Gives free workers what is due.
    fn take(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        let index = &led.log.replica.counts.tasks.index;
        if index.is_empty() || now < self.rest_ms || !led.may_begin() {
            return;
        }
        let spaces = &led.env.documents_env.spaces;
        if !led.env.documents_env.knows_spaces {
            return;
        }
        let is_suspended = |qn: u8, ns: &rota_docstore::Namespace| {
            let stops = |space: &str| spaces.get(space).is_some_and(|it| it.suspended.stops(qn));
            stops(ns.as_str()) || stops(CONFIGURATION) || spaces.check_open(ns).is_err()
        };
        let at = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let settings = &led.env.config.tasks.queues;
        for key in self.queue.take(settings, index, is_suspended, at) {
            let parameters = Starting { docid: key.docid.clone() };
            let bookkeeping = no_run(&key);
            self.ask(led, key, Step::Start, (START, text_of(&parameters)), bookkeeping, COMMIT_MS);
        }
    }

    /// Asks this manager itself for an operation of a task.
    fn ask(
        &mut self,
        led: &mut At<'_>,
        key: TaskKey,
        step: Step,
        (operation, parameters): (&str, Option<JsonText>),
        task: TaskRun,
        deadline_ms: u64,
    ) {
        let mut request = Request::new(key.ns.clone(), operation);
        request.parameters = parameters;
        request.task = Some(Arc::new(task));
        let operate = OperateOp { request: Arc::new(request), docid: key.docid.clone() };
        let op = Some(Op::Documents(DocumentOp::Operate(operate)));
        let until_ms = led.env.now.mono_ms + deadline_ms;
        self.send(led, Held { key, step, op, again_ms: None, until_ms });
    }

    fn send(&mut self, led: &mut At<'_>, held: Held) {
        let rid = led.env.next_id(NameOf::Task);
        if let Some(op) = held.op.clone() {
            let deadline_ms = held.until_ms.saturating_sub(led.env.now.mono_ms);
            let own = OwnRequest { part: led.log.number, rid, op, deadline_ms };
            led.env.router.own.push_back(own);
        }
        self.held.insert(rid, Held { again_ms: None, ..held });
    }

    /// An operation of a task was answered.
    pub fn on_answered(&mut self, led: &mut At<'_>, rid: u64, result: OpResult) {
        let Some(held) = self.held.remove(&rid) else { return };
        let now = led.env.now.mono_ms;
        let is_start = matches!(held.step, Step::Start);
        // Nothing was carried out, or nobody knows: whoever asks again finds what it came to.
        if result.is_err() && !is_start && now + REST_MS < held.until_ms {
            let again_ms = Some(now + REST_MS);
            self.held.insert(rid, Held { again_ms, ..held });
            return;
        }
        let Held { key, step, .. } = held;
        let result = match result {
            Ok(Answer::Documents(DocumentAnswer::Operated(Ok(answer)))) => Ok(answer.body),
            Ok(Answer::Documents(DocumentAnswer::Operated(Err(exception)))) => Err(exception),
            Ok(_) => Err(Exception::new(codes::MISUSE, "the answer is none of an operation")),
            Err(refusal) => Err(Exception::new(codes::BUSY, refusal.to_string())),
        };
        match (step, result) {
            (Step::Start, Ok(body)) => self.on_started(led, key, &body),
            (Step::Start, Err(exception)) => self.on_not_started(led, &key, &exception),
            (Step::Cycle(work), Ok(Body::Json(checkpoint))) => {
                led.env.note(Transition::TaskWentOn, Some(led.log.number));
                self.cycle(led, key, work, Some(checkpoint));
            }
            (Step::Cycle(_), Ok(Body::Nothing | Body::Binary { .. })) => {
                led.env.note(Transition::TaskEnded, Some(led.log.number));
                self.free(led, &key);
            }
            // It was deleted, or another run has it by now.
            (Step::Cycle(_), Err(exception)) if *exception.code() == codes::TASK => {
                self.free(led, &key);
            }
            (Step::Cycle(work), Err(exception)) => {
                let why = (exception.code().to_string(), exception.to_string());
                self.fail(led, key, work.run, why, false);
            }
            // It was deleted, or another run has it by now: nobody wants its end.
            (Step::Told(run), Err(exception)) if *exception.code() == codes::TASK => {
                if self.ring_tasks.values().any(|it| it.key == key && it.run == run) {
                    self.stop(led, (key.ns.as_str(), &key.docid));
                }
            }
            (Step::Told(_), _) => {}
            (Step::End, _) => self.free(led, &key),
            (Step::Outside(_), _) => self.free(led, &key),
        }
    }

    fn on_not_started(&mut self, led: &mut At<'_>, key: &TaskKey, exception: &Exception) {
        if *exception.code() != codes::TASK {
            let text = format!("task {}/{} could not be started: {exception}", key.ns, key.docid);
            led.env.note_text(Transition::TaskNotStarted, Some(led.log.number), text);
            self.rest_ms = led.env.now.mono_ms + REST_MS;
        }
        self.free(led, key);
    }

    /// The record says that it runs: the work begins.
    fn on_started(&mut self, led: &mut At<'_>, key: TaskKey, body: &Body) {
        let started = match body {
            Body::Json(text) => serde_json::from_str::<Started>(text.as_str()).ok(),
            Body::Nothing | Body::Binary { .. } => None,
        };
        let Some(started) = started else {
            let text =
                format!("task {}/{} was started, and nobody can read how", key.ns, key.docid);
            led.env.note_text(Transition::TaskNotStarted, Some(led.log.number), text);
            return self.free(led, &key);
        };
        led.env.note(Transition::TaskStarted, Some(led.log.number));
        if started.goes_around {
            return self.begin_ring_task(led, key, &started);
        }
        if !started.is_outside {
            return self.cycle(led, key, Box::new(Work::of(&started)), None);
        }
        let run = started.run();
        let work = led.env.next_id(NameOf::Task);
        let quota_ms = led.env.config.tasks.quota_ms;
        let job = TaskJob {
            ns: key.ns.clone(),
            docid: key.docid.clone(),
            run,
            operation: started.operation,
            param: started.param,
            quota_ms,
        };
        let until_ms = led.env.now.mono_ms + quota_ms + COMMIT_MS;
        let step = Step::Outside(run);
        self.held.insert(work, Held { key, step, op: None, again_ms: None, until_ms });
        let part = led.log.number;
        led.env.effects.push(Effect::RunTask { part, work, job: Box::new(job) });
    }

    fn cycle(
        &mut self,
        led: &mut At<'_>,
        key: TaskKey,
        work: Box<Work>,
        checkpoint: Option<JsonText>,
    ) {
        let Run { start_time, retry } = work.run;
        let docid = key.docid.clone();
        let run = TaskRun { docid, start_time, retry, checkpoint, is_work: true };
        let (operation, parameters) = (work.operation.clone(), work.parameters.clone());
        let quota_ms = led.env.config.tasks.quota_ms;
        self.ask(led, key, Step::Cycle(work), (&operation, parameters), run, quota_ms + COMMIT_MS);
    }

    fn begin_ring_task(&mut self, led: &mut At<'_>, key: TaskKey, started: &Started) {
        led.env.note(Transition::RingTaskBegan, Some(led.log.number));
        match RingTask::new(led, key.clone(), started) {
            Ok(mut ring_task) => {
                let work = led.env.next_id(NameOf::Task);
                let end = ring_task.go_on(led, work);
                self.ring_tasks.insert(work, ring_task);
                self.on_ring_task_end(led, work, end);
            }
            Err(it) => {
                let why = (it.code().to_string(), it.to_string());
                self.fail(led, key, started.run(), why, false);
            }
        }
    }

    /// Something was answered that work around the ring asked for.
    pub fn on_ring_task(&mut self, led: &mut At<'_>, (work, rid): (u64, u64), result: OpResult) {
        let Some(ring_task) = self.ring_tasks.get_mut(&work) else { return };
        let end = ring_task.on_answer(led, (work, rid), result);
        self.on_ring_task_end(led, work, end);
    }

    fn on_ring_task_end(&mut self, led: &mut At<'_>, work: u64, end: Option<TaskOutcome>) {
        let Some(end) = end else { return };
        let Some(ring_task) = self.ring_tasks.remove(&work) else { return };
        let (key, run) = (ring_task.key.clone(), ring_task.run);
        match end {
            Ok(()) => {
                led.env.note(Transition::TaskEnded, Some(led.log.number));
                let ending = Ending { changes: ring_task.changes(), ..ending_of(&key, run) };
                let bookkeeping = no_run(&key);
                self.ask(led, key, Step::End, (END, text_of(&ending)), bookkeeping, COMMIT_MS);
            }
            Err(why) => {
                let patience = led.env.config.tasks.patience;
                let patience = ring_task.retries().map(|retries| Patience { retries, ..patience });
                self.fail_with(led, key, (run, patience), why, false);
            }
        }
    }

    /// Goes on with work around the ring, and says now and then how far it has come.
    fn go_around(&mut self, led: &mut At<'_>) {
        let works: Vec<u64> = self.ring_tasks.keys().copied().collect();
        for work in works {
            let end = self.ring_tasks.get_mut(&work).and_then(|it| it.go_on(led, work));
            self.on_ring_task_end(led, work, end);
        }
        let now = led.env.now.mono_ms;
        if self.ring_tasks.is_empty() || now < self.tell_ms {
            return;
        }
        self.tell_ms = now + TELL_MS;
        let progress = self
            .ring_tasks
            .values_mut()
            .filter_map(|it| Some((it.key.clone(), it.run, it.news()?)));
        let progress: Vec<_> = progress.collect();
        for (key, run, progress) in progress {
            let Run { start_time, retry } = run;
            let docid = key.docid.clone();
            let parameters = text_of(&Progressing { docid, start_time, retry, progress });
            let bookkeeping = no_run(&key);
            self.ask(led, key, Step::Told(run), (PROGRESS, parameters), bookkeeping, COMMIT_MS);
        }
    }

    /// A program or a call came to its end.
    pub fn on_ran(&mut self, led: &mut At<'_>, work: u64, outcome: &TaskOutcome) {
        let Some(Held { key, step: Step::Outside(run), .. }) = self.held.remove(&work) else {
            return;
        };
        match outcome {
            Ok(()) => {
                led.env.note(Transition::TaskEnded, Some(led.log.number));
                let ending = ending_of(&key, run);
                let bookkeeping = no_run(&key);
                self.ask(led, key, Step::End, (END, text_of(&ending)), bookkeeping, COMMIT_MS);
            }
            Err(why) => self.fail(led, key, run, why.clone(), false),
        }
    }

    fn fail(
        &mut self,
        led: &mut At<'_>,
        key: TaskKey,
        run: Run,
        why: (String, String),
        is_lost: bool,
    ) {
        self.fail_with(led, key, (run, None), why, is_lost);
    }

    /// The same with a patience of its own.
    fn fail_with(
        &mut self,
        led: &mut At<'_>,
        key: TaskKey,
        (run, patience): (Run, Option<Patience>),
        (code, report): (String, String),
        is_lost: bool,
    ) {
        let how = if is_lost { Transition::TaskLost } else { Transition::TaskFailed };
        let text = format!("task {}/{}: {code}", key.ns, key.docid);
        led.env.note_text(how, Some(led.log.number), text);
        let patience = patience.or(Some(led.env.config.tasks.patience));
        let ending = Ending { code, report, is_lost, patience, ..ending_of(&key, run) };
        let bookkeeping = no_run(&key);
        self.ask(led, key, Step::End, (FAIL, text_of(&ending)), bookkeeping, COMMIT_MS);
    }

    /// A task was given up, or one that runs was deleted.
    fn on_record(&mut self, led: &mut At<'_>, key: &DocKey) {
        let doc = led.log.replica.docs.get(key).and_then(|it| it.of_application());
        match doc.map(|it| task_of(it)) {
            Some(Some(task)) if task.state() == TaskState::Parked => {
                let text = format!("task {}/{} failed too often", task.ns, task.docid());
                let (how, part) = (Transition::TaskGivenUp, Some(led.log.number));
                match session_of(&task) {
                    Some((session, event)) => {
                        led.env.note_session(how, part, session, format!("{event}: {text}"));
                    }
                    None => led.env.note_text(how, part, text),
                }
                let task = serde_json::to_value(task).unwrap_or_default();
                led.env.effects.push(Effect::TaskGivenUp { task: Box::new(task) });
            }
            Some(_) => {}
            None => self.stop(led, (key.name.space(), key.name.docid())),
        }
    }

    /// Nobody wants the end of a program or a call any more, or of work around the ring.
    fn stop(&mut self, led: &mut At<'_>, name: (&str, &str)) {
        let is_of = |it: &TaskKey| name == (it.ns.as_str(), it.docid.as_str());
        let is_meant = |it: &Held| matches!(it.step, Step::Outside(_)) && is_of(&it.key);
        let work = self.held.iter().find(|(_, it)| is_meant(it)).map(|it| *it.0);
        if let Some(held) = work.and_then(|it| self.held.remove(&it)) {
            led.env.effects.extend(work.map(|work| Effect::StopTask { work }));
            self.queue.ended(&held.key);
        }
        let work = self.ring_tasks.iter().find(|(_, it)| is_of(&it.key)).map(|it| *it.0);
        if let Some(ring_task) = work.and_then(|it| self.ring_tasks.remove(&it)) {
            self.queue.ended(&ring_task.key);
        }
    }

    /// What was refused is asked for again; and a program or a call of which nobody tells the end has failed.
    fn go_on(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        let is_due = |it: &Held| it.again_ms.is_some_and(|at| at <= now);
        let is_late = |it: &Held| matches!(it.step, Step::Outside(_)) && it.until_ms <= now;
        let due = self.held.iter().filter(|(_, it)| is_due(it) || is_late(it));
        let due: Vec<u64> = due.map(|it| *it.0).collect();
        for rid in due {
            let Some(held) = self.held.remove(&rid) else { continue };
            if let Step::Outside(run) = held.step {
                led.env.effects.push(Effect::StopTask { work: rid });
                let why = ("TIMEOUT".to_owned(), "nobody told how it ended".to_owned());
                self.fail(led, held.key, run, why, false);
            } else {
                self.send(led, held);
            }
        }
    }

    /// A worker is free, and takes what is next.
    fn free(&mut self, led: &mut At<'_>, key: &TaskKey) {
        self.queue.ended(key);
        self.take(led);
    }

    /// Runs that nobody here has: a former owner began them, or their end could not be written.
    fn look_for_lost(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        if now < self.lost_ms || !led.may_begin() {
            return;
        }
        self.lost_ms = now + LOST_LOOK_MS;
        let index = &led.log.replica.counts.tasks.index;
        let at = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let settings = &led.env.config.tasks.queues;
        let owned_ms = now.saturating_sub(led.lead.since_ms);
        let spaces = &led.env.documents_env.spaces;
        let is_closed = |ns: &rota_docstore::Namespace| spaces.check_open(ns).is_err();
        for (key, run) in self.queue.lost(settings, index, is_closed, (at, owned_ms), LOST_MAX) {
            // An end of it may be on its way already.
            let is_asked = self.held.values().any(|it| it.key == key);
            if !is_asked {
                self.fail(led, key, run, (rota_tasks::LOST.to_owned(), String::new()), true);
            }
        }
    }
}

/// The session whose action a task tries again, and the event of that.
fn session_of(task: &Task) -> Option<(SessionKey, String)> {
    let Param::Json(param) = &task.param else { return None };
    let work = (task.op_name == ACT).then(|| ActWork::read(param).ok())??;
    let id = SessionId::parse(&work.id).ok()?;
    let event = format!("{} {}", work.life_cycle, work.word);
    Some((SessionKey::new(task.ns.clone(), id), event))
}

/// What a request is that only keeps the record.
fn no_run(key: &TaskKey) -> TaskRun {
    TaskRun {
        docid: key.docid.clone(),
        start_time: Stamp::MIN,
        retry: 0,
        checkpoint: None,
        is_work: false,
    }
}

fn ending_of(key: &TaskKey, Run { start_time, retry }: Run) -> Ending {
    Ending {
        docid: key.docid.clone(),
        start_time,
        retry,
        code: String::new(),
        report: String::new(),
        is_lost: false,
        patience: None,
        changes: None,
    }
}

fn text_of<T: Serialize>(parameters: &T) -> Option<JsonText> {
    JsonText::of(parameters).ok()
}

impl Resident for Tasks {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self::default()
    }

    /// An arc may have been cut out: what its tasks wait for is another partition's now, and is lost here.
    fn serve(&mut self, led: &mut At<'_>) {
        let slots = Slots { m: led.env.view().m, range: led.log.range };
        let is_gone = |key: &TaskKey| {
            let name = DocName::new(&key.ns, TASK_CLASS, &key.docid);
            name.is_ok_and(|it| !slots.holds(slots.slot_of(&it)))
        };
        let gone = self.held.extract_if(.., |_, it| is_gone(&it.key));
        let gone: Vec<(u64, Held)> = gone.collect();
        for (work, held) in gone {
            if let Step::Outside(_) = held.step {
                led.env.effects.push(Effect::StopTask { work });
            }
            self.queue.ended(&held.key);
        }
        let gone: Vec<(u64, RingTask)> =
            self.ring_tasks.extract_if(.., |_, it| is_gone(&it.key)).collect();
        gone.iter().for_each(|(_, it)| self.queue.ended(&it.key));
    }

    fn committed(&mut self, led: &mut At<'_>, key: &DocKey) {
        if key.name.class() == TASK_CLASS {
            self.on_record(led, key);
            self.take(led);
        }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        let is_idle = !self.is_busy() && led.log.replica.counts.tasks.index.is_empty();
        if turn != Turn::Rest || is_idle {
            return;
        }
        self.go_on(led);
        self.go_around(led);
        self.look_for_lost(led);
        self.take(led);
    }

    fn is_busy(&self) -> bool {
        !self.held.is_empty() || !self.ring_tasks.is_empty()
    }

    fn hand_on(&mut self, next: &mut Self) {
        *next = std::mem::take(self);
    }

    fn step_down(&mut self, env: &mut Env) {
        for (work, held) in std::mem::take(self).held {
            if let Step::Outside(_) = held.step {
                env.effects.push(Effect::StopTask { work });
            }
        }
    }
}
